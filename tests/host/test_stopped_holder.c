/* A process that is stopped while it is inside the lock: everybody else is told no, soon and with
 * its pid; nobody hangs, and nobody decides go alone. Mere crowds never look like that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "broker/host_layout.h"
#include "broker/host_lock.h"
#include "broker/host_table.h"
#include "tests/lib/host_stage.h"

#define X       "x=static:1,own=yes"
#define SOON_MS 500 /* 20 are meant; the rest is for busy machines */

/* ---- the stopped one ------------------------------------------------------------------------- */

static void take_the_lock(const char *provider)
{
    static struct host_lock lock;
    char name[HOST_TABLE_NAME_SIZE];
    int dir = open(stage_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    host_table_name(provider, name);
    must(host_lock_open(&lock, dir, name, HOST_LOCK_CREATE, 0600) == 0);
    must(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, STAGE_PATIENT) == 0);
}

static int stopped(int index)
{
    (void)index;
    take_the_lock("x");
    raise(SIGSTOP);
    return 0;
}

static pid_t start_stopped(void)
{
    int status;
    pid_t pid = stage_play(stopped, 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

static void go_on(pid_t pid)
{
    kill(pid, SIGCONT);
    assert_int_equal(stage_end(pid), 0);
}

static void says_no_soon(int rc, int64_t began, const struct lease_verdict *verdict, pid_t pid)
{
    char wanted[32];
    int64_t took = (test_now_ns() - began) / 1000;
    snprintf(wanted, sizeof wanted, "pid %d,", (int)pid);
    print_message("no after %lld.%03lld ms: %s\n", (long long)took / 1000, (long long)took % 1000,
                  verdict->reason);
    assert_int_equal(rc, LEASE_ELOCKED);
    assert_int_equal(verdict->go, 0);
    assert_int_equal(verdict->undecided, 1);
    assert_non_null(strstr(verdict->reason, wanted));
    assert_true(took < stage_patience(SOON_MS) * 1000);
}

/* ---- the others ------------------------------------------------------------------------------ */

static void test_acquire_verify_and_release_come_back(void **state)
{
    (void)state;
    struct lease lease, unwanted;
    struct lease_verdict verdict;
    struct lease_request waits = {.size = sizeof waits, .wait_ms = 600000};
    lease_agent_t *agent = stage_open(X, 0), *other = stage_open(X, LEASE_OPEN_CLIENT);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    pid_t pid = start_stopped();

    int64_t began = test_now_ns();
    int rc = lease_acquire(other, "x", NULL, &unwanted, &verdict);
    says_no_soon(rc, began, &verdict, pid);
    began = test_now_ns();
    rc = lease_acquire(other, "x", &waits, &unwanted, &verdict);
    says_no_soon(rc, began, &verdict, pid);
    began = test_now_ns();
    rc = lease_verify(agent, lease.id, NULL, &unwanted, &verdict);
    says_no_soon(rc, began, &verdict, pid);
    began = test_now_ns();
    rc = lease_verify(agent, lease.id, &waits, &unwanted, &verdict);
    says_no_soon(rc, began, &verdict, pid);
    began = test_now_ns();
    assert_int_equal(lease_renew(agent, lease.id, 0, NULL), LEASE_ELOCKED);
    assert_true(test_now_ns() - began < stage_patience(SOON_MS) * 1000000);

    go_on(pid);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, &verdict), 0);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_int_equal(stage_available(other, "x"), 1);
    lease_agent_close(&agent);
    lease_agent_close(&other);
}

/* A release that finds the book locked is not forgotten. */
static void test_release_is_made_good(void **state)
{
    (void)state;
    struct lease lease;
    lease_agent_t *agent = stage_open(X, 0), *other = stage_open(X, LEASE_OPEN_CLIENT);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, NULL), 0);
    pid_t pid = start_stopped();
    int64_t began = test_now_ns();
    lease_release(agent, lease.id, 0);
    assert_true(test_now_ns() - began < stage_patience(SOON_MS) * 1000000);
    go_on(pid);
    int64_t deadline = test_now_ns() + INT64_C(5000000000);
    while (stage_available(other, "x") != 1 && test_now_ns() < deadline)
        usleep(1000);
    assert_int_equal(stage_available(other, "x"), 1);
    print_message("free %lld ms after the lock was\n",
                  (long long)(test_now_ns() - deadline) / 1000000 + 5000);
    lease_agent_close(&agent);
    lease_agent_close(&other);
}

static int waiter(int index)
{
    struct lease_request request = {.size = sizeof request, .wait_ms = 1000};
    struct lease lease;
    struct lease_verdict verdict;
    const char *const names[] = {"x"};
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    must(agent);
    atomic_fetch_add(&board->step, 1);
    int64_t began = test_now_ns();
    int rc = index ? lease_place(agent, names, 1, &request, &lease, &verdict)
                   : lease_acquire(agent, "x", &request, &lease, &verdict);
    int64_t took = (test_now_ns() - began) / 1000000;
    must(rc == LEASE_ELOCKED && strstr(verdict.reason, "book locked by pid"));
    must(took >= 900 && took < 1000 + stage_patience(SOON_MS));
    return 0;
}

