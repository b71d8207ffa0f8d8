/* A book's file with anything in it, damaged before it is opened or while it is open: each answer is
 * one of those that the table promises, no record and no entry of the log out of bounds is taken, a
 * whole round of requests goes through, and the next process finds what the last one left.
 *
 * The bytes are a list of actions: a letter, four bytes where, how many bytes, and these. Actions 1
 * and 3 to 6 seal what they change, as if a process had written it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "broker/error.h"
#include "broker/host_table.h"
#include "tests/fuzz/room.h"

#define PROVIDER  "z4"
#define NOW       (INT64_C(100000) * NS_PER_SEC)
#define BUDGET_MS 50

/* One process's view of the book. */
struct seat {
    struct host_table table;
    struct book book;
    struct broker broker;
    struct effects effects;
};

static struct seat first, second;
static struct host_file *file, *pristine;
static int directory, descriptor;
static bool cut; /* what is mapped may not be touched */
static struct lease_id held;

/* ---- a process ------------------------------------------------------------------------------- */

static int sit(struct seat *seat)
{
    struct book_settings settings;
    struct host_table_options options = {
        .instance = UINT64_C(0x1234567800000007), .epoch = 1000, .mode = 0600, .create = true};
    book_settings_default(&settings);
    book_init(&seat->book, PROVIDER, &settings);
    broker_init(&seat->broker, &seat->book, NULL);
    int error = host_table_open(&seat->table, directory, PROVIDER, &seat->book, &options);
    must(host_table_is_open(&seat->table) == (error == 0));
    return error;
}

static void step(struct seat *seat, const struct event *event)
{
    broker_step(&seat->broker, event, &seat->effects);
    (void)broker_deadline(&seat->broker);
    table_commit(&seat->table.table, &seat->book, &seat->effects, NOW);
    must(!book_is_dirty(&seat->book));
}

static struct answer ask(struct seat *seat, enum verb verb, struct lease_id lease, uint32_t flags)
{
    static uint64_t drawn;
    struct request request = {.verb = verb,
                              .flags = flags,
                              .id = {9, ++drawn},
                              .lease = lease,
                              .hint = (uint32_t)lease.counter - 1,
                              .units = 1,
                              .slot = -1,
                              .wait_ms = 5000,
                              .asked_ns = NOW,
                              .holder = {.host = "m5", .label = "fuzz", .pid = 1}};
    struct event event = {.kind = EVENT_REQUEST, .now = NOW, .request = &request};
    char text[256];
    step(seat, &event);
    must(seat->effects.has_reply);
    broker_reason_text(&seat->effects.reply, text, sizeof text);
    must(memchr(text, '\0', sizeof text) != NULL);
    return seat->effects.reply;
}

