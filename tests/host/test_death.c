/* Holders that are killed: what they held is free at the next look, what they had dispatched is not
 * before the reading shows it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/lib/client.h"
#include "tests/lib/host_stage.h"
#include "tests/lib/slotserver.h"

static char provider[128];
static bool dispatches;

static int holder(int index)
{
    (void)index;
    struct lease lease;
    struct lease_request request = {.size = sizeof request, .label = "the late holder"};
    lease_agent_t *agent = stage_open(provider, LEASE_OPEN_CLIENT);
    must(agent);
    must(lease_acquire(agent, "x", &request, &lease, NULL) == 0);
    if (dispatches)
        must(lease_verify(agent, lease.id, NULL, &lease, NULL) == 0);
    atomic_store(&board->step, 1);
    must(stage_await(&board->go, 1));
    return 0;
}

static pid_t start_holder(bool dispatched)
{
    dispatches = dispatched;
    atomic_store(&board->step, 0);
    pid_t pid = stage_play(holder, 0);
    assert_true(stage_await(&board->step, 1));
    return pid;
}

static struct slotserver *start_server(void)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.http_threads = 50;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    snprintf(provider, sizeof provider, "x=http://127.0.0.1:%u", slotserver_port(server));
    return server;
}

static void test_held_is_free_at_the_next_look(void **state)
{
    (void)state;
    struct lease lease;
    struct slotserver *server = start_server();
    lease_agent_t *agent = stage_open(provider, LEASE_OPEN_CLIENT);
    for (int i = 0; i < 10; i++) {
        pid_t pid = start_holder(false);
        assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), LEASE_EBUSY);
        stage_kill(pid);
        int64_t began = test_now_ns();
        assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
        assert_int_equal(lease_verify(agent, lease.id, NULL, NULL, NULL), 0);
        if (i == 0)
            print_message("go %.2f ms after the holder was killed\n",
                          (double)(test_now_ns() - began) / 1e6);
        assert_int_equal(lease_release(agent, lease.id, 0), 0);
    }
    lease_agent_close(&agent);
    slotserver_stop(server);
}

/* One that nobody has waited for yet: its pid still answers. */
static void test_a_zombie_is_dead(void **state)
{
    (void)state;
    char text[256];
    snprintf(provider, sizeof provider, "x=static:1,own=yes");
    pid_t pid = start_holder(false);
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(STAGE_RUN(text, LEASE, "run", "--provider", provider, "x", "--", "true"), 0);
}

static pid_t late_holder;

/* What it left running is shown under its name. */
static bool sees_orphan(void *agent)
{
    struct lease_fleet *fleet;
    bool found = false;
    if (lease_fleet(agent, &fleet) < 0)
        return false;
    for (uint32_t i = 0; i < fleet->work_count; i++) {
        const struct lease_work *work = &fleet->work[i];
        found =
            found || (strcmp(work->kind, "orphan") == 0 && work->was_pid == (uint32_t)late_holder &&
                      strcmp(work->was_label, "the late holder") == 0);
    }
    lease_fleet_free(&fleet);
    return found;
}

static void nobody_is_told_go(lease_agent_t *agent)
{
    struct lease lease;
    struct lease_verdict verdict;
    for (int64_t end = test_now_ns() + INT64_C(3000000000); test_now_ns() < end; usleep(50000)) {
        if (lease_acquire(agent, "x", NULL, &lease, &verdict) < 0)
            continue;
        assert_int_not_equal(lease_verify(agent, lease.id, NULL, &lease, &verdict), 0);
        lease_release(agent, lease.id, 0);
    }
    print_message("refused while it works: %s\n", verdict.reason);
}

static void dispatched_stays_while_the_server_works(bool with_agent)
{
    struct lease lease;
    struct slotserver *server = start_server();
    pid_t daemon = with_agent ? stage_start_agent(provider) : 0;
    lease_agent_t *agent = stage_open(provider, LEASE_OPEN_CLIENT);
    pid_t pid = start_holder(true);
    int work = client_begin(slotserver_port(server), "/completion",
                            "{\"prompt\":\"a\",\"stream\":true,\"n_predict\":100000}");
    assert_true(client_heard(work, 5000));
    stage_kill(pid);
    late_holder = pid;
    nobody_is_told_go(agent);
    assert_true(eventually(sees_orphan, agent));

    client_leave(work);
    int64_t left = test_now_ns(), deadline = left + INT64_C(10000000000);
    int rc = LEASE_EBUSY;
    while (rc != 0 && test_now_ns() < deadline) {
        struct lease_request request = {.size = sizeof request, .wait_ms = 1000};
        rc = lease_acquire(agent, "x", &request, &lease, NULL);
        if (rc == 0)
            rc = lease_verify(agent, lease.id, NULL, &lease, NULL);
    }
    assert_int_equal(rc, 0);
    int64_t took = test_now_ns() - left;
    print_message("go %.0f ms after its client had left\n", (double)took / 1e6);
    assert_true(took < stage_patience(5000) * 1000000);
    struct slotserver_stats stats;
    slotserver_stats(server, &stats);
    assert_int_equal(stats.in_slots, 0);
    lease_agent_close(&agent);
    if (with_agent)
        stage_stop_agent(daemon);
    slotserver_stop(server);
}

static void test_dispatched_without_agent(void **state)
{
    (void)state;
    dispatched_stays_while_the_server_works(false);
}

static void test_dispatched_with_agent(void **state)
{
    (void)state;
    dispatched_stays_while_the_server_works(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        staged(test_held_is_free_at_the_next_look), staged(test_a_zombie_is_dead),
        staged(test_dispatched_without_agent), staged(test_dispatched_with_agent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
