/* vLLM: two counts, of which neither is the whole truth.
 *
 *   /metrics   gauges of requests that run and that wait. They lag: 3 to 6 s behind in steady work,
 *              18 s after a cold start. A lease that was just given back still shows in them, one
 *              just dispatched does not yet; to count with them would refuse free slots for seconds
 *              after every request and offer taken ones. So they are a signal `inferred`: leases
 *              alone decide, and the detail says what the gauges do.
 *   /load      requests inside the server at this moment, those that wait included. It counts only
 *              under --enable-server-load-tracking; without, it is 0 for ever, which looks idle.
 *
 * When /load is believed, and then is `exact`:
 *   - once it was seen above 0 and not below the gauges: only a server that counts can show that.
 *     Until then a 0 says nothing. (A reading in the book that was exact is as good: whoever made it
 *     had seen it.)
 *   - no longer once it has been below the gauges for 30 s on end, more than their lag: several API
 *     server processes each count their own; or tracking was switched off.
 *   - no more until the server restarts once it was negative, or above 0 for 60 s on end while the
 *     gauges saw no work at all: it has drifted.
 *
 * A queue means that all is taken only where the KV cache is used up: a request also waits for a
 * step, or for its turn in a long prefill. With gauges alone a queue while as many run as there are
 * slots (any, where those are not told) is more than our leases could have made; such a server is said
 * to be busy.
 *
 * Capacity (max_num_seqs) is not exported: without slots= it is unknown. Neither path asks for the
 * API key, which guards /v1 only; it is sent all the same, since a proxy may want it. */
#include "agent/probe_asks.h"
#include "agent/probe_metrics.h"

#include <string.h>

enum kind { KIND_LOAD, KIND_METRICS };

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_LOAD] = "/load",
    [KIND_METRICS] = "/metrics",
};

#define SHORT_NS      (30 * NS_PER_SEC)
#define DRIFT_NS      (60 * NS_PER_SEC)
#define GAUGES_AGE_NS (2 * NS_PER_SEC) /* a verify reads them again when they are older */
#define CACHE_FULL    0.9

static bool is_recent(ns_t then_ns, ns_t now, ns_t within_ns)
{
    return then_ns != 0 && now >= then_ns && now - then_ns < within_ns;
}

static void begin(struct probe_run *run, ns_t now)
{
    struct vllm_memory *memory = &run->memory.vllm;
    const struct reading *last = &run->last;
    asks_begin(run, now);
    run->vllm = (struct vllm_state){.running = -1, .waiting = -1};
    if (last->signal == SIGNAL_EXACT && !memory->drifted &&
        strcmp(last->engine, engine_vllm.name) == 0 &&
        is_recent(last->sent_ns, now, READING_TRUST_MS * NS_PER_MS))
        memory->believed = true;
    asks_want(run, KIND_LOAD);
    if (run->wants != PROBE_QUICK || !memory->believed ||
        !is_recent(memory->gauges_ns, now, GAUGES_AGE_NS))
        asks_want(run, KIND_METRICS);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    return asks_next(run, now, paths, ask);
}

/* ---- /load ----------------------------------------------------------------------------------- */

static void take_load(struct probe_run *run, const json_t *body)
{
    const json_t *load = json_object_get(body, "server_load");
    json_int_t value = json_integer_value(load);
    if (!json_is_integer(load) || value > INT32_MAX / 4 || value < -(INT32_MAX / 4)) {
        asks_unknown(run, "the answer to /load is not vLLM's");
        return;
    }
    run->vllm.load_told = true;
    run->vllm.load = (int)value;
}

/* ---- /metrics -------------------------------------------------------------------------------- */

/* Its restart makes everything that was learnt about its counter void. */
static void note_start(struct probe_run *run, const char *text)
{
    struct vllm_memory *memory = &run->memory.vllm;
    struct metric started;
    if (!probe_metric_read(text, "process_start_time_seconds", NULL, &started))
        return;
    if (memory->started != 0 && started.sum != memory->started)
        *memory = (struct vllm_memory){0};
    memory->started = started.sum;
}

/* Not told is used up: DESIGN's rule is the queue alone. */
static bool cache_is_full(const char *text)
{
    struct metric usage;
    if (!probe_metric_read(text, "vllm:kv_cache_usage_perc", NULL, &usage) &&
        !probe_metric_read(text, "vllm:gpu_cache_usage_perc", NULL, &usage))
        return true;
    return usage.smallest >= CACHE_FULL; /* of all engines */
}

