#define _GNU_SOURCE
#include "tests/lib/llama_scene.h"

/* ---- what was recorded ---- */

static void every_recorded_load_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *prefix;
        int total, in_flight, queued;
    } loads[] = {
        {"np1_fresh", 1, 0, 0},       {"np1_idle", 1, 0, 0},
        {"np1_busy", 1, 1, 0},        {"np1_queued", 1, 1, 1},
        {"np4_fresh", 4, 0, 0},       {"np4_busy1", 4, 1, 0},
        {"np4_busy4", 4, 4, 0},       {"np4_busy4_queued2", 4, 4, 2},
        {"np4_prefill", 4, 1, 0},     {"c8192_np1_idle", 1, 0, 0},
        {"c8192_np1_busy1", 1, 1, 0}, {"c8192_np1_busy1_second", 1, 1, 1},
        {"c8192_np4_idle", 4, 0, 0},  {"c8192_np4_busy1", 4, 1, 0},
        {"key_ok", 1, 0, 0},
    };
    for (size_t i = 0; i < 2 * sizeof loads / sizeof *loads; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s%s", i % 2 ? "b6845/" : "", loads[i / 2].prefix);
        struct scene scene = {.prefix = prefix, .wants = PROBE_FULL};
        char name[96];
        snprintf(name, sizeof name, "%s.slots.json", prefix);
        if (recorded_find(all, all_count, name) == NULL)
            fail_msg("%s is missing", name);
        reads(&scene, HEALTH_OK, SIGNAL_EXACT, loads[i / 2].total, loads[i / 2].in_flight,
              loads[i / 2].queued);
        assert_int_equal(run.reading.named, 1);
        assert_int_equal(run.reading.slot_count, loads[i / 2].total);
        scene.wants = PROBE_QUICK;
        reads(&scene, HEALTH_OK, SIGNAL_EXACT, loads[i / 2].total, loads[i / 2].in_flight, -1);
        assert_string_equal(asked, "/props /slots");
    }
}

static void work_is_named_where_it_is(void **state)
{
    (void)state;
    reads(&(struct scene){.prefix = "np4_busy1", .wants = PROBE_FULL}, HEALTH_OK, SIGNAL_EXACT, 4,
          1, 0);
    assert_int_equal(run.reading.slots[3].busy, 1);
    assert_int_equal(run.reading.slots[3].task, 3);
    assert_int_equal(run.reading.slots[0].busy, 0);
    assert_int_equal(run.reading.slots[0].task, -1);
    /* Idle ones still show the name of their last work. */
    reads(&(struct scene){.prefix = "np1_idle", .wants = PROBE_QUICK}, HEALTH_OK, SIGNAL_EXACT, 1,
          0, -1);
    assert_int_equal(run.reading.slots[0].task, -1);
}

static void the_model_is_named(void **state)
{
    (void)state;
    play(&(struct scene){.prefix = "np1_idle", .wants = PROBE_FULL});
    assert_int_equal(run.reading.model_count, 1);
    assert_string_equal(run.reading.models[0].name, "/models/tiny.gguf");
    assert_int_equal(run.reading.models[0].state, MODEL_LOADED);
    play(&(struct scene){.prefix = "b6845/np1_idle", .wants = PROBE_FULL});
    assert_string_equal(run.reading.models[0].name, "/models/tiny.gguf");
}

static void a_loading_server_is_loading(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "load", .wants = PROBE_FULL};
    reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    assert_string_equal(asked, "/props");
    scene.prefix = "b6845/load";
    reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene.prefix = "load_key_nokey";
    reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene = (struct scene){.other = {{"/props", 503, .body = "{\"status\":\"loading model\"}"}}};
    reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
}

static void a_missing_or_wrong_key_is_said(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"key_none", "key_wrong", "b6845/key_none",
                                           "b6845/key_wrong"};
    for (size_t i = 0; i < 4; i++) {
        struct scene scene = {.prefix = prefixes[i], .wants = PROBE_FULL};
        reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
        assert_non_null(strstr(run.reading.detail, "key-file=PATH"));
        scene.key_file = "/etc/the-key";
        reads(&scene, HEALTH_UNAUTHORIZED, SIGNAL_NONE, -1, -1, -1);
        assert_non_null(strstr(run.reading.detail, "/etc/the-key"));
    }
}

static void without_slots_leases_decide(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "noslots_idle", .wants = PROBE_FULL};
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    assert_string_equal(asked, "/props"); /* it says that both are off */
    assert_non_null(strstr(run.reading.detail, "--slots or --metrics"));
    scene.wants = PROBE_QUICK;
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
    scene.prefix = "b6845/noslots_idle";
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 1, -1, -1);
}

