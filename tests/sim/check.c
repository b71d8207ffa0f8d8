/* What must be true: after each step of a book, of each answer, and when all is well again. README.md
 * says which promise each of these is. */
#include <stdlib.h>

#include "tests/sim/sim.h"

/* What became of an id at an owner, over all of its books. */
struct life {
    struct lease_id id;
    uint32_t where; /* provider and host, 0: this entry is free */
    uint8_t state;
    bool withdrawn, forgotten;
    uint64_t token;
    ns_t touched;
};

#define LIVES (1u << 19)
static struct life *lives;
static uint32_t life_count;

/* Of a book that a host has, as copy or owner. */
static struct view {
    uint64_t last_token, heard_epoch, heard_version, epoch_before;
    bool amnesia; /* its epoch may be below what it was: nothing is left that could tell */
    bool woke, copy;
    bool by_agent; /* this step: other processes of its host do not wait for it to wake */
} views[SIM_HOSTS_MAX][SIM_PROVIDERS_MAX];

static struct said {
    uint64_t hi, lo;
    uint32_t op, life, host;
    enum verdict verdict;
    struct lease_id lease;
    uint64_t token;
    ns_t at;
} saids[1u << 16];

static struct published {
    uint64_t epoch, version, digest;
    uint32_t where;
} publisheds[1u << 12];

static uint64_t choices, firsts;

void check_begin(void)
{
    if (!lives)
        lives = calloc(LIVES, sizeof *lives);
    memset(lives, 0, LIVES * sizeof *lives);
    life_count = 0;
    memset(views, 0, sizeof views);
    memset(saids, 0, sizeof saids);
    memset(publisheds, 0, sizeof publisheds);
    choices = firsts = 0;
}

static uint32_t where(uint32_t host, uint32_t provider)
{
    return 1 + host * SIM_PROVIDERS_MAX + provider;
}

static uint64_t mix(uint64_t word)
{
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return word ^ word >> 29;
}

/* ---- lives ----------------------------------------------------------------------------------- */

static struct life *find_life(uint32_t at, struct lease_id id)
{
    uint64_t i = mix(book_place_by_id(id) + at) % LIVES;
    while (lives[i].where && !(lives[i].where == at && lease_id_equal(lives[i].id, id)))
        i = (i + 1) % LIVES;
    return &lives[i];
}

/* Those that ended long ago are forgotten. */
static void make_room(void)
{
    struct life *before = lives;
    lives = calloc(LIVES, sizeof *lives);
    life_count = 0;
    for (uint32_t i = 0; i < LIVES; i++)
        if (before[i].where && sim_now - before[i].touched < 900 * NS_PER_SEC) {
            *find_life(before[i].where, before[i].id) = before[i];
            life_count++;
        }
    free(before);
}

static struct life *life_of(uint32_t host, uint32_t provider, struct lease_id id)
{
    if (life_count > LIVES / 4 * 3)
        make_room();
    struct life *life = find_life(where(host, provider), id);
    if (!life->where) {
        *life = (struct life){.id = id, .where = where(host, provider)};
        life_count++;
    }
    life->touched = sim_now;
    return life;
}

static bool was_known(uint32_t provider, struct lease_id id)
{
    for (uint32_t host = 0; host < host_count; host++)
        if (hosts[host].voices[provider].declared && find_life(where(host, provider), id)->where)
            return true;
    return false;
}

static const struct record *find_in_image(const struct sim_image *image, struct lease_id id)
{
    for (uint32_t i = 0; image->ready && i < image->used; i++)
        if (lease_id_equal(image->records[i].id, id))
            return &image->records[i];
    return NULL;
}

bool is_authority(uint32_t host, uint32_t provider)
{
    return hosts[host].voices[provider].declared;
}

/* ---- the owner's book ------------------------------------------------------------------------ */

static bool is_lease(const struct record *record)
{
    return record->state == RECORD_HELD || record->state == RECORD_DISPATCHED;
}

