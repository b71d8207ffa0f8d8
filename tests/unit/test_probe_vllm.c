#include <string.h>

#include "tests/lib/check.h"
#include "tests/lib/play.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static const struct play_name names[] = {{"/load", "load"}, {"/metrics", "metrics"}, {NULL, NULL}};

static struct play scene_of(const char *prefix)
{
    return (struct play){.engine = &engine_vllm,
                         .all = all,
                         .count = all_count,
                         .names = names,
                         .prefix = prefix,
                         .wants = PROBE_FULL,
                         .slots = 8};
}

/* The same server again after `later_ns`, in another state. */
static struct play then(const struct play *before, const char *prefix, ns_t later_ns)
{
    struct play scene = *before;
    scene.prefix = prefix;
    scene.memory = play_run.memory;
    scene.last = &play_run.reading;
    scene.now = (before->now != 0 ? before->now : PLAY_NOW) + later_ns;
    return scene;
}

static bool says(const char *text)
{
    return strstr(play_run.reading.detail, text) != NULL;
}

/* ---- /load ---- */

static void load_that_counts_is_exact(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 3, 0);
    assert_string_equal(play_asked, "/load+/metrics");
    assert_string_equal(play_run.reading.detail, "");
    scene = then(&scene, "idle", NS_PER_SEC);
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 0, 0);
}

static void load_that_never_counted_is_not_idle(void **state)
{
    (void)state;
    struct play scene = scene_of("idle");
    for (int i = 0; i < 200; i++) {
        play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
        assert_true(says("counts nothing") && says("--enable-server-load-tracking"));
        scene = then(&scene, "idle", 5 * NS_PER_SEC);
    }
    scene = scene_of("untracked");
    for (int i = 0; i < 200; i++) {
        play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 3, 0);
        assert_true(says("3 run, 0 wait some seconds ago"));
        scene = then(&scene, "untracked", NS_PER_SEC);
    }
}

static void a_verify_asks_load_alone_where_it_is_believed(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play(&scene);
    scene = then(&scene, "idle", NS_PER_SEC);
    scene.wants = PROBE_QUICK;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 0, 0);
    assert_string_equal(play_asked, "/load");
    scene = then(&scene, "idle", 2 * NS_PER_SEC); /* the gauges have got old */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 0, 0);
    assert_string_equal(play_asked, "/load+/metrics");
    scene = scene_of("idle");
    scene.wants = PROBE_QUICK;
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
    assert_string_equal(play_asked, "/load+/metrics");
}

static void a_reading_in_the_book_is_as_good(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play(&scene);
    scene = then(&scene, "idle", NS_PER_SEC);
    memset(&scene.memory, 0, sizeof scene.memory); /* another process */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 0, 0);
    scene = then(&scene, "idle", READING_TRUST_MS * NS_PER_MS + NS_PER_SEC);
    memset(&scene.memory, 0, sizeof scene.memory);
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
}

static void load_below_the_gauges_is_their_lag_at_first(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play(&scene);
    for (int i = 0; i < 29; i++) {
        scene = then(&scene, "untracked", NS_PER_SEC); /* 3 run by the gauges, /load is 0 */
        play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 0, 0);
    }
    for (int i = 0; i < 2; i++) {
        scene = then(&scene, "untracked", NS_PER_SEC);
        play(&scene);
    }
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 3, 0);
    scene = then(&scene, "busy", NS_PER_SEC); /* it counts after all */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 3, 0);
}

static void a_counter_that_drifted_is_not_believed_again(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play(&scene);
    scene = then(&scene, "drifted", NS_PER_SEC);
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
    assert_true(says("drifted"));
    scene = then(&scene, "busy", NS_PER_SEC);
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 3, 0);
    scene = then(&scene, "restarted", NS_PER_SEC);
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
    assert_true(says("counts nothing"));
    scene = then(&scene, "restarted", NS_PER_SEC);
    scene.other[0] = (struct play_other){"/load", 200, "{\"server_load\":1}", HTTP_NONE};
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 1, 0);
}

static void a_counter_that_leaked_is_found_out(void **state)
{
    (void)state;
    struct play scene = scene_of("idle");
    scene.other[0] = (struct play_other){"/load", 200, "{\"server_load\":2}", HTTP_NONE};
    for (int i = 0; i < 60; i++) {
        play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 2, 0);
        scene = then(&scene, "idle", NS_PER_SEC);
    }
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
    assert_true(says("drifted"));
}

static void a_restart_voids_what_was_learnt(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    play(&scene);
    scene = then(&scene, "restarted", NS_PER_SEC);
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
    scene = scene_of("busy");
    play(&scene);
    scene = then(&scene, "busy", NS_PER_SEC);
    scene.other[0] = (struct play_other){"/load", 0, NULL, HTTP_UNREACHABLE};
    play_reads(&scene, HEALTH_DOWN, SIGNAL_NONE, 8, -1, -1);
    assert_false(play_run.memory.vllm.believed);
}

/* ---- gauges ---- */

static void gauges_alone_are_inferred(void **state)
{
    (void)state;
    struct play scene = scene_of("old_busy"); /* 2 run, 1 is swapped out */
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 3, 0);
    assert_true(says("no /load"));
    scene = scene_of("old_idle");
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 8, 0, 0);
    scene = scene_of("old_queued");
    play_reads(&scene, HEALTH_BUSY, SIGNAL_INFERRED, 8, 8, 3);
}

