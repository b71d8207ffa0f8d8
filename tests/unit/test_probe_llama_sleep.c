/* What keeps a llama-server from falling asleep, or wakes it: nothing of ours. */
#define _GNU_SOURCE
#include "tests/lib/llama_scene.h"

static void a_sleeping_server_is_not_woken(void **state)
{
    (void)state;
    for (int wants = PROBE_QUICK; wants <= PROBE_LOOK; wants++) {
        struct scene scene = {.prefix = "asleep", .wants = (enum probe_wants)wants};
        reads(&scene, HEALTH_SLEEPING, SIGNAL_EXACT, 1, 0, 0);
        assert_string_equal(asked, "/props");
        assert_true(run.memory.seen_asleep && run.memory.can_sleep);
        assert_int_equal(run.reading.models[0].state, MODEL_SLEEPING);
        scene.last = last_of(HEALTH_OK, 1, 1200); /* its work may have ended, and it slept since */
        scene.memory = (struct engine_memory){
            .awake_ns = NOW - 950 * NS_PER_MS, .told_ns = NOW - NS_PER_MS, .can_sleep = true};
        reads(&scene, HEALTH_SLEEPING, SIGNAL_EXACT, 1, 0, 0);
        assert_string_equal(asked, "/props");
        scene.last = last_of(HEALTH_OK, 0, 1); /* idle by /metrics, which keeps nobody awake */
        reads(&scene, HEALTH_SLEEPING, SIGNAL_EXACT, 1, 0, 0);
        assert_string_equal(asked, "/props");
    }
}

static void a_server_that_is_certainly_awake_is_asked_at_once(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "np1_busy", .wants = PROBE_QUICK};
    scene.last = last_of(HEALTH_OK, 1, 500);
    scene.last.model_count = 1;
    strcpy(scene.last.models[0].name, "kept");
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    assert_string_equal(asked, "/slots");
    assert_string_equal(run.reading.models[0].name, "kept");
    scene.last = last_of(HEALTH_OK, 0, 500);
    scene.memory.awake_ns = NOW - 500 * NS_PER_MS;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    assert_string_equal(asked, "/slots");
    scene.memory = (struct engine_memory){.told_ns = NOW - 5 * NS_PER_SEC, .can_sleep = false};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    assert_string_equal(asked, "/slots");
    scene.memory.told_ns = NOW - 7 * NS_PER_SEC; /* it may be another server by now */
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    assert_string_equal(asked, "/props /slots");
    scene.last = last_of(HEALTH_BUSY, -1, 1);
    scene.memory = (struct engine_memory){0};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    assert_string_equal(asked, "/props /slots");
}

static void an_idle_server_is_not_kept_awake(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "np1_idle", .wants = PROBE_FULL};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, 0);
    assert_string_equal(asked, "/props /metrics");
    assert_true(run.memory.awake_ns == 0);
    scene.prefix = "np1_busy";
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, 0);
    assert_string_equal(asked, "/props /metrics /slots");
    assert_true(run.memory.awake_ns == run.reading.sent_ns);
    scene.last = last_of(HEALTH_OK, 1, 5000); /* one wait for the batch in work, not two */
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, 0);
    assert_string_equal(asked, "/props /metrics+/slots");
}

static void without_metrics_a_sleeper_is_left_in_peace(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "noflags_idle", .wants = PROBE_FULL};
    scene.last = last_of(HEALTH_OK, 0, 5000);
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    assert_string_equal(asked, "/props /slots");
    scene.memory.seen_asleep = true;
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    assert_string_equal(asked, "/props");
    scene.last = last_of(HEALTH_OK, -1, 5000);
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    scene.last = last_of(HEALTH_SLEEPING, 0, 5000); /* somebody has woken it: for some work */
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.last = last_of(HEALTH_OK, 1, 5000);
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.last = last_of(HEALTH_OK, 0, 5000);
    scene.wants = PROBE_QUICK;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
}

/* Who could sleep and is of no interest to anybody is asked for nothing that keeps it awake, also
 * before it was ever seen asleep. What is not asked is no reading to go by. */
static void of_no_interest_it_is_left_in_peace(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "noflags_idle", .wants = PROBE_IDLE};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1); /* nothing is known of it so far */
    scene.last = run.reading;
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    assert_string_equal(asked, "/props");
    assert_int_equal(run.reading.in_peace, 1);
    scene.wants = PROBE_FULL;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    assert_int_equal(run.reading.in_peace, 0);
    scene.wants = PROBE_IDLE;
    scene.last = last_of(HEALTH_OK, 1, 5000);
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.prefix = "b6845/noflags_idle"; /* knows no sleep */
    scene.last = last_of(HEALTH_OK, 0, 5000);
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.prefix = "np1_idle"; /* its metrics keep nobody awake */
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, 0);
    assert_string_equal(asked, "/props /metrics");
}

