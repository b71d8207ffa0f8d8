/* The live words: sleepers wake, the office of prober passes on. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_wait.h"
#include "broker/host_words.h"
#include "tests/lib/temp_dir.h"

static struct host_words words;
static const struct effects nobody;

static int setup(void **state)
{
    (void)state;
    memset(&words, 0, sizeof words);
    return 0;
}

static void a_change_that_came_before_the_sleep_is_not_missed(void **state)
{
    (void)state;
    uint32_t seen = atomic_load(&words.change);
    host_words_announce(&words, &nobody);
    assert_int_equal(host_words_await_change(&words, seen, -1), HOST_WAIT_CHANGED);
}

static void without_a_change_the_sleep_times_out(void **state)
{
    (void)state;
    uint32_t seen = atomic_load(&words.change);
    assert_int_equal(host_words_await_change(&words, seen, 1000000), LEASE_ETIMEOUT);
}

static void *sleep_for_change(void *arg)
{
    uint32_t *seen = arg;
    host_words_await_change(&words, *seen, -1);
    return NULL;
}

static bool somebody_sleeps(void *arg)
{
    (void)arg;
    return atomic_load(&words.change) & 1;
}

static void all_who_sleep_wake_at_a_change(void **state)
{
    (void)state;
    pthread_t threads[4];
    uint32_t seen = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sleep_for_change, &seen), 0);
    assert_true(eventually(somebody_sleeps, NULL));
    host_words_announce(&words, &nobody);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&words.change) & 1, 0);
}

/* A sleeper that was killed left its bit: the next change clears it and nothing else happens. */
static void the_bit_of_a_dead_sleeper_is_cleared(void **state)
{
    (void)state;
    atomic_store(&words.change, 1);
    host_words_announce(&words, &nobody);
    assert_int_equal(atomic_load(&words.change), 2);
}

static void only_calls_move_the_call_word(void **state)
{
    (void)state;
    struct effects called = {.called_count = 1, .called = {3}};
    host_words_announce(&words, &nobody);
    assert_int_equal(atomic_load(&words.call), 0);
    host_words_announce(&words, &called);
    assert_int_equal(atomic_load(&words.call), 1);
}

static void the_office_is_taken_once(void **state)
{
    (void)state;
    ns_t now = host_now_ns();
    assert_false(host_words_is_probed(&words, now, NS_PER_SEC));
    assert_true(host_words_take_probe(&words, (uint32_t)getpid(), now, NS_PER_SEC));
    assert_true(host_words_is_probed(&words, now, NS_PER_SEC));
    assert_false(host_words_take_probe(&words, 1, now, NS_PER_SEC));
    host_words_leave_probe(&words, 1); /* not its to give back */
    assert_true(host_words_is_probed(&words, now, NS_PER_SEC));
    host_words_leave_probe(&words, (uint32_t)getpid());
    assert_true(host_words_take_probe(&words, 1, now, NS_PER_SEC));
}

static void who_takes_too_long_or_is_dead_loses_the_office(void **state)
{
    (void)state;
    ns_t now = host_now_ns();
    assert_true(
        host_words_take_probe(&words, (uint32_t)getpid(), now - 2 * NS_PER_SEC, NS_PER_SEC));
    assert_false(host_words_is_probed(&words, now, NS_PER_SEC));
    assert_true(host_words_take_probe(&words, 1, now, NS_PER_SEC));
    host_words_leave_probe(&words, 1);

    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    assert_true(host_words_take_probe(&words, (uint32_t)child, now, NS_PER_SEC));
    assert_true(host_words_take_probe(&words, (uint32_t)getpid(), now, NS_PER_SEC));
}

/* Whoever asks has looked at the clock a moment before the holder did. */
static void an_earlier_look_at_the_clock_takes_nothing(void **state)
{
    (void)state;
    ns_t now = host_now_ns();
    uint32_t self = (uint32_t)getpid();
    assert_true(host_words_take_probe(&words, self, now, NS_PER_SEC));
    assert_true(host_words_is_probed(&words, now - 5 * NS_PER_MS, NS_PER_SEC));
    assert_false(host_words_take_probe(&words, self, now - 5 * NS_PER_MS, NS_PER_SEC));
}

#define TAKERS 4
static _Atomic int takers_at_it, takers_most;

/* Long after the last one was at it, several want the office at once. */
static void *take_turns(void *arg)
{
    const uint32_t pid = *(uint32_t *)arg;
    for (int i = 0; i < 20000; i++) {
        ns_t now = host_now_ns();
        if (!host_words_take_probe(&words, pid, now,
                                   NS_NEVER)) /* a busy machine may stop us at it */
            continue;
        int others = atomic_fetch_add(&takers_at_it, 1);
        if (others + 1 > atomic_load(&takers_most))
            atomic_store(&takers_most, others + 1);
        atomic_fetch_sub(&takers_at_it, 1);
        host_words_leave_probe(&words, pid);
    }
    return NULL;
}

/* Whose office is his as long as he lives: a container may have no other process at all. */
static uint32_t a_living_process(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return (uint32_t)child;
}

static void one_at_a_time_holds_the_office(void **state)
{
    (void)state;
    pthread_t threads[TAKERS];
    uint32_t pids[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        pids[i] = a_living_process();
    for (int i = 0; i < TAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &pids[i]), 0);
    for (int i = 0; i < TAKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < TAKERS; i++) {
        kill((pid_t)pids[i], SIGKILL);
        waitpid((pid_t)pids[i], NULL, 0);
    }
    assert_int_equal(takers_most, 1);
}

static void who_looked_is_forgotten_after_a_while(void **state)
{
    (void)state;
    const ns_t then = 1000 * NS_PER_SEC;
    assert_false(host_words_are_watched(&words, then));
    host_words_watch(&words, then);
    assert_true(host_words_are_watched(&words, then));
    assert_true(host_words_are_watched(&words, then + WATCHED_MS * NS_PER_MS - 1));
    assert_false(host_words_are_watched(&words, then + WATCHED_MS * NS_PER_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_change_that_came_before_the_sleep_is_not_missed, setup),
        cmocka_unit_test_setup(without_a_change_the_sleep_times_out, setup),
        cmocka_unit_test_setup(all_who_sleep_wake_at_a_change, setup),
        cmocka_unit_test_setup(the_bit_of_a_dead_sleeper_is_cleared, setup),
        cmocka_unit_test_setup(only_calls_move_the_call_word, setup),
        cmocka_unit_test_setup(the_office_is_taken_once, setup),
        cmocka_unit_test_setup(an_earlier_look_at_the_clock_takes_nothing, setup),
        cmocka_unit_test_setup(one_at_a_time_holds_the_office, setup),
        cmocka_unit_test_setup(who_takes_too_long_or_is_dead_loses_the_office, setup),
        cmocka_unit_test_setup(who_looked_is_forgotten_after_a_while, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
