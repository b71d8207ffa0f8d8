/* The paths that begin with /_ : counters for the test, and switches for it. */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <stdlib.h>
#include <string.h>

void stats_count(struct path_count *counts, const char *path)
{
    for (size_t i = 0; i < PATHS_MAX; i++) {
        struct path_count *count = &counts[i];
        if (count->n == 0)
            strncpy(count->path, i + 1 < PATHS_MAX ? path : "other", PATH_SIZE - 1);
        if (strncmp(count->path, path, PATH_SIZE - 1) == 0 || i + 1 == PATHS_MAX) {
            count->n++;
            return;
        }
    }
}

static json_t *counts_json(const struct path_count *counts)
{
    json_t *object = json_object();
    for (size_t i = 0; i < PATHS_MAX && counts[i].n; i++)
        json_object_set_new(object, counts[i].path, json_integer((json_int_t)counts[i].n));
    return object;
}

static void put(json_t *object, const char *key, long long value)
{
    json_object_set_new(object, key, json_integer(value));
}

json_t *stats_json(struct slotserver *server)
{
    const struct slotserver_stats *stats = &server->stats;
    json_t *all = json_object();
    unsigned deferred = 0;
    for (unsigned i = 0; i < server->n_engines; i++)
        deferred += server->engines[i].n_deferred;
    put(all, "in_slots", stats->in_slots);
    put(all, "max_in_slots", stats->max_in_slots);
    put(all, "deferred", deferred);
    put(all, "tasks", (long long)stats->tasks);
    put(all, "queued", (long long)stats->queued);
    put(all, "queue_wait_ms", stats->queue_wait_ms);
    put(all, "queue_wait_longest_ms", stats->queue_wait_longest_ms);
    put(all, "completed", (long long)stats->completed);
    put(all, "abandoned", (long long)stats->abandoned);
    put(all, "wakes", (long long)stats->wakes);
    put(all, "model_loads", (long long)stats->model_loads);
    put(all, "model_evictions", (long long)stats->model_evictions);
    put(all, "connections", stats->connections);
    put(all, "max_connections", stats->max_connections);
    put(all, "unserved", (long long)stats->unserved);
    json_object_set_new(all, "paths", counts_json(server->paths));
    json_object_set_new(all, "askers", counts_json(server->askers));
    return all;
}

char *slotserver_stats_json(struct slotserver *server)
{
    pthread_mutex_lock(&server->lock);
    json_t *all = stats_json(server);
    pthread_mutex_unlock(&server->lock);
    char *dumped = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return dumped;
}

void slotserver_stats(struct slotserver *server, struct slotserver_stats *stats)
{
    pthread_mutex_lock(&server->lock);
    *stats = server->stats;
    pthread_mutex_unlock(&server->lock);
}

unsigned long slotserver_asked(struct slotserver *server, const char *path)
{
    unsigned long n = 0;
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < PATHS_MAX && server->paths[i].n; i++) {
        if (strcmp(server->paths[i].path, path) == 0)
            n = server->paths[i].n;
    }
    pthread_mutex_unlock(&server->lock);
    return n;
}

/* What is true now stays: the most so far is again what there is. */
void slotserver_reset(struct slotserver *server)
{
    pthread_mutex_lock(&server->lock);
    struct slotserver_stats now = server->stats;
    server->stats = (struct slotserver_stats){
        .in_slots = now.in_slots,
        .max_in_slots = now.in_slots,
        .connections = now.connections,
        .max_connections = now.connections,
    };
    memset(server->paths, 0, sizeof(server->paths));
    memset(server->askers, 0, sizeof(server->askers));
    pthread_mutex_unlock(&server->lock);
}

bool slotserver_misbehave(struct slotserver *server, const char *how)
{
    enum misbehaviour misbehaviour;
    if (!misbehaviour_parse(how, &misbehaviour))
        return false;
    pthread_mutex_lock(&server->lock);
    server->misbehaviour = misbehaviour;
    pthread_mutex_unlock(&server->lock);
    return true;
}

static void set_blind(struct slotserver *server, const char *ms)
{
    pthread_mutex_lock(&server->lock);
    server->options.blind_ms = (unsigned)strtoul(ms, NULL, 10);
    pthread_mutex_unlock(&server->lock);
}

static void set_loading(struct slotserver *server, const char *ms)
{
    pthread_mutex_lock(&server->lock);
    server->loaded_at = now_us() + 1000 * (int64_t)strtoul(ms, NULL, 10);
    pthread_mutex_unlock(&server->lock);
}

static enum MHD_Result switch_page(struct request *request)
{
    const char *misbehaviour = argument(request, "misbehave");
    const char *blind = argument(request, "blind_ms");
    const char *loading = argument(request, "loading_ms");
    if (misbehaviour && !slotserver_misbehave(request->server, misbehaviour))
        return answer_error(request, MHD_HTTP_BAD_REQUEST, "control", "unknown misbehaviour");
    if (blind)
        set_blind(request->server, blind);
    if (loading)
        set_loading(request->server, loading);
    return answer_json(request, MHD_HTTP_OK, json_pack("{s:b}", "done", 1));
}

enum MHD_Result control_page(struct request *request)
{
    if (strcmp(request->path, "/_control") == 0)
        return switch_page(request);
    if (strcmp(request->path, "/_reset") == 0) {
        slotserver_reset(request->server);
        return answer_json(request, MHD_HTTP_OK, json_pack("{s:b}", "done", 1));
    }
    if (strcmp(request->path, "/_stats") != 0)
        return answer_error(request, MHD_HTTP_NOT_FOUND, "control", "no such control path");
    char *stats = slotserver_stats_json(request->server);
    enum MHD_Result result =
        answer_text(request, MHD_HTTP_OK, "application/json", stats, strlen(stats));
    free(stats);
    return result;
}
