/* llama.cpp's llama-server (and ik_llama.cpp): what to ask in which order, and what answers mean.
 *
 *   /props       always first, unless the server is certainly awake: it answers during any work and
 *                wakes nobody. Says total_slots, is_sleeping, which of the next two are on.
 *   /slots       decisive: counts and names the work. Wakes a sleeping server and restarts its idle
 *                timer, so it is asked only of one that is awake.
 *   /metrics     what is queued; what is processed, without touching the idle timer.
 *   /v1/models   of a router: whether the model is loaded. Asking for its slots would load it.
 *   /health      of servers so old that it counts slots.
 */
#include "agent/probe_llama.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/engine.h"
#include "agent/probe_asks.h"
#include "agent/probe_json.h"
#include "agent/probe_metrics.h"

enum kind { KIND_PROPS, KIND_MODELS, KIND_MODEL_PROPS, KIND_METRICS, KIND_SLOTS, KIND_HEALTH };

_Static_assert(KIND_HEALTH < ENGINE_ASKS_MAX, "every kind has its bit");

static const char *const kind_paths[] = {
    [KIND_PROPS] = "/props",     [KIND_MODELS] = "/v1/models", [KIND_MODEL_PROPS] = "/props",
    [KIND_METRICS] = "/metrics", [KIND_SLOTS] = "/slots",      [KIND_HEALTH] = "/health",
};

/* --sleep-idle-seconds is 1 at least: a question that keeps a server awake does so for 1 s from
 * when it arrived, which is after it was sent. The rest is for the way of the next one. */
#define AWAKE_NS (900 * NS_PER_MS)

static bool is_recent(ns_t then_ns, ns_t now, ns_t within_ns)
{
    return then_ns != 0 && now >= then_ns && now - then_ns < within_ns;
}

/* Work in the last reading was there after it was sent: the server cannot have slept before. One
 * that lately told of no sleep at all (an old build) may be asked at any time. */
static bool is_awake(const struct probe_run *run, ns_t now)
{
    const struct reading *last = &run->last;
    const struct engine_memory *memory = &run->memory;
    if (last->health == HEALTH_BUSY) /* /props may tell why */
        return false;
    if (is_recent(memory->told_ns, now, READING_TRUST_MS * NS_PER_MS) && !memory->can_sleep)
        return true;
    if (is_recent(memory->awake_ns, now, AWAKE_NS))
        return true;
    return last->health == HEALTH_OK && last->in_flight > 0 &&
           is_recent(last->sent_ns, now, AWAKE_NS);
}

static void ask_for(struct probe_run *run, enum kind kind)
{
    run->llama.todo |= (1u << kind) & ~run->llama.asked;
}

/* Nothing of what was counted so far stands. */
static void decide(struct probe_run *run, enum health health)
{
    struct reading *reading = &run->reading;
    reading->health = (int32_t)health;
    reading->signal = SIGNAL_NONE;
    reading->in_flight = reading->queued = -1;
    reading->named = reading->slot_count = 0;
    memset(reading->slots, 0, sizeof reading->slots);
    run->decided = true;
    run->llama.todo = 0;
}

static void decide_unknown(struct probe_run *run, const char *detail)
{
    run_detail(run, "%s", detail);
    decide(run, HEALTH_UNKNOWN);
}

/* Nothing is in flight, since there is nothing that could be. */
static void decide_empty(struct probe_run *run, enum health health, const char *detail)
{
    decide(run, health);
    run->reading.signal = SIGNAL_EXACT;
    run->reading.in_flight = run->reading.queued = 0;
    run_detail(run, "%s", detail);
}

static void begin(struct probe_run *run, ns_t now)
{
    struct llama_state *state = &run->llama;
    *state = (struct llama_state){
        .endpoint_slots = -1, .endpoint_metrics = -1, .processing = -1, .deferred = -1};
    run->reading.sent_ns = now;
    run->rest_is_over = run->memory.seen_asleep ? reading_rest_is_over(&run->last, now)
                                                : !reading_is_trial(&run->last, now);
    state->known_awake = run->wants == PROBE_QUICK && !run->memory.slots_off && is_awake(run, now);
    if (state->known_awake) {
        run->reading.model_count = run->last.model_count;
        memcpy(run->reading.models, run->last.models, sizeof run->reading.models);
    }
    ask_for(run, state->known_awake ? KIND_SLOTS : KIND_PROPS);
}

/* ---- questions ------------------------------------------------------------------------------- */

