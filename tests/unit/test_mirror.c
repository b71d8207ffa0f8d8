/* What an owner says, in states and in answers, to the copy of its book; and whose a book is. */
#include "tests/unit/heard_words.h"

/* ---- a state --------------------------------------------------------------------------------- */

static void a_copy_shows_what_the_owner_says(void **state)
{
    (void)state;
    begin_copy(4);
    reads(2, 1);
    next_state.waiting = 1;
    says(run_by("m3", THEIRS(1)), held_by("m4", THEIRS(2)));
    const struct record *record = record_of(THEIRS(1));
    assert_int_equal(record->state, RECORD_DISPATCHED);
    assert_string_equal(record->holder.host, "m3");
    assert_int_equal(record->token, (UINT64_C(500) << TOKEN_BITS) + 1);
    assert_int_equal(record->place, 1);
    assert_true(is_named(THEIRS(1)));
    assert_int_equal(left_ms(THEIRS(1)), 30000);
    assert_int_equal(world.book.token_max, (UINT64_C(500) << TOKEN_BITS) + 2);
    assert_int_equal(world.book.head.epoch, 500); /* though the file began with 1000 */
    assert_int_equal(mirror_epoch(&world.book), 500);
    struct tally tally = tally_now();
    assert_int_equal(tally.busy, 2);
    assert_int_equal(tally.strangers, 1);
    assert_int_equal(tally.held, 1);
    assert_int_equal(tally.waiting, 1);
    assert_int_equal(tally.available, 0);
    after(READING_TRUST_MS + 1);
    assert_int_equal(tally_now().waiting, 0); /* who waits at a silent owner is in nobody's way */
}

static void a_newer_state_replaces_an_older_one(void **state)
{
    (void)state;
    begin_copy(4);
    says(run_by("m3", THEIRS(1)), held_by("m4", THEIRS(2)));
    says(run_by("m4", THEIRS(2)));
    is_state(THEIRS(1), GONE);
    is_end(THEIRS(1), RELEASED);
    is_state(THEIRS(2), DISPATCHED);
    next_state.version -= 2;
    says(held_by("m4", THEIRS(3))); /* late: a version that was there */
    is_state(THEIRS(3), FREE);
    next_state.epoch = 499;
    next_state.version = 1000;
    says(held_by("m4", THEIRS(3))); /* of an older epoch */
    is_state(THEIRS(3), FREE);
    next_state.epoch = 501;
    next_state.version = 0;
    says(held_by("m4", THEIRS(3))); /* versions begin anew */
    is_state(THEIRS(3), HELD);
    is_state(THEIRS(2), GONE);
    assert_int_equal(world.book.head.epoch, 501);
}

static void nothing_new_is_not_written_again(void **state)
{
    (void)state;
    begin_copy(4);
    says(run_by("m3", THEIRS(1)), held_by("m4", THEIRS(2)));
    after(7);
    struct heard_lease same[] = {run_by("m3", THEIRS(1)), held_by("m4", THEIRS(2))};
    same[0].left_ms -= 20;
    same[1].left_ms -= 20;
    struct effects effects;
    next_state.version++;
    next_state.leases = same;
    broker_step(&world.broker,
                &(struct event){.kind = EVENT_STATE, .now = ++world.now, .state = &next_state},
                &effects);
    assert_int_equal(world.book.dirty_count, 2); /* the version in which they were named */
    assert_int_equal(effects.note_count, 0);
    book_clean(&world.book);
}

static void leases_of_others_live_on_where_the_owner_says_so(void **state)
{
    (void)state;
    begin_copy(4);
    says(run_by("m3", THEIRS(1)));
    after(31000);
    tick();
    is_state(THEIRS(1), ORPHAN); /* by the clock, and its work may run */
    says(run_by("m3", THEIRS(1)));
    is_state(THEIRS(1), DISPATCHED);
    assert_int_equal(left_ms(THEIRS(1)), 30000);
    says(lease_as(THEIRS(1), RECORD_ORPHAN, "m3"));
    is_state(THEIRS(1), ORPHAN);
    says_nothing();
    is_state(THEIRS(1), GONE);
}

