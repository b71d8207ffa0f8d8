#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/play.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static char script[] = "/tmp/probe-exec-XXXXXX";

static const struct reading *take(enum http_failure failure, int status, const char *body)
{
    static struct probe_run run;
    static struct provider_spec spec;
    struct engine_ask ask = {0};
    struct http_answer answer = {.failure = failure,
                                 .status = status,
                                 .body = body,
                                 .size = strlen(body),
                                 .reason = "a reason"};
    memset(&run, 0, sizeof run);
    spec = (struct provider_spec){.slots = -1, .program = "/bin/slots"};
    run.spec = &spec;
    reading_clear(&run.reading);
    engine_exec.begin(&run, 1000);
    assert_true(engine_exec.next(&run, 1000, &ask));
    assert_true(ask.program);
    engine_exec.take(&run, ask.kind, &answer);
    assert_false(engine_exec.next(&run, 1000, &ask));
    engine_exec.end(&run);
    return &run.reading;
}

static void reads(const char *name, enum health health, enum signal_kind kind, int total,
                  int in_flight, int queued)
{
    const struct recorded *found = recorded_find(all, all_count, name);
    assert_non_null(found);
    const struct reading *reading = take(HTTP_NONE, 0, found->body);
    assert_int_equal(reading->health, health);
    assert_int_equal(reading->signal, kind);
    assert_int_equal(reading->slots_total, total);
    assert_int_equal(reading->in_flight, in_flight);
    assert_int_equal(reading->queued, queued);
}

static void what_is_printed_is_read(void **state)
{
    (void)state;
    reads("idle.run.json", HEALTH_OK, SIGNAL_EXACT, 4, 0, -1);
    reads("busy.run.json", HEALTH_OK, SIGNAL_EXACT, 4, 4, -1);
    reads("queued.run.json", HEALTH_OK, SIGNAL_EXACT, 4, 4, 2);
    assert_string_equal(take(HTTP_NONE, 0, "{\"slots_total\":1,\"detail\":\"by hand\"}")->detail,
                        "by hand");
    reads("loading.run.json", HEALTH_LOADING, SIGNAL_NONE, 4, -1, -1);
    reads("capacity.run.json", HEALTH_OK, SIGNAL_NONE, 2, -1, -1);
    reads("sleeping.run.json", HEALTH_SLEEPING, SIGNAL_EXACT, 2, 0, -1);
    reads("down.run.json", HEALTH_DOWN, SIGNAL_NONE, -1, -1, -1);
    reads("garbage.run.txt", HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
}

static void odd_output_is_never_free(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "",
        "{}",
        "[]",
        "null",
        "0",
        "{\"in_flight\":0}",
        "{\"slots_total\":\"4\",\"in_flight\":0}",
        "{\"slots_total\":4,\"in_flight\":-1}",
        "{\"slots_total\":4,\"in_flight\":0.5}",
        "{\"slots_total\":0,\"in_flight\":0}",
        "{\"slots_total\":4,\"in_flight\":0,\"health\":\"fine\"}",
        "{\"slots_total\":4,\"in_flight\":0,\"health\":1}",
        "{\"slots_total\":4,\"in_flight\":0} {\"slots_total\":4,\"in_flight\":0}",
        "{\"slots_total\":4,\"in_flight\":0,\"in_flight\":4}",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const struct reading *reading = take(HTTP_NONE, 0, odd[i]);
        if (reading->health != HEALTH_UNKNOWN || reading->in_flight != -1)
            fail_msg("%s is read", odd[i]);
        assert_string_not_equal(reading->detail, "");
    }
}

