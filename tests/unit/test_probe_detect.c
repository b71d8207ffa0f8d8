#define _GNU_SOURCE
#include "agent/probe_detect.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/http_server.h"
#include "tests/lib/recorded.h"

/* ---- servers that differ in what they answer ---- */

struct page {
    const char *path;
    int status;
    const char *body;
};

#define PAGES 12

/* What is not listed is answered with `otherwise`. */
struct kind {
    const char *engine; /* what it is to be taken for; "auto": for nothing */
    enum health health;
    const char *by;
    int otherwise;
    const char *otherwise_body;
    struct page pages[PAGES];
};

#define NOT_FOUND 404, "404 page not found"
#define OWNED(by)                                                                                  \
    "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"owned_by\":\"" by "\"}]}"

static const char page[] = "<!DOCTYPE html><html><body>Lite</body></html>";
static const char unexpected[] = "{\"error\":\"Unexpected endpoint or method. (GET /props)\"}";

static const struct kind kinds[] = {
    {"llama.cpp",
     HEALTH_OK,
     "/props",
     NOT_FOUND,
     {{"/props", 200, "{\"total_slots\":1,\"is_sleeping\":false,\"endpoint_slots\":true}"},
      {"/slots", 200, "[{\"id\":0,\"is_processing\":false}]"}}},
    {"llama.cpp",
     HEALTH_SLEEPING,
     "/props",
     NOT_FOUND,
     {{"/props", 200, "{\"total_slots\":1,\"is_sleeping\":true}"}}},
    {"llama.cpp", HEALTH_UNKNOWN, "/props", NOT_FOUND, {{"/props", 200, "{\"role\":\"router\"}"}}},
    {"llama.cpp",
     HEALTH_LOADING,
     "/props",
     503,
     "{\"error\":{\"message\":\"Loading model\",\"type\":\"unavailable_error\",\"code\":503}}",
     {{0}}},
    {"llama.cpp",
     HEALTH_UNAUTHORIZED,
     "/v1/models",
     401,
     "{\"error\":{\"code\":401}}",
     {{"/v1/models", 200, OWNED("llamacpp")}}},
    {"llama-swap",
     HEALTH_UNLOADED,
     "/v1/models",
     NOT_FOUND,
     {{"/v1/models", 200, OWNED("llama-swap")}, {"/running", 200, "{\"running\":[]}"}}},
    {"llama-swap",
     HEALTH_UNLOADED,
     "/running",
     NOT_FOUND,
     {{"/v1/models", 200, "{\"data\":[],\"object\":\"list\"}"},
      {"/running", 200, "{\"running\":[]}"},
      {"/api/version", 200, "{\"version\":\"1\",\"commit\":\"a\",\"build_date\":\"b\"}"}}},
    {"vllm",
     HEALTH_OK,
     "/v1/models",
     NOT_FOUND,
     {{"/v1/models", 200, OWNED("vllm")},
      {"/load", 200, "{\"server_load\":2}"},
      {"/metrics", 200, "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"}}},
    {"vllm",
     HEALTH_OK,
     "/metrics",
     NOT_FOUND, /* its key guards /v1 alone */
     {{"/v1/models", 401, "{\"error\":\"Unauthorized\"}"},
      {"/load", 200, "{\"server_load\":2}"},
      {"/metrics", 200, "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"}}},
    {"sglang",
     HEALTH_OK,
     "/v1/models",
     NOT_FOUND,
     {{"/v1/models", 200, OWNED("sglang")},
      {"/v1/loads?include=core", 200,
       "{\"loads\":[{\"dp_rank\":0,\"num_running_reqs\":1,\"num_waiting_reqs\":0,"
       "\"max_running_requests\":8}]}"}}},
    {"tgi",
     HEALTH_OK,
     "/info",
     NOT_FOUND,
     {{"/v1/models", 200, OWNED("somebody/else")},
      {"/info", 200, "{\"model_id\":\"m\",\"max_concurrent_requests\":8}"},
      {"/metrics", 200, "tgi_batch_current_size 1\ntgi_queue_size 0\n"}}},
    {"ollama",
     HEALTH_UNLOADED,
     "/api/version",
     NOT_FOUND,
     {{"/v1/models", 200, "{\"object\":\"list\",\"data\":null}"},
      {"/api/version", 200, "{\"version\":\"0.33.0\"}"},
      {"/api/ps", 200, "{\"models\":[]}"}}},
    {"lmstudio",
     HEALTH_UNLOADED,
     "/v1/models",
     200,
     unexpected,
     {{"/v1/models", 200, OWNED("organization_owner")},
      {"/api/v1/models", 200, "{\"models\":[{\"key\":\"m\",\"loaded_instances\":[]}]}"}}},
    {"lmstudio",
     HEALTH_UNLOADED,
     "/api/v1/models",
     200,
     unexpected,
     {{"/v1/models", 200, "{\"data\":[],\"object\":\"list\"}"},
      {"/api/v1/models", 200, "{\"models\":[{\"key\":\"m\",\"loaded_instances\":[]}]}"}}},
    {"lmstudio",
     HEALTH_UNLOADED,
     "/api/v0/models",
     200,
     unexpected,
     {{"/api/v0/models", 200, "{\"data\":[{\"id\":\"m\",\"state\":\"not-loaded\"}]}"}}},
    /* lookalikes */
    {"auto", HEALTH_UNKNOWN, "", 200, page, {{0}}},
    {"auto",
     HEALTH_UNKNOWN,
     "",
     200,
     page,
     {{"/v1/models", 200, OWNED("koboldcpp")}, {"/api/version", 200, "{\"version\":\"0.7.0\"}"}}},
    {"auto", HEALTH_UNKNOWN, "", 200, "{}", {{0}}},
    {"auto", HEALTH_UNKNOWN, "", 200, "[]", {{0}}},
    {"auto", HEALTH_UNKNOWN, "", 200, unexpected, {{0}}},
    {"auto", HEALTH_UNKNOWN, "", NOT_FOUND, {{"/running", 200, "{\"running\":[1]}"}}},
    {"auto", HEALTH_UNKNOWN, "", NOT_FOUND, {{"/running", 200, "{\"running\":true}"}}},
    {"auto", HEALTH_UNKNOWN, "", 200, "", {{0}}},
    {"auto", HEALTH_UNKNOWN, "", NOT_FOUND, {{"/v1/models", 200, OWNED("openai")}}},
    {"auto", HEALTH_UNKNOWN, "", 500, "oops", {{0}}},
    {"auto", HEALTH_UNKNOWN, "", 302, "", {{0}}},
    {"auto", HEALTH_UNAUTHORIZED, "", 401, "", {{0}}},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static struct http_server server;
static _Atomic(const struct kind *) is;
static char asked[1024]; /* paths in their order */
static pthread_mutex_t asked_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool hangs;

static void note(const char *path)
{
    pthread_mutex_lock(&asked_mutex);
    if (strlen(asked) + strlen(path) + 2 < sizeof asked)
        strcat(strcat(asked, path), " ");
    pthread_mutex_unlock(&asked_mutex);
}

static void serve(struct http_server *self, int fd, const char *head)
{
    const struct kind *kind = atomic_load(&is);
    char path[512] = "";
    (void)self;
    sscanf(head, "GET %511s", path);
    note(path);
    if (atomic_load(&hangs)) {
        http_server_hang(fd);
        return;
    }
    for (int i = 0; i < PAGES && kind->pages[i].path != NULL; i++)
        if (strcmp(kind->pages[i].path, path) == 0) {
            http_server_answer(fd, kind->pages[i].status, kind->pages[i].body,
                               strlen(kind->pages[i].body));
            return;
        }
    http_server_answer(fd, kind->otherwise, kind->otherwise_body, strlen(kind->otherwise_body));
}

static struct provider_spec spec_here(void)
{
    struct provider_spec spec;
    char text[128], error[SPEC_ERROR_SIZE];
    snprintf(text, sizeof text, "z4=http://127.0.0.1:%d", server.port);
    if (spec_parse(text, &spec, error) != 0)
        fail_msg("%s", error);
    return spec;
}

static struct reading look(const struct kind *kind, const struct reading *last)
{
    struct provider_spec spec = spec_here();
    struct reading reading;
    asked[0] = '\0';
    atomic_store(&is, kind);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, last, 10000, host_now_ns, &reading), 0);
    return reading;
}