static void a_state_makes_room_for_no_more_than_there_is(void **state)
{
    (void)state;
    static struct heard_lease many[BOOK_LEASES_MAX + 5000];
    begin_copy(1);
    for (uint32_t i = 0; i < sizeof many / sizeof many[0]; i++)
        many[i] = held_by("m3", THEIRS(i + 1));
    say_state(many, sizeof many / sizeof many[0]);
    assert_int_equal(world.book.live_count, BOOK_LEASES_MAX);
    for (uint32_t i = 0; i < BOOK_LEASES_MAX; i++)
        many[i] = held_by("m3", THEIRS(i + 10001));
    say_state(many, BOOK_LEASES_MAX);
    assert_true(world.book.live_count <= BOOK_CELLS);
    say_state(many, BOOK_LEASES_MAX);
    assert_int_equal(world.book.live_count, BOOK_LEASES_MAX);
    says_nothing();
    assert_int_equal(world.book.live_count, 0);
}

static void nonsense_is_brought_into_bounds(void **state)
{
    (void)state;
    begin_copy(2);
    struct heard_lease bad[] = {
        held_by("m3", THEIRS(1)), run_by("m3", THEIRS(2)), run_by("m3", THEIRS(3)),
        run_by("m3", THEIRS(4)),  run_by("m3", THEIRS(5)), lease_as(THEIRS(6), 99, "m3"),
        run_by("m3", THEIRS(2)), /* again */
    };
    bad[0].id.counter = 0;
    bad[1].units = 0;
    bad[1].arrived = 70000;
    bad[1].slot = 5000;
    bad[1].left_ms = INT64_MIN;
    bad[1].age_ms = INT64_MAX;
    bad[1].dispatched_ms = INT64_MAX;
    bad[2].units = UINT32_MAX;
    bad[2].slot = 1;
    bad[2].left_ms = INT64_MAX;
    bad[2].age_ms = INT64_MIN;
    bad[3].token = UINT64_MAX;
    bad[3].place = UINT64_MAX;
    bad[3].idle_ms = INT64_MAX;
    memset(bad[3].holder.host, 'x', NAME_SIZE);
    memset(bad[3].holder.label, 0xff, LABEL_SIZE);
    bad[4].ttl_ms = 1;
    bad[4].id = (struct lease_id){UINT64_MAX, UINT64_MAX};
    next_state.waiting = INT32_MIN;
    next_state.strangers = INT32_MIN;
    next_state.strangers_ms = INT64_MIN;
    memset(&next_state.reading, 0x5a, sizeof next_state.reading);
    say_state(bad, sizeof bad / sizeof bad[0]);
    assert_int_equal(record_of(THEIRS(3))->units, BOOK_SLOTS_MAX);
    assert_int_equal(left_ms(THEIRS(3)), TTL_MS_MAX);
    assert_int_equal(record_of(THEIRS(4))->token, 0);
    assert_true(record_of(THEIRS(4))->place >= PLACE_BY_ID);
    assert_int_equal(record_of(THEIRS(2))->units, 1);
    is_state(THEIRS(6), FREE);
    uint64_t counter = world.book.counter_max;
    granted(acquire(.units = 1, .wait_ms = 0, .flags = REQUEST_RUNNING));
    assert_int_equal(world.book.counter_max, counter + 1); /* their numbers are not ours */
    next_state.epoch = EPOCH_MAX;                          /* nobody could go above it */
    says_nothing();
    is_state(THEIRS(3), DISPATCHED);
    next_state.epoch = 0;
    says_nothing();
    is_state(THEIRS(3), DISPATCHED);
}

static void a_reading_of_our_own_may_be_newer(void **state)
{
    (void)state;
    begin_copy(4);
    reads(3, 3);
    says_nothing();
    assert_int_equal(tally_now().strangers, 3);
    after(100);
    shows(71);
    assert_int_equal(tally_now().strangers, 1);
    next_state.reading.answered_ns = world.now - 50 * NS_PER_MS;
    says_nothing(); /* of before ours */
    assert_int_equal(tally_now().strangers, 1);
    reads(2, 2);
    says_nothing();
    assert_int_equal(tally_now().strangers, 2);
}