static void a_program_that_fails_is_not_believed(void **state)
{
    (void)state;
    static const char idle[] = "{\"slots_total\":4,\"in_flight\":0}";
    assert_int_equal(take(HTTP_NONE, 1, idle)->health, HEALTH_UNKNOWN);
    assert_non_null(strstr(take(HTTP_NONE, 1, idle)->detail, "exit code 1"));
    assert_int_equal(take(HTTP_NONE, -9, idle)->health, HEALTH_UNKNOWN);
    assert_non_null(strstr(take(HTTP_NONE, -9, idle)->detail, "signal 9"));
    assert_int_equal(take(HTTP_TIMEOUT_ANSWER, 0, "")->health, HEALTH_BUSY);
    assert_int_equal(take(HTTP_TOO_LARGE, 0, "")->health, HEALTH_UNKNOWN);
    assert_int_equal(take(HTTP_UNREACHABLE, 0, "")->health, HEALTH_UNKNOWN);
    assert_non_null(strstr(take(HTTP_UNREACHABLE, 0, "")->detail, "/bin/slots: a reason"));
}

/* ---- for real ---- */

static struct reading probe(const char *program, const char *options, int probe_ms)
{
    struct provider_spec spec;
    struct reading reading;
    char text[256], error[SPEC_ERROR_SIZE];
    snprintf(text, sizeof text, "z4=%sexec:%s", options, program);
    if (spec_parse(text, &spec, error) != 0)
        fail_msg("%s", error);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, NULL, probe_ms, host_now_ns, &reading), 0);
    assert_string_equal(reading.engine, "exec");
    assert_true(reading.sent_ns > 0 && reading.answered_ns >= reading.sent_ns);
    return reading;
}

static struct reading probe_script(const char *body, const char *options, int probe_ms)
{
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fclose(file);
    assert_int_equal(chmod(script, 0700), 0);
    return probe(script, options, probe_ms);
}

static void a_script_is_asked(void **state)
{
    (void)state;
    struct reading reading = probe_script("echo \"{\\\"slots_total\\\":3,\\\"in_flight\\\":1,"
                                          "\\\"detail\\\":\\\"of $LEASE_PROVIDER\\\"}\"",
                                          "", 20000);
    assert_int_equal(reading.health, HEALTH_OK);
    assert_int_equal(reading.slots_total, 3);
    assert_int_equal(reading.in_flight, 1);
    assert_string_equal(reading.detail, "of z4");
    reading = probe_script("echo '{\"in_flight\":1}'", "slots=8,", 20000);
    assert_int_equal(reading.slots_total, 8);
    assert_int_equal(reading.in_flight, 1);
    reading = probe_script("exec sleep 600", "", 200);
    assert_int_equal(reading.health, HEALTH_BUSY);
    reading = probe("/nonexistent/slots", "", 1000);
    assert_int_equal(reading.health, HEALTH_UNKNOWN);
    assert_string_equal(reading.detail, "/nonexistent/slots: there is no such program");
}

static int kept_calls;
static struct reading kept;

static void keep(void *arg, const struct reading *reading)
{
    (void)arg;
    kept_calls++;
    kept = *reading;
}

/* In a loop, with others; and cancelled. */
static void several_run_at_once(void **state)
{
    (void)state;
    struct provider_spec spec;
    struct probe_target *targets[8];
    struct http *http;
    char error[SPEC_ERROR_SIZE], text[64];
    probe_script("sleep 0.2; echo '{\"slots_total\":1,\"in_flight\":0}'", "", 20000);
    snprintf(text, sizeof text, "a=exec:%s", script);
    assert_int_equal(spec_parse(text, &spec, error), 0);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(probe_target_new(&spec, host_now_ns, &targets[i]), 0);
        assert_int_equal(probe_start(http, targets[i], PROBE_FULL, NULL, 20000, keep, NULL), 0);
    }
    probe_cancel(targets[0]);
    http_drain(http);
    assert_int_equal(kept_calls, 7);
    assert_int_equal(kept.health, HEALTH_OK);
    for (int i = 0; i < 8; i++)
        probe_target_destroy(&targets[i]);
    http_close(&http);
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("exec", all);
    int fd = mkstemp(script);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    return unlink(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_is_read),
        cmocka_unit_test(odd_output_is_never_free),
        cmocka_unit_test(a_program_that_fails_is_not_believed),
        cmocka_unit_test(a_script_is_asked),
        cmocka_unit_test(several_run_at_once),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
