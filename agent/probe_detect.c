/* A server of which only http:// is known: it is asked until something in an answer can be of one
 * engine only. To add an engine is a line in marks[].
 *
 * Nothing here may wake, load or start anything, whatever server it is, so the order counts:
 *   /props        llama-server's first: it wakes nobody. Its answer is what the llama.cpp probe would
 *                 ask for first, and is handed on to it: finding it out costs nothing.
 *   /v1/models    nearly all have it, for nearly all it needs no model, and `owned_by` says whose it is
 *   /api/version  Ollama
 *   /info         TGI
 *   /running      llama-swap: starts no server
 *   /api/v1/models, /api/v0/models   LM Studio: lists, loads nothing
 *   /metrics      last: a llama-server that sleeps would be woken by it, but is known by now, since
 *                 /props needs at most a key, and with a wrong key /metrics wakes nobody.
 * One after the other, since an unknown server may have few threads; where that takes longer than a
 * probe may, the next one goes on.
 * Not asked: /health (says nothing), /slots (wakes), anything with a model's name in it.
 *
 * A 200 means nothing: KoboldCpp answers any path with a page, LM Studio with an error inside of
 * 200. What counts is JSON, or metrics, of the shape that one engine has. A 401 is no end: another
 * path may be open.
 *
 * Where nothing told, /props alone is asked for the next 10 s while it answers the same 200: whatever
 * is there is spared. (A 404 is the same for many.) */
#include "agent/probe_detect.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/probe_asks.h"
#include "agent/probe_json.h"
#include "agent/probe_metrics.h"

#define IN_VAIN_NS (10 * NS_PER_SEC)

/* In the order in which they are asked. */
enum kind {
    KIND_PROPS,
    KIND_MODELS,
    KIND_VERSION,
    KIND_INFO,
    KIND_RUNNING,
    KIND_STUDIO,
    KIND_OLD_STUDIO,
    KIND_METRICS,
    KIND_COUNT,
};

_Static_assert(KIND_COUNT <= ENGINE_ASKS_MAX, "every kind has its bit");

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_PROPS] = "/props",
    [KIND_MODELS] = "/v1/models",
    [KIND_VERSION] = "/api/version",
    [KIND_INFO] = "/info",
    [KIND_RUNNING] = "/running",
    [KIND_STUDIO] = "/api/v1/models",
    [KIND_OLD_STUDIO] = "/api/v0/models",
    [KIND_METRICS] = "/metrics",
};

/* ---- what can be of one engine only ---------------------------------------------------------- */

struct seen {
    const json_t *json; /* NULL: none */
    const char *text;
    bool parrots; /* it answers /props with the same */
};

static bool has(const struct seen *seen, const char *key)
{
    return json_object_get(seen->json, key) != NULL;
}

/* An empty list is little, and says more only where not every path answers so. */
static bool has_list(const struct seen *seen, const char *key)
{
    const json_t *list = json_object_get(seen->json, key);
    const json_t *first = json_array_get(list, 0);
    if (!json_is_array(list) || seen->parrots)
        return false;
    return first == NULL || (json_is_string(json_object_get(first, "model")) &&
                             json_is_string(json_object_get(first, "state")));
}

static bool first_has(const struct seen *seen, const char *list, const char *key)
{
    return json_object_get(json_array_get(json_object_get(seen->json, list), 0), key) != NULL;
}

static bool owned_by(const struct seen *seen, const char *whom)
{
    const json_t *first = json_array_get(json_object_get(seen->json, "data"), 0);
    const char *owner = json_string_value(json_object_get(first, "owned_by"));
    return owner != NULL && strcasecmp(owner, whom) == 0;
}

static bool has_instances(const struct seen *seen, const char *key)
{
    return first_has(seen, "models", key);
}

static bool has_states(const struct seen *seen, const char *key)
{
    return first_has(seen, "data", key);
}

/* llama-swap's has more in it. */
static bool has_alone(const struct seen *seen, const char *key)
{
    return json_object_size(seen->json) == 1 && json_is_string(json_object_get(seen->json, key));
}

static bool has_gauge(const struct seen *seen, const char *name)
{
    return seen->json == NULL && probe_metric(seen->text, name) >= 0;
}

/* While the model loads, with 503, in two versions' words. */
static bool is_loading(const struct seen *seen, const char *text)
{
    const char *status = json_string_value(json_object_get(seen->json, "status"));
    const char *message =
        json_string_value(json_object_get(json_object_get(seen->json, "error"), "message"));
    return (status != NULL && strcasecmp(status, text) == 0) ||
           (message != NULL && strcasecmp(message, text) == 0);
}

struct mark {
    const struct engine *engine; /* NULL: known, and cannot be asked */
    int kind;
    int status;
    bool (*looks_like)(const struct seen *seen, const char *word);
    const char *word;
};

/* Of several that fit, the first is it. */
static const struct mark marks[] = {
    {&engine_llama, KIND_PROPS, 200, has, "default_generation_settings"},
    {&engine_llama, KIND_PROPS, 200, has, "total_slots"},
    {&engine_llama, KIND_PROPS, 200, has, "role"},
    {&engine_llama, KIND_PROPS, 503, is_loading, "loading model"},
    {&engine_llama, KIND_MODELS, 200, owned_by, "llamacpp"},
    {&engine_swap, KIND_MODELS, 200, owned_by, "llama-swap"},
    {&engine_vllm, KIND_MODELS, 200, owned_by, "vllm"},
    {&engine_sglang, KIND_MODELS, 200, owned_by, "sglang"},
    {&engine_lmstudio, KIND_MODELS, 200, owned_by, "organization_owner"},
    {NULL, KIND_MODELS, 200, owned_by, "koboldcpp"},
    {&engine_swap, KIND_RUNNING, 200, has_list, "running"},
    {&engine_lmstudio, KIND_STUDIO, 200, has_instances, "loaded_instances"},
    {&engine_lmstudio, KIND_OLD_STUDIO, 200, has_states, "state"},
    {&engine_tgi, KIND_INFO, 200, has, "max_concurrent_requests"},
    {&engine_ollama, KIND_VERSION, 200, has_alone, "version"},
    {&engine_vllm, KIND_METRICS, 200, has_gauge, "vllm:num_requests_running"},
    {&engine_sglang, KIND_METRICS, 200, has_gauge, "sglang:num_running_reqs"},
    {&engine_tgi, KIND_METRICS, 200, has_gauge, "tgi_queue_size"},
};

