/* Books of a host: what host_table.c does with a file, with an image in memory. A commit may be stopped
 * after any of its stores; whoever comes next sees what the stores before it left. */
#include <stdlib.h>

#include "broker/planted.h"
#include "tests/sim/sim.h"

static struct effects effects;
static uint64_t stamp; /* of what is stored: no version is used twice */

struct sim_desk *desk_of(uint32_t host, uint32_t provider, enum sim_who who)
{
    return &hosts[host].shelves[provider].desks[who];
}

static void settings_of(uint32_t provider, struct book_settings *settings)
{
    const struct sim_server *server = &servers[provider];
    book_settings_default(settings);
    settings->ghost_ms = 20000;
    settings->drain_ms = 2000;
    if (server->signal == SIM_STATIC) {
        settings->probed = 0;
        settings->slots = (uint32_t)server->slots;
    }
}

/* The seconds of the wall clock, the kept file, and what is known: above all of it. */
uint64_t epoch_next(uint32_t host, uint32_t provider, uint64_t at_least)
{
    struct sim_shelf *shelf = &hosts[host].shelves[provider];
    int64_t wall = hosts[host].clock.wall_s + sim_now / NS_PER_SEC;
    uint64_t epoch = at_least + 1;
    if (wall > 0 && (uint64_t)wall > epoch)
        epoch = (uint64_t)wall;
    if (shelf->kept_epoch + 1 > epoch)
        epoch = shelf->kept_epoch + 1;
    return shelf->kept_epoch = epoch;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void forget_book(struct sim_desk *desk)
{
    struct book_settings settings = desk->book.settings;
    char provider[NAME_SIZE];
    memcpy(provider, desk->book.provider, sizeof provider);
    book_init(&desk->book, provider, &settings);
    desk->sight_version = 0;
    memset(desk->floor_versions, 0, sizeof desk->floor_versions);
    memset(desk->record_versions, 0, sizeof desk->record_versions);
}

static void load(struct sim_desk *desk)
{
    const struct sim_image *image = desk->image;
    struct book *book = &desk->book;
    if (image->writes == desk->writes)
        return;
    if (image->head_version != desk->head_version) {
        if (book->head.instance != 0 && book->head.instance != image->head.instance)
            forget_book(desk);
        book->head = image->head;
        desk->head_version = image->head_version;
    }
    if (image->sight_version != desk->sight_version) {
        book->sight = image->sight;
        desk->sight_version = image->sight_version;
    }
    for (uint32_t i = 0; i < FLOORS_MAX; i++)
        if (image->floor_versions[i] != desk->floor_versions[i]) {
            book->floors.entries[i] = image->floors[i];
            desk->floor_versions[i] = image->floor_versions[i];
        }
    for (uint32_t i = 0; i < image->used; i++)
        if (image->record_versions[i] && image->record_versions[i] != desk->record_versions[i]) {
            book_adopt(book, i, &image->records[i]);
            desk->record_versions[i] = image->record_versions[i];
        }
    desk->writes = image->writes;
}

/* ---- committing ------------------------------------------------------------------------------ */

static void write_sight(struct sim_desk *desk)
{
    desk->image->sight = desk->book.sight;
    desk->sight_version = desk->image->sight_version = ++stamp;
}

/* In the order of host_table.c: head, sight, floors, records. False: stopped after `most` stores. */
static bool commit(struct sim_desk *desk, uint32_t most)
{
    struct sim_image *image = desk->image;
    struct book *book = &desk->book;
    uint32_t done = 0;
    if (!book_is_dirty(book))
        return true;
    desk->writes = ++image->writes;
    if (book->head_dirty) {
        if (done++ == most)
            return false;
        image->head = book->head;
        desk->head_version = image->head_version = ++stamp;
    }
    if (book->sight_dirty && !book->sight_last) {
        if (done++ == most)
            return false;
        write_sight(desk);
    }
    for (uint32_t i = 0; i < book->dirty_floor_count; i++) {
        uint32_t at = book->dirty_floors[i];
        if (done++ == most)
            return false;
        image->floors[at] = book->floors.entries[at];
        desk->floor_versions[at] = image->floor_versions[at] = ++stamp;
    }
    for (uint32_t i = 0; i < book->dirty_count; i++) {
        uint32_t at = book->dirty[i];
        if (done++ == most)
            return false;
        image->records[at] = book->records[at];
        desk->record_versions[at] = image->record_versions[at] = ++stamp;
        image->used = at + 1 > image->used ? at + 1 : image->used;
    }
    if (book->sight_dirty && book->sight_last) {
        if (done++ == most)
            return false;
        write_sight(desk);
    }
    if (done > 4)
        SIM_MARK(commit_stopped_late);
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Without its directory a process has a book of its own; an agent does not run without it. */
static struct sim_image *image_for(uint32_t host, uint32_t provider, struct sim_desk *desk,
                                   enum sim_who who)
{
    if (!hosts[host].shm_missing || who == SIM_BY_AGENT) {
        if (desk->own && desk->image == desk->own)
            SIM_MARK(shm_found_again);
        return &hosts[host].shelves[provider].image;
    }
    SIM_MARK(shm_missing);
    if (rand_one_in(2))
        SIM_MARK(shm_full);
    if (!desk->own)
        desk->own = calloc(1, sizeof *desk->own);
    else
        desk->own->ready = false;
    return desk->own;
}

static void clear_image(struct sim_image *image)
{
    memset(image->floor_versions, 0, sizeof image->floor_versions);
    memset(image->record_versions, 0, image->used * sizeof image->record_versions[0]);
    image->head_version = image->sight_version = 0;
    image->used = 0;
}

static void initialise(uint32_t host, uint32_t provider, struct sim_desk *desk)
{
    struct sim_image *image = desk->image;
    uint64_t instance = rand_word() | 1;
    clear_image(image);
    image->writes = instance >> 32;
    book_found(&desk->book, instance, epoch_next(host, provider, 0));
    commit(desk, UINT32_MAX);
    book_clean(&desk->book);
    image->ready = true;
}

void desk_open(uint32_t host, uint32_t provider, enum sim_who who)
{
    struct sim_desk *desk = desk_of(host, provider, who);
    struct book_settings settings;
    if (desk->open)
        return;
    settings_of(provider, &settings);
    desk->image = image_for(host, provider, desk, who);
    book_init(&desk->book, provider_name(provider), &settings);
    if (who == SIM_BY_AGENT && !desk->refusals)
        desk->refusals = calloc(1, sizeof *desk->refusals);
    broker_init(&desk->broker, &desk->book, who == SIM_BY_AGENT ? desk->refusals : NULL);
    desk->writes = desk->head_version = desk->sight_version = 0;
    memset(desk->floor_versions, 0, sizeof desk->floor_versions);
    memset(desk->record_versions, 0, sizeof desk->record_versions);
    desk->open = true;
    if (!desk->image->ready)
        initialise(host, provider, desk);
    else
        load(desk);
    if (desk->image != desk->own)
        check_opened(host, provider, &desk->book);
}

/* Its process is gone. */
void desk_drop(uint32_t host, uint32_t provider, enum sim_who who)
{
    struct sim_desk *desk = desk_of(host, provider, who);
    desk->open = false;
    book_clean(&desk->book);
}

/* A reboot: memory is lost. */
void table_wipe(uint32_t host, uint32_t provider)
{
    struct sim_shelf *shelf = &hosts[host].shelves[provider];
    desk_drop(host, provider, SIM_BY_AGENT);
    desk_drop(host, provider, SIM_BY_CLIENT);
    shelf->image.ready = false;
    shelf->read_sent[0] = shelf->read_sent[1] = 0;
    shelf->reading = false;
}

/* What a damaged cell carried forward is lost with it, which no book could make good. */
static bool carries_a_maximum(const struct sim_image *image, uint32_t cell)
{
    const struct record *record = &image->records[cell];
    bool counter = true, place = true, token = true;
    for (uint32_t i = 0; i < image->used; i++) {
        const struct record *other = &image->records[i];
        if (i == cell || image->record_versions[i] == 0)
            continue;
        counter = counter && other->counter_max < record->counter_max;
        place = place && other->place_max < record->place_max;
        token = token && other->token_max < record->token_max;
    }
    return counter || place || token;
}

/* Whoever had read the cell before it changed would go on with what it was then. */
static bool is_known_to_all(uint32_t host, uint32_t provider, uint32_t cell)
{
    const struct sim_shelf *shelf = &hosts[host].shelves[provider];
    for (int who = SIM_BY_AGENT; who <= SIM_BY_CLIENT; who++) {
        const struct sim_desk *desk = &shelf->desks[who];
        if (desk->open && desk->record_versions[cell] != 0 &&
            desk->record_versions[cell] != shelf->image.record_versions[cell])
            return false;
    }
    return true;
}

/* A cell that cannot be read is passed over: who had read it keeps what it read, others do without. Only
 * of ended leases: what else is lost is lost. */
void table_damage(uint32_t host, uint32_t provider)
{
    struct sim_image *image = &hosts[host].shelves[provider].image;
    for (uint32_t i = 0; image->ready && i < image->used; i++)
        if (image->records[i].state == RECORD_GONE && image->record_versions[i] > 0 &&
            image->records[i].id.instance == image->head.instance && !carries_a_maximum(image, i) &&
            is_known_to_all(host, provider, i)) {
            image->record_versions[i] = 0;
            SIM_MARK(record_damaged);
            return;
        }
}

/* ---- saying it ------------------------------------------------------------------------------- */

static void trace_step(uint32_t host, uint32_t provider, enum sim_who who,
                       const struct event *event)
{
    static const char *const kinds[] = {
        [EVENT_TICK] = "tick",   [EVENT_REQUEST] = "request", [EVENT_READING] = "reading",
        [EVENT_DEAD] = "dead",   [EVENT_STATE] = "state",     [EVENT_NAMED] = "named",
        [EVENT_CLAIM] = "claim",
    };
    static const char *const verbs[] = {"-", "acquire", "verify", "renew", "release"};
    static const char *const verdicts[] = {"granted", "go", "no", "wait", "unread", "gone"};
    const struct book *book = &desk_of(host, provider, who)->book;
    printf("%lld h%u p%u %s %s", (long long)(sim_now / SIM_MS), host, provider,
           who == SIM_BY_AGENT ? "agent" : "client", kinds[event->kind]);
    if (event->kind == EVENT_REQUEST)
        printf(" %s flags %x req %llx:%llx lease %llx: %s%s %s", verbs[event->request->verb],
               event->request->flags, (unsigned long long)event->request->id.hi,
               (unsigned long long)event->request->id.lo,
               (unsigned long long)(event->request->lease.instance >> 40 << 16 ^
                                    event->request->lease.counter),
               verdicts[effects.reply.verdict], effects.reply.undecided ? " undecided" : "",
               reason_name(effects.reply.reason));
    if (event->kind == EVENT_STATE)
        printf(" %llu.%llu", (unsigned long long)event->state->epoch,
               (unsigned long long)event->state->version);
    for (uint32_t i = 0; i < book->dirty_count; i++) {
        const struct record *record = &book->records[book->dirty[i]];
        printf(" [%u: %llx %s %s%s %llu, %lld ms]", book->dirty[i],
               (unsigned long long)(record->id.instance >> 40 << 16 ^ record->id.counter),
               record_state_name((enum record_state)record->state),
               record->flags & RECORD_NAMED ? "named " : "",
               record_end_name((enum record_end)record->end), (unsigned long long)record->token,
               (long long)((record->deadline_ns - event->now) / SIM_MS));
    }
    printf("%s\n", book_is_copy(book) ? " (copy)" : "");
}

/* ---- the way of every change ----------------------------------------------------------------- */

/* Planted: the book was read before the lock was had. */
static bool reads_under_lock(void)
{
    return !PLANTED(PLANT_LOCK_NOT_COVERING_READ) || rand_one_in(4);
}

/* Whoever is left finds what the dead one stored. */
static void look_after_crash(uint32_t host, uint32_t provider)
{
    for (int who = SIM_BY_AGENT; who <= SIM_BY_CLIENT; who++) {
        struct sim_desk *desk = desk_of(host, provider, (enum sim_who)who);
        if (!desk->open || desk->image == desk->own)
            continue;
        load(desk);
        check_opened(host, provider, &desk->book);
        return;
    }
}

static enum sim_table_result finish(uint32_t host, uint32_t provider, enum sim_who who,
                                    const struct event *event)
{
    struct sim_host *at = &hosts[host];
    struct sim_desk *desk = desk_of(host, provider, who);
    bool crashes = at->crash_at > 0 && at->crash_who == who && book_is_dirty(&desk->book);
    uint32_t most = crashes ? at->crash_at - 1 : UINT32_MAX;
    if (desk->image != desk->own && !crashes)
        check_step(host, provider, who, event, &effects);
    if (crashes)
        at->crash_at = 0;
    if (!commit(desk, most)) {
        SIM_MARK(commit_stopped_early);
        desk_drop(host, provider, who);
        look_after_crash(host, provider);
        return TABLE_CRASHED;
    }
    if (crashes && desk->image != desk->own)
        check_step(host, provider, who, event, &effects);
    book_clean(&desk->book);
    return TABLE_OK;
}

enum sim_table_result table_step(uint32_t host, uint32_t provider, enum sim_who who,
                                 struct event *event, struct effects **out)
{
    struct sim_desk *desk = desk_of(host, provider, who);
    *out = &effects;
    desk_open(host, provider, who);
    if (hosts[host].locked_until > sim_now && desk->image != desk->own)
        return TABLE_LOCKED;
    if (reads_under_lock())
        load(desk);
    event->now = sim_here(host);
    broker_step(&desk->broker, event, &effects);
    if (sim_traces)
        trace_step(host, provider, who, event);
    enum sim_table_result result = finish(host, provider, who, event);
    if (result == TABLE_OK)
        agent_changed(host, provider, &effects);
    return result;
}

void table_change(uint32_t host, uint32_t provider, enum sim_who who,
                  void (*change)(struct book *book, uint64_t argument), uint64_t argument)
{
    struct sim_desk *desk = desk_of(host, provider, who);
    desk_open(host, provider, who);
    load(desk);
    change(&desk->book, argument);
    commit(desk, UINT32_MAX);
    book_clean(&desk->book);
    if (desk->image != desk->own)
        check_opened(host, provider, &desk->book);
}

void shelf_look(uint32_t host, uint32_t provider, enum sim_who who)
{
    desk_open(host, provider, who);
    load(desk_of(host, provider, who));
}
