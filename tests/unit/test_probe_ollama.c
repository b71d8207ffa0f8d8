#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/probe.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/fake_proc.h"
#include "tests/lib/http_server.h"
#include "tests/lib/play.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static const struct play_name names[] = {
    {"/api/ps", "ps"}, {"/api/tags", "tags"}, {"/slots", "slots"}, {NULL, NULL}};

static struct play scene_of(const char *prefix)
{
    return (struct play){.engine = &engine_ollama,
                         .all = all,
                         .count = all_count,
                         .names = names,
                         .prefix = prefix,
                         .wants = PROBE_FULL};
}

/* ---- from afar ---- */

static void from_afar_leases_alone_decide(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, -1, -1, -1);
    assert_string_equal(play_asked, "/api/ps");
    assert_string_equal(play_run.reading.models[0].name, "qwen3:latest");
    assert_non_null(strstr(play_run.reading.detail, "slots=N"));
    scene.slots = 2;
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 2, -1, -1);
    scene = scene_of("old_loaded");
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, -1, -1, -1);
    scene = scene_of("two");
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, -1, -1, -1);
    assert_int_equal(play_run.reading.model_count, 2);
}

static void what_is_not_loaded_is_offered(void **state)
{
    (void)state;
    struct play scene = scene_of("unloaded");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    assert_non_null(strstr(play_run.reading.detail, "the first request loads"));
    scene.model = "qwen3";
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    assert_string_equal(play_asked, "/api/ps /api/tags");
    scene = scene_of("other");
    scene.model = "qwen3:latest";
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_INFERRED, -1, -1, -1);
    assert_string_equal(play_run.reading.models[0].name, "gemma3:4b");
    scene.model = "qwen"; /* no prefix of a name */
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    assert_non_null(strstr(play_run.reading.detail, "no model 'qwen'"));
    scene.model = "gemma3:4b";
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, -1, -1, -1);
}

static void failures_have_their_health(void **state)
{
    (void)state;
    struct play scene = scene_of("overloaded");
    play_reads(&scene, HEALTH_BUSY, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("error");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("key");
    play_reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("no such state");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene.other[0] = (struct play_other){"/api/ps", 0, NULL, HTTP_UNREACHABLE};
    play_reads(&scene, HEALTH_DOWN, SIGNAL_NONE, -1, -1, -1);
    scene.other[0] = (struct play_other){"/api/ps", 0, NULL, HTTP_TIMEOUT_ANSWER};
    play_reads(&scene, HEALTH_BUSY, SIGNAL_NONE, -1, -1, -1);
}

static void odd_answers_are_never_free(void **state)
{
    (void)state;
    static const char *const odd[] = {"{}",
                                      "<html>",
                                      "[]",
                                      "{\"models\":null}",
                                      "{\"models\":{}}",
                                      "{\"models\":[1]}",
                                      "{\"models\":[{}]}",
                                      "{\"models\":[{\"name\":3}]}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct play scene = scene_of("idle");
        scene.other[0] = (struct play_other){"/api/ps", 200, odd[i], HTTP_NONE};
        play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    }
}

/* ---- on the same host: two servers, and a process list that says what they are ---- */

static struct http_server ollama, child;
static const char *state_now;
static atomic_bool child_hangs;
static atomic_int keys_seen;
static const char *child_says; /* instead of its slots; NULL: those */
static int child_status;

static const struct recorded *body_of(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s.json", state_now, what);
    return recorded_find(all, all_count, name);
}

static void serve(struct http_server *server, int fd, const char *head)
{
    const char *what = server == &child && strncmp(head, "GET /slots ", 11) == 0       ? "slots"
                       : server == &ollama && strncmp(head, "GET /api/ps ", 12) == 0   ? "ps"
                       : server == &ollama && strncmp(head, "GET /api/tags ", 14) == 0 ? "tags"
                                                                                       : "none";
    const struct recorded *body = body_of(what);
    if (server == &child && strcasestr(head, "authorization") != NULL)
        atomic_fetch_add(&keys_seen, 1);
    if (server == &child && atomic_load(&child_hangs))
        http_server_hang(fd);
    else if (server == &child && child_says != NULL)
        http_server_answer(fd, child_status, child_says, strlen(child_says));
    else if (body == NULL)
        http_server_answer(fd, 404, "404 page not found", 18);
    else
        http_server_answer(fd, 200, body->body, body->size);
}

static struct fake_proc proc;

static void family(void)
{
    fake_proc_clear(&proc);
    fake_proc_process(&proc, 500, 1, 50, "ollama", "ollama|serve");
    fake_proc_command(&proc, 501, 500, 51, "llama-server", "--host|127.0.0.1|--port|%d|-np|2",
                      child.port);
    fake_proc_listener(&proc, ollama.port, "0100007F", 9001);
    fake_proc_listener(&proc, child.port, "0100007F", 9002);
    fake_proc_share_network(&proc, 501);
}

static struct provider_spec spec_here(const char *options)
{
    struct provider_spec spec;
    char text[256], error[SPEC_ERROR_SIZE];
    snprintf(text, sizeof text, "z4=ollama+http://127.0.0.1:%d%s", ollama.port, options);
    if (spec_parse(text, &spec, error) != 0)
        fail_msg("%s", error);
    return spec;
}

static struct reading read_now(const struct provider_spec *spec, int probe_ms)
{
    struct reading reading;
    assert_int_equal(probe_now(spec, PROBE_QUICK, NULL, probe_ms, host_now_ns, &reading), 0);
    return reading;
}

static void on_this_host_the_child_is_counted(void **state)
{
    (void)state;
    struct provider_spec spec = spec_here("");
    family();
    state_now = "busy";
    struct reading reading = read_now(&spec, 10000);
    assert_int_equal(reading.health, HEALTH_OK);
    assert_int_equal(reading.signal, SIGNAL_EXACT);
    assert_int_equal(reading.slots_total, 2);
    assert_int_equal(reading.in_flight, 1);
    assert_int_equal(reading.queued, -1);
    assert_int_equal(reading.named, 1);
    assert_int_equal(reading.slots[0].task, 17);
    assert_non_null(strstr(reading.detail, "what waits in Ollama is not told"));
    state_now = "idle";
    assert_int_equal(read_now(&spec, 10000).in_flight, 0);
    spec = spec_here(",slots=1");
    assert_int_equal(read_now(&spec, 10000).slots_total, 1);
    spec = spec_here(",model=qwen3");
    assert_int_equal(read_now(&spec, 10000).signal, SIGNAL_EXACT);
    spec = spec_here("");
    state_now = "two"; /* whose child it is, is not told */
    reading = read_now(&spec, 10000);
    assert_int_equal(reading.signal, SIGNAL_INFERRED);
    assert_int_equal(reading.in_flight, -1);
}

static void the_child_never_gets_the_key(void **state)
{
    (void)state;
    char path[] = "/tmp/ollama-key-XXXXXX", option[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "secret\n", 7) == 7);
    close(fd);
    family();
    state_now = "busy";
    snprintf(option, sizeof option, ",key-file=%s", path);
    struct provider_spec spec = spec_here(option);
    assert_int_equal(read_now(&spec, 10000).signal, SIGNAL_EXACT);
    assert_int_equal(atomic_load(&keys_seen), 0);
    unlink(path);
}

