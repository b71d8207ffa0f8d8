/* Duplicates: whoever did not hear an answer asks with the same id and hears the same again. */
#include "tests/lib/virtual.h"

static void a_go_asked_again_is_the_same_go(void **state)
{
    (void)state;
    on_server(1);
    struct answer held = acquire();
    struct lease_id a = granted(held);
    struct answer answer = verify(a);
    go(answer);
    assert_int_equal(answer.token, held.token);
    after(3000);
    same_answer(answer, verify(a, .same = last_request()));
    same_answer(answer, verify(a));
    assert_int_equal(world.notes[NOTE_WENT], 1);
    assert_int_equal(tally_now().dispatched, 1);
}

static void a_release_asked_again_is_the_same_release(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct answer answer = release(a);
    granted(answer);
    same_answer(answer, release(a, .same = last_request()));
    same_answer(answer, release(a)); /* of a lease that is gone it is fine too */
    assert_int_equal(world.notes[NOTE_RELEASED], 1);
}

static void a_grant_is_answered_again(void **state)
{
    (void)state;
    on_static(1);
    struct answer answer = acquire();
    uint64_t id = last_request();
    granted(answer);
    after(2000);
    same_answer(answer, acquire(.same = id));
    assert_int_equal(tally_now().held, 1);
    struct lease_id lease = answer.lease;
    release(lease);
    gone(acquire(.same = id), REASON_ENDED); /* no second lease for one request */
    assert_int_equal(world.book.live_count, 0);
}

static void a_renewal_is_answered_again(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    after(1000);
    struct answer answer = renew(a);
    after(1000);
    same_answer(answer, renew(a, .same = last_request()));
}

static void a_refusal_is_answered_again_for_5_seconds(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    struct answer answer = acquire();
    uint64_t id = last_request();
    no(answer, REASON_LEASES);
    release(a);
    after(4990);
    same_answer(answer, acquire(.same = id));
    after(20);
    granted(acquire(.same = id));
}

static void so_is_the_no_of_a_verify(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    after(100);
    shows(9);
    struct answer answer = verify(a);
    uint64_t id = last_request();
    no(answer, REASON_STRANGERS);
    after(4990);
    same_answer(answer, verify(a, .same = id));
    after(20);
    gone(verify(a, .same = id), REASON_ENDED);
}

/* Undecided too: a repeated packet must not turn it into a go that nobody hears. */
static void so_is_an_undecided_no(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    after(100);
    shows(71, 9);
    after(50);
    release(a);
    struct lease_id b = granted(acquire());
    struct answer answer = verify(b);
    uint64_t id = last_request();
    no(answer, REASON_PAUSE);
    assert_true(answer.undecided);
    after(1200);
    shows_nothing();
    same_answer(answer, verify(b, .same = id));
    is_state(b, HELD);
    go(verify(b));
}

/* But who keeps the asker over the pause tells it to nobody. */
static void a_no_that_was_told_to_nobody_is_decided_anew(void **state)
{
    (void)state;
    on_server(2);
    struct lease_id a = dispatched("a");
    after(100);
    shows(71, 9);
    after(50);
    release(a);
    struct lease_id b = granted(acquire());
    no(verify(b), REASON_PAUSE);
    uint64_t id = last_request();
    broker_unsay(&world.broker, (struct request_id){UINT64_C(0xabcd), id});
    after(1200);
    shows_nothing();
    go(verify(b, .same = id));
}

static void so_is_a_refused_renewal(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("a");
    shows(71);
    shows_nothing();
    idle_for(a, 124);
    struct answer answer = renew(a);
    uint64_t id = last_request();
    no(answer, REASON_GHOST);
    shows(72);
    same_answer(answer, renew(a, .same = id));
    granted(renew(a));
}

static void a_wait_asked_again_is_the_same_wait(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    ns_t asked = world.now + 1;
    struct lease_id b = waits(acquire(.wait_ms = 60000));
    uint64_t id = last_request();
    after(100);
    struct lease_id again = waits(acquire(.wait_ms = 60000, .same = id, .asked_ns = asked));
    assert_true(lease_id_equal(b, again));
    assert_int_equal(tally_now().waiting, 1);
    (void)a;
}

static void the_ring_of_refusals_forgets_the_oldest(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = dispatched("a");
    no(acquire(), REASON_LEASES);
    uint64_t first = last_request();
    no(acquire(), REASON_LEASES);
    uint64_t second = last_request();
    for (int i = 0; i < REFUSALS_MAX - 1; i++)
        no(acquire(), REASON_LEASES);
    release(a);
    no(acquire(.same = second), REASON_LEASES);
    granted(acquire(.same = first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_go_asked_again_is_the_same_go),
        cmocka_unit_test(a_release_asked_again_is_the_same_release),
        cmocka_unit_test(a_grant_is_answered_again),
        cmocka_unit_test(a_renewal_is_answered_again),
        cmocka_unit_test(a_refusal_is_answered_again_for_5_seconds),
        cmocka_unit_test(so_is_the_no_of_a_verify),
        cmocka_unit_test(so_is_an_undecided_no),
        cmocka_unit_test(a_no_that_was_told_to_nobody_is_decided_anew),
        cmocka_unit_test(so_is_a_refused_renewal),
        cmocka_unit_test(a_wait_asked_again_is_the_same_wait),
        cmocka_unit_test(the_ring_of_refusals_forgets_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
