/* What other hosts say, for tests of a copy and of an owner: states, answers and claims. */
#ifndef TESTS_UNIT_HEARD_WORDS_H
#define TESTS_UNIT_HEARD_WORDS_H

#include "tests/lib/virtual.h"

#define THEIRS(number) ((struct lease_id){UINT64_C(0x0123), number}) /* ids of the owner's book */
#define OTHERS(number) ((struct lease_id){UINT64_C(0x0777), number}) /* of a third host's */

static inline struct heard_lease lease_as(struct lease_id id, enum record_state state,
                                          const char *host)
{
    struct heard_lease lease = {
        .id = id,
        .state = state,
        .units = 1,
        .slot = -1,
        .left_ms = state == RECORD_HELD ? 10000 : 30000,
        .age_ms = 100,
        .dispatched_ms = state == RECORD_HELD ? -1 : 50,
        .idle_ms = -1,
        .token = (UINT64_C(500) << TOKEN_BITS) + id.counter,
        .place = id.counter,
    };
    lease.holder.pid = 77;
    text_copy(lease.holder.host, NAME_SIZE, host);
    text_copy(lease.holder.label, LABEL_SIZE, "far");
    return lease;
}

static inline struct heard_lease held_by(const char *host, struct lease_id id)
{
    return lease_as(id, RECORD_HELD, host);
}

static inline struct heard_lease run_by(const char *host, struct lease_id id)
{
    return lease_as(id, RECORD_DISPATCHED, host);
}

/* The next state, in which these leases are; what is in flight, by a reading of this instant. */
static struct heard_state next_state;

static inline void begin_copy(int32_t slots)
{
    on_server(slots);
    mirror_begin(&world.book);
    memset(&next_state, 0, sizeof next_state);
    reading_clear(&next_state.reading);
    next_state.epoch = 500;
    next_state.strangers_ms = -1;
}

static inline void say_state(const struct heard_lease *leases, uint32_t count)
{
    struct heard_state *state = &next_state;
    state->version++;
    state->leases = leases;
    state->lease_count = count;
    step_world(&(struct event){.kind = EVENT_STATE, .state = state});
}

#define says(...)                                                                                  \
    say_state((struct heard_lease[]){__VA_ARGS__},                                                 \
              sizeof((struct heard_lease[]){__VA_ARGS__}) / sizeof(struct heard_lease))
#define says_nothing() say_state(NULL, 0)

static inline void reads(int32_t in_flight, int32_t strangers)
{
    next_state.reading = *blank_reading();
    next_state.reading.in_flight = in_flight;
    next_state.reading.sent_ns = next_state.reading.answered_ns = world.now + 1;
    next_state.strangers = strangers;
    next_state.strangers_ms = strangers ? 0 : -1;
}

/* The owner's answer to a process of ours. */
static inline void named_at(uint64_t version, struct heard_lease lease)
{
    lease.holder.local = 1;
    lease.holder.pid = 4242;
    lease.holder.pid_start = 99;
    lease.holder.pid_space = 98;
    struct heard_named named = {.epoch = 500, .version = version, .lease = lease};
    step_world(&(struct event){.kind = EVENT_NAMED, .named = &named});
}

static inline void named(struct heard_lease lease)
{
    named_at(++next_state.version, lease);
}

static inline void claims_at(uint64_t epoch, bool withdrawn, struct heard_lease lease)
{
    struct heard_claim claim = {.epoch = epoch, .withdrawn = withdrawn, .lease = lease};
    step_world(&(struct event){.kind = EVENT_CLAIM, .claim = &claim});
}

static inline void claims(struct heard_lease lease)
{
    claims_at(0, false, lease);
}

static inline void withdraws(struct heard_lease lease)
{
    claims_at(0, true, lease);
}

static inline int64_t left_ms(struct lease_id id)
{
    return (record_of(id)->deadline_ns - world.now) / NS_PER_MS;
}

static inline bool is_named(struct lease_id id)
{
    return record_of(id)->flags & RECORD_NAMED;
}

#endif
