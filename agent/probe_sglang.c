/* SGLang: the one engine that tells running, waiting and capacity in one answer.
 *
 *   /v1/loads?include=core   since 2026. Newer versions answer from what each scheduler has written
 *                            down after its last step: at most one step old.
 *   /get_load                before: num_reqs (the waiting ones included) and num_waiting_reqs of
 *                            each data-parallel rank. No capacity: slots=, or what was last known.
 *   /metrics                 where it was started with --enable-metrics and has neither.
 *
 * All ranks are summed. A rank that has written nothing yet shows a capacity of 0: the server is
 * starting. One that is missing where there were more is taken for a gap, once; the next reading
 * takes what there is for the truth.
 *
 * What waits is in flight, too: it takes the next place that becomes free, whoever comes after. A
 * queue means that all is taken only where the token pool is used up; a request also waits for the
 * next prefill.
 *
 * max_running_requests is often far above what is wise: slots= wins over it. */
#include "agent/probe_asks.h"
#include "agent/probe_json.h"
#include "agent/probe_metrics.h"

#include <string.h>

enum kind { KIND_LOADS, KIND_GET_LOAD, KIND_METRICS };

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_LOADS] = "/v1/loads?include=core",
    [KIND_GET_LOAD] = "/get_load",
    [KIND_METRICS] = "/metrics",
};

#define POOL_FULL 0.9

