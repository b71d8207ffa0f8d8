#include "broker/admission.h"
#include "broker/attribution.h"

#include "tests/lib/virtual.h"

/* ---- both directions: no false no --------------------------------------------------------------- */

static void burst(int32_t slots, bool named)
{
    if (named)
        on_server(slots);
    else
        on_counting_server(slots);
    struct lease_id leases[16];
    for (int32_t i = 0; i < slots; i++)
        leases[i] = granted(acquire());
    for (int32_t i = 0; i < slots; i++)
        go(verify(leases[i]));
    no(acquire(), REASON_LEASES);
    after(5);
    no(acquire(), REASON_LEASES);
    assert_int_equal(tally_now().busy, slots);
    assert_int_equal(tally_now().unseen, slots);
    assert_int_equal(tally_now().available, 0);
}

static void a_burst_on_an_idle_server_goes(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 4, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        burst(sizes[i], true);
        burst(sizes[i], false);
    }
}

/* Half of the burst shows up in a reading in the middle of it: counted once, not twice. */
static void work_that_arrives_is_counted_once(void **state)
{
    (void)state;
    on_server(4);
    struct lease_id lease[4];
    for (int i = 0; i < 4; i++)
        lease[i] = granted(acquire());
    go(verify(lease[0]));
    go(verify(lease[1]));
    after(30);
    unread(verify(lease[2]));
    shows(71, 72);
    go(verify(lease[2]));
    after(30);
    unread(verify(lease[3]));
    shows(71, 72); /* the third is on its way */
    assert_int_equal(tally_now().busy, 3);
    go(verify(lease[3]));
    assert_int_equal(tally_now().busy, 4);
}

/* ---- and no false go ---------------------------------------------------------------------------- */

/* A server deep in somebody's prefill shows a new request after seconds only. */
static void what_is_on_its_way_counts_while_the_server_is_blind(void **state)
{
    (void)state;
    on_server(2);
    go(verify(granted(acquire(.label = "first"))));
    after(30);
    struct lease_id second = granted(acquire(.label = "second"));
    unread(verify(second));
    shows_nothing();
    go(verify(second));
    for (int i = 0; i < 40; i++) {
        after(100);
        shows_nothing();
        no(acquire(), REASON_LEASES);
    }
    shows(71, 72);
    no(acquire(), REASON_LEASES);
}

/* The same with a stranger at work and one lease that does not show: I + unseen = 2. */
static void a_stranger_and_what_is_on_its_way_fill_two_slots(void **state)
{
    (void)state;
    on_server(2);
    shows(9);
    struct lease_id lease = granted(acquire());
    go(verify(lease));
    for (int i = 0; i < 40; i++) {
        after(100);
        shows(9);
        no(acquire(), REASON_STRANGERS);
        assert_int_equal(tally_now().busy, 2);
        assert_int_equal(tally_now().strangers, 1);
    }
    shows(9, 71);
    assert_int_equal(tally_now().unseen, 0);
    no(acquire(), REASON_STRANGERS);
    release(lease);
    granted(acquire());
}

static void a_stranger_says_no(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id lease = granted(acquire());
    after(100);
    unread(verify(lease));
    shows(9);
    struct answer answer = verify(lease);
    no(answer, REASON_STRANGERS);
    assert_int_equal(answer.strangers, 1);
    assert_int_equal(answer.busy, 1);
    assert_int_equal(answer.slots, 1);
    assert_int_equal(answer.available, 0);
    assert_false(answer.undecided);
    is_end(lease, REFUSED);
    assert_int_equal(world.book.sight.strangers, 1);
    no(acquire(), REASON_STRANGERS);
}

/* ---- leases alone ------------------------------------------------------------------------------- */

static void leases_alone_refuse_without_a_reading(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id both = granted(acquire(.units = 2)), one;
    go(verify(both));
    after(10000);
    no(acquire(), REASON_LEASES);
    assert_false(world.effects.probe);
    one = granted(acquire(.flags = REQUEST_RUNNING)); /* counted even above */
    assert_int_equal(tally_now().dispatched, 3);
    release(both);
    (void)one;
}

static void a_static_provider_needs_no_reading(void **state)
{
    (void)state;
    on_static(2);
    struct lease_id a = granted(acquire()), b = granted(acquire());
    assert_int_equal(tally_now().available, 0);
    go(verify(a));
    go(verify(b));
    assert_int_equal(tally_now().in_flight, -1);
    no(acquire(), REASON_LEASES);
    release(a);
    assert_int_equal(tally_now().available, 1);
}

/* ---- health ------------------------------------------------------------------------------------- */

