#include "broker/attribution.h"

#include "tests/lib/virtual.h"

static uint32_t seen(struct lease_id lease)
{
    return admission_seen_units(&world.book, record_of(lease));
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

/* The server may have looked at itself after the go: taken for a stranger's, the lease's own work
 * would be counted twice, and the lease be a ghost for as long as it works. */
static void a_reading_under_way_at_the_go_may_show_its_work(void **state)
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
    assert_int_equal(seen(a), 1);
    assert_int_equal(world.book.sight.strangers, 0);
    assert_int_equal(tally_now().busy, 1);
    shows(9, 71); /* if it was a stranger's after all, the lease's own now counts as one */
    assert_int_equal(seen(a), 1);
    assert_int_equal(world.book.sight.strangers, 1);
    assert_int_equal(tally_now().busy, 2);
}

static void a_reading_answered_before_the_go_shows_nothing_of_it(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire());
    struct reading *reading = named_reading(1, (int32_t[]){9});
    reading->sent_ns = reading->answered_ns = world.now;
    after(1);
    go(verify(a));
    after(1);
    take(reading);
    assert_int_equal(seen(a), 0);
    assert_int_equal(world.book.sight.strangers, 1);
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

/* The server names requests in the order in which they come, and has them in any slot. */
static void names_are_given_in_their_order(void **state)
{
    (void)state;
    on_server(3);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    after(20);
    shows(73, 72, 71);
    assert_int_equal(record_of(a)->task, 71);
    assert_int_equal(record_of(b)->task, 72);
    assert_int_equal(world.book.sight.strangers, 1);
}

/* a sent nothing, and what b sent was taken for its work. */
static void work_that_outlives_a_lease_was_anothers(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    after(20);
    shows(71);
    assert_int_equal(record_of(a)->task, 71);
    after(1000);
    release(a);
    struct lease_id c = granted(acquire());
    after(20);
    shows(71);
    assert_int_equal(record_of(b)->task, 71);
    assert_int_equal(world.book.sight.strangers, 0);
    go(verify(c));
}

/* A client that left while its request runs: nobody that came later owns it. */
static void abandoned_work_becomes_nobodys(void **state)
{
    (void)state;
    on_server(3);
    struct lease_id a = dispatched("a");
    after(20);
    shows(71);
    release(a);
    after(20);
    shows(71);
    struct lease_id b = dispatched("b");
    after(20);
    shows(71);
    assert_int_equal(seen(b), 0);
    assert_int_equal(tally_now().busy, 2);
}

/* Its work shows for the first time in a reading during which it was given back. */
static void work_given_back_while_it_is_first_read_is_no_strangers(void **state)
{
    (void)state;
    for (int named = 0; named <= 1; named++) {
        if (named)
            on_server(2);
        else
            on_counting_server(2);
        struct lease_id a = dispatched("a");
        after(20);
        struct reading *reading = named ? named_reading(1, (int32_t[]){71}) : blank_reading();
        reading->in_flight = 1;
        reading->sent_ns = world.now;
        after(1);
        release(a);
        after(1);
        reading->answered_ns = world.now;
        take(reading);
        assert_int_equal(world.book.sight.strangers, 0);
        assert_int_equal(tally_now().busy, 0);
    }
}

/* The next lease began where the last one ended, all while a reading was under way: the name in it may be either's.
 * Whoever gave back has no work, so what is still at work at the next reading is the other's. */
static void a_name_is_not_kept_for_who_gave_back_before_it_began(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id a = dispatched("a");
    after(20);
    shows_nothing(); /* young enough for b's go */
    struct reading *reading = named_reading(1, (int32_t[]){71});
    reading->sent_ns = world.now;
    after(1);
    release(a);
    after(1);
    struct lease_id b = dispatched("b");
    after(1);
    reading->answered_ns = world.now;
    take(reading);
    after(20);
    shows(71);
    assert_int_equal(seen(b), 1);
    assert_int_equal(world.book.sight.strangers, 0);
    assert_int_equal(tally_now().busy, 1);
}

/* ---- settling ----------------------------------------------------------------------------------- */

