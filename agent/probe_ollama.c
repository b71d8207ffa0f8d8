/* Ollama: tells which models are loaded, never how many requests it works on.
 *
 *   /api/ps     the models that are loaded, or being loaded. Loads nothing and keeps nothing loaded;
 *               expires_at is not looked at, since every request moves it.
 *   /api/tags   whether a model that is not loaded exists.
 *   /slots      of the llama-server that Ollama (since 0.30) runs for a model, where it runs on this
 *               host (ollama_child.h): exact. It is Ollama that unloads, by the requests that came
 *               through Ollama, so to ask its child keeps nothing loaded either.
 *
 * Requests beyond OLLAMA_NUM_PARALLEL wait in Ollama itself, where nobody sees them: queued is never
 * known. From afar, with several models loaded, and with the runners of other models (MLX), leases
 * alone decide. It is overloaded (503) only after 512 wait. */
#include <stdio.h>
#include <string.h>

#include "agent/probe_asks.h"
#include "agent/probe_json.h"
#include "agent/probe_llama.h"

enum kind { KIND_PS, KIND_TAGS, KIND_SLOTS };

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_PS] = "/api/ps",
    [KIND_TAGS] = "/api/tags",
    [KIND_SLOTS] = "/slots",
};

#define LOOK_NS (5 * NS_PER_SEC) /* between two looks at the process list that found nothing */

/* Never asks a resolver, which may block: a name is not on this host unless it says so. */
static bool is_on_this_host(const struct provider_spec *spec)
{
    return spec_url_is_loopback(spec) || (spec_host_is_numeric(spec) && spec_url_is_local(spec));
}