static void a_server_that_sleeps_or_has_not_loaded_goes(void **state)
{
    (void)state;
    on_server(2);
    after(100);
    struct reading *reading = blank_reading();
    reading->health = HEALTH_SLEEPING;
    take(reading);
    go_since(verify(granted(acquire())), REASON_WAKES);
    after(100);
    reading = blank_reading();
    reading->health = HEALTH_UNLOADED;
    take(reading);
    go_since(verify(granted(acquire())), REASON_LOADS);
}

static void a_server_that_takes_nothing_is_no(void **state)
{
    (void)state;
    static const enum health bad[] = {HEALTH_UNKNOWN, HEALTH_BUSY, HEALTH_LOADING,
                                      HEALTH_UNAUTHORIZED, HEALTH_DOWN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        on_server(4);
        struct lease_id lease = granted(acquire());
        after(100);
        unread(verify(lease));
        is_now(bad[i]);
        struct answer answer = verify(lease);
        no(answer, REASON_HEALTH);
        assert_int_equal(answer.health, bad[i]);
        no(acquire(), REASON_HEALTH);
    }
}

/* What a new acquire would be granted now: nothing, where that is known. */
static void available_is_null_where_unknown_and_0_where_nothing_is_to_be_had(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    settings.slots = 4;
    begin_world(&settings);
    assert_int_equal(tally_now().available, -1);
    is_now(HEALTH_UNKNOWN);
    assert_int_equal(tally_now().available, -1);
    after(1);
    is_now(HEALTH_DOWN);
    assert_int_equal(tally_now().available, 0);
    after(1);
    is_now(HEALTH_BUSY);
    assert_int_equal(tally_now().available, 0);
    after(1);
    is_now(HEALTH_OK); /* it cannot tell more: leases alone decide */
    assert_int_equal(tally_now().available, 4);
    assert_int_equal(tally_now().in_flight, -1);
    after(READING_TRUST_MS + 1);
    assert_int_equal(tally_now().available, -1);
}

/* ---- how old a reading may be ------------------------------------------------------------------- */

static void twenty_ms_are_fresh(void **state)
{
    (void)state;
    on_server(16);
    struct lease_id lease = granted(acquire());
    ns_t answered = world.book.sight.reading.answered_ns;
    assert_true(admission_is_fresh(&world.book, answered + 20 * NS_PER_MS, NS_NEVER));
    assert_false(admission_is_fresh(&world.book, answered + 20 * NS_PER_MS + 1, NS_NEVER));
    after(21);
    unread(verify(lease));
    assert_true(world.effects.probe);
    is_state(lease, HELD);
}

/* One that was sent after the verify came in is fresh however long the server took, but not for
 * ever: whoever then sleeps over it asks anew. */
static void a_reading_made_for_the_question_is_fresh(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id lease = granted(acquire());
    after(1000);
    ns_t asked = world.now;
    unread(verify(lease, .asked_ns = asked));
    struct reading *reading = named_reading(0, NULL);
    reading->sent_ns = asked + 1;
    after(400);
    reading->answered_ns = world.now;
    take(reading);
    after(100); /* the book was locked meanwhile */
    go(verify(lease, .asked_ns = asked));

    lease = granted(acquire());
    unread(verify(lease, .asked_ns = world.now + 1));
    asked = world.now;
    shows(71);
    after(PROBE_MS + 1);
    unread(verify(lease, .asked_ns = asked));
}

static void an_old_reading_never_says_go(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id lease = granted(acquire());
    ns_t asked = world.now + 1;
    after(30);
    unread(verify(lease, .asked_ns = asked));
    shows(9);
    after(READING_TRUST_MS + 1); /* the caller was stopped */
    unread(verify(lease, .asked_ns = asked, .ttl_ms = 0));
}

/* ---- released since the reading ----------------------------------------------------------------- */

static void a_release_takes_its_work_out_of_the_reading(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id lease = dispatched("a");
    after(100);
    shows(71);
    after(1);
    release(lease);
    assert_int_equal(tally_now().busy, 0);
    go(verify(granted(acquire())));
}

static void so_it_does_where_only_a_count_is_told(void **state)
{
    (void)state;
    on_counting_server(1);
    struct lease_id lease = dispatched("a");
    after(20);
    counts(1);
    release(lease);
    go(verify(granted(acquire())));
}

/* Past settle time a lease counts as seen, so it takes its units out too. */
static void so_it_does_where_time_made_it_seen(void **state)
{
    (void)state;
    on_counting_server(1);
    struct lease_id lease = dispatched("a");
    after(300);
    counts(1);
    assert_int_equal(tally_now().strangers, 0);
    release(lease);
    assert_int_equal(tally_now().busy, 0);
    go(verify(granted(acquire())));
}

