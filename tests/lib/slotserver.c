/* Start and end. */
#define _GNU_SOURCE
#include "tests/lib/slotserver.h"
#include "tests/lib/slotserver_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void slotserver_defaults(struct slotserver_options *options)
{
    *options = (struct slotserver_options){
        .host = "127.0.0.1",
        .version = "new",
        .slots = 1,
        .ctx = 131072,
        .prefill_tps = 1000,
        .tps = 50,
        .batch = 2048,
        .wake_ms = 129,
        .models_max = 4,
        .model_load_ms = 176,
    };
}

static unsigned names_in(const char *list)
{
    unsigned n = 1;
    while ((list = strchr(list, ',')) != NULL) {
        list++;
        n++;
    }
    return n;
}

static const char *wrong_with(const struct slotserver_options *options)
{
    if (strcmp(options->version, "new") != 0 && strcmp(options->version, "old") != 0)
        return "the version is new or old";
    if (options->slots < 1 || options->slots > 1024)
        return "slots are 1 to 1024";
    if (options->ctx / options->slots < 1)
        return "the context is too small for the slots";
    if (!(options->tps > 0) || !(options->prefill_tps > 0) || options->batch < 1)
        return "speeds and the batch must be above 0";
    if (options->port > 65535)
        return "no such port";
    if (options->router && strcmp(options->version, "old") == 0)
        return "the old version has no router";
    if (options->router && names_in(options->router) > MODELS_MAX)
        return "too many models";
    enum misbehaviour misbehaviour;
    if (options->misbehave && !misbehaviour_parse(options->misbehave, &misbehaviour))
        return "unknown misbehaviour";
    return NULL;
}

/* One engine without a router, else one a name. */
static void name_engines(struct slotserver *server)
{
    const char *names = server->options.router ? server->options.router : "";
    server->names = strdup(names);
    char *rest = server->names;
    char *name;
    while ((name = strsep(&rest, ",")) != NULL) {
        struct engine *engine = &server->engines[server->n_engines++];
        engine->server = server;
        engine->name = name;
        engine->loaded = server->options.router == NULL;
    }
}

static struct slotserver *refuse(const char *why)
{
    fprintf(stderr, "slotserver: %s\n", why);
    return NULL;
}

static struct slotserver *new_server(const struct slotserver_options *options)
{
    struct slotserver *server = calloc(1, sizeof(*server));
    if (!server)
        abort();
    server->options = *options;
    server->version = strcmp(options->version, "new") == 0 ? SLOTSERVER_NEW : SLOTSERVER_OLD;
    server->loaded_at = now_us() + (int64_t)options->loading_ms * 1000;
    pthread_mutex_init(&server->lock, NULL);
    condition_init(&server->results);
    TAILQ_INIT(&server->line);
    if (options->misbehave)
        misbehaviour_parse(options->misbehave, &server->misbehaviour);
    return server;
}

static void set_stopping(struct slotserver *server)
{
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    for (unsigned i = 0; i < server->n_engines; i++)
        pthread_cond_broadcast(&server->engines[i].work);
    pthread_cond_broadcast(&server->results);
    pthread_mutex_unlock(&server->lock);
}

struct slotserver *slotserver_start(const struct slotserver_options *options)
{
    const char *wrong = wrong_with(options);
    if (wrong)
        return refuse(wrong);
    struct slotserver *server = new_server(options);
    name_engines(server);
    for (unsigned i = 0; i < server->n_engines; i++)
        engine_start(&server->engines[i]);
    server->daemon = http_start(server);
    if (!server->daemon) {
        slotserver_stop(server);
        return refuse("cannot listen there");
    }
    server->port = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return server;
}

unsigned slotserver_port(const struct slotserver *server)
{
    return server->port;
}

void slotserver_stop(struct slotserver *server)
{
    set_stopping(server);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    for (unsigned i = 0; i < server->n_engines; i++)
        engine_join(&server->engines[i]);
    for (unsigned i = 0; i < server->n_engines; i++)
        engine_free(&server->engines[i]);
    pthread_cond_destroy(&server->results);
    pthread_mutex_destroy(&server->lock);
    free(server->names);
    free(server);
}

bool slotserver_in_flight(struct slotserver *server)
{
    pthread_mutex_lock(&server->lock);
    bool is = server->calls > 0;
    pthread_mutex_unlock(&server->lock);
    return is;
}

bool slotserver_terminate(struct slotserver *server)
{
    MHD_socket listening = MHD_quiesce_daemon(server->daemon);
    if (listening != MHD_INVALID_SOCKET)
        close(listening);
    pthread_mutex_lock(&server->lock);
    server->terminated = true;
    for (unsigned i = 0; i < server->n_engines; i++)
        pthread_cond_broadcast(&server->engines[i].work);
    pthread_cond_broadcast(&server->results);
    bool at_once = server->unheard == 0;
    pthread_mutex_unlock(&server->lock);
    return at_once;
}

/* Waits until that may have changed. */
bool slotserver_lingers(struct slotserver *server)
{
    pthread_mutex_lock(&server->lock);
    if (server->unheard)
        wait_until(&server->results, &server->lock, now_us() + SILENCE_US / 20);
    bool lingers = server->unheard > 0;
    pthread_mutex_unlock(&server->lock);
    return lingers;
}
