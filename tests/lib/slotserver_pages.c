/* Which path is answered how, and what stands before every answer: loading, keys, models. */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <stdlib.h>
#include <string.h>

enum MHD_Result answer_response(struct request *request, unsigned status, const char *type,
                                struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Server", "llama.cpp");
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Access-Control-Allow-Origin", "");
    if (request->line->requests >= KEEP_ALIVE_REQUESTS)
        MHD_add_response_header(response, "Connection", "close");
    else
        MHD_add_response_header(response, "Keep-Alive", "timeout=5, max=100");
    enum MHD_Result result = MHD_queue_response(request->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result answer_text(struct request *request, unsigned status, const char *type,
                            const char *text, size_t length)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    return answer_response(request, status, type, response);
}

enum MHD_Result answer_json(struct request *request, unsigned status, json_t *body)
{
    char *dumped = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (!dumped)
        return MHD_NO;
    enum MHD_Result result =
        answer_text(request, status, "application/json; charset=utf-8", dumped, strlen(dumped));
    free(dumped);
    return result;
}

enum MHD_Result answer_error(struct request *request, unsigned status, const char *type,
                             const char *text)
{
    return answer_json(request, status,
                       body_error(request->server->version, (int)status, type, text));
}

const char *argument(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

static enum MHD_Result health_page(struct request *request)
{
    return answer_json(request, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

/*
 * With the lock held. The old version puts the question into the same queue as the work, so that
 * it waits for the running decode. Either way a result is produced, which keeps the server from
 * looking after its clients.
 */
static void ask_engine(struct engine *engine)
{
    struct slotserver *server = engine->server;
    unsigned long turn = engine->turns;
    while (server->version == SLOTSERVER_OLD && engine->decoding && engine->turns == turn &&
           !server->stopping)
        pthread_cond_wait(&server->results, &server->lock);
    server->next_task++;
    engine_told(engine);
}

static enum MHD_Result slots_page(struct request *request)
{
    struct slotserver *server = request->server;
    struct engine *engine = request->engine;
    if (server->options.no_slots)
        return answer_error(request, MHD_HTTP_NOT_IMPLEMENTED, "not_supported_error",
                            "This server does not support slots endpoint. Start it with "
                            "`--slots`");
    const char *fail = argument(request, "fail_on_no_slot");
    pthread_mutex_lock(&server->lock);
    engine_wake(engine);
    engine->idle_since = now_us();
    ask_engine(engine);
    bool none = engine_busy(engine) == server->options.slots;
    json_t *body = body_slots(engine);
    pthread_mutex_unlock(&server->lock);
    if (fail && *fail && none) {
        json_decref(body);
        return answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error",
                            "no slot available");
    }
    return answer_json(request, MHD_HTTP_OK, body);
}

static enum MHD_Result metrics_page(struct request *request)
{
    struct slotserver *server = request->server;
    if (!server->options.metrics)
        return answer_error(request, MHD_HTTP_NOT_IMPLEMENTED, "not_supported_error",
                            "This server does not support metrics endpoint. Start it with "
                            "`--metrics`");
    struct text text = {0};
    pthread_mutex_lock(&server->lock);
    ask_engine(request->engine);
    body_metrics(request->engine, &text);
    pthread_mutex_unlock(&server->lock);
    enum MHD_Result result =
        answer_text(request, MHD_HTTP_OK, "text/plain; version=0.0.4", text.at, text.length);
    text_free(&text);
    return result;
}

static enum MHD_Result props_page(struct request *request)
{
    struct slotserver *server = request->server;
    pthread_mutex_lock(&server->lock);
    json_t *body = request->engine ? body_props(request->engine) : body_router_props(server);
    pthread_mutex_unlock(&server->lock);
    return answer_json(request, MHD_HTTP_OK, body);
}

static bool loading(struct slotserver *server)
{
    pthread_mutex_lock(&server->lock);
    bool is = now_us() < server->loaded_at;
    pthread_mutex_unlock(&server->lock);
    return is;
}

static enum MHD_Result models_page(struct request *request)
{
    struct slotserver *server = request->server;
    bool is_loading = loading(server);
    pthread_mutex_lock(&server->lock);
    json_t *body =
        server->options.router ? body_router_models(server) : body_models(server, is_loading);
    pthread_mutex_unlock(&server->lock);
    return answer_json(request, MHD_HTTP_OK, body);
}

static enum MHD_Result tokenize_page(struct request *request)
{
    json_t *body =
        json_loadb(request->body.at ? request->body.at : "", request->body.length, 0, NULL);
    const char *text = json_string_value(json_object_get(body, "content"));
    json_t *tokens = json_array();
    for (size_t i = 0; text && i < strlen(text) / 6 + 1; i++)
        json_array_append_new(tokens, json_integer((json_int_t)(1000 + i)));
    json_decref(body);
    return answer_json(request, MHD_HTTP_OK, json_pack("{s:o}", "tokens", tokens));
}

static enum MHD_Result slot_action_page(struct request *request)
{
    return answer_error(request, MHD_HTTP_NOT_IMPLEMENTED, "not_supported_error",
                        "This server does not support slots action. Start it with "
                        "`--slot-save-path`");
}

enum route_flag {
    PUBLIC = 1,         /* needs no key */
    PUBLIC_OLD = 2,     /* nor with the old version */
    OF_MODEL = 4,       /* a router must be told which model */
    MAYBE_OF_MODEL = 8, /* or answers itself */
};

struct route {
    const char *method, *path;
    page page;
    unsigned flags;
};

static const struct route routes[] = {
    {"GET", "/health", health_page, PUBLIC},
    {"GET", "/v1/health", health_page, PUBLIC},
    {"GET", "/slots", slots_page, OF_MODEL},
    {"GET", "/metrics", metrics_page, OF_MODEL},
    {"GET", "/props", props_page, MAYBE_OF_MODEL},
    {"GET", "/v1/models", models_page, PUBLIC_OLD},
    {"GET", "/models", models_page, PUBLIC_OLD},
    {"POST", "/completion", completion_page, OF_MODEL},
    {"POST", "/completions", completion_page, OF_MODEL},
    {"POST", "/v1/completions", completion_page, OF_MODEL},
    {"POST", "/chat/completions", completion_page, OF_MODEL},
    {"POST", "/v1/chat/completions", completion_page, OF_MODEL},
    {"POST", "/tokenize", tokenize_page, OF_MODEL},
};

static const struct route slot_action = {"POST", "/slots/", slot_action_page, OF_MODEL};

static const struct route *find_route(const struct request *request)
{
    const char *method = strcmp(request->method, "HEAD") == 0 ? "GET" : request->method;
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
        if (strcmp(routes[i].path, request->path) == 0 && strcmp(routes[i].method, method) == 0)
            return &routes[i];
    }
    if (strcmp(method, "POST") == 0 && strncmp(request->path, "/slots/", 7) == 0)
        return &slot_action;
    return NULL;
}

static bool has_key(const struct request *request)
{
    const struct slotserver *server = request->server;
    const char *given =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "Authorization");
    const char *bare =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "X-Api-Key");
    const char *key = server->options.api_key;
    if (given && strncmp(given, "Bearer ", 7) == 0 && strcmp(given + 7, key) == 0)
        return true;
    if (server->version == SLOTSERVER_OLD)
        return false;
    return (given && strcmp(given, key) == 0) || (bare && strcmp(bare, key) == 0);
}

