/* What a completion says: the whole answer, or the events of a stream. */
#include "tests/lib/slotserver_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const words[] = {
    " the", " slot", " is", " taken", " by", " one", " who", " asked", " first", " and", " waits",
};
enum { N_WORDS = sizeof(words) / sizeof(*words) };

const char *build_of(enum slotserver_version version)
{
    return version == SLOTSERVER_NEW ? "b1-80fb11a" : "b1-ae3a413";
}

static const char *word(const struct task *task, long i)
{
    return words[(unsigned long)(task->id + i) % N_WORDS];
}

static json_t *content(const struct task *task)
{
    struct text all = {0};
    for (long i = 0; i < task->n_decoded; i++)
        text_add(&all, word(task, i), strlen(word(task, i)));
    json_t *string = json_stringn(all.at ? all.at : "", all.length);
    text_free(&all);
    return string;
}

static void add_rate(json_t *timings, const char *const keys[4], long n, int64_t us)
{
    double ms = us > 0 ? (double)us / 1000 : 0.001;
    json_object_set_new(timings, keys[0], json_integer(n));
    json_object_set_new(timings, keys[1], json_real(ms));
    json_object_set_new(timings, keys[2], json_real(n ? ms / (double)n : 0));
    json_object_set_new(timings, keys[3], json_real(1000 * (double)n / ms));
}

static json_t *timings(const struct task *task)
{
    static const char *const prompt[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms",
                                         "prompt_per_second"};
    static const char *const predicted[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms",
                                            "predicted_per_second"};
    json_t *all = json_pack("{s:i}", "cache_n", 0);
    add_rate(all, prompt, task->n_prompt, task->generating_at - task->begun_at);
    add_rate(all, predicted, task->n_decoded, task->ended_at - task->generating_at);
    return all;
}

static json_t *usage(const struct call *call, const struct task *task)
{
    json_t *all = json_pack("{s:I,s:I,s:I}", "completion_tokens", (json_int_t)task->n_decoded,
                            "prompt_tokens", (json_int_t)task->n_prompt, "total_tokens",
                            (json_int_t)(task->n_prompt + task->n_decoded));
    if (call->server->version == SLOTSERVER_NEW)
        json_object_set_new(all, "prompt_tokens_details", json_pack("{s:i}", "cached_tokens", 0));
    return all;
}

/* The last event of a /completion stream, and the whole answer without one. */
static json_t *completion_final(const struct call *call, const struct task *task)
{
    json_t *said = task->stream ? json_string("") : content(task);
    json_t *body = json_pack("{s:i,s:o,s:[],s:i,s:b,s:s,s:I,s:I}", "index", task->index, "content",
                             said, "tokens", "id_slot", task->slot, "stop", 1, "model", call->model,
                             "tokens_predicted", (json_int_t)task->n_decoded, "tokens_evaluated",
                             (json_int_t)task->n_prompt);
    json_object_set_new(body, "generation_settings", body_params(call->server, task, true));
    json_object_set_new(body, "prompt", json_string(call->prompt));
    json_object_set_new(body, "has_new_line", json_false());
    json_object_set_new(body, "truncated", json_boolean(task->truncated));
    json_object_set_new(body, "stop_type", json_string("limit"));
    json_object_set_new(body, "stopping_word", json_string(""));
    json_object_set_new(body, "tokens_cached", json_integer(task->n_prompt + task->n_decoded - 1));
    json_object_set_new(body, "timings", timings(task));
    return body;
}

static json_t *envelope(const struct call *call, json_t *choices, const char *object)
{
    return json_pack("{s:o,s:I,s:s,s:s,s:s,s:s}", "choices", choices, "created",
                     (json_int_t)time(NULL), "id", call->id, "model", call->model,
                     "system_fingerprint", build_of(call->server->version), "object", object);
}

static json_t *oai_choice(const struct call *call, const struct task *task)
{
    if (call->kind == OAI_COMPLETION)
        return json_pack("{s:o,s:i,s:n,s:s}", "text", content(task), "index", task->index,
                         "logprobs", "finish_reason", "length");
    return json_pack("{s:s,s:i,s:{s:s,s:o}}", "finish_reason", "length", "index", task->index,
                     "message", "role", "assistant", "content", content(task));
}

static json_t *oai_answer(const struct call *call)
{
    json_t *choices = json_array();
    struct task sum = *call->tasks[0];
    sum.n_decoded = 0;
    for (int i = 0; i < call->n_tasks; i++) {
        json_array_append_new(choices, oai_choice(call, call->tasks[i]));
        sum.n_decoded += call->tasks[i]->n_decoded;
    }
    const char *object = call->kind == CHAT ? "chat.completion" : "text_completion";
    json_t *body = envelope(call, choices, object);
    json_object_set_new(body, "usage", usage(call, &sum));
    json_object_set_new(body, "timings", timings(call->tasks[0]));
    return body;
}