static void of_a_static_provider_leases_alone_count(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    begin_world(&settings);
    mirror_begin(&world.book);
    memset(&next_state, 0, sizeof next_state);
    reading_clear(&next_state.reading);
    next_state.reading.slots_total = 3;
    next_state.epoch = 500;
    next_state.is_static = true;
    says(run_by("m3", THEIRS(1)));
    assert_int_equal(tally_now().slots, 3);
    assert_int_equal(tally_now().available, 2);
    granted(acquire());
    assert_int_equal(tally_now().available, 1);
}

/* ---- leases of ours -------------------------------------------------------------------------- */

static void our_leases_stay_where_the_owner_never_named_them(void **state)
{
    (void)state;
    begin_copy(4);
    struct lease_id a = dispatched("a"), b = granted(acquire());
    assert_int_equal(record_of(a)->token, 0); /* only the owner issues them */
    assert_true(record_of(a)->place >= PLACE_BY_ID);
    says_nothing();
    is_state(a, DISPATCHED);
    is_state(b, HELD);
    after(10001);
    tick();
    is_state(b, GONE);
    is_end(b, EXPIRED);
}

static void what_the_owner_named_ends_when_a_newer_state_lacks_it(void **state)
{
    (void)state;
    begin_copy(4);
    next_state.version = 10;
    named_at(12, run_by("m5", THEIRS(1)));
    named_at(14, run_by("m5", THEIRS(2)));
    assert_true(is_named(THEIRS(1)));
    assert_int_equal(record_of(THEIRS(1))->holder.pid_start, 99);
    next_state.version = 12;
    struct heard_lease before = run_by("m5", THEIRS(2));
    before.left_ms = 1000;
    says(before); /* 13: made after the first was named and before the second renewed */
    assert_int_equal(left_ms(THEIRS(2)), 29999);
    is_state(THEIRS(1), GONE);
    is_state(THEIRS(2), DISPATCHED);
    named_at(13, run_by("m5", THEIRS(1))); /* late: that word is in the state */
    is_state(THEIRS(1), GONE);
    named_at(20, run_by("m5", THEIRS(1))); /* but whoever asked the owner since knows better */
    is_state(THEIRS(1), DISPATCHED);
}

static void a_state_does_not_extend_what_is_ours(void **state)
{
    (void)state;
    begin_copy(4);
    struct heard_lease lease = run_by("m5", THEIRS(1));
    lease.left_ms = 5000;
    named(lease);
    lease.left_ms = 9000;
    says(lease);
    assert_int_equal(left_ms(THEIRS(1)), 4999);
    lease.left_ms = 2000;
    says(lease);
    assert_int_equal(left_ms(THEIRS(1)), 2000);
    assert_int_equal(record_of(THEIRS(1))->holder.pid_start, 99); /* only we know that */
    after(2001);
    tick();
    says(lease);
    assert_false(record_of(THEIRS(1))->state == RECORD_DISPATCHED); /* nor revive it */
    named(run_by("m5", THEIRS(1)));
    is_state(THEIRS(1), DISPATCHED); /* the owner's answer to us does */
}

static void what_was_given_back_here_stays_so(void **state)
{
    (void)state;
    begin_copy(4);
    named(run_by("m5", THEIRS(1)));
    granted(release(THEIRS(1)));
    says(run_by("m5", THEIRS(1))); /* it has not heard of it */
    is_state(THEIRS(1), GONE);
    named(run_by("m5", THEIRS(1))); /* nor had it when it renewed */
    is_state(THEIRS(1), GONE);
}

/* A lease taken here before the owner was known, told to it, and long forgotten here. */
static void an_id_of_ours_comes_back_from_the_owner(void **state)
{
    (void)state;
    begin_copy(4);
    struct lease_id first = dispatched("first"), last = first;
    granted(release(first));
    for (int i = 0; i < 3 * BOOK_CELLS_SPARE; i++) {
        last = granted(acquire());
        granted(release(last));
    }
    assert_null(book_find(&world.book, first, UINT32_MAX));
    says(run_by("m5", first));
    is_state(first, DISPATCHED);
    struct lease_id next = granted(acquire());
    assert_int_equal(next.counter, last.counter + 1);
}

