/* What the stand-in shows, beside what two real servers showed. The numbers are those of the
 * findings listed with the recorded bodies. */
#define _GNU_SOURCE
#include "tests/lib/client.h"
#include "tests/lib/slotserver.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct slotserver_options options_of(const char *version, unsigned slots)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.version = version;
    options.slots = slots;
    options.metrics = true;
    options.tps = 500;
    options.prefill_tps = 100000;
    return options;
}

static struct slotserver *start(const struct slotserver_options *options)
{
    struct slotserver *server = slotserver_start(options);
    assert_non_null(server);
    return server;
}

static const char *folder_of(const struct slotserver_options *options)
{
    return strcmp(options->version, "old") == 0 ? RECORDED "b6845/" : RECORDED;
}

static char *recorded_text(const struct slotserver_options *options, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", folder_of(options), name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    static char text[65536];
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    return text;
}

static json_t *recorded(const struct slotserver_options *options, const char *name)
{
    json_t *body = json_loads(recorded_text(options, name), 0, NULL);
    assert_non_null(body);
    return body;
}

static bool same_shape(const json_t *real, const json_t *ours);

static bool same_object(const json_t *real, const json_t *ours)
{
    const char *key;
    json_t *value;
    bool same = json_object_size(real) == json_object_size(ours);
    json_object_foreach((json_t *)(uintptr_t)real, key, value)
    {
        json_t *own = json_object_get(ours, key);
        if (!own || !same_shape(value, own)) {
            print_error("differs at \"%s\"\n", key);
            same = false;
        }
    }
    return same;
}

/* The same keys and the same sorts of values, all the way down. */
static bool same_shape(const json_t *real, const json_t *ours)
{
    if (json_is_object(real) && json_is_object(ours))
        return same_object(real, ours);
    if (json_is_array(real) && json_is_array(ours))
        return json_array_size(real) == 0 || json_array_size(ours) == 0 ||
               same_shape(json_array_get(real, 0), json_array_get(ours, 0));
    if (json_is_number(real) || json_is_boolean(real))
        return json_is_number(real) == json_is_number(ours) &&
               json_is_boolean(real) == json_is_boolean(ours);
    return json_typeof(real) == json_typeof(ours);
}

static void expect_like(const struct slotserver_options *options, const char *name,
                        const struct answer *answer, long status)
{
    assert_int_equal(answer->status, status);
    json_t *real = recorded(options, name);
    assert_non_null(answer->json);
    bool same = same_shape(real, answer->json);
    if (!same)
        print_error("not like %s: %s\n", name, answer->body);
    assert_true(same);
    json_decref(real);
}

/* Asks and compares the shape. */
static void check(const struct slotserver *server, const struct slotserver_options *options,
                  const char *path, const char *name, long status)
{
    struct answer answer = client_get(slotserver_port(server), path);
    expect_like(options, name, &answer, status);
    client_done(&answer);
}

/* Asks and compares the very values. */
static void check_exactly(const struct slotserver *server, const struct slotserver_options *options,
                          const char *path, const char *header, const char *name, long status)
{
    struct answer answer = client_ask(slotserver_port(server), path, NULL, header, 5000);
    assert_int_equal(answer.status, status);
    json_t *real = recorded(options, name);
    assert_true(json_equal(real, answer.json));
    json_decref(real);
    client_done(&answer);
}

static void check_post(const struct slotserver *server, const struct slotserver_options *options,
                       const char *path, const char *json, const char *name, long status)
{
    struct answer answer = client_post(slotserver_port(server), path, json);
    expect_like(options, name, &answer, status);
    client_done(&answer);
}

static void wait_in_slots(struct slotserver *server, unsigned n)
{
    struct slotserver_stats stats;
    int64_t deadline = client_now_ms() + 5000;
    do {
        slotserver_stats(server, &stats);
        if (stats.in_slots == n)
            return;
        client_pause_ms(2);
    } while (client_now_ms() < deadline);
    fail_msg("%u tasks in slots, not %u", stats.in_slots, n);
}