/* What is known to be there is asked at once by a verify; a full probe looks for better. */
static void begin(struct probe_run *run, ns_t now)
{
    asks_begin(run, now);
    asks_want(run, run->wants == PROBE_QUICK ? run->memory.sglang.way : KIND_LOADS);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    return asks_next(run, now, paths, ask);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

struct ranks {
    int count;
    int64_t in_flight, waiting, capacity;
    bool unwritten;
    bool pool_full;
};

static bool add_loads_rank(struct ranks *ranks, const json_t *rank)
{
    int running = -1, waiting = -1, capacity = -1;
    const json_t *usage = json_object_get(rank, "token_usage");
    if (!json_is_object(rank) || !probe_json_count(rank, "num_running_reqs", &running) ||
        !probe_json_count(rank, "num_waiting_reqs", &waiting) ||
        !probe_json_count(rank, "max_running_requests", &capacity) || running < 0 || waiting < 0)
        return false;
    ranks->in_flight += running + waiting;
    ranks->waiting += waiting;
    ranks->capacity += capacity > 0 ? capacity : 0;
    ranks->unwritten = ranks->unwritten || (capacity == 0 && running == 0 && waiting == 0);
    ranks->pool_full = ranks->pool_full && json_number_value(usage) >= POOL_FULL;
    return true;
}

static bool add_get_load_rank(struct ranks *ranks, const json_t *rank)
{
    int requests = -1, waiting = -1;
    if (!json_is_object(rank) || !probe_json_count(rank, "num_reqs", &requests) ||
        !probe_json_count(rank, "num_waiting_reqs", &waiting) || requests < 0 || waiting < 0)
        return false;
    ranks->in_flight += requests > waiting ? requests : waiting;
    ranks->waiting += waiting;
    ranks->pool_full = false; /* not told */
    return true;
}

static bool add_ranks(struct ranks *ranks, enum kind kind, const json_t *list)
{
    size_t index;
    const json_t *rank;
    if (!json_is_array(list))
        return false;
    json_array_foreach(list, index, rank)
    {
        if (!(kind == KIND_LOADS ? add_loads_rank(ranks, rank) : add_get_load_rank(ranks, rank)))
            return false;
        ranks->count++;
    }
    return ranks->count > 0 && ranks->in_flight < INT32_MAX / 4 && ranks->capacity < INT32_MAX / 4;
}

/* More of them were there before: their work is missing in the sums. */
static bool is_gap(struct probe_run *run, const struct ranks *ranks)
{
    int before = run->memory.sglang.ranks;
    run->memory.sglang.ranks = ranks->count;
    return ranks->count < before;
}

static void take_ranks(struct probe_run *run, enum kind kind, const json_t *body)
{
    struct ranks ranks = {.pool_full = true};
    const json_t *list = kind == KIND_LOADS ? json_object_get(body, "loads") : body;
    if (!add_ranks(&ranks, kind, list)) {
        asks_unknown(run, "the answer to %s is not SGLang's", paths[kind]);
        return;
    }
    if (ranks.unwritten) {
        run_detail(run, "a rank has told nothing yet: it is starting");
        asks_decide(run, HEALTH_LOADING);
        return;
    }
    if (is_gap(run, &ranks)) {
        asks_unknown(run, "fewer ranks told their load than before: %d", ranks.count);
        return;
    }
    run->memory.sglang.way = (int)kind;
    asks_slots(run, ranks.capacity);
    asks_count(run, (int)kind, (int)ranks.in_flight, (int)ranks.waiting);
    run->reading.queue_means_full = ranks.waiting > 0 && ranks.pool_full;
}

/* ---- /metrics -------------------------------------------------------------------------------- */

/* With --enable-metrics-for-all-schedulers each tensor-parallel rank tells the same work again: too
 * much is said then, which errs on the safe side. */
static int sum_of(const char *text, const char *name)
{
    struct metric metric;
    if (!probe_metric_read(text, name, "priority", &metric) || metric.sum >= 1e6)
        return -1;
    return probe_metric_count(&metric);
}

static void take_metrics(struct probe_run *run, const char *text)
{
    int running = sum_of(text, "sglang:num_running_reqs");
    int waiting = sum_of(text, "sglang:num_queue_reqs");
    struct metric usage = {0};
    if (running < 0 || waiting < 0) {
        asks_unknown(run, "the answer to /metrics is not SGLang's, or was cut off");
        return;
    }
    run->memory.sglang.way = KIND_METRICS;
    asks_count(run, KIND_METRICS, running + waiting, waiting);
    probe_metric_read(text, "sglang:token_usage", NULL, &usage);
    run->reading.queue_means_full = waiting > 0 && usage.smallest >= POOL_FULL;
}

/* ---- any answer ------------------------------------------------------------------------------ */

/* From the best to the worst, and from a remembered one to the best again: the server may be another. */
static void take_absent(struct probe_run *run, enum kind kind)
{
    run->memory.sglang.way = KIND_LOADS;
    if (!asks_sent(run, KIND_LOADS))
        asks_want(run, KIND_LOADS);
    else if (!asks_sent(run, KIND_GET_LOAD))
        asks_want(run, KIND_GET_LOAD);
    else if (!asks_sent(run, KIND_METRICS))
        asks_want(run, KIND_METRICS);
    else
        asks_unknown(run, "this is no SGLang server: it has no %s", paths[kind]);
}

static void take(struct probe_run *run, int number, const struct http_answer *answer)
{
    enum kind kind = (enum kind)number;
    if (run->decided)
        return;
    if (asks_absent(answer)) {
        take_absent(run, kind);
        return;
    }
    if (asks_failed(run, answer, paths[kind]))
        return;
    if (kind == KIND_METRICS) {
        take_metrics(run, answer->body);
        return;
    }
    json_t *body = asks_json(run, answer, paths[kind]);
    if (body != NULL)
        take_ranks(run, kind, body);
    json_decref(body);
}

static void end(struct probe_run *run)
{
    if (run->decided) {
        if (run->reading.health == HEALTH_DOWN)
            run->memory.sglang = (struct sglang_memory){0};
        return;
    }
    if (run->reading.slots_total <= 0 && run->last.slots_total <= 0)
        run_detail(run, "this version does not tell its capacity: say slots=N");
}

const struct engine engine_sglang = {"sglang", begin, next, take, end, true};