static void append_encoded(char *path, size_t size, const char *text)
{
    size_t length = strlen(path);
    for (; *text != '\0' && length + 4 <= size; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL;
        length += (size_t)snprintf(path + length, size - length, plain ? "%c" : "%%%02X", c);
    }
}

/* A server that is no router ignores the query, so it may be there before it is known. */
static void path_of(const struct probe_run *run, enum kind kind, char *path)
{
    bool of_model = kind == KIND_MODEL_PROPS || kind == KIND_SLOTS || kind == KIND_METRICS;
    snprintf(path, ENGINE_PATH_SIZE, "%s", kind_paths[kind]);
    if (!of_model || run->spec->model[0] == '\0')
        return;
    strcat(path, "?model=");
    append_encoded(path, ENGINE_PATH_SIZE - sizeof "&autoload=false", run->spec->model);
    strcat(path, "&autoload=false");
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    struct llama_state *state = &run->llama;
    for (int kind = 0; kind <= KIND_HEALTH; kind++) {
        if (!(state->todo & 1u << kind))
            continue;
        state->todo &= ~(1u << kind);
        state->asked |= 1u << kind;
        state->asked_ns[kind] = now;
        ask->kind = kind;
        path_of(run, (enum kind)kind, ask->path);
        return true;
    }
    return false;
}

/* What to ask where /slots is off. */
static void ask_instead_of_slots(struct probe_run *run)
{
    struct llama_state *state = &run->llama;
    if (state->endpoint_metrics != 0 && !(state->asked & 1u << KIND_METRICS))
        ask_for(run, KIND_METRICS);
    else if (state->endpoint_slots == -1) /* newer servers say, and do not count in /health */
        ask_for(run, KIND_HEALTH);
}

/* Idle by the last reading, and it may want to fall asleep: not to be disturbed by /slots. */
static bool leave_in_peace(const struct probe_run *run)
{
    bool unwanted = run->wants == PROBE_IDLE || (run->wants == PROBE_LOOK && !run->rest_is_over) ||
                    (run->wants == PROBE_FULL && run->memory.seen_asleep);
    return unwanted && run->memory.can_sleep && run->llama.endpoint_metrics != 1 &&
           run->last.in_flight <= 0 && run->last.health == HEALTH_OK;
}

/* The server is awake and has told what is on: the rest of the questions. */
static void ask_for_work(struct probe_run *run)
{
    struct llama_state *state = &run->llama;
    bool metrics = state->endpoint_metrics == 1 && run->wants != PROBE_QUICK;
    if (leave_in_peace(run)) {
        run->reading.in_peace = 1;
        run_detail(run, "idle when last asked; left alone so that it can fall asleep (--metrics)");
        return;
    }
    run->memory.slots_off = state->slots_off || state->endpoint_slots == 0;
    if (run->memory.slots_off) {
        ask_instead_of_slots(run);
        return;
    }
    if (metrics && run->reading.slots_total > 0) {
        ask_for(run, KIND_METRICS);
        if (run->last.in_flight > 0 && run->threads == THREADS_MANY) /* both wait for one batch */
            ask_for(run, KIND_SLOTS);
        return;
    }
    ask_for(run, KIND_SLOTS);
}

/* ---- /props ---------------------------------------------------------------------------------- */

static void take_model_name(struct probe_run *run, const json_t *props,
                            enum model_state model_state)
{
    const char *name = "", *path = "";
    probe_json_text(props, "model_path", &path);
    probe_json_text(props, "model_alias", &name);
    if (name[0] == '\0')
        name = path;
    if (!run->llama.router && name[0] != '\0')
        asks_model(run, name, model_state);
}

static void take_server_props(struct probe_run *run, enum kind kind, const json_t *props)
{
    struct llama_state *state = &run->llama;
    int total = 0, sleeping = -1;
    if (!probe_json_count(props, "total_slots", &total) ||
        !probe_json_flag(props, "is_sleeping", &sleeping) ||
        !probe_json_flag(props, "endpoint_slots", &state->endpoint_slots) ||
        !probe_json_flag(props, "endpoint_metrics", &state->endpoint_metrics)) {
        decide_unknown(run, "the answer to /props has a field of the wrong type");
        return;
    }
    if (total > 0)
        run->reading.slots_total = total > BOOK_SLOTS_MAX ? BOOK_SLOTS_MAX : total;
    run->memory.told_ns = state->asked_ns[kind];
    run->memory.can_sleep = sleeping != -1;
    run->threads = sleeping != -1 ? THREADS_MANY : THREADS_FEW; /* both came in late 2025 */
    take_model_name(run, props, sleeping == 1 ? MODEL_SLEEPING : MODEL_LOADED);
    if (sleeping == 1) {
        run->memory.seen_asleep = true;
        run->reading.sent_ns = state->asked_ns[kind];
        decide_empty(run, HEALTH_SLEEPING, "sleeping: the first request wakes it");
        return;
    }
    ask_for_work(run);
}

