/* The completion endpoints: from the request to tasks, waiting for them, and the client that left.
 */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum waited { READY, STOPPED, GONE };

/*
 * As the real server waits for results: only when a whole second has passed in which no result
 * was produced for anybody does it look whether its own client is still there.
 */
static enum waited await(struct call *call)
{
    struct slotserver *server = call->server;
    int64_t since = now_us();
    for (;;) {
        if (server->stopping || (server->terminated && call->heard))
            return STOPPED;
        if (call_ready(call))
            return READY;
        int64_t last = call->engine->last_result;
        int64_t look = (last > since ? last : since) + SILENCE_US;
        if (now_us() < look) {
            wait_until(&server->results, &server->lock, look);
        } else {
            if (peer_gone(call->fd))
                return GONE;
            since = now_us();
        }
    }
}

static void hear(struct call *call)
{
    if (!call->heard)
        call->server->unheard--;
    call->heard = true;
    pthread_cond_broadcast(&call->server->results);
}

static ssize_t read_stream(void *closure, uint64_t position, char *buffer, size_t size)
{
    struct call *call = closure;
    struct text *out = &call->out;
    (void)position;
    if (call->out_read == out->length) {
        out->length = call->out_read = 0;
        if (call->n_ended == call->n_tasks)
            return MHD_CONTENT_READER_END_OF_STREAM;
        pthread_mutex_lock(&call->server->lock);
        enum waited waited = await(call);
        if (waited == READY)
            call_more(call);
        pthread_mutex_unlock(&call->server->lock);
        if (waited != READY)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t left = out->length - call->out_read;
    size_t given = left < size ? left : size;
    memcpy(buffer, out->at + call->out_read, given);
    call->out_read += given;
    return (ssize_t)given;
}

static long estimate_tokens(const json_t *prompt)
{
    if (json_is_array(prompt))
        return (long)json_array_size(prompt);
    return (long)(json_string_length(prompt) / 4) + 1;
}

/* A list of numbers is one prompt in tokens; a list with nothing but prompts in it is several. */
static bool is_several(const json_t *prompt)
{
    size_t n = json_array_size(prompt);
    for (size_t i = 0; i < n; i++) {
        if (json_is_number(json_array_get(prompt, i)))
            return false;
    }
    return n > 0;
}

static long chat_tokens(const json_t *messages)
{
    long tokens = 1;
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        tokens += 6 + estimate_tokens(json_object_get(message, "content"));
    }
    return tokens;
}

static long number(const json_t *body, const char *key, long otherwise)
{
    json_t *value = json_object_get(body, key);
    return json_is_number(value) ? (long)json_number_value(value) : otherwise;
}

/* Out of range the new version wraps; the old one looks for a slot that never comes. */
static int pin_of(const struct slotserver *server, const json_t *body)
{
    long pin = number(body, "id_slot", -1);
    long slots = (long)server->options.slots;
    if (pin == -1)
        return -1;
    if (server->version == SLOTSERVER_NEW)
        return (int)(((pin % slots) + slots) % slots);
    return pin >= 0 && pin < slots ? (int)pin : (int)slots;
}

static struct task *new_task(const struct call *call, const json_t *body, int index, long n_prompt)
{
    struct task *task = calloc(1, sizeof(*task));
    if (!task)
        abort();
    json_t *temperature = json_object_get(body, "temperature");
    task->refs = 1;
    task->index = index;
    task->pin = pin_of(call->server, body);
    task->n_prompt = number(body, "prompt_tokens", n_prompt);
    task->n_predict = number(body, "n_predict", number(body, "max_tokens", -1));
    task->fail_after = number(body, "fail_after", -1);
    task->temperature = json_is_number(temperature) ? json_number_value(temperature) : 0.8;
    task->stream = call->stream;
    if (task->n_prompt < 1)
        task->n_prompt = 1;
    return task;
}

static void make_tasks(struct call *call, const json_t *body, const json_t *prompt)
{
    int n = call->kind == CHAT ? (int)number(body, "n", 1) : 1;
    call->several = call->kind != CHAT && is_several(prompt);
    if (call->several)
        n = (int)json_array_size(prompt);
    n = n < 1 ? 1 : n > TASKS_OF_CALL_MAX ? TASKS_OF_CALL_MAX : n;
    call->n_tasks = n;
    call->tasks = calloc((size_t)n, sizeof(struct task *));
    call->n_sent = calloc((size_t)n, sizeof(*call->n_sent));
    if (!call->tasks || !call->n_sent)
        abort();
    for (int i = 0; i < n; i++) {
        const json_t *own = call->several ? json_array_get(prompt, (size_t)i) : prompt;
        long tokens = call->kind == CHAT ? chat_tokens(prompt) : estimate_tokens(own);
        call->tasks[i] = new_task(call, body, i, tokens);
    }
}

static void name_model(struct call *call, const json_t *body)
{
    if (call->server->version == SLOTSERVER_NEW) {
        body_model_name(call->engine, call->model, sizeof(call->model));
        return;
    }
    const char *asked = json_string_value(json_object_get(body, "model"));
    snprintf(call->model, sizeof(call->model), "%s", asked ? asked : "gpt-3.5-turbo");
}

