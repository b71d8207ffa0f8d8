/* What a fork does to a handle: in the child every call says LEASE_EFORK and closing it is
 * harmless, while the parent goes on as if nothing had happened. And what closing does to leases. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "tests/lib/host_stage.h"

#define X "x=static:1,own=yes"

static lease_agent_t *agent;
static struct lease lease;

static int child_of_a_holder(int index)
{
    const char *const names[] = {"x"};
    struct lease other;
    struct lease_verdict verdict;
    struct lease_event event;
    struct lease_fleet *fleet;
    (void)index;
    must(lease_acquire(agent, "x", NULL, &other, &verdict) == LEASE_EFORK);
    must(lease_verify(agent, lease.id, NULL, &other, &verdict) == LEASE_EFORK);
    must(lease_renew(agent, lease.id, 0, &other) == LEASE_EFORK);
    must(lease_release(agent, lease.id, 0) == LEASE_EFORK);
    must(lease_place(agent, names, 1, NULL, &other, &verdict) == LEASE_EFORK);
    must(lease_fleet(agent, &fleet) == LEASE_EFORK);
    must(lease_event_next(agent, &event) == LEASE_EFORK);
    must(lease_event_fd(agent) == -1);
    must(lease_agent_reach(agent) == LEASE_REACH_NONE);
    must(lease_agent_directory(agent)[0] == '\0');
    must(strcmp(lease_agent_warning(agent), lease_strerror(LEASE_EFORK)) == 0);
    lease_interrupt(agent);
    lease_agent_close(&agent);
    must(agent == NULL);
    lease_agent_close(&agent);

    /* A handle of its own meets the parent's lease. */
    agent = stage_open(X, 0);
    must(agent);
    must(lease_acquire(agent, "x", NULL, &other, &verdict) == LEASE_EBUSY);
    lease_agent_close(&agent);
    return 0;
}

static void test_child_may_not_use_the_handle(void **state)
{
    (void)state;
    agent = stage_open(X, 0);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(stage_end(stage_play(child_of_a_holder, i)), 0);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, NULL), 0);
    assert_int_equal(lease_renew(agent, lease.id, 0, NULL), 0);
    assert_int_equal(stage_end(stage_play(child_of_a_holder, 0)), 0);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_int_equal(stage_available(agent, "x"), 1);
    lease_agent_close(&agent);
}

/* The lock that names the speaker must not live on in a child that outlives its parent. */
static int speaker_with_a_child(int index)
{
    (void)index;
    agent = stage_open(X, 0);
    must(agent);
    pid_t child = fork();
    if (child == 0) {
        stage_await(&board->go, 1);
        _exit(0);
    }
    atomic_store(&board->step, 1);
    stage_await(&board->go, 1);
    return 0;
}

static void test_child_does_not_inherit_the_office(void **state)
{
    (void)state;
    pid_t pid = stage_play(speaker_with_a_child, 0);
    assert_true(stage_await(&board->step, 1));
    stage_kill(pid);
    pid_t daemon = stage_start_agent(X);
    stage_stop_agent(daemon);
    atomic_store(&board->go, 1);
}

static void test_exec_inherits_nothing(void **state)
{
    (void)state;
    char text[4096];
    agent = stage_open(X, 0);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    assert_int_equal(STAGE_RUN(text, "/bin/ls", "-l", "/proc/self/fd"), 0);
    assert_null(strstr(text, stage_dir));
    assert_null(strstr(text, "eventfd"));
    assert_null(strstr(text, "eventpoll"));
    lease_agent_close(&agent);
}

static void test_closing_releases_what_is_held(void **state)
{
    (void)state;
    struct lease more;
    lease_agent_t *other = stage_open("x=static:3,own=yes", LEASE_OPEN_CLIENT);
    agent = stage_open("x=static:3,own=yes", 0);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    assert_int_equal(lease_acquire(agent, "x", NULL, &more, NULL), 0);
    assert_int_equal(lease_verify(agent, more.id, NULL, &more, NULL), 0);
    assert_int_equal(lease_acquire(other, "x", NULL, &more, NULL), 0);
    assert_int_equal(stage_available(other, "x"), 0);
    lease_agent_close(&agent);
    assert_int_equal(stage_available(other, "x"), 2);
    lease_agent_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        staged(test_child_may_not_use_the_handle),
        staged(test_child_does_not_inherit_the_office),
        staged(test_exec_inherits_nothing),
        staged(test_closing_releases_what_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