/* S2, S4: no way back, and tokens grow. */
static void check_record(uint32_t host, uint32_t provider, const struct book *book,
                         const struct record *record, uint64_t *most)
{
    struct view *view = &views[host][provider];
    struct life *life = life_of(host, provider, record->id);
    SIM_MUST(life->state < RECORD_ORPHAN || record->state >= life->state);
    SIM_MUST(life->state != RECORD_DISPATCHED || record->state >= RECORD_DISPATCHED);
    SIM_MUST(!life->withdrawn || record->state == RECORD_GONE);
    SIM_MUST(life->token == 0 || record->token == life->token);
    bool forgot = view->amnesia && book->head.epoch <= view->last_token >> TOKEN_BITS;
    if (record->token != 0 && life->token == 0 && !forgot) {
        SIM_MUST(record->token > view->last_token);
        SIM_MUST(!view->woke || !view->by_agent ||
                 record->token >> TOKEN_BITS > view->epoch_before);
        if (view->amnesia)
            SIM_MARK(old_epoch_raised);
        view->amnesia = false;
        *most = record->token > *most ? record->token : *most;
    }
    SIM_MUST(!is_lease(record) || record->token != 0);
    SIM_MUST(!(record->flags & RECORD_NAMED));
    life->state = record->state;
    life->token = record->token;
}

/* L3: who came first is served first. */
static void check_queue(const struct book *book, const struct record *record)
{
    SIM_MARK(judged_queue);
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *other = &book->records[book->live[i]];
        if (other->state != RECORD_WAITING || other->place >= record->place || other->slot >= 0)
            continue;
        SIM_MUST(record->state == RECORD_HELD && (other->flags & RECORD_TO_DISPATCH));
    }
}

static bool counts_above(const struct event *event)
{
    return event->kind == EVENT_CLAIM ||
           (event->kind == EVENT_REQUEST && (event->request->flags & REQUEST_RUNNING));
}

/* What the last reading showed and is still at work, and what was given a go just now: never more than
 * there are slots. What was given back since is another matter: its work is not looked for. */
static void check_server(uint32_t host, uint32_t provider, const struct book *book, ns_t now,
                         int32_t units)
{
    const struct sim_shelf *shelf = &hosts[host].shelves[provider];
    const struct reading *reading = &book->sight.reading;
    if (!book_is_probed(book))
        return;
    SIM_MUST(reading->health == HEALTH_OK);
    SIM_MUST(now - reading->answered_ns <= (PROBE_MS + 1) * NS_PER_MS);
    for (int i = 0; i < 2; i++) {
        bool this_one = shelf->read_sent[i] == reading->sent_ns && reading->sent_ns != 0;
        if (!this_one || !reading_counts(reading) || book->ended_last_ns > reading->sent_ns)
            continue;
        SIM_MARK(judged_server_full);
        SIM_MUST(server_held_since(provider, shelf->read_shown[i]) + units <=
                 servers[provider].slots);
    }
}

static void check_goes(uint32_t host, uint32_t provider, struct book *book,
                       const struct event *event, const struct effects *effects)
{
    int32_t units = 0;
    for (uint32_t i = 0; i < effects->note_count; i++) {
        const struct note *note = &effects->notes[i];
        const struct record *record =
            note->kind == NOTE_WENT ? book_find(book, note->lease, UINT32_MAX) : NULL;
        if (note->kind == NOTE_EXPIRED || note->kind == NOTE_LAPSED)
            server_taint(provider);
        units += record ? record->units : 0;
    }
    if (counts_above(event)) {
        if (units > 0)
            server_taint(provider);
        return;
    }
    if (units == 0)
        return;
    struct tally tally;
    admission_tally(book, event->now, &tally);
    SIM_MUST(tally.dispatched <= tally.slots);
    check_server(host, provider, book, event->now, units);
}

