/* Small files that are replaced as a whole (the kept epoch, agent.json): whoever writes one is killed at
 * the border of each of its system calls, for nothing else changes a file, and at instructions in
 * between; then the file is the old or the new one, and the next writer replaces it. */
#define _GNU_SOURCE
#include "tests/lib/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/effective.h"
#include "broker/host_epoch.h"
#include "tests/crash/stepper.h"
#include "tests/lib/temp_dir.h"

enum { CALLS_MAX = 2000, INSTRUCTIONS_MAX = 3000000, SAMPLES = 24 };

static char directory[TEMP_DIR_MAX], epoch_path[TEMP_DIR_MAX + 64], json_path[TEMP_DIR_MAX + 64];

#define OLD_EPOCH UINT64_C(5000000000) /* above the wall clock */

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
    close(fd);
}

static void read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);
    text[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* ---- the kept epoch -------------------------------------------------------------------------- */

static void clear(void)
{
    temp_dir_remove(directory);
    if (mkdir(directory, 0700) < 0)
        abort();
    setenv("STATE_DIRECTORY", directory, 1);
    snprintf(epoch_path, sizeof epoch_path, "%s/z4.epoch", directory);
    snprintf(json_path, sizeof json_path, "%s/" EFFECTIVE_FILE, directory);
}

static void epoch_before(void)
{
    clear();
    write_text(epoch_path, "5000000000\n");
}

static void epoch_write(void *context)
{
    (void)context;
    raise(STEP_BEGIN);
    (void)host_epoch_next("z4", 0);
    raise(STEP_END);
}

static bool epoch_is(bool new)
{
    char text[64];
    read_text(epoch_path, text, sizeof text);
    return strcmp(text, new ? "5000000001\n" : "5000000000\n") == 0;
}

static bool epoch_goes_on(void)
{
    char text[64];
    read_text(epoch_path, text, sizeof text);
    uint64_t kept = strtoull(text, NULL, 10), next = host_epoch_next("z4", 0);
    return next > kept && host_epoch_next("z4", 0) > next;
}

/* The first one, in a directory that is not there either. */
static void first_before(void)
{
    clear();
    if (rmdir(directory) < 0)
        abort();
}

static void first_write(void *context)
{
    (void)context;
    raise(STEP_BEGIN);
    (void)host_epoch_next("z4", OLD_EPOCH);
    raise(STEP_END);
}

static bool first_is(bool new)
{
    char text[64];
    read_text(epoch_path, text, sizeof text);
    return strcmp(text, new ? "5000000001\n" : "") == 0;
}

/* ---- agent.json ------------------------------------------------------------------------------ */

static struct effective effective_of(uint32_t pid)
{
    static struct effective effective;
    memset(&effective, 0, sizeof effective);
    snprintf(effective.name, sizeof effective.name, "m5");
    effective.pid = pid;
    effective.provider_count = 3;
    for (uint32_t i = 0; i < 3; i++)
        snprintf(effective.providers[i].text, EFFECTIVE_SPEC_SIZE, "p%u=static:%u", i, pid);
    return effective;
}

static void json_before(void)
{
    clear();
    struct effective effective = effective_of(1);
    if (effective_write(directory, &effective, 0600) < 0)
        abort();
}

static void json_write(void *context)
{
    (void)context;
    struct effective effective = effective_of(2);
    raise(STEP_BEGIN);
    (void)effective_write(directory, &effective, 0600);
    raise(STEP_END);
}

static bool json_is_by(uint32_t pid)
{
    static struct effective got;
    struct effective wanted = effective_of(pid);
    return effective_read(directory, &got) == 0 && memcmp(&got, &wanted, sizeof got) == 0;
}

static bool json_is(bool new)
{
    return json_is_by(new ? 2 : 1);
}

static bool json_goes_on(void)
{
    struct effective effective = effective_of(3);
    return effective_write(directory, &effective, 0600) == 0 && json_is_by(3);
}

/* ---- killing --------------------------------------------------------------------------------- */

static const struct replacement {
    const char *name;
    void (*before)(void);
    void (*write)(void *context);
    bool (*is)(bool new);
    bool (*goes_on)(void);
} replacements[] = {
    {"epoch", epoch_before, epoch_write, epoch_is, epoch_goes_on},
    {"first_epoch", first_before, first_write, first_is, epoch_goes_on},
    {"agent_json", json_before, json_write, json_is, json_goes_on},
};

static pid_t start(const struct replacement *replacement)
{
    replacement->before();
    pid_t pid = step_start(replacement->write, NULL);
    if (step_run(pid) != STEP_MARK)
        abort();
    return pid;
}

struct score {
    uint32_t kills, torn, wedged;
};

static void judge(const struct replacement *replacement, struct score *score)
{
    score->kills++;
    score->torn += !(replacement->is(false) || replacement->is(true));
    score->wedged += !replacement->goes_on();
}

/* Killed at the n-th border of a system call; false where there are not so many. */
static bool kill_at_call(const struct replacement *replacement, uint32_t n, struct score *score)
{
    pid_t pid = start(replacement);
    enum step_event event = STEP_STEPPED;
    for (uint32_t i = 0; i < n && event == STEP_STEPPED; i++)
        event = step_to_call(pid);
    step_kill(pid);
    judge(replacement, score);
    return event == STEP_STEPPED;
}

static uint32_t kill_at_step(const struct replacement *replacement, uint32_t n, struct score *score)
{
    uint32_t steps = 0;
    pid_t pid = start(replacement);
    while (steps < n && step_once(pid) == STEP_STEPPED)
        steps++;
    step_kill(pid);
    judge(replacement, score);
    return steps;
}

static void test_replacement(void **state)
{
    const struct replacement *replacement = *state;
    struct score score = {0};
    uint32_t calls = 0;
    while (calls < CALLS_MAX && kill_at_call(replacement, calls, &score))
        calls++;
    uint32_t steps = kill_at_step(replacement, INSTRUCTIONS_MAX, &score);
    for (uint32_t i = 1; i < SAMPLES; i++)
        (void)kill_at_step(replacement, steps / SAMPLES * i, &score);
    print_message(
        "%s: %u instructions, %u borders of system calls; killed at each and at %u others: "
        "%u torn, %u wedged\n",
        replacement->name, steps, calls, score.kills - calls, score.torn, score.wedged);
    assert_true(calls > 4 && calls < CALLS_MAX && steps < INSTRUCTIONS_MAX);
    assert_int_equal(score.torn, 0);
    assert_int_equal(score.wedged, 0);
    temp_dir_remove(directory);
}

/* What a writer in place would leave is found. */
static void write_in_place(void *context)
{
    (void)context;
    raise(STEP_BEGIN);
    write_text(epoch_path, "5000000001\n");
    raise(STEP_END);
}

static void test_the_sin_of_writing_in_place(void **state)
{
    (void)state;
    struct replacement sin = replacements[0];
    struct score score = {0};
    sin.write = write_in_place;
    for (uint32_t n = 0; kill_at_call(&sin, n, &score); n++)
        continue;
    print_message("in place: killed at %u borders, %u torn\n", score.kills, score.torn);
    assert_true(score.torn > 0);
    temp_dir_remove(directory);
}

int main(int argc, char **argv)
{
    (void)argc;
    step_without_strings(argv);
    if (!temp_dir_make(directory))
        return 1;
    struct CMUnitTest tests[] = {
        {"epoch", test_replacement, NULL, NULL, (void *)(uintptr_t)&replacements[0]},
        {"first_epoch", test_replacement, NULL, NULL, (void *)(uintptr_t)&replacements[1]},
        {"agent_json", test_replacement, NULL, NULL, (void *)(uintptr_t)&replacements[2]},
        cmocka_unit_test(test_the_sin_of_writing_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