static void without_slots_metrics_count(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "np4_busy4_queued2",
                          .wants = PROBE_QUICK,
                          .other = {{"/props", 200,
                                     .body = "{\"total_slots\":4,\"endpoint_slots\":false,"
                                             "\"endpoint_metrics\":true}"}}};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 4, 2);
    assert_int_equal(run.reading.named, 0);
    assert_int_equal(run.reading.slot_count, 0);
}

/* Of several tasks of one request each is at work; one that waits for a busy slot takes no other's. */
static void tasks_are_counted_not_requests(void **state)
{
    (void)state;
    static const char *const versions[] = {"", "b6845/"};
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "%snp4_promptarray3", versions[i]);
        struct scene scene = {.prefix = name,
                              .wants = PROBE_QUICK,
                              .other = {{"/props", 200, .body = "{\"total_slots\":4}"}}};
        reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 3, -1);
        assert_int_equal(run.reading.named, 1);
        snprintf(name, sizeof name, "%snp4_pinned_busy", versions[i]);
        scene.wants = PROBE_FULL;
        scene.other[0].body =
            "{\"total_slots\":4,\"endpoint_slots\":true,\"endpoint_metrics\":true}";
        reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 1, 1);
        assert_int_equal(run.reading.queue_means_full, 0);
        assert_int_equal(run.reading.slots[2].busy, 1);
    }
}

/* Where nothing else counts: off is told by another status. */
static void nonsense_for_metrics_is_never_free(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "",
        "<html>",
        "llamacpp:requests_processing 2\n",
        "llamacpp:requests_processing 2\nllamacpp:requests_def",
        "llamacpp:requests_processing NaN\nllamacpp:requests_deferred 0\n",
        "llamacpp:requests_processing -1\nllamacpp:requests_deferred 0\n",
        "llamacpp:requests_processing 0\nllamacpp:requests_deferred 0",
    };
    struct scene scene = {.prefix = "np4_idle",
                          .other = {{"/props", 200,
                                     .body = "{\"total_slots\":4,\"endpoint_slots\":false,"
                                             "\"endpoint_metrics\":true}"},
                                    {"/metrics", 200, .body = ""}}};
    for (size_t i = 0; i < 2 * sizeof odd / sizeof *odd; i++) {
        scene.wants = i % 2 == 0 ? PROBE_QUICK : PROBE_FULL;
        scene.other[1].body = odd[i / 2];
        reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, 4, -1, -1);
        assert_non_null(strstr(run.reading.detail, "/metrics"));
    }
    scene.other[1].body = "llamacpp:requests_processing 0.5\nllamacpp:requests_deferred 0\n";
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 1, 0);
    scene = (struct scene){.prefix = "np4_idle",
                           .other = {{"/props", 200, .body = "{\"total_slots\":2}"},
                                     {"/slots", 501, .body = "{}"},
                                     {"/metrics", 501, .body = "{}"},
                                     {"/health", 200, .body = ""}}};
    static const char *const health[] = {"{\"slots_idle\":-1,\"slots_processing\":0}",
                                         "{\"slots_idle\":1}", "[]",
                                         "{\"slots_idle\":0,\"slots_processing\":0}"};
    for (size_t i = 0; i < sizeof health / sizeof *health; i++) {
        scene.other[3].body = health[i];
        assert_int_equal(play(&scene)->health, HEALTH_UNKNOWN);
    }
}

static void a_server_that_does_not_say_is_tried(void **state)
{
    (void)state;
    static const char off[] = "{\"error\":{\"code\":501}}";
    struct scene scene = {.prefix = "np1_idle",
                          .wants = PROBE_QUICK,
                          .other = {{"/props", 200, .body = "{\"total_slots\":2}"},
                                    {"/slots", 501, .body = off},
                                    {"/metrics", 501, .body = off}}};
    reads(&scene, HEALTH_OK, SIGNAL_NONE, 2, -1, -1);
    assert_string_equal(asked, "/props /slots /metrics /health");
    scene.other[3].path = "/health"; /* as it was in 2024 */
    scene.other[3].status = 200;
    scene.other[3].body = "{\"status\":\"ok\",\"slots_idle\":1,\"slots_processing\":2}";
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 3, 2, -1);
    assert_int_equal(run.reading.named, 0);
}

