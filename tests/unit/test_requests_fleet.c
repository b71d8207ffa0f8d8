/* Requests of other hosts: ids that they bring, acquire and verify in one step, and who may end what. */
#include "tests/lib/virtual.h"

#define BROUGHT(number) ((struct lease_id){UINT64_C(0x0777), number})

static const struct lease_id none;

/* As a process of m3 asks, not of this host. */
struct far {
    bool usual;
    uint64_t same, epoch;
    uint32_t wait_ms, ttl_ms, flags, pid, units, index_plus_1;
    const char *host;
    struct lease_id former;
};

static struct answer far_ask(enum verb verb, struct lease_id lease, const struct far *far)
{
    struct request request = {
        .verb = verb,
        .flags = far->flags | (lease.instance == 0x0777 ? REQUEST_BRINGS_ID : 0u),
        .id = {UINT64_C(0xfa), far->same ? far->same : ++world.requests},
        .lease = lease,
        .former = far->former,
        .epoch = far->epoch,
        .hint = UINT32_MAX,
        .units = far->units ? far->units : 1,
        .slot = (int32_t)far->index_plus_1 - 1,
        .ttl_ms = far->ttl_ms,
        .wait_ms = far->wait_ms,
        .asked_ns = world.now + 1,
        .holder = {.pid = far->pid},
    };
    text_copy(request.holder.host, NAME_SIZE, far->host ? far->host : "m3");
    text_copy(request.holder.label, LABEL_SIZE, "far");
    step_world(&(struct event){.kind = EVENT_REQUEST, .request = &request});
    world_needs(world.effects.has_reply);
    return world.effects.reply;
}