json_t *call_answer(struct call *call)
{
    if (call->kind != COMPLETION)
        return oai_answer(call);
    if (!call->several)
        return completion_final(call, call->tasks[0]);
    json_t *all = json_array();
    for (int i = 0; i < call->n_tasks; i++)
        json_array_append_new(all, completion_final(call, call->tasks[i]));
    return all;
}

static void send_event(struct call *call, json_t *event)
{
    char *dumped = json_dumps(event, JSON_COMPACT);
    text_format(&call->out, "data: %s\n\n", dumped);
    free(dumped);
    json_decref(event);
}

static void send_chat(struct call *call, const struct task *task, json_t *finish, json_t *delta)
{
    json_t *choice =
        json_pack("{s:o,s:i,s:o}", "finish_reason", finish, "index", task->index, "delta", delta);
    send_event(call, envelope(call, json_pack("[o]", choice), "chat.completion.chunk"));
}

static json_t *oai_text(const struct call *call, const struct task *task, const char *said,
                        json_t *finish)
{
    json_t *choice = json_pack("{s:s,s:i,s:n,s:o}", "text", said, "index", task->index, "logprobs",
                               "finish_reason", finish);
    return envelope(call, json_pack("[o]", choice), "text_completion");
}

static void send_token(struct call *call, const struct task *task, long i)
{
    const char *said = word(task, i);
    if (call->kind == CHAT) {
        if (i == 0)
            send_chat(call, task, json_null(),
                      json_pack("{s:s,s:n}", "role", "assistant", "content"));
        send_chat(call, task, json_null(), json_pack("{s:s}", "content", said));
    } else if (call->kind == OAI_COMPLETION) {
        send_event(call, oai_text(call, task, said, json_null()));
    } else {
        send_event(call, json_pack("{s:i,s:s,s:[i],s:b,s:i,s:I,s:I}", "index", task->index,
                                   "content", said, "tokens", (int)(1000 + i % 1000), "stop", 0,
                                   "id_slot", -1, "tokens_predicted", (json_int_t)(i + 1),
                                   "tokens_evaluated", (json_int_t)task->n_prompt));
    }
}

static void send_last(struct call *call, const struct task *task)
{
    if (call->kind == COMPLETION) {
        send_event(call, completion_final(call, task));
        return;
    }
    if (call->kind == OAI_COMPLETION) {
        json_t *last = oai_text(call, task, "", json_string("length"));
        json_object_set_new(last, "usage", usage(call, task));
        json_object_set_new(last, "timings", timings(task));
        send_event(call, last);
        return;
    }
    send_chat(call, task, json_string("length"), json_object());
    if (call->include_usage) {
        json_t *last = envelope(call, json_array(), "chat.completion.chunk");
        json_object_set_new(last, "usage", usage(call, task));
        json_object_set_new(last, "timings", timings(task));
        send_event(call, last);
    }
}

static void send_failure(struct call *call)
{
    send_event(call, body_error(call->server->version, 500, "server_error",
                                "The model produced output that does not match the expected "
                                "Content-only format"));
    call->n_ended = call->n_tasks;
}

static void task_more(struct call *call, int i)
{
    const struct task *task = call->tasks[i];
    if (call->n_sent[i] < 0)
        return;
    while (call->n_sent[i] < task->n_decoded)
        send_token(call, task, call->n_sent[i]++);
    if (!task->done)
        return;
    call->n_sent[i] = -1;
    if (task->failed) {
        send_failure(call);
        return;
    }
    send_last(call, task);
    call->n_ended++;
}

void call_more(struct call *call)
{
    if (call->n_ended == call->n_tasks)
        return;
    for (int i = 0; i < call->n_tasks && call->n_ended < call->n_tasks; i++)
        task_more(call, i);
    bool failed = call->n_ended == call->n_tasks && call->tasks[0]->failed;
    if (call->n_ended == call->n_tasks && call->kind != COMPLETION && !failed)
        text_format(&call->out, "data: [DONE]\n\n");
}

static bool task_has_more(const struct call *call, int i)
{
    const struct task *task = call->tasks[i];
    return call->n_sent[i] >= 0 && (task->done || call->n_sent[i] < task->n_decoded);
}

/* Whether there is something to tell the client. */
bool call_ready(const struct call *call)
{
    for (int i = 0; i < call->n_tasks; i++) {
        const struct task *task = call->tasks[i];
        if (!call->stream && !task->done)
            return false;
        if (call->stream && (call->heard ? task_has_more(call, i) : task->begun))
            return true;
    }
    return !call->stream;
}