/* Only one that has no slots to tell of leaves it to the leases alone. */
static void nonsense_of_the_child_is_never_free(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body;
        enum health health;
    } cases[] = {
        {200, "", HEALTH_UNKNOWN},     {200, "<html>", HEALTH_UNKNOWN},
        {200, "[]", HEALTH_UNKNOWN},   {200, "[{\"id\":0}]", HEALTH_UNKNOWN},
        {200, "{}", HEALTH_UNKNOWN},   {200, "[{\"is_processing\":false}", HEALTH_UNKNOWN},
        {500, "{}", HEALTH_UNKNOWN},   {401, "{}", HEALTH_UNKNOWN},
        {503, "{}", HEALTH_LOADING},   {501, "{}", HEALTH_OK},
        {404, "not found", HEALTH_OK},
    };
    struct provider_spec spec = spec_here("");
    family();
    state_now = "idle";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        child_says = cases[i].body;
        child_status = cases[i].status;
        struct reading reading = read_now(&spec, 10000);
        if (reading.health != (int)cases[i].health || reading.in_flight != -1)
            fail_msg("%d '%s' of the child: %s, %d", cases[i].status, cases[i].body,
                     health_name((enum health)reading.health), reading.in_flight);
        assert_int_equal(reading.signal,
                         cases[i].health == HEALTH_OK ? SIGNAL_INFERRED : SIGNAL_NONE);
    }
    child_says = NULL;
}

static void a_child_in_prefill_is_busy(void **state)
{
    (void)state;
    struct provider_spec spec = spec_here("");
    family();
    state_now = "busy";
    atomic_store(&child_hangs, true);
    assert_int_equal(read_now(&spec, 300).health, HEALTH_BUSY);
    atomic_store(&child_hangs, false);
}

static struct reading last;

static void keep(void *arg, const struct reading *reading)
{
    (void)arg;
    last = *reading;
}

static void probe(struct http *http, struct probe_target *target)
{
    assert_int_equal(probe_start(http, target, PROBE_QUICK, &last, 10000, keep, NULL), 0);
    http_drain(http);
}

/* A child that has gone is looked for at once; where there is none, not again for 5 s. */
static void another_child_is_found(void **state)
{
    (void)state;
    struct provider_spec spec = spec_here("");
    struct probe_target *target;
    struct http *http;
    family();
    state_now = "busy";
    reading_clear(&last);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(probe_target_new(&spec, host_now_ns, &target), 0);
    probe(http, target);
    assert_int_equal(last.signal, SIGNAL_EXACT);
    fake_proc_command(&proc, 501, 500, 77, "llama-server", "--port|%d", child.port);
    probe(http, target);
    assert_int_equal(last.signal, SIGNAL_EXACT);
    fake_proc_end(&proc, 501);
    probe(http, target);
    assert_int_equal(last.signal, SIGNAL_INFERRED);
    family();
    probe(http, target);
    assert_int_equal(last.signal, SIGNAL_INFERRED);
    host_clock_offset(6 * NS_PER_SEC);
    probe(http, target);
    assert_int_equal(last.signal, SIGNAL_EXACT);
    host_clock_offset(0);
    probe_target_destroy(&target);
    http_close(&http);
}

static int load(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    all_count = recorded_load("ollama", all);
    fake_proc_new(&proc);
    ollama_proc = proc.path;
    http_server_start(&ollama, serve, NULL);
    http_server_start(&child, serve, NULL);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    http_server_stop(&ollama);
    http_server_stop(&child);
    fake_proc_free(&proc);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_afar_leases_alone_decide),
        cmocka_unit_test(what_is_not_loaded_is_offered),
        cmocka_unit_test(failures_have_their_health),
        cmocka_unit_test(odd_answers_are_never_free),
        cmocka_unit_test(on_this_host_the_child_is_counted),
        cmocka_unit_test(the_child_never_gets_the_key),
        cmocka_unit_test(nonsense_of_the_child_is_never_free),
        cmocka_unit_test(a_child_in_prefill_is_busy),
        cmocka_unit_test(another_child_is_found),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
