/* All programs of one user meet in one book, though nothing tells them where: clients of the library,
 * the command line and a daemon, from a login shell with XDG_RUNTIME_DIR and from something like
 * cron without it.
 *
 * Root would choose the directory of the whole machine, so root plays another user here, one whom
 * nobody has; whoever is not root cannot make that user's /run/user, and is skipped. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/lib/host_stage.h"

#define X        "x=static:1,own=yes"
#define SOMEBODY 64321

enum surroundings { LOGIN, CRON, SURROUNDINGS };

static char run_user[64], in_tmp[64];
static bool by_daemon;

/* ---- the user ---------------------------------------------------------------------------------- */

static void become_somebody(int surroundings)
{
    must(setgroups(0, NULL) == 0 && setgid(SOMEBODY) == 0 && setuid(SOMEBODY) == 0);
    unsetenv("LEASE_DIR");
    if (surroundings == LOGIN)
        setenv("XDG_RUNTIME_DIR", run_user, 1);
    else
        unsetenv("XDG_RUNTIME_DIR");
}

static void make_run_user(void)
{
    mkdir("/run/user", 0755);
    assert_int_equal(mkdir(run_user, 0700), 0);
    assert_int_equal(chown(run_user, SOMEBODY, SOMEBODY), 0);
}

static int set_up_somebody(void **state)
{
    snprintf(run_user, sizeof run_user, "/run/user/%d", SOMEBODY);
    snprintf(in_tmp, sizeof in_tmp, "/tmp/leasehold-%d", SOMEBODY);
    if (geteuid() == 0) {
        temp_dir_remove(run_user);
        temp_dir_remove(in_tmp);
    }
    if (stage_set_up(state) < 0)
        return -1;
    return geteuid() == 0 ? chown(".", SOMEBODY, SOMEBODY) : 0;
}

static int tear_down_somebody(void **state)
{
    int result = stage_tear_down(state);
    if (geteuid() == 0) {
        temp_dir_remove(run_user);
        temp_dir_remove(in_tmp);
    }
    return result;
}

static void root_only(void)
{
    if (geteuid() != 0) {
        print_message("skipped: becoming somebody else wants root\n");
        skip();
    }
}

/* ---- parts ------------------------------------------------------------------------------------- */

static int keep_the_slot(int surroundings)
{
    struct lease lease;
    become_somebody(surroundings);
    lease_agent_t *agent = stage_open(X, by_daemon ? LEASE_OPEN_CLIENT : 0);
    must(agent && lease_agent_reach(agent) == LEASE_REACH_HOST);
    must(lease_acquire(agent, "x", NULL, &lease, NULL) == 0);
    must(lease_verify(agent, lease.id, NULL, NULL, NULL) == 0);
    atomic_fetch_add(&board->step, 1);
    must(stage_await(&board->go, 1));
    lease_agent_close(&agent);
    return 0;
}

/* Exit code 0 where the slot was to be had, as `lease run` has it; 75 where it was not. */
static int try_by_library(int surroundings)
{
    struct lease lease;
    become_somebody(surroundings);
    lease_agent_t *agent = stage_open(X, 0);
    must(agent && lease_agent_reach(agent) == LEASE_REACH_HOST);
    int rc = lease_acquire(agent, "x", NULL, &lease, NULL);
    must(rc == 0 || rc == LEASE_EBUSY);
    lease_agent_close(&agent);
    return rc == 0 ? 0 : 75;
}

static int try_by_command_line(int surroundings)
{
    become_somebody(surroundings);
    execl(LEASE, LEASE, "run", "--provider", X, "x", "--", "true", (char *)NULL);
    return 127;
}

static int be_the_daemon(int surroundings)
{
    become_somebody(surroundings);
    execl(LEASE_AGENT, LEASE_AGENT, "--provider", X, (char *)NULL);
    return 127;
}

static void all_find(int code)
{
    for (int surroundings = 0; surroundings < SURROUNDINGS; surroundings++) {
        assert_int_equal(stage_end(stage_play(try_by_library, surroundings)), code);
        assert_int_equal(stage_end(stage_play(try_by_command_line, surroundings)), code);
    }
}

static pid_t start_keeper(int surroundings)
{
    atomic_store(&board->go, 0);
    atomic_store(&board->step, 0);
    pid_t pid = stage_play(keep_the_slot, surroundings);
    assert_true(stage_await(&board->step, 1));
    return pid;
}

static void end_keeper(pid_t pid)
{
    atomic_store(&board->go, 1);
    assert_int_equal(stage_end(pid), 0);
}

static bool is_socket(void *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISSOCK(status.st_mode);
}

static pid_t start_daemon(int surroundings, const char *parent)
{
    char path[128];
    pid_t pid = stage_play(be_the_daemon, surroundings);
    snprintf(path, sizeof path, "%s/agent.ipc", parent);
    assert_true(eventually(is_socket, path));
    return pid;
}

/* ---- the cases ---------------------------------------------------------------------------------- */

static void test_without_a_daemon(void **state)
{
    (void)state;
    root_only();
    by_daemon = false;
    make_run_user();
    for (int surroundings = 0; surroundings < SURROUNDINGS; surroundings++) {
        pid_t keeper = start_keeper(surroundings);
        all_find(75);
        end_keeper(keeper);
        all_find(0);
    }
}

static void test_with_a_daemon(void **state)
{
    (void)state;
    char directory[80];
    root_only();
    by_daemon = true;
    make_run_user();
    snprintf(directory, sizeof directory, "%s/leasehold", run_user);
    for (int from = 0; from < SURROUNDINGS; from++) {
        pid_t daemon = start_daemon(from, directory);
        for (int surroundings = 0; surroundings < SURROUNDINGS; surroundings++) {
            pid_t keeper = start_keeper(surroundings);
            all_find(75);
            end_keeper(keeper);
            all_find(0);
        }
        stage_stop_agent(daemon);
    }
}

/* The user's daemon was started before anybody logged in, so that there was no /run/user yet. */
static void test_with_a_daemon_from_before_the_login(void **state)
{
    (void)state;
    root_only();
    by_daemon = true;
    pid_t daemon = start_daemon(CRON, in_tmp);
    pid_t keeper = start_keeper(CRON);
    make_run_user();
    all_find(75);
    end_keeper(keeper);
    keeper = start_keeper(LOGIN);
    all_find(75);
    end_keeper(keeper);
    all_find(0);
    stage_stop_agent(daemon);
}

/* The same with a program of cron's that speaks while it runs, and a daemon that comes later. */
static void test_a_daemon_that_comes_with_the_login(void **state)
{
    (void)state;
    root_only();
    by_daemon = false;
    pid_t keeper = start_keeper(CRON);
    make_run_user();
    all_find(75);
    pid_t daemon = start_daemon(LOGIN, in_tmp);
    all_find(75);
    end_keeper(keeper);
    all_find(0);
    stage_stop_agent(daemon);
}

#define by_somebody(test) cmocka_unit_test_setup_teardown(test, set_up_somebody, tear_down_somebody)

int main(void)
{
    const struct CMUnitTest tests[] = {
        by_somebody(test_without_a_daemon),
        by_somebody(test_with_a_daemon),
        by_somebody(test_with_a_daemon_from_before_the_login),
        by_somebody(test_a_daemon_that_comes_with_the_login),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