/* Who only looks asks at distances that double, of one that is known to sleep. */
static void of_lookers_it_has_its_rest(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "noflags_idle", .wants = PROBE_LOOK};
    scene.memory.seen_asleep = true;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.last = last_of(HEALTH_OK, 0, 1200);
    scene.last.idle_ticks = 20;
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    assert_string_equal(asked, "/props");
    assert_int_equal(run.reading.in_peace, 1);
    scene.last.rest_ticks = 12;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.last = last_of(HEALTH_OK, 1, 1200); /* who works is asked */
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.last = last_of(HEALTH_SLEEPING, 0, 1200);
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
}

/* Its strangers are to be seen by who looks, for most of the time. */
static void one_never_seen_asleep_has_a_short_rest(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "noflags_idle", .wants = PROBE_LOOK};
    scene.last = last_of(HEALTH_OK, 0, 1200);
    scene.last.idle_ticks = 4 * 7;
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    assert_string_equal(asked, "/props");
    scene.last.idle_ticks = 4 * 10;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    scene.last.idle_ticks = UINT16_MAX;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
}

/* A server that is to fall asleep after so many idle seconds, and its agent, for ten minutes and as long
 * as it may take beside somebody who looks. */
static void sleep_for_10_minutes(const char *awake, ns_t idle_ns, enum probe_wants wants,
                                 bool has_slept)
{
    struct scene scene = {.wants = wants};
    bool look = wants == PROBE_LOOK;
    scene.memory.seen_asleep = has_slept;
    ns_t idle_since = NOW, asleep_ns = 0;
    ns_t interval_ns = (look ? PROBE_ACTIVE_MS : PROBE_IDLE_MS) * NS_PER_MS;
    ns_t most_ns = (!look ? 1 : has_slept ? 3 : 18) * idle_ns + 10 * NS_PER_SEC;
    for (ns_t now = NOW; now < NOW + 600 * NS_PER_SEC + most_ns; now += interval_ns) {
        if (asleep_ns == 0 && now - idle_since >= idle_ns)
            asleep_ns = now;
        scene.prefix = asleep_ns != 0 ? "asleep" : awake;
        const struct reading *reading = play(&scene);
        if (strstr(asked, "/slots") != NULL) {
            assert_true(asleep_ns == 0); /* it would wake */
            idle_since = now;
        }
        assert_int_equal(reading->health, asleep_ns != 0 ? HEALTH_SLEEPING : HEALTH_OK);
        reading_rest(&run.reading, &scene.last);
        scene.last = run.reading;
        scene.last.sent_ns = scene.last.answered_ns = NOW - interval_ns;
        scene.memory = run.memory;
    }
    assert_true(asleep_ns != 0 && asleep_ns <= NOW + most_ns);
}

static void it_falls_asleep_and_stays_so(void **state)
{
    (void)state;
    static const int seconds[] = {1, 4, 6, 8, 30, 120, 300};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        sleep_for_10_minutes("noflags_idle", seconds[i] * NS_PER_SEC, PROBE_IDLE, false);
        sleep_for_10_minutes("np1_idle", seconds[i] * NS_PER_SEC, PROBE_IDLE, false);
        for (int has_slept = 0; has_slept < 2; has_slept++) {
            sleep_for_10_minutes("noflags_idle", seconds[i] * NS_PER_SEC, PROBE_LOOK, has_slept);
            sleep_for_10_minutes("np1_idle", seconds[i] * NS_PER_SEC, PROBE_LOOK, has_slept);
        }
    }
}

static void a_reading_s_time_is_the_decisive_question_s(void **state)
{
    (void)state;
    play(&(struct scene){.prefix = "np1_busy", .wants = PROBE_FULL});
    assert_true(run.reading.sent_ns == NOW + 2 * NS_PER_MS); /* after /props and /metrics */
    play(&(struct scene){.prefix = "np1_idle", .wants = PROBE_FULL});
    assert_true(run.reading.sent_ns == NOW + NS_PER_MS);
    play(&(struct scene){.prefix = "asleep", .wants = PROBE_FULL});
    assert_true(run.reading.sent_ns == NOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeping_server_is_not_woken),
        cmocka_unit_test(a_server_that_is_certainly_awake_is_asked_at_once),
        cmocka_unit_test(an_idle_server_is_not_kept_awake),
        cmocka_unit_test(without_metrics_a_sleeper_is_left_in_peace),
        cmocka_unit_test(of_no_interest_it_is_left_in_peace),
        cmocka_unit_test(of_lookers_it_has_its_rest),
        cmocka_unit_test(one_never_seen_asleep_has_a_short_rest),
        cmocka_unit_test(it_falls_asleep_and_stays_so),
        cmocka_unit_test(a_reading_s_time_is_the_decisive_question_s),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