/* S5: only an answer extends a lease of this host. The image has it as it was before this step. */
static void check_not_extended(uint32_t host, uint32_t provider, uint32_t cell,
                               const struct record *record)
{
    const struct record *before = &hosts[host].shelves[provider].image.records[cell];
    if (lease_id_equal(before->id, record->id) && is_lease(before) && !before->heard_s)
        SIM_MUST(record->deadline_ns <= before->deadline_ns);
}

/* What the owner has granted no claim extends. */
static void check_claim(uint32_t host, uint32_t provider, uint32_t cell,
                        const struct record *record, const struct event *event)
{
    const struct record *before = &hosts[host].shelves[provider].image.records[cell];
    if (event->kind == EVENT_CLAIM && lease_id_equal(before->id, record->id) &&
        before->state == record->state && is_lease(record))
        SIM_MUST(record->deadline_ns <= before->deadline_ns);
}

/* Where no reading tells, work may run on for a while after its lease. */
static void check_end_of(uint32_t host, uint32_t provider, const struct book *book, uint32_t cell,
                         const struct event *event)
{
    const struct record *before = &hosts[host].shelves[provider].image.records[cell];
    const struct record *record = &book->records[cell];
    const struct reading *reading = &book->sight.reading;
    bool cut = before->state == RECORD_DISPATCHED && record->state == RECORD_GONE &&
               lease_id_equal(before->id, record->id) &&
               (record->end == END_EXPIRED || record->end == END_LAPSED);
    bool told = reading->signal == SIGNAL_EXACT || reading->health == HEALTH_DOWN;
    SIM_MUST(!cut || (record->flags & RECORD_GHOST) || told || counts_above(event));
}

/* An owner that lost its memory cannot know that an id is dead, if whoever brings it has never heard of
 * the owner, and so cannot say that it is of before. */
static void forgive(uint32_t host, uint32_t provider, const struct event *event)
{
    bool claims = event->kind == EVENT_CLAIM && event->claim->epoch == 0;
    bool brings = event->kind == EVENT_REQUEST && event->request->epoch == 0 &&
                  (event->request->flags & REQUEST_BRINGS_ID);
    if (!claims && !brings)
        return;
    struct lease_id id = claims ? event->claim->lease.id : event->request->lease;
    struct life *life = find_life(where(host, provider), id);
    if (life->where && life->forgotten)
        *life = (struct life){.id = id, .where = life->where, .touched = sim_now};
}

