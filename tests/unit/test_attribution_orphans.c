/* What attribution.c does with the work of those who died. */
#include "broker/attribution.h"

#include "tests/lib/virtual.h"

static bool is_ghost(struct lease_id lease)
{
    return (record_of(lease)->flags & RECORD_GHOST) != 0;
}

/* ---- orphans ------------------------------------------------------------------------------------ */

static void a_dead_holders_work_keeps_its_name_until_it_ends(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    dies(a);
    is_state(a, ORPHAN);
    is_end(a, LAPSED);
    assert_int_equal(world.notes[NOTE_ORPHAN], 1);
    struct answer answer = acquire();
    no(answer, REASON_LEASES);
    assert_string_equal(answer.other.label, "a");
    assert_int_equal(answer.other.state, RECORD_ORPHAN);
    after(1500);
    shows(71);
    is_state(a, ORPHAN);
    assert_int_equal(world.book.sight.strangers, 0);
    after(1500);
    shows_nothing();
    is_state(a, GONE);
    assert_int_equal(world.notes[NOTE_ORPHAN_GONE], 1);
    go(verify(granted(acquire())));
}

/* Its work is told from a stranger's by name. */
static void an_orphan_ends_with_its_own_work(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    shows(71, 99);
    dies(a);
    shows(-1, 99);
    is_state(a, GONE);
    assert_int_equal(world.book.sight.strangers, 1);
}

static void unseen_work_of_the_dead_counts_until_it_settles(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    dies(a);
    is_state(a, ORPHAN);
    after(5000);
    shows_nothing();
    assert_int_equal(tally_now().busy, 1);
    assert_int_equal(tally_now().unseen, 1);
    after(5001);
    shows_nothing();
    is_state(a, GONE);
    assert_int_equal(tally_now().busy, 0);
}

static void unseen_work_of_the_dead_may_arrive_yet(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    dies(a);
    after(3700);
    shows(71);
    assert_int_equal(tally_now().orphans, 1);
    assert_int_equal(tally_now().unseen, 0);
    after(20000);
    shows(71);
    is_state(a, ORPHAN);
    shows_nothing();
    is_state(a, GONE);
}

/* The last reading showed no work for it: nothing is left running. */
static void a_ghost_that_dies_leaves_nothing(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    after(100);
    shows_nothing();
    assert_true(is_ghost(a));
    dies(a);
    is_state(a, GONE);
    granted(acquire());

    on_counting_server(1);
    a = dispatched("a");
    after(1000);
    counts(0);
    assert_true(is_ghost(a));
    dies(a);
    is_state(a, GONE);
}

/* Neither by a reading that never comes can an orphan wedge the book. */
static void an_orphan_that_settled_unseen_is_over(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    dies(a);
    is_state(a, ORPHAN);
    after(10001);
    tick();
    is_state(a, GONE);

    on_server(1);
    a = granted(acquire(.ttl_ms = 20000));
    go(verify(a));
    after(11000);
    shows(9); /* a stranger's or its own: settled, it explains the work */
    tick();
    after(10000);
    tick();
    assert_int_not_equal(state_of(a), RECORD_DISPATCHED);
    after(1000);
    shows_nothing();
    is_state(a, GONE);
}

static void an_orphan_of_several_loses_them_one_by_one(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = granted(acquire(.units = 3));
    go(verify(a));
    shows(71, 72); /* two of three have arrived */
    dies(a);
    assert_int_equal(tally_now().busy, 3);
    after(10);
    shows(71);
    assert_int_equal(tally_now().busy, 2); /* one at work, one on its way */
    after(10);
    shows_nothing();
    is_state(a, ORPHAN);
    assert_int_equal(tally_now().busy, 1); /* the third may arrive yet */
    after(10);
    shows(-1, -1, 73);
    assert_int_equal(tally_now().orphans, 1);
    shows_nothing();
    is_state(a, GONE);
}

/* "Loading" may be what the request itself has begun: it waits for the model. */
static void work_on_its_way_outlives_a_loading_model(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = granted(acquire(.units = 3));
    go(verify(a));
    shows(71);
    dies(a);
    is_now(HEALTH_LOADING);
    is_state(a, ORPHAN);
    shows_nothing();
    assert_int_equal(tally_now().orphans, 0);
    assert_int_equal(tally_now().unseen, 2);
    is_now(HEALTH_DOWN);
    is_state(a, GONE);
}

