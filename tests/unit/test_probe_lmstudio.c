#include <string.h>

#include "tests/lib/check.h"
#include "tests/lib/play.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static const struct play_name names[] = {
    {"/api/v1/models", "models"}, {"/api/v0/models", "v0models"}, {NULL, NULL}};

static struct play scene_of(const char *prefix)
{
    return (struct play){.engine = &engine_lmstudio,
                         .all = all,
                         .count = all_count,
                         .names = names,
                         .prefix = prefix,
                         .wants = PROBE_FULL};
}

static void capacity_is_told_and_nothing_else(void **state)
{
    (void)state;
    struct play scene = scene_of("loaded");
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 4, -1, -1);
    assert_string_equal(play_asked, "/api/v1/models");
    assert_non_null(strstr(play_run.reading.detail, "capacity only"));
    assert_string_equal(play_run.reading.models[0].name, "qwen/qwen3-8b");
    scene.slots = 2; /* the operator knows better */
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 2, -1, -1);
    scene = scene_of("twice"); /* two instances of one model */
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 6, -1, -1);
    scene = scene_of("untold");
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1);
    assert_non_null(strstr(play_run.reading.detail, "slots=N"));
}

static void of_several_models_one_is_named(void **state)
{
    (void)state;
    struct play scene = scene_of("two");
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 2, -1, -1); /* the least that fits any of them */
    assert_non_null(strstr(play_run.reading.detail, "model=NAME"));
    scene.model = "qwen/qwen3-8b";
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 4, -1, -1);
    scene.model = "google/gemma-3-4b";
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 2, -1, -1);
    scene = scene_of("twice");
    scene.model = "qwen/qwen3-8b:2"; /* an instance by its own name */
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 6, -1, -1);
    scene.model = "no such";
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("loaded");
    scene.model = "text-embedding-nomic-embed-text-v1.5";
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1);
}

static void what_is_not_loaded_is_offered(void **state)
{
    (void)state;
    struct play scene = scene_of("unloaded");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    assert_non_null(strstr(play_run.reading.detail, "the first request loads it"));
    scene = scene_of("empty");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    scene = scene_of("loaded");
    scene.model = "google/gemma-3-4b"; /* while another one may be at work */
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_NONE, -1, -1, -1);
}

static void old_versions_tell_less(void **state)
{
    (void)state;
    struct play scene = scene_of("old_loaded"); /* 200 with an error inside */
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, -1, -1, -1);
    assert_string_equal(play_asked, "/api/v1/models /api/v0/models");
    scene.slots = 3;
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 3, -1, -1);
    scene.model = "gemma-3-4b";
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_NONE, 3, -1, -1);
    scene = scene_of("old_unloaded");
    play_reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
}

static void failures_have_their_health(void **state)
{
    (void)state;
    struct play scene = scene_of("key");
    play_reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("error");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("no such state");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
}

static void odd_answers_are_never_free(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "{}",
        "[]",
        "<html>",
        "{\"models\":{}}",
        "{\"models\":[3]}",
        "{\"models\":[{\"key\":\"a\"}]}",
        "{\"models\":[{\"key\":\"a\",\"loaded_instances\":1}]}",
        "{\"models\":[{\"key\":\"a\",\"loaded_instances\":[1]}]}",
        "{\"models\":[{\"key\":\"a\",\"loaded_instances\":[{\"config\":{\"parallel\":\"4\"}}]}]}",
        "{\"models\":[{\"key\":\"a\",\"loaded_instances\":[{\"config\":{\"parallel\":-4}}]}]}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct play scene = scene_of("loaded");
        scene.other[0] = (struct play_other){"/api/v1/models", 200, odd[i], HTTP_NONE};
        play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    }
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("lmstudio", all);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_told_and_nothing_else),
        cmocka_unit_test(of_several_models_one_is_named),
        cmocka_unit_test(what_is_not_loaded_is_offered),
        cmocka_unit_test(old_versions_tell_less),
        cmocka_unit_test(failures_have_their_health),
        cmocka_unit_test(odd_answers_are_never_free),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
