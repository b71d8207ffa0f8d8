/* What befalls a book is heard of, and what its own work does to it is not. */
#define _GNU_SOURCE
#include "agent/book_watch.h"

#include "tests/lib/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/temp_dir.h"

#define LONG_MS  20000
#define SHORT_MS 50

static char directory[TEMP_DIR_MAX], book[TEMP_DIR_MAX + 16];
static int watch_fd, wake_fd;

static int begin(void **state)
{
    (void)state;
    watch_fd = book_watch_open();
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!temp_dir_make(directory) || watch_fd < 0 || wake_fd < 0)
        return -1;
    snprintf(book, sizeof book, "%s/x.v1.book", directory);
    int fd = open(book, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int failed = ftruncate(fd, 4096);
    close(fd);
    book_watch_add(watch_fd, directory, "x");
    book_watch_add(watch_fd, directory, "x"); /* the keeper does it with each look */
    return failed;
}

static int end(void **state)
{
    (void)state;
    close(watch_fd);
    close(wake_fd);
    temp_dir_remove(directory);
    return 0;
}

static int64_t wait_ms(int64_t ms)
{
    int64_t began = test_now_ns();
    book_watch_wait(watch_fd, wake_fd, ms);
    return (test_now_ns() - began) / 1000000;
}

static void cut_short_is_heard(void **state)
{
    (void)state;
    assert_int_equal(truncate(book, 0), 0);
    assert_true(wait_ms(LONG_MS) < LONG_MS / 2);
}

/* While somebody has it open, which keeps the file itself alive. */
static void removed_is_heard(void **state)
{
    (void)state;
    int fd = open(book, O_RDWR | O_CLOEXEC);
    assert_int_equal(unlink(book), 0);
    assert_true(wait_ms(LONG_MS) < LONG_MS / 2);
    close(fd);
}

static void made_anew_is_heard(void **state)
{
    (void)state;
    assert_int_equal(unlink(book), 0);
    wait_ms(LONG_MS);
    close(open(book, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    assert_true(wait_ms(LONG_MS) < LONG_MS / 2);
}

static void daily_work_is_not_heard(void **state)
{
    (void)state;
    int fd = open(book, O_RDWR | O_CLOEXEC);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    at[7] = 7;
    assert_int_equal(flock(fd, LOCK_UN), 0);
    assert_true(wait_ms(SHORT_MS) >= SHORT_MS - 1);
    munmap(at, 4096);
    close(fd);
}

static void the_wait_can_be_ended(void **state)
{
    (void)state;
    eventfd_write(wake_fd, 1);
    assert_true(wait_ms(LONG_MS) < LONG_MS / 2);
}

int main(void)
{
#define fresh(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        fresh(cut_short_is_heard),      fresh(removed_is_heard),      fresh(made_anew_is_heard),
        fresh(daily_work_is_not_heard), fresh(the_wait_can_be_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