static void take_metrics(struct probe_run *run, const char *text)
{
    struct vllm_state *state = &run->vllm;
    struct metric swapped; /* of versions before 1.0: begun, and put aside */
    note_start(run, text);
    state->running = probe_metric(text, "vllm:num_requests_running");
    state->waiting = probe_metric(text, "vllm:num_requests_waiting");
    if (state->running < 0 || state->waiting < 0) {
        state->running = state->waiting = -1;
        return;
    }
    if (probe_metric_read(text, "vllm:num_requests_swapped", NULL, &swapped) &&
        swapped.smallest >= 0 && swapped.sum < 1e6)
        state->running += probe_metric_count(&swapped);
    run->memory.vllm.gauges_ns = run->asks.sent_ns[KIND_METRICS];
    run->memory.vllm.waiting = state->waiting;
    run->memory.vllm.cache_full = cache_is_full(text);
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    if (run->decided)
        return;
    if (asks_absent(answer)) { /* old versions have no /load; the other one may do */
        if (kind == KIND_LOAD)
            asks_want(run, KIND_METRICS);
        return;
    }
    if (asks_failed(run, answer, paths[kind]))
        return;
    if (kind == KIND_METRICS) {
        run->vllm.metrics_answered = true;
        take_metrics(run, answer->body);
        return;
    }
    json_t *body = asks_json(run, answer, paths[kind]);
    if (body != NULL)
        take_load(run, body);
    json_decref(body);
}

/* ---- whom to believe ------------------------------------------------------------------------- */

/* For how long on end the counter has contradicted the gauges. */
static ns_t at_odds(struct probe_run *run, int work, ns_t now)
{
    struct vllm_memory *memory = &run->memory.vllm;
    int load = run->vllm.load;
    if (load >= work && (load == 0 || work > 0)) {
        memory->odds_ns = 0;
        return 0;
    }
    if (memory->odds_ns == 0)
        memory->odds_ns = now;
    return now - memory->odds_ns;
}

static void judge_load(struct probe_run *run)
{
    struct vllm_memory *memory = &run->memory.vllm;
    const struct vllm_state *state = &run->vllm;
    int work = state->running < 0 ? -1 : state->running + state->waiting;
    if (!state->load_told) {
        memory->believed = false;
        return;
    }
    memory->drifted = memory->drifted || state->load < 0;
    memory->believed = memory->believed || (state->load > 0 && state->load >= work);
    if (work >= 0) {
        ns_t odds = at_odds(run, work, run->asks.sent_ns[KIND_LOAD]);
        memory->believed = memory->believed && odds < (state->load > work ? DRIFT_NS : SHORT_NS);
        memory->drifted = memory->drifted || (state->load > work && odds >= DRIFT_NS);
    }
    memory->believed = memory->believed && !memory->drifted;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void count_load(struct probe_run *run)
{
    const struct vllm_memory *memory = &run->memory.vllm;
    bool waiting = is_recent(memory->gauges_ns, run->asks.sent_ns[KIND_LOAD], 2 * GAUGES_AGE_NS);
    asks_count(run, KIND_LOAD, run->vllm.load, waiting ? memory->waiting : -1);
    run->reading.queue_means_full = waiting && memory->waiting > 0 && memory->cache_full;
    if (run->spec->slots <= 0)
        run_detail(run, "it does not tell its capacity: say slots=N");
}

static const char *why_not_load(const struct probe_run *run)
{
    if (!run->vllm.load_told)
        return "no /load";
    if (run->memory.vllm.drifted)
        return "/load has drifted";
    return run->vllm.load == 0 ? "/load counts nothing so far" : "/load counts too few";
}

/* The slots first: what the line is cut after matters less. */
static void infer_from_gauges(struct probe_run *run)
{
    struct reading *reading = &run->reading;
    const struct vllm_state *state = &run->vllm;
    reading->health = HEALTH_OK;
    reading->signal = SIGNAL_INFERRED;
    reading->sent_ns = run->asks.sent_ns[KIND_METRICS];
    reading->in_flight = state->running + state->waiting;
    reading->queued = state->waiting;
    reading->queue_means_full = state->waiting > 0 && run->memory.vllm.cache_full;
    bool full = state->running >= (reading->slots_total > 0 ? reading->slots_total : 1);
    if (state->waiting > 0 && (full || reading->queue_means_full))
        reading->health = HEALTH_BUSY;
    run_detail(run, "%s%d run, %d wait some seconds ago (%s; --enable-server-load-tracking)",
               reading->slots_total > 0 ? "" : "say slots=N; ", state->running, state->waiting,
               why_not_load(run));
}

static void end(struct probe_run *run)
{
    struct vllm_memory *memory = &run->memory.vllm;
    if (run->decided) {
        if (run->reading.health == HEALTH_DOWN)
            *memory = (struct vllm_memory){0};
        return;
    }
    judge_load(run);
    if (memory->believed) {
        count_load(run);
    } else if (run->vllm.running >= 0) {
        infer_from_gauges(run);
    } else if (!run->vllm.load_told || run->vllm.metrics_answered) {
        asks_unknown(run, "the answer to /metrics is not vLLM's, or was cut off");
    } else {
        run->reading.health = HEALTH_OK;
        run_detail(run, "work in flight is not told: %s, and there are no gauges",
                   why_not_load(run));
    }
}

const struct engine engine_vllm = {"vllm", begin, next, take, end, true};
