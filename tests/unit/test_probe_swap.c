#define _GNU_SOURCE
#include <string.h>

#include "tests/lib/check.h"
#include "tests/lib/play.h"

static struct recorded swap[RECORDED_MAX], skein[RECORDED_MAX];
static size_t swap_count, skein_count;
static const struct play_name names[] = {{"/running", "running"},
                                         {"/api/hardware", "hardware"},
                                         {"/v1/models", "v1models"},
                                         {"/upstream/coder/slots", "slots"},
                                         {NULL, NULL}};

static struct play scene_of(const char *prefix, const char *model)
{
    return (struct play){.engine = &engine_swap,
                         .all = swap,
                         .count = swap_count,
                         .names = names,
                         .prefix = prefix,
                         .wants = PROBE_QUICK,
                         .model = model};
}

static struct play skein_of(const char *prefix, const char *model)
{
    struct play scene = scene_of(prefix, model);
    scene.all = skein;
    scene.count = skein_count;
    return scene;
}

static bool says(const char *text)
{
    return strstr(play_run.reading.detail, text) != NULL;
}

static void must_not_have_asked(const char *path)
{
    if (strstr(play_asked, path) != NULL)
        fail_msg("asked %s", play_asked);
}

/* ---- llama-swap ---- */

static void a_ready_model_s_server_is_asked(void **state)
{
    (void)state;
    struct play scene = scene_of("busy", "coder");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    assert_string_equal(play_asked, "/running+/api/hardware /upstream/coder/slots");
    assert_int_equal(play_run.reading.named, 1);
    assert_int_equal(play_run.reading.slots[0].task, 40);
    assert_string_equal(play_run.reading.models[0].name, "coder");
    assert_int_equal(play_run.reading.models[0].state, MODEL_LOADED);
    scene = scene_of("ready", "coder");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 0, -1);
    scene = scene_of("two", "coder");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    scene = scene_of("old_ready", "coder");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    scene.memory = play_run.memory; /* it has no /api/hardware: a verify leaves it out */
    play(&scene);
    assert_string_equal(play_asked, "/running /upstream/coder/slots");
}

static void nothing_is_ever_loaded(void **state)
{
    (void)state;
    static const char *const scenes[] = {"unloaded", "other", "starting", "stopping", "odd", "key"};
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (int k = 0; k < 4; k++) {
            struct play scene = scene_of(scenes[i], k & 1 ? "coder" : NULL);
            scene.wants = k & 2 ? PROBE_FULL : PROBE_QUICK;
            play(&scene);
            must_not_have_asked("/upstream");
        }
}

static void an_unloaded_model_is_offered(void **state)
{
    (void)state;
    struct play scene = scene_of("unloaded", "coder");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    assert_true(says("first request loads it"));
    scene = scene_of("unloaded", NULL);
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    scene = scene_of("other", "coder"); /* who waits for it cannot be seen */
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_NONE, -1, -1, -1);
    assert_true(says("makes room"));
    scene = scene_of("unloaded", "codr");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    assert_true(says("codr"));
}

static void one_on_its_way_is_loading(void **state)
{
    (void)state;
    struct play scene = scene_of("starting", "coder");
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("stopping", "coder");
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("starting", NULL);
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("odd", "coder");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
}

static void without_a_model_leases_decide(void **state)
{
    (void)state;
    struct play scene = scene_of("busy", NULL);
    scene.slots = 4;
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 4, -1, -1);
    assert_true(says("model=NAME"));
    must_not_have_asked("/upstream");
}

static void an_idle_model_may_be_unloaded(void **state)
{
    (void)state;
    struct play scene = scene_of("ttl", "coder");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 0, -1); /* a verify asks */
    scene.last = &play_run.reading;
    scene.wants = PROBE_FULL;
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1);
    must_not_have_asked("/upstream");
    assert_true(says("ttl"));
    struct reading rested = {
        .sent_ns = PLAY_NOW - NS_PER_SEC, .health = HEALTH_OK, .idle_ticks = 1000};
    scene.last = &rested; /* who only looks asks now and then, at ever longer distances */
    scene.wants = PROBE_LOOK;
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1);
    must_not_have_asked("/upstream");
    rested.rest_ticks = 500;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 0, -1);
    scene.wants = PROBE_FULL;
    scene.prefix = "busy"; /* ttl 0: it is never stopped */
    scene.last = NULL;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    scene.prefix = "ttl"; /* and one with work in it is not idle */
    scene.last = &play_run.reading;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 0, -1);
}

static void names_are_written_into_the_path(void **state)
{
    (void)state;
    static const char running[] = "{\"running\":[{\"model\":\"a/b c?d\",\"state\":\"ready\"}]}";
    struct play scene = scene_of("none", "a/b c?d");
    scene.other[0] = (struct play_other){"/running", 200, running, HTTP_NONE};
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1); /* 404: another engine's server */
    assert_string_equal(play_asked, "/running+/api/hardware /upstream/a/b%20c%3Fd/slots");
    assert_true(says("no /slots"));
}

