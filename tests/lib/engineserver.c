/* Start, end, and the connections. */
#define _GNU_SOURCE
#include "tests/lib/engineserver_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[KIND_COUNT] = {
    [IS_VLLM] = "vllm",       [IS_SGLANG] = "sglang",     [IS_TGI] = "tgi",
    [IS_SWAP] = "llama-swap", [IS_SKEIN] = "llama-skein", [IS_OLLAMA] = "ollama",
    [IS_STUDIO] = "lmstudio",
};

void engineserver_defaults(struct engineserver_options *options)
{
    *options = (struct engineserver_options){.kind = "vllm",
                                             .host = "127.0.0.1",
                                             .slots = 1,
                                             .models = "coder,big",
                                             .load_ms = 50,
                                             .max_waiting = 512};
}

int model_of(const struct engineserver *server, const char *name)
{
    for (int i = 0; i < server->model_count; i++)
        if (strcmp(server->models[i], name) == 0)
            return i;
    return -1;
}

static enum MHD_Result handle(void *closure, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **context)
{
    struct visit *visit = *context;
    (void)version;
    if (!visit) {
        visit = calloc(1, sizeof *visit);
        if (!visit)
            abort();
        *visit = (struct visit){
            .server = closure, .connection = connection, .method = method, .path = path};
        *context = visit;
        return MHD_YES;
    }
    if (*size) {
        if (visit->body.length + *size > BODY_MAX)
            return MHD_NO;
        text_add(&visit->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return pages_serve(visit);
}

static void forget_visit(void *closure, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct visit *visit = *context;
    (void)closure;
    (void)connection;
    (void)code;
    if (visit)
        text_free(&visit->body);
    free(visit);
    *context = NULL;
}

static bool listen_on(struct engineserver *server)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)server->options.port),
    };
    if (inet_pton(AF_INET, server->options.host, &address.sin_addr) != 1)
        return false;
    server->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ITC,
        0, NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED,
        forget_visit, server, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
    if (!server->daemon)
        return false;
    server->port = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return true;
}

static bool name_models(struct engineserver *server)
{
    server->names = strdup(server->options.models);
    if (!server->names)
        abort();
    for (char *rest = server->names, *name; (name = strsep(&rest, ",")) != NULL;) {
        if (server->model_count == SWAP_MODELS_MAX)
            return false;
        server->models[server->model_count++] = name;
    }
    return true;
}

static bool find_kind(struct engineserver *server)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i], server->options.kind) != 0)
            continue;
        server->kind = (enum server_kind)i;
        return true;
    }
    return false;
}

static void let_go(struct engineserver *server)
{
    pthread_cond_destroy(&server->moved);
    pthread_mutex_destroy(&server->lock);
    free(server->names);
    free(server);
}

struct engineserver *engineserver_start(const struct engineserver_options *options)
{
    struct engineserver *server = calloc(1, sizeof *server);
    if (!server)
        abort();
    server->options = *options;
    server->current = -1;
    server->started = server->idle_since = now_us();
    server->loaded_at = server->started + (int64_t)options->loading_ms * 1000;
    TAILQ_INIT(&server->line);
    pthread_mutex_init(&server->lock, NULL);
    condition_init(&server->moved);
    const char *wrong = !find_kind(server)                            ? "no such kind"
                        : !name_models(server)                        ? "too many models"
                        : options->slots < 1 || options->slots > 1024 ? "slots are 1 to 1024"
                        : !listen_on(server)                          ? "cannot listen there"
                                                                      : NULL;
    if (wrong) {
        fprintf(stderr, "engineserver: %s\n", wrong);
        let_go(server);
        return NULL;
    }
    return server;
}

unsigned engineserver_port(const struct engineserver *server)
{
    return server->port;
}

void engineserver_stop(struct engineserver *server)
{
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    pthread_cond_broadcast(&server->moved);
    pthread_mutex_unlock(&server->lock);
    MHD_stop_daemon(server->daemon);
    let_go(server);
}

void engineserver_stats(struct engineserver *server, struct engineserver_stats *stats)
{
    pthread_mutex_lock(&server->lock);
    work_tidy(server);
    *stats = server->stats;
    pthread_mutex_unlock(&server->lock);
}

bool engineserver_set(struct engineserver *server, const char *name, int value)
{
    struct engineserver_options *options = &server->options;
    bool known = true;
    pthread_mutex_lock(&server->lock);
    if (strcmp(name, "lag_ms") == 0)
        options->lag_ms = (unsigned)value;
    else if (strcmp(name, "tracking") == 0)
        options->tracking = value != 0;
    else if (strcmp(name, "drift") == 0)
        options->drift = value;
    else if (strcmp(name, "ttl_s") == 0)
        options->ttl_s = (unsigned)value;
    else
        known = false;
    pthread_mutex_unlock(&server->lock);
    return known;
}