static void an_id_that_we_never_gave_is_none(void **state)
{
    (void)state;
    begin_copy(4);
    struct lease_id mine = granted(acquire()), made_up = {mine.instance, UINT64_MAX};
    says(run_by("m5", made_up));
    named(run_by("m5", made_up));
    claims(run_by("m5", made_up));
    assert_null(book_find(&world.book, made_up, UINT32_MAX));
    assert_int_equal(granted(acquire()).counter, mine.counter + 1);
}

static void the_owner_says_that_it_is_gone(void **state)
{
    (void)state;
    begin_copy(4);
    named(run_by("m5", THEIRS(1)));
    named(held_by("m5", THEIRS(2)));
    struct heard_lease over = run_by("m5", THEIRS(1));
    over.state = RECORD_GONE;
    over.end = END_RELEASED;
    named_at(50, over);
    is_state(THEIRS(1), GONE);
    is_end(THEIRS(1), RELEASED);
    over.id = THEIRS(2);
    over.end = 77;
    named_at(51, over);
    is_end(THEIRS(2), EXPIRED);
    over.id = THEIRS(3);
    named_at(52, over);
    is_state(THEIRS(3), FREE);
    next_state.version = 48;
    says(run_by("m5", THEIRS(1)));
    is_state(THEIRS(1), GONE);
}

/* The owner cannot be asked, and the server is read instead. */
static void what_goes_without_the_owner_is_not_taken_back_by_it(void **state)
{
    (void)state;
    begin_copy(4);
    named(held_by("m5", THEIRS(1)));
    shows_nothing();
    go(verify(THEIRS(1)));
    assert_false(is_named(THEIRS(1)));
    assert_int_equal(record_of(THEIRS(1))->token, (UINT64_C(500) << TOKEN_BITS) + 1);
    says(held_by("m5", THEIRS(1)));
    is_state(THEIRS(1), DISPATCHED);
    says_nothing(); /* it has run out there */
    is_state(THEIRS(1), DISPATCHED);
    named(run_by("m5", THEIRS(1))); /* it was told */
    assert_true(is_named(THEIRS(1)));
    says_nothing();
    is_state(THEIRS(1), GONE);
}

static void nobody_waits_here_past_what_the_copy_knows(void **state)
{
    (void)state;
    begin_copy(2);
    reads(1, 0);
    next_state.waiting = 1;
    says(run_by("m3", THEIRS(1)));
    struct lease_id waiter = waits(acquire(.wait_ms = 5000));
    reads(1, 0);
    says(run_by("m3", THEIRS(1)));
    is_state(waiter, WAITING);
    next_state.waiting = 0;
    says(run_by("m3", THEIRS(1)));
    is_state(waiter, HELD);
    no(acquire(), REASON_AHEAD);
}

static void who_waits_at_the_owner_is_counted_ahead(void **state)
{
    (void)state;
    begin_copy(1);
    reads(0, 0);
    next_state.waiting = 2;
    says_nothing();
    struct answer answer = acquire();
    no(answer, REASON_AHEAD);
    assert_int_equal(answer.ahead, 2);
}