static void a_server_that_went_down_has_no_work(void **state)
{
    (void)state;
    static const enum health fresh[] = {HEALTH_DOWN, HEALTH_LOADING};
    for (int i = 0; i < 2; i++) {
        on_server(2);
        struct lease_id a = dispatched("a");
        shows(71, 9);
        dies(a);
        after(100);
        is_now(fresh[i]);
        is_state(a, GONE);
        assert_int_equal(world.book.sight.strangers, 0);
        assert_int_equal(world.notes[NOTE_ORPHAN_GONE], 1);
    }
}

/* No answer in time is not the end of its work. */
static void a_busy_server_keeps_its_orphans(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    dies(a);
    after(600);
    is_now(HEALTH_BUSY);
    is_state(a, ORPHAN);
    shows(71);
    is_state(a, ORPHAN);
    assert_int_equal(world.book.sight.strangers, 0);
}

static void drain_time_stands_in_for_readings(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    dies(a);
    is_state(a, ORPHAN);
    assert_int_equal(tally_now().busy, 1);
    assert_int_equal(broker_deadline(&world.broker), world.now + 5000 * NS_PER_MS);
    no(acquire(), REASON_LEASES);
    after(4999);
    no(acquire(), REASON_LEASES);
    after(2);
    granted(acquire());
    is_state(a, GONE);
}

/* The same where the server answers and cannot tell what it works on. */
static void drain_time_stands_in_for_readings_that_tell_nothing(void **state)
{
    (void)state;
    on_server(1);
    after(100);
    is_now(HEALTH_OK);
    struct lease_id a = granted(acquire(.ttl_ms = 1000));
    go(verify(a));
    after(1001);
    is_now(HEALTH_OK);
    is_state(a, ORPHAN);
    is_end(a, EXPIRED);
    no(acquire(), REASON_LEASES);
    after(4900);
    is_now(HEALTH_OK);
    no(acquire(), REASON_LEASES);
    after(200);
    is_now(HEALTH_OK);
    go(verify(granted(acquire())));
    is_state(a, GONE);
}

static void unseen_work_of_an_expired_lease_keeps_its_units_too(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire(.units = 2, .ttl_ms = 1000));
    go(verify(a));
    after(1001);
    shows(71);
    is_state(a, ORPHAN);
    assert_int_equal(tally_now().busy, 2); /* one at work, one on its way */
    no(acquire(), REASON_LEASES);
    after(9100);
    shows(71);
    assert_int_equal(tally_now().busy, 1);
    go(verify(granted(acquire())));
    is_state(a, ORPHAN);
}

/* Nobody reads in the background: an orphan known by an old reading does not refuse for ever. */
static void an_orphan_wedges_nothing_where_nobody_reads(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    dies(a);
    no(acquire(), REASON_LEASES);
    after(READING_TRUST_MS + 1);
    struct lease_id b = granted(acquire());
    unread(verify(b));
    shows(71);
    no(verify(b), REASON_LEASES);
    after(READING_TRUST_MS + 1);
    b = granted(acquire());
    unread(verify(b));
    shows_nothing();
    go(verify(b));
    is_state(a, GONE);
}

/* One of its two units was seen, the other never came: when the first goes there is nothing left. */
static void half_seen_work_ends_with_what_was_seen(void **state)
{
    (void)state;
    on_counting_server(4);
    struct lease_id two = granted(acquire(.units = 2));
    counts(0);
    go(verify(two));
    after(10);
    counts(1);
    dies(two);
    is_state(two, ORPHAN);
    after(1000);
    counts(0);
    is_state(two, GONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_seen_work_ends_with_what_was_seen),
        cmocka_unit_test(a_dead_holders_work_keeps_its_name_until_it_ends),
        cmocka_unit_test(an_orphan_ends_with_its_own_work),
        cmocka_unit_test(unseen_work_of_the_dead_counts_until_it_settles),
        cmocka_unit_test(unseen_work_of_the_dead_may_arrive_yet),
        cmocka_unit_test(a_ghost_that_dies_leaves_nothing),
        cmocka_unit_test(an_orphan_that_settled_unseen_is_over),
        cmocka_unit_test(an_orphan_of_several_loses_them_one_by_one),
        cmocka_unit_test(work_on_its_way_outlives_a_loading_model),
        cmocka_unit_test(a_server_that_went_down_has_no_work),
        cmocka_unit_test(a_busy_server_keeps_its_orphans),
        cmocka_unit_test(drain_time_stands_in_for_readings),
        cmocka_unit_test(drain_time_stands_in_for_readings_that_tell_nothing),
        cmocka_unit_test(unseen_work_of_an_expired_lease_keeps_its_units_too),
        cmocka_unit_test(an_orphan_wedges_nothing_where_nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
