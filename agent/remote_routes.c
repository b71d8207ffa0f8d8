/* Who owns what: fleet.json as the speaker of this host leaves it, and what given peers tell. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/effective.h"
#include "agent/remote.h"
#include "agent/remote_peers.h"
#include "broker/host_clock.h"
#include "broker/host_random.h"

#define LOOK_NS    NS_PER_SEC /* between two looks at the file, and two questions to given peers */
#define QUIET_NS   (5 * NS_PER_SEC) /* given peers of whom nobody answered are left alone for */
#define OWNERS_MAX 64               /* the one heard or missed longest ago makes room */
#define LENT_MAX   16               /* peers of a new speaker that are asked in its place */
#define NEW_NS     (3 * NS_PER_SEC) /* a speaker has heard its peers by then */

/* What we ourselves know of an owner, from asking it. */
struct owner {
    char endpoint[FLEET_ENDPOINT_SIZE];
    ns_t heard_ns, silent_ns; /* 0: never */
};

struct remote {
    _Atomic int64_t look_ns;
    _Atomic bool anything; /* a route is known */
    _Atomic bool is_new;   /* the speaker of this host: it may not have heard its peers yet */
    pthread_mutex_t mutex; /* guards what follows */
    struct routes *file;   /* NULL: none */
    struct timespec changed;
    ino_t inode;
    struct routes *told; /* by given peers */
    ns_t fetch_ns;       /* when they may be asked next */
    bool cut_short;      /* the last asking ended early, by the answer for its provider */
    _Atomic bool doubt;  /* an owner that they told of is silent */
    struct owner owners[OWNERS_MAX];

    pthread_mutex_t fetch_mutex; /* one thread asks the peers; taken before `mutex` */
    struct asker *asker;
    uint32_t peer_count;
    char (*peers)[FLEET_ENDPOINT_SIZE];
    uint64_t instance; /* of ids that this handle draws */
    _Atomic uint64_t counter;
};

/* Peers as they are written in a configuration. */
static int take_peers(struct remote *remote, const char *const *peers, size_t count, char *error,
                      size_t error_size)
{
    if (count == 0)
        return 0;
    struct fleet_config *config = calloc(1, sizeof *config);
    remote->peers = calloc(count, sizeof *remote->peers);
    int result = config && remote->peers ? 0 : LEASE_ENOMEM;
    for (size_t i = 0; i < count && result == 0; i++) {
        result = peers[i] ? fleet_config_add_peer(config, peers[i]) : LEASE_EINVAL;
        if (result == LEASE_EINVAL)
            snprintf(error, error_size, "peer '%.127s' is not tcp://HOST[:PORT][,name=PEER]",
                     peers[i] ? peers[i] : "");
    }
    for (uint32_t i = 0; result == 0 && i < config->peer_count; i++)
        memcpy(remote->peers[remote->peer_count++], config->peers[i].endpoint,
               sizeof remote->peers[0]);
    free(config);
    return result;
}

int remote_open(struct lease_agent *agent, const char *const *peers, size_t count, char *error,
                size_t error_size)
{
    struct remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return LEASE_ENOMEM;
    pthread_mutex_init(&remote->mutex, NULL);
    pthread_mutex_init(&remote->fetch_mutex, NULL);
    remote->instance = host_random_u64() | 1;
    agent->remote = remote;
    int result = take_peers(remote, peers, count, error, error_size);
    return result < 0 ? result : asker_open(&remote->asker);
}

void remote_close(struct lease_agent *agent)
{
    struct remote *remote = agent->remote;
    if (!remote)
        return;
    if (remote->asker)
        asker_close(&remote->asker);
    routes_free(&remote->file);
    routes_free(&remote->told);
    pthread_mutex_destroy(&remote->fetch_mutex);
    pthread_mutex_destroy(&remote->mutex);
    free(remote->peers);
    free(remote);
    agent->remote = NULL;
}

struct asker *remote_asker(struct lease_agent *agent)
{
    return agent->remote->asker;
}

