/* llama-swap, and llama-skein, which grew out of it: proxies that start a server for a model when
 * somebody asks for it, and stop another to make room.
 *
 *   /running               which models have a server, in which state, and after how many idle
 *                          seconds each is stopped. Starts nothing.
 *   /api/hardware          llama-skein alone: `inference` with in_flight (of all models, requests
 *                          that wait for a slot or a load included) and slots_total (of all servers
 *                          that run; 1 for each whose command says no --parallel, which undercounts
 *                          what has 4 by default: slots= wins). Both 0 while nothing runs.
 *   /v1/models             whether a model that does not run exists, and whether a peer of the proxy
 *                          has it, whose state is not told here.
 *   /upstream/MODEL/slots  llama-server's own answer: exact, with names. Would start a server, or
 *                          stop another's: asked only with model=, and only when /running has just
 *                          said `ready`. It also restarts the model's idle time, so a background
 *                          probe of an idle one that is to be stopped some day leaves it out.
 *
 * /running shows whole command lines, keys in them included: of each entry only model, state and ttl
 * are looked at. Without model= and without `inference` it is told what is loaded, not what is in
 * flight. While another model is at work, requests for an unloaded one may wait unseen: leases alone
 * decide then. */
#include "agent/probe_asks.h"
#include "agent/probe_json.h"
#include "agent/probe_llama.h"

#include <stdio.h>
#include <string.h>

enum kind { KIND_RUNNING, KIND_HARDWARE, KIND_MODELS, KIND_SLOTS };

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_RUNNING] = "/running",
    [KIND_HARDWARE] = "/api/hardware",
    [KIND_MODELS] = "/v1/models",
    [KIND_SLOTS] = "/upstream/MODEL/slots",
};

static void begin(struct probe_run *run, ns_t now)
{
    asks_begin(run, now);
    run->rest_is_over = reading_rest_is_over(&run->last, now);
    run->swap = (struct swap_state){.wanted = MODEL_UNKNOWN, .ttl = -1, .in_flight = -1};
    asks_want(run, KIND_RUNNING);
    run->swap.hardware_due = run->wants != PROBE_QUICK || !run->memory.swap.no_hardware;
    if (run->swap.hardware_due)
        asks_want(run, KIND_HARDWARE);
}

/* The slashes of a name stay, the proxy looks for it piece by piece. */
static void slots_path(const struct probe_run *run, char *path)
{
    size_t length = (size_t)snprintf(path, ENGINE_PATH_SIZE, "/upstream/");
    for (const char *text = run->spec->model; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~/:", c) != NULL;
        length +=
            (size_t)snprintf(path + length, ENGINE_PATH_SIZE - length, plain ? "%c" : "%%%02X", c);
    }
    snprintf(path + length, ENGINE_PATH_SIZE - length, "/slots");
}

_Static_assert(sizeof "/upstream//slots" + 3 * SPEC_MODEL_SIZE <= ENGINE_PATH_SIZE,
               "the path of any model fits");

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    if (!asks_next(run, now, paths, ask))
        return false;
    if (ask->kind == KIND_SLOTS)
        slots_path(run, ask->path);
    return true;
}

/* ---- what is known decides what is asked next ------------------------------------------------ */

/* Requests for an unloaded model may be among those of others, or wait for it to be loaded. */
static bool may_wait_unseen(const struct swap_state *state)
{
    return state->running > 0 ? state->in_flight != 0 : state->in_flight > 0;
}

/* Idle when last asked, and to be stopped after some idle time: not to be disturbed. */
static bool leave_in_peace(const struct probe_run *run)
{
    bool unwanted = run->wants != PROBE_QUICK && !(run->wants == PROBE_LOOK && run->rest_is_over);
    return unwanted && run->swap.ttl != 0 && run->last.in_flight <= 0;
}

/* Whether what llama-skein counts is the wanted model's alone. */
static bool hardware_is_enough(const struct swap_state *state)
{
    return state->in_flight == 0 || (state->in_flight > 0 && state->running == 1);
}

