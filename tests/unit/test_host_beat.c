#define _GNU_SOURCE
#include "broker/host_beat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

#define SECOND_NS INT64_C(1000000000)

static char dir[TEMP_DIR_MAX];
static int dir_fd;
static int fd;

static int set_up(void **state)
{
    (void)state;
    if (!temp_dir_make(dir)) {
        return -1;
    }
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = host_beat_open(dir_fd, true, 0660);
    return fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    host_clock_offset(0);
    (void)close(fd);
    (void)close(dir_fd);
    temp_dir_remove(dir);
    return 0;
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    struct host_beat beat;
    struct stat st;
    int64_t before = host_now_ns();
    assert_int_equal(host_beat_write(fd, HOST_BEAT_DAEMON), 0);
    int reader = host_beat_open(dir_fd, false, 0);
    assert_true(reader >= 0);
    assert_int_equal(host_beat_read(reader, &beat), 0);
    assert_int_equal(close(reader), 0);
    assert_int_equal(beat.pid, getpid());
    assert_int_equal(beat.kind, HOST_BEAT_DAEMON);
    assert_true(beat.beat_ns >= before && beat.beat_ns <= host_now_ns());
    assert_true(host_beat_alive(&beat, host_now_ns()));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 64);
    assert_int_equal(st.st_mode & 07777, 0660);
}

static void a_beat_goes_stale(void **state)
{
    (void)state;
    struct host_beat beat;
    assert_int_equal(host_beat_write(fd, HOST_BEAT_EMBEDDED), 0);
    assert_int_equal(host_beat_read(fd, &beat), 0);
    assert_true(host_beat_alive(&beat, beat.beat_ns + HOST_BEAT_STALE_NS));
    assert_false(host_beat_alive(&beat, beat.beat_ns + HOST_BEAT_STALE_NS + 1));
    host_clock_offset(3600 * SECOND_NS); /* the lid was closed for an hour */
    assert_false(host_beat_alive(&beat, host_now_ns()));
    assert_int_equal(host_beat_write(fd, HOST_BEAT_EMBEDDED), 0);
    assert_int_equal(host_beat_read(fd, &beat), 0);
    assert_true(host_beat_alive(&beat, host_now_ns()));
}

static void no_time_in_the_file_is_too_strange(void **state)
{
    (void)state;
    struct host_beat beat;
    assert_int_equal(host_beat_write(fd, HOST_BEAT_DAEMON), 0);
    assert_int_equal(host_beat_read(fd, &beat), 0);
    const int64_t strange[] = {INT64_MIN, -1, 0, INT64_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        beat.beat_ns = strange[i];
        assert_false(host_beat_alive(&beat, 3600 * SECOND_NS));
    }
}

static void a_dead_speaker_is_not_alive_however_fresh(void **state)
{
    (void)state;
    struct host_beat beat;
    pid_t child = fork();
    if (child == 0) {
        _exit(host_beat_write(fd, HOST_BEAT_DAEMON) ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(host_beat_read(fd, &beat), 0);
    assert_int_equal(beat.pid, child);
    assert_false(host_beat_alive(&beat, host_now_ns()));
    beat.pidns++; /* in another namespace the pid says nothing, freshness does */
    assert_true(host_beat_alive(&beat, host_now_ns()));
}

static void another_boots_beat_is_not_alive(void **state)
{
    (void)state;
    struct host_beat beat;
    assert_int_equal(host_beat_write(fd, HOST_BEAT_DAEMON), 0);
    assert_int_equal(host_beat_read(fd, &beat), 0);
    beat.boot += 2;
    assert_false(host_beat_alive(&beat, host_now_ns()));
    beat.boot = 0; /* not known: the rest decides */
    assert_true(host_beat_alive(&beat, host_now_ns()));
}

static void damage_is_told_from_absence(void **state)
{
    (void)state;
    struct host_beat beat;
    assert_int_equal(host_beat_read(fd, &beat), LEASE_EABSENT);
    assert_int_equal(pwrite(fd, "short", 5, 0), 5);
    assert_int_equal(host_beat_read(fd, &beat), LEASE_EDAMAGED);
    char other[64] = "another layout";
    assert_int_equal(pwrite(fd, other, 64, 0), 64);
    assert_int_equal(host_beat_read(fd, &beat), LEASE_ELAYOUT);
    assert_int_equal(beat.pid, 0);
    assert_false(host_beat_alive(&beat, 1));
    assert_int_equal(host_beat_read(-1, &beat), LEASE_EIO);
    assert_int_equal(host_beat_write(-1, 1), LEASE_EIO);
}

static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct host_beat beat;
    unsigned char bytes[64];
    assert_int_equal(host_beat_write(fd, HOST_BEAT_DAEMON), 0);
    assert_int_equal(pread(fd, bytes, 64, 0), 64);
    for (unsigned bit = 0; bit < 64 * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(pwrite(fd, bytes, 64, 0), 64);
        assert_true(host_beat_read(fd, &beat) < 0);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void planted_files_are_refused(void **state)
{
    (void)state;
    assert_int_equal(unlinkat(dir_fd, HOST_BEAT_NAME, 0), 0);
    assert_int_equal(host_beat_open(dir_fd, false, 0), LEASE_EABSENT);
    assert_int_equal(symlinkat("elsewhere", dir_fd, HOST_BEAT_NAME), 0);
    assert_int_equal(host_beat_open(dir_fd, true, 0600), LEASE_EPERM);
    assert_int_equal(unlinkat(dir_fd, HOST_BEAT_NAME, 0), 0);
    assert_int_equal(mkfifoat(dir_fd, HOST_BEAT_NAME, 0600), 0);
    assert_int_equal(host_beat_open(dir_fd, false, 0), LEASE_EPERM); /* and does not hang */
}

#define fresh(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        fresh(what_was_written_is_read),           fresh(a_beat_goes_stale),
        fresh(no_time_in_the_file_is_too_strange), fresh(a_dead_speaker_is_not_alive_however_fresh),
        fresh(another_boots_beat_is_not_alive),    fresh(damage_is_told_from_absence),
        fresh(every_flipped_bit_is_noticed),       fresh(planted_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