static void check_owner(uint32_t host, uint32_t provider, struct book *book,
                        const struct event *event, const struct effects *effects)
{
    struct view *view = &views[host][provider];
    uint64_t most = view->last_token;
    forgive(host, provider, event);
    for (uint32_t i = 0; i < book->dirty_count; i++) {
        const struct record *record = &book->records[book->dirty[i]];
        if (record->state == RECORD_FREE)
            continue;
        check_claim(host, provider, book->dirty[i], record, event);
        check_end_of(host, provider, book, book->dirty[i], event);
        bool waited = life_of(host, provider, record->id)->state == RECORD_WAITING;
        check_record(host, provider, book, record, &most);
        if (waited && is_lease(record) && !counts_above(event))
            check_queue(book, record);
    }
    if (most > view->last_token && view->by_agent)
        view->woke = false;
    view->last_token = most;
    if (event->kind == EVENT_CLAIM && event->claim->withdrawn &&
        !book_find(book, event->claim->lease.id, UINT32_MAX) &&
        event->claim->lease.id.instance != book->head.instance)
        life_of(host, provider, event->claim->lease.id)->withdrawn = true;
    check_goes(host, provider, book, event, effects);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* S5: no observer's end is before the owner's, where both speak of the same moment. */
static void check_observer(uint32_t host, uint32_t provider, const struct book *book)
{
    for (uint32_t owner = 0; owner < host_count; owner++) {
        const struct sim_image *image = &hosts[owner].shelves[provider].image;
        if (owner == host || !is_authority(owner, provider) || !image->ready ||
            image->head.epoch != book->sight.heard_epoch ||
            image->writes != book->sight.heard_version)
            continue;
        for (uint32_t i = 0; i < book->live_count; i++) {
            const struct record *record = &book->records[book->live[i]];
            const struct record *real = find_in_image(image, record->id);
            if (!record->heard_s || !(record->flags & RECORD_NAMED) || !is_lease(record) || !real ||
                real->state != record->state)
                continue;
            SIM_MARK(judged_observers);
            ns_t end = sim_true(owner, real->deadline_ns);
            ns_t lasts = end - sim_true(owner, real->acquired_ns);
            ns_t slack = 2 * SIM_MS + lasts / 1000000 * SIM_DRIFT_PPM;
            SIM_MUST(sim_true(host, record->deadline_ns) + slack >= end);
        }
    }
}

/* S6: views only move up. S8: what bears the owner's name the owner has known. */
static void check_copy(uint32_t host, uint32_t provider, struct book *book,
                       const struct event *event)
{
    struct view *view = &views[host][provider];
    const struct sight *sight = &book->sight;
    SIM_MUST(sight->heard_epoch >= view->heard_epoch);
    SIM_MUST(sight->heard_epoch > view->heard_epoch || sight->heard_version >= view->heard_version);
    view->heard_epoch = sight->heard_epoch;
    view->heard_version = sight->heard_version;
    for (uint32_t i = 0; i < book->dirty_count; i++) {
        const struct record *record = &book->records[book->dirty[i]];
        if ((record->flags & RECORD_NAMED) && record_is_live(record) && record->named_version)
            SIM_MUST(was_known(provider, record->id));
        if (event->kind == EVENT_STATE && is_lease(record) && !record->heard_s)
            check_not_extended(host, provider, book->dirty[i], record);
    }
    if (event->kind == EVENT_STATE)
        check_observer(host, provider, book);
}

/* S7: what is too old is neither free nor taken. */
static void check_stale(struct book *book, ns_t now)
{
    struct tally tally;
    const struct reading *reading = &book->sight.reading;
    if (!book_is_probed(book) || reading->sent_ns == 0 ||
        now - reading->answered_ns <= READING_TRUST_MS * NS_PER_MS)
        return;
    SIM_MARK(judged_stale);
    admission_tally(book, now, &tally);
    SIM_MUST(tally.available == -1);
}

/* ---- after each step ------------------------------------------------------------------------- */

void check_step(uint32_t host, uint32_t provider, enum sim_who who, const struct event *event,
                const struct effects *effects)
{
    struct sim_desk *desk = desk_of(host, provider, who);
    struct book *book = &desk->book;
    ns_t now = desk->broker.now;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        SIM_MUST(record->state == RECORD_ORPHAN || record->deadline_ns > now);
    }
    check_stale(book, now);
    views[host][provider].by_agent = who == SIM_BY_AGENT;
    views[host][provider].copy = views[host][provider].copy || book_is_copy(book);
    if (book_is_copy(book))
        check_copy(host, provider, book, event);
    else if (is_authority(host, provider))
        check_owner(host, provider, book, event, effects);
}

/* A copy becomes the owner's book: what is in it was granted elsewhere. */
static void begin_owner(uint32_t host, uint32_t provider, const struct book *book)
{
    struct view *view = &views[host][provider];
    for (uint32_t i = 0; i < book->used; i++) {
        const struct record *record = &book->records[i];
        if (record->state == RECORD_FREE)
            continue;
        struct life *life = life_of(host, provider, record->id);
        life->state = record->state;
        life->token = record->token;
        life->withdrawn = false;
        view->last_token = record->token > view->last_token ? record->token : view->last_token;
    }
}

/* Somebody begins with what is there, perhaps with half of a commit. */
void check_opened(uint32_t host, uint32_t provider, struct book *book)
{
    struct view *view = &views[host][provider];
    if (book_is_copy(book)) {
        if (!view->copy)
            view->heard_epoch = view->heard_version = 0;
        view->copy = true;
        return;
    }
    view->heard_epoch = view->heard_version = 0;
    if (!is_authority(host, provider))
        return;
    if (view->copy)
        begin_owner(host, provider, book);
    view->copy = false;
    uint64_t most = view->last_token;
    for (uint32_t i = 0; i < book->used; i++)
        if (book->records[i].state != RECORD_FREE)
            check_record(host, provider, book, &book->records[i], &most);
    view->last_token = most;
}