#define MARKS (sizeof marks / sizeof *marks)

const char *detect_path(int found_by)
{
    return found_by > 0 && found_by <= KIND_COUNT ? paths[found_by - 1] : "";
}

const struct engine *detect_engine(const char *name)
{
    for (size_t i = 0; i < MARKS; i++)
        if (marks[i].engine != NULL && strcmp(marks[i].engine->name, name) == 0)
            return marks[i].engine;
    return NULL;
}

/* ---- the questions --------------------------------------------------------------------------- */

static void begin(struct probe_run *run, ns_t now)
{
    asks_begin(run, now);
    run->detect = (struct detect_state){.answered = run->memory.detect.answered};
    run->memory.detect.answered = 0;
    asks_want(run, KIND_PROPS);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    return asks_next(run, now, paths, ask);
}

static uint64_t hash_of(const struct http_answer *answer)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < answer->size; i++)
        hash = (hash ^ (unsigned char)answer->body[i]) * 1099511628211u;
    return hash;
}

static void look_for_marks(struct probe_run *run, int kind, const struct http_answer *answer)
{
    json_t *json = probe_json(answer->body, answer->size);
    struct seen seen = {.json = json, .text = answer->body};
    seen.parrots = kind != KIND_PROPS && run->detect.props != 0 && answer->status == 200 &&
                   hash_of(answer) == run->detect.props;
    for (const struct mark *mark = marks; mark < marks + MARKS && run->detect.best == NULL; mark++)
        if (mark->kind == kind && mark->status == answer->status &&
            mark->looks_like(&seen, mark->word))
            run->detect.best = mark;
    json_decref(json);
}

/* As it was found to be when all was asked. */
static bool stay_in_vain(struct probe_run *run)
{
    const struct detect_memory *memory = &run->memory.detect;
    ns_t since_ns = run->asks.sent_ns[KIND_PROPS] - memory->in_vain_ns;
    if (run->detect.props == 0 || memory->in_vain_ns == 0 || since_ns >= IN_VAIN_NS ||
        memory->props != run->detect.props || run->detect.best != NULL ||
        run->detect.refused.status != 0 || run->detect.starting ||
        run->last.health != HEALTH_UNKNOWN || run->last.detail[0] == '\0')
        return false;
    asks_unknown(run, "%s", run->last.detail);
    return true;
}

static void conclude(struct probe_run *run)
{
    const struct mark *best = run->detect.best;
    run->memory.detect = (struct detect_memory){.in_vain_ns = run->asks.sent_ns[KIND_PROPS],
                                                .props = run->detect.props};
    if (best != NULL && best->engine != NULL) {
        run->found = best->engine;
        run->found_by = best->kind + 1;
    } else if (best != NULL) {
        asks_unknown(run, "%s: it cannot be asked what it has free; static:N counts leases alone",
                     best->word);
    } else if (run->detect.refused.status != 0) {
        run_take_failure(run, &run->detect.refused, paths[KIND_MODELS]);
        asks_decide(run, HEALTH_UNAUTHORIZED);
    } else if (run->detect.starting) {
        run_detail(run, "it answers 503: it is starting, or is not healthy");
        asks_decide(run, HEALTH_LOADING);
    } else {
        asks_unknown(run,
                     "no engine that is known answers like this; say ENGINE+http:// or static:N");
    }
}

static void go_on(struct probe_run *run)
{
    int kind = KIND_MODELS;
    if (stay_in_vain(run))
        return;
    while (kind < KIND_COUNT && (run->detect.answered & 1u << kind) != 0)
        kind++;
    if (run->detect.best == NULL && kind < KIND_COUNT)
        asks_want(run, kind);
    else
        conclude(run);
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    if (run->decided)
        return;
    bool nonsense = answer->failure == HTTP_BROKEN || answer->failure == HTTP_TOO_LARGE;
    if (answer->failure != HTTP_NONE && !nonsense) {
        bool late = answer->failure == HTTP_TIMEOUT_ANSWER && kind != KIND_PROPS;
        run->memory.detect =
            (struct detect_memory){.answered = late ? run->detect.answered | 1u << kind : 0};
        run_take_failure(run, answer, paths[kind]);
        asks_decide(run, (enum health)run->reading.health);
        return;
    }
    run->detect.answered |= 1u << kind;
    if (kind == KIND_PROPS && answer->status == 200)
        run->detect.props = hash_of(answer);
    run->detect.starting = run->detect.starting || answer->status == 503;
    if (answer->status == 401 || answer->status == 403)
        run->detect.refused =
            (struct http_answer){.status = answer->status, .body = "", .reason = ""};
    else if (!nonsense)
        look_for_marks(run, kind, answer);
    go_on(run);
}

static void end(struct probe_run *run)
{
    (void)run;
}

const struct engine engine_detect = {"auto", begin, next, take, end, false};
