/* What agents of other hosts claim, in a copy and at the owner. */
#include "tests/unit/heard_words.h"

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

static void at_the_owner_a_claim_is_held_no_longer_than_a_lease_may_be(void **state)
{
    (void)state;
    on_static(4);
    struct heard_lease lease = held_by("m3", OTHERS(1));
    lease.left_ms = 3600000;
    lease.may_idle = lease.no_holder = true;
    claims(lease);
    assert_int_equal(left_ms(OTHERS(1)), HELD_MS_MAX);
    assert_int_equal(record_of(OTHERS(1))->flags, RECORD_MAY_IDLE | RECORD_NO_HOLDER);
}

/* A claim is held whatever the slots say, so two may want one index: leases alone tell who has it, and
 * no reading is awaited for that. */
static void at_the_owner_two_claims_of_one_index_are_not_both_right(void **state)
{
    (void)state;
    on_server(4);
    struct heard_lease lease = held_by("m3", OTHERS(1));
    lease.slot = 2;
    claims(lease);
    lease.id = OTHERS(2);
    claims(lease);
    shows_nothing();
    go(verify(OTHERS(1)));
    after(500);
    no(verify(OTHERS(2)), REASON_SLOT);
    is_end(OTHERS(2), REFUSED);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_are_ordered_by_their_ids_everywhere),
        cmocka_unit_test(a_claim_stays_until_the_owner_could_have_heard_it),
        cmocka_unit_test(a_claim_says_more_of_itself_and_nothing_of_ours),
        cmocka_unit_test(at_the_owner_a_claim_is_an_intention),
        cmocka_unit_test(at_the_owner_no_claim_extends_or_revives),
        cmocka_unit_test(at_the_owner_a_claim_is_held_no_longer_than_a_lease_may_be),
        cmocka_unit_test(at_the_owner_two_claims_of_one_index_are_not_both_right),
        cmocka_unit_test(at_the_owner_an_unknown_id_of_an_older_epoch_is_dead),
        cmocka_unit_test(at_the_owner_claims_have_a_bound),
        cmocka_unit_test(a_claim_of_a_waiter_ends_its_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
