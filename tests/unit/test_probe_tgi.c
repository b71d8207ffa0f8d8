#include <string.h>

#include "tests/lib/check.h"
#include "tests/lib/play.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static const struct play_name names[] = {{"/info", "info"}, {"/metrics", "metrics"}, {NULL, NULL}};

static struct play scene_of(const char *prefix)
{
    return (struct play){.engine = &engine_tgi,
                         .all = all,
                         .count = all_count,
                         .names = names,
                         .prefix = prefix,
                         .wants = PROBE_FULL};
}

static void batch_and_queue_are_counted(void **state)
{
    (void)state;
    struct play scene = scene_of("idle");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 128, 0, 0);
    assert_string_equal(play_asked, "/info+/metrics");
    assert_string_equal(play_run.reading.models[0].name, "bigscience/bloom-560m");
    scene = scene_of("busy");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 128, 4, 0);
    scene = scene_of("queued");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 128, 9, 3);
    assert_int_equal(play_run.reading.queue_means_full, 0);
    scene = scene_of("old_busy");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 128, 2, 0);
    scene = scene_of("old_idle");
    scene.slots = 8;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 0, 0);
}

static void a_fresh_one_is_not_taken_for_idle(void **state)
{
    (void)state;
    struct play scene = scene_of("fresh");
    play_reads(&scene, HEALTH_OK, SIGNAL_NONE, 128, -1, -1);
    assert_non_null(strstr(play_run.reading.detail, "first request"));
}

static void a_verify_asks_for_what_changes(void **state)
{
    (void)state;
    struct play scene = scene_of("idle");
    play(&scene);
    scene.prefix = "busy";
    scene.wants = PROBE_QUICK;
    scene.last = &play_run.reading;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 128, 4, 0);
    assert_string_equal(play_asked, "/metrics");
    assert_int_equal(play_run.reading.model_count, 1);
    scene.last = NULL;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 128, 4, 0);
    assert_string_equal(play_asked, "/info+/metrics");
}

static void failures_have_their_health(void **state)
{
    (void)state;
    struct play scene = scene_of("loading");
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("error");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("key");
    play_reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("no such state");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
}

static void odd_answers_are_never_free(void **state)
{
    (void)state;
    static const struct play_other odd[] = {
        {"/info", 200, "{}", HTTP_NONE},
        {"/info", 200, "<html>", HTTP_NONE},
        {"/info", 200, "{\"max_concurrent_requests\":0}", HTTP_NONE},
        {"/info", 200, "{\"max_concurrent_requests\":\"1\"}", HTTP_NONE},
        {"/metrics", 200, "<html>", HTTP_NONE},
        {"/metrics", 200, "", HTTP_NONE},
        {"/metrics", 200, "# TYPE tgi_queue_size gauge\n", HTTP_NONE},
        {"/metrics", 200, "tgi_request_count 3\n", HTTP_NONE},
        {"/metrics", 200, "other 1\n", HTTP_NONE},
        {"/metrics", 200, "tgi_queue_size 0\n", HTTP_NONE},
        {"/metrics", 200, "tgi_queue_size NaN\ntgi_batch_current_size 0\n", HTTP_NONE},
        {"/metrics", 200, "tgi_queue_size 0\ntgi_batch_current_size -1\n", HTTP_NONE},
        {"/metrics", 200, "tgi_queue_size 0\ntgi_batch_current_size 1", HTTP_NONE},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct play scene = scene_of("idle");
        scene.other[0] = odd[i];
        const struct reading *reading = play(&scene);
        if (reading->in_flight != -1 || reading->signal != SIGNAL_NONE ||
            reading->health != HEALTH_UNKNOWN)
            fail_msg("%s %s counts", odd[i].path, odd[i].body);
    }
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("tgi", all);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_and_queue_are_counted),
        cmocka_unit_test(a_fresh_one_is_not_taken_for_idle),
        cmocka_unit_test(a_verify_asks_for_what_changes),
        cmocka_unit_test(failures_have_their_health),
        cmocka_unit_test(odd_answers_are_never_free),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