static bool is_llama_props(const json_t *props)
{
    return json_object_get(props, "total_slots") != NULL ||
           json_object_get(props, "default_generation_settings") != NULL ||
           json_object_get(props, "role") != NULL;
}

static void take_props(struct probe_run *run, enum kind kind, const json_t *props)
{
    const char *role = "";
    if (!is_llama_props(props) || !probe_json_text(props, "role", &role)) {
        decide_unknown(run, "the answer to /props is not llama.cpp's");
        return;
    }
    if (strcmp(role, "router") != 0) {
        take_server_props(run, kind, props);
        return;
    }
    run->llama.router = true;
    if (kind == KIND_MODEL_PROPS)
        decide_unknown(run, "router: no answer for the model itself");
    else if (run->spec->model[0] == '\0')
        decide_unknown(run, "router: name a model with model=NAME");
    else
        ask_for(run, KIND_MODELS);
}

/* ---- /v1/models of a router ------------------------------------------------------------------ */

static bool is_called(const json_t *model, const char *name)
{
    size_t index;
    const json_t *alias;
    const char *id = json_string_value(json_object_get(model, "id"));
    if (id != NULL && strcmp(id, name) == 0)
        return true;
    json_array_foreach(json_object_get(model, "aliases"), index, alias)
    {
        const char *text = json_string_value(alias);
        if (text != NULL && strcmp(text, name) == 0)
            return true;
    }
    return false;
}

static const char *status_of(const json_t *model)
{
    const char *value =
        json_string_value(json_object_get(json_object_get(model, "status"), "value"));
    return value == NULL ? "" : value;
}

static enum model_state state_of(const char *status)
{
    static const struct {
        const char *status;
        enum model_state state;
    } states[] = {{"loaded", MODEL_LOADED},
                  {"loading", MODEL_LOADING},
                  {"downloading", MODEL_LOADING},
                  {"unloaded", MODEL_UNLOADED},
                  {"sleeping", MODEL_SLEEPING}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i].status, status) == 0)
            return states[i].state;
    return MODEL_UNKNOWN;
}

static void take_wanted_model(struct probe_run *run, const json_t *model)
{
    const char *status = status_of(model);
    run->reading.sent_ns = run->llama.asked_ns[KIND_MODELS];
    switch (state_of(status)) {
    case MODEL_LOADED: ask_for(run, KIND_MODEL_PROPS); return;
    case MODEL_LOADING:
        run_detail(run, "router: the model is %s", status);
        decide(run, HEALTH_LOADING);
        return;
    case MODEL_UNLOADED:
        if (json_is_true(json_object_get(json_object_get(model, "status"), "failed")))
            decide_unknown(run, "router: the model failed to load");
        else
            decide_empty(run, HEALTH_UNLOADED, "unloaded: the first request loads it");
        return;
    case MODEL_SLEEPING:
        decide_empty(run, HEALTH_SLEEPING, "sleeping: the first request wakes it");
        return;
    default:
        run_detail(run, "router: the model's status '%s' is not known", status);
        decide(run, HEALTH_UNKNOWN);
    }
}

static void take_models(struct probe_run *run, const json_t *answer)
{
    size_t index;
    const json_t *model, *wanted = NULL, *data = json_object_get(answer, "data");
    if (!json_is_array(data)) {
        decide_unknown(run, "the answer to /v1/models is not llama.cpp's");
        return;
    }
    json_array_foreach(data, index, model)
    {
        const char *id = json_string_value(json_object_get(model, "id"));
        if (id != NULL)
            asks_model(run, id, state_of(status_of(model)));
        if (wanted == NULL && is_called(model, run->spec->model))
            wanted = model;
    }
    if (wanted != NULL) {
        take_wanted_model(run, wanted);
        return;
    }
    run_detail(run, "router: it has no model '%s'", run->spec->model);
    decide(run, HEALTH_UNKNOWN);
}