/* Two at work, a stranger waits in the server: what is given back is that stranger's at once. */
static void what_waits_in_the_server_takes_what_was_given_back(void **state)
{
    (void)state;
    for (int32_t queued = -1; queued <= 1; queued++) {
        on_server(2);
        struct lease_id a = dispatched("a"), b = dispatched("b");
        after(20);
        struct reading *reading = named_reading(2, (int32_t[]){71, 72});
        reading->queued = queued;
        reading->sent_ns = 0;
        take(reading);
        release(a);
        assert_int_equal(tally_now().busy, queued == 1 ? 2 : 1);
        release(b);
        assert_int_equal(tally_now().busy, queued == 1 ? 1 : 0);
    }
}

/* The own request that waits there is counted as unseen, and once. */
static void an_unseen_lease_that_waits_in_the_server_counts_once(void **state)
{
    (void)state;
    on_server(3);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    after(20);
    struct reading *reading = named_reading(1, (int32_t[]){71});
    reading->queued = 1;
    reading->sent_ns = 0;
    take(reading);
    assert_int_equal(tally_now().busy, 2);
    release(a);
    assert_int_equal(tally_now().busy, 1);
    go(verify(granted(acquire())));
    release(b);
}

/* The reading was on its way when the lease was given back: its work may or may not be in it. */
static void a_release_while_the_reading_is_made_is_told_apart(void **state)
{
    (void)state;
    for (int named = 0; named <= 1; named++) {
        for (int32_t shown = 0; shown <= 1; shown++) {
            if (named)
                on_server(2);
            else
                on_counting_server(2);
            struct lease_id a = dispatched("a"), b = dispatched("b");
            after(30);
            if (named)
                shows(71, 72);
            else
                counts(2);
            after(30);
            struct reading *reading =
                named ? named_reading(2, (int32_t[]){shown ? 71 : -1, 72}) : blank_reading();
            reading->in_flight = 1 + shown;
            reading->sent_ns = world.now;
            after(1);
            release(a);
            after(1);
            reading->answered_ns = world.now;
            take(reading);
            assert_int_equal(tally_now().in_flight, 1);
            assert_int_equal(tally_now().strangers, 0);
            assert_int_equal(world.book.sight.strangers, 0);
            go(verify(granted(acquire())));
            (void)b;
        }
    }
}

/* Ghosts: I = 1 of two seen leases. Whose work it is a count does not tell: the one that is
 * released may be the idle one, so nothing is taken out. */
static void ghosts_make_a_release_doubtful(void **state)
{
    (void)state;
    on_counting_server(2);
    struct lease_id a = dispatched("a"), b = dispatched("b");
    after(20);
    counts(2);
    after(20);
    counts(1);
    assert_int_equal(tally_now().ghosts, 1);
    release(b);
    assert_int_equal(tally_now().in_flight, 1);
    assert_int_equal(tally_now().busy, 1);
    release(a);
    /* now one of the two that were released did show */
    assert_int_equal(tally_now().in_flight, 0);
}

/* With names it can be told: the stranger's work is not taken for the released lease's. */
static void names_tell_whose_work_was_there(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    after(30);
    shows(71);
    after(30);
    shows(71, 9); /* a stranger */
    after(30);
    shows(-1, 9); /* a's work is done, its release is on its way */
    assert_int_equal(tally_now().strangers, 0);
    release(a);
    assert_int_equal(tally_now().in_flight, 1);
    assert_int_equal(tally_now().strangers, 1);
    assert_int_equal(tally_now().busy, 1);
}

/* Whoever releases somebody else's lease does not know that its work is over. */
static void a_forced_release_says_nothing_of_the_work(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id lease = dispatched("a");
    after(30);
    shows(71);
    release(lease, .flags = REQUEST_FORCE);
    is_end(lease, FORCED);
    assert_int_equal(tally_now().busy, 1);
    no(acquire(), REASON_STRANGERS);
}

/* ---- the engine's own queue --------------------------------------------------------------------- */

static void a_queue_that_means_full_is_believed(void **state)
{
    (void)state;
    on_counting_server(8);
    after(100);
    struct reading *reading = blank_reading();
    reading->in_flight = 3;
    reading->queued = 1;
    take(reading);
    assert_int_equal(tally_now().busy, 3);
    after(1);
    reading = blank_reading();
    reading->in_flight = 3;
    reading->queued = 1;
    reading->queue_means_full = 1;
    take(reading);
    assert_int_equal(tally_now().busy, 8);
    assert_int_equal(tally_now().available, 0);
}

/* ---- signals that tell little ------------------------------------------------------------------- */

static void inferred_work_is_not_counted(void **state)
{
    (void)state;
    on_counting_server(2);
    after(1);
    struct reading *reading = blank_reading();
    reading->signal = SIGNAL_INFERRED;
    reading->in_flight = 2;
    take(reading);
    assert_int_equal(tally_now().in_flight, -1);
    assert_int_equal(tally_now().busy, 0);
    go(verify(granted(acquire())));
}

