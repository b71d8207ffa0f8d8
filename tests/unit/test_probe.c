#define _GNU_SOURCE
#include "agent/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/http_server.h"

static struct http_server server;
static char key_path[] = "/tmp/probe-key-XXXXXX";

/* ---- a server with one slot, as its options say ---- */

static atomic_bool hangs; /* /slots is accepted and not answered */
static atomic_bool waits; /* or not before it does so no more */
static atomic_bool is_old;
static char wanted_key[64];

static bool await_turn(void)
{
    while (atomic_load(&waits))
        usleep(1000);
    return true;
}

static void serve(struct http_server *self, int fd, const char *head)
{
    static const char props[] = "{\"total_slots\":1,\"is_sleeping\":false,\"endpoint_slots\":true,"
                                "\"endpoint_metrics\":false,\"model_alias\":\"m\"}";
    static const char old_props[] = "{\"total_slots\":1,\"model_alias\":\"m\"}";
    static const char slots[] = "[{\"id\":0,\"is_processing\":true,\"id_task\":7}]";
    static const char refusal[] = "{\"error\":{\"code\":401}}";
    (void)self;
    if (wanted_key[0] != '\0' && strstr(head, wanted_key) == NULL)
        http_server_answer(fd, 401, refusal, sizeof refusal - 1);
    else if (strncmp(head, "GET /base/props ", 16) == 0 && atomic_load(&is_old))
        http_server_answer(fd, 200, old_props, sizeof old_props - 1);
    else if (strncmp(head, "GET /base/props ", 16) == 0)
        http_server_answer(fd, 200, props, sizeof props - 1);
    else if (strncmp(head, "GET /base/slots ", 16) == 0 && await_turn() && !atomic_load(&hangs))
        http_server_answer(fd, 200, slots, sizeof slots - 1);
    else if (strncmp(head, "GET /base/slots ", 16) == 0)
        http_server_hang(fd);
    else
        http_server_answer(fd, 404, "", 0);
}

static struct provider_spec spec_of(const char *options)
{
    struct provider_spec spec;
    char text[1024], error[SPEC_ERROR_SIZE];
    snprintf(text, sizeof text, "z4=http://127.0.0.1:%d/base/v1%s", server.port, options);
    if (spec_parse(text, &spec, error) != 0)
        fail_msg("%s", error);
    return spec;
}

static struct provider_spec spec_exactly(const char *text)
{
    struct provider_spec spec;
    char error[SPEC_ERROR_SIZE];
    if (spec_parse(text, &spec, error) != 0)
        fail_msg("%s", error);
    return spec;
}

static struct reading now_of(const struct provider_spec *spec, int probe_ms)
{
    struct reading reading;
    memset(&reading, 0x5a, sizeof reading);
    assert_int_equal(probe_now(spec, PROBE_QUICK, NULL, probe_ms, host_now_ns, &reading), 0);
    assert_true(reading.sent_ns > 0 && reading.answered_ns >= reading.sent_ns);
    return reading;
}

struct kept {
    int calls;
    struct reading reading;
};

static void keep(void *arg, const struct reading *reading)
{
    struct kept *kept = arg;
    kept->calls++;
    kept->reading = *reading;
}

/* ---- blocking ---- */

static void a_server_is_read(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    ns_t before = host_now_ns();
    struct reading reading = now_of(&spec, 10000);
    assert_int_equal(reading.health, HEALTH_OK);
    assert_int_equal(reading.signal, SIGNAL_EXACT);
    assert_int_equal(reading.in_flight, 1);
    assert_int_equal(reading.slots[0].task, 7);
    assert_string_equal(reading.engine, "llama.cpp");
    assert_string_equal(reading.models[0].name, "m");
    assert_string_equal(reading.detail, "engine found out by /props");
    assert_true(reading.sent_ns >= before && reading.answered_ns <= host_now_ns());
}

static void nobody_there_is_down(void **state)
{
    (void)state;
    char text[64];
    snprintf(text, sizeof text, "a=http://127.0.0.1:%d", http_server_free_port());
    struct provider_spec spec = spec_exactly(text);
    struct reading reading = now_of(&spec, 10000);
    assert_int_equal(reading.health, HEALTH_DOWN);
    assert_int_equal(reading.in_flight, -1);
    assert_string_not_equal(reading.detail, "");
}