/* Item 1 */
static void loading(const char *version)
{
    static const char *const paths[] = {"/health", "/slots", "/props", "/metrics", "/nosuch"};
    struct slotserver_options options = options_of(version, 1);
    options.loading_ms = 500;
    options.api_key = "sekret";
    struct slotserver *server = start(&options);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        check_exactly(server, &options, paths[i], NULL, "load.health.json", 503);
    if (strcmp(version, "old") == 0)
        check(server, &options, "/v1/models", "load.v1models.json", 200);
    else
        check_exactly(server, &options, "/v1/models", NULL, "load.v1models.json", 503);
    int64_t deadline = client_now_ms() + 5000;
    struct answer answer = {0};
    do {
        client_done(&answer);
        answer = client_get(slotserver_port(server), "/health");
        client_pause_ms(10);
    } while (answer.status != 200 && client_now_ms() < deadline);
    assert_int_equal(answer.status, 200);
    client_done(&answer);
    slotserver_stop(server);
}

static void test_loading(void **state)
{
    (void)state;
    loading("new");
    loading("old");
}

/* Items 2, 4, 5 and the bodies of an idle and a busy server */
static void bodies(const char *version)
{
    struct slotserver_options options = options_of(version, 1);
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    check_exactly(server, &options, "/slots", NULL, "np1_fresh.slots.json", 200);
    check(server, &options, "/props", "np1_fresh.props.json", 200);
    check(server, &options, "/v1/models", "np1_fresh.v1models.json", 200);
    int running = client_begin(port, "/completion", "{\"prompt\":\"a\",\"stream\":true}");
    wait_in_slots(server, 1);
    check_exactly(server, &options, "/health?fail_on_no_slot=1", NULL, "np1_busy.health.json", 200);
    check(server, &options, "/slots", "np1_busy.slots.json", 200);
    check_exactly(server, &options, "/slots?fail_on_no_slot=1", NULL, "np1_busy.slots_fail.json",
                  503);
    client_leave(running);
    wait_in_slots(server, 0);
    check(server, &options, "/slots?fail_on_no_slot=1", "np1_idle.slots.json", 200);
    slotserver_stop(server);
}

static void test_bodies(void **state)
{
    (void)state;
    bodies("new");
    bodies("old");
}

static void check_metrics_names(const struct slotserver *server,
                                const struct slotserver_options *options)
{
    struct answer answer = client_get(slotserver_port(server), "/metrics");
    assert_int_equal(answer.status, 200);
    char *real = recorded_text(options, "np1_fresh.metrics.txt");
    for (char *line = strtok(real, "\n"); line; line = strtok(NULL, "\n")) {
        char *value = *line == '#' ? NULL : strchr(line, ' ');
        if (value)
            value[1] = '\0';
        assert_non_null(strstr(answer.body, line));
    }
    client_done(&answer);
}

/* Item 3 */
static void switched_off(const char *version)
{
    struct slotserver_options options = options_of(version, 1);
    struct slotserver *with = start(&options);
    check_metrics_names(with, &options);
    slotserver_stop(with);
    options.metrics = false;
    options.no_slots = true;
    struct slotserver *without = start(&options);
    check_exactly(without, &options, "/slots", NULL, "noslots_idle.slots.json", 501);
    check_exactly(without, &options, "/metrics", NULL, "noslots_idle.metrics.json", 501);
    struct answer props = client_get(slotserver_port(without), "/props");
    assert_true(json_is_false(json_object_get(props.json, "endpoint_slots")));
    assert_true(json_is_false(json_object_get(props.json, "endpoint_metrics")));
    client_done(&props);
    slotserver_stop(without);
}

static void test_switched_off(void **state)
{
    (void)state;
    switched_off("new");
    switched_off("old");
}

/* Compares the events of two streams, one by one from the first and the last. */
static json_t *event_of(char *stream, bool last)
{
    char *event = strstr(stream, "data: {");
    for (char *next = event; last && next; next = strstr(next + 1, "data: {"))
        event = next;
    assert_non_null(event);
    json_error_t error;
    json_t *json = json_loads(event + 6, JSON_DISABLE_EOF_CHECK, &error);
    assert_non_null(json);
    return json;
}

