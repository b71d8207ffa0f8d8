/* Epochs only grow, whatever the wall clock and the disk do. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/host_epoch.h"
#include "broker/limits.h"
#include "tests/lib/temp_dir.h"

static char directory[TEMP_DIR_MAX];

static int setup(void **state)
{
    (void)state;
    assert_true(temp_dir_make(directory));
    setenv("STATE_DIRECTORY", directory, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(directory);
    unsetenv("STATE_DIRECTORY");
    return 0;
}

static void write_kept(const char *text)
{
    char path[TEMP_DIR_MAX + 16];
    snprintf(path, sizeof path, "%s/z4.epoch", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void it_is_above_the_wall_clock(void **state)
{
    (void)state;
    assert_true(host_epoch_next("z4", 0) > (uint64_t)time(NULL) - 1);
}

static void each_is_above_the_one_before(void **state)
{
    (void)state;
    uint64_t first = host_epoch_next("z4", 0), second = host_epoch_next("z4", 0);
    assert_true(second > first);
}

static void it_is_above_what_was_kept_though_the_wall_clock_fell_back(void **state)
{
    (void)state;
    write_kept("4000000000\n");
    assert_int_equal(host_epoch_next("z4", 0), 4000000001);
    assert_int_equal(host_epoch_next("z4", 0), 4000000002);
}

static void it_is_above_what_the_book_has(void **state)
{
    (void)state;
    assert_int_equal(host_epoch_next("z4", 5000000000), 5000000001);
}

static void garbage_is_passed_over(void **state)
{
    (void)state;
    const char *garbage[] = {"", "x", "-1", "99999999999999999999999", "\n\n", "12abc"};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        write_kept(garbage[i]);
        uint64_t epoch = host_epoch_next("z4", 0);
        assert_true(epoch >= (uint64_t)time(NULL) && epoch <= (uint64_t)time(NULL) + 10);
    }
}

static void without_a_directory_the_wall_clock_decides(void **state)
{
    (void)state;
    setenv("STATE_DIRECTORY", "/proc/nowhere", 1);
    assert_true(host_epoch_next("z4", 0) >= (uint64_t)time(NULL));
    setenv("STATE_DIRECTORY", directory, 1);
}

static void it_never_leaves_what_a_token_can_hold(void **state)
{
    (void)state;
    assert_int_equal(host_epoch_next("z4", EPOCH_MAX), EPOCH_MAX);
}

static uint64_t read_number(const char *path)
{
    unsigned long long number = 0;
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%llu", &number) != 1)
        number = 0;
    if (file)
        fclose(file);
    return number;
}

/* Whoever was killed while it kept an epoch may have had our process id. */
static void what_a_killed_one_left_is_in_nobodys_way(void **state)
{
    (void)state;
    char path[TEMP_DIR_MAX + 48], kept[TEMP_DIR_MAX + 16];
    snprintf(path, sizeof path, "%s/z4.epoch.%ld.0", directory, (long)getpid());
    snprintf(kept, sizeof kept, "%s/z4.epoch", directory);
    FILE *left = fopen(path, "w");
    assert_non_null(left);
    fclose(left);
    uint64_t epoch = host_epoch_next("z4", 0);
    assert_int_equal(read_number(kept), epoch);
}

/* Where it is kept, by what the environment says; the directories are made. */
static void it_is_kept_where_the_environment_says(void **state)
{
    (void)state;
    static const char *const variables[] = {"XDG_STATE_HOME", "HOME"};
    static const char *const paths[] = {"leasehold/z4.epoch", ".local/state/leasehold/z4.epoch"};
    char home[256] = "", kept[TEMP_DIR_MAX + 48];
    snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "/");
    unsetenv("STATE_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
    for (int i = 0; i < (geteuid() == 0 ? 1 : 2); i++) {
        setenv(variables[i], directory, 1);
        uint64_t epoch = host_epoch_next("z4", 0);
        snprintf(kept, sizeof kept, "%s/%s", directory, paths[i]);
        assert_int_equal(read_number(kept), epoch);
        unsetenv(variables[i]);
    }
    if (geteuid() != 0) /* nowhere to keep it */
        assert_true(host_epoch_next("z4", 0) >= (uint64_t)time(NULL));
    setenv("HOME", home, 1);
}

/* Something stands in its place that cannot be replaced. */
static void what_cannot_be_kept_leaves_nothing(void **state)
{
    (void)state;
    char path[TEMP_DIR_MAX + 48];
    snprintf(path, sizeof path, "%s/z4.epoch", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(host_epoch_next("z4", 0) >= (uint64_t)time(NULL));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(directory), 0); /* empty */
    assert_int_equal(mkdir(directory, 0700), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(it_is_above_the_wall_clock),
        TEST(each_is_above_the_one_before),
        TEST(it_is_above_what_was_kept_though_the_wall_clock_fell_back),
        TEST(it_is_above_what_the_book_has),
        TEST(garbage_is_passed_over),
        TEST(without_a_directory_the_wall_clock_decides),
        TEST(it_never_leaves_what_a_token_can_hold),
        TEST(what_a_killed_one_left_is_in_nobodys_way),
        TEST(it_is_kept_where_the_environment_says),
        TEST(what_cannot_be_kept_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
