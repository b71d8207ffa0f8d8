#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine.h"
#include "tests/lib/check.h"
#include "tests/lib/recorded.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;

/* A server in a state that was recorded: its answers by path; and what differs from that. */
struct scene {
    const char *prefix;
    struct {
        const char *path; /* without the query */
        int status;
        const char *body;
        size_t size;
        enum http_failure failure;
    } other[4];
    enum probe_wants wants;
    const char *model;
    const char *key_file;
    struct engine_memory memory;
    struct reading last; /* sent_ns 0: none */
};

/* What a scene came to. */
static struct probe_run run;
static struct provider_spec spec;
static char asked[512]; /* the paths in their order; '+' for each that left with others under way */

#define NOW (1000 * NS_PER_SEC)
static ns_t clock_ns;

static const struct recorded *recorded_answer(const struct scene *scene, const char *path)
{
    static const char *const endings[][2] = {
        {"/props", "props.json"},     {"/slots", "slots.json"},   {"/metrics", "metrics.txt"},
        {"/metrics", "metrics.json"}, {"/health", "health.json"}, {"/v1/models", "v1models.json"}};
    char name[128];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const struct recorded *found;
        if (strcmp(endings[i][0], path) != 0)
            continue;
        snprintf(name, sizeof name, "%s.%s", scene->prefix, endings[i][1]);
        found = recorded_find(all, all_count, name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static struct http_answer answer_to(const struct scene *scene, const char *full)
{
    char path[ENGINE_PATH_SIZE];
    struct http_answer answer = {.body = "", .reason = "test"};
    snprintf(path, sizeof path, "%.*s", (int)strcspn(full, "?"), full);
    for (size_t i = 0; i < 4 && scene->other[i].path != NULL; i++) {
        if (strcmp(scene->other[i].path, path) != 0 && strcmp(scene->other[i].path, full) != 0)
            continue;
        answer.failure = scene->other[i].failure;
        answer.status = scene->other[i].status;
        if (scene->other[i].body != NULL) {
            answer.body = scene->other[i].body;
            answer.size = scene->other[i].size != 0 ? scene->other[i].size : strlen(answer.body);
        }
        return answer;
    }
    const struct recorded *found = recorded_answer(scene, path);
    if (found == NULL)
        fail_msg("%s has no answer to %s", scene->prefix, path);
    answer.status = found->status;
    answer.body = found->body;
    answer.size = found->size;
    return answer;
}

static void run_clear(const struct scene *scene)
{
    memset(&run, 0, sizeof run);
    memset(&spec, 0, sizeof spec);
    snprintf(spec.model, sizeof spec.model, "%s", scene->model == NULL ? "" : scene->model);
    snprintf(spec.key_file, sizeof spec.key_file, "%s",
             scene->key_file == NULL ? "" : scene->key_file);
    run.spec = &spec;
    run.wants = scene->wants;
    run.memory = scene->memory;
    run.last = scene->last;
    if (run.last.sent_ns == 0)
        reading_clear(&run.last);
    reading_clear(&run.reading);
    asked[0] = '\0';
    clock_ns = NOW;
}

/* What probe.c does, without a socket: the answers come in the order of the questions. Each event
 * takes a millisecond. */
static const struct reading *play(const struct scene *scene)
{
    struct engine_ask waiting[ENGINE_ASKS_MAX];
    int count = 0;
    run_clear(scene);
    engine_llama.begin(&run, clock_ns);
    for (;;) {
        while (!run.decided && engine_llama.next(&run, clock_ns, &waiting[count])) {
            snprintf(asked + strlen(asked), sizeof asked - strlen(asked), "%s%s",
                     count > 0          ? "+"
                     : asked[0] != '\0' ? " "
                                        : "",
                     waiting[count].path);
            count++;
            assert_true(count < ENGINE_ASKS_MAX && strlen(asked) < sizeof asked - 1);
        }
        if (run.decided || count == 0)
            break;
        clock_ns += NS_PER_MS;
        struct http_answer answer = answer_to(scene, waiting[0].path);
        engine_llama.take(&run, waiting[0].kind, &answer);
        memmove(waiting, waiting + 1, (size_t)--count * sizeof *waiting);
    }
    engine_llama.end(&run);
    return &run.reading;
}

static void reads(const struct scene *scene, enum health health, enum signal_kind kind, int total,
                  int in_flight, int queued)
{
    const struct reading *reading = play(scene);
    if (reading->health != (int)health || reading->signal != (int)kind ||
        reading->slots_total != total || reading->in_flight != in_flight ||
        reading->queued != queued)
        fail_msg("%s: %s %s, %d of %d in flight, %d queued, '%s', asked %s", scene->prefix,
                 health_name((enum health)reading->health),
                 signal_name((enum signal_kind)reading->signal), reading->in_flight,
                 reading->slots_total, reading->queued, reading->detail, asked);
    assert_int_equal(reading->queue_means_full, 0);
}

static struct reading last_of(enum health health, int in_flight, int ms_ago)
{
    struct reading last;
    reading_clear(&last);
    last.health = (int32_t)health;
    last.signal = SIGNAL_EXACT;
    last.in_flight = in_flight;
    last.sent_ns = last.answered_ns = NOW - ms_ago * NS_PER_MS;
    return last;
}

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

/* ---- sleep ---- */

static void a_sleeping_server_is_not_woken(void **state)
{
    (void)state;
    for (int wants = PROBE_QUICK; wants <= PROBE_FULL; wants++) {
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

/* A server that is to fall asleep after so many idle seconds, and its agent, for ten minutes. */
static void sleep_for_10_minutes(const char *awake, ns_t idle_ns)
{
    struct scene scene = {.wants = PROBE_IDLE};
    ns_t idle_since = NOW, asleep_ns = 0;
    for (ns_t now = NOW; now < NOW + 600 * NS_PER_SEC; now += PROBE_IDLE_MS * NS_PER_MS) {
        if (asleep_ns == 0 && now - idle_since >= idle_ns)
            asleep_ns = now;
        scene.prefix = asleep_ns != 0 ? "asleep" : awake;
        const struct reading *reading = play(&scene);
        if (strstr(asked, "/slots") != NULL) {
            assert_true(asleep_ns == 0); /* it would wake */
            idle_since = now;
        }
        assert_int_equal(reading->health, asleep_ns != 0 ? HEALTH_SLEEPING : HEALTH_OK);
        scene.last = run.reading;
        scene.last.sent_ns = scene.last.answered_ns = NOW - PROBE_IDLE_MS * NS_PER_MS;
        scene.memory = run.memory;
    }
    assert_true(asleep_ns != 0 && asleep_ns <= NOW + idle_ns + 10 * NS_PER_SEC);
}

static void it_falls_asleep_and_stays_so(void **state)
{
    (void)state;
    static const int seconds[] = {1, 4, 6, 8, 30, 120, 300};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        sleep_for_10_minutes("noflags_idle", seconds[i] * NS_PER_SEC);
        sleep_for_10_minutes("np1_idle", seconds[i] * NS_PER_SEC);
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

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("llama.cpp", all);
    return all_count > 300 ? 0 : -1;
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
        cmocka_unit_test(a_sleeping_server_is_not_woken),
        cmocka_unit_test(a_server_that_is_certainly_awake_is_asked_at_once),
        cmocka_unit_test(an_idle_server_is_not_kept_awake),
        cmocka_unit_test(without_metrics_a_sleeper_is_left_in_peace),
        cmocka_unit_test(of_no_interest_it_is_left_in_peace),
        cmocka_unit_test(it_falls_asleep_and_stays_so),
        cmocka_unit_test(a_reading_s_time_is_the_decisive_question_s),
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