static void read_server(struct seat *seat, ns_t at, int in_flight)
{
    struct reading reading;
    reading_clear(&reading);
    reading.sent_ns = at;
    reading.answered_ns = at + NS_PER_MS;
    reading.health = HEALTH_OK;
    reading.signal = SIGNAL_EXACT;
    reading.slots_total = 4;
    reading.in_flight = in_flight;
    struct event event = {.kind = EVENT_READING, .now = at + NS_PER_MS, .reading = &reading};
    step(seat, &event);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void begin_with(struct seat *seat)
{
    static const struct lease_id none;
    struct event claim = {.kind = EVENT_TICK, .now = NOW};
    must(table_begin(&seat->table.table, &seat->book, BUDGET_MS) == 0);
    read_server(seat, NOW - 2 * NS_PER_MS, 1);
    for (int i = 0; i < 3; i++)
        held = ask(seat, VERB_ACQUIRE, none, REQUEST_FIRST).lease;
    struct answer answer = ask(seat, VERB_ACQUIRE, none, REQUEST_FIRST);
    (void)ask(seat, VERB_VERIFY, answer.lease, REQUEST_FIRST | REQUEST_AS_KNOWN);
    answer = ask(seat, VERB_ACQUIRE, none, REQUEST_FIRST);
    (void)ask(seat, VERB_RELEASE, answer.lease, REQUEST_FIRST | REQUEST_FORCE);
    for (int i = 0; i < 4; i++)
        (void)ask(seat, VERB_ACQUIRE, none, REQUEST_FIRST); /* some of them wait */
    book_forget(&seat->book, (struct lease_id){77, 5}, NOW);
    step(seat, &claim);
    table_end(&seat->table.table);
    host_table_set_group(&seat->table, "gpu", 2);
}

static void make_file(void)
{
    char name[HOST_TABLE_NAME_SIZE];
    if (file)
        return;
    directory = open(room(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(directory >= 0 && sit(&first) == 0);
    begin_with(&first);
    host_table_close(&first.table);
    host_table_name(PROVIDER, name);
    descriptor = openat(directory, name, O_RDWR | O_CLOEXEC);
    must(descriptor >= 0);
    file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    pristine = malloc(sizeof *pristine);
    must(file != MAP_FAILED && pristine != NULL);
    memcpy(pristine, file, sizeof *file);
}

static void renew_file(void)
{
    if (cut)
        must(ftruncate(descriptor, sizeof *file) == 0);
    memcpy(file, pristine, sizeof *file);
    cut = false;
}

/* ---- damage ---------------------------------------------------------------------------------- */

struct action {
    unsigned kind;
    uint32_t where;
    const uint8_t *bytes;
    size_t size;
};

enum { ACTIONS = 12, NEXT_STAGE = 10 };

/* False at the end of the bytes. */
static bool take_action(const uint8_t **at, const uint8_t *end, struct action *action)
{
    if (end - *at < 7)
        return false;
    action->kind = **at % ACTIONS;
    memcpy(&action->where, *at + 1, sizeof action->where);
    action->size = (*at)[5];
    *at += 6;
    if (action->size > (size_t)(end - *at))
        action->size = (size_t)(end - *at);
    action->bytes = *at;
    *at += action->size;
    return true;
}

static uint64_t number(const struct action *action)
{
    uint64_t value = 0;
    memcpy(&value, action->bytes, action->size < sizeof value ? action->size : sizeof value);
    return value;
}

static void put(void *to, size_t room_there, size_t offset, const struct action *action)
{
    offset %= room_there;
    size_t size = action->size < room_there - offset ? action->size : room_there - offset;
    memcpy((unsigned char *)to + offset, action->bytes, size);
}

/* As host_table.c seals the copy that the selector names. */
static void put_sealed(uint64_t version, void *copies, size_t size, const struct action *action)
{
    unsigned char *copy = (unsigned char *)copies + (version & 1) * (size + sizeof(uint64_t));
    put(copy, size, action->where & 0xffff, action);
    uint64_t check = words_check(copy, size) + version * UINT64_C(0xd6e8feb86659fd93);
    memcpy(copy + size, &check, sizeof check);
}

static void put_entry(const struct action *action)
{
    struct log_entry *entry = &file->log[(action->where >> 16) % 32];
    put(entry, offsetof(struct log_entry, check), action->where & 0xffff, action);
    entry->check = words_check(entry, offsetof(struct log_entry, check));
}

static void damage(const struct action *action)
{
    uint32_t cell = (action->where >> 16) % 24, floor = (action->where >> 16) % 4;
    if (cut)
        return;
    switch (action->kind) {
    case 0: put(&file->header, sizeof file->header, action->where, action); break;
    case 1:
        put_sealed(file->selectors[cell], file->records[cell], sizeof(struct record), action);
        break;
    case 2: file->selectors[cell] = number(action); break;
    case 3: put_sealed(file->head_selector, file->head, sizeof(struct book_head), action); break;
    case 4: put_sealed(file->sight_selector, file->sight, sizeof(struct sight), action); break;
    case 5:
        put_sealed(file->floor_selectors[floor], file->floors[floor], sizeof(struct floor), action);
        break;
    case 6: put_entry(action); break;
    case 7: put(file, sizeof *file, action->where, action); break;
    case 8: file->header.log_seq = number(action); break;
    case 9:
        cut = true;
        must(ftruncate(descriptor, action->where % sizeof *file) == 0);
        break;
    default:
        file->header.used = (uint32_t)number(action);
        file->header.floors_used = action->where;
        break;
    }
    if (!cut && action->where & 0x8000) /* as a commit does, so that it is read again */
        file->header.writes++;
}

/* Up to the next stage; answers whether anything was done. */
static bool damage_stage(const uint8_t **at, const uint8_t *end)
{
    struct action action;
    bool done = false;
    for (; take_action(at, end, &action) && action.kind != NEXT_STAGE; done = true)
        damage(&action);
    return done;
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void must_be_valid(const struct seat *seat)
{
    must(seat->book.used <= BOOK_CELLS);
    for (uint32_t i = 0; i < seat->book.used; i++)
        must(book_record_is_valid(&seat->book.records[i]));
    struct reading reading = seat->book.sight.reading;
    reading_sanitize(&reading);
    must(memcmp(&reading, &seat->book.sight.reading, sizeof reading) == 0);
    book_check(&seat->book);
}

static void try_log(struct seat *seat)
{
    static struct log_entry entries[LOG_ENTRIES];
    uint64_t last = 0;
    uint32_t count = host_table_log(&seat->table, 2, entries);
    must(count <= LOG_ENTRIES);
    for (uint32_t i = 0; i < count; i++) {
        must(log_entry_is_valid(&entries[i]) && entries[i].seq > 2 && entries[i].seq > last);
        must(note_name((enum note_kind)entries[i].kind) != NULL);
        must(reason_name((enum reason)entries[i].reason) != NULL);
        last = entries[i].seq;
    }
}

static void try_words(struct seat *seat)
{
    struct host_words *words = host_table_words(&seat->table);
    char group[NAME_SIZE];
    uint32_t armed, limit = host_table_group(&seat->table, group);
    must(group[0] ? name_is_valid(group) : limit == 0);
    (void)host_words_is_probed(words, NOW, NS_PER_SEC);
    if (host_words_take_probe(words, (uint32_t)getpid(), NOW, NS_PER_SEC))
        host_words_leave_probe(words, (uint32_t)getpid());
    (void)host_words_arm(words, 0, &armed);
    host_words_demand(words);
}

/* A whole round under the lock, as its holders do it. */
static void try_round(struct seat *seat)
{
    static const struct lease_id none;
    struct event tick = {.kind = EVENT_TICK, .now = NOW};
    int error = table_begin(&seat->table.table, &seat->book, BUDGET_MS);
    if (error < 0)
        return;
    must(!cut);
    must_be_valid(seat);
    step(seat, &tick);
    struct neighbour neighbour;
    book_as_neighbour(&seat->book, NOW, &neighbour);
    read_server(seat, NOW, 2);
    struct answer answer = ask(seat, VERB_ACQUIRE, none, REQUEST_FIRST);
    if (answer.verdict == ANSWER_GRANTED)
        (void)ask(seat, VERB_VERIFY, answer.lease, REQUEST_FIRST | REQUEST_AS_KNOWN);
    (void)ask(seat, VERB_RENEW, held, REQUEST_FIRST);
    (void)ask(seat, VERB_VERIFY, held, REQUEST_FIRST);
    tick.now = NOW + 2 * 3600 * NS_PER_SEC;
    (void)ask(seat, VERB_RELEASE, held, REQUEST_FIRST | REQUEST_FORCE);
    read_server(seat, NOW + 30 * NS_PER_SEC, 1);
    step(seat, &tick);
    table_end(&seat->table.table);
    must_be_valid(seat);
}

/* Another process that opens it now reads what this one has. */
static void must_be_told(const struct seat *seat)
{
    must(sit(&second) == 0);
    must_be_valid(&second);
    must(memcmp(&second.book.head, &seat->book.head, sizeof seat->book.head) == 0);
    for (uint32_t i = 0; i < second.book.used; i++)
        must(second.book.records[i].state == RECORD_FREE ||
             memcmp(&second.book.records[i], &seat->book.records[i], sizeof(struct record)) == 0);
    host_table_close(&second.table);
}

static bool is_promised(int error)
{
    return error == 0 || error == LEASE_EDAMAGED || error == LEASE_ELAYOUT ||
           error == LEASE_EVANISHED;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const uint8_t *at = bytes, *end = bytes + size;
    make_file();
    renew_file();
    (void)damage_stage(&at, end);
    int error = sit(&first);
    must(is_promised(error) && (!cut || error == LEASE_EDAMAGED || file->header.magic));
    if (error < 0)
        return 0;
    cut = false; /* one of zeroes was initialised */
    must_be_valid(&first);
    try_log(&first);
    try_words(&first);
    bool moved = damage_stage(&at, end);
    error = table_look(&first.table.table, &first.book);
    must(is_promised(error) && (!cut || error == LEASE_EDAMAGED));
    must_be_valid(&first);
    try_log(&first);
    moved = damage_stage(&at, end) || moved;
    try_round(&first);
    if (!cut && !moved && host_table_is_open(&first.table))
        must_be_told(&first);
    host_table_close(&first.table);
    return 0;
}
