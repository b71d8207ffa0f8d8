#include "tests/lib/virtual.h"

/* ---- acquire ------------------------------------------------------------------------------------- */

static void what_can_never_be_had_is_refused_at_once(void **state)
{
    (void)state;
    on_server(2);
    no(acquire(.units = 3, .wait_ms = 60000), REASON_UNITS);
    no(acquire(.units = UINT32_MAX), REASON_UNITS);
    no(acquire(.units = 65537), REASON_UNITS); /* 1 in 16 bits */
    no(acquire(.index = slot(2), .wait_ms = 60000), REASON_SLOT_RANGE);
    no(acquire(.index = slot(70000)), REASON_SLOT_RANGE);
    no(acquire(.index = -5), REASON_SLOT_RANGE);
    no(acquire(.units = 2, .index = slot(0)), REASON_UNITS);
    no(acquire(.ttl_ms = 999), REASON_TTL);
    no(acquire(.ttl_ms = 86400001), REASON_TTL);
    assert_int_equal(world.book.live_count, 0);
    struct request none = {.verb = VERB_ACQUIRE, .id = {1, 1}, .units = 0, .slot = -1};
    step_world(&(struct event){.kind = EVENT_REQUEST, .request = &none});
    no(world.effects.reply, REASON_UNITS);
    struct request nothing = {.verb = VERB_NONE};
    step_world(&(struct event){.kind = EVENT_REQUEST, .request = &nothing});
    assert_true(world.effects.has_reply);
}

static void where_slots_were_never_told_a_reading_comes_first(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    world.slots = 4;
    begin_world(&settings);
    unread(acquire(.units = 4));
    assert_true(world.effects.probe);
    shows_nothing();
    go(verify(granted(acquire(.units = 4))));

    begin_world(&settings);
    unread(acquire());
    is_now(HEALTH_DOWN);
    no(acquire(), REASON_HEALTH);

    begin_world(&settings);
    unread(acquire());
    world.slots = -1; /* it answers and does not say how many */
    counts(0);
    granted(acquire());
    no(acquire(), REASON_AHEAD);

    settings.slots = 3; /* slots= stands in */
    begin_world(&settings);
    granted(acquire(.units = 3));
}

/* Where nobody reads in the background, whoever wants in finds out what has ended since. */
static void a_refusal_that_rests_on_an_old_reading_asks_for_another(void **state)
{
    (void)state;
    on_server(1);
    shows(71); /* a stranger */
    no(acquire(), REASON_STRANGERS);
    after(PROBE_ACTIVE_MS);
    unread(acquire());
    shows(71);
    no(acquire(), REASON_STRANGERS);
    after(PAUSE_MS);
    shows_nothing();
    struct lease_id a = granted(acquire());
    go(verify(a));
    shows(72);
    after(PROBE_ACTIVE_MS);
    no(acquire(), REASON_LEASES); /* a living lease is reason enough */
    dies(a);
    after(PROBE_ACTIVE_MS);
    unread(acquire());
    shows_nothing();
    granted(acquire());
}

static void so_does_the_head_of_the_queue(void **state)
{
    (void)state;
    on_server(1);
    shows(71);
    struct answer first = acquire(.wait_ms = 60000);
    uint64_t first_request = last_request();
    assert_int_equal(first.verdict, ANSWER_WAIT);
    assert_int_equal(acquire(.wait_ms = 60000).verdict, ANSWER_WAIT);
    uint64_t second_request = last_request();
    after(PROBE_ACTIVE_MS);
    assert_int_equal(acquire(.same = second_request).verdict, ANSWER_WAIT);
    unread(acquire(.same = first_request));
    shows_nothing();
    granted(acquire(.same = first_request));
}

static void a_full_book_refuses(void **state)
{
    (void)state;
    on_static(1);
    dispatched("a");
    for (int i = 1; i < BOOK_LEASES_MIN; i++)
        granted(acquire(.flags = REQUEST_RUNNING));
    no(acquire(), REASON_BOOK_FULL);
    no(acquire(.wait_ms = 60000), REASON_BOOK_FULL);
}

/* ---- work that runs already ----------------------------------------------------------------------- */

static void running_work_counts_above_the_slots_and_takes_over_the_orphan(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    uint64_t token = record_of(a)->token;
    shows(71);
    after(30001); /* the network was gone */
    tick();
    is_state(a, ORPHAN);
    struct answer answer = acquire(.flags = REQUEST_RUNNING, .former = a);
    struct lease_id again = granted(answer);
    assert_true(answer.token > token);
    is_state(again, DISPATCHED);
    is_state(a, GONE);
    is_end(a, EXPIRED); /* expiry is final */
    assert_int_equal(record_of(again)->task, 71);
    shows(71);
    assert_int_equal(tally_now().busy, 1);
    assert_int_equal(tally_now().strangers, 0);
    assert_int_equal(tally_now().orphans, 0);
    gone(renew(a), REASON_ENDED);
    granted(acquire(.flags = REQUEST_RUNNING));
    assert_int_equal(tally_now().dispatched, 2);
    no(acquire(), REASON_LEASES);
}