static void another_server_is_unknown(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    strcat(spec.probe_url, "/elsewhere");
    assert_int_equal(now_of(&spec, 10000).health, HEALTH_UNKNOWN);
}

static void static_asks_nobody(void **state)
{
    (void)state;
    struct provider_spec spec = spec_exactly("a=static:3");
    struct reading reading = now_of(&spec, 1);
    assert_int_equal(reading.health, HEALTH_OK);
    assert_int_equal(reading.signal, SIGNAL_NONE);
    assert_int_equal(reading.slots_total, 3);
    assert_int_equal(reading.in_flight, -1);
    assert_string_equal(reading.engine, "static");
    assert_true(reading.sent_ns == reading.answered_ns || reading.sent_ns < reading.answered_ns);
}

static void times_are_checked(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct reading reading, before;
    memset(&reading, 0x5a, sizeof reading);
    before = reading;
    assert_int_equal(probe_now(&spec, PROBE_QUICK, NULL, 0, host_now_ns, &reading), LEASE_EINVAL);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, NULL, -1, host_now_ns, &reading), LEASE_EINVAL);
    assert_memory_equal(&reading, &before, sizeof reading);
}

/* ---- keys ---- */

static void write_key(const char *text, mode_t mode)
{
    FILE *file = fopen(key_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(key_path, mode), 0);
}

static void keys_are_read_again_when_they_change(void **state)
{
    (void)state;
    char option[128];
    struct probe_target *target;
    struct http *http;
    struct kept kept = {0};
    snprintf(option, sizeof option, ",key-file=%s", key_path);
    struct provider_spec spec = spec_of(option);
    strcpy(wanted_key, "\r\nAuthorization: Bearer right\r\n");
    write_key("  wrong\t \nright\n", 0600);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    probe_start(http, target, PROBE_QUICK, NULL, 10000, keep, &kept);
    http_drain(http);
    assert_int_equal(kept.reading.health, HEALTH_UNAUTHORIZED);
    assert_non_null(strstr(kept.reading.detail, key_path));
    write_key("right\r\n", 0600);
    probe_start(http, target, PROBE_QUICK, NULL, 10000, keep, &kept);
    http_drain(http);
    assert_int_equal(kept.reading.health, HEALTH_OK);
    assert_string_equal(kept.reading.detail, "engine found out by /props");
    write_key("right", 0622);
    probe_start(http, target, PROBE_QUICK, NULL, 10000, keep, &kept);
    http_drain(http);
    assert_int_equal(kept.reading.health, HEALTH_OK);
    assert_non_null(strstr(kept.reading.detail, "others may write"));
    assert_int_equal(kept.calls, 3);
    probe_target_destroy(&target);
    http_close(&http);
    wanted_key[0] = '\0';
}

static void an_unusable_key_file_is_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "\n", "  \nkey\n", "a\x01z\n", "k\xc3\xa4y"};
    char option[128], longest[1200];
    int before = atomic_load(&server.requests);
    snprintf(option, sizeof option, ",key-file=%s", key_path);
    struct provider_spec spec = spec_of(option);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_key(bad[i], 0600);
        struct reading reading = now_of(&spec, 10000);
        assert_int_equal(reading.health, HEALTH_UNAUTHORIZED);
        assert_non_null(strstr(reading.detail, key_path));
    }
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    write_key(longest, 0600);
    assert_int_equal(now_of(&spec, 10000).health, HEALTH_UNAUTHORIZED);
    spec = spec_of(",key-file=/nonexistent/key");
    assert_non_null(strstr(now_of(&spec, 10000).detail, "/nonexistent/key: not found"));
    spec = spec_of(",key-file=/dev/zero"); /* not a file that ends */
    assert_int_equal(now_of(&spec, 10000).health, HEALTH_UNAUTHORIZED);
    assert_int_equal(atomic_load(&server.requests), before); /* nothing left without its key */
}

/* ---- in a loop ---- */