static void check_stream(const struct slotserver *server, const struct slotserver_options *options,
                         const char *path, const char *json, const char *name)
{
    struct answer answer = client_post(slotserver_port(server), path, json);
    assert_int_equal(answer.status, 200);
    char *real = recorded_text(options, name);
    for (int last = 0; last < 2; last++) {
        json_t *theirs = event_of(real, last);
        json_t *ours = event_of(answer.body, last);
        assert_true(same_shape(theirs, ours));
        json_decref(theirs);
        json_decref(ours);
    }
    assert_int_equal(strstr(real, "[DONE]") != NULL, strstr(answer.body, "[DONE]") != NULL);
    client_done(&answer);
}

static void answers(const char *version)
{
    struct slotserver_options options = options_of(version, 2);
    struct slotserver *server = start(&options);
    check_post(server, &options, "/completion", "{\"prompt\":\"a\",\"n_predict\":3}",
               "cmpl_nonstream.json", 200);
    check_post(server, &options, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":3}",
               "cmpl_oai_nonstream.json", 200);
    check_post(server, &options, "/v1/chat/completions",
               "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":3}",
               "chat_nonstream.json", 200);
    check_post(server, &options, "/tokenize", "{\"content\":\"hello world\"}", "tokenize.json",
               200);
    check_stream(server, &options, "/completion",
                 "{\"prompt\":\"a\",\"n_predict\":3,\"stream\":true}", "cmpl_stream.txt");
    check_stream(server, &options, "/v1/chat/completions",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":3,"
                 "\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                 "chat_stream.txt");
    slotserver_stop(server);
}

static void test_answers(void **state)
{
    (void)state;
    answers("new");
    answers("old");
}

/* Item 15 */
static void errors(const char *version)
{
    struct slotserver_options options = options_of(version, 1);
    options.ctx = 8192;
    struct slotserver *server = start(&options);
    check_post(server, &options, "/completion", "{nope", "err_bad_json.json", 500);
    check_post(server, &options, "/completion", "{\"n_predict\":1}", "err_no_prompt.json", 400);
    check_post(server, &options, "/completion", "{\"prompt\":\"a\",\"prompt_tokens\":9000}",
               "err_ctx_exceeded.json", 400);
    check_post(server, &options, "/slots/0?action=erase", "{}", "slots_action_erase.json", 501);
    check_exactly(server, &options, "/nosuch", NULL, "err_404.json", 404);
    check_exactly(server, &options, "/completion", NULL, "err_404.json", 404);
    struct answer full = client_post(slotserver_port(server), "/completion",
                                     "{\"prompt\":\"a\",\"prompt_tokens\":8190}");
    assert_int_equal(full.status, 200);
    assert_true(json_is_true(json_object_get(full.json, "truncated")));
    client_done(&full);
    struct answer failed = client_post(slotserver_port(server), "/completion",
                                       "{\"prompt\":\"a\",\"stream\":true,\"fail_after\":2}");
    assert_int_equal(failed.status, 200);
    json_t *last = event_of(failed.body, true);
    assert_non_null(json_object_get(last, "error"));
    json_decref(last);
    client_done(&failed);
    slotserver_stop(server);
}

static void test_errors(void **state)
{
    (void)state;
    errors("new");
    errors("old");
}

/* Item 13 */
static void test_keys(void **state)
{
    (void)state;
    static const char good[] = "Authorization: Bearer sekret";
    static const char bare[] = "Authorization: sekret";
    static const char other[] = "X-Api-Key: sekret";
    for (int old = 0; old < 2; old++) {
        struct slotserver_options options = options_of(old ? "old" : "new", 1);
        options.api_key = "sekret";
        options.ctx = 8192;
        struct slotserver *server = start(&options);
        check_exactly(server, &options, "/health", NULL, "key_none.health.json", 200);
        check_exactly(server, &options, "/v1/health", NULL, "key_none.v1health.json", 200);
        check_exactly(server, &options, "/slots", NULL, "key_none.slots.json", 401);
        check_exactly(server, &options, "/nosuch", NULL, "key_none.404.json", 401);
        check_exactly(server, &options, "/slots", "Authorization: Bearer no",
                      "key_wrong.slots.json", 401);
        check(server, &options, "/v1/models", "key_none.v1models.json", old ? 200 : 401);
        check(server, &options, "/models", "key_none.models.json", old ? 200 : 401);
        check_exactly(server, &options, "/slots", good, "key_ok.slots.json", 200);
        check_exactly(server, &options, "/slots", bare, "key_ok_nobearer.slots.json",
                      old ? 401 : 200);
        check_exactly(server, &options, "/slots", other, "key_ok_xapikey.slots.json",
                      old ? 401 : 200);
        slotserver_stop(server);
    }
}