/* After a restart the owner knows neither slots nor leases; whoever works says so. */
static void running_work_needs_no_reading_and_no_room(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    world.slots = 64;
    begin_world(&settings);
    for (int i = 0; i < 60; i++)
        granted(acquire(.flags = REQUEST_RUNNING));
    granted(acquire(.flags = REQUEST_RUNNING, .units = 3));
    granted(acquire(.flags = REQUEST_RUNNING, .index = slot(63)));
    no(acquire(.flags = REQUEST_RUNNING, .units = BOOK_SLOTS_MAX + 1), REASON_UNITS);
    no(acquire(.flags = REQUEST_RUNNING, .index = slot(BOOK_SLOTS_MAX)), REASON_SLOT_RANGE);
    no(acquire(.flags = REQUEST_RUNNING, .units = 2, .index = slot(1)), REASON_UNITS);
    counts(64);
    assert_int_equal(tally_now().strangers, 0);
    assert_int_equal(tally_now().busy, 64);
}

/* ---- verify --------------------------------------------------------------------------------------- */

static void a_no_ends_the_lease(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    after(100);
    shows(9);
    struct answer answer = verify(a);
    no(answer, REASON_STRANGERS);
    is_end(a, REFUSED);
    assert_int_equal(tally_now().held, 0);
    gone(renew(a), REASON_ENDED);
    gone(verify(a), REASON_ENDED);
}

/* The answer tells how things are without the lease that it ended. */
static void a_no_says_what_is_available_after_it(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire(.units = 2));
    after(100);
    shows(9);
    struct answer answer = verify(a);
    no(answer, REASON_STRANGERS);
    assert_int_equal(answer.available, 1);
}

/* A dead id cannot be told from one that never was. */
static void an_unknown_lease_is_gone(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id unknown = {5, 5};
    gone(verify(unknown), REASON_UNKNOWN_ID);
    gone(renew(unknown), REASON_UNKNOWN_ID);
    gone(release(unknown), REASON_UNKNOWN_ID);
}

static void a_waiter_that_is_not_held_yet_cannot_go(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct lease_id b = waits(acquire(.wait_ms = 60000));
    waits(verify(b));
    is_state(b, WAITING);
    release(a);
    go(verify(b));
}

/* A no while a waiter stands in line before it. */
static void a_held_lease_with_a_later_place_waits_for_an_earlier_one(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire()), b = granted(acquire());
    after(100);
    shows(9); /* room for one of the two */
    struct answer answer = verify(b, .wait_ms = 60000);
    waits(answer);
    assert_int_equal(answer.ahead, 1);
    assert_int_equal(answer.strangers, 1);
    go(verify(a));
    is_state(b, WAITING);
}

/* ---- renew ----------------------------------------------------------------------------------------- */

static void each_renewal_gives_one_time_to_live_more(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire(.ttl_ms = 5000));
    after(3000);
    struct answer answer = renew(a);
    granted(answer);
    assert_int_equal(answer.end_ns, world.now + 5000 * NS_PER_MS);
    answer = renew(a, .ttl_ms = 1000); /* never shortens what was promised */
    assert_int_equal(answer.end_ns, world.now - 1 + 5000 * NS_PER_MS);
    no(renew(a, .ttl_ms = 10), REASON_TTL);
    is_state(a, HELD);
}

static void a_renewal_never_revives(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = granted(acquire()), b = dispatched("b");
    shows(71);
    after(30001);
    gone(renew(a), REASON_ENDED);
    gone(renew(b), REASON_ENDED);
    is_state(a, GONE);
    is_state(b, ORPHAN); /* its work is known, the lease is over */
    gone(verify(b), REASON_ENDED);
    gone(renew(b), REASON_ENDED);
    release(b);
    gone(renew(b), REASON_ENDED);
}

static void a_ghost_is_not_renewed_for_ever(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    shows_nothing();
    idle_for(a, 118);
    granted(renew(a));
    idle_for(a, 4);
    struct answer answer = renew(a);
    no(answer, REASON_GHOST);
    assert_int_equal(world.notes[NOTE_RENEWAL_REFUSED] > 0, 1);
    is_state(a, DISPATCHED); /* until its time is over */
    shows(72);
    granted(renew(a)); /* it worked again in time */
}

static void one_that_may_idle_is(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire(.flags = REQUEST_MAY_IDLE));
    go(verify(a));
    shows(71);
    shows_nothing();
    idle_for(a, 600);
    granted(renew(a));

    on_server(1);
    a = granted(acquire());
    after(100);
    shows(9);
    waits(verify(a, .flags = REQUEST_MAY_IDLE, .wait_ms = 5000)); /* said while it waits */
    after(2000);
    shows_nothing();
    is_state(a, DISPATCHED);
    idle_for(a, 600);
    granted(renew(a));
}

static void a_ghost_is_renewed_while_the_model_loads(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    shows_nothing();
    for (int s = 0; s < 600; s += 2) {
        after(2000);
        granted(renew(a));
        is_now(HEALTH_LOADING);
    }
    granted(renew(a));
}