void remote_draw_id(struct lease_agent *agent, struct lease_id *id)
{
    id->instance = agent->remote->instance;
    id->counter = 1 + atomic_fetch_add_explicit(&agent->remote->counter, 1, memory_order_relaxed);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void note_anything(struct remote *remote)
{
    atomic_store_explicit(&remote->anything,
                          (remote->file && remote->file->route_count > 0) ||
                              (remote->told && remote->told->route_count > 0),
                          memory_order_release);
}

/* By the word that it left when it began. The caller holds agent->directory_mutex. */
static bool has_new_speaker(const struct lease_agent *agent)
{
    struct stat status;
    struct timespec now;
    if (agent->speaker || agent->flags & LEASE_OPEN_DAEMON ||
        fstatat(agent->directory.fd, EFFECTIVE_FILE, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        clock_gettime(CLOCK_REALTIME, &now) < 0)
        return false;
    int64_t age_ns =
        (now.tv_sec - status.st_mtim.tv_sec) * NS_PER_SEC + (now.tv_nsec - status.st_mtim.tv_nsec);
    return age_ns > -NS_PER_SEC && age_ns < NEW_NS;
}

/* The caller holds remote->mutex. A file that cannot be read just now leaves what was known. */
static void read_file(struct lease_agent *agent, struct remote *remote)
{
    char path[sizeof agent->directory.path] = "";
    struct stat status;
    bool there = false;
    pthread_mutex_lock(&agent->directory_mutex);
    if (agent->has_directory) {
        there = fstatat(agent->directory.fd, ROUTES_FILE, &status, AT_SYMLINK_NOFOLLOW) == 0;
        memcpy(path, agent->directory.path, sizeof path);
    }
    atomic_store_explicit(&remote->is_new, agent->has_directory && has_new_speaker(agent),
                          memory_order_relaxed);
    pthread_mutex_unlock(&agent->directory_mutex);
    if (!there) {
        routes_free(&remote->file);
        return;
    }
    bool same = remote->file && status.st_ino == remote->inode &&
                status.st_mtim.tv_sec == remote->changed.tv_sec &&
                status.st_mtim.tv_nsec == remote->changed.tv_nsec;
    struct routes *fresh = NULL;
    if (same || routes_read(path, &fresh) < 0)
        return;
    routes_free(&remote->file);
    remote->file = fresh;
    remote->inode = status.st_ino;
    remote->changed = status.st_mtim;
}

static void look_at_file(struct lease_agent *agent, ns_t now)
{
    struct remote *remote = agent->remote;
    ns_t due = atomic_load_explicit(&remote->look_ns, memory_order_relaxed);
    if (now < due || !atomic_compare_exchange_strong(&remote->look_ns, &due, now + LOOK_NS))
        return;
    pthread_mutex_lock(&remote->mutex);
    read_file(agent, remote);
    note_anything(remote);
    pthread_mutex_unlock(&remote->mutex);
}

/* ---- given peers ----------------------------------------------------------------------------- */

/* Those of the speaker of this host, as long as it is new, where none were given. How many. */
static uint32_t lend_peers(struct lease_agent *agent, char (*peers)[FLEET_ENDPOINT_SIZE])
{
    if (!atomic_load_explicit(&agent->remote->is_new, memory_order_relaxed))
        return 0;
    struct effective *effective = calloc(1, sizeof *effective);
    char path[sizeof agent->directory.path];
    uint32_t count = 0;
    pthread_mutex_lock(&agent->directory_mutex);
    memcpy(path, agent->directory.path, sizeof path);
    pthread_mutex_unlock(&agent->directory_mutex);
    if (effective && effective_read(path, effective) == 0)
        for (; count < effective->fleet.peer_count && count < LENT_MAX; count++)
            memcpy(peers[count], effective->fleet.peers[count].endpoint, sizeof *peers);
    free(effective);
    return count;
}

static bool has_owner(const struct routes *routes, const char *provider)
{
    const struct route *route = provider ? routes_find(routes, provider) : NULL;
    return route && route->endpoint[0];
}

/* True where it was worth trying: not within LOOK_NS of the last time that all were asked. */
static bool fetch_from(struct lease_agent *agent, char (*peers)[FLEET_ENDPOINT_SIZE],
                       uint32_t count, const char *provider)
{
    struct remote *remote = agent->remote;
    pthread_mutex_lock(&remote->fetch_mutex);
    ns_t now = host_now_ns();
    bool due = now >= remote->fetch_ns ||
               (remote->cut_short && provider && !has_owner(remote->told, provider));
    struct routes *told = NULL;
    if (due)
        told = remote_ask_peers(agent, peers, count, provider, now + REMOTE_FETCH_MS * NS_PER_MS);
    pthread_mutex_lock(&remote->mutex);
    if (due)
        remote->fetch_ns = host_now_ns() + (told ? LOOK_NS : QUIET_NS);
    if (due)
        atomic_store_explicit(&remote->doubt, false, memory_order_relaxed);
    if (told) { /* nobody's answer takes nothing away */
        routes_free(&remote->told);
        remote->told = told;
        remote->cut_short = has_owner(told, provider);
        note_anything(remote);
    }
    pthread_mutex_unlock(&remote->mutex);
    pthread_mutex_unlock(&remote->fetch_mutex);
    return due;
}

static bool fetch(struct lease_agent *agent, const char *provider)
{
    struct remote *remote = agent->remote;
    char lent[LENT_MAX][FLEET_ENDPOINT_SIZE];
    if (remote->peer_count > 0)
        return fetch_from(agent, remote->peers, remote->peer_count, provider);
    uint32_t count = lend_peers(agent, lent);
    return count > 0 && fetch_from(agent, lent, count, provider);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static struct owner *find_owner(struct remote *remote, const char *endpoint)
{
    for (uint32_t i = 0; i < OWNERS_MAX; i++)
        if (strcmp(remote->owners[i].endpoint, endpoint) == 0)
            return &remote->owners[i];
    return NULL;
}

static ns_t last_ns(const struct owner *owner)
{
    return owner->heard_ns > owner->silent_ns ? owner->heard_ns : owner->silent_ns;
}

static struct owner *make_owner(struct remote *remote, const char *endpoint)
{
    struct owner *owner = find_owner(remote, endpoint);
    if (owner)
        return owner;
    owner = &remote->owners[0];
    for (uint32_t i = 1; i < OWNERS_MAX; i++)
        if (last_ns(&remote->owners[i]) < last_ns(owner))
            owner = &remote->owners[i];
    *owner = (struct owner){.heard_ns = 0};
    snprintf(owner->endpoint, sizeof owner->endpoint, "%s", endpoint);
    return owner;
}

static bool is_live(const struct route *route, ns_t now)
{
    return route->heard_ns != 0 && route->heard_ns <= now &&
           now - route->heard_ns < FLEET_SILENT_BEATS * FLEET_BEAT_MS * NS_PER_MS;
}

/* The file's word goes first, unless it names nobody, or nobody who lives while a peer does. */
static const struct route *choose(struct remote *remote, const char *provider, ns_t now)
{
    const struct route *file = remote->file ? routes_find(remote->file, provider) : NULL;
    const struct route *told = remote->told ? routes_find(remote->told, provider) : NULL;
    if (!told || (file && file->owner[0] && (is_live(file, now) || !is_live(told, now))))
        return file;
    return told;
}

static bool copy_route(struct remote *remote, const char *provider, bool file_only, ns_t now,
                       struct route *route)
{
    if (!atomic_load_explicit(&remote->anything, memory_order_acquire))
        return false;
    pthread_mutex_lock(&remote->mutex);
    const struct route *found = !file_only     ? choose(remote, provider, now)
                                : remote->file ? routes_find(remote->file, provider)
                                               : NULL;
    if (found) {
        *route = *found;
        const struct owner *owner = found->endpoint[0] ? find_owner(remote, found->endpoint) : NULL;
        if (owner && owner->heard_ns > route->heard_ns)
            route->heard_ns = owner->heard_ns;
    }
    pthread_mutex_unlock(&remote->mutex);
    return found != NULL;
}

bool remote_route(struct lease_agent *agent, const char *provider, bool ask_peers,
                  struct route *route)
{
    struct remote *remote = agent->remote;
    ns_t now = host_now_ns();
    look_at_file(agent, now);
    bool doubt = atomic_load_explicit(&remote->doubt, memory_order_relaxed);
    bool known = copy_route(remote, provider, false, now, route);
    bool early =
        known && !route->owner[0] && atomic_load_explicit(&remote->is_new, memory_order_relaxed);
    if (!ask_peers || (known && !doubt && !early) || !fetch(agent, provider))
        return known;
    return copy_route(remote, provider, false, host_now_ns(), route);
}

/* Peers that were given to a handle tell it nothing about what its own host owns; but the speaker of
 * this host knows when another owner goes before us. */
bool remote_owner(struct provider *provider, struct route *route)
{
    struct lease_agent *agent = provider->agent;
    if (provider->owned) {
        ns_t now = host_now_ns();
        look_at_file(agent, now);
        return copy_route(agent->remote, provider->name, true, now, route) && route->endpoint[0];
    }
    return remote_route(agent, provider->name, true, route) && route->endpoint[0];
}

/* ---- for views ------------------------------------------------------------------------------- */

static bool append(struct routes *to, const struct routes *from)
{
    struct route *routes =
        realloc(to->routes, (to->route_count + from->route_count + 1) * sizeof *routes);
    if (routes)
        to->routes = routes;
    struct route_peer *peers =
        realloc(to->peers, (to->peer_count + from->peer_count + 1) * sizeof *peers);
    if (peers)
        to->peers = peers;
    if (!routes || !peers)
        return false;
    for (uint32_t i = 0; i < from->route_count; i++)
        if (!routes_find(to, from->routes[i].provider))
            to->routes[to->route_count++] = from->routes[i];
    for (uint32_t i = 0; i < from->peer_count; i++) {
        bool known = false;
        for (uint32_t k = 0; k < to->peer_count && !known; k++)
            known = strcmp(to->peers[k].endpoint, from->peers[i].endpoint) == 0;
        if (!known)
            to->peers[to->peer_count++] = from->peers[i];
    }
    return true;
}

struct routes *remote_routes(struct lease_agent *agent, bool ask_peers)
{
    struct remote *remote = agent->remote;
    look_at_file(agent, host_now_ns());
    if (ask_peers)
        fetch(agent, NULL);
    pthread_mutex_lock(&remote->mutex);
    bool any = remote->file || remote->told;
    struct routes *all = any ? calloc(1, sizeof *all) : NULL;
    bool whole = all && (!remote->file || append(all, remote->file)) &&
                 (!remote->told || append(all, remote->told));
    pthread_mutex_unlock(&remote->mutex);
    if (all && !whole)
        routes_free(&all);
    return all;
}

bool remote_is_joined(struct lease_agent *agent)
{
    struct remote *remote = agent->remote;
    ns_t now = host_now_ns();
    look_at_file(agent, now);
    bool joined = false;
    pthread_mutex_lock(&remote->mutex);
    const struct routes *sources[] = {remote->file, remote->told};
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; sources[s] && i < sources[s]->peer_count && !joined; i++)
            joined = strcmp(route_peer_state_name(&sources[s]->peers[i], now), "live") == 0;
    pthread_mutex_unlock(&remote->mutex);
    return joined;
}

/* ---- what came of asking --------------------------------------------------------------------- */

void remote_heard(struct lease_agent *agent, const char *endpoint, ns_t now)
{
    struct remote *remote = agent->remote;
    pthread_mutex_lock(&remote->mutex);
    struct owner *owner = make_owner(remote, endpoint);
    owner->heard_ns = now;
    owner->silent_ns = 0;
    pthread_mutex_unlock(&remote->mutex);
}

void remote_silent(struct lease_agent *agent, const char *endpoint, ns_t now)
{
    struct remote *remote = agent->remote;
    pthread_mutex_lock(&remote->mutex);
    make_owner(remote, endpoint)->silent_ns = now;
    pthread_mutex_unlock(&remote->mutex);
    if (remote->peer_count > 0)
        atomic_store_explicit(&remote->doubt, true, memory_order_relaxed);
    atomic_store_explicit(&remote->look_ns, 0, memory_order_relaxed);
}

/* Holds until the file or the peers say otherwise. */
void remote_moved(struct lease_agent *agent, const char *provider, const char *owner,
                  const char *endpoint)
{
    struct remote *remote = agent->remote;
    pthread_mutex_lock(&remote->mutex);
    struct routes *sources[] = {remote->file, remote->told};
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; sources[s] && i < sources[s]->route_count; i++) {
            struct route *route = &sources[s]->routes[i];
            if (strcmp(route->provider, provider) != 0)
                continue;
            snprintf(route->owner, sizeof route->owner, "%s", owner);
            snprintf(route->endpoint, sizeof route->endpoint, "%s", endpoint);
        }
    pthread_mutex_unlock(&remote->mutex);
}

int remote_doubt(struct lease_agent *agent, const struct route *route, ns_t now)
{
    struct remote *remote = agent->remote;
    pthread_mutex_lock(&remote->mutex);
    const struct owner *owner = find_owner(remote, route->endpoint);
    bool silent = owner && owner->silent_ns && now - owner->silent_ns < REMOTE_SILENT_NS;
    pthread_mutex_unlock(&remote->mutex);
    return silent ? 2 : is_live(route, now) ? 0 : 1;
}

int64_t remote_patience(struct lease_agent *agent, const struct route *route, int64_t most_ms,
                        ns_t now)
{
    int doubt = remote_doubt(agent, route, now);
    int64_t ms = doubt == 2 ? REMOTE_SHORT_MS : doubt == 1 ? REMOTE_STALE_MS : most_ms;
    return ms < most_ms ? ms : most_ms;
}
