/* Text Generation Inference.
 *
 *   /info      max_concurrent_requests: how many it takes in before it answers 429, those that wait
 *              included. Not how many run at a time, which depends on their length: slots= wins.
 *   /metrics   tgi_batch_current_size and tgi_queue_size. Both are missing until the first request
 *              after a start: there is something of TGI's, all of it sane, and no counter that tells
 *              of requests (counters come before gauges). Anything less is not an answer.
 *
 * What waits is in flight, too: it takes the next place that becomes free. A queue does not mean that
 * all is taken, since a request waits for the batch to take it in; but above the slots it does. */
#include "agent/probe_asks.h"
#include "agent/probe_json.h"
#include "agent/probe_metrics.h"

#include <string.h>

enum kind { KIND_INFO, KIND_METRICS };

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_INFO] = "/info",
    [KIND_METRICS] = "/metrics",
};

/* A verify asks for what changes alone, where the rest is known. */
static void begin(struct probe_run *run, ns_t now)
{
    const struct reading *last = &run->last;
    bool known = last->health == HEALTH_OK && strcmp(last->engine, engine_tgi.name) == 0 &&
                 last->slots_total > 0 && now - last->sent_ns < READING_TRUST_MS * NS_PER_MS;
    asks_begin(run, now);
    asks_want(run, KIND_METRICS);
    if (run->wants != PROBE_QUICK || !known) {
        asks_want(run, KIND_INFO);
        return;
    }
    asks_slots(run, last->slots_total);
    run->reading.model_count = last->model_count;
    memcpy(run->reading.models, last->models, sizeof run->reading.models);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    return asks_next(run, now, paths, ask);
}

static void take_info(struct probe_run *run, const json_t *info)
{
    int most = -1;
    const char *name = "";
    if (!probe_json_count(info, "max_concurrent_requests", &most) ||
        !probe_json_text(info, "model_id", &name) || most < 1) {
        asks_unknown(run, "the answer to /info is not TGI's");
        return;
    }
    asks_slots(run, most);
    if (name[0] != '\0')
        asks_model(run, name, MODEL_LOADED);
}

/* Nothing was asked of it yet. */
static bool is_fresh(const char *text)
{
    static const char *const counters[] = {"tgi_request_count", "tgi_request_success",
                                           "tgi_batch_inference_count"};
    struct metric metric;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (probe_metric_series(text, counters[i]) != 0 &&
            (!probe_metric_read(text, counters[i], NULL, &metric) || metric.sum != 0))
            return false;
    return probe_metric_series(text, "tgi_") > 0 &&
           probe_metric_series(text, "tgi_batch_current_size") == 0 &&
           probe_metric_series(text, "tgi_queue_size") == 0;
}

static void take_metrics(struct probe_run *run, const char *text)
{
    int batch = probe_metric(text, "tgi_batch_current_size");
    int queue = probe_metric(text, "tgi_queue_size");
    if (batch >= 0 && queue >= 0)
        asks_count(run, KIND_METRICS, batch + queue, queue);
    else if (!is_fresh(text))
        asks_unknown(run, "the answer to /metrics is not TGI's, or was cut off");
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    if (run->decided || asks_failed(run, answer, paths[kind]))
        return;
    if (kind == KIND_METRICS) {
        take_metrics(run, answer->body);
        return;
    }
    json_t *body = asks_json(run, answer, paths[kind]);
    if (body != NULL)
        take_info(run, body);
    json_decref(body);
}

static void end(struct probe_run *run)
{
    if (run->decided || run->reading.signal == SIGNAL_EXACT)
        return;
    run->reading.health = HEALTH_OK;
    run_detail(run, "it tells no work in flight before its first request");
}

const struct engine engine_tgi = {"tgi", begin, next, take, end, true};
