#include "agent/probe_asks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/probe_json.h"

void asks_begin(struct probe_run *run, ns_t now)
{
    run->asks = (struct asks){0};
    run->reading.sent_ns = now;
    run->reading.slots_total = run->spec->slots;
}

void asks_want(struct probe_run *run, int kind)
{
    run->asks.todo |= (1u << kind) & ~run->asks.sent;
}

bool asks_sent(const struct probe_run *run, int kind)
{
    return (run->asks.sent & 1u << kind) != 0;
}

bool asks_next(struct probe_run *run, ns_t now, const char *const *paths, struct engine_ask *ask)
{
    struct asks *asks = &run->asks;
    for (int kind = 0; kind < ENGINE_ASKS_MAX; kind++) {
        if (!(asks->todo & 1u << kind))
            continue;
        asks->todo &= ~(1u << kind);
        asks->sent |= 1u << kind;
        asks->sent_ns[kind] = now;
        ask->kind = kind;
        snprintf(ask->path, sizeof ask->path, "%s", paths[kind]);
        return true;
    }
    return false;
}

bool asks_absent(const struct http_answer *answer)
{
    return answer->failure == HTTP_NONE &&
           (answer->status == 404 || answer->status == 405 || answer->status == 501);
}

void asks_decide(struct probe_run *run, enum health health)
{
    struct reading *reading = &run->reading;
    reading->health = (int32_t)health;
    reading->signal = SIGNAL_NONE;
    reading->in_flight = reading->queued = -1;
    reading->named = reading->slot_count = reading->queue_means_full = 0;
    run->decided = true;
    run->asks.todo = 0;
}

void asks_unknown(struct probe_run *run, const char *format, ...)
{
    char line[2 * DETAIL_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run_detail(run, "%s", line);
    asks_decide(run, HEALTH_UNKNOWN);
}

bool asks_failed(struct probe_run *run, const struct http_answer *answer, const char *what)
{
    if (answer->failure == HTTP_NONE && answer->status == 503) {
        run_detail(run, "%s answers 503: it is starting, or is not healthy", what);
        asks_decide(run, HEALTH_LOADING);
        return true;
    }
    if (!run_take_failure(run, answer, what))
        return false;
    asks_decide(run, (enum health)run->reading.health);
    return true;
}

json_t *asks_json(struct probe_run *run, const struct http_answer *answer, const char *what)
{
    json_t *body = probe_json(answer->body, answer->size);
    if (body == NULL)
        asks_unknown(run, "the answer to %s is no JSON", what);
    return body;
}

void asks_slots(struct probe_run *run, int64_t told)
{
    if (run->spec->slots > 0 || told <= 0)
        return;
    run->reading.slots_total = told > BOOK_SLOTS_MAX ? BOOK_SLOTS_MAX : (int32_t)told;
}

void asks_model(struct probe_run *run, const char *name, enum model_state state)
{
    struct reading *reading = &run->reading;
    const char *base = strrchr(name, '/');
    if (reading->model_count == READING_MODELS)
        return;
    struct reading_model *model = &reading->models[reading->model_count++];
    if (strlen(name) > NAME_CHARS_MAX && base != NULL)
        name = base + 1;
    text_copy(model->name, sizeof model->name, name);
    model->state = state;
}

void asks_count(struct probe_run *run, int kind, int in_flight, int queued)
{
    run->reading.health = HEALTH_OK;
    run->reading.signal = SIGNAL_EXACT;
    run->reading.sent_ns = run->asks.sent_ns[kind];
    run->reading.in_flight = in_flight;
    run->reading.queued = queued;
}