static void each_engine_is_found_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct reading reading = look(&kinds[i], NULL);
        if (strcmp(reading.engine, kinds[i].engine) != 0 ||
            reading.health != (int)kinds[i].health ||
            strcmp(detect_path(reading.found_by), kinds[i].by) != 0)
            fail_msg("%zu: %s by '%s', %s: %s", i, reading.engine, detect_path(reading.found_by),
                     health_name((enum health)reading.health), reading.detail);
        if (strcmp(kinds[i].engine, "auto") == 0)
            assert_int_equal(reading.in_flight, -1);
        assert_string_not_equal(reading.detail, "");
    }
}

static void the_reason_is_told(void **state)
{
    (void)state;
    struct reading reading = look(&kinds[0], NULL);
    assert_string_equal(reading.detail, "engine found out by /props");
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].engine, "ollama") == 0)
            reading = look(&kinds[i], NULL);
    assert_non_null(strstr(reading.detail, "(engine by /api/version)"));
}

/* Nothing that is asked may wake or load; /metrics only where the rest said nothing. */
static void the_order_of_questions_is_safe(void **state)
{
    (void)state;
    look(&kinds[0], NULL);
    assert_string_equal(asked, "/props /slots "); /* llama.cpp pays nothing */
    look(&kinds[1], NULL);
    assert_string_equal(asked, "/props ");
    for (size_t i = 0; i < KINDS; i++) {
        look(&kinds[i], NULL);
        assert_int_equal(strncmp(asked, "/props ", 7), 0);
        if (strcmp(kinds[i].engine, "llama.cpp") != 0)
            assert_null(strstr(asked, "/slots"));
        const char *metrics = strstr(asked, "/metrics");
        if (metrics != NULL)
            assert_true(strstr(asked, "/v1/models") != NULL &&
                        strstr(asked, "/v1/models") < metrics);
    }
}