/* Nobody has read since: what is not known cannot be held against it. */
static void a_ghost_by_one_old_reading_is_renewed(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    shows_nothing();
    for (int s = 0; s < 600; s += 10) {
        after(10000);
        granted(renew(a));
    }
    assert_true(world.effects.probe); /* but somebody should */
    shows_nothing();
    no(renew(a), REASON_GHOST);
}

/* ---- release --------------------------------------------------------------------------------------- */

static void a_late_release_leaves_the_orphan(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    dies(a);
    granted(release(a));
    is_state(a, ORPHAN);
    granted(release(a, .flags = REQUEST_FORCE));
    is_state(a, GONE);
}

/* ---- duplicates ------------------------------------------------------------------------------------ */

static enum verdict release_as(struct lease_id lease, uint32_t pid, uint32_t flags)
{
    struct request request = {.verb = VERB_RELEASE,
                              .flags = flags,
                              .id = {77, ++world.requests},
                              .lease = lease,
                              .hint = UINT32_MAX,
                              .holder = {.pid = pid, .local = 1}};
    step_world(&(struct event){.kind = EVENT_REQUEST, .request = &request});
    return world.effects.reply.verdict;
}

static void another_process_s_lease_is_released_by_force_only(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct record *record = book_find(&world.book, a, UINT32_MAX);
    record->holder.local = 1;
    record->holder.pid = 42;
    assert_int_equal(release_as(a, 43, 0), ANSWER_NO);
    assert_int_equal(world.effects.reply.reason, REASON_NOT_YOURS);
    assert_int_equal(tally_now().dispatched, 1);
    assert_int_equal(release_as(a, 43, REQUEST_FORCE), ANSWER_GRANTED);
    assert_int_equal(record->end, END_FORCED);
    assert_int_equal(world.notes[NOTE_FORCED], 1);

    struct lease_id b = dispatched("b");
    record = book_find(&world.book, b, UINT32_MAX);
    record->holder.local = 1;
    record->holder.pid = 42;
    record->flags |= RECORD_NO_HOLDER; /* nobody's: whoever knows its id */
    assert_int_equal(release_as(b, 43, 0), ANSWER_GRANTED);
}

/* Strangers come and go: what a reading said of them a second ago refuses nobody. */
static void an_acquire_that_strangers_refuse_wants_a_fresh_reading(void **state)
{
    (void)state;
    on_server(2);
    after(5000); /* it had its pause */
    shows(9);
    no(acquire(.units = 2), REASON_STRANGERS); /* just read */
    after(300);
    unread(acquire(.units = 2));
    uint64_t id = last_request();
    assert_true(world.effects.probe);
    shows_nothing();
    go(verify(granted(acquire(.units = 2, .same = id))));
    after(300);
    no(acquire(), REASON_LEASES); /* where leases do it, none is awaited */
}

/* A page of HTML each time: asking oftener than in the background would learn nothing. */
static void an_acquire_that_health_refuses_asks_no_oftener_than_the_background(void **state)
{
    (void)state;
    on_server(1);
    after(300);
    is_now(HEALTH_UNKNOWN);
    after(PROBE_ACTIVE_MS - 1);
    no(acquire(), REASON_HEALTH);
    after(2);
    unread(acquire());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_never_be_had_is_refused_at_once),
        cmocka_unit_test(where_slots_were_never_told_a_reading_comes_first),
        cmocka_unit_test(a_refusal_that_rests_on_an_old_reading_asks_for_another),
        cmocka_unit_test(so_does_the_head_of_the_queue),
        cmocka_unit_test(a_full_book_refuses),
        cmocka_unit_test(running_work_counts_above_the_slots_and_takes_over_the_orphan),
        cmocka_unit_test(running_work_needs_no_reading_and_no_room),
        cmocka_unit_test(a_no_ends_the_lease),
        cmocka_unit_test(a_no_says_what_is_available_after_it),
        cmocka_unit_test(an_unknown_lease_is_gone),
        cmocka_unit_test(a_waiter_that_is_not_held_yet_cannot_go),
        cmocka_unit_test(a_held_lease_with_a_later_place_waits_for_an_earlier_one),
        cmocka_unit_test(each_renewal_gives_one_time_to_live_more),
        cmocka_unit_test(a_renewal_never_revives),
        cmocka_unit_test(a_ghost_is_not_renewed_for_ever),
        cmocka_unit_test(one_that_may_idle_is),
        cmocka_unit_test(a_ghost_is_renewed_while_the_model_loads),
        cmocka_unit_test(a_ghost_by_one_old_reading_is_renewed),
        cmocka_unit_test(a_late_release_leaves_the_orphan),
        cmocka_unit_test(another_process_s_lease_is_released_by_force_only),
        cmocka_unit_test(an_acquire_that_strangers_refuse_wants_a_fresh_reading),
        cmocka_unit_test(an_acquire_that_health_refuses_asks_no_oftener_than_the_background),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
