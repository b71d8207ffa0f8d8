/* Eight threads on one handle, of one process and against another one: the slots are never given
 * out twice, and ThreadSanitizer has nothing to say. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

#include "tests/lib/host_stage.h"

#define X       "x=static:2,own=yes"
#define THREADS 8

static lease_agent_t *agent;
static long rounds;

static void enter_and_leave(void)
{
    if (atomic_fetch_add(&board->inside, 1) >= 2)
        atomic_fetch_add(&board->overlaps, 1);
    atomic_fetch_sub(&board->inside, 1);
}

static void *work(void *arg)
{
    int index = (int)(intptr_t)arg;
    const char *const names[] = {"x"};
    struct lease_request request = {.size = sizeof request, .wait_ms = 30000};
    for (long i = 0; i < rounds; i++) {
        struct lease lease;
        struct lease_verdict verdict;
        int rc;
        if (i % 2) {
            rc = lease_place(agent, names, 1, &request, &lease, &verdict);
        } else {
            rc = lease_acquire(agent, "x", &request, &lease, &verdict);
            if (rc == 0)
                rc = lease_verify(agent, lease.id, NULL, &lease, &verdict);
        }
        if (rc < 0) {
            fprintf(stderr, "%d %s\n", rc, verdict.reason);
            return NULL;
        }
        enter_and_leave();
        if (i % 16 == 0)
            lease_renew(agent, lease.id, 0, &lease);
        atomic_fetch_add(&board->count[index], 1);
        if (lease_release(agent, lease.id, 0) < 0)
            return NULL;
    }
    return arg;
}

static void *look(void *arg)
{
    struct lease_event event;
    while (atomic_load(&board->go) == 0) {
        struct lease_view view;
        stage_look(agent, "x", &view);
        lease_event_next(agent, &event);
        usleep(500);
    }
    return arg;
}

static int another_process(int index)
{
    agent = stage_open(X, 0);
    must(agent);
    must(work((void *)(intptr_t)index) == (void *)(intptr_t)index);
    lease_agent_close(&agent);
    return 0;
}

static void test_threads_on_one_handle(void **state)
{
    (void)state;
    pthread_t threads[THREADS], looker;
    pid_t pid = stage_play(another_process, THREADS);
    agent = stage_open(X, 0);
    assert_int_equal(pthread_create(&looker, NULL, look, NULL), 0);
    int64_t began = test_now_ns();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    print_message("%ld grants in %.2f s\n", rounds * THREADS,
                  (double)(test_now_ns() - began) / 1e9);
    atomic_store(&board->go, 1);
    assert_int_equal(pthread_join(looker, NULL), 0);
    assert_int_equal(stage_end(pid), 0);
    for (int i = 0; i <= THREADS; i++)
        assert_int_equal(atomic_load(&board->count[i]), rounds);
    assert_int_equal(atomic_load(&board->overlaps), 0);
    assert_int_equal(stage_available(agent, "x"), 2);
    lease_agent_close(&agent);
}

/* The program may change its environment whenever it likes: threads of ours run, and do not look. */
static void test_the_environment_is_the_program_s(void **state)
{
    (void)state;
    char value[64];
    struct lease lease;
    agent = stage_open(X, 0);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    int64_t end = test_now_ns() + INT64_C(1500000000);
    for (unsigned i = 0; test_now_ns() < end; i++) {
        snprintf(value, sizeof value, "/nowhere/%u", i);
        setenv("XDG_RUNTIME_DIR", value, 1);
        setenv("LEASE_DIR", value, 1);
        usleep(100);
    }
    unsetenv("XDG_RUNTIME_DIR");
    assert_string_equal(lease_agent_directory(agent), stage_dir);
    assert_int_equal(lease_renew(agent, lease.id, 0, NULL), 0);
    lease_agent_close(&agent);
}

/* ---- closed and interrupted ------------------------------------------------------------------- */

static void *take_and_keep(void *arg)
{
    struct lease lease;
    lease_acquire(agent, "x", NULL, &lease, NULL);
    return arg;
}

static void test_closed_right_after_the_last_call(void **state)
{
    (void)state;
    lease_agent_t *other = stage_open(X, LEASE_OPEN_CLIENT);
    for (int i = 0; i < 20; i++) {
        pthread_t threads[2];
        agent = stage_open(X, 0);
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_create(&threads[k], NULL, take_and_keep, NULL), 0);
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_join(threads[k], NULL), 0);
        lease_agent_close(&agent);
        assert_int_equal(stage_available(other, "x"), 2);
    }
    lease_agent_close(&other);
}

static void *wait_for_a_slot(void *arg)
{
    struct lease lease;
    struct lease_request request = {.size = sizeof request, .wait_ms = 60000};
    *(int *)arg = lease_acquire(agent, "x", &request, &lease, NULL);
    return NULL;
}

static bool one_waits(void *other)
{
    struct lease_view view;
    return stage_look(other, "x", &view) && view.waiting == 1;
}

static void test_interrupted_while_waiting(void **state)
{
    (void)state;
    struct lease lease;
    pthread_t thread;
    int result = 0;
    lease_agent_t *other = stage_open(X, LEASE_OPEN_CLIENT);
    agent = stage_open(X, 0);
    assert_int_equal(lease_acquire(other, "x", NULL, &lease, NULL), 0);
    assert_int_equal(lease_acquire(other, "x", NULL, &lease, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_a_slot, &result), 0);
    assert_true(eventually(one_waits, other));
    int64_t began = test_now_ns();
    lease_interrupt(agent);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, LEASE_ECLOSED);
    assert_true(test_now_ns() - began < INT64_C(3000000000));
    struct lease_view view;
    assert_true(stage_look(other, "x", &view));
    assert_int_equal(view.waiting, 0);
    lease_agent_close(&agent);
    lease_agent_close(&other);
}

int main(void)
{
    rounds = stage_number("LEASEHOLD_ROUNDS", 300);
    const struct CMUnitTest tests[] = {
        staged(test_threads_on_one_handle),
        staged(test_the_environment_is_the_program_s),
        staged(test_closed_right_after_the_last_call),
        staged(test_interrupted_while_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