static void numeric_states_are_understood(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "np1_idle",
                          .wants = PROBE_QUICK,
                          .other = {{"/props", 200, .body = "{\"total_slots\":2}"},
                                    {"/slots", 200,
                                     .body = "[{\"id\":0,\"id_task\":-1,\"state\":0},"
                                             "{\"id\":1,\"id_task\":7,\"state\":1}]"}}};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    assert_int_equal(run.reading.slots[1].task, 7);
    assert_int_equal(run.reading.named, 1);
    scene.other[1].body = "[{\"state\":1},{\"state\":0}]";
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 2, 1, -1);
    assert_int_equal(run.reading.named, 0);
}

static void text_in_slots_is_not_kept(void **state)
{
    (void)state;
    const struct recorded *debug = recorded_find(all, all_count, "slotsdebug.slots.json");
    assert_non_null(debug);
    assert_non_null(strstr(debug->body, "\"prompt\""));
    struct scene scene = {.prefix = "slotsdebug",
                          .wants = PROBE_QUICK,
                          .other = {{"/props", 200, .body = "{\"total_slots\":1}"}}};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 0, -1);
    assert_null(memmem(&run.reading, sizeof run.reading, "Once upon", 9));
}

/* ---- routers ---- */

static void a_router_wants_a_name(void **state)
{
    (void)state;
    reads(&(struct scene){.prefix = "router", .wants = PROBE_FULL}, HEALTH_UNKNOWN, SIGNAL_NONE, -1,
          -1, -1);
    assert_string_equal(run.reading.detail, "router: name a model with model=NAME");
    assert_string_equal(asked, "/props");
}

static void a_router_s_model_is_never_loaded(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "router", .wants = PROBE_FULL, .model = "tiny"};
    reads(&scene, HEALTH_UNLOADED, SIGNAL_EXACT, -1, 0, 0);
    assert_string_equal(asked, "/props /v1/models");
    assert_int_equal(run.reading.model_count, 2);
    assert_int_equal(run.reading.models[1].state, MODEL_UNLOADED);
    scene.model = "absent";
    reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    assert_non_null(strstr(run.reading.detail, "no model 'absent'"));
}

static void a_router_s_loaded_model_is_asked_without_loading(void **state)
{
    (void)state;
    const struct recorded *models = recorded_find(all, all_count, "router_loaded.v1models.json");
    const struct recorded *props = recorded_find(all, all_count, "router_model.props.json");
    struct scene scene = {.prefix = "router_model",
                          .wants = PROBE_QUICK,
                          .model = "tiny",
                          .other = {{"/props?model=tiny&autoload=false", 200, .body = props->body},
                                    {"/v1/models", 200, .body = models->body},
                                    {"/props", 200, .body = "{\"role\":\"router\"}"}}};
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 4, 0, -1);
    assert_string_equal(asked, "/props /v1/models /props?model=tiny&autoload=false "
                               "/slots?model=tiny&autoload=false");
    assert_int_equal(run.reading.models[1].state, MODEL_LOADED);
    scene.other[2].body = "{\"role\":\"router\"}";
    scene.other[1].body = "{\"data\":[{\"id\":\"x\",\"aliases\":[\"tiny\"],"
                          "\"status\":{\"value\":\"sleeping\"}}]}";
    reads(&scene, HEALTH_SLEEPING, SIGNAL_EXACT, -1, 0, 0);
    scene.other[1].body = "{\"data\":[{\"id\":\"tiny\",\"status\":{\"value\":\"loading\"}}]}";
    reads(&scene, HEALTH_LOADING, SIGNAL_NONE, -1, -1, -1);
    scene.other[1].body =
        "{\"data\":[{\"id\":\"tiny\",\"status\":{\"value\":\"unloaded\",\"failed\":true}}]}";
    reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    scene.other[1].body = "{\"data\":[{\"id\":\"tiny\",\"status\":{\"value\":\"odd\"}}]}";
    reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
}

static void a_router_that_unloaded_meanwhile_is_asked_again(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "router", .wants = PROBE_QUICK, .model = "a b/c&d"};
    scene.memory.awake_ns = NOW - NS_PER_MS;
    reads(&scene, HEALTH_UNKNOWN, SIGNAL_NONE, -1, -1, -1);
    assert_string_equal(asked, "/slots?model=a%20b%2Fc%26d&autoload=false /props /v1/models");
    assert_true(run.memory.awake_ns == 0);
}

/* ---- what goes wrong ---- */

