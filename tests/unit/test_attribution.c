#include "broker/attribution.h"

#include "tests/lib/virtual.h"

static uint32_t seen(struct lease_id lease)
{
    return admission_seen_units(&world.book, record_of(lease), world.now);
}

static bool is_ghost(struct lease_id lease)
{
    return (record_of(lease)->flags & RECORD_GHOST) != 0;
}

/* ---- names -------------------------------------------------------------------------------------- */

static void a_new_name_is_the_work_of_the_oldest_unseen_lease(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    shows_nothing();
    assert_int_equal(seen(a) + seen(b), 0);
    shows(-1, 71);
    assert_int_equal(seen(a), 1);
    assert_int_equal(seen(b), 0);
    assert_int_equal(record_of(a)->task, 71);
    shows(-1, 71); /* the same name is no new arrival */
    assert_int_equal(seen(b), 0);
    shows(-1, 72); /* another one in the same slot is: a's ended, b's began */
    assert_int_equal(seen(b), 1);
    assert_int_equal(record_of(b)->task, 72);
}

/* It went out before the lease did: what it shows cannot be the lease's. */
static void a_reading_sent_before_the_go_shows_nothing_of_it(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire());
    struct reading *reading = named_reading(1, (int32_t[]){9});
    reading->sent_ns = world.now;
    after(1);
    go(verify(a));
    after(1);
    reading->answered_ns = world.now;
    take(reading);
    assert_int_equal(seen(a), 0);
    assert_int_equal(world.book.sight.strangers, 1);
    assert_int_equal(tally_now().busy, 2);
    shows(9);
    assert_int_equal(seen(a), 0);
    shows(9, 71);
    assert_int_equal(seen(a), 1);
    assert_int_equal(world.book.sight.strangers, 1);
}

static void arrivals_beyond_the_leases_are_strangers(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = dispatched("a");
    shows(71, 8, 9);
    assert_int_equal(seen(a), 1);
    assert_int_equal(world.book.sight.strangers, 2);
    assert_int_equal(world.notes[NOTE_STRANGERS], 1);
    shows(71, 8, -1);
    assert_int_equal(world.book.sight.strangers, 1);
    shows(71);
    assert_int_equal(world.book.sight.strangers, 0);
    assert_int_equal(world.notes[NOTE_STRANGERS_GONE], 1);
}

static void a_lease_of_several_is_seen_when_as_many_arrived(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = granted(acquire(.units = 3));
    go(verify(a));
    shows(71);
    assert_int_equal(seen(a), 1);
    assert_int_equal(tally_now().unseen, 2);
    assert_int_equal(tally_now().busy, 3);
    shows(71, 72, 73);
    assert_int_equal(seen(a), 3);
    assert_int_equal(tally_now().strangers, 0);
}

/* One lease, one request after the other: the second is not a stranger's. */
static void the_next_request_of_a_holder_is_its_own(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    after(100);
    shows(71);
    after(100);
    shows(72);
    assert_int_equal(world.book.sight.strangers, 0);
    assert_int_equal(record_of(a)->task, 72);
    after(100);
    shows_nothing();
    assert_true(is_ghost(a));
    after(100);
    shows(73);
    assert_false(is_ghost(a));
    assert_int_equal(record_of(a)->task, 73);
    release(a);
    assert_int_equal(tally_now().busy, 0);
}

/* Names begin again at 0: what the dead server called its work says nothing of the new one's. */
static void a_server_that_started_afresh_uses_its_names_again(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(0);
    assert_int_equal(seen(a), 1);
    after(50);
    is_now(HEALTH_DOWN);
    release(a);
    after(5000);
    shows_nothing();
    struct lease_id b = dispatched("b");
    after(1);
    shows(0);
    assert_int_equal(seen(b), 1);
}

/* ---- counts ------------------------------------------------------------------------------------- */

static void a_count_belongs_to_known_strangers_then_to_the_seen_then_to_the_rest(void **state)
{
    (void)state;
    on_counting_server(4);
    counts(1);
    assert_int_equal(world.book.sight.strangers, 1);
    struct lease_id a = dispatched("a");
    after(20);
    counts(1); /* the stranger, still */
    assert_int_equal(seen(a), 0);
    assert_int_equal(tally_now().busy, 2);
    counts(2);
    assert_int_equal(seen(a), 1);
    assert_int_equal(world.book.sight.strangers, 1);
    struct lease_id b = dispatched("b");
    after(20);
    counts(2);
    assert_int_equal(seen(b), 0);
    counts(3);
    assert_int_equal(seen(b), 1);
    assert_int_equal(tally_now().busy, 3);
}

/* ---- settling ----------------------------------------------------------------------------------- */

static void time_makes_a_lease_seen(void **state)
{
    (void)state;
    on_counting_server(1);
    struct lease_id a = dispatched("a");
    after(99);
    assert_int_equal(seen(a), 0);
    after(2);
    assert_int_equal(seen(a), 1);
    counts(0);
    assert_true(is_ghost(a));
    assert_int_equal(tally_now().ghosts, 1);
    assert_int_equal(tally_now().busy, 1); /* D */

    on_server(1);
    a = dispatched("a");
    after(9000);
    shows_nothing();
    assert_int_equal(seen(a), 0);
    after(1001);
    shows_nothing();
    assert_int_equal(seen(a), 1);
    assert_true(is_ghost(a));
}

