/* Against a server that tells: a burst of N verifies on N idle slots is N times *go*, and programs
 * under `lease run` never make the server queue. Run with "request PORT" it is one such program. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>

#include "tests/lib/client.h"
#include "tests/lib/host_stage.h"
#include "tests/lib/slotserver.h"

#define ROUNDS 5

static char name[16], provider[128];
static struct slotserver *server;
static char self[256];

static void start_server(unsigned slots)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.slots = slots;
    options.http_threads = 200;
    server = slotserver_start(&options);
    assert_non_null(server);
    snprintf(name, sizeof name, "x%u", slots); /* another server, another book */
    snprintf(provider, sizeof provider, "%s=http://127.0.0.1:%u", name, slotserver_port(server));
}

/* ---- a burst --------------------------------------------------------------------------------- */

static int verifier(int index)
{
    struct lease lease;
    struct lease_verdict verdict;
    lease_agent_t *agent = stage_open(provider, 0);
    must(agent);
    int rc = lease_acquire(agent, name, NULL, &lease, &verdict);
    if (rc < 0)
        fprintf(stderr, "acquire: %d %s\n", rc, verdict.reason);
    must(rc == 0);
    atomic_fetch_add(&board->step, 1);
    must(stage_await(&board->go, 1));
    int64_t began = test_now_ns();
    rc = lease_verify(agent, lease.id, NULL, &lease, &verdict);
    atomic_store(&board->longest_ns[index], test_now_ns() - began);
    if (rc < 0)
        fprintf(stderr, "verify: %d %s\n", rc, verdict.reason);
    must(rc == 0 && verdict.go);
    atomic_fetch_add(&board->inside, 1);
    must(stage_await(&board->go, 2));
    lease_agent_close(&agent);
    return 0;
}

static void one_burst(unsigned slots, int64_t *longest_ns)
{
    pid_t pids[STAGE_PARTS];
    struct lease lease;
    struct lease_verdict verdict;
    atomic_store(&board->step, 0);
    atomic_store(&board->go, 0);
    atomic_store(&board->inside, 0);
    for (unsigned i = 0; i < slots; i++)
        pids[i] = stage_play(verifier, (int)i);
    assert_true(stage_await(&board->step, slots));
    atomic_store(&board->go, 1);
    assert_true(stage_await(&board->inside, slots));
    lease_agent_t *agent = stage_open(provider, LEASE_OPEN_CLIENT);
    assert_int_equal(lease_acquire(agent, name, NULL, &lease, &verdict), LEASE_EBUSY);
    assert_int_equal(verdict.undecided, 0);
    lease_agent_close(&agent);
    atomic_store(&board->go, 2);
    for (unsigned i = 0; i < slots; i++) {
        assert_int_equal(stage_end(pids[i]), 0);
        int64_t ns = atomic_load(&board->longest_ns[i]);
        *longest_ns = ns > *longest_ns ? ns : *longest_ns;
    }
}

static void bursts(bool with_agent)
{
    static const unsigned sizes[] = {1, 2, 4, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t longest_ns = 0;
        start_server(sizes[i]);
        pid_t daemon = with_agent ? stage_start_agent(provider) : 0;
        for (int round = 0; round < ROUNDS; round++)
            one_burst(sizes[i], &longest_ns);
        if (with_agent)
            stage_stop_agent(daemon);
        print_message("%u slots: %u times go in each of %d bursts, slowest verify %.1f ms\n",
                      sizes[i], sizes[i], ROUNDS, (double)longest_ns / 1e6);
        slotserver_stop(server);
    }
}

static void test_burst_without_agent(void **state)
{
    (void)state;
    bursts(false);
}

static void test_burst_with_agent(void **state)
{
    (void)state;
    bursts(true);
}

/* ---- programs under `lease run` -------------------------------------------------------------- */

#define PROGRAMS 8

static int request(unsigned port)
{
    struct answer answer =
        client_ask(port, "/completion", "{\"prompt\":\"a\",\"n_predict\":60}", NULL, 20000);
    int code = answer.status == 200 ? 0 : 1;
    client_done(&answer);
    return code;
}

static pid_t start_program(int index, char *wait)
{
    char port[16], err[32];
    snprintf(port, sizeof port, "%u", slotserver_port(server));
    snprintf(err, sizeof err, "err%d", index);
    char *argv[] = {LEASE, "run", "--provider", provider,  "--wait", wait,
                    name,  "--",  self,         "request", port,     NULL};
    return stage_start(argv, NULL, err);
}

static void one_wins(void)
{
    pid_t pids[PROGRAMS];
    int winners = 0;
    int64_t longest_ms = 0, began = test_now_ns();
    for (int i = 0; i < PROGRAMS; i++)
        pids[i] = start_program(i, "0");
    for (int left = PROGRAMS; left > 0;) {
        int status, i;
        pid_t pid = stage_next(&status);
        for (i = 0; i < PROGRAMS && pids[i] != pid; i++)
            continue;
        assert_true(i < PROGRAMS);
        left--;
        if (status == 0) {
            winners++;
            continue;
        }
        assert_int_equal(status, 75);
        longest_ms = (test_now_ns() - began) / 1000000;
    }
    print_message("%d dispatched, the last of the others was told no after %lld ms\n", winners,
                  (long long)longest_ms);
    assert_int_equal(winners, 1);
    assert_true(longest_ms < stage_patience(1000));
}

static void programs(bool with_agent)
{
    struct slotserver_stats stats;
    start_server(1);
    pid_t daemon = with_agent ? stage_start_agent(provider) : 0;
    for (int round = 0; round < 3; round++)
        one_wins();
    pid_t pids[PROGRAMS];
    for (int i = 0; i < PROGRAMS; i++)
        pids[i] = start_program(i, "60");
    for (int i = 0; i < PROGRAMS; i++)
        assert_int_equal(stage_end_within(pids[i], 60000), 0);
    slotserver_stats(server, &stats);
    print_message("the server had %lu tasks, at most %u at once, %lu had to queue\n", stats.tasks,
                  stats.max_in_slots, stats.queued);
    assert_int_equal(stats.tasks, 3 + PROGRAMS);
    assert_int_equal(stats.queued, 0);
    if (with_agent)
        stage_stop_agent(daemon);
    slotserver_stop(server);
}

static void test_programs_without_agent(void **state)
{
    (void)state;
    programs(false);
}

static void test_programs_with_agent(void **state)
{
    (void)state;
    programs(true);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "request") == 0)
        return request((unsigned)strtoul(argv[2], NULL, 10));
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        staged(test_burst_without_agent),
        staged(test_burst_with_agent),
        staged(test_programs_without_agent),
        staged(test_programs_with_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