static void begin(struct probe_run *run, ns_t now)
{
    struct ollama_memory *memory = &run->memory.ollama;
    asks_begin(run, now);
    run->ollama = (struct ollama_state){0};
    asks_want(run, KIND_PS);
    if (memory->child.pid != 0 && !ollama_child_lives(&memory->child))
        *memory = (struct ollama_memory){0};
    if (memory->child.pid != 0)
        asks_want(run, KIND_SLOTS);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    if (!asks_next(run, now, paths, ask))
        return false;
    if (ask->kind == KIND_SLOTS)
        ask->local_port = run->memory.ollama.child.port;
    return true;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* "llama3" is "llama3:latest". */
static bool is_wanted(const struct probe_run *run, const char *name)
{
    const char *wanted = run->spec->model;
    size_t length = strlen(wanted);
    return strcmp(name, wanted) == 0 ||
           (strncmp(name, wanted, length) == 0 && strcmp(name + length, ":latest") == 0);
}

/* False: not what it answers. */
static bool read_models(struct probe_run *run, const json_t *body, bool loaded, bool *wanted)
{
    size_t index;
    const json_t *model, *list = json_object_get(body, "models");
    if (!json_is_array(list))
        return false;
    json_array_foreach(list, index, model)
    {
        const char *name = NULL, *other = NULL;
        if (!json_is_object(model) || !probe_json_text(model, "name", &name) ||
            !probe_json_text(model, "model", &other) || (name == NULL && other == NULL))
            return false;
        if (loaded)
            asks_model(run, name != NULL ? name : other, MODEL_LOADED);
        *wanted = *wanted || (name != NULL && is_wanted(run, name)) ||
                  (other != NULL && is_wanted(run, other));
    }
    return true;
}

/* The process list costs; what cannot be found is not looked for at every probe. */
static void look_for_child(struct probe_run *run)
{
    struct ollama_memory *memory = &run->memory.ollama;
    ns_t now = run->asks.sent_ns[KIND_PS];
    if (asks_sent(run, KIND_SLOTS) || (memory->looked_ns != 0 && now - memory->looked_ns < LOOK_NS))
        return;
    memory->looked_ns = now;
    if (is_on_this_host(run->spec) && ollama_child_find(run->spec->port, &memory->child) == 1)
        asks_want(run, KIND_SLOTS);
    else
        memory->child = (struct ollama_child){0};
}

static void take_ps(struct probe_run *run, const json_t *body)
{
    struct ollama_state *state = &run->ollama;
    bool wanted = false;
    if (!read_models(run, body, true, &wanted)) {
        asks_unknown(run, "the answer to /api/ps is not Ollama's");
        return;
    }
    state->models = (int)json_array_size(json_object_get(body, "models"));
    state->loaded = run->spec->model[0] != '\0' ? wanted : state->models > 0;
    if (!state->loaded && run->spec->model[0] != '\0')
        asks_want(run, KIND_TAGS);
    if (state->loaded && state->models == 1)
        look_for_child(run);
}

static void take_tags(struct probe_run *run, const json_t *body)
{
    bool exists = false;
    if (!read_models(run, body, false, &exists))
        asks_unknown(run, "the answer to /api/tags is not Ollama's");
    else if (!exists)
        asks_unknown(run, "it has no model '%s': ollama pull it", run->spec->model);
}

/* ---- the child ------------------------------------------------------------------------------- */

/* What it told is nonsense, of another model, or of one of several. */
static void forget_counts(struct reading *reading, int32_t slots)
{
    reading->in_flight = -1;
    reading->slots_total = slots;
    reading->slot_count = reading->named = 0;
    memset(reading->slots, 0, sizeof reading->slots);
}

/* One that is gone, or has its slots switched off, counts nothing: leases alone decide then. What
 * says something else than its slots is not to be relied on. */
static void take_no_slots(struct probe_run *run, const struct http_answer *answer)
{
    if (answer->failure == HTTP_UNREACHABLE || answer->failure == HTTP_TIMEOUT_CONNECT)
        run->memory.ollama = (struct ollama_memory){0}; /* another by now: looked for next time */
    else if (answer->failure == HTTP_NONE && answer->status == 503)
        asks_failed(run, answer, "its llama-server: /slots");
    else if (!asks_absent(answer))
        asks_unknown(run, "its llama-server gives no sane answer to /slots");
}

static void take_slots(struct probe_run *run, const struct http_answer *answer)
{
    struct ollama_state *state = &run->ollama;
    struct reading *reading = &run->reading;
    int32_t slots = run->spec->slots;
    if (answer->failure == HTTP_TIMEOUT_ANSWER) {
        run_detail(run, "its llama-server: %s", answer->reason);
        asks_decide(run, HEALTH_BUSY);
        return;
    }
    if (answer->failure != HTTP_NONE || answer->status != 200) {
        take_no_slots(run, answer);
        return;
    }
    json_t *body = probe_json(answer->body, answer->size);
    state->counted =
        json_is_array(body) && json_array_size(body) > 0 && llama_read_slots(reading, body);
    json_decref(body);
    if (!state->counted) {
        forget_counts(reading, slots);
        asks_unknown(run, "its llama-server gives no sane answer to /slots");
    } else if (slots > 0 && slots < reading->slots_total) {
        reading->slots_total = slots;
    }
}

/* ---- any answer ------------------------------------------------------------------------------ */

static bool take_overload(struct probe_run *run, const struct http_answer *answer)
{
    if (answer->failure != HTTP_NONE || answer->status != 503 ||
        strstr(answer->body, "server busy") == NULL)
        return false;
    run_detail(run, "overloaded: it turns requests away (503)");
    asks_decide(run, HEALTH_BUSY);
    return true;
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    if (run->decided)
        return;
    if (kind == KIND_SLOTS) {
        take_slots(run, answer);
        return;
    }
    if (kind == KIND_TAGS && asks_absent(answer))
        return;
    if (take_overload(run, answer) || asks_failed(run, answer, paths[kind]))
        return;
    json_t *body = asks_json(run, answer, paths[kind]);
    if (body != NULL && kind == KIND_PS)
        take_ps(run, body);
    else if (body != NULL)
        take_tags(run, body);
    json_decref(body);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void be_unloaded(struct probe_run *run)
{
    forget_counts(&run->reading, run->spec->slots);
    if (run->ollama.models == 0) {
        asks_count(run, KIND_PS, 0, 0); /* nothing could be in flight */
        run_detail(run, "nothing is loaded: the first request loads its model");
    } else {
        run->reading.signal = SIGNAL_INFERRED;
        run_detail(run, "unloaded: the first request loads it, when others leave room");
    }
    run->reading.health = HEALTH_UNLOADED;
}

static void infer(struct probe_run *run)
{
    forget_counts(&run->reading, run->spec->slots);
    run->reading.health = HEALTH_OK;
    run->reading.signal = SIGNAL_INFERRED;
    if (run->ollama.models > 1)
        run_detail(run, "%d models are loaded: work in flight is not told", run->ollama.models);
    else if (run->spec->slots > 0)
        run_detail(run, "Ollama does not tell its work in flight");
    else
        run_detail(run,
                   "Ollama tells no work in flight; slots=N if OLLAMA_NUM_PARALLEL is above 1");
}

static void end(struct probe_run *run)
{
    struct ollama_state *state = &run->ollama;
    if (run->decided)
        return;
    run->reading.sent_ns = run->asks.sent_ns[KIND_PS];
    if (!state->loaded) {
        be_unloaded(run);
    } else if (state->counted && state->models == 1) {
        asks_count(run, KIND_SLOTS, run->reading.in_flight, -1);
        run_detail(run,
                   "by the llama-server that Ollama runs here; what waits in Ollama is not told");
    } else {
        infer(run);
    }
}

const struct engine engine_ollama = {"ollama", begin, next, take, end, true};