static void what_somebody_found_is_taken_over(void **state)
{
    (void)state;
    size_t vllm = 0;
    while (strcmp(kinds[vllm].engine, "vllm") != 0)
        vllm++;
    struct reading reading = look(&kinds[vllm], NULL);
    assert_non_null(strstr(asked, "/props"));
    reading = look(&kinds[vllm], &reading);
    assert_null(strstr(asked, "/props"));
    assert_string_equal(reading.engine, "vllm");
    assert_string_equal(detect_path(reading.found_by), "/v1/models");
    reading.health = HEALTH_DOWN; /* it may be another one now */
    reading = look(&kinds[vllm], &reading);
    assert_non_null(strstr(asked, "/props"));
}

/* ---- over time ---- */

static struct reading last;

static void keep(void *arg, const struct reading *reading)
{
    (void)arg;
    last = *reading;
}

static void probe(struct http *http, struct probe_target *target, int probe_ms)
{
    asked[0] = '\0';
    assert_int_equal(probe_start(http, target, PROBE_FULL, &last, probe_ms, keep, NULL), 0);
    http_drain(http);
}

static ns_t offset_ns;

static void is_followed(struct http *http, struct probe_target *target, const struct kind *from,
                        const struct kind *to)
{
    atomic_store(&is, from);
    probe(http, target, 10000);
    probe(http, target, 10000);
    assert_string_equal(last.engine, from->engine);
    atomic_store(&is, to);
    probe(http, target, 10000);
    probe(http, target, 10000);
    if (to->health == HEALTH_UNAUTHORIZED && strcmp(to->engine, "auto") == 0)
        return; /* who refuses everything may still be the same */
    if (strcmp(to->engine, "auto") == 0)
        host_clock_offset(offset_ns += 11 * NS_PER_SEC); /* what it is, is asked anew by then */
    if (strcmp(last.engine, to->engine) != 0)
        fail_msg("%s is not followed by %s but %s: %s", from->engine, to->engine, last.engine,
                 last.detail);
}

static int restart(void **state);

/* An empty list says little where every path answers so. */
static void a_parrot_is_no_llama_swap(void **state)
{
    (void)state;
    static const struct kind parrot = {"auto", HEALTH_UNKNOWN, "", 200, "{\"running\":[]}", {{0}}};
    struct reading reading = look(&parrot, NULL);
    assert_int_equal(reading.health, HEALTH_UNKNOWN);
    assert_string_equal(reading.engine, "auto");
}

/* Whatever follows whatever on the same port is known by the second reading. */
static void another_engine_is_followed(void **state)
{
    struct probe_target *target;
    struct http *http;
    reading_clear(&last);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    for (size_t from = 0; from < KINDS; from++) {
        restart(state); /* for its connections are counted */
        struct provider_spec spec = spec_here();
        assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
        for (size_t to = from % 2; to < KINDS && strcmp(kinds[from].engine, "auto") != 0; to += 2)
            is_followed(http, target, &kinds[from], &kinds[to]);
        probe_target_destroy(&target);
    }
    http_close(&http);
}

static void a_known_one_is_asked_at_once(void **state)
{
    (void)state;
    struct provider_spec spec = spec_here();
    struct probe_target *target;
    struct http *http;
    size_t tgi = 0;
    while (strcmp(kinds[tgi].engine, "tgi") != 0)
        tgi++;
    reading_clear(&last);
    atomic_store(&is, &kinds[tgi]);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    probe(http, target, 10000);
    assert_non_null(strstr(asked, "/props"));
    probe(http, target, 10000);
    assert_null(strstr(asked, "/props"));
    atomic_store(&hangs, true); /* busy: still the same */
    probe(http, target, 200);
    assert_int_equal(last.health, HEALTH_BUSY);
    assert_string_equal(last.engine, "tgi");
    atomic_store(&hangs, false);
    probe(http, target, 10000);
    assert_null(strstr(asked, "/props"));
    probe_target_destroy(&target);
    http_close(&http);
}