static void test_alias(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct slotserver_options options = options_of(old ? "old" : "new", 1);
        options.alias = "my-model,other-name";
        struct slotserver *server = start(&options);
        struct answer models = client_get(slotserver_port(server), "/v1/models");
        expect_like(&options, "alias_idle.v1models.json", &models, 200);
        json_t *real = recorded(&options, "alias_idle.v1models.json");
        json_t *theirs = json_array_get(json_object_get(real, "data"), 0);
        json_t *ours = json_array_get(json_object_get(models.json, "data"), 0);
        assert_true(json_equal(json_object_get(theirs, "id"), json_object_get(ours, "id")));
        json_decref(real);
        client_done(&models);
        check(server, &options, "/props", "alias_idle.props.json", 200);
        slotserver_stop(server);
    }
}

struct way {
    const char *name;
    long status; /* what the client makes of it; 0: nothing */
    bool ends;   /* whether it learns anything at all in time */
};

static void check_way(struct slotserver *server, const struct way *way)
{
    char path[64];
    snprintf(path, sizeof(path), "/_control?misbehave=%s", way->name);
    struct answer answer = client_get(slotserver_port(server), path);
    assert_int_equal(answer.status, 200);
    client_done(&answer);
    answer = client_ask(slotserver_port(server), "/slots", NULL, NULL, 300);
    assert_int_equal(answer.status, way->status);
    assert_int_equal(answer.error != CLIENT_TIMED_OUT, way->ends);
    assert_null(answer.json);
    client_done(&answer);
}

static void test_misbehave(void **state)
{
    (void)state;
    static const struct way ways[] = {
        {"hang", 0, false},   {"html", 200, true},     {"truncated", 200, true},  {"cut", 0, true},
        {"garbage", 0, true}, {"redirect", 302, true}, {"refuse-slots", 0, true},
    };
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        check_way(server, &ways[i]);
    check_exactly(server, &options, "/health", NULL, "np1_fresh.health.json", 200);
    assert_true(slotserver_misbehave(server, "none"));
    assert_false(slotserver_misbehave(server, "nicely"));
    assert_int_equal(slotserver_asked(server, "/_redirected"), 0);
    check_exactly(server, &options, "/slots", NULL, "np1_fresh.slots.json", 200);
    slotserver_stop(server);
}

static void test_huge(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 1);
    options.misbehave = "huge";
    struct slotserver *server = start(&options);
    int fd = client_begin(slotserver_port(server), "/slots", NULL);
    assert_true(client_heard(fd, 5000));
    client_leave(fd);
    slotserver_stop(server);
}

static void test_counters(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    check(server, &options, "/health", "np1_fresh.health.json", 200);
    check(server, &options, "/health", "np1_fresh.health.json", 200);
    assert_int_equal(slotserver_asked(server, "/health"), 2);
    int idle[] = {client_begin(port, "/health", NULL), client_begin(port, "/health", NULL)};
    assert_true(client_heard(idle[0], 5000) && client_heard(idle[1], 5000));
    struct answer stats = client_get(port, "/_stats");
    json_t *paths = json_object_get(stats.json, "paths");
    assert_int_equal(json_integer_value(json_object_get(paths, "/health")), 4);
    assert_true(json_integer_value(json_object_get(stats.json, "max_connections")) >= 3);
    client_done(&stats);
    struct answer reset = client_get(port, "/_reset");
    assert_int_equal(reset.status, 200);
    client_done(&reset);
    assert_int_equal(slotserver_asked(server, "/health"), 0);
    client_leave(idle[0]);
    client_leave(idle[1]);
    slotserver_stop(server);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading),      cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_switched_off), cmocka_unit_test(test_answers),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_keys),
        cmocka_unit_test(test_alias),        cmocka_unit_test(test_misbehave),
        cmocka_unit_test(test_huge),         cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