/* ---- /slots ---------------------------------------------------------------------------------- */

/* is_processing, or the number that it was before (still is in ik_llama.cpp). -1: neither. */
static int slot_is_busy(const json_t *slot)
{
    int busy = -1, state = -1;
    if (!json_is_object(slot) || !probe_json_flag(slot, "is_processing", &busy))
        return -1;
    if (busy != -1)
        return busy;
    return probe_json_count(slot, "state", &state) && state != -1 ? state != 0 : -1;
}

/* The name of the work in a busy slot; an idle one still shows that of its last. */
static int slot_task(const json_t *slot)
{
    int task = -1;
    return probe_json_count(slot, "id_task", &task) ? task : -1;
}

bool llama_read_slots(struct reading *reading, const json_t *slots)
{
    size_t index;
    const json_t *slot;
    int busy_count = 0;
    bool named = true;
    json_array_foreach(slots, index, slot)
    {
        int busy = slot_is_busy(slot);
        if (busy == -1)
            return false;
        int task = busy ? slot_task(slot) : -1;
        named = named && (!busy || task != -1);
        busy_count += busy;
        if (index < BOOK_SLOTS_MAX)
            reading->slots[index] = (struct reading_slot){.task = task, .busy = busy};
    }
    size_t count = json_array_size(slots);
    reading->slot_count = (int32_t)(count < BOOK_SLOTS_MAX ? count : BOOK_SLOTS_MAX);
    reading->slots_total = reading->slot_count;
    reading->in_flight = busy_count;
    reading->named = named;
    return true;
}

static void take_slots(struct probe_run *run, const json_t *slots)
{
    if (!json_is_array(slots) || json_array_size(slots) == 0 ||
        !llama_read_slots(&run->reading, slots)) {
        decide_unknown(run, "the answer to /slots is not llama.cpp's");
        return;
    }
    run->llama.slots_known = true;
    run->reading.signal = SIGNAL_EXACT;
    run->reading.sent_ns = run->memory.awake_ns = run->llama.asked_ns[KIND_SLOTS];
}

/* ---- /metrics -------------------------------------------------------------------------------- */

/* Nothing is processed, so every slot is idle, which is all that /slots would have said. */
static void fill_idle_slots(struct probe_run *run)
{
    struct reading *reading = &run->reading;
    if (run->llama.endpoint_slots != 1)
        return;
    reading->slot_count = reading->slots_total;
    for (int i = 0; i < reading->slot_count; i++)
        reading->slots[i] = (struct reading_slot){.task = -1, .busy = 0};
    reading->named = 1;
}

static void take_metrics(struct probe_run *run, const struct http_answer *answer)
{
    struct llama_state *state = &run->llama;
    if (answer->status == 200) {
        state->processing = probe_metric(answer->body, "llamacpp:requests_processing");
        state->deferred = probe_metric(answer->body, "llamacpp:requests_deferred");
    }
    if (state->processing == -1 || state->deferred == -1)
        state->processing = state->deferred = -1;
    state->metrics_odd = answer->status == 200 && state->processing == -1;
    bool idle = state->processing == 0 && run->reading.slots_total > 0;
    if (!run->memory.slots_off && !idle)
        ask_for(run, KIND_SLOTS); /* no effect where it was asked */
    else if (run->memory.slots_off && state->processing == -1)
        ask_instead_of_slots(run);
}

/* ---- /health --------------------------------------------------------------------------------- */

/* Newer versions count nothing in it. */
static void take_health(struct probe_run *run, const json_t *health)
{
    int idle = -1, processing = -1;
    const json_t *told[] = {json_object_get(health, "slots_idle"),
                            json_object_get(health, "slots_processing")};
    if (json_is_object(health) && told[0] == NULL && told[1] == NULL)
        return;
    if (!probe_json_count(health, "slots_idle", &idle) ||
        !probe_json_count(health, "slots_processing", &processing) || idle < 0 || processing < 0 ||
        idle + processing == 0) {
        decide_unknown(run, "the answer to /health is not llama.cpp's");
        return;
    }
    int total = idle + processing;
    run->reading.slots_total = total > BOOK_SLOTS_MAX ? BOOK_SLOTS_MAX : total;
    run->reading.in_flight = processing;
    run->reading.signal = SIGNAL_EXACT;
    run->reading.sent_ns = run->llama.asked_ns[KIND_HEALTH];
    run->llama.slots_known = true;
}

