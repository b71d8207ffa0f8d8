#include "tests/lib/virtual.h"

static uint32_t called(struct lease_id lease)
{
    uint32_t cell = book_index(&world.book, record_of(lease)), times = 0;
    for (uint32_t i = 0; i < world.effects.called_count; i++)
        times += world.effects.called[i] == cell;
    return times;
}

/* ---- the clock ---------------------------------------------------------------------------------- */

static void a_held_lease_expires(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire());
    assert_int_equal(broker_deadline(&world.broker), world.now + 10000 * NS_PER_MS);
    after(9999);
    tick();
    is_state(a, HELD);
    after(1);
    tick();
    is_state(a, GONE);
    is_end(a, EXPIRED);
    assert_int_equal(broker_deadline(&world.broker), NS_NEVER);
    assert_int_equal(world.notes[NOTE_EXPIRED], 1);
    granted(acquire());
}

/* The holder leaked it, and something renews it all the same. */
static void a_held_lease_ends_after_60_seconds_in_spite_of_renewals(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire());
    for (int s = 3; s < 60; s += 3) {
        at(s * 1000);
        granted(renew(a));
        is_state(a, HELD);
    }
    at(59999);
    granted(renew(a, .ttl_ms = 3600000));
    at(60001);
    gone(renew(a), REASON_ENDED);
    is_end(a, EXPIRED);
}

static void a_dispatched_lease_is_renewed_without_end(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    for (int s = 20; s < 4000; s += 20) {
        at(s * 1000);
        granted(renew(a));
    }
    is_state(a, DISPATCHED);
    after(30001);
    tick();
    assert_int_not_equal(state_of(a), RECORD_DISPATCHED);
}

/* A suspended laptop: what lapsed meanwhile has lapsed before anything else is answered. */
static void after_a_suspend_leases_lapse_first(void **state)
{
    (void)state;
    on_static(2);
    struct lease_id a = granted(acquire()), b = granted(acquire());
    after(3600 * 1000);
    gone(renew(a), REASON_ENDED);
    is_state(b, GONE);
    after(1);
    a = granted(acquire());
    b = granted(acquire());
    after(3600 * 1000);
    gone(verify(a), REASON_ENDED);
    a = granted(acquire(.units = 2)); /* both slots are free at once */
    after(3600 * 1000);
    granted(acquire(.units = 2));
}

/* ---- first come, first served -------------------------------------------------------------------- */

static void nobody_passes_the_head(void **state)
{
    (void)state;
    on_static(2);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    struct lease_id two = waits(acquire(.units = 2, .wait_ms = 60000));
    struct lease_id one = waits(acquire(.wait_ms = 60000));
    release(a);
    is_state(two, WAITING); /* it needs both */
    is_state(one, WAITING); /* and holds back whoever came later */
    no(acquire(), REASON_AHEAD);
    release(b);
    is_state(two, HELD);
    assert_int_equal(called(two), 1);
    is_state(one, WAITING);
    assert_int_equal(called(one), 0);
    release(two);
    is_state(one, HELD);
}

static void waiters_are_served_in_their_order(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a"), waiter[50];
    for (int i = 0; i < 50; i++)
        waiter[i] = waits(acquire(.wait_ms = 600000));
    for (int i = 0; i < 50; i++) {
        release(i == 0 ? a : waiter[i - 1]);
        for (int k = 0; k < 50; k++)
            assert_int_equal(state_of(waiter[k]), k < i    ? RECORD_GONE
                                                  : k == i ? RECORD_HELD
                                                           : RECORD_WAITING);
    }
}

static void a_waiter_for_an_index_holds_back_only_that_index(void **state)
{
    (void)state;
    on_static(3);
    struct lease_id a = granted(acquire(.index = slot(1)));
    go(verify(a));
    struct lease_id indexed = waits(acquire(.index = slot(1), .wait_ms = 60000));
    no(acquire(.index = slot(1)), REASON_SLOT);
    granted(acquire(.index = slot(0)));
    struct lease_id any = granted(acquire());
    struct lease_id second = waits(acquire(.index = slot(1), .wait_ms = 60000));
    release(a);
    is_state(indexed, HELD);
    is_state(second, WAITING);
    (void)any;
}