static struct call *new_call(struct request *request, const json_t *body, const json_t *prompt)
{
    struct call *call = calloc(1, sizeof(*call));
    if (!call)
        abort();
    call->server = request->server;
    call->engine = request->engine;
    call->kind = strstr(request->path, "chat")            ? CHAT
                 : strncmp(request->path, "/v1/", 4) == 0 ? OAI_COMPLETION
                                                          : COMPLETION;
    call->fd =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    call->stream = json_is_true(json_object_get(body, "stream"));
    json_t *options = json_object_get(body, "stream_options");
    call->include_usage = json_is_true(json_object_get(options, "include_usage"));
    const char *text = json_string_value(prompt);
    snprintf(call->prompt, sizeof(call->prompt), "<s> %.100s", text ? text : "");
    name_model(call, body);
    make_tasks(call, body, prompt);
    return call;
}

/* Called when the request has ended, however it did. */
void completion_end(struct request *request)
{
    struct call *call = request->call;
    struct slotserver *server = request->server;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < call->n_tasks; i++) {
        engine_cancel(call->engine, call->tasks[i]);
        task_unref(call->tasks[i]);
    }
    server->calls--;
    if (!call->heard)
        server->unheard--;
    pthread_cond_broadcast(&server->results);
    pthread_mutex_unlock(&server->lock);
    free(call->tasks);
    free(call->n_sent);
    text_free(&call->out);
    free(call);
}

static enum MHD_Result answer_stream(struct request *request)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, 16384, read_stream, request->call, NULL);
    return answer_response(request, MHD_HTTP_OK, "text/event-stream", response);
}

static enum MHD_Result answer_whole(struct request *request)
{
    struct call *call = request->call;
    for (int i = 0; i < call->n_tasks; i++) {
        if (call->tasks[i]->failed)
            return answer_error(request, 500, "server_error", "The model failed");
    }
    return answer_json(request, MHD_HTTP_OK, call_answer(call));
}

static enum MHD_Result run_call(struct request *request)
{
    struct call *call = request->call;
    struct slotserver *server = request->server;
    /* The old version sends a stream's headers before it has looked at the request. */
    bool at_once = call->stream && server->version == SLOTSERVER_OLD;
    enum waited waited = READY;
    pthread_mutex_lock(&server->lock);
    snprintf(call->id, sizeof(call->id), "chatcmpl-%032ld", server->next_task);
    server->calls++;
    server->unheard++;
    for (int i = 0; i < call->n_tasks; i++)
        engine_submit(call->engine, call->tasks[i]);
    if (!at_once)
        waited = await(call);
    if (waited == READY)
        hear(call);
    pthread_mutex_unlock(&server->lock);
    if (waited != READY)
        return MHD_NO;
    return call->stream ? answer_stream(request) : answer_whole(request);
}

static enum MHD_Result refuse_context(struct request *request, const struct task *task)
{
    const struct slotserver *server = request->server;
    int context = (int)(server->options.ctx / server->options.slots);
    char text[160] = "the request exceeds the available context size, try increasing it";
    if (server->version == SLOTSERVER_NEW)
        snprintf(text, sizeof(text),
                 "request (%ld tokens) exceeds the available context size (%d tokens), try "
                 "increasing it",
                 task->n_prompt, context);
    json_t *body = body_error(server->version, 400, "exceed_context_size_error", text);
    json_t *error = json_object_get(body, "error");
    json_object_set_new(error, "n_prompt_tokens", json_integer(task->n_prompt));
    json_object_set_new(error, "n_ctx", json_integer(context));
    return answer_json(request, MHD_HTTP_BAD_REQUEST, body);
}

static void drop_call(struct call *call)
{
    for (int i = 0; i < call->n_tasks; i++)
        task_unref(call->tasks[i]);
    free(call->tasks);
    free(call->n_sent);
    free(call);
}

static enum MHD_Result start_call(struct request *request, const json_t *body, const json_t *prompt)
{
    struct call *call = new_call(request, body, prompt);
    const struct slotserver *server = request->server;
    const struct task *first = call->tasks[0];
    enum MHD_Result result;
    if (first->n_prompt > (long)(server->options.ctx / server->options.slots)) {
        result = refuse_context(request, first);
        drop_call(call);
    } else if (call->kind == CHAT && call->n_tasks > 1 && server->version == SLOTSERVER_OLD) {
        result =
            answer_error(request, 500, "server_error", "Only one completion choice is allowed");
        drop_call(call);
    } else {
        request->call = call;
        result = run_call(request);
    }
    return result;
}

static enum MHD_Result refuse_json(struct request *request)
{
    return answer_error(request, 500, "server_error",
                        "[json.exception.parse_error.101] parse error at line 1, column 3: syntax "
                        "error while parsing object key - invalid literal; last read: '{no'; "
                        "expected string literal");
}

enum MHD_Result completion_page(struct request *request)
{
    json_t *body =
        json_loadb(request->body.at ? request->body.at : "", request->body.length, 0, NULL);
    if (!json_is_object(body)) {
        json_decref(body);
        return refuse_json(request);
    }
    bool chat = strstr(request->path, "chat") != NULL;
    json_t *prompt = json_object_get(body, chat ? "messages" : "prompt");
    enum MHD_Result result;
    if (prompt)
        result = start_call(request, body, prompt);
    else
        result = answer_error(request, 400, "invalid_request_error",
                              chat ? "'messages' is required"
                                   : "[json.exception.out_of_range.403] key 'prompt' not found");
    json_decref(body);
    return result;
}
