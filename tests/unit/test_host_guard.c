/* Mapped files that are cut short: what is guarded is survived, and nothing else is. */
#define _GNU_SOURCE
#include "broker/host_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check.h"

#define PAGES 3u

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* A file of three pages, all ones, and how it is mapped. */
struct mapped {
    int fd;
    unsigned char *at;
    int guard;
};

static struct mapped map_ones(bool guarded)
{
    struct mapped mapped = {.fd = memfd_create("book", MFD_CLOEXEC), .guard = -1};
    size_t size = PAGES * page_size();
    assert_true(mapped.fd >= 0);
    assert_int_equal(ftruncate(mapped.fd, (off_t)size), 0);
    mapped.at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, mapped.fd, 0);
    assert_true(mapped.at != MAP_FAILED);
    memset(mapped.at, 1, size);
    if (guarded)
        mapped.guard = host_guard_add(mapped.at, size);
    return mapped;
}

static void done(struct mapped *mapped)
{
    host_guard_drop(mapped->at);
    munmap(mapped->at, PAGES * page_size());
    close(mapped->fd);
}

static int touch(volatile const unsigned char *at)
{
    return *at;
}

/* The test library puts a handler of its own before each case: ours goes back in its place. */
static void put_handler(void)
{
    static struct sigaction ours;
    static bool installed;
    if (!installed) {
        signal(SIGBUS, SIG_DFL);
        assert_int_equal(host_guard_install(), 0);
        assert_int_equal(sigaction(SIGBUS, NULL, &ours), 0);
    }
    installed = true;
    assert_int_equal(host_guard_install(), 0); /* once more is nothing */
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

/* Runs it in a child, without a core file, and answers how that ended. */
static int ended(void (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- what is guarded ---------------------------------------------------------------------- */

static void a_page_that_is_gone_reads_as_zeros(void **state)
{
    (void)state;
    put_handler();
    struct mapped mapped = map_ones(true);
    assert_true(mapped.guard >= 0);
    assert_false(host_guard_was_hit(mapped.guard));
    assert_int_equal(ftruncate(mapped.fd, (off_t)page_size()), 0);
    assert_int_equal(touch(mapped.at), 1); /* still there */
    assert_false(host_guard_was_hit(mapped.guard));
    assert_int_equal(touch(mapped.at + page_size() + 5), 0);
    assert_true(host_guard_was_hit(mapped.guard));
    mapped.at[2 * page_size()] = 7; /* a touch that writes */
    assert_int_equal(touch(mapped.at + 2 * page_size()), 7);
    assert_int_equal(touch(mapped.at), 1);
    done(&mapped);
}

static void a_guard_that_is_taken_again_is_whole(void **state)
{
    (void)state;
    put_handler();
    struct mapped first = map_ones(true);
    assert_int_equal(ftruncate(first.fd, 0), 0);
    assert_int_equal(touch(first.at), 0);
    done(&first);
    struct mapped second = map_ones(true);
    assert_int_equal(second.guard, first.guard);
    assert_false(host_guard_was_hit(second.guard));
    done(&second);
    assert_false(host_guard_was_hit(-1));
}

static void *touch_in_thread(void *at)
{
    return (void *)(uintptr_t)touch(at);
}

/* Threads of ours get no signal; the one that a fault is must come through. */
static void a_thread_with_our_mask_survives_it(void **state)
{
    (void)state;
    pthread_t thread;
    sigset_t mask, before;
    void *read;
    put_handler();
    struct mapped mapped = map_ones(true);
    assert_int_equal(ftruncate(mapped.fd, 0), 0);
    host_guard_mask(&mask);
    assert_true(sigismember(&mask, SIGTERM));
    pthread_sigmask(SIG_SETMASK, &mask, &before);
    assert_int_equal(pthread_create(&thread, NULL, touch_in_thread, mapped.at), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(pthread_join(thread, &read), 0);
    assert_null(read);
    assert_true(host_guard_was_hit(mapped.guard));
    done(&mapped);
}

static void more_than_it_has_go_unguarded(void **state)
{
    (void)state;
    static unsigned char places[HOST_GUARD_MAX + 1];
    for (size_t i = 0; i < HOST_GUARD_MAX; i++)
        assert_int_equal(host_guard_add(&places[i], 1), (int)i);
    assert_int_equal(host_guard_add(&places[HOST_GUARD_MAX], 1), -1);
    host_guard_drop(&places[3]);
    assert_int_equal(host_guard_add(&places[HOST_GUARD_MAX], 1), 3);
    for (size_t i = 0; i <= HOST_GUARD_MAX; i++)
        host_guard_drop(&places[i]);
}

/* ---- what is not ----------------------------------------------------------------------------- */

static void touch_unguarded(void)
{
    host_guard_install();
    struct mapped mapped = map_ones(false);
    if (ftruncate(mapped.fd, 0) == 0)
        touch(mapped.at);
}

static void send_it(void)
{
    host_guard_install();
    raise(SIGBUS);
}

static void somebody_elses_fault_ends_the_process(void **state)
{
    (void)state;
    assert_int_equal(ended(touch_unguarded), 128 + SIGBUS);
    assert_int_equal(ended(send_it), 128 + SIGBUS);
}

static void leave_with_41(int number)
{
    _exit(number == SIGBUS ? 41 : 1);
}

static void leave_with_42(int number, siginfo_t *info, void *context)
{
    _exit(number == SIGBUS && info->si_code == BUS_ADRERR && context ? 42 : 1);
}

/* The handler is there for good, so that each runs in a process that has none yet. */
static void touch_before_a_handler(void)
{
    signal(SIGBUS, leave_with_41);
    touch_unguarded();
}

static void touch_before_a_handler_that_is_told(void)
{
    struct sigaction action = {.sa_sigaction = leave_with_42, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    touch_unguarded();
}

static void send_it_to_who_ignores_it(void)
{
    signal(SIGBUS, SIG_IGN);
    send_it();
    _exit(43);
}

static void it_is_passed_on_to_who_was_there_before(void **state)
{
    (void)state;
    assert_int_equal(ended(touch_before_a_handler), 41);
    assert_int_equal(ended(touch_before_a_handler_that_is_told), 42);
    assert_int_equal(ended(send_it_to_who_ignores_it), 43);
}

int main(void)
{
    /* First those whose children must find no handler yet. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(somebody_elses_fault_ends_the_process),
        cmocka_unit_test(it_is_passed_on_to_who_was_there_before),
        cmocka_unit_test(a_page_that_is_gone_reads_as_zeros),
        cmocka_unit_test(a_guard_that_is_taken_again_is_whole),
        cmocka_unit_test(a_thread_with_our_mask_survives_it),
        cmocka_unit_test(more_than_it_has_go_unguarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
