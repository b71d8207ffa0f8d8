/* What other hosts say: states, answers and claims, in a copy and at the owner. */
#include "tests/lib/virtual.h"

/* ---- words of others ------------------------------------------------------------------------- */

#define THEIRS(number) ((struct lease_id){UINT64_C(0x0123), number}) /* ids of the owner's book */
#define OTHERS(number) ((struct lease_id){UINT64_C(0x0777), number}) /* of a third host's */

static struct heard_lease lease_as(struct lease_id id, enum record_state state, const char *host)
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

static struct heard_lease held_by(const char *host, struct lease_id id)
{
    return lease_as(id, RECORD_HELD, host);
}

static struct heard_lease run_by(const char *host, struct lease_id id)
{
    return lease_as(id, RECORD_DISPATCHED, host);
}

/* The next state, in which these leases are; what is in flight, by a reading of this instant. */
static struct heard_state next_state;

static void begin_copy(int32_t slots)
{
    on_server(slots);
    mirror_begin(&world.book);
    memset(&next_state, 0, sizeof next_state);
    reading_clear(&next_state.reading);
    next_state.epoch = 500;
    next_state.strangers_ms = -1;
}

static void say_state(const struct heard_lease *leases, uint32_t count)
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

static void reads(int32_t in_flight, int32_t strangers)
{
    next_state.reading = *blank_reading();
    next_state.reading.in_flight = in_flight;
    next_state.reading.sent_ns = next_state.reading.answered_ns = world.now + 1;
    next_state.strangers = strangers;
    next_state.strangers_ms = strangers ? 0 : -1;
}

/* The owner's answer to a process of ours. */
static void named_at(uint64_t version, struct heard_lease lease)
{
    lease.holder.local = 1;
    lease.holder.pid = 4242;
    lease.holder.pid_start = 99;
    lease.holder.pid_space = 98;
    struct heard_named named = {.epoch = 500, .version = version, .lease = lease};
    step_world(&(struct event){.kind = EVENT_NAMED, .named = &named});
}

static void named(struct heard_lease lease)
{
    named_at(++next_state.version, lease);
}

static void claims_at(uint64_t epoch, bool withdrawn, struct heard_lease lease)
{
    struct heard_claim claim = {.epoch = epoch, .withdrawn = withdrawn, .lease = lease};
    step_world(&(struct event){.kind = EVENT_CLAIM, .claim = &claim});
}

static void claims(struct heard_lease lease)
{
    claims_at(0, false, lease);
}

static void withdraws(struct heard_lease lease)
{
    claims_at(0, true, lease);
}

static int64_t left_ms(struct lease_id id)
{
    return (record_of(id)->deadline_ns - world.now) / NS_PER_MS;
}

static bool is_named(struct lease_id id)
{
    return record_of(id)->flags & RECORD_NAMED;
}

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

/* ---- claims in a copy ------------------------------------------------------------------------ */

static void claims_are_ordered_by_their_ids_everywhere(void **state)
{
    (void)state;
    begin_copy(1);
    shows_nothing();
    struct lease_id ours = granted(acquire());
    struct lease_id theirs = OTHERS(1);
    bool first = book_place_by_id(ours) < book_place_by_id(theirs);
    claims(held_by("m3", theirs));
    assert_int_equal(record_of(theirs)->place, book_place_by_id(theirs));
    after(50);
    shows_nothing();
    struct answer answer = verify(ours);
    assert_int_equal(answer.verdict, first ? ANSWER_GO : ANSWER_NO);
}

static void a_claim_stays_until_the_owner_could_have_heard_it(void **state)
{
    (void)state;
    begin_copy(4);
    claims(held_by("m3", OTHERS(1)));
    claims(held_by("m3", OTHERS(2)));
    is_state(OTHERS(1), HELD);
    after(900);
    says(held_by("m3", OTHERS(1)));
    is_state(OTHERS(2), HELD);
    after(3000);
    says(held_by("m3", OTHERS(1)));
    is_state(OTHERS(1), HELD);
    is_state(OTHERS(2), GONE);
    claims(held_by("m3", OTHERS(2))); /* it comes again, late */
    is_state(OTHERS(2), GONE);
}

static void a_claim_says_more_of_itself_and_nothing_of_ours(void **state)
{
    (void)state;
    begin_copy(4);
    claims(held_by("m3", OTHERS(1)));
    after(9000);
    claims(held_by("m3", OTHERS(1)));
    assert_int_equal(left_ms(OTHERS(1)), 10000);
    for (int i = 0; i < 9; i++) {
        after(9000);
        claims(held_by("m3", OTHERS(1)));
    }
    is_state(OTHERS(1), GONE); /* nobody holds for more than a minute */
    claims(held_by("m3", OTHERS(2)));
    withdraws(held_by("m4", OTHERS(2))); /* whose is it? */
    is_state(OTHERS(2), HELD);
    claims(run_by("m3", OTHERS(2)));
    is_state(OTHERS(2), DISPATCHED);
    assert_int_equal(record_of(OTHERS(2))->token, 0);
    says(held_by("m3", OTHERS(2))); /* it went without the owner */
    is_state(OTHERS(2), DISPATCHED);
    withdraws(run_by("m3", OTHERS(2)));
    is_state(OTHERS(2), GONE);
    withdraws(held_by("m3", OTHERS(3))); /* before the claim itself */
    claims(held_by("m3", OTHERS(3)));
    is_state(OTHERS(3), FREE);
    struct lease_id ours = granted(acquire());
    withdraws(held_by("m5", ours));
    is_state(ours, HELD);
}

