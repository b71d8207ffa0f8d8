/* When attribution.c leaves a server alone. */
#include "broker/attribution.h"

#include "tests/lib/virtual.h"

/* ---- the pause ---------------------------------------------------------------------------------- */

static void a_full_reading_with_a_stranger_gives_the_server_a_pause(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    after(100);
    shows(71, 9);
    ns_t answered = world.book.sight.reading.answered_ns;
    assert_int_equal(attribution_not_before(&world.book), answered + PAUSE_MS * NS_PER_MS);
    assert_int_equal(attribution_next_due(&world.book, true), answered + PAUSE_MS * NS_PER_MS);
    after(50);
    release(a); /* room for one, by the last reading; but that is too old */
    struct lease_id b = granted(acquire(.ttl_ms = 30000));
    struct answer answer = verify(b);
    no(answer, REASON_PAUSE);
    assert_true(answer.undecided);
    assert_false(world.effects.probe);
    is_state(b, HELD);
    answer = verify(b, .wait_ms = 5000);
    waits(answer);
    assert_int_equal(answer.reason, REASON_PAUSE);
    assert_int_equal(answer.retry_ns, answered + PAUSE_MS * NS_PER_MS);
    after(1160);
    unread(verify(b, .wait_ms = 5000));
    assert_true(world.effects.probe);
    shows(9);
    go(verify(b, .wait_ms = 5000));
}

static void in_the_pause_the_last_reading_decides_nothing(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    after(100);
    shows(9);
    after(50);
    struct answer answer = verify(a);
    no(answer, REASON_STRANGERS);
    assert_true(answer.undecided); /* it may be over by the end of the pause */
    assert_int_equal(answer.retry_ns, attribution_not_before(&world.book));
    is_state(a, HELD);
    after(PAUSE_MS);
    unread(verify(a));
    shows_nothing();
    go(verify(a));
    answer = acquire(); /* leases alone: no pause changes that */
    no(answer, REASON_LEASES);
    assert_int_equal(answer.retry_ns, 0);
}

static void an_acquire_says_when_the_pause_ends(void **state)
{
    (void)state;
    on_server(1);
    after(100);
    shows(9);
    after(50);
    struct answer answer = acquire();
    no(answer, REASON_STRANGERS);
    assert_int_equal(answer.retry_ns, attribution_not_before(&world.book));
}

/* The pause keeps off probes, not the use of the reading that began it. */
static void the_reading_that_begins_a_pause_may_say_go(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire());
    for (int i = 0; i < 100; i++) {
        after(100);
        shows(9);
        if (attribution_not_before(&world.book) > world.now)
            break;
    }
    assert_true(attribution_not_before(&world.book) > world.now);
    go(verify(a));
}

/* The server notices that a client has left only in a second in which nobody asks. */
static void an_abandoned_request_is_freed(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    after(100);
    shows(71);
    dies(a);
    ns_t last_probe = world.now, longest = 0;
    bool runs = true;
    struct lease_id b = NO_LEASE;
    struct answer answer = acquire(.wait_ms = 20000);
    b = waits(answer);
    for (int ms = 0; ms < 10000 && state_of(b) == RECORD_WAITING; ms += 100) {
        after(100);
        if (world.now < attribution_not_before(&world.book) ||
            world.now < attribution_next_due(&world.book, true))
            continue;
        longest = world.now - last_probe > longest ? world.now - last_probe : longest;
        runs = runs && world.now - last_probe < 1100 * NS_PER_MS;
        last_probe = world.now;
        if (runs)
            shows(71);
        else
            shows_nothing();
    }
    assert_true(longest >= 1100 * NS_PER_MS);
    is_state(a, GONE);
    is_state(b, HELD);
}

/* Asked all the time by verifies and never full: a pause at least every 4 s. */
static void a_stranger_gets_a_pause_every_four_seconds(void **state)
{
    (void)state;
    on_server(4);
    ns_t began = 0, pauses = 0;
    for (int ms = 0; ms < 20000; ms += 50) {
        after(50);
        if (world.now < attribution_not_before(&world.book))
            continue;
        shows(9);
        if (attribution_not_before(&world.book) <= world.now)
            continue;
        if (pauses++ > 0)
            assert_in_range((world.now - began) / NS_PER_MS, 3900, 4100);
        began = world.now;
    }
    assert_in_range(pauses, 4, 6);
}

/* Where probes are so far apart anyway, the server had its pause. */
static void a_slow_prober_needs_no_pause(void **state)
{
    (void)state;
    on_server(4);
    for (int i = 0; i < 20; i++) {
        after(1250);
        shows(9);
        assert_true(attribution_not_before(&world.book) <= world.now);
    }
    after(500);
    struct lease_id a = granted(acquire());
    unread(verify(a));
    shows(9);
    go(verify(a));
}

static void no_pause_where_leases_explain_all(void **state)
{
    (void)state;
    on_server(1);
    dispatched("a");
    for (int i = 0; i < 100; i++) {
        after(100);
        shows(71);
        assert_true(attribution_not_before(&world.book) <= world.now);
    }
}

static void the_next_reading_is_due_sooner_where_something_happens(void **state)
{
    (void)state;
    on_server(2);
    ns_t answered = world.book.sight.reading.answered_ns;
    assert_int_equal(attribution_next_due(&world.book, false), answered + 5000 * NS_PER_MS);
    assert_int_equal(attribution_next_due(&world.book, true), answered + 1200 * NS_PER_MS);
    granted(acquire());
    assert_int_equal(attribution_next_due(&world.book, false), answered + 1200 * NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_reading_with_a_stranger_gives_the_server_a_pause),
        cmocka_unit_test(in_the_pause_the_last_reading_decides_nothing),
        cmocka_unit_test(an_acquire_says_when_the_pause_ends),
        cmocka_unit_test(the_reading_that_begins_a_pause_may_say_go),
        cmocka_unit_test(an_abandoned_request_is_freed),
        cmocka_unit_test(a_stranger_gets_a_pause_every_four_seconds),
        cmocka_unit_test(a_slow_prober_needs_no_pause),
        cmocka_unit_test(no_pause_where_leases_explain_all),
        cmocka_unit_test(the_next_reading_is_due_sooner_where_something_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
