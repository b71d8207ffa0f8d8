/* Many processes, one slot: never two *go* at once, nothing lost at the end, nobody starved.
 *
 *   LEASEHOLD_GRANTS     grants of each process, 500 by default; 20,000 is the full run
 *   LEASEHOLD_PROCESSES  how many, 32 by default; one more uses the command line */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>

#include "broker/host_clock.h"
#include "tests/lib/host_stage.h"

#define X "x=static:1,own=yes"

static long grants, processes;

static void one_grant(lease_agent_t *agent, int index)
{
    struct lease_request request = {.size = sizeof request, .wait_ms = 60000};
    struct lease lease;
    struct lease_verdict verdict;
    int64_t asked = test_now_ns();
    int rc = lease_acquire(agent, "x", &request, &lease, &verdict);
    if (rc < 0)
        fprintf(stderr, "acquire: %d %s\n", rc, verdict.reason);
    must(rc == 0);
    rc = lease_verify(agent, lease.id, NULL, &lease, &verdict);
    if (rc < 0)
        fprintf(stderr, "verify: %d %s\n", rc, verdict.reason);
    must(rc == 0);
    stage_enter(lease.token);
    int64_t took = test_now_ns() - asked;
    if (took > atomic_load(&board->longest_ns[index]))
        atomic_store(&board->longest_ns[index], took);
    atomic_fetch_add(&board->count[index], 1);
    stage_leave();
    must(lease_release(agent, lease.id, 0) == 0);
}

static int placement(int index)
{
    lease_agent_t *agent = stage_open(X, 0);
    must(agent);
    atomic_fetch_add(&board->step, 1);
    must(stage_await(&board->go, 1));
    for (long i = 0; i < grants; i++)
        one_grant(agent, index);
    atomic_store(&board->go, 2); /* the first one who is through */
    lease_agent_close(&agent);
    return 0;
}

/* The same by three runs of the program, until the others are through. */
static int command_line(int index)
{
    atomic_fetch_add(&board->step, 1);
    must(stage_await(&board->go, 1));
    while (atomic_load(&board->go) < 2) {
        char id[256], verdict[2048];
        must(STAGE_RUN(id, LEASE, "acquire", "--provider", X, "--wait", "60", "x") == 0);
        id[strcspn(id, "\n")] = '\0';
        must(STAGE_RUN(verdict, LEASE, "verify", "--json", "--provider", X, id) == 0);
        const char *token = strstr(verdict, "\"token\":");
        must(token);
        stage_enter(strtoull(token + 8, NULL, 10));
        atomic_fetch_add(&board->count[index], 1);
        stage_leave();
        must(STAGE_RUN(verdict, LEASE, "release", "--provider", X, id) == 0);
    }
    return 0;
}

/* Shares at the moment when the first one is through: with strict turns they are all alike. */
static void print_shares(uint64_t *count, double seconds)
{
    uint64_t least = UINT64_MAX, most = 0, all = 0;
    int64_t longest = 0;
    for (long i = 0; i < processes; i++) {
        least = count[i] < least ? count[i] : least;
        most = count[i] > most ? count[i] : most;
        all += atomic_load(&board->count[i]);
        int64_t ns = atomic_load(&board->longest_ns[i]);
        longest = ns > longest ? ns : longest;
    }
    print_message("%ld processes, %llu grants in %.2f s: %.0f a second, longest wait %lld ms, "
                  "command line %llu\n",
                  processes, (unsigned long long)all, seconds, (double)all / seconds,
                  (long long)longest / 1000000,
                  (unsigned long long)atomic_load(&board->count[processes]));
    print_message("least served: %llu when the first had %llu, share %.3f of an equal one\n",
                  (unsigned long long)least, (unsigned long long)most,
                  (double)least / (double)most);
    assert_true(least * 2 > most);
}

static void nobody_left_behind(void)
{
    struct lease_view view;
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    struct lease lease;
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_true(stage_look(agent, "x", &view));
    assert_int_equal(view.available, 1);
    assert_int_equal(view.leased + view.dispatched + view.waiting, 0);
    lease_agent_close(&agent);
}

static void contend(void)
{
    static uint64_t snapshot[STAGE_PARTS];
    pid_t pids[STAGE_PARTS];
    for (long i = 0; i < processes; i++)
        pids[i] = stage_play(placement, (int)i);
    pids[processes] = stage_play(command_line, (int)processes);
    assert_true(stage_await(&board->step, (uint32_t)processes + 1));
    int64_t began = test_now_ns();
    atomic_store(&board->go, 1);
    int64_t deadline = began + grants * processes * INT64_C(2000000) + INT64_C(20000000000);
    while (atomic_load(&board->go) < 2 && test_now_ns() < deadline)
        usleep(1000);
    for (long i = 0; i < processes; i++)
        snapshot[i] = atomic_load(&board->count[i]);
    for (long i = 0; i <= processes; i++)
        assert_int_equal(stage_end_within(pids[i], (deadline - test_now_ns()) / 1000000), 0);
    print_shares(snapshot, (double)(test_now_ns() - began) / 1e9);
    assert_int_equal(atomic_load(&board->overlaps), 0);
    assert_int_equal(atomic_load(&board->tokens_that_fell), 0);
    for (long i = 0; i < processes; i++)
        assert_int_equal(atomic_load(&board->count[i]), grants);
    assert_true(atomic_load(&board->count[processes]) > 0);
    nobody_left_behind();
}

static void test_without_agent(void **state)
{
    (void)state;
    contend();
}

static void test_with_agent(void **state)
{
    (void)state;
    pid_t agent = stage_start_agent(X);
    contend();
    stage_stop_agent(agent);
}

int main(void)
{
    grants = stage_number("LEASEHOLD_GRANTS", 500);
    processes = stage_number("LEASEHOLD_PROCESSES", 32);
    const struct CMUnitTest tests[] = {
        staged(test_without_agent),
        staged(test_with_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