/* ---- claims at the owner --------------------------------------------------------------------- */

static void at_the_owner_a_claim_is_an_intention(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    claims(held_by("m3", OTHERS(1)));
    const struct record *record = record_of(OTHERS(1));
    assert_int_equal(record->state, RECORD_HELD);
    assert_int_equal(record->place, record_of(a)->place + 1);
    assert_true(record->token > record_of(a)->token);
    assert_int_equal(record->holder.local, 0);
    assert_int_equal(tally_now().held, 2); /* whatever the slots say */
    go(verify(a));
    no(verify(OTHERS(1)), REASON_LEASES);
    claims(held_by("m3", OTHERS(1)));
    is_state(OTHERS(1), GONE);
    world.slots = 2;
    shows(71);
    claims(run_by("m3", OTHERS(2))); /* decided while we could not be asked */
    is_state(OTHERS(2), DISPATCHED);
    assert_int_equal(tally_now().dispatched, 2);
    assert_int_equal(tally_now().unseen, 1);
    assert_int_equal(left_ms(OTHERS(2)), 30000);
    withdraws(run_by("m3", OTHERS(2)));
    is_end(OTHERS(2), RELEASED);
    is_state(OTHERS(2), GONE);
}

static void at_the_owner_no_claim_extends_or_revives(void **state)
{
    (void)state;
    on_static(4);
    struct heard_lease lease = held_by("m3", OTHERS(1));
    claims(lease);
    after(5000);
    claims(lease);
    assert_int_equal(left_ms(OTHERS(1)), 4999);
    claims(run_by("m3", OTHERS(1)));
    is_state(OTHERS(1), DISPATCHED);
    after(20000);
    claims(run_by("m3", OTHERS(1)));
    assert_int_equal(left_ms(OTHERS(1)), 9999);
    claims(held_by("m3", OTHERS(1)));
    is_state(OTHERS(1), DISPATCHED);
    after(10000);
    tick();
    is_state(OTHERS(1), ORPHAN);
    claims(run_by("m3", OTHERS(1)));
    is_state(OTHERS(1), ORPHAN);
    struct lease_id own = {world.book.head.instance, 500};
    claims(held_by("m3", own)); /* we never issued it, or have forgotten it */
    is_state(own, FREE);
}

static void at_the_owner_an_unknown_id_of_an_older_epoch_is_dead(void **state)
{
    (void)state;
    on_static(4);
    claims_at(999, false, held_by("m3", OTHERS(1)));
    is_state(OTHERS(1), FREE);
    claims_at(1000, false, held_by("m3", OTHERS(1)));
    is_state(OTHERS(1), HELD);
    claims_at(1001, false, held_by("m3", OTHERS(2)));
    is_state(OTHERS(2), HELD);
}

static void at_the_owner_claims_have_a_bound(void **state)
{
    (void)state;
    on_static(2);
    struct heard_lease large = held_by("m3", OTHERS(999));
    large.units = 3;
    claims(large);
    is_state(OTHERS(999), FREE);
    for (uint64_t i = 1; i <= 100; i++)
        claims(held_by("m3", OTHERS(i)));
    assert_int_equal(world.book.live_count, BOOK_LEASES_MIN);
}

static void a_claim_of_a_waiter_ends_its_wait(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct lease_id waiter = waits(acquire(.wait_ms = 5000));
    ((struct record *)record_of(waiter))->holder.local = 0;
    withdraws(held_by("m5", waiter));
    is_state(waiter, GONE);
    assert_int_equal(world.effects.called_count, 1);
    withdraws(run_by("m5", a)); /* that is a process of this host */
    is_state(a, DISPATCHED);
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
        cmocka_unit_test(the_work_of_a_named_lease_that_ran_out_may_be_told),
        cmocka_unit_test(claims_are_ordered_by_their_ids_everywhere),
        cmocka_unit_test(a_claim_stays_until_the_owner_could_have_heard_it),
        cmocka_unit_test(a_claim_says_more_of_itself_and_nothing_of_ours),
        cmocka_unit_test(at_the_owner_a_claim_is_an_intention),
        cmocka_unit_test(at_the_owner_no_claim_extends_or_revives),
        cmocka_unit_test(at_the_owner_an_unknown_id_of_an_older_epoch_is_dead),
        cmocka_unit_test(at_the_owner_claims_have_a_bound),
        cmocka_unit_test(a_claim_of_a_waiter_ends_its_wait),
        cmocka_unit_test(a_copy_becomes_the_owners_book),
        cmocka_unit_test(an_owners_book_becomes_a_copy),
        cmocka_unit_test(a_copy_that_issued_tokens_follows_a_lower_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