static void failures_have_their_health(void **state)
{
    (void)state;
    static const struct {
        enum http_failure failure;
        enum health health;
    } failures[] = {{HTTP_UNREACHABLE, HEALTH_DOWN},
                    {HTTP_TIMEOUT_CONNECT, HEALTH_DOWN},
                    {HTTP_TIMEOUT_ANSWER, HEALTH_BUSY},
                    {HTTP_TOO_LARGE, HEALTH_UNKNOWN},
                    {HTTP_BROKEN, HEALTH_UNKNOWN}};
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        struct scene scene = {.prefix = "np1_idle",
                              .wants = PROBE_QUICK,
                              .other = {{"/props", .failure = failures[i].failure}}};
        reads(&scene, failures[i].health, SIGNAL_NONE, -1, -1, -1);
        scene.other[0].path = "/slots";
        reads(&scene, failures[i].health, SIGNAL_NONE, 1, -1, -1);
        assert_string_not_equal(run.reading.detail, "");
    }
}

static void metrics_are_no_more_than_an_addition(void **state)
{
    (void)state;
    struct scene scene = {.prefix = "np1_busy",
                          .wants = PROBE_FULL,
                          .other = {{"/metrics", .failure = HTTP_TIMEOUT_ANSWER}}};
    scene.last = last_of(HEALTH_OK, 1, 1200);
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
    scene.other[0].failure = HTTP_NONE;
    scene.other[0].status = 200;
    scene.other[0].body = "<html>";
    scene.last.sent_ns = 0;
    reads(&scene, HEALTH_OK, SIGNAL_EXACT, 1, 1, -1);
}

static void odd_answers_are_unknown(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int status;
        const char *body;
    } odd[] = {
        {"/props", 200, "<html>KoboldCpp</html>"},
        {"/props", 200, ""},
        {"/props", 200, "[]"},
        {"/props", 200, "{}"},
        {"/props", 200, "null"},
        {"/props", 302, ""},
        {"/props", 404, "{}"},
        {"/props", 500, "{}"},
        {"/props", 503, "<html>"},
        {"/props", 204, ""},
        {"/props", 200, "{\"total_slots\":\"4\"}"},
        {"/props", 200, "{\"total_slots\":-1}"},
        {"/props", 200, "{\"total_slots\":1e3}"},
        {"/props", 200, "{\"total_slots\":1,\"is_sleeping\":1}"},
        {"/props", 200, "{\"total_slots\":1,\"endpoint_slots\":\"yes\"}"},
        {"/slots", 200, "[]"},
        {"/slots", 200, "{}"},
        {"/slots", 200, "[{}]"},
        {"/slots", 200, "[1]"},
        {"/slots", 200, "[{\"is_processing\":0}]"},
        {"/slots", 200, "[{\"is_processing\":false},{\"is_processing\":null}]"},
        {"/slots", 200, "[{\"is_processing\":true,\"is_processing\":false}]"},
        {"/slots", 200, "[{\"is_processing\":false}"},
        {"/slots", 400, "{}"},
        {"/slots", 200, "[{\"state\":\"idle\"}]"},
        {"/slots", 200, "[{\"state\":-1}]"},
        {"/slots", 200, "[{\"is_processing\":false}]x"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct scene scene = {.prefix = "np1_idle", .wants = PROBE_QUICK};
        scene.other[0].path = odd[i].path;
        scene.other[0].status = odd[i].status;
        scene.other[0].body = odd[i].body;
        const struct reading *reading = play(&scene);
        if (reading->health != HEALTH_UNKNOWN || reading->in_flight != -1 ||
            reading->detail[0] == '\0')
            fail_msg("%s %d %s: %s, %d in flight", odd[i].path, odd[i].status, odd[i].body,
                     health_name((enum health)reading->health), reading->in_flight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_load_is_read),
        cmocka_unit_test(tasks_are_counted_not_requests),
        cmocka_unit_test(nonsense_for_metrics_is_never_free),
        cmocka_unit_test(work_is_named_where_it_is),
        cmocka_unit_test(the_model_is_named),
        cmocka_unit_test(a_loading_server_is_loading),
        cmocka_unit_test(a_missing_or_wrong_key_is_said),
        cmocka_unit_test(without_slots_leases_decide),
        cmocka_unit_test(without_slots_metrics_count),
        cmocka_unit_test(a_server_that_does_not_say_is_tried),
        cmocka_unit_test(numeric_states_are_understood),
        cmocka_unit_test(text_in_slots_is_not_kept),
        cmocka_unit_test(a_router_wants_a_name),
        cmocka_unit_test(a_router_s_model_is_never_loaded),
        cmocka_unit_test(a_router_s_loaded_model_is_asked_without_loading),
        cmocka_unit_test(a_router_that_unloaded_meanwhile_is_asked_again),
        cmocka_unit_test(failures_have_their_health),
        cmocka_unit_test(metrics_are_no_more_than_an_addition),
        cmocka_unit_test(odd_answers_are_unknown),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