/* A reboot: what lived may come back, if somebody brings it; what had ended may not. */
void check_wiped(uint32_t host, uint32_t provider, bool amnesia)
{
    struct view *view = &views[host][provider];
    view->heard_epoch = view->heard_version = 0;
    view->copy = false;
    view->amnesia = view->amnesia || amnesia;
    view->woke = false;
    for (uint32_t i = 0; i < sizeof saids / sizeof saids[0]; i++)
        if (saids[i].host == host)
            saids[i].lo = 0;
    for (uint32_t i = 0; i < LIVES; i++)
        if (lives[i].where == where(host, provider)) {
            lives[i].forgotten = true;
            if (lives[i].state >= RECORD_ORPHAN || lives[i].withdrawn)
                continue;
            lives[i].state = RECORD_FREE;
            lives[i].token = 0;
        }
}

void check_distrusted(uint32_t host, uint32_t provider)
{
    struct view *view = &views[host][provider];
    view->woke = true;
    view->epoch_before = desk_of(host, provider, SIM_BY_AGENT)->book.head.epoch;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* S3: who asks again is told the same. */
void check_answer(uint32_t host, uint32_t provider, const struct message *question,
                  const struct answer *answer)
{
    struct request_id id;
    memcpy(&id, question->req, sizeof id);
    struct said *said = &saids[mix(id.lo + id.hi) % (sizeof saids / sizeof saids[0])];
    bool takes = question->op == MESSAGE_VERIFY || question->op == MESSAGE_ACQUIRE;
    bool again = said->hi == id.hi && said->lo == id.lo && said->op == (uint32_t)question->op &&
                 said->host == host;
    bool good = answer->verdict == ANSWER_GO || answer->verdict == ANSWER_GRANTED;
    if (!takes)
        return;
    if (again) {
        SIM_MARK(judged_duplicate);
        SIM_MARK(asked_again_answered);
        bool was_good = said->verdict == ANSWER_GO || said->verdict == ANSWER_GRANTED;
        bool lately =
            sim_now - said->at < (REFUSAL_MS - 20) * SIM_MS && said->life == hosts[host].agent_life;
        bool same = lease_id_equal(said->lease, answer->lease) && said->token == answer->token;
        /* a record that was taken for another lease is forgotten, and its requests with it */
        SIM_MUST(!good || !was_good || same ||
                 !find_in_image(&hosts[host].shelves[provider].image, said->lease));
        SIM_MUST(!lately || said->verdict != ANSWER_NO || !good);
        return;
    }
    *said = (struct said){.hi = id.hi,
                          .lo = id.lo,
                          .op = (uint32_t)question->op,
                          .life = hosts[host].agent_life,
                          .host = host,
                          .verdict = answer->verdict,
                          .lease = answer->lease,
                          .token = answer->token,
                          .at = sim_now};
}

/* S6: one version has one content. */
void check_published(uint32_t host, uint32_t provider, const struct gossip_state *state,
                     const struct gossip_lease *leases, uint32_t count)
{
    uint64_t digest = count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = leases[i].token * 31 + leases[i].place * 7 + (uint64_t)leases[i].state;
        for (const char *at = leases[i].lease; *at; at++)
            word = word * 131 + (unsigned char)*at;
        digest += mix(word);
    }
    uint64_t key = mix(state->epoch * 31 + state->version * 7 + where(host, provider));
    struct published *published = &publisheds[key % (sizeof publisheds / sizeof publisheds[0])];
    if (published->where == where(host, provider) && published->epoch == state->epoch &&
        published->version == state->version)
        SIM_MUST(published->digest == digest);
    *published = (struct published){state->epoch, state->version, digest, where(host, provider)};
}

