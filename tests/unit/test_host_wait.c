#define _GNU_SOURCE
#include "broker/host_wait.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "broker/error.h"
#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

#define MS      INT64_C(1000000)
#define LONG_NS (20000 * MS)

static void a_word_that_differs_is_no_wait(void **state)
{
    (void)state;
    _Atomic uint32_t word = 7;
    assert_int_equal(host_wait(&word, 6, HOST_WAIT_ANY, LONG_NS), HOST_WAIT_CHANGED);
    struct host_waited waited[2] = {{&word, 7}, {&word, 6}};
    assert_int_equal(host_wait_any(waited, 2, LONG_NS), HOST_WAIT_CHANGED);
}

static void a_wait_ends_at_its_time_and_not_before(void **state)
{
    (void)state;
    _Atomic uint32_t word = 7;
    struct host_waited waited = {&word, 7};
    int64_t begin = test_now_ns();
    assert_int_equal(host_wait(&word, 7, HOST_WAIT_ANY, 20 * MS), LEASE_ETIMEOUT);
    assert_true(test_now_ns() - begin >= 20 * MS);
    begin = test_now_ns();
    assert_int_equal(host_wait_any(&waited, 1, 20 * MS), LEASE_ETIMEOUT);
    assert_true(test_now_ns() - begin >= 20 * MS);
    assert_int_equal(host_wait(&word, 7, HOST_WAIT_ANY, 0), LEASE_ETIMEOUT);
    assert_int_equal(host_wait_any(NULL, 0, 0), LEASE_ETIMEOUT);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    struct host_waited waited[HOST_WAIT_MAX + 1];
    for (int i = 0; i <= HOST_WAIT_MAX; i++) {
        waited[i] = (struct host_waited){&word, 1};
    }
    assert_int_equal(host_wait(NULL, 0, 1, 0), LEASE_EINVAL);
    assert_int_equal(host_wait(&word, 0, 0, 0), LEASE_EINVAL);
    assert_int_equal(host_wake(NULL, 1), LEASE_EINVAL);
    assert_int_equal(host_wake(&word, 0), LEASE_EINVAL);
    assert_int_equal(host_wait_any(waited, HOST_WAIT_MAX + 1, 0), LEASE_EINVAL);
    assert_int_equal(host_wait_any(waited, HOST_WAIT_MAX, 0), HOST_WAIT_CHANGED);
    waited[3].word = NULL;
    assert_int_equal(host_wait_any(waited, 8, 0), LEASE_EINVAL);
}

static void nobody_asleep_is_nobody_woken(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    assert_int_equal(host_wake(&word, HOST_WAIT_ANY), 0);
}

/* A page that parent and child share, with a word per waiter. */
struct shared {
    _Atomic uint32_t word[4];
};

static struct shared *share(void)
{
    void *page = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

/* Changes and wakes until the child that sleeps on it has ended well. */
static void assert_wakes(struct shared *s, unsigned which, uint32_t bits, pid_t child)
{
    atomic_fetch_add(&s->word[which], 1);
    (void)host_wake(&s->word[which], bits);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_wake_reaches_another_process(void **state)
{
    (void)state;
    struct shared *s = share();
    pid_t child = fork();
    if (child == 0) {
        _exit(host_wait(&s->word[0], 0, 2, LONG_NS) == HOST_WAIT_CHANGED ? 0 : 1);
    }
    assert_wakes(s, 0, 2, child);
    child = fork();
    if (child == 0) {
        struct host_waited waited[3] = {{&s->word[1], 0}, {&s->word[2], 0}, {&s->word[3], 0}};
        _exit(host_wait_any(waited, 3, LONG_NS) == HOST_WAIT_CHANGED ? 0 : 1);
    }
    assert_wakes(s, 2, 2, child);
    assert_int_equal(munmap(s, sizeof *s), 0);
}

static void *sleep_on_first_bit(void *word)
{
    int rc = host_wait(word, 0, 1, LONG_NS);
    return rc == HOST_WAIT_CHANGED ? word : NULL;
}

static bool wakes_one(void *word)
{
    return host_wake(word, 1) == 1;
}

static void bits_choose_who_is_woken(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, sleep_on_first_bit, &word), 0);
    assert_int_equal(host_wake(&word, 2), 0); /* asleep or not, that bit is not his */
    assert_true(eventually(wakes_one, &word));
    void *ended = NULL;
    assert_int_equal(pthread_join(thread, &ended), 0);
    assert_non_null(ended);
}

static void on_signal(int number)
{
    (void)number;
}

struct sleeper {
    pthread_t thread;
    _Atomic uint32_t word;
    _Atomic int answer;
    bool any;
};

static void *sleep_until_signal(void *arg)
{
    struct sleeper *s = arg;
    struct host_waited waited = {&s->word, 0};
    int rc = s->any ? host_wait_any(&waited, 1, LONG_NS)
                    : host_wait(&s->word, 0, HOST_WAIT_ANY, LONG_NS);
    atomic_store(&s->answer, rc);
    return NULL;
}

static bool signalled_out(void *arg)
{
    struct sleeper *s = arg;
    if (atomic_load(&s->answer) != -1000) {
        return true;
    }
    (void)pthread_kill(s->thread, SIGUSR1); /* the first may come before it sleeps */
    return false;
}

static void a_signal_means_look_again(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    for (int any = 0; any < 2; any++) {
        struct sleeper s = {.answer = -1000, .any = any};
        assert_int_equal(pthread_create(&s.thread, NULL, sleep_until_signal, &s), 0);
        assert_true(eventually(signalled_out, &s));
        assert_int_equal(pthread_join(s.thread, NULL), 0);
        assert_int_equal(s.answer, HOST_WAIT_LOOK);
    }
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

/* The substitute must keep every promise that the futex keeps, but the count of the woken. */
static int look_only_on(void **state)
{
    (void)state;
    host_wait_look_only(true);
    return 0;
}

static int look_only_off(void **state)
{
    (void)state;
    host_wait_look_only(false);
    return 0;
}

#define with_look_only(test)                                                                       \
    {                                                                                              \
#test " (look)", test, look_only_on, look_only_off, NULL                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_that_differs_is_no_wait),
        cmocka_unit_test(a_wait_ends_at_its_time_and_not_before),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(nobody_asleep_is_nobody_woken),
        cmocka_unit_test(a_wake_reaches_another_process),
        cmocka_unit_test(bits_choose_who_is_woken),
        cmocka_unit_test(a_signal_means_look_again),
        with_look_only(a_word_that_differs_is_no_wait),
        with_look_only(a_wait_ends_at_its_time_and_not_before),
        with_look_only(nonsense_is_refused),
        with_look_only(a_wake_reaches_another_process),
        with_look_only(a_signal_means_look_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
