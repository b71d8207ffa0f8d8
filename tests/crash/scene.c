#define _GNU_SOURCE
#include "tests/crash/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/crash/sins.h"

#define NAME "z4"

/* ---- steps ----------------------------------------------------------------------------------- */

static void take(struct seat *seat, const struct event *event)
{
    struct event now = *event;
    now.now = seat->now;
    broker_step(&seat->broker, &now, &seat->effects);
}

static void fail(const char *what, int error)
{
    fprintf(stderr, "scene: %s: %d\n", what, error);
    abort();
}

/* The whole way of a change. */
static void change(struct seat *seat, const struct event *event)
{
    int error = table_begin(&seat->table.table, &seat->book, 0);
    if (error < 0)
        fail("begin", error);
    take(seat, event);
    table_commit(&seat->table.table, &seat->book, &seat->effects, seat->now);
    table_end(&seat->table.table);
}

static struct request request_of(struct seat *seat, enum verb verb, struct lease_id lease,
                                 uint32_t wait_ms)
{
    struct request request = {.verb = verb,
                              .flags = verb == VERB_RELEASE ? REQUEST_FORCE : 0,
                              .id = {7, ++seat->drawn},
                              .lease = lease,
                              .hint = UINT32_MAX,
                              .units = 1,
                              .slot = -1,
                              .wait_ms = wait_ms,
                              .asked_ns = seat->now,
                              .fresh_ns = seat->now - NS_PER_MS,
                              .holder = {.pid = 4242, .local = 1}};
    text_copy(request.holder.host, sizeof request.holder.host, "m5");
    snprintf(request.holder.label, sizeof request.holder.label, "contender %llu of the crash test",
             (unsigned long long)seat->drawn);
    return request;
}

struct answer scene_ask(struct seat *seat, enum verb verb, struct lease_id lease, uint32_t wait_ms)
{
    seat->now += NS_PER_MS / 10;
    struct request request = request_of(seat, verb, lease, wait_ms);
    change(seat, &(struct event){.kind = EVENT_REQUEST, .request = &request});
    return seat->effects.reply;
}

static uint32_t live_cells(const struct seat *seat, uint16_t *cells)
{
    uint32_t count = seat->book.live_count;
    memcpy(cells, seat->book.live, count * sizeof *cells);
    return count;
}

void scene_dead(struct seat *seat)
{
    static uint16_t cells[BOOK_CELLS];
    uint32_t count = live_cells(seat, cells);
    change(seat, &(struct event){.kind = EVENT_DEAD, .dead = cells, .dead_count = count});
}

static struct reading *reading_of(struct seat *seat, int32_t busy, int32_t first_task)
{
    static struct reading reading;
    int32_t slots = book_slots(&seat->book);
    reading_clear(&reading);
    reading.health = HEALTH_OK;
    reading.signal = SIGNAL_EXACT;
    reading.slots_total = reading.slot_count = slots;
    reading.queued = 0;
    reading.in_flight = busy;
    reading.named = 1;
    for (int32_t i = 0; i < slots; i++)
        reading.slots[i] = (struct reading_slot){i < busy ? first_task + i : -1, i < busy};
    reading.sent_ns = seat->now - 2000;
    reading.answered_ns = seat->now - 1000;
    return &reading;
}

void scene_read(struct seat *seat, int32_t busy, int32_t first_task)
{
    seat->now += NS_PER_MS;
    struct reading *reading = reading_of(seat, busy, first_task);
    change(seat, &(struct event){.kind = EVENT_READING, .reading = reading});
}

void scene_after(struct seat *seat, int64_t ms)
{
    seat->now += ms * NS_PER_MS;
    change(seat, &(struct event){.kind = EVENT_TICK});
}

/* ---- befores --------------------------------------------------------------------------------- */

static const struct lease_id nobody;

static struct lease_id first_live(struct seat *seat, enum record_state state)
{
    for (uint32_t i = 0; i < seat->book.live_count; i++) {
        const struct record *record = &seat->book.records[seat->book.live[i]];
        if (record->state == state)
            return record->id;
    }
    fail("no such lease", (int)state);
    return nobody;
}

