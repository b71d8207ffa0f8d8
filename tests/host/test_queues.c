/* Waiting with `lease run --wait` in two queues at once: first come, first served in each, on
 * whichever frees first, also where one of those who wait is killed. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "tests/lib/host_stage.h"

#define A       "a=static:1,own=yes"
#define B       "b=static:1,own=yes"
#define WAITERS 40
#define VICTIM  4
#define FIRST   10 /* are served on a before b is given free */

static lease_agent_t *agent;

static uint32_t waiting_on(const char *provider)
{
    struct lease_view view;
    return stage_look(agent, provider, &view) ? (uint32_t)view.waiting : 0;
}

static bool so_many_wait(void *count)
{
    uint32_t wanted = *(uint32_t *)count;
    return waiting_on("a") == wanted && waiting_on("b") == wanted;
}

static pid_t start_waiter(int index)
{
    char command[64];
    snprintf(command, sizeof command, "echo $LEASE_PROVIDER %d >>served", index);
    char *argv[] = {LEASE,     "run",    "--provider", A,    "--provider", B,    "--wait", "120",
                    "--label", "waiter", "a,b",        "--", "sh",         "-c", command,  NULL};
    return stage_start(argv, NULL, "waiter.err");
}

static uint32_t read_served(char *providers, int *indexes)
{
    FILE *file = fopen("served", "re");
    uint32_t count = 0;
    while (file && count < WAITERS &&
           fscanf(file, " %c %d", &providers[count], &indexes[count]) == 2)
        count++;
    if (file)
        fclose(file);
    return count;
}

static bool so_many_served(void *wanted)
{
    char providers[WAITERS];
    int indexes[WAITERS];
    return read_served(providers, indexes) >= *(uint32_t *)wanted;
}

static void in_order_of_coming(void)
{
    char providers[WAITERS];
    int indexes[WAITERS], last_a = -1, last_b = -1, on_b = 0;
    uint32_t count = read_served(providers, indexes);
    assert_int_equal(count, WAITERS - 1);
    for (uint32_t i = 0; i < count; i++) {
        int *last = providers[i] == 'a' ? &last_a : &last_b;
        assert_true(indexes[i] > *last);
        assert_int_not_equal(indexes[i], VICTIM);
        *last = indexes[i];
        on_b += providers[i] == 'b';
        if (i < FIRST)
            assert_int_equal(providers[i], 'a');
    }
    print_message("served on a: %d, on b: %d\n", (int)count - on_b, on_b);
    assert_true(on_b > 0);
}

static void queue_up_and_be_served(void)
{
    struct lease on_a, on_b;
    pid_t pids[WAITERS];
    const char *const declared[] = {A, B};
    struct lease_options options = {.size = sizeof options,
                                    .providers = declared,
                                    .provider_count = 2,
                                    .flags = LEASE_OPEN_CLIENT};
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
    assert_int_equal(lease_acquire(agent, "a", NULL, &on_a, NULL), 0);
    assert_int_equal(lease_verify(agent, on_a.id, NULL, NULL, NULL), 0);
    assert_int_equal(lease_acquire(agent, "b", NULL, &on_b, NULL), 0);
    assert_int_equal(lease_verify(agent, on_b.id, NULL, NULL, NULL), 0);
    for (uint32_t i = 0; i < WAITERS; i++) {
        uint32_t wanted = i + 1;
        pids[i] = start_waiter((int)i);
        assert_true(eventually(so_many_wait, &wanted));
    }
    stage_kill(pids[VICTIM]);

    int64_t began = test_now_ns();
    assert_int_equal(lease_release(agent, on_a.id, 0), 0);
    assert_true(eventually(so_many_served, &(uint32_t){FIRST}));
    assert_int_equal(lease_release(agent, on_b.id, 0), 0);
    for (int i = 0; i < WAITERS; i++)
        if (i != VICTIM)
            assert_int_equal(stage_end(pids[i]), 0);
    print_message("%d served in %lld ms\n", WAITERS - 1,
                  (long long)(test_now_ns() - began) / 1000000);
    in_order_of_coming();
    assert_true(so_many_wait(&(uint32_t){0}));
    lease_agent_close(&agent);
}

static void test_without_agent(void **state)
{
    (void)state;
    queue_up_and_be_served();
}

static void test_with_agent(void **state)
{
    (void)state;
    pid_t daemon = stage_start_agent(A);
    queue_up_and_be_served();
    stage_stop_agent(daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {staged(test_without_agent), staged(test_with_agent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
