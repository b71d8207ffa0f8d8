/* The places, the line before them, and the one model that runs. */
#define _GNU_SOURCE
#include "tests/lib/engineserver_internal.h"

void work_changed(struct engineserver *server)
{
    struct change *change = &server->changes[server->change_count++ % CHANGES_MAX];
    *change = (struct change){now_us(), server->stats.running, server->stats.waiting};
    if (server->stats.running > server->stats.max_running)
        server->stats.max_running = server->stats.running;
    if (server->stats.running + server->stats.waiting == 0)
        server->idle_since = now_us();
    pthread_cond_broadcast(&server->moved);
}

/* The last change that was no later; nothing before the first. */
struct change work_at(const struct engineserver *server, int64_t when)
{
    unsigned long oldest =
        server->change_count > CHANGES_MAX ? server->change_count - CHANGES_MAX : 0;
    for (unsigned long i = server->change_count; i-- > oldest;)
        if (server->changes[i % CHANGES_MAX].at <= when)
            return server->changes[i % CHANGES_MAX];
    return (struct change){0};
}

/* Waits a little for anything to move. False: no use to wait any longer. */
static bool wait_a_little(struct engineserver *server, int64_t until, int fd)
{
    int64_t next = now_us() + LOOK_US;
    wait_until(&server->moved, &server->lock, until < next ? until : next);
    return !server->stopping && !peer_gone(fd);
}

static void stop_model(struct engineserver *server)
{
    if (server->current >= 0)
        server->stats.stops++;
    server->current = -1;
}

void work_tidy(struct engineserver *server)
{
    int64_t ttl = (int64_t)server->options.ttl_s * 1000000;
    bool idle = server->stats.running + server->stats.waiting == 0 && !server->starting;
    if (ttl > 0 && idle && now_us() - server->idle_since >= ttl)
        stop_model(server);
}

/* Stops the one that runs, once it is idle, and starts this one. */
bool work_ensure_model(struct engineserver *server, int model, int fd)
{
    work_tidy(server);
    while (server->starting || (server->current != model && server->stats.running > 0))
        if (!wait_a_little(server, INT64_MAX, fd))
            return false;
    if (model < 0 || server->current == model)
        return true;
    stop_model(server);
    server->starting = true;
    server->current = model;
    server->stats.loads++;
    int64_t until = now_us() + (int64_t)server->options.load_ms * 1000;
    while (now_us() < until && !server->stopping)
        wait_until(&server->moved, &server->lock, until);
    server->starting = false;
    work_changed(server);
    return !server->stopping;
}

static bool can_begin(const struct engineserver *server, const struct job *job)
{
    return TAILQ_FIRST(&server->line) == job && server->stats.running < server->options.slots;
}

static bool take_place(struct engineserver *server, struct job *job, int fd)
{
    bool stays = true;
    TAILQ_INSERT_TAIL(&server->line, job, link);
    server->stats.tasks++;
    server->stats.waiting++;
    if (server->stats.running + server->stats.waiting > server->options.slots)
        server->stats.queued++;
    work_changed(server);
    while (stays && !can_begin(server, job))
        stays = wait_a_little(server, INT64_MAX, fd);
    stays = stays && work_ensure_model(server, job->model, fd);
    TAILQ_REMOVE(&server->line, job, link);
    server->stats.waiting--;
    server->stats.running += stays;
    work_changed(server);
    return stays;
}

bool work_do(struct engineserver *server, int model, long ms, int fd)
{
    struct job job = {.model = model};
    if (!take_place(server, &job, fd))
        return false;
    int64_t until = ms < 0 ? INT64_MAX : now_us() + (int64_t)ms * 1000;
    bool stays = true;
    while (stays && now_us() < until)
        stays = wait_a_little(server, until, fd);
    server->stats.running--;
    work_changed(server);
    return stays;
}