static struct http_answer answer_of(enum http_failure failure)
{
    return (struct http_answer){
        .failure = failure, .status = failure ? 0 : 404, .body = "", .reason = ""};
}

/* From one that is far away: what was answered is not asked again, nor what never is. */
static void a_slow_one_is_found_out_in_parts(void **state)
{
    (void)state;
    static struct probe_run run;
    struct engine_ask ask = {0};
    struct provider_spec spec = spec_here();
    char all[1024] = "";
    memset(&run, 0, sizeof run);
    run.spec = &spec;
    for (int part = 0; part < 9; part++) {
        reading_clear(&run.reading);
        run.decided = false;
        engine_detect.begin(&run, 1000);
        for (int n = 0; !run.decided && engine_detect.next(&run, 1000, &ask); n++) {
            struct http_answer answer = answer_of(n == 2 ? HTTP_TIMEOUT_ANSWER : HTTP_NONE);
            strcat(strcat(all, ask.path), " ");
            engine_detect.take(&run, ask.kind, &answer);
        }
        assert_int_equal(run.reading.health, part % 4 == 3 ? HEALTH_UNKNOWN : HEALTH_BUSY);
        if (part == 3)
            assert_string_equal(all, "/props /v1/models /api/version /props /info /running /props "
                                     "/api/v1/models /api/v0/models /props /metrics ");
    }
}

/* A stranger is asked one question a reading, and all of them every 10 s. */
static void a_stranger_is_spared(void **state)
{
    (void)state;
    struct provider_spec spec = spec_here();
    struct probe_target *target;
    struct http *http;
    size_t kobold = 0;
    while (kinds[kobold].otherwise_body != page)
        kobold++;
    reading_clear(&last);
    atomic_store(&is, &kinds[kobold]);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    probe(http, target, 10000);
    assert_non_null(strstr(asked, "/metrics"));
    struct reading first = last;
    for (int i = 0; i < 3; i++) {
        probe(http, target, 10000);
        assert_string_equal(asked, "/props ");
        assert_int_equal(last.health, HEALTH_UNKNOWN);
        assert_string_equal(last.detail, first.detail);
        assert_string_equal(last.engine, first.engine);
    }
    host_clock_offset(offset_ns += 11 * NS_PER_SEC);
    probe(http, target, 10000);
    assert_non_null(strstr(asked, "/metrics"));
    probe_target_destroy(&target);
    http_close(&http);
}

/* Every body of every engine in place of each answer: no crash, and what is found is an engine. */
static void any_body_does_no_harm(void **state)
{
    (void)state;
    static struct recorded bodies[6][RECORDED_MAX]; /* they live as long as this points to them */
    static const char *const folders[6] = {"ollama", "lmstudio", "vllm",
                                           "sglang", "tgi",      "llama-swap"};
    static struct probe_run run;
    struct provider_spec spec = spec_here();
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        struct recorded *all = bodies[f];
        size_t count = recorded_load(folders[f], all);
        for (size_t i = 0; i < count; i++)
            for (size_t cut = 0; cut <= all[i].size; cut += 1 + all[i].size / 50) {
                struct engine_ask ask = {0};
                struct http_answer answer = {
                    .status = 200, .body = all[i].body, .size = cut, .reason = ""};
                memset(&run, 0, sizeof run);
                run.spec = &spec;
                engine_detect.begin(&run, 1000);
                for (int n = 0; !run.decided && !run.found && engine_detect.next(&run, 1000, &ask);
                     n++) {
                    assert_true(n < ENGINE_ASKS_MAX);
                    engine_detect.take(&run, ask.kind, &answer);
                }
                assert_true(run.decided || run.found != NULL);
                assert_int_equal(run.reading.in_flight, run.decided ? -1 : run.reading.in_flight);
            }
    }
}

static int start(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    http_server_start(&server, serve, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_server_stop(&server);
    return 0;
}

/* A server has so many connections in its life. */
static int restart(void **state)
{
    return stop(state) | start(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_engine_is_found_out, restart),
        cmocka_unit_test_setup(the_reason_is_told, restart),
        cmocka_unit_test_setup(the_order_of_questions_is_safe, restart),
        cmocka_unit_test_setup(what_somebody_found_is_taken_over, restart),
        cmocka_unit_test_setup(a_parrot_is_no_llama_swap, restart),
        cmocka_unit_test_setup(another_engine_is_followed, restart),
        cmocka_unit_test_setup(a_known_one_is_asked_at_once, restart),
        cmocka_unit_test(a_slow_one_is_found_out_in_parts),
        cmocka_unit_test_setup(a_stranger_is_spared, restart),
        cmocka_unit_test_setup(any_body_does_no_harm, restart),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