static void some_history(struct seat *seat)
{
    if (seat->book.settings.probed)
        scene_read(seat, 0, 0);
    for (int i = 0; i < 5; i++) {
        struct lease_id lease = scene_ask(seat, VERB_ACQUIRE, nobody, 0).lease;
        scene_ask(seat, VERB_VERIFY, lease, 0);
        scene_ask(seat, VERB_RELEASE, lease, 0);
    }
}

static void one_held(struct seat *seat)
{
    some_history(seat);
    scene_ask(seat, VERB_ACQUIRE, nobody, 0);
}

static void one_dispatched(struct seat *seat)
{
    one_held(seat);
    scene_ask(seat, VERB_VERIFY, first_live(seat, RECORD_HELD), 0);
}

static void one_held_and_read(struct seat *seat)
{
    one_held(seat);
    scene_read(seat, 0, 0);
}

static void one_held_among_strangers(struct seat *seat)
{
    one_held(seat);
    scene_read(seat, 4, 70);
}

static void four_held(struct seat *seat)
{
    some_history(seat);
    for (int i = 0; i < 4; i++)
        scene_ask(seat, VERB_ACQUIRE, nobody, 0);
}

static void dispatch(struct seat *seat, int count)
{
    some_history(seat);
    for (int i = 0; i < count; i++) {
        struct lease_id lease = scene_ask(seat, VERB_ACQUIRE, nobody, 0).lease;
        if (seat->book.settings.probed)
            scene_read(seat, 0, 0);
        scene_ask(seat, VERB_VERIFY, lease, 0);
    }
}

static void two_dispatched(struct seat *seat)
{
    dispatch(seat, 2);
}

static void four_dispatched(struct seat *seat)
{
    dispatch(seat, 4);
}

static void one_waits(struct seat *seat)
{
    four_held(seat);
    scene_ask(seat, VERB_ACQUIRE, nobody, 60000);
}

static void a_full_log(struct seat *seat)
{
    for (int i = 0; i < LOG_ENTRIES; i++)
        scene_ask(seat, VERB_RELEASE, scene_ask(seat, VERB_ACQUIRE, nobody, 0).lease, 0);
    two_dispatched(seat);
}

/* Ended leases of other books, as a host knows them that mirrors an owner's: the next that needs a
 * cell forgets one. */
static void foreign_tombs(struct seat *seat)
{
    some_history(seat);
    struct lease_id lease[40];
    for (int i = 0; i < 40; i++) {
        lease[i] = scene_ask(seat, VERB_ACQUIRE, nobody, 0).lease;
        scene_ask(seat, VERB_RELEASE, lease[i], 0);
    }
    table_begin(&seat->table.table, &seat->book, 0);
    for (uint32_t i = 0; i < seat->book.used; i++) {
        seat->book.records[i].id.instance = 0xf0;
        book_touch(&seat->book, &seat->book.records[i]);
    }
    seat->effects.note_count = 0;
    table_commit(&seat->table.table, &seat->book, &seat->effects, seat->now);
    table_end(&seat->table.table);
    scene_ask(seat, VERB_ACQUIRE, nobody, 0);
}

/* ---- the commits ----------------------------------------------------------------------------- */

static void ask(struct seat *seat, enum verb verb, struct lease_id lease, uint32_t wait_ms)
{
    struct request request = request_of(seat, verb, lease, wait_ms);
    take(seat, &(struct event){.kind = EVENT_REQUEST, .request = &request});
}

static void acquires(struct seat *seat)
{
    ask(seat, VERB_ACQUIRE, nobody, 0);
}

static void waits(struct seat *seat)
{
    ask(seat, VERB_ACQUIRE, nobody, 60000);
}

static void verifies(struct seat *seat)
{
    ask(seat, VERB_VERIFY, first_live(seat, RECORD_HELD), 0);
}

static void renews(struct seat *seat)
{
    ask(seat, VERB_RENEW, first_live(seat, RECORD_DISPATCHED), 0);
}

static void releases(struct seat *seat)
{
    ask(seat, VERB_RELEASE, first_live(seat, RECORD_DISPATCHED), 0);
}