#define far_acquire(lease, ...)                                                                    \
    far_ask(VERB_ACQUIRE, lease, &(struct far){.usual = true, ##__VA_ARGS__})
#define far_verify(lease, ...)                                                                     \
    far_ask(VERB_VERIFY, lease, &(struct far){.usual = true, ##__VA_ARGS__})
#define far_release(lease, ...)                                                                    \
    far_ask(VERB_RELEASE, lease, &(struct far){.usual = true, ##__VA_ARGS__})

/* Another process of this host answers now: it has the book, and none of the refusals. */
static void takes_over(void)
{
    memset(&world.refusals, 0, sizeof world.refusals);
}

/* ---- ids that are brought -------------------------------------------------------------------- */

static void an_id_is_brought_and_kept(void **state)
{
    (void)state;
    on_server(2);
    struct answer held = far_acquire(BROUGHT(1));
    assert_true(lease_id_equal(granted(held), BROUGHT(1)));
    assert_true(held.token != 0);
    assert_int_equal(record_of(BROUGHT(1))->holder.local, 0);
    struct answer answer = far_verify(BROUGHT(1));
    go(answer);
    assert_int_equal(answer.token, held.token);
    struct answer other = far_verify(BROUGHT((uint64_t)-1)); /* never heard of: one step for both */
    go(other);
    assert_true(lease_id_equal(other.lease, BROUGHT((uint64_t)-1)));
    assert_true(other.token > held.token);
    struct lease_id ours = acquire(.flags = REQUEST_RUNNING).lease;
    assert_int_equal(ours.counter, 1); /* their numbers are not ours */
}

static void without_an_id_the_book_gives_one(void **state)
{
    (void)state;
    on_static(1);
    struct answer answer = far_verify(none);
    go(answer);
    assert_int_equal(answer.lease.instance, world.book.head.instance);
    assert_int_equal(world.notes[NOTE_WENT], 1);
    uint64_t id = last_request();
    after(3000);
    same_answer(answer, far_verify(none, .same = id));
    takes_over();
    same_answer(answer, far_verify(none, .same = id));
    assert_int_equal(tally_now().dispatched, 1);
    release(answer.lease, .flags = REQUEST_FORCE);
    gone(far_verify(none, .same = id), REASON_ENDED); /* no second lease for one request */
}

static void a_no_leaves_nothing(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    uint32_t used = world.book.used;
    struct answer answer = far_verify(none);
    uint64_t id = last_request();
    no(answer, REASON_LEASES);
    assert_int_equal(answer.lease.counter, 0);
    assert_int_equal(answer.other.pid, 4242);
    assert_int_equal(world.book.used, used);
    assert_int_equal(world.book.live_count, 1);
    no(far_verify(BROUGHT(1)), REASON_LEASES);
    uint64_t brought = last_request();
    granted(release(a));
    same_answer(answer, far_verify(none, .same = id));
    no(far_verify(BROUGHT(1), .same = brought), REASON_LEASES);
    gone(far_verify(BROUGHT(1)), REASON_UNKNOWN_ID); /* dead with its refusal */
    gone(far_acquire(BROUGHT(1)), REASON_UNKNOWN_ID);
    takes_over();
    gone(far_verify(BROUGHT(1), .same = brought), REASON_UNKNOWN_ID);
    go(far_verify(none, .same = id)); /* nobody had been told yes */
}

static void a_refused_acquire_kills_the_id_too(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    no(far_acquire(BROUGHT(5)), REASON_LEASES);
    no(far_acquire(BROUGHT(6), .units = 2), REASON_UNITS);
    no(far_verify(BROUGHT(7), .index_plus_1 = 9), REASON_SLOT_RANGE);
    granted(release(a));
    gone(far_verify(BROUGHT(5)), REASON_UNKNOWN_ID);
    gone(far_verify(BROUGHT(6)), REASON_UNKNOWN_ID);
    gone(far_verify(BROUGHT(7)), REASON_UNKNOWN_ID);
    struct answer answer = far_verify(BROUGHT(8), .ttl_ms = 5);
    no(answer, REASON_TTL);
    assert_true(answer.undecided);
    go(far_verify(BROUGHT(8)));
}

/* The reading that it waits for decides, and meanwhile it has its place. */
static void a_verify_holds_while_the_server_is_read(void **state)
{
    (void)state;
    on_server(1);
    after(100);
    struct answer first = far_verify(none);
    uint64_t id = last_request();
    unread(first);
    is_state(first.lease, HELD);
    assert_int_equal((first.end_ns - world.now) / NS_PER_MS, TTL_HELD_MS_DEFAULT);
    no(far_verify(none), REASON_AHEAD);
    shows_nothing();
    struct answer answer = far_verify(none, .same = id);
    go(answer);
    assert_true(lease_id_equal(answer.lease, first.lease));
    assert_int_equal(answer.place, first.place);
    after(100);
    release(answer.lease, .flags = REQUEST_FORCE);
    unread(far_verify(BROUGHT(3), .ttl_ms = 60000));
    id = last_request();
    assert_int_equal((record_of(BROUGHT(3))->deadline_ns - world.now) / NS_PER_MS,
                     TTL_HELD_MS_DEFAULT); /* a verify does not take longer */
    shows(9);
    no(far_verify(BROUGHT(3), .same = id), REASON_STRANGERS);
    is_state(BROUGHT(3), GONE);
    no(far_verify(BROUGHT(3), .same = id), REASON_STRANGERS);
}

static void nobody_knows_yet_how_many_slots_there_are(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    world.slots = 4;
    begin_world(&settings);
    unread(far_verify(none));
    uint64_t id = last_request();
    assert_int_equal(world.book.used, 0);
    shows_nothing();
    go(far_verify(none, .same = id));
}

static void a_pause_decides_nothing(void **state)
{
    (void)state;
    on_server(2);
    for (int i = 0; i < 6 && attribution_not_before(&world.book) <= world.now; i++) {
        after(900);
        shows(9); /* a stranger: the server is to be left alone now and then */
    }
    assert_true(attribution_not_before(&world.book) > world.now);
    after(100);
    struct answer answer = far_verify(BROUGHT(1));
    no(answer, REASON_PAUSE);
    assert_true(answer.undecided);
    assert_true(lease_id_equal(answer.lease, BROUGHT(1)));
    assert_int_equal(world.book.live_count, 0);
    after(1200);
    shows(9);
    go(far_verify(BROUGHT(1)));
}

static void one_that_waits_waits_for_its_go(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct answer answer = far_verify(none, .wait_ms = 5000);
    uint64_t id = last_request();
    struct lease_id waiter = waits(answer);
    assert_true(record_of(waiter)->flags & RECORD_TO_DISPATCH);
    waits(far_verify(none, .wait_ms = 5000, .same = id));
    assert_int_equal(tally_now().waiting, 1);
    after(2000);
    granted(release(a));
    is_state(waiter, DISPATCHED);
    answer = far_verify(none, .wait_ms = 5000, .same = id);
    go(answer);
    assert_int_equal(answer.waited_ms, 2000);
    takes_over();
    same_answer(answer, far_verify(none, .wait_ms = 5000, .same = id));
    waits(far_verify(BROUGHT(1), .wait_ms = 1000));
    id = last_request();
    after(1001);
    answer = far_verify(BROUGHT(1), .wait_ms = 1000, .same = id);
    no(answer, REASON_WAIT_OVER);
    takes_over();
    same_answer(answer, far_verify(BROUGHT(1), .wait_ms = 1000, .same = id));
}

static void ids_of_the_past_are_dead(void **state)
{
    (void)state;
    on_static(4);
    gone(far_verify(BROUGHT(1), .epoch = 999), REASON_UNKNOWN_ID);
    go(far_verify(BROUGHT(1), .epoch = 1000));
    book_raise_epoch(&world.book, 1001);
    go(far_verify(BROUGHT(1), .epoch = 1000)); /* it is known, whatever its epoch */
    go(far_verify(BROUGHT(2)));                /* never heard of one */
    far_release(BROUGHT(1));
    gone(far_verify(BROUGHT(1)), REASON_ENDED);
    gone(far_acquire(BROUGHT(1)), REASON_ENDED);
    struct lease_id own = {world.book.head.instance, 77};
    gone(far_verify(own, .flags = REQUEST_BRINGS_ID), REASON_UNKNOWN_ID);
    for (uint64_t i = 100; i < 300; i++) { /* its cell is used again */
        go(far_verify(BROUGHT(i)));
        far_release(BROUGHT(i));
    }
    assert_null(record_of(BROUGHT(1)));
    gone(far_verify(BROUGHT(1)), REASON_UNKNOWN_ID);
    struct lease_id asked_for = {5, 5}; /* and not brought */
    gone(far_verify(asked_for), REASON_UNKNOWN_ID);
}

static void work_that_runs_is_told_with_its_id(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(far_acquire(BROUGHT(1)));
    shows_nothing();
    struct answer answer = far_acquire(a, .flags = REQUEST_RUNNING); /* it went meanwhile */
    granted(answer);
    is_state(a, DISPATCHED);
    assert_int_equal(answer.token, record_of(a)->token);
    assert_int_equal(tally_now().unseen, 0);
    granted(far_acquire(BROUGHT(2), .flags = REQUEST_RUNNING)); /* and one that nobody knew */
    is_state(BROUGHT(2), DISPATCHED);
    assert_int_equal(tally_now().dispatched, 2);
    granted(far_release(BROUGHT(2)));
    gone(far_acquire(BROUGHT(2), .flags = REQUEST_RUNNING), REASON_ENDED);
    granted(far_acquire(none, .flags = REQUEST_RUNNING, .former = BROUGHT(1)));
    is_end(BROUGHT(1), REPLACED);
}

static void refusals_are_logged_once_a_second(void **state)
{
    (void)state;
    on_static(1);
    dispatched("a");
    for (int i = 0; i < 100; i++)
        no(far_verify(none), REASON_LEASES);
    assert_int_equal(world.notes[NOTE_REFUSED], 1);
}

/* ---- who may end what ------------------------------------------------------------------------ */

static struct lease_id of_host(const char *host, uint32_t pid)
{
    return go(far_verify(none, .host = host, .pid = pid));
}

static void a_lease_is_its_holders(void **state)
{
    (void)state;
    on_static(8);
    struct lease_id a = of_host("m3", 7);
    no(far_release(a, .host = "m4", .pid = 7), REASON_NOT_YOURS);
    no(far_release(a, .host = "m4"), REASON_NOT_YOURS);
    no(far_release(a, .host = "m3", .pid = 8), REASON_NOT_YOURS);
    no(release(a), REASON_NOT_YOURS); /* a process here */
    is_state(a, DISPATCHED);
    granted(far_release(a, .host = "m3", .pid = 7));
    is_end(a, RELEASED);
    struct lease_id b = of_host("m3", 7);
    granted(far_release(b, .host = "m3")); /* its agent */
    struct lease_id c = of_host("m3", 7);
    granted(far_release(c, .host = "m4", .pid = 9, .flags = REQUEST_FORCE));
    is_end(c, FORCED);
    struct lease_id d = of_host("m3", 7);
    granted(far_release(d, .host = "")); /* a peer that says nothing of itself */
    struct lease_id e = dispatched("here");
    no(far_release(e, .host = "m3", .pid = 4242), REASON_NOT_YOURS);
    granted(release(e));
}

static void a_death_is_told_by_its_host(void **state)
{
    (void)state;
    on_server(8);
    struct lease_id a = of_host("m3", 7), b = of_host("m3", 8);
    no(far_release(a, .host = "m4", .flags = REQUEST_DIED), REASON_NOT_YOURS);
    granted(far_release(a, .pid = 99, .flags = REQUEST_DIED)); /* the agent's own pid */
    is_state(a, ORPHAN);
    is_end(a, LAPSED);
    granted(far_release(a, .pid = 99, .flags = REQUEST_DIED));
    struct lease_id held = granted(far_acquire(none, .pid = 9));
    granted(far_release(held, .flags = REQUEST_DIED));
    is_state(held, GONE);
    struct lease_id outlives = go(far_verify(none, .pid = 7, .flags = REQUEST_NO_HOLDER));
    granted(far_release(outlives, .flags = REQUEST_DIED));
    is_state(outlives, DISPATCHED);
    uint16_t cell = (uint16_t)book_index(&world.book, record_of(b));
    step_world(&(struct event){.kind = EVENT_DEAD, .dead = &cell, .dead_count = 1});
    is_state(b, DISPATCHED); /* pid 8 of this host has nothing to do with it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_brought_and_kept),
        cmocka_unit_test(without_an_id_the_book_gives_one),
        cmocka_unit_test(a_no_leaves_nothing),
        cmocka_unit_test(a_refused_acquire_kills_the_id_too),
        cmocka_unit_test(a_verify_holds_while_the_server_is_read),
        cmocka_unit_test(nobody_knows_yet_how_many_slots_there_are),
        cmocka_unit_test(a_pause_decides_nothing),
        cmocka_unit_test(one_that_waits_waits_for_its_go),
        cmocka_unit_test(ids_of_the_past_are_dead),
        cmocka_unit_test(work_that_runs_is_told_with_its_id),
        cmocka_unit_test(refusals_are_logged_once_a_second),
        cmocka_unit_test(a_lease_is_its_holders),
        cmocka_unit_test(a_death_is_told_by_its_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