static void consider(struct probe_run *run)
{
    struct swap_state *state = &run->swap;
    if (run->decided || !state->running_told || state->hardware_due || run->spec->model[0] == '\0')
        return;
    if (state->wanted == MODEL_UNLOADED)
        asks_want(run, KIND_MODELS);
    else if (state->wanted != MODEL_LOADED || hardware_is_enough(state))
        return;
    else if (leave_in_peace(run))
        run->reading.in_peace = 1;
    else
        asks_want(run, KIND_SLOTS);
}

/* ---- /running -------------------------------------------------------------------------------- */

static enum model_state state_of(const char *word)
{
    static const struct {
        const char *word;
        enum model_state state;
    } states[] = {{"ready", MODEL_LOADED},
                  {"starting", MODEL_LOADING},
                  {"stopping", MODEL_LOADING}, /* on its way to where it can be loaded again */
                  {"shutdown", MODEL_LOADING},
                  {"stopped", MODEL_UNLOADED}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i].word, word) == 0)
            return states[i].state;
    return MODEL_UNKNOWN;
}

static bool take_entry(struct probe_run *run, const json_t *entry)
{
    struct swap_state *state = &run->swap;
    const char *name = NULL, *word = NULL;
    int ttl = -1;
    if (!json_is_object(entry) || !probe_json_text(entry, "model", &name) ||
        !probe_json_text(entry, "state", &word) || name == NULL || word == NULL)
        return false;
    enum model_state is = state_of(word);
    asks_model(run, name, is);
    if (is == MODEL_UNLOADED)
        return true;
    state->running++;
    state->ready += is == MODEL_LOADED;
    if (strcmp(name, run->spec->model) == 0) {
        state->wanted = is;
        if (probe_json_count(entry, "ttl", &ttl))
            state->ttl = ttl;
    }
    return true;
}

static void take_running(struct probe_run *run, const json_t *body)
{
    size_t index;
    const json_t *entry, *list = json_object_get(body, "running");
    run->swap.wanted = MODEL_UNLOADED;
    bool sane = json_is_array(list);
    json_array_foreach(list, index, entry)
    {
        sane = sane && take_entry(run, entry);
    }
    if (!sane)
        asks_unknown(run, "the answer to /running is not llama-swap's");
    else
        run->swap.running_told = true;
}

/* ---- the others ------------------------------------------------------------------------------ */

static void take_hardware(struct probe_run *run, const json_t *body)
{
    const json_t *inference = json_object_get(body, "inference");
    int in_flight = -1, slots = -1;
    run->memory.swap.no_hardware = inference == NULL;
    if (inference == NULL)
        return;
    if (!probe_json_count(inference, "in_flight", &in_flight) ||
        !probe_json_count(inference, "slots_total", &slots) || in_flight < 0 || slots < 0) {
        asks_unknown(run, "the answer to /api/hardware is not llama-skein's");
        return;
    }
    run->swap.in_flight = in_flight;
    run->swap.slots = slots;
}

static void take_models(struct probe_run *run, const json_t *body)
{
    size_t index;
    const json_t *model, *list = json_object_get(body, "data");
    if (!json_is_array(list)) {
        asks_unknown(run, "the answer to /v1/models is not llama-swap's");
        return;
    }
    json_array_foreach(list, index, model)
    {
        const char *id = json_string_value(json_object_get(model, "id"));
        const json_t *meta = json_object_get(json_object_get(model, "meta"), "llamaswap");
        if (id == NULL || strcmp(id, run->spec->model) != 0)
            continue;
        run->swap.at_peer = json_object_get(meta, "peerID") != NULL;
        return;
    }
    asks_unknown(run, "no model '%s' runs or is listed; model= wants its own name, no alias",
                 run->spec->model);
}

static void take_slots(struct probe_run *run, const json_t *body)
{
    int32_t slots = run->reading.slots_total;
    if (!json_is_array(body) || json_array_size(body) == 0 ||
        !llama_read_slots(&run->reading, body)) {
        asks_unknown(run, "the answer to %s is not llama.cpp's", paths[KIND_SLOTS]);
        return;
    }
    run->swap.slots_told = true;
    asks_count(run, KIND_SLOTS, run->reading.in_flight, -1);
    if (slots > 0 && slots < run->reading.slots_total)
        run->reading.slots_total = slots;
}