/* ---- any answer ------------------------------------------------------------------------------ */

/* 503 while the model loads, whatever was asked: two ways in which versions have said it. */
static bool take_loading(struct probe_run *run, const struct http_answer *answer)
{
    bool loading = false;
    if (answer->failure != HTTP_NONE || answer->status != 503)
        return false;
    json_t *body = probe_json(answer->body, answer->size);
    const char *status = json_string_value(json_object_get(body, "status"));
    const char *message =
        json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    loading = (status != NULL && strcasecmp(status, "loading model") == 0) ||
              (message != NULL && strcasecmp(message, "Loading model") == 0);
    json_decref(body);
    if (!loading)
        return false;
    run_detail(run, "loading its model");
    decide(run, HEALTH_LOADING);
    return true;
}

static void take_json(struct probe_run *run, enum kind kind, const struct http_answer *answer)
{
    json_t *body = probe_json(answer->body, answer->size);
    if (body == NULL) {
        run_detail(run, "the answer to %s is no JSON", kind_paths[kind]);
        decide(run, HEALTH_UNKNOWN);
    } else if (kind == KIND_SLOTS) {
        take_slots(run, body);
    } else if (kind == KIND_MODELS) {
        take_models(run, body);
    } else if (kind == KIND_HEALTH) {
        take_health(run, body);
    } else {
        take_props(run, kind, body);
    }
    json_decref(body);
}

/* 501 is "off" (404 in forks): for what has a substitute that is no failure. */
static bool is_off(const struct http_answer *answer)
{
    return answer->failure == HTTP_NONE && (answer->status == 501 || answer->status == 404);
}

/* No slots where there were some: switched off, or a router has unloaded the model meanwhile. */
static bool take_slots_refused(struct probe_run *run, const struct http_answer *answer)
{
    struct llama_state *state = &run->llama;
    bool again = state->known_awake && answer->failure == HTTP_NONE && answer->status == 400;
    if (!is_off(answer) && !again)
        return false;
    state->slots_off = run->memory.slots_off = is_off(answer);
    if (!state->known_awake) {
        ask_instead_of_slots(run);
        return true;
    }
    state->known_awake = false;
    run->memory.awake_ns = 0;
    run->reading.model_count = 0;
    if (again)
        state->asked &= ~(1u << KIND_SLOTS);
    ask_for(run, KIND_PROPS);
    return true;
}

/* Where something else decides, or takes its place, no answer is not the probe's end. */
static bool take_lightly(struct probe_run *run, enum kind kind, const struct http_answer *answer)
{
    switch (kind) {
    case KIND_METRICS:
        if (!is_off(answer) && !(run->llama.asked & 1u << KIND_SLOTS))
            return false;
        take_metrics(run, answer);
        return true;
    case KIND_SLOTS: return take_slots_refused(run, answer);
    case KIND_HEALTH: return is_off(answer);
    default: return false;
    }
}

static void take(struct probe_run *run, int number, const struct http_answer *answer)
{
    enum kind kind = (enum kind)number;
    if (run->decided || take_loading(run, answer) || take_lightly(run, kind, answer))
        return;
    if (run_take_failure(run, answer, kind_paths[kind])) {
        decide(run, (enum health)run->reading.health);
        return;
    }
    if (kind == KIND_METRICS)
        take_metrics(run, answer);
    else
        take_json(run, kind, answer);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void end(struct probe_run *run)
{
    struct llama_state *state = &run->llama;
    struct reading *reading = &run->reading;
    if (run->decided)
        return;
    reading->health = HEALTH_OK;
    if (state->processing >= 0)
        reading->queued = state->deferred;
    if (state->slots_known)
        return;
    if (state->processing >= 0) {
        reading->signal = SIGNAL_EXACT;
        reading->in_flight = state->processing;
        reading->sent_ns = state->asked_ns[KIND_METRICS];
        if (state->processing == 0 && reading->slots_total > 0)
            fill_idle_slots(run);
        return;
    }
    if (state->metrics_odd) {
        decide_unknown(run, "the answer to /metrics is not llama.cpp's, or was cut off");
        return;
    }
    if (reading->slots_total > 0 && reading->detail[0] == '\0')
        run_detail(run, "work in flight is not told: start it with --slots or --metrics");
    else if (reading->slots_total <= 0)
        decide_unknown(run, "this is no llama.cpp server: it tells no slots");
}

const struct engine engine_llama = {"llama.cpp", begin, next, take, end, false};
