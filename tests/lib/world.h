/* A book in virtual time: the part that needs no test library, so that a benchmark can use it too.
 * virtual.h adds the words of a test.
 *
 * Time stands still but for at() and after(), in milliseconds. Readings are asked and answered in
 * the same instant unless they say otherwise, `after` what happened before it (a nanosecond passes
 * with each step). One world a program. */
#ifndef LEASEHOLD_TESTS_WORLD_H
#define LEASEHOLD_TESTS_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/attribution.h"
#include "broker/broker.h"

#define WORLD_BEGINS (1000 * NS_PER_SEC)

#define world_needs(what) ((what) ? (void)0 : world_fails(#what, __FILE__, __LINE__))

static inline void world_fails(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    abort();
}

struct world {
    struct book book;
    struct refusals refusals;
    struct broker broker;
    struct effects effects;
    ns_t now;
    int32_t slots;
    uint64_t requests; /* ids drawn */
    uint32_t notes[NOTE_KINDS];
    bool lazy; /* leaves book_check to the step: for long runs */
};

static struct world world;

/* What a request may say beyond its verb; everything left out is the usual. */
struct ask {
    bool usual;     /* set by the macros below */
    uint32_t units; /* 0: 1 */
    int32_t index;  /* slot(N), 0: any */
    uint32_t ttl_ms, wait_ms, flags;
    uint64_t same; /* a request id to use again, 0: a new one */
    struct lease_id former;
    const char *label;
    ns_t asked_ns;     /* 0: now */
    bool at_no_moment; /* as a client acquires: it says not since when */
};

static inline int32_t slot(int32_t index)
{
    return index + 1;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static inline void step_world(const struct event *event)
{
    world.now++;
    struct event now = *event;
    now.now = world.now;
    broker_step(&world.broker, &now, &world.effects);
    if (!world.lazy)
        book_check(&world.book);
    book_clean(&world.book);
    for (uint32_t i = 0; i < world.effects.note_count; i++)
        world.notes[world.effects.notes[i].kind]++;
}

static inline void tick(void)
{
    step_world(&(struct event){.kind = EVENT_TICK});
}

static inline void after(int64_t ms)
{
    world.now += ms * NS_PER_MS;
}

static inline int64_t now_ms(void)
{
    return (world.now - WORLD_BEGINS) / NS_PER_MS;
}

static inline void at(int64_t ms)
{
    world_needs(WORLD_BEGINS + ms * NS_PER_MS >= world.now);
    world.now = WORLD_BEGINS + ms * NS_PER_MS;
}

static inline void take(struct reading *reading)
{
    if (reading->sent_ns == 0)
        reading->sent_ns = reading->answered_ns = world.now + 1;
    reading_sanitize(reading);
    step_world(&(struct event){.kind = EVENT_READING, .reading = reading});
}

/* A reading with names: the tasks stand in slots 0, 1, …; further ones are busy without a name
 * that anybody asks for. shows_in(slot, task) puts one task somewhere. */
static inline struct reading *blank_reading(void)
{
    static struct reading reading;
    reading_clear(&reading);
    reading.health = HEALTH_OK;
    reading.signal = SIGNAL_EXACT;
    reading.slots_total = world.slots;
    reading.queued = 0;
    reading.in_flight = 0;
    return &reading;
}

static inline struct reading *named_reading(uint32_t count, const int32_t *tasks)
{
    struct reading *reading = blank_reading();
    reading->named = 1;
    reading->slot_count = world.slots;
    for (int32_t i = 0; i < world.slots; i++)
        reading->slots[i].task = -1;
    for (uint32_t i = 0; i < count; i++) {
        if (tasks[i] < 0)
            continue;
        reading->slots[i] = (struct reading_slot){tasks[i], 1};
        reading->in_flight++;
    }
    return reading;
}

/* shows(71, 72): a reading in which 71 and 72 are at work, in slots 0 and 1; -1 leaves one free. */
#define shows(...)                                                                                 \
    take(named_reading(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),                         \
                       (int32_t[]){__VA_ARGS__}))

static inline void shows_nothing(void)
{
    take(named_reading(0, NULL));
}