/* S5: a holder's end is not after the owner's. */
void check_taken(uint32_t host, uint32_t index, uint32_t owner)
{
    const struct sim_holder *holder = &hosts[host].holders[index];
    const struct sim_image *image = &hosts[owner].shelves[holder->provider].image;
    if (!holder->has || (image->sight.flags & SIGHT_COPY))
        return;
    const struct record *real = find_in_image(image, holder->lease);
    enum record_state state = holder->dispatched ? RECORD_DISPATCHED : RECORD_HELD;
    if (!real || real->state != state || real->token != holder->token)
        return;
    SIM_MARK(judged_ends);
    ns_t end = sim_true(host, holder->end), ends = sim_true(owner, real->deadline_ns);
    ns_t slack = SIM_MS + (end > sim_now ? end - sim_now : 0) / 1000000 * SIM_DRIFT_PPM +
                 10 * NS_PER_SEC / 1000000 * SIM_DRIFT_PPM;
    SIM_MUST(end <= ends + slack);
}

/* Of equals none is preferred. */
void check_choice(uint32_t equals, uint32_t chosen)
{
    SIM_MUST(chosen < equals);
    if (equals < 2)
        return;
    choices++;
    firsts += chosen == 0;
    if (choices % 256 != 0)
        return;
    SIM_MARK(judged_choice);
    SIM_MUST(firsts < 256 * 85 / 100);
    firsts = 0;
}

/* L3: while all is well, every question is answered in time. */
void check_silence(uint32_t host, const struct sim_question *question)
{
    uint32_t owner = question->owner;
    bool well = calm && calm_since + 10 * NS_PER_SEC < question->sent_true && owner < host_count &&
                net_is_clean(host, owner) && question->end - question->sent >= 200 * SIM_MS;
    SIM_MUST(!well);
}

/* ---- when all is well again ------------------------------------------------------------------ */

static uint32_t agreed_owner(uint32_t provider)
{
    uint32_t owner = hosts[0].voices[provider].owner;
    for (uint32_t i = 0; i < host_count; i++)
        SIM_MUST(hosts[i].voices[provider].owner == owner);
    SIM_MUST(owner < host_count && hosts[owner].voices[provider].ours);
    return owner;
}

/* L1: all views are the owner's. */
void check_healed(void)
{
    SIM_MARK(judged_healed);
    for (uint32_t p = 0; p < provider_count; p++) {
        uint32_t owner = agreed_owner(p);
        const struct sim_voice *voice = &hosts[owner].voices[p];
        bool changing = sim_here(owner) - voice->published_at < 500 * SIM_MS;
        for (uint32_t i = 0; i < host_count && !changing; i++) {
            const struct sight *sight = &hosts[i].shelves[p].image.sight;
            SIM_MUST(i == owner ||
                     (sight->heard_epoch == voice->issued && sight->heard_version == voice->told));
        }
    }
}

/* L2, L4: nothing is held, and nobody waits, anywhere. */
void check_quiet(void)
{
    SIM_MARK(judged_quiet);
    check_healed();
    for (uint32_t host = 0; host < host_count; host++) {
        SIM_MUST(hosts[host].asked_count == 0);
        for (uint32_t p = 0; p < provider_count; p++) {
            const struct sim_image *image = &hosts[host].shelves[p].image;
            for (uint32_t i = 0; image->ready && i < image->used; i++)
                SIM_MUST(!record_is_live(&image->records[i]));
        }
    }
}

/* S9: nothing grows. */
void check_event(const struct sim_event *event)
{
    const struct sim_host *at = &hosts[event->host];
    if (event->kind != SIM_AGENT || event->host >= host_count)
        return;
    SIM_MUST(at->asked_count < SIM_ASKED_MAX);
    SIM_MUST(at->fleet.peer_count <= 2 * host_count + 2);
    SIM_MUST(at->fleet.offer_count <= host_count * SIM_PROVIDERS_MAX);
}