/* Asked again before its turn, one who waits for the go stays where it is. */
static void who_asks_again_passes_nobody(void **state)
{
    (void)state;
    on_counting_server(2);
    struct lease_id first = granted(acquire()), second = granted(acquire());
    counts(2);
    waits(verify(first, .wait_ms = 60000));
    waits(verify(second, .wait_ms = 60000));
    struct answer answer = verify(second, .wait_ms = 60000);
    assert_int_equal(answer.verdict, ANSWER_WAIT);
    assert_int_equal(answer.reason, REASON_AHEAD);
    counts(1);
    is_state(first, DISPATCHED);
    is_state(second, WAITING);
}

/* A waiter for any slot is the head for everybody. */
static void a_waiter_for_any_slot_holds_back_an_index(void **state)
{
    (void)state;
    on_static(2);
    struct lease_id a = dispatched("a");
    struct lease_id both = waits(acquire(.units = 2, .wait_ms = 60000));
    no(acquire(.index = slot(1)), REASON_AHEAD);
    struct lease_id indexed = waits(acquire(.index = slot(1), .wait_ms = 60000));
    is_state(indexed, WAITING);
    release(a);
    is_state(both, HELD);
    is_state(indexed, WAITING);
}

static void a_wait_ends(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire());
    go(verify(a, .ttl_ms = 60000));
    struct lease_id b = waits(acquire(.wait_ms = 5000));
    uint64_t id = last_request();
    after(4990);
    struct answer answer = acquire(.wait_ms = 5000, .same = id, .asked_ns = WORLD_BEGINS);
    waits(answer);
    assert_in_range(answer.waited_ms, 4989, 4991);
    after(11);
    tick();
    is_state(b, GONE);
    is_end(b, GAVE_UP);
    assert_int_equal(called(b), 1);
    no(acquire(.wait_ms = 5000, .same = id, .asked_ns = WORLD_BEGINS), REASON_WAIT_OVER);
    (void)a;
}

static void one_who_gives_up_makes_way(void **state)
{
    (void)state;
    on_static(2);
    struct lease_id a = dispatched("a");
    struct lease_id both = waits(acquire(.units = 2, .wait_ms = 60000));
    struct lease_id one = waits(acquire(.wait_ms = 60000));
    granted(release(both, .flags = REQUEST_GIVE_UP));
    is_end(both, GAVE_UP);
    is_state(one, HELD);
    (void)a;
}

static void a_waiter_that_dies_makes_way(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct lease_id b = waits(acquire(.wait_ms = 60000)), c = waits(acquire(.wait_ms = 60000));
    dies(b);
    release(a);
    is_state(b, GONE);
    is_state(c, HELD);
}

/* ---- waiting for the go -------------------------------------------------------------------------- */

static void a_held_lease_that_waits_keeps_its_place(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    uint64_t place = record_of(a)->place;
    after(100);
    shows(9);
    struct answer answer = verify(a, .wait_ms = 100000);
    waits(answer);
    assert_int_equal(answer.reason, REASON_STRANGERS);
    assert_int_equal(answer.place, place);
    struct lease_id b = waits(acquire(.wait_ms = 100000));
    assert_int_equal(tally_now().waiting, 2); /* counted once */
    assert_int_equal(tally_now().held, 0);
    for (int i = 0; i < 60; i++) { /* its 60 s as a held lease stand still */
        after(1250);
        shows(9);
    }
    is_state(a, WAITING);
    after(1250);
    shows_nothing();
    is_state(a, DISPATCHED);
    assert_int_equal(called(a), 1);
    assert_int_equal(record_of(a)->place, place);
    is_state(b, WAITING);
    go(verify(a));
}

/* Whose release made the room has no reading made; the one who waits has. */
static void a_head_that_needs_a_reading_is_called_once(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    after(100);
    shows(71);
    struct lease_id b = waits(acquire(.wait_ms = 60000));
    after(100);
    release(a);
    is_state(b, HELD); /* intention needs no reading */
    unread(verify(b, .wait_ms = 60000));

    on_server(1);
    a = granted(acquire());
    after(100);
    shows(9);
    waits(verify(a, .wait_ms = 60000));
    after(1300);
    tick();
    assert_int_equal(called(a), 1);
    tick();
    assert_int_equal(called(a), 0);
    unread(verify(a, .wait_ms = 60000));
    shows_nothing();
    is_state(a, DISPATCHED);
}