static void one_at_a_time(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct probe_target *target;
    struct http *http;
    struct kept kept = {0};
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    assert_int_equal(probe_start(http, target, PROBE_FULL, NULL, 10000, keep, &kept), 0);
    assert_true(probe_is_running(target));
    assert_int_equal(probe_start(http, target, PROBE_FULL, NULL, 10000, keep, &kept), LEASE_EBUSY);
    http_drain(http);
    assert_false(probe_is_running(target));
    assert_int_equal(kept.calls, 1);
    assert_int_equal(kept.reading.health, HEALTH_OK);
    assert_int_equal(probe_start(http, target, PROBE_FULL, &kept.reading, 10000, keep, &kept), 0);
    probe_cancel(target);
    assert_int_equal(http_pending(http), 0);
    assert_int_equal(probe_start(http, target, PROBE_FULL, NULL, 10000, keep, &kept), 0);
    http_run(http);
    probe_target_destroy(&target); /* under way */
    assert_null(target);
    probe_target_destroy(&target);
    http_drain(http);
    assert_int_equal(kept.calls, 1);
    http_close(&http);
}

/* How old a reading is, decides what is asked: with a clock that stands still it is always new. */
static ns_t frozen_now(void)
{
    return 1000 * NS_PER_SEC;
}

struct chain {
    struct http *http;
    struct probe_target *target;
    int left;
};

static void keep_and_go_on(void *arg, const struct reading *reading)
{
    struct chain *chain = arg;
    assert_int_equal(reading->health, HEALTH_OK);
    assert_int_equal(reading->in_flight, 1);
    assert_string_equal(reading->models[0].name, "m");
    if (--chain->left > 0) /* with the reading that is being given: it is copied first */
        assert_int_equal(probe_start(chain->http, chain->target, PROBE_QUICK, reading, 10000,
                                     keep_and_go_on, chain),
                         0);
}

static void a_callback_may_start_the_next(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct chain chain = {.left = 4};
    int before = atomic_load(&server.requests);
    assert_int_equal(http_open(host_now_ns, &chain.http), 0);
    assert_int_equal(probe_target_new(&spec, frozen_now, &chain.target), 0);
    assert_int_equal(
        probe_start(chain.http, chain.target, PROBE_QUICK, NULL, 10000, keep_and_go_on, &chain), 0);
    http_drain(chain.http);
    assert_int_equal(chain.left, 0);
    assert_int_equal(atomic_load(&server.requests) - before, 5); /* /props once */
    probe_target_destroy(&chain.target);
    http_close(&chain.http);
}

static void silence_is_busy_and_counted(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct probe_target *target;
    struct http *http;
    struct kept kept = {0};
    atomic_store(&hangs, true);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(probe_unanswered(target), i);
        ns_t before = host_now_ns();
        probe_start(http, target, PROBE_QUICK, NULL, 200, keep, &kept);
        http_drain(http);
        assert_true(host_now_ns() - before >= 190 * NS_PER_MS); /* the whole probe's time */
        assert_int_equal(kept.reading.health, HEALTH_BUSY);
        assert_int_equal(kept.reading.slots_total, 1);
        assert_int_equal(kept.reading.in_flight, -1);
    }
    assert_int_equal(probe_unanswered(target), 3);
    host_clock_offset(PROBE_UNANSWERED_MS * NS_PER_MS);
    assert_int_equal(probe_unanswered(target), 0);
    host_clock_offset(0);
    probe_target_destroy(&target);
    http_close(&http);
    atomic_store(&hangs, false);
}

static int asked(void)
{
    return atomic_load(&server.requests);
}

/* Of an old server, which has few threads, one question is out at most, and its answer is the sign
 * that the server is back. */