/* ---- one slot by its index ---------------------------------------------------------------------- */

static void the_flag_of_the_slot_decides_for_an_index(void **state)
{
    (void)state;
    on_server(4);
    after(1);
    shows(-1, 9);
    no(acquire(.index = slot(1)), REASON_SLOT);
    struct lease_id lease = granted(acquire(.index = slot(2)));
    no(acquire(.index = slot(2)), REASON_SLOT);
    go(verify(lease));
    no(acquire(.index = slot(2)), REASON_SLOT);
    after(30);
    shows(-1, 9, 71);
    release(lease);
    go(verify(granted(acquire(.index = slot(2))))); /* given back since */
    no(acquire(.index = slot(1)), REASON_SLOT);
}

/* The same where the slots say busy or not and name nothing. */
static void an_index_is_given_back_without_names_too(void **state)
{
    (void)state;
    on_counting_server(2);
    struct lease_id lease = granted(acquire(.index = slot(1)));
    go(verify(lease));
    after(20);
    struct reading *reading = blank_reading();
    reading->in_flight = 1;
    reading->slot_count = 2;
    reading->slots[0].task = -1;
    reading->slots[1] = (struct reading_slot){-1, 1};
    take(reading);
    release(lease);
    granted(acquire(.index = slot(1)));
}

/* Its work runs on under the new lease, which names no slot. */
static void a_replaced_lease_leaves_its_slot_taken(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id lease = granted(acquire(.index = slot(0)));
    go(verify(lease));
    after(30);
    shows(71);
    granted(acquire(.flags = REQUEST_RUNNING, .former = lease));
    no(acquire(.index = slot(0)), REASON_SLOT);
    granted(acquire(.index = slot(1)));
}

/* A reading is of the server that was asked: what went by that name before says nothing. */
static void another_server_s_reading_is_none(void **state)
{
    (void)state;
    on_server(2);
    world.book.sight.reading.source = 7;
    assert_true(admission_trusts(&world.book, world.now));
    world.book.settings.source = 7;
    assert_true(admission_trusts(&world.book, world.now));
    struct lease_id mine = granted(acquire());
    world.book.settings.source = 8;
    assert_false(admission_trusts(&world.book, world.now));
    assert_false(admission_is_fresh(&world.book, world.now, 1));
    unread(verify(mine));
    world.book.sight.pause_until_ns = world.now + NS_PER_SEC; /* nor does that one's pause */
    assert_int_equal(attribution_not_before(&world.book), 0);
    unread(verify(mine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_server_s_reading_is_none),
        cmocka_unit_test(a_burst_on_an_idle_server_goes),
        cmocka_unit_test(work_that_arrives_is_counted_once),
        cmocka_unit_test(what_is_on_its_way_counts_while_the_server_is_blind),
        cmocka_unit_test(a_stranger_and_what_is_on_its_way_fill_two_slots),
        cmocka_unit_test(a_stranger_says_no),
        cmocka_unit_test(leases_alone_refuse_without_a_reading),
        cmocka_unit_test(a_static_provider_needs_no_reading),
        cmocka_unit_test(a_server_that_sleeps_or_has_not_loaded_goes),
        cmocka_unit_test(a_server_that_takes_nothing_is_no),
        cmocka_unit_test(available_is_null_where_unknown_and_0_where_nothing_is_to_be_had),
        cmocka_unit_test(twenty_ms_are_fresh),
        cmocka_unit_test(a_reading_made_for_the_question_is_fresh),
        cmocka_unit_test(an_old_reading_never_says_go),
        cmocka_unit_test(a_release_takes_its_work_out_of_the_reading),
        cmocka_unit_test(so_it_does_where_only_a_count_is_told),
        cmocka_unit_test(so_it_does_where_time_made_it_seen),
        cmocka_unit_test(what_waits_in_the_server_takes_what_was_given_back),
        cmocka_unit_test(an_unseen_lease_that_waits_in_the_server_counts_once),
        cmocka_unit_test(a_release_while_the_reading_is_made_is_told_apart),
        cmocka_unit_test(ghosts_make_a_release_doubtful),
        cmocka_unit_test(names_tell_whose_work_was_there),
        cmocka_unit_test(a_forced_release_says_nothing_of_the_work),
        cmocka_unit_test(a_queue_that_means_full_is_believed),
        cmocka_unit_test(inferred_work_is_not_counted),
        cmocka_unit_test(the_flag_of_the_slot_decides_for_an_index),
        cmocka_unit_test(an_index_is_given_back_without_names_too),
        cmocka_unit_test(a_replaced_lease_leaves_its_slot_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