/* Its room is kept, so whoever only wants to be held need not wait behind it. */
static void a_head_that_needs_a_reading_holds_back_goes_only(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = granted(acquire()), x = dispatched("x");
    after(20000);
    a = granted(acquire());
    after(100);
    struct lease_id y = granted(acquire(.units = 2));
    struct lease_id b = waits(acquire(.wait_ms = 60000));
    is_now(HEALTH_BUSY);
    waits(verify(a, .wait_ms = 60000));
    waits(verify(y, .wait_ms = 60000));
    after(READING_TRUST_MS + 1); /* nobody knows how it is now */
    release(x);
    is_state(a, WAITING);
    is_state(y, WAITING);
    is_state(b, HELD);
    no(acquire(), REASON_AHEAD);
}

/* Called and then told no by the reading: it keeps its place. */
static void a_called_waiter_that_is_told_no_keeps_its_place(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    after(100);
    shows(9);
    waits(verify(a, .wait_ms = 60000));
    for (int i = 0; i < 5; i++) {
        after(1300);
        unread(verify(a, .wait_ms = 60000));
        shows(9);
        waits(verify(a, .wait_ms = 60000));
    }
    no(acquire(), REASON_AHEAD);
    is_state(a, WAITING);
}

static void what_was_waited_does_not_grow_after_the_grant(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    ns_t asked = world.now + 1;
    struct lease_id b = waits(acquire(.wait_ms = 60000));
    uint64_t id = last_request();
    after(3000);
    release(a);
    is_state(b, HELD);
    after(2000);
    struct answer answer = acquire(.wait_ms = 60000, .same = id, .asked_ns = asked);
    granted(answer);
    assert_in_range(answer.waited_ms, 2999, 3001);
    /* holder's end, asked + waited + ttl, is no later than the owner's */
    assert_true(asked + (ns_t)(answer.waited_ms + 10000) * NS_PER_MS <= answer.end_ns);
    answer = verify(b);
    go(answer);
    assert_int_equal(answer.waited_ms, 0); /* this verify waited for nothing */
    after(5000);
    answer = renew(b);
    assert_int_equal(answer.waited_ms, 0);
}

/* ---- maxima -------------------------------------------------------------------------------------- */

static void a_full_queue_refuses(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a"), first = NO_LEASE;
    world.lazy = true;
    for (int i = 0; i < BOOK_WAITERS_MAX; i++) {
        struct lease_id waiter = waits(acquire(.wait_ms = 60000));
        first = i == 0 ? waiter : first;
    }
    no(acquire(.wait_ms = 60000), REASON_QUEUE_FULL);
    assert_int_equal(world.book.count[RECORD_WAITING], BOOK_WAITERS_MAX);
    release(first, .flags = REQUEST_GIVE_UP);
    waits(acquire(.wait_ms = 60000));
    after(60001);
    tick(); /* all of them end in one step */
    assert_int_equal(world.book.count[RECORD_WAITING], 0);
    assert_true(world.effects.notes_lost > 0);
    (void)a;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_lease_expires),
        cmocka_unit_test(a_held_lease_ends_after_60_seconds_in_spite_of_renewals),
        cmocka_unit_test(a_dispatched_lease_is_renewed_without_end),
        cmocka_unit_test(after_a_suspend_leases_lapse_first),
        cmocka_unit_test(nobody_passes_the_head),
        cmocka_unit_test(waiters_are_served_in_their_order),
        cmocka_unit_test(a_waiter_for_an_index_holds_back_only_that_index),
        cmocka_unit_test(who_asks_again_passes_nobody),
        cmocka_unit_test(a_waiter_for_any_slot_holds_back_an_index),
        cmocka_unit_test(a_wait_ends),
        cmocka_unit_test(one_who_gives_up_makes_way),
        cmocka_unit_test(a_waiter_that_dies_makes_way),
        cmocka_unit_test(a_held_lease_that_waits_keeps_its_place),
        cmocka_unit_test(a_head_that_needs_a_reading_is_called_once),
        cmocka_unit_test(a_head_that_needs_a_reading_holds_back_goes_only),
        cmocka_unit_test(a_called_waiter_that_is_told_no_keeps_its_place),
        cmocka_unit_test(what_was_waited_does_not_grow_after_the_grant),
        cmocka_unit_test(a_full_queue_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