static bool admitted(const struct request *request, const struct route *route)
{
    if (!request->server->options.api_key)
        return true;
    unsigned flags = route ? route->flags : 0;
    if (flags & PUBLIC)
        return true;
    if ((flags & PUBLIC_OLD) && request->server->version == SLOTSERVER_OLD)
        return true;
    return has_key(request);
}

static void model_name(const struct request *request, char *name, size_t size)
{
    const char *given = argument(request, "model");
    json_t *body = NULL;
    if (strcmp(request->method, "POST") == 0 && request->body.length) {
        body = json_loadb(request->body.at, request->body.length, 0, NULL);
        const char *inside = json_string_value(json_object_get(body, "model"));
        given = inside ? inside : given;
    }
    strncpy(name, given ? given : "", size - 1);
    name[size - 1] = '\0';
    json_decref(body);
}

/* In a router: finds the model, and loads it. Says why not, else NULL. */
static const char *route_model(struct request *request)
{
    struct slotserver *server = request->server;
    char name[64];
    model_name(request, name, sizeof(name));
    if (!*name)
        return "model name is missing from the request";
    request->engine = models_find(server, name);
    if (!request->engine)
        return "model not found";
    const char *autoload = argument(request, "autoload");
    bool stay = autoload && (strcmp(autoload, "false") == 0 || strcmp(autoload, "0") == 0);
    pthread_mutex_lock(&server->lock);
    bool there = request->engine->loaded;
    if (!there && !stay)
        models_load(request->engine);
    pthread_mutex_unlock(&server->lock);
    return there || !stay ? NULL : "model is not loaded";
}

static enum MHD_Result dispatch_router(struct request *request, const struct route *route)
{
    bool of_model = (route->flags & OF_MODEL) ||
                    ((route->flags & MAYBE_OF_MODEL) && argument(request, "model"));
    request->engine = NULL;
    const char *refusal = of_model ? route_model(request) : NULL;
    if (refusal)
        return answer_error(request, MHD_HTTP_BAD_REQUEST, "invalid_request_error", refusal);
    return route->page(request);
}

enum MHD_Result dispatch(struct request *request)
{
    struct slotserver *server = request->server;
    const struct route *route = find_route(request);
    bool old_models = route && (route->flags & PUBLIC_OLD) && server->version == SLOTSERVER_OLD;
    if (loading(server) && !old_models)
        return answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error",
                            "Loading model");
    if (strcmp(request->method, "OPTIONS") == 0)
        return answer_text(request, MHD_HTTP_OK, "text/html", "", 0);
    if (!admitted(request, route))
        return answer_error(request, MHD_HTTP_UNAUTHORIZED, "authentication_error",
                            "Invalid API Key");
    if (!route)
        return answer_error(request, MHD_HTTP_NOT_FOUND, "not_found_error", "File Not Found");
    if (server->options.router)
        return dispatch_router(request, route);
    request->engine = &server->engines[0];
    return route->page(request);
}