static void time_makes_a_lease_seen(void **state)
{
    (void)state;
    on_counting_server(1);
    struct lease_id a = dispatched("a");
    after(49);
    assert_int_equal(seen(a), 0);
    counts(0);
    assert_int_equal(seen(a), 0);
    after(2);
    counts(0);
    assert_int_equal(seen(a), 1);
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

/* What a reading showed before the lease was dispatched is others' work, however long ago. */
static void time_alone_makes_no_lease_seen(void **state)
{
    (void)state;
    on_counting_server(2);
    counts(1);
    assert_int_equal(world.book.sight.strangers, 1);
    struct lease_id a = dispatched("a");
    after(500);
    assert_int_equal(seen(a), 0);
    assert_int_equal(tally_now().busy, 2);
    assert_int_equal(acquire().verdict, ANSWER_UNREAD);
    counts(2);
    assert_int_equal(seen(a), 1);
    assert_int_equal(tally_now().busy, 2);
}

/* Who asks since no moment in particular wants to know how it is now: strangers may be gone. */
static void a_refusal_stands_on_no_old_reading(void **state)
{
    (void)state;
    on_counting_server(2);
    counts(1);
    after(PAUSE_MS + 1); /* a stranger: the server was left alone for a while */
    counts(1);
    dispatched("a");
    assert_int_equal(acquire(.at_no_moment = true).verdict, ANSWER_NO);
    after(MAX_AGE_MS + 1);
    assert_int_equal(acquire(.at_no_moment = true).verdict, ANSWER_UNREAD);
    counts(0);
    assert_int_equal(acquire(.at_no_moment = true).verdict, ANSWER_GRANTED);
    after(MAX_AGE_MS + 1);
    assert_int_equal(acquire(.at_no_moment = true).verdict,
                     ANSWER_NO); /* by leases: no reading would help */
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

/* The question left before the go, and the server took its time: what it answers may be how it stood before
 * the go, and does not settle whose work it shows. */
static void a_reading_that_was_asked_for_before_the_go_settles_nothing(void **state)
{
    (void)state;
    on_counting_server(2);
    counts(1); /* a stranger */
    ns_t asked_ns = world.now;
    after(1);
    struct lease_id a = granted(acquire());
    go(verify(a));
    after(100);
    struct reading *late = blank_reading();
    late->in_flight = 1;
    late->sent_ns = asked_ns;
    late->answered_ns = world.now;
    take(late);
    assert_int_equal(seen(a), 0);
    assert_false(is_ghost(a));
    struct tally tally = tally_now();
    assert_int_equal(tally.busy, 2);
    assert_int_equal(tally.available, 0);
    after(20);
    counts(1); /* sent long enough after it, it does */
    assert_int_equal(seen(a), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_name_is_the_work_of_the_oldest_unseen_lease),
        cmocka_unit_test(a_reading_under_way_at_the_go_may_show_its_work),
        cmocka_unit_test(a_reading_answered_before_the_go_shows_nothing_of_it),
        cmocka_unit_test(arrivals_beyond_the_leases_are_strangers),
        cmocka_unit_test(a_lease_of_several_is_seen_when_as_many_arrived),
        cmocka_unit_test(the_next_request_of_a_holder_is_its_own),
        cmocka_unit_test(a_server_that_started_afresh_uses_its_names_again),
        cmocka_unit_test(a_count_belongs_to_known_strangers_then_to_the_seen_then_to_the_rest),
        cmocka_unit_test(names_are_given_in_their_order),
        cmocka_unit_test(work_that_outlives_a_lease_was_anothers),
        cmocka_unit_test(abandoned_work_becomes_nobodys),
        cmocka_unit_test(work_given_back_while_it_is_first_read_is_no_strangers),
        cmocka_unit_test(a_name_is_not_kept_for_who_gave_back_before_it_began),
        cmocka_unit_test(time_makes_a_lease_seen),
        cmocka_unit_test(time_alone_makes_no_lease_seen),
        cmocka_unit_test(a_refusal_stands_on_no_old_reading),
        cmocka_unit_test(settling_stands_still_while_the_model_loads),
        cmocka_unit_test(work_first_read_after_settling_is_the_leases),
        cmocka_unit_test(a_ghost_is_who_has_no_work),
        cmocka_unit_test(several_units_are_a_ghost_when_all_are_missing),
        cmocka_unit_test(an_older_reading_changes_nothing),
        cmocka_unit_test(a_reading_of_the_future_changes_nothing),
        cmocka_unit_test(slots_are_the_last_that_were_told),
        cmocka_unit_test(a_reading_that_was_asked_for_before_the_go_settles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