static void what_it_refuses_is_not_free(void **state)
{
    (void)state;
    struct play scene = scene_of("busy", "coder");
    scene.other[0] = (struct play_other){"/upstream/coder/slots", 429, NULL, HTTP_NONE};
    play_reads(&scene, HEALTH_BUSY, SIGNAL_NONE, -1, -1, -1);
    scene.other[0] = (struct play_other){"/upstream/coder/slots", 503, "{}", HTTP_NONE};
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene.other[0] = (struct play_other){"/upstream/coder/slots", 0, NULL, HTTP_TIMEOUT_ANSWER};
    play_reads(&scene, HEALTH_BUSY, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("key", "coder");
    play_reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("error", "coder");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
}

static void a_peer_s_model_is_not_taken_for_idle(void **state)
{
    (void)state;
    static const char models[] =
        "{\"data\":[{\"id\":\"far\",\"meta\":{\"llamaswap\":{\"peerID\":\"p\"}}}]}";
    struct play scene = scene_of("unloaded", "far");
    scene.other[0] = (struct play_other){"/v1/models", 200, models, HTTP_NONE};
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1);
    assert_true(says("peer"));
}

static void whoever_is_sent_to_the_pages_finds_no_hardware(void **state)
{
    (void)state;
    struct play scene = scene_of("busy", "coder");
    scene.other[0] = (struct play_other){"/api/hardware", 302, NULL, HTTP_NONE};
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
}

/* A command line may hold a key: nothing of it is kept. */
static void no_command_line_is_kept(void **state)
{
    (void)state;
    struct play scene = scene_of("busy", "coder");
    const struct reading *reading = play(&scene);
    assert_null(memmem(reading, sizeof *reading, "secret", 6));
    assert_null(memmem(reading, sizeof *reading, "--port", 6));
}

/* ---- llama-skein ---- */

static void skein_counts_what_it_lets_in(void **state)
{
    (void)state;
    struct play scene = skein_of("ready", NULL);
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    assert_string_equal(play_asked, "/running+/api/hardware");
    scene = skein_of("queued", NULL);
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 3, -1);
    scene.slots = 4; /* it undercounts */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 3, -1);
    scene = skein_of("busy", "coder"); /* the only one that runs */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    must_not_have_asked("/upstream");
}

static void skein_with_nothing_loaded(void **state)
{
    (void)state;
    struct play scene = skein_of("unloaded", NULL);
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    scene.slots = 2;
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, 2, 0, 0);
    scene = skein_of("waiting", NULL); /* a request waits for a model to be started */
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = skein_of("waiting", "coder");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_NONE, -1, -1, -1);
    scene = skein_of("loading", "coder");
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
}

static void skein_with_other_models(void **state)
{
    (void)state;
    struct play scene = skein_of("two", "coder");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    assert_non_null(strstr(play_asked, "/upstream/coder/slots"));
    scene = skein_of("two", NULL);
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 3, 2, -1);
    scene = skein_of("other_idle", "coder");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    scene = skein_of("other_busy", "coder");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_NONE, -1, -1, -1);
}

static void odd_answers_are_unknown(void **state)
{
    (void)state;
    static const struct play_other odd[] = {
        {"/running", 200, "{}", HTTP_NONE},
        {"/running", 200, "[]", HTTP_NONE},
        {"/running", 200, "<html>", HTTP_NONE},
        {"/running", 404, "", HTTP_NONE},
        {"/running", 302, "", HTTP_NONE},
        {"/running", 200, "{\"running\":[0]}", HTTP_NONE},
        {"/running", 200, "{\"running\":[{\"model\":\"coder\"}]}", HTTP_NONE},
        {"/running", 200, "{\"running\":[{\"model\":1,\"state\":\"ready\"}]}", HTTP_NONE},
        {"/api/hardware", 200, "<html>", HTTP_NONE},
        {"/api/hardware", 200, "{\"inference\":{}}", HTTP_NONE},
        {"/api/hardware", 200, "{\"inference\":{\"in_flight\":-1,\"slots_total\":1}}", HTTP_NONE},
        {"/api/hardware", 500, "", HTTP_NONE},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct play scene = skein_of("ready", "coder");
        scene.other[0] = odd[i];
        play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    }
}

static int load(void **state)
{
    (void)state;
    swap_count = recorded_load("llama-swap", swap);
    skein_count = recorded_load("llama-skein", skein);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ready_model_s_server_is_asked),
        cmocka_unit_test(nothing_is_ever_loaded),
        cmocka_unit_test(an_unloaded_model_is_offered),
        cmocka_unit_test(one_on_its_way_is_loading),
        cmocka_unit_test(without_a_model_leases_decide),
        cmocka_unit_test(an_idle_model_may_be_unloaded),
        cmocka_unit_test(names_are_written_into_the_path),
        cmocka_unit_test(what_it_refuses_is_not_free),
        cmocka_unit_test(a_peer_s_model_is_not_taken_for_idle),
        cmocka_unit_test(whoever_is_sent_to_the_pages_finds_no_hardware),
        cmocka_unit_test(no_command_line_is_kept),
        cmocka_unit_test(skein_counts_what_it_lets_in),
        cmocka_unit_test(skein_with_nothing_loaded),
        cmocka_unit_test(skein_with_other_models),
        cmocka_unit_test(odd_answers_are_unknown),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