/* A model may take minutes to load. */
static void settling_stands_still_while_the_model_loads(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    after(1);
    is_now(HEALTH_LOADING);
    for (int i = 0; i < 20; i++) {
        after(1000);
        renew(a);
        is_now(HEALTH_LOADING);
    }
    assert_int_equal(seen(a), 0);
    shows(71);
    assert_int_equal(seen(a), 1);
    assert_int_equal(record_of(a)->task, 71);
}

/* With counts most leases are first read after they settled: their work is theirs all the same, by
 * name of the holder when that dies. */
static void work_first_read_after_settling_is_the_leases(void **state)
{
    (void)state;
    on_counting_server(2);
    struct lease_id a = dispatched("a");
    after(1000);
    counts(1);
    assert_false(is_ghost(a));
    dies(a);
    is_state(a, ORPHAN);
    assert_int_equal(tally_now().orphans, 1);
    assert_int_equal(tally_now().strangers, 0);
    after(1000);
    counts(1);
    is_state(a, ORPHAN);
    assert_int_equal(world.book.sight.strangers, 0);
    counts(0);
    is_state(a, GONE);
}

/* ---- ghosts ------------------------------------------------------------------------------------- */

static void a_ghost_is_who_has_no_work(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    shows(71, 72);
    after(100);
    shows(71);
    assert_false(is_ghost(a));
    assert_true(is_ghost(b));
    assert_int_equal(world.notes[NOTE_GHOST], 1);
    after(500);
    shows(71);
    assert_int_equal(world.notes[NOTE_GHOST], 1);
    assert_int_equal(tally_now().ghosts, 1);
    assert_int_equal(tally_now().busy, 2);
    assert_in_range(admission_idle_ns(&world.book, record_of(b), world.now) / NS_PER_MS, 499, 501);
    assert_int_equal(admission_idle_ns(&world.book, record_of(a), world.now), -1);
}

static void several_units_are_a_ghost_when_all_are_missing(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = granted(acquire(.units = 2));
    go(verify(a));
    shows(71, 72);
    shows(71);
    assert_false(is_ghost(a));
    shows_nothing();
    assert_true(is_ghost(a));
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
    shows(71, 9);
    dies(a);
    shows(-1, 9);
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

/* ---- readings that are none --------------------------------------------------------------------- */

static void an_older_reading_changes_nothing(void **state)
{
    (void)state;
    on_server(2);
    after(100);
    struct reading old = *named_reading(2, (int32_t[]){8, 9});
    old.sent_ns = old.answered_ns = world.now;
    after(10);
    shows_nothing();
    take(&old);
    assert_int_equal(tally_now().in_flight, 0);
    assert_int_equal(world.book.sight.strangers, 0);
}

/* It would shut out all that come after it. */
static void a_reading_of_the_future_changes_nothing(void **state)
{
    (void)state;
    on_server(2);
    struct reading future = *named_reading(2, (int32_t[]){8, 9});
    future.sent_ns = world.now;
    future.answered_ns = world.now + NS_PER_SEC;
    take(&future);
    assert_int_equal(tally_now().in_flight, 0);
    after(10);
    shows(9);
    assert_int_equal(tally_now().in_flight, 1);
}

static void slots_are_the_last_that_were_told(void **state)
{
    (void)state;
    on_server(4);
    after(10);
    is_now(HEALTH_BUSY);
    assert_int_equal(tally_now().slots, 4);
    world.slots = 2;
    after(10);
    shows_nothing();
    assert_int_equal(tally_now().slots, 2);
}

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

static void in_the_pause_the_last_reading_may_say_no(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    after(100);
    shows(9);
    after(50);
    struct answer answer = verify(a);
    no(answer, REASON_STRANGERS);
    assert_false(answer.undecided);
    is_state(a, GONE);
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
        cmocka_unit_test(a_new_name_is_the_work_of_the_oldest_unseen_lease),
        cmocka_unit_test(a_reading_sent_before_the_go_shows_nothing_of_it),
        cmocka_unit_test(arrivals_beyond_the_leases_are_strangers),
        cmocka_unit_test(a_lease_of_several_is_seen_when_as_many_arrived),
        cmocka_unit_test(the_next_request_of_a_holder_is_its_own),
        cmocka_unit_test(a_server_that_started_afresh_uses_its_names_again),
        cmocka_unit_test(a_count_belongs_to_known_strangers_then_to_the_seen_then_to_the_rest),
        cmocka_unit_test(time_makes_a_lease_seen),
        cmocka_unit_test(settling_stands_still_while_the_model_loads),
        cmocka_unit_test(work_first_read_after_settling_is_the_leases),
        cmocka_unit_test(a_ghost_is_who_has_no_work),
        cmocka_unit_test(several_units_are_a_ghost_when_all_are_missing),
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
        cmocka_unit_test(an_older_reading_changes_nothing),
        cmocka_unit_test(a_reading_of_the_future_changes_nothing),
        cmocka_unit_test(slots_are_the_last_that_were_told),
        cmocka_unit_test(a_full_reading_with_a_stranger_gives_the_server_a_pause),
        cmocka_unit_test(in_the_pause_the_last_reading_may_say_no),
        cmocka_unit_test(the_reading_that_begins_a_pause_may_say_go),
        cmocka_unit_test(an_abandoned_request_is_freed),
        cmocka_unit_test(a_stranger_gets_a_pause_every_four_seconds),
        cmocka_unit_test(a_slow_prober_needs_no_pause),
        cmocka_unit_test(no_pause_where_leases_explain_all),
        cmocka_unit_test(the_next_reading_is_due_sooner_where_something_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
