#define _GNU_SOURCE
#include "agent/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"

static char folder[] = "/tmp/program-XXXXXX";
static char script_path[64];
static struct http *http;

static struct kept {
    int calls;
    enum http_failure failure;
    int status;
    size_t size;
    char body[PROGRAM_OUTPUT_MAX + 1];
} kept;

static void keep(void *arg, const struct http_answer *answer)
{
    struct kept *to = arg;
    to->calls++;
    to->failure = answer->failure;
    to->status = answer->status;
    to->size = answer->size;
    memcpy(to->body, answer->body, answer->size + 1);
}

static void write_script(const char *text, mode_t mode)
{
    int fd = open(script_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Runs the script to its end, or to ours. */
static void run(const char *script, int timeout_ms)
{
    char text[4096];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
    write_script(text, 0700);
    memset(&kept, 0, offsetof(struct kept, body));
    assert_int_equal(program_start(http, host_now_ns, script_path, "z4", timeout_ms, keep, &kept),
                     0);
    assert_int_equal(kept.calls, 0);
    http_drain(http);
    assert_int_equal(kept.calls, 1);
}

static bool has_no_child(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == -1 && errno == ECHILD;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    assert_non_null(list);
    while (readdir(list) != NULL)
        count++;
    closedir(list);
    return count;
}

static void output_and_exit_code_are_told(void **state)
{
    (void)state;
    run("printf '{\"slots_total\":1}'", 20000);
    assert_int_equal(kept.failure, HTTP_NONE);
    assert_int_equal(kept.status, 0);
    assert_string_equal(kept.body, "{\"slots_total\":1}");
    run("echo no; exit 3", 20000);
    assert_int_equal(kept.failure, HTTP_NONE);
    assert_int_equal(kept.status, 3);
    assert_string_equal(kept.body, "no\n");
    run("kill -SEGV $$", 20000);
    assert_int_equal(kept.status, -SIGSEGV);
    run("for i in 1 2 3; do printf $i; sleep 0.05; done", 20000);
    assert_string_equal(kept.body, "123");
    run("", 20000);
    assert_int_equal(kept.size, 0);
    assert_true(has_no_child());
}

static void it_is_alone_in_its_world(void **state)
{
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    char group[64];
    int leaky = open("/dev/null", O_RDONLY); /* not closed on exec, as a stranger's may be */
    assert_true(fcntl(leaky, F_DUPFD, 100) == 100);
    assert_int_equal(sigaction(SIGPIPE, &ignore, &before), 0);
    run("echo /proc/$$/fd/*", 20000);
    int fds = 0;
    for (const char *fd = strstr(kept.body, "/fd/"); fd != NULL; fd = strstr(fd + 1, "/fd/"))
        fds++;
    assert_in_range(fds, 3, 5); /* the script, and the folder that is read */
    assert_null(strstr(kept.body, "/fd/100"));
    run("readlink /proc/$$/fd/0 /proc/$$/fd/2; echo $LEASE_PROVIDER $#", 20000);
    assert_string_equal(kept.body, "/dev/null\n/dev/null\nz4 0\n");
    run("grep SigBlk /proc/$$/status | cut -f2", 20000);
    assert_string_equal(kept.body, "0000000000000000\n");
    run("grep SigIgn /proc/$$/status | cut -f2", 20000);
    assert_int_equal(strtoull(kept.body, NULL, 16) & 0x7fffffff, 0); /* above are libc's own */
    run("echo $$; cut -d' ' -f5 /proc/$$/stat", 20000);
    snprintf(group, sizeof group, "%ld\n%ld\n", atol(kept.body), atol(kept.body));
    assert_string_equal(kept.body, group); /* it leads its own group */
    sigaction(SIGPIPE, &before, NULL);
    close(leaky);
    close(100);
}

static void one_that_hangs_is_killed(void **state)
{
    (void)state;
    ns_t before = host_now_ns();
    run("printf '{\"slots_total\":1,\"in_flight\":0}'; exec sleep 600", 200);
    assert_int_equal(kept.failure, HTTP_TIMEOUT_ANSWER);
    assert_int_equal(kept.size, 0);
    assert_true(host_now_ns() - before >= 190 * NS_PER_MS);
    assert_true(host_now_ns() - before < 10000 * NS_PER_MS);
    run("trap '' TERM INT HUP; exec >&-; sleep 600", 200);
    assert_int_equal(kept.failure, HTTP_TIMEOUT_ANSWER);
    run("kill -STOP $$", 200);
    assert_int_equal(kept.failure, HTTP_TIMEOUT_ANSWER);
    assert_true(has_no_child());
    assert_int_equal(program_corpses(), 0);
}

/* Gone, or a zombie that init has not got to yet. */
static bool is_dead(long pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    bool got = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL)
        fclose(file);
    const char *end = strrchr(line, ')');
    return !got || end == NULL || end[2] == 'Z' || end[2] == 'X';
}

static void await_death(long pid)
{
    assert_true(pid > 1);
    for (int i = 0; i < 2000 && !is_dead(pid); i++)
        usleep(5000);
    assert_true(is_dead(pid));
}

static void what_it_leaves_behind_is_killed(void **state)
{
    (void)state;
    ns_t before = host_now_ns();
    run("sleep 600 & echo $!", 20000); /* holds the pipe, too: its end is not waited for */
    assert_int_equal(kept.failure, HTTP_NONE);
    assert_true(host_now_ns() - before < 15000 * NS_PER_MS);
    await_death(atol(kept.body));
    char text[128], path[64] = "";
    snprintf(text, sizeof text, "(sleep 600 & echo $! >%s/pid) ; sleep 600", folder);
    run(text, 500);
    assert_int_equal(kept.failure, HTTP_TIMEOUT_ANSWER);
    snprintf(path, sizeof path, "%s/pid", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    unlink(path);
    await_death(atol(text));
}

static void too_much_is_refused(void **state)
{
    (void)state;
    ns_t before = host_now_ns();
    run("while :; do echo 0123456789012345678901234567890123456789; done", 20000);
    assert_int_equal(kept.failure, HTTP_TOO_LARGE);
    assert_int_equal(kept.size, 0);
    assert_true(host_now_ns() - before < 15000 * NS_PER_MS);
    run("head -c 65536 /dev/zero", 20000);
    assert_int_equal(kept.failure, HTTP_NONE);
    assert_int_equal(kept.size, PROGRAM_OUTPUT_MAX);
    run("head -c 65537 /dev/zero", 20000);
    assert_int_equal(kept.failure, HTTP_TOO_LARGE);
    assert_true(has_no_child());
}

static int start_of(const char *program)
{
    return program_start(http, host_now_ns, program, "z4", 1000, keep, &kept);
}

static void what_cannot_be_run_is_told(void **state)
{
    (void)state;
    int before = open_descriptors();
    char path[128];
    assert_int_equal(start_of("/nonexistent/program"), LEASE_EABSENT);
    assert_int_equal(start_of("no-such-program-anywhere"), LEASE_EABSENT);
    assert_int_equal(start_of("/bin/true x"), LEASE_EABSENT); /* no shell, no arguments */
    assert_int_equal(start_of(folder), LEASE_EPERM);
    write_script("#!/bin/sh\necho\n", 0600);
    assert_int_equal(start_of(script_path), LEASE_EPERM);
    write_script("echo {}\n", 0700);
    assert_int_equal(start_of(script_path), LEASE_EINVAL);
    write_script("#!/nonexistent/interpreter\n", 0700);
    assert_int_equal(start_of(script_path), LEASE_EABSENT);
    snprintf(path, sizeof path, "%s/x", script_path);
    assert_int_equal(start_of(path), LEASE_EABSENT);
    assert_int_equal(program_start(http, host_now_ns, "/bin/true", "z4", 0, keep, &kept),
                     LEASE_EINVAL);
    assert_int_equal(http_pending(http), 0);
    assert_int_equal(open_descriptors(), before);
    assert_true(has_no_child());
}

static void a_cancelled_one_dies_unheard(void **state)
{
    (void)state;
    run("true", 20000);
    int before = open_descriptors();
    write_script("#!/bin/sh\nexec sleep 600\n", 0700);
    kept.calls = 0;
    assert_int_equal(start_of(script_path), 0);
    http_cancel(http, &kept);
    assert_int_equal(http_pending(http), 1); /* its end */
    http_drain(http);
    assert_int_equal(http_pending(http), 0);
    assert_int_equal(kept.calls, 0);
    assert_true(has_no_child());
    assert_int_equal(open_descriptors(), before);
}

static void closing_the_loop_leaves_nothing(void **state)
{
    (void)state;
    struct http *other;
    int before = open_descriptors();
    write_script("#!/bin/sh\nexec sleep 600\n", 0700);
    kept.calls = 0;
    assert_int_equal(http_open(host_now_ns, &other), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(program_start(other, host_now_ns, script_path, "z4", 60000, keep, &kept),
                         0);
    http_close(&other);
    for (int i = 0; i < 2000 && program_corpses() > 0; i++)
        usleep(5000);
    assert_int_equal(program_corpses(), 0);
    assert_true(has_no_child());
    assert_int_equal(kept.calls, 0);
    assert_int_equal(open_descriptors(), before);
}

static void a_stranger_s_children_are_left_to_him(void **state)
{
    (void)state;
    int status;
    pid_t own = fork();
    assert_true(own >= 0);
    if (own == 0)
        _exit(7);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)own, &info, WEXITED | WNOWAIT), 0);
    run("echo {}", 20000);
    assert_int_equal(kept.status, 0);
    run("exec sleep 600", 100);
    assert_int_equal(waitpid(own, &status, 0), own);
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* He reaps all that dies, or has it reaped by the system: the output is there all the same. */
static void a_stranger_may_reap_ours(void **state)
{
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    assert_int_equal(sigaction(SIGCHLD, &ignore, &before), 0);
    run("echo {}; exit 5", 20000);
    assert_int_equal(kept.failure, HTTP_NONE);
    assert_int_equal(kept.status, 0); /* not known any more */
    assert_string_equal(kept.body, "{}\n");
    run("exec sleep 600", 100);
    assert_int_equal(kept.failure, HTTP_TIMEOUT_ANSWER);
    sigaction(SIGCHLD, &before, NULL);
    assert_true(has_no_child());
}

static void two_thousand_leave_nothing(void **state)
{
    (void)state;
    const char *text = getenv("PROGRAM_RUNS");
    long count = text != NULL ? atol(text) : 2000;
    run("true", 20000);
    int before = open_descriptors();
    kept.calls = 0;
    for (long i = 0; i < count;) {
        for (int k = 0; k < 8; k++, i++)
            assert_int_equal(program_start(http, host_now_ns, i % 3 == 0 ? "/bin/true" : "/bin/cat",
                                           "z4", i % 50 == 0 ? 1 : 20000, keep, &kept),
                             0);
        http_drain(http);
        assert_true(open_descriptors() == before);
    }
    assert_int_equal(kept.calls, count);
    assert_true(has_no_child());
    assert_int_equal(program_corpses(), 0);
}

static int start(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(script_path, sizeof script_path, "%s/script", folder);
    return http_open(host_now_ns, &http);
}

static int stop(void **state)
{
    (void)state;
    http_close(&http);
    unlink(script_path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_exit_code_are_told),
        cmocka_unit_test(it_is_alone_in_its_world),
        cmocka_unit_test(one_that_hangs_is_killed),
        cmocka_unit_test(what_it_leaves_behind_is_killed),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(what_cannot_be_run_is_told),
        cmocka_unit_test(a_cancelled_one_dies_unheard),
        cmocka_unit_test(closing_the_loop_leaves_nothing),
        cmocka_unit_test(a_stranger_s_children_are_left_to_him),
        cmocka_unit_test(a_stranger_may_reap_ours),
        cmocka_unit_test(two_thousand_leave_nothing),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
