/* The live words: sleepers wake, the office of prober passes on. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <pthread.h>
#include <string.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_change_that_came_before_the_sleep_is_not_missed, setup),
        cmocka_unit_test_setup(without_a_change_the_sleep_times_out, setup),
        cmocka_unit_test_setup(all_who_sleep_wake_at_a_change, setup),
        cmocka_unit_test_setup(the_bit_of_a_dead_sleeper_is_cleared, setup),
        cmocka_unit_test_setup(only_calls_move_the_call_word, setup),
        cmocka_unit_test_setup(the_office_is_taken_once, setup),
        cmocka_unit_test_setup(who_takes_too_long_or_is_dead_loses_the_office, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