static void releases_held(struct seat *seat)
{
    ask(seat, VERB_RELEASE, first_live(seat, RECORD_HELD), 0);
}

static void sees_four(struct seat *seat)
{
    take(seat, &(struct event){.kind = EVENT_READING, .reading = reading_of(seat, 4, 71)});
}

static void expires(struct seat *seat)
{
    seat->now += 3600 * NS_PER_SEC;
    take(seat, &(struct event){.kind = EVENT_TICK});
}

static void reaps(struct seat *seat)
{
    static uint16_t cells[BOOK_CELLS];
    uint32_t count = live_cells(seat, cells);
    take(seat, &(struct event){.kind = EVENT_DEAD, .dead = cells, .dead_count = count});
}

static void raises_epoch(struct seat *seat)
{
    seat->effects.note_count = seat->effects.called_count = 0;
    book_raise_epoch(&seat->book, seat->book.head.epoch + 5);
}

const struct scene scenes[] = {
    {"acquire", 4, false, one_dispatched, acquires, 0, 0},
    {"verify_go", 4, true, one_held_and_read, verifies, 0, 0},
    {"verify_no", 4, true, one_held_among_strangers, verifies, 0, 0},
    {"renew", 4, false, one_dispatched, renews, 0, 0},
    {"release", 4, false, one_dispatched, releases, 0, 0},
    {"reading_sees_four", 4, true, four_dispatched, sees_four, 0, 0},
    {"expiry_of_four", 4, false, four_held, expires, 0, 0},
    {"dead_reaped", 4, false, two_dispatched, reaps, 0, 0},
    {"waiter_queued", 4, false, four_held, waits, 0, 0},
    {"waiter_granted", 4, false, one_waits, releases_held, 0, 0},
    {"epoch_raised", 4, false, one_dispatched, raises_epoch, 0, 0},
    {"floors_written", 4, false, foreign_tombs, acquires, 0, 0},
    {"log_full", 4, false, a_full_log, expires, 0, 0},
    {"new_book", 4, false, NULL, NULL, FILE_NONE, 0},
    {"empty_file", 4, false, NULL, NULL, FILE_EMPTY, 0},
    {"half_made_file", 4, false, NULL, NULL, FILE_ALLOCATED, 0},
    {"book_of_another_boot", 4, false, four_dispatched, NULL, FILE_OF_ANOTHER_BOOT, 0},
    {"sin_in_place", 4, false, one_dispatched, releases, 0, SIN_IN_PLACE},
    {"sin_records_first", 4, true, four_dispatched, sees_four, 0, SIN_RECORDS_FIRST},
    {"sin_lock_file", 4, false, one_dispatched, acquires, 0, SIN_LOCK_FILE},
};
const uint32_t scene_count = sizeof scenes / sizeof *scenes;

/* ---- opening and playing --------------------------------------------------------------------- */

int scene_open(const struct scene *scene, struct seat *seat, int dir, uint64_t epoch)
{
    struct book_settings settings;
    book_settings_default(&settings);
    settings.probed = scene->probed;
    settings.slots = scene->slots;
    settings.max_age_ms = 1000;
    book_init(&seat->book, NAME, &settings);
    broker_init(&seat->broker, &seat->book, NULL);
    seat->now = SCENE_BEGINS;
    seat->drawn = 0;
    struct host_table_options options = {.instance = UINT64_C(0x1111111122222222) + epoch,
                                         .epoch = epoch,
                                         .mode = 0600,
                                         .create = true};
    int error = host_table_open(&seat->table, dir, NAME, &seat->book, &options);
    if (error == 0)
        sins_commit(&seat->table, scene->sins, dir);
    return error;
}

int scene_play(const struct scene *scene, struct seat *seat, void (*aside)(struct seat *seat))
{
    int error = table_begin(&seat->table.table, &seat->book, 0);
    if (error < 0)
        return error;
    scene->step(seat);
    aside(seat);
    table_commit(&seat->table.table, &seat->book, &seat->effects, seat->now);
    host_words_announce(host_table_words(&seat->table), &seat->effects);
    table_end(&seat->table.table);
    return 0;
}