static void take_json(struct probe_run *run, int kind, const json_t *body)
{
    switch (kind) {
    case KIND_RUNNING: take_running(run, body); break;
    case KIND_HARDWARE: take_hardware(run, body); break;
    case KIND_MODELS: take_models(run, body); break;
    default: take_slots(run, body); break;
    }
}

/* llama-swap has no /api/hardware, or sends whoever asks for it to its pages; other servers than
 * llama.cpp's have no /slots. */
static bool take_lightly(struct probe_run *run, int kind, const struct http_answer *answer)
{
    bool sent_away = answer->failure == HTTP_NONE && answer->status >= 300 && answer->status < 400;
    if (kind == KIND_HARDWARE && (asks_absent(answer) || sent_away)) {
        run->memory.swap.no_hardware = true;
        return true;
    }
    if (kind == KIND_SLOTS && answer->failure == HTTP_NONE && answer->status == 429) {
        run_detail(run, "as many requests as llama-swap lets through (429)");
        asks_decide(run, HEALTH_BUSY);
        return true;
    }
    return kind == KIND_SLOTS && asks_absent(answer);
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    if (run->decided)
        return;
    if (kind == KIND_HARDWARE)
        run->swap.hardware_due = false;
    if (!take_lightly(run, kind, answer)) {
        if (asks_failed(run, answer, paths[kind]))
            return;
        json_t *body = asks_json(run, answer, paths[kind]);
        if (body != NULL)
            take_json(run, kind, body);
        json_decref(body);
    }
    consider(run);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void be_empty(struct probe_run *run, const char *detail)
{
    asks_count(run, run->swap.in_flight == 0 ? KIND_HARDWARE : KIND_RUNNING, 0, 0);
    run->reading.health = HEALTH_UNLOADED;
    run_detail(run, "%s", detail);
}

static void be_loading(struct probe_run *run, const char *detail)
{
    run->reading.health = HEALTH_LOADING;
    run_detail(run, "%s", detail);
}

static void be_unloaded(struct probe_run *run)
{
    if (run->swap.at_peer) {
        run->reading.health = HEALTH_OK;
        run_detail(run, "it runs at a peer of this proxy: name that one's address instead");
        return;
    }
    if (!may_wait_unseen(&run->swap)) {
        be_empty(run, "unloaded: the first request loads it");
        return;
    }
    run->reading.health = HEALTH_UNLOADED;
    run_detail(run, "unloaded: the first request loads it, when another model makes room");
}

static void be_ready(struct probe_run *run, bool counted)
{
    const struct swap_state *state = &run->swap;
    run->reading.health = HEALTH_OK;
    if (state->slots_told)
        return;
    if (counted) {
        if (state->running == 1 || run->spec->model[0] == '\0')
            asks_slots(run, state->slots);
        asks_count(run, KIND_HARDWARE, state->in_flight, -1);
    } else if (asks_sent(run, KIND_SLOTS)) {
        run_detail(run, "work in flight is not told: the model's server has no /slots");
    } else if (run->spec->model[0] == '\0') {
        run_detail(run, "work in flight is not told: name a model with model=NAME");
    } else {
        run_detail(run, "idle when last asked; left alone so that it can be unloaded (ttl)");
    }
}

static void end_of_all(struct probe_run *run)
{
    const struct swap_state *state = &run->swap;
    if (state->ready > 0)
        be_ready(run, state->in_flight >= 0);
    else if (state->running > 0 || state->in_flight > 0)
        be_loading(run, "a model is starting or stopping");
    else
        be_empty(run, "nothing is loaded: the first request loads its model");
}

static void end(struct probe_run *run)
{
    const struct swap_state *state = &run->swap;
    if (run->decided)
        return;
    run->reading.sent_ns = run->asks.sent_ns[KIND_RUNNING];
    if (run->spec->model[0] == '\0') {
        end_of_all(run);
        return;
    }
    switch (state->wanted) {
    case MODEL_LOADED: be_ready(run, hardware_is_enough(state)); break;
    case MODEL_LOADING: be_loading(run, "the model is starting or stopping"); break;
    case MODEL_UNLOADED: be_unloaded(run); break;
    default: asks_unknown(run, "the state of the model is not known"); break;
    }
}

const struct engine engine_swap = {"llama-swap", begin, next, take, end, false};