static void all_engines_are_summed(void **state)
{
    (void)state;
    struct play scene = scene_of("ranks");
    scene.slots = 32;
    scene.other[0] = (struct play_other){"/load", 404, NULL, HTTP_NONE};
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 32, 13, 0);
}

/* A queue is more than our leases could have made only where everything runs that can. */
static void a_queue_means_full_only_where_it_does(void **state)
{
    (void)state;
    struct play scene = scene_of("queued"); /* 8 run, 5 wait */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 13, 5);
    assert_int_equal(play_run.reading.queue_means_full, 0);
    scene.other[0] = (struct play_other){"/load", 404, NULL, HTTP_NONE};
    play_reads(&scene, HEALTH_BUSY, SIGNAL_INFERRED, 8, 13, 5);
    scene.slots = 16; /* they wait for a prefill */
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, 16, 13, 5);
    scene = scene_of("exhausted"); /* 5 run, 2 wait for the cache */
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 7, 2);
    assert_int_equal(play_run.reading.queue_means_full, 1);
    scene.other[0] = (struct play_other){"/load", 404, NULL, HTTP_NONE};
    play_reads(&scene, HEALTH_BUSY, SIGNAL_INFERRED, 8, 7, 2);
}

static void a_full_cache_is_remembered_for_a_verify(void **state)
{
    (void)state;
    struct play scene = scene_of("exhausted");
    play(&scene);
    scene = then(&scene, "exhausted", NS_PER_SEC);
    scene.wants = PROBE_QUICK;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, 8, 7, 2);
    assert_string_equal(play_asked, "/load");
    assert_int_equal(play_run.reading.queue_means_full, 1);
}

/* ---- the rest ---- */

static void capacity_must_be_told(void **state)
{
    (void)state;
    struct play scene = scene_of("busy");
    scene.slots = 0;
    play_reads(&scene, HEALTH_OK, SIGNAL_EXACT, -1, 3, 0);
    assert_true(says("slots=N"));
    scene = scene_of("old_busy");
    scene.slots = 0;
    play_reads(&scene, HEALTH_OK, SIGNAL_INFERRED, -1, 3, 0);
    assert_true(says("slots=N"));
}

static void failures_have_their_health(void **state)
{
    (void)state;
    struct play scene = scene_of("loading");
    play_reads(&scene, HEALTH_LOADING, SIGNAL_NONE, 8, -1, -1);
    scene = scene_of("error");
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, 8, -1, -1);
    scene = scene_of("key");
    play_reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, 8, -1, -1);
    assert_true(says("key-file=PATH"));
    scene = scene_of("no such state"); /* 404 to everything */
    play_reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, 8, -1, -1);
    scene = scene_of("busy");
    scene.other[0] = (struct play_other){"/load", 0, NULL, HTTP_TIMEOUT_ANSWER};
    play_reads(&scene, HEALTH_BUSY, SIGNAL_NONE, 8, -1, -1);
}

static void odd_answers_are_never_free(void **state)
{
    (void)state;
    static const struct play_other odd[] = {
        {"/load", 200, "{}", HTTP_NONE},
        {"/load", 200, "[]", HTTP_NONE},
        {"/load", 200, "<html>", HTTP_NONE},
        {"/load", 200, "{\"server_load\":\"0\"}", HTTP_NONE},
        {"/load", 200, "{\"server_load\":0.0}", HTTP_NONE},
        {"/load", 200, "{\"server_load\":99999999999}", HTTP_NONE},
        {"/load", 302, "", HTTP_NONE},
        {"/metrics", 200, "<html>", HTTP_NONE},
        {"/metrics", 200, "vllm:num_requests_running 0\n", HTTP_NONE},
        {"/metrics", 200, "vllm:num_requests_running -1\nvllm:num_requests_waiting 0\n", HTTP_NONE},
        {"/metrics", 200, "vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n",
         HTTP_NONE},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct play scene = scene_of("idle");
        scene.other[0] = odd[i];
        const struct reading *reading = play(&scene);
        if (reading->health != HEALTH_UNKNOWN || reading->in_flight != -1)
            fail_msg("%s %s: %s", odd[i].path, odd[i].body, reading->detail);
    }
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("vllm", all);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_that_counts_is_exact),
        cmocka_unit_test(load_that_never_counted_is_not_idle),
        cmocka_unit_test(a_verify_asks_load_alone_where_it_is_believed),
        cmocka_unit_test(a_reading_in_the_book_is_as_good),
        cmocka_unit_test(load_below_the_gauges_is_their_lag_at_first),
        cmocka_unit_test(a_counter_that_drifted_is_not_believed_again),
        cmocka_unit_test(a_counter_that_leaked_is_found_out),
        cmocka_unit_test(a_restart_voids_what_was_learnt),
        cmocka_unit_test(gauges_alone_are_inferred),
        cmocka_unit_test(all_engines_are_summed),
        cmocka_unit_test(a_queue_means_full_only_where_it_does),
        cmocka_unit_test(a_full_cache_is_remembered_for_a_verify),
        cmocka_unit_test(capacity_must_be_told),
        cmocka_unit_test(failures_have_their_health),
        cmocka_unit_test(odd_answers_are_never_free),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