/* A reading that only counts. */
static inline void counts(int32_t in_flight)
{
    struct reading *reading = blank_reading();
    reading->in_flight = in_flight;
    take(reading);
}

/* A reading that tells health and nothing else. */
static inline void is_now(enum health health)
{
    struct reading *reading = blank_reading();
    reading->health = (int32_t)health;
    reading->signal = SIGNAL_NONE;
    reading->slots_total = reading->in_flight = reading->queued = -1;
    take(reading);
}

/* ---- beginnings ----------------------------------------------------------------------------- */

static inline void begin_world(const struct book_settings *settings)
{
    book_init(&world.book, "z4", settings);
    book_found(&world.book, UINT64_C(0x1122334455667788), 1000);
    book_clean(&world.book);
    broker_init(&world.broker, &world.book, &world.refusals);
    world.now = WORLD_BEGINS;
    world.requests = 0;
    world.lazy = false;
    memset(world.notes, 0, sizeof world.notes);
}

/* A server that has told its slots and is idle, read just now. */
static inline void on_server(int32_t slots)
{
    struct book_settings settings;
    book_settings_default(&settings);
    world.slots = slots;
    begin_world(&settings);
    shows_nothing();
}

static inline void on_counting_server(int32_t slots)
{
    struct book_settings settings;
    book_settings_default(&settings);
    world.slots = slots;
    begin_world(&settings);
    counts(0);
}

/* static:N: no reading is ever had. */
static inline void on_static(int32_t slots)
{
    struct book_settings settings;
    book_settings_default(&settings);
    settings.probed = 0;
    settings.slots = (uint32_t)slots;
    world.slots = slots;
    begin_world(&settings);
}

/* ---- requests ------------------------------------------------------------------------------- */

static inline struct answer ask(enum verb verb, struct lease_id lease, const struct ask *ask)
{
    struct request request = {
        .verb = verb,
        .flags = ask->flags,
        .id = {UINT64_C(0xabcd), ask->same ? ask->same : ++world.requests},
        .lease = lease,
        .former = ask->former,
        .hint = UINT32_MAX,
        .units = ask->units ? ask->units : 1,
        .slot = ask->index - 1,
        .ttl_ms = ask->ttl_ms,
        .wait_ms = ask->wait_ms,
        .asked_ns = ask->at_no_moment ? 0
                    : ask->asked_ns   ? ask->asked_ns
                                      : world.now + 1,
        .holder = {.pid = 4242, .local = 1},
    };
    text_copy(request.holder.host, sizeof request.holder.host, "m5");
    text_copy(request.holder.label, sizeof request.holder.label, ask->label ? ask->label : "job");
    step_world(&(struct event){.kind = EVENT_REQUEST, .request = &request});
    world_needs(world.effects.has_reply);
    return world.effects.reply;
}

#define NO_LEASE                                                                                   \
    (struct lease_id)                                                                              \
    {                                                                                              \
        0, 0                                                                                       \
    }
#define acquire(...)        ask(VERB_ACQUIRE, NO_LEASE, &(struct ask){.usual = true, __VA_ARGS__})
#define verify(lease, ...)  ask(VERB_VERIFY, lease, &(struct ask){.usual = true, ##__VA_ARGS__})
#define renew(lease, ...)   ask(VERB_RENEW, lease, &(struct ask){.usual = true, ##__VA_ARGS__})
#define release(lease, ...) ask(VERB_RELEASE, lease, &(struct ask){.usual = true, ##__VA_ARGS__})

/* The id of the last request, for asking it again. */
static inline uint64_t last_request(void)
{
    return world.requests;
}

/* ---- looking -------------------------------------------------------------------------------- */

static inline const struct record *record_of(struct lease_id lease)
{
    return book_find(&world.book, lease, UINT32_MAX);
}

static inline struct tally tally_now(void)
{
    struct tally tally;
    admission_tally(&world.book, world.now, &tally);
    return tally;
}

/* The process that holds it is known to be dead. */
static inline void dies(struct lease_id lease)
{
    uint16_t cell = (uint16_t)book_index(&world.book, record_of(lease));
    step_world(&(struct event){.kind = EVENT_DEAD, .dead = &cell, .dead_count = 1});
}

#endif