static void the_work_of_a_named_lease_that_ran_out_may_be_told(void **state)
{
    (void)state;
    begin_copy(2);
    named(run_by("m5", THEIRS(1)));
    says(lease_as(THEIRS(1), RECORD_ORPHAN, "m5"));
    is_state(THEIRS(1), ORPHAN);
    says(run_by("m5", THEIRS(1)));
    is_state(THEIRS(1), ORPHAN);
    says_nothing();
    is_state(THEIRS(1), GONE);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

static void a_copy_becomes_the_owners_book(void **state)
{
    (void)state;
    begin_copy(6);
    says(run_by("m3", THEIRS(1)), held_by("m4", THEIRS(2)));
    struct lease_id ours = granted(acquire());
    claims(held_by("m3", OTHERS(1)));
    uint64_t before = world.book.token_max;
    mirror_becomes_owner(&world.book, 400); /* what it was told is lower than what it heard */
    book_check(&world.book);
    assert_int_equal(world.book.head.epoch, 501);
    assert_false(is_named(THEIRS(1)));
    assert_int_equal(left_ms(THEIRS(1)), 29999);
    struct lease_id first = ours, second = OTHERS(1);
    if (book_place_by_id(second) < book_place_by_id(first)) {
        first = OTHERS(1);
        second = ours;
    }
    assert_int_equal(record_of(first)->place, 3);
    assert_int_equal(record_of(second)->place, 4);
    assert_true(record_of(first)->token > before);
    assert_true(record_of(second)->token > record_of(first)->token);
    assert_true(record_of(second)->token >> TOKEN_BITS == 501);
    granted(renew(THEIRS(1)));
    struct lease_id next = granted(acquire());
    assert_int_equal(record_of(next)->place, 5);
    next_state.epoch = 500;
    says_nothing(); /* the old owner's last word */
    is_state(THEIRS(1), DISPATCHED);
    uint64_t epoch = world.book.head.epoch;
    mirror_becomes_owner(&world.book, 9000); /* it is already */
    assert_int_equal(world.book.head.epoch, epoch);
}

static void an_owners_book_becomes_a_copy(void **state)
{
    (void)state;
    on_static(4);
    struct lease_id local = dispatched("a"), remote = granted(acquire());
    ((struct record *)record_of(remote))->holder.local = 0;
    memset(&next_state, 0, sizeof next_state);
    reading_clear(&next_state.reading);
    next_state.epoch = 1000;
    says(run_by("m3", THEIRS(1)));
    is_state(THEIRS(1), FREE); /* no higher epoch: we are the owner */
    next_state.epoch = 1001;
    says(run_by("m3", THEIRS(1)));
    is_state(THEIRS(1), DISPATCHED);
    assert_true(book_is_copy(&world.book));
    is_state(local, DISPATCHED); /* it works, and will be told to the new owner */
    is_state(remote, GONE);
    assert_int_equal(world.book.head.epoch, 1001);
}

static void a_copy_that_issued_tokens_follows_a_lower_epoch(void **state)
{
    (void)state;
    on_static(4);
    struct lease_id local = dispatched("a"); /* before anybody said that another owns it */
    mirror_begin(&world.book);
    mirror_begin(&world.book);
    assert_int_equal(mirror_epoch(&world.book), 0);
    memset(&next_state, 0, sizeof next_state);
    reading_clear(&next_state.reading);
    next_state.epoch = 7;
    says(held_by("m3", THEIRS(1)));
    is_state(THEIRS(1), HELD);
    is_state(local, DISPATCHED);
    assert_int_equal(mirror_epoch(&world.book), 7);
    assert_int_equal(world.book.head.epoch, 1000); /* it is no lower than its tokens */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_shows_what_the_owner_says),
        cmocka_unit_test(a_newer_state_replaces_an_older_one),
        cmocka_unit_test(nothing_new_is_not_written_again),
        cmocka_unit_test(leases_of_others_live_on_where_the_owner_says_so),
        cmocka_unit_test(a_state_makes_room_for_no_more_than_there_is),
        cmocka_unit_test(nonsense_is_brought_into_bounds),
        cmocka_unit_test(a_reading_of_our_own_may_be_newer),
        cmocka_unit_test(of_a_static_provider_leases_alone_count),
        cmocka_unit_test(our_leases_stay_where_the_owner_never_named_them),
        cmocka_unit_test(what_the_owner_named_ends_when_a_newer_state_lacks_it),
        cmocka_unit_test(a_state_does_not_extend_what_is_ours),
        cmocka_unit_test(what_was_given_back_here_stays_so),
        cmocka_unit_test(an_id_of_ours_comes_back_from_the_owner),
        cmocka_unit_test(an_id_that_we_never_gave_is_none),
        cmocka_unit_test(the_owner_says_that_it_is_gone),
        cmocka_unit_test(what_goes_without_the_owner_is_not_taken_back_by_it),
        cmocka_unit_test(nobody_waits_here_past_what_the_copy_knows),
        cmocka_unit_test(who_waits_at_the_owner_is_counted_ahead),
        cmocka_unit_test(the_work_of_a_named_lease_that_ran_out_may_be_told),
        cmocka_unit_test(a_copy_becomes_the_owners_book),
        cmocka_unit_test(an_owners_book_becomes_a_copy),
        cmocka_unit_test(a_copy_that_issued_tokens_follows_a_lower_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
