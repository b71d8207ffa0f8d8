/* Who speaks for the host: the first library process, then the next one when it dies, a daemon as
 * soon as there is one, and never two daemons. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>

#include "broker/host_beat.h"
#include "broker/host_clock.h"
#include "tests/lib/host_stage.h"

#define X "x=static:1,own=yes"

static bool speaker_is(pid_t pid, bool daemon)
{
    int dir = open(stage_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : host_beat_open(dir, false, 0);
    struct host_beat beat;
    bool so = fd >= 0 && host_beat_read(fd, &beat) == 0 && host_beat_alive(&beat, host_now_ns()) &&
              beat.pid == (uint32_t)pid && (beat.kind == HOST_BEAT_DAEMON) == daemon;
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return so;
}

static bool embedded_speaks(void *pid)
{
    return speaker_is(*(pid_t *)pid, false);
}

static bool daemon_speaks(void *pid)
{
    return speaker_is(*(pid_t *)pid, true);
}

static int placement(int index)
{
    (void)index;
    lease_agent_t *agent = stage_open(X, 0);
    must(agent);
    atomic_fetch_add(&board->step, 1);
    must(stage_await(&board->go, 1));
    lease_agent_close(&agent);
    return 0;
}

static pid_t start_placement(void)
{
    uint32_t before = atomic_load(&board->step);
    pid_t pid = stage_play(placement, 0);
    assert_true(stage_await(&board->step, before + 1));
    return pid;
}

static bool status_says(const char *text)
{
    char out[8192];
    return STAGE_RUN(out, LEASE, "status", "--json") == 0 && strstr(out, text);
}

static void test_the_next_one_takes_over(void **state)
{
    (void)state;
    pid_t first = start_placement();
    assert_true(eventually(embedded_speaks, &first));
    pid_t second = start_placement();
    assert_true(embedded_speaks(&first));
    stage_kill(first);
    int64_t began = test_now_ns();
    assert_true(eventually(embedded_speaks, &second));
    int64_t took = (test_now_ns() - began) / 1000000;
    print_message("taken over after %lld ms\n", (long long)took);
    assert_true(took < stage_patience(3000));
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)second);
    assert_true(status_says(pid));
}

static void test_a_daemon_gets_the_office(void **state)
{
    (void)state;
    pid_t embedded = start_placement();
    assert_true(eventually(embedded_speaks, &embedded));
    int64_t began = test_now_ns();
    pid_t daemon = stage_start_agent(X);
    assert_true(eventually(daemon_speaks, &daemon));
    int64_t took = (test_now_ns() - began) / 1000000;
    print_message("handed over after %lld ms\n", (long long)took);
    assert_true(took < stage_patience(3000));

    /* And back, when the daemon has gone. */
    stage_stop_agent(daemon);
    assert_true(eventually(embedded_speaks, &embedded));
    atomic_store(&board->go, 1);
    assert_int_equal(stage_end(embedded), 0);
}

static void test_a_second_daemon_is_refused(void **state)
{
    (void)state;
    char text[512], wanted[32];
    pid_t first = stage_start_agent(X);
    char *const argv[] = {LEASE_AGENT, "--dir", stage_dir, NULL};
    int64_t began = test_now_ns();
    assert_int_equal(stage_end(stage_start(argv, NULL, "second.err")), 69);
    assert_true(test_now_ns() - began < stage_patience(5000) * 1000000);
    assert_true(stage_read("second.err", text, sizeof text));
    print_message("%s", text);
    snprintf(wanted, sizeof wanted, "(pid %d)", (int)first);
    assert_non_null(strstr(text, wanted));
    assert_true(daemon_speaks(&first));
    stage_stop_agent(first);
}

static void test_term_ends_it_within_a_second(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        pid_t daemon = stage_start_agent(X);
        int64_t began = test_now_ns();
        kill(daemon, signals[i]);
        assert_int_equal(stage_end(daemon), 0);
        int64_t took = (test_now_ns() - began) / 1000000;
        print_message("ended after %lld ms\n", (long long)took);
        assert_true(took < stage_patience(1000));
        assert_false(daemon_speaks(&daemon) && status_says("\"answers\":true"));
    }
}

/* ---- the configuration ------------------------------------------------------------------------ */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static bool fleet_knows(void *name)
{
    char out[8192], wanted[64];
    snprintf(wanted, sizeof wanted, "\"provider\":\"%s\"", (const char *)name);
    return STAGE_RUN(out, LEASE, "fleet", "--json") == 0 && strstr(out, wanted);
}

static bool file_says(void *text)
{
    char out[4096];
    return stage_read("daemon.err", out, sizeof out) && strstr(out, text);
}

static void test_hup_reads_the_configuration_again(void **state)
{
    (void)state;
    char out[2048];
    write_file("leasehold.conf", "provider one = static:1\n");
    char *const argv[] = {LEASE_AGENT, "--dir", stage_dir, "--config", "leasehold.conf", NULL};
    pid_t daemon = stage_start(argv, NULL, "daemon.err");
    assert_true(eventually(daemon_speaks, &daemon));
    assert_true(eventually(fleet_knows, "one"));
    assert_false(fleet_knows("two"));
    assert_int_equal(STAGE_RUN(out, LEASE, "acquire", "one"), 0);
    out[strcspn(out, "\n")] = '\0';

    write_file("leasehold.conf", "provider one = static:1\nprovider two = static:2\n");
    kill(daemon, SIGHUP);
    assert_true(eventually(fleet_knows, "two"));
    assert_true(eventually(daemon_speaks, &daemon));
    char verdict[2048];
    assert_int_equal(STAGE_RUN(verdict, LEASE, "verify", out), 0); /* leases are not touched */

    write_file("leasehold.conf", " nonsense\n");
    kill(daemon, SIGHUP);
    assert_true(eventually(file_says, "stays as it was"));
    assert_true(fleet_knows("two"));
    kill(daemon, SIGTERM);
    assert_int_equal(stage_end(daemon), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        staged(test_the_next_one_takes_over),           staged(test_a_daemon_gets_the_office),
        staged(test_a_second_daemon_is_refused),        staged(test_term_ends_it_within_a_second),
        staged(test_hup_reads_the_configuration_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