static void one_question_sits_at_an_old_server(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct probe_target *target;
    struct http *http;
    struct kept kept = {0};
    atomic_store(&waits, true);
    atomic_store(&is_old, true);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    assert_int_equal(probe_start(http, target, PROBE_QUICK, NULL, 200, keep, &kept), 0);
    http_drain(http);
    assert_int_equal(kept.reading.health, HEALTH_BUSY);
    assert_int_equal(kept.reading.threads, THREADS_FEW);
    assert_true(kept.reading.hung_ns >= kept.reading.sent_ns);
    ns_t hung_ns = kept.reading.hung_ns;
    int before = asked();
    for (int i = 0; i < 5; i++) {
        enum probe_wants wants = i % 2 == 0 ? PROBE_FULL : PROBE_QUICK;
        assert_int_equal(probe_start(http, target, wants, &kept.reading, 200, keep, &kept), 0);
        assert_int_equal(kept.calls, i + 2); /* at once */
        assert_int_equal(kept.reading.health, HEALTH_BUSY);
        assert_true(kept.reading.hung_ns == hung_ns);
        http_run(http);
    }
    assert_int_equal(asked(), before);
    assert_int_equal(probe_unanswered(target), 1);
    assert_false(probe_recovered(target));

    /* another process knows of it by the reading alone, for 60 s */
    struct reading other;
    assert_int_equal(probe_now(&spec, PROBE_QUICK, &kept.reading, 200, host_now_ns, &other), 0);
    assert_int_equal(other.health, HEALTH_BUSY);
    assert_int_equal(asked(), before);
    struct provider_spec elsewhere = spec;
    elsewhere.port++;
    strcat(elsewhere.probe_url, "/x"); /* another server */
    assert_int_equal(probe_now(&elsewhere, PROBE_QUICK, &kept.reading, 200, host_now_ns, &other),
                     0);
    assert_true(asked() > before);

    atomic_store(&waits, false);
    for (int i = 0; i < 1000 && !probe_recovered(target); i++) {
        struct pollfd ready = {.fd = http_fd(http), .events = POLLIN};
        poll(&ready, 1, 10);
        http_run(http);
    }
    int calls = kept.calls;
    assert_int_equal(probe_start(http, target, PROBE_QUICK, &kept.reading, 10000, keep, &kept), 0);
    http_drain(http);
    assert_int_equal(kept.calls, calls + 1);
    assert_int_equal(kept.reading.health, HEALTH_OK);
    assert_int_equal(kept.reading.in_flight, 1);
    assert_true(kept.reading.hung_ns == 0);
    assert_false(probe_recovered(target));
    probe_target_destroy(&target);
    http_close(&http);
    atomic_store(&is_old, false);
}

/* Who left a question behind and has ended frees nothing: it counts by time. */
static void what_was_left_behind_counts_for_60_s(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct reading reading;
    atomic_store(&is_old, true);
    atomic_store(&hangs, true);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, NULL, 100, host_now_ns, &reading), 0);
    atomic_store(&hangs, false);
    int before = asked();
    assert_int_equal(probe_now(&spec, PROBE_QUICK, &reading, 100, host_now_ns, &reading), 0);
    assert_int_equal(reading.health, HEALTH_BUSY);
    assert_int_equal(asked(), before);
    host_clock_offset(PROBE_UNANSWERED_MS * NS_PER_MS);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, &reading, 10000, host_now_ns, &reading), 0);
    host_clock_offset(0);
    assert_int_equal(reading.health, HEALTH_OK);
    atomic_store(&is_old, false);
}

/* A server with many threads is asked again: what was given up is gone there. */
static void a_new_server_is_asked_again(void **state)
{
    (void)state;
    struct provider_spec spec = spec_of("");
    struct reading reading;
    atomic_store(&hangs, true);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, NULL, 100, host_now_ns, &reading), 0);
    assert_int_equal(reading.threads, THREADS_MANY);
    assert_int_equal(reading.health, HEALTH_BUSY);
    assert_true(reading.hung_ns == 0);
    atomic_store(&hangs, false);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, &reading, 10000, host_now_ns, &reading), 0);
    assert_int_equal(reading.health, HEALTH_OK);
}

static int start(void **state)
{
    (void)state;
    int fd = mkstemp(key_path);
    assert_true(fd >= 0);
    close(fd);
    http_server_start(&server, serve, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_server_stop(&server);
    unlink(key_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_is_read),
        cmocka_unit_test(nobody_there_is_down),
        cmocka_unit_test(another_server_is_unknown),
        cmocka_unit_test(static_asks_nobody),
        cmocka_unit_test(times_are_checked),
        cmocka_unit_test(keys_are_read_again_when_they_change),
        cmocka_unit_test(an_unusable_key_file_is_named),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(a_callback_may_start_the_next),
        cmocka_unit_test(silence_is_busy_and_counted),
        cmocka_unit_test(one_question_sits_at_an_old_server),
        cmocka_unit_test(what_was_left_behind_counts_for_60_s),
        cmocka_unit_test(a_new_server_is_asked_again),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
