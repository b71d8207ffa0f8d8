#include <string.h>

#include "tests/lib/check.h"
#include "tests/lib/play.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static const struct play_name names[] = {
    {"/v1/loads", "loads"}, {"/get_load", "get_load"}, {"/metrics", "metrics"}, {NULL, NULL}};

static struct play scene_of(const char *prefix)
{
    return (struct play){.engine = &engine_sglang,
                         .all = all,
                         .count = all_count,
                         .names = names,
                         .prefix = prefix,
                         .wants = PROBE_FULL};
}

static struct play then(const struct play *before, const char *prefix)
{
    struct play scene = *before;
    scene.prefix = prefix;
    scene.memory = play_run.memory;
    scene.last = &play_run.reading;
    return scene;
}

static void all_is_told_in_one_answer(void **state)
{
    (void)state;
    struct play scene = scene_of("idle");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 32, 0, 0);
    assert_string_equal(play_asked, "/v1/loads?include=core");
    scene = scene_of("busy");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 32, 3, 0);
    scene = scene_of("aggregate_busy");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 32, 2, 0);
    scene = scene_of("queued");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 32, 36, 4);
    assert_int_equal(play_run.reading.queue_means_full, 0);
    scene = scene_of("exhausted");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 32, 11, 2);
    assert_int_equal(play_run.reading.queue_means_full, 1);
}

static void ranks_are_summed(void **state)
{
    (void)state;
    struct play scene = scene_of("ranks");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 64, 6, 1);
}

static void a_missing_rank_is_a_gap_once(void **state)
{
    (void)state;
    struct play scene = scene_of("ranks");
    play(&scene);
    scene = then(&scene, "idle");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene = then(&scene, "idle");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 32, 0, 0);
}

static void slots_win_over_the_server_s_limit(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    scene.slots = 4;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 3, 0);
}

static void an_older_one_is_asked_as_it_wants(void **state)
{
    (void)state;
    struct play scene = scene_of("old_busy");
    scene.slots = 8;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 2, 0);
    assert_string_equal(play_asked, "/v1/loads?include=core /get_load");
    scene = then(&scene, "old_queued");
    scene.wants = PROBE_QUICK;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 11, 3);
    assert_string_equal(play_asked, "/get_load"); /* known by now */
    scene = then(&scene, "ranks");                /* it was upgraded */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 6, 1);
    assert_string_equal(play_asked, "/get_load /v1/loads?include=core");
    scene = scene_of("old_idle");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, -1, 0, 0);
    assert_non_null(strstr(play_run.reading.detail, "slots=N"));
}

static void metrics_are_the_last_resort(void **state)
{
    (void)state;
    struct play scene = scene_of("metrics_busy");
    scene.slots = 8;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 3, 0);
    assert_string_equal(play_asked, "/v1/loads?include=core /get_load /metrics");
    scene = scene_of("metrics_idle");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, -1, 0, 0);
    scene = scene_of("metrics_queued"); /* priorities are counted in the sum already */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, -1, 7, 2);
    assert_int_equal(play_run.reading.queue_means_full, 1);
}

static void failures_have_their_health(void **state)
{
    (void)state;
    struct play scene = scene_of("loading"); /* no rank has written anything */
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("starting");
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("error");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene = scene_of("key");
    scene.key_file = "/etc/key";
    play_reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
    assert_non_null(strstr(play_run.reading.detail, "/etc/key"));
    scene = scene_of("no such state");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    assert_non_null(strstr(play_run.reading.detail, "no SGLang"));
}

static void odd_answers_are_never_free(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "{}",
        "[]",
        "null",
        "<html>",
        "{\"loads\":[]}",
        "{\"loads\":[{}]}",
        "{\"loads\":[0]}",
        "{\"loads\":[{\"num_running_reqs\":0}]}",
        "{\"loads\":[{\"num_running_reqs\":-1,\"num_waiting_reqs\":0}]}",
        "{\"loads\":[{\"num_running_reqs\":0.0,\"num_waiting_reqs\":0}]}",
        "{\"loads\":[{\"num_running_reqs\":0,\"num_waiting_reqs\":\"0\"}]}",
        ("{\"loads\":[{\"num_running_reqs\":0,\"num_waiting_reqs\":0,"
         "\"max_running_requests\":null}]}"),
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct play scene = scene_of("idle");
        scene.other[0] = (struct play_other){"/v1/loads", 200, odd[i], HTTP_NONE};
        play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    }
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("sglang", all);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_told_in_one_answer),
        cmocka_unit_test(ranks_are_summed),
        cmocka_unit_test(a_missing_rank_is_a_gap_once),
        cmocka_unit_test(slots_win_over_the_server_s_limit),
        cmocka_unit_test(an_older_one_is_asked_as_it_wants),
        cmocka_unit_test(metrics_are_the_last_resort),
        cmocka_unit_test(failures_have_their_health),
        cmocka_unit_test(odd_answers_are_never_free),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
