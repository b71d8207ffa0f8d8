/* What the simulator found in the core (tests/sim/RECORD.md), each as a scene of its own. */
#include "tests/lib/virtual.h"

#define OTHERS(number) ((struct lease_id){UINT64_C(0x0777), number})

static struct heard_lease heard_as(struct lease_id id, enum record_state state, int64_t left_ms)
{
    struct heard_lease lease = {.id = id,
                                .state = state,
                                .units = 1,
                                .slot = -1,
                                .left_ms = left_ms,
                                .dispatched_ms = state == RECORD_HELD ? -1 : 0,
                                .idle_ms = -1};
    lease.holder.pid = 77;
    text_copy(lease.holder.host, NAME_SIZE, "m9");
    return lease;
}

static void claims(struct lease_id id, int64_t left_ms)
{
    struct heard_claim claim = {.lease = heard_as(id, RECORD_HELD, left_ms)};
    step_world(&(struct event){.kind = EVENT_CLAIM, .claim = &claim});
}

static struct heard_state next_state(const struct heard_lease *leases, uint32_t count)
{
    static uint64_t version;
    struct heard_state state = {.epoch = 500,
                                .version = ++version,
                                .reading = *blank_reading(),
                                .strangers_ms = -1,
                                .lease_count = count,
                                .leases = leases};
    state.reading.sent_ns = state.reading.answered_ns = world.now + 1;
    return state;
}

static void says(const struct heard_lease *leases, uint32_t count)
{
    struct heard_state state = next_state(leases, count);
    step_world(&(struct event){.kind = EVENT_STATE, .state = &state});
}

static void a_claim_that_has_run_out_is_none(void **state)
{
    (void)state;
    on_server(2);
    claims(OTHERS(1), 0);
    assert_null(record_of(OTHERS(1)));
    mirror_begin(&world.book);
    claims(OTHERS(2), 0);
    assert_null(record_of(OTHERS(2)));
    claims(OTHERS(3), 1000);
    assert_non_null(record_of(OTHERS(3)));
}

/* No reading of the owner's will show what the owner knows nothing of: it stayed for a day. */
static void an_orphan_of_which_the_owner_knows_nothing_ends_in_a_copy(void **state)
{
    (void)state;
    on_server(2);
    mirror_begin(&world.book);
    says(NULL, 0);
    struct lease_id id = acquire(.ttl_ms = 1000).lease;
    assert_int_equal(verify(id).verdict, ANSWER_GO);
    after(2000);
    says(NULL, 0);
    assert_int_equal(record_of(id)->state, RECORD_ORPHAN);
    after(DRAIN_MS);
    says(NULL, 0);
    assert_int_equal(record_of(id)->state, RECORD_GONE);
    assert_int_equal(tally_now().busy, 0);
}

/* It was issued here, while this was the owner's book, and lives elsewhere. */
static void an_id_of_this_book_may_come_from_its_owner(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id id = acquire(.ttl_ms = 1000).lease;
    release(id);
    for (int i = 0; i < 2 * BOOK_CELLS_SPARE; i++) /* its record is taken again */
        release(acquire(.ttl_ms = 1000).lease);
    assert_null(record_of(id));
    mirror_begin(&world.book);
    struct lease_id forged = {id.instance, UINT64_C(1) << 40};
    struct heard_lease leases[] = {heard_as(id, RECORD_DISPATCHED, 5000),
                                   heard_as(forged, RECORD_DISPATCHED, 5000)};
    says(leases, 2);
    assert_int_equal(record_of(id)->state, RECORD_DISPATCHED);
    assert_null(record_of(forged));
    book_check(&world.book);
}

/* It had its place as the owner's waiter, and was granted while the book was a copy. */
static void what_was_granted_in_a_copy_gets_a_token_whatever_its_place(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id first = acquire().lease;
    struct lease_id second = acquire(.wait_ms = 5000).lease;
    mirror_begin(&world.book);
    release(first);
    assert_int_equal(record_of(second)->state, RECORD_HELD);
    assert_true(record_of(second)->token == 0);
    mirror_becomes_owner(&world.book, 2000);
    assert_true(record_of(second)->token >> TOKEN_BITS == 2000);
    assert_true(record_of(second)->place == 2);
}

static void what_was_given_back_before_its_claim_is_dead(void **state)
{
    (void)state;
    on_server(2);
    assert_int_equal(release(OTHERS(1)).verdict, ANSWER_GONE);
    claims(OTHERS(1), 5000);
    assert_null(record_of(OTHERS(1)));
}

static bool is_written_by(struct event event)
{
    event.now = ++world.now;
    broker_step(&world.broker, &event, &world.effects);
    bool written = book_is_dirty(&world.book);
    book_clean(&world.book);
    return written;
}

/* Each look at it woke everybody who waits, who looked again. */
static void who_waits_in_vain_writes_nothing(void **state)
{
    (void)state;
    on_server(1);
    shows(71);
    struct answer answer = acquire(.wait_ms = 5000);
    assert_int_equal(answer.verdict, ANSWER_WAIT);
    shows_nothing();
    struct lease_id id = answer.lease;
    assert_int_equal(record_of(id)->state, RECORD_HELD);
    shows(72);
    assert_int_equal(verify(id, .wait_ms = 5000).verdict, ANSWER_WAIT);
    shows(72);
    assert_false(is_written_by((struct event){.kind = EVENT_TICK}));
    assert_false(is_written_by((struct event){.kind = EVENT_TICK}));
}

/* Killed between the two, the records would never have become what their version says. */
static void the_version_of_a_state_is_stored_last(void **state)
{
    (void)state;
    on_server(2);
    mirror_begin(&world.book);
    says(NULL, 0);
    struct heard_lease lease = heard_as(OTHERS(1), RECORD_HELD, 5000);
    struct heard_state next = next_state(&lease, 1);
    struct event event = {.kind = EVENT_STATE, .now = ++world.now, .state = &next};
    broker_step(&world.broker, &event, &world.effects);
    assert_true(world.book.sight_dirty && world.book.sight_last);
    book_clean(&world.book);
    assert_false(world.book.sight_last);
    shows_nothing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_that_has_run_out_is_none),
        cmocka_unit_test(an_orphan_of_which_the_owner_knows_nothing_ends_in_a_copy),
        cmocka_unit_test(an_id_of_this_book_may_come_from_its_owner),
        cmocka_unit_test(what_was_granted_in_a_copy_gets_a_token_whatever_its_place),
        cmocka_unit_test(what_was_given_back_before_its_claim_is_dead),
        cmocka_unit_test(who_waits_in_vain_writes_nothing),
        cmocka_unit_test(the_version_of_a_state_is_stored_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