static bool two_wait(void *agent)
{
    struct lease_view view;
    return stage_look(agent, "x", &view) && view.waiting == 2;
}

static void test_a_wait_ends_in_time(void **state)
{
    (void)state;
    struct lease lease;
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    pid_t first = stage_play(waiter, 0), second = stage_play(waiter, 1);
    assert_true(eventually(two_wait, agent));
    pid_t pid = start_stopped();
    assert_int_equal(stage_end(first), 0);
    assert_int_equal(stage_end(second), 0);
    go_on(pid);
    lease_agent_close(&agent);
}

static void test_command_line_is_told(void **state)
{
    (void)state;
    char text[1024];
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    pid_t daemon = stage_start_agent(X);
    pid_t pid = start_stopped();
    int64_t began = test_now_ns();
    char *const argv[] = {LEASE, "run", "--provider", X, "x", "--", "touch", "ran", NULL};
    assert_int_equal(stage_end(stage_start(argv, NULL, "err")), 75);
    assert_true(test_now_ns() - began < stage_patience(2 * SOON_MS) * 1000000);
    assert_true(stage_read("err", text, sizeof text));
    print_message("%s", text);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "pid %d,", (int)pid);
    assert_non_null(strstr(text, wanted));
    assert_int_equal(access("ran", F_OK), -1);
    assert_int_equal(STAGE_RUN(text, LEASE, "fleet", "--provider", X, "--json"), 0);
    go_on(pid);
    stage_stop_agent(daemon);
    lease_agent_close(&agent);
}

/* The book is not even there yet: its maker is stopped. Nobody may take that for no book at all. */
static void test_book_in_the_making(void **state)
{
    (void)state;
    pid_t pid = start_stopped();
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    struct lease lease;
    struct lease_verdict verdict = {.go = -1};
    int64_t began = test_now_ns();
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, &verdict), LEASE_ELOCKED);
    assert_true(test_now_ns() - began < stage_patience(SOON_MS) * 1000000);
    assert_int_equal(verdict.go, 0);
    assert_int_equal(verdict.undecided, 1);
    assert_non_null(strstr(verdict.reason, "book locked"));
    go_on(pid);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, &verdict), 0);
    assert_int_equal(lease.reach, LEASE_REACH_HOST);
    lease_agent_close(&agent);
}

/* ---- a crowd --------------------------------------------------------------------------------- */

#define CROWD "crowd=static:32,own=yes"

static int one_of_a_crowd(int index)
{
    lease_agent_t *agent = stage_open(CROWD, 0);
    must(agent);
    must(stage_await(&board->go, 1));
    while (atomic_load(&board->go) == 1) {
        struct lease lease;
        struct lease_verdict verdict;
        int rc = lease_acquire(agent, "crowd", NULL, &lease, &verdict);
        if (rc == 0)
            rc = lease_verify(agent, lease.id, NULL, &lease, &verdict);
        if (rc == 0)
            rc = lease_release(agent, lease.id, 0);
        if (rc == LEASE_ELOCKED) {
            fprintf(stderr, "%s\n", verdict.reason);
            atomic_fetch_add(&board->overlaps, 1);
        }
        must(rc == 0 || rc == LEASE_ELOCKED || rc == LEASE_EBUSY);
        atomic_fetch_add(&board->count[index], 1);
    }
    lease_agent_close(&agent);
    return 0;
}

static void test_a_crowd_is_not_a_stopped_holder(void **state)
{
    (void)state;
    enum { CROWD_SIZE = 32 };
    pid_t pids[CROWD_SIZE];
    uint64_t all = 0, least = UINT64_MAX;
    for (int i = 0; i < CROWD_SIZE; i++)
        pids[i] = stage_play(one_of_a_crowd, i);
    int64_t end = test_now_ns() + stage_number("LEASEHOLD_CROWD_MS", 5000) * 1000000;
    atomic_store(&board->go, 1);
    while (test_now_ns() < end)
        usleep(10000);
    atomic_store(&board->go, 2);
    for (int i = 0; i < CROWD_SIZE; i++) {
        assert_int_equal(stage_end(pids[i]), 0);
        uint64_t mine = atomic_load(&board->count[i]);
        all += mine;
        least = mine < least ? mine : least;
    }
    print_message("%llu rounds, least of one process %llu of %llu, %u found the book locked\n",
                  (unsigned long long)all, (unsigned long long)least,
                  (unsigned long long)(all / CROWD_SIZE), atomic_load(&board->overlaps));
    assert_int_equal(atomic_load(&board->overlaps), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        staged(test_acquire_verify_and_release_come_back),
        staged(test_release_is_made_good),
        staged(test_a_wait_ends_in_time),
        staged(test_command_line_is_told),
        staged(test_book_in_the_making),
        staged(test_a_crowd_is_not_a_stopped_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
