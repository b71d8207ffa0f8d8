/* Looking: a snapshot of everything known. */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/asking.h"
#include "agent/effective.h"
#include "agent/group.h"
#include "agent/remote.h"
#include "broker/attribution.h"
#include "broker/host_clock.h"

/* ---- room that grows ------------------------------------------------------------------------- */

static void *grow(void *array, uint32_t count, size_t size)
{
    if (count % 64 != 0)
        return array;
    return realloc(array, (size_t)(count + 64) * size);
}

static struct lease_entry *add_lease(struct lease_fleet *fleet)
{
    void *room = grow(fleet->leases, fleet->lease_count, sizeof *fleet->leases);
    if (!room)
        return NULL;
    fleet->leases = room;
    struct lease_entry *entry = &fleet->leases[fleet->lease_count++];
    memset(entry, 0, sizeof *entry);
    return entry;
}

static struct lease_work *add_work(struct lease_fleet *fleet, const char *kind)
{
    void *room = grow(fleet->work, fleet->work_count, sizeof *fleet->work);
    if (!room)
        return NULL;
    fleet->work = room;
    struct lease_work *work = &fleet->work[fleet->work_count++];
    memset(work, 0, sizeof *work);
    snprintf(work->kind, sizeof work->kind, "%s", kind);
    work->slot = -1;
    return work;
}

static struct lease_peer *add_peer(struct lease_fleet *fleet)
{
    void *room = grow(fleet->peers, fleet->peer_count, sizeof *fleet->peers);
    if (!room)
        return NULL;
    fleet->peers = room;
    struct lease_peer *peer = &fleet->peers[fleet->peer_count++];
    memset(peer, 0, sizeof *peer);
    return peer;
}

/* ---- one provider ---------------------------------------------------------------------------- */

/* Whose book it is that is looked at. */
struct whose {
    const struct route *route; /* NULL: the fleet says nothing of it */
    bool away;                 /* another host's, and ours is a copy */
    bool nobody;               /* a copy whose owner nobody knows any more */
    enum lease_reach reach;    /* how far what it says is known */
};

static int64_t since_ms(ns_t then, ns_t now)
{
    return then == 0 ? -1 : now <= then ? 0 : (now - then) / NS_PER_MS;
}

/* A ghost is claimed only while readings tell what is at work. */
static ns_t idle_ns(const struct book *book, const struct record *record, ns_t now)
{
    bool told = admission_trusts(book, now) && reading_counts(&book->sight.reading);
    return told ? admission_idle_ns(book, record, now) : -1;
}

static int fill_lease(struct lease_fleet *fleet, const struct provider *provider,
                      const struct whose *whose, const struct record *record, ns_t now)
{
    struct lease_entry *entry = add_lease(fleet);
    if (!entry)
        return LEASE_ENOMEM;
    lease_id_format(provider->name, record->id, entry->id);
    snprintf(entry->state, sizeof entry->state, "%s",
             record_state_name((enum record_state)record->state));
    memcpy(entry->host, record->holder.host, sizeof entry->host);
    memcpy(entry->label, record->holder.label, sizeof entry->label);
    entry->pid = record->holder.pid;
    entry->units = record->units;
    entry->slot = record->slot;
    entry->age_ms = since_ms(record->acquired_ns, now);
    entry->dispatched_ms = since_ms(record->dispatched_ns, now);
    entry->left_ms = (record->deadline_ns - now) / NS_PER_MS;
    bool named = !whose->away || (record->flags & RECORD_NAMED);
    entry->token = named ? record->token : 0;
    entry->reach = !whose->away ? whose->reach : named ? LEASE_REACH_FLEET : provider->reach;
    ns_t idle = idle_ns(provider->book, record, now);
    entry->idle_ms = idle < 0 ? -1 : idle / NS_PER_MS;
    return 0;
}

static int fill_was(struct lease_fleet *fleet, const char *kind, const struct record *record,
                    uint32_t units, int64_t for_ms)
{
    struct lease_work *work = add_work(fleet, kind);
    if (!work)
        return LEASE_ENOMEM;
    work->units = units;
    work->slot = record->slot;
    work->for_ms = for_ms;
    work->was_pid = record->holder.pid;
    memcpy(work->was_host, record->holder.host, sizeof work->was_host);
    memcpy(work->was_label, record->holder.label, sizeof work->was_label);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct record *one = *(const struct record *const *)a;
    const struct record *other = *(const struct record *const *)b;
    return one->place < other->place ? -1 : one->place > other->place;
}

/* In the order of arrival at the owner, which all hosts know, whatever they heard first. */
static uint32_t sort_live(const struct book *book, const struct record *sorted[BOOK_CELLS])
{
    for (uint32_t i = 0; i < book->live_count; i++)
        sorted[i] = &book->records[book->live[i]];
    if (book->live_count > 1)
        qsort(sorted, book->live_count, sizeof sorted[0], by_place);
    return book->live_count;
}

/* `told`: what is at work is known. Whose lease has ended by our clock may hold on to it all the same, by
 * the word of an owner whom we do not hear. */
static int fill_records(struct lease_fleet *fleet, struct lease_view *view,
                        const struct provider *provider, const struct whose *whose, bool told,
                        ns_t now)
{
    const struct book *book = provider->book;
    const struct record *sorted[BOOK_CELLS];
    uint32_t count = sort_live(book, sorted);
    int error = 0;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        const struct record *record = sorted[i];
        ns_t idle = idle_ns(book, record, now);
        bool shown = record->state == RECORD_HELD || record->state == RECORD_DISPATCHED;
        if (shown)
            error = fill_lease(fleet, provider, whose, record, now);
        if (record->state == RECORD_ORPHAN && told && error == 0)
            error =
                fill_was(fleet, "orphan", record, record->units, since_ms(record->ended_ns, now));
        if (idle >= 0 && error == 0)
            error = fill_was(fleet, "ghost", record, record->units, idle / NS_PER_MS);
    }
    if (error == 0 && view->strangers > 0) {
        struct lease_work *work = add_work(fleet, "stranger");
        if (!work)
            return LEASE_ENOMEM;
        work->units = (uint32_t)view->strangers;
        int64_t since = since_ms(book->sight.strangers_since_ns, now);
        work->for_ms = since < 0 ? 0 : since;
    }
    return error;
}

static void fill_reading(struct lease_view *view, const struct provider *provider, ns_t now,
                         const struct tally *tally)
{
    const struct reading *reading = &provider->book->sight.reading;
    bool fresh = tally->trusted || !provider->book->settings.probed;
    bool fixed = !provider->book->settings.probed;
    view->slots_total = provider->book->sight.slots_last > 0 || provider->book->settings.slots > 0
                            ? tally->slots
                            : -1;
    view->in_flight = tally->counts ? reading->in_flight : -1;
    view->queued = fresh ? reading->queued : -1;
    view->age_ms = since_ms(reading->sent_ns ? reading->answered_ns : 0, now);
    view->free = view->in_flight < 0              ? -1
                 : view->in_flight > tally->slots ? 0
                                                  : tally->slots - view->in_flight;
    snprintf(view->signal, sizeof view->signal, "%s",
             signal_name((enum signal_kind)reading->signal));
    snprintf(view->engine, sizeof view->engine, "%s", fixed ? "static" : reading->engine);
    enum health health = fixed ? HEALTH_OK : fresh ? (enum health)reading->health : HEALTH_UNKNOWN;
    snprintf(view->health, sizeof view->health, "%s", health_name(health));
    snprintf(view->detail, sizeof view->detail, "%s", reading->detail);
    for (int32_t i = 0; i < reading->model_count && i < LEASE_MODELS_MAX; i++) {
        memcpy(view->models[i].name, reading->models[i].name, sizeof view->models[i].name);
        snprintf(view->models[i].state, sizeof view->models[i].state, "%s",
                 model_state_name((enum model_state)reading->models[i].state));
        view->model_count++;
    }
}

/* Who owns it, where that was heard, and how far what is shown is known. */
static void fill_owner(struct lease_view *view, const struct provider *provider,
                       const struct whose *whose, ns_t now)
{
    const struct route *route = whose->route;
    const char *url = provider_url(provider);
    const char *host = whose->nobody ? "" : provider->agent->host;
    snprintf(view->owner, sizeof view->owner, "%s", route ? route->owner : host);
    snprintf(view->url, sizeof view->url, "%s", route && route->url[0] ? route->url : url);
    snprintf(view->state, sizeof view->state, "%s",
             route           ? route_state_name(route, now)
             : whose->nobody ? "unowned"
                             : "live");
    if (whose->away)
        view->heard_ms = since_ms(route->heard_ns, now);
    view->reach = whose->reach;
    view->epoch = provider->book->head.epoch;
    view->version = whose->away                           ? provider->book->sight.heard_version
                    : provider->reach == LEASE_REACH_HOST ? host_table_version(&provider->host)
                                                          : provider->book->place_max;
}

/* What is known of an owner that is silent is old: what it had free is unknown now. The same where there
 * is none, unless we can read the server ourselves. True where it was forgotten. */
static bool forget_capacity(struct lease_view *view, bool readable)
{
    bool unowned = strcmp(view->state, "unowned") == 0 && !readable;
    if (strcmp(view->state, "stale") != 0 && strcmp(view->state, "lost") != 0 && !unowned)
        return false;
    view->in_flight = view->queued = view->free = view->available = -1;
    view->strangers = view->orphans = 0;
    snprintf(view->health, sizeof view->health, "%s", health_name(HEALTH_UNKNOWN));
    return true;
}

static int fill_view(struct lease_fleet *fleet, struct lease_view *view, struct provider *provider,
                     const struct whose *whose)
{
    const struct book *book = provider->book;
    ns_t now = host_now_ns();
    struct tally tally;
    admission_tally(book, now, &tally);
    memset(view, 0, sizeof *view);
    memcpy(view->provider, provider->name, sizeof view->provider);
    const struct provider_spec *spec = provider_spec(provider);
    snprintf(view->group, sizeof view->group, "%s", spec ? spec->group : "");
    fill_owner(view, provider, whose, now);
    fill_reading(view, provider, now, &tally);
    view->available = tally.available;
    view->leased = tally.held;
    view->dispatched = tally.dispatched;
    view->waiting = tally.waiting;
    view->strangers = tally.counts ? tally.strangers : -1;
    view->ghosts = tally.ghosts;
    view->orphans = tally.orphans;
    view->first_lease = fleet->lease_count;
    view->first_work = fleet->work_count;
    bool told = !forget_capacity(view, spec != NULL);
    int error = fill_records(fleet, view, provider, whose, told, now);
    view->lease_count = fleet->lease_count - view->first_lease;
    view->work_count = fleet->work_count - view->first_work;
    return error;
}

/* ---- which there are ------------------------------------------------------------------------- */

/* Books of providers that nobody declared to us are looked at too. */
static void discover_books(struct lease_agent *agent)
{
    if (!agent->has_directory)
        return;
    int fd = openat(agent->directory.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(directory))) {
        size_t length = strlen(entry->d_name), suffix = strlen(HOST_TABLE_SUFFIX);
        if (length <= suffix || length - suffix > NAME_CHARS_MAX ||
            strcmp(entry->d_name + length - suffix, HOST_TABLE_SUFFIX) != 0)
            continue;
        char name[NAME_SIZE] = "";
        memcpy(name, entry->d_name, length - suffix);
        provider_seen(agent, name);
    }
    closedir(directory);
}

/* Those that the speaker serves are known to its clients, also before there is a book. */
static void discover_declared(struct lease_agent *agent)
{
    struct effective *effective = agent->has_directory ? malloc(sizeof *effective) : NULL;
    if (effective && effective_read(agent->directory.path, effective) == 0) {
        for (uint32_t i = 0; i < effective->provider_count; i++)
            provider_served(agent, effective->providers[i].text);
    }
    free(effective);
}

/* What other hosts own is shown too. */
static void discover_routes(struct lease_agent *agent, const struct routes *routes)
{
    for (uint32_t i = 0; routes && i < routes->route_count; i++)
        if (routes->routes[i].owner[0])
            provider_seen(agent, routes->routes[i].provider);
}

/* ---- reading first --------------------------------------------------------------------------- */

#define SPEAKER_SLACK_MS 300 /* it reads in time by itself, a little late where it is busy */

/* A demand makes the speaker ask whatever keeps the server awake. */
static ns_t speaker_slack(const struct reading *last, ns_t now)
{
    bool rests = last->in_peace && !reading_rest_is_over(last, now);
    return (SPEAKER_SLACK_MS + (rests ? PROBE_IDLE_MS : 0)) * NS_PER_MS;
}

static bool is_due(struct provider *provider, bool has_speaker)
{
    ns_t now = host_now_ns();
    bool due = false;
    pthread_mutex_lock(&provider->mutex);
    if (provider->table && provider_spec(provider) && provider->book->settings.probed &&
        provider_look(provider) == 0) {
        const struct reading *last = &provider->book->sight.reading;
        ns_t slack = has_speaker ? speaker_slack(last, now) : 0;
        due = now >= attribution_next_due(provider->book, true) + slack ||
              (last->in_peace && reading_rest_is_over(last, now));
    }
    pthread_mutex_unlock(&provider->mutex);
    return due;
}

/* Where no speaker hears what owners publish, they are asked: as long as they answer quickly. */
static void fetch_states(struct lease_agent *agent, struct routes *routes, ns_t end_ns)
{
    int error;
    for (uint32_t i = 0; routes && i < routes->route_count; i++) {
        const struct route *route = &routes->routes[i];
        struct provider *provider =
            route->endpoint[0] ? provider_find(agent, route->provider, &error) : NULL;
        ns_t now = host_now_ns();
        ns_t most = now + remote_patience(agent, route, PROBE_BUDGET_MS, now) * NS_PER_MS;
        if (provider && !provider->owned && now < end_ns)
            remote_fetch_state(provider, route, most < end_ns ? most : end_ns);
    }
}

static void look_around(struct lease_agent *agent, bool has_speaker, ns_t end_ns)
{
    struct routes *routes = remote_routes(agent, true);
    discover_routes(agent, routes);
    if (!has_speaker)
        fetch_states(agent, routes, end_ns);
    routes_free(&routes);
}

int lease_read(lease_agent_t *agent, uint32_t timeout_ms)
{
    int error = agent_check(agent);
    if (error < 0)
        return error;
    discover_declared(agent);
    discover_books(agent);
    ns_t end_ns = host_now_ns() + (ns_t)(timeout_ms ? timeout_ms : TIMEOUT_MS) * NS_PER_MS;
    bool has_speaker = agent->speaker || reader_has_speaker(agent);
    look_around(agent, has_speaker, end_ns);
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && error == 0; i++) {
        struct provider *provider = agent->providers[i];
        struct route route;
        if (provider_open(provider) < 0 || remote_owner(provider, &route) ||
            !is_due(provider, has_speaker))
            continue;
        error = reader_look(provider, host_now_ns(), end_ns);
        if (error == LEASE_ETIMEOUT || error == LEASE_ELOCKED)
            error = 0; /* what is known is shown, with its age */
    }
    return error;
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct lease_view *)a)->provider,
                  ((const struct lease_view *)b)->provider);
}

/* A look at which what has died or run out is noticed, where nobody is at the book just now. */
static void sweep(struct provider *provider)
{
    provider_reap(provider, REAP_ALL, 0);
    pthread_mutex_lock(&provider->mutex);
    bool due = provider_look(provider) == 0 && broker_deadline(&provider->broker) <= host_now_ns();
    pthread_mutex_unlock(&provider->mutex);
    struct event tick = {.kind = EVENT_TICK};
    struct effects effects;
    if (due)
        provider_step(provider, &tick, &effects, 0);
}

static void tell_whose(const struct provider *provider, const struct routes *routes, bool joined,
                       struct whose *whose)
{
    whose->route = routes ? routes_find(routes, provider->name) : NULL;
    whose->away = whose->route && whose->route->endpoint[0] &&
                  (!provider->owned || whose->route->conflicts > 0);
    whose->nobody = !whose->route && !provider->owned && book_is_copy(provider->book);
    bool heard = whose->away && provider->book->sight.heard_version > 0;
    bool told = !whose->away && whose->route && whose->route->owner[0] && joined;
    whose->reach = heard || told ? LEASE_REACH_FLEET : provider->reach;
}

static int fill_peers(struct lease_fleet *fleet, const struct routes *routes)
{
    ns_t now = host_now_ns();
    for (uint32_t i = 0; routes && i < routes->peer_count; i++) {
        const struct route_peer *known = &routes->peers[i];
        struct lease_peer *peer = add_peer(fleet);
        if (!peer)
            return LEASE_ENOMEM;
        memcpy(peer->name, known->name, sizeof peer->name);
        memcpy(peer->id, known->id, sizeof peer->id);
        memcpy(peer->version, known->version, sizeof peer->version);
        memcpy(peer->endpoint, known->endpoint, sizeof peer->endpoint);
        snprintf(peer->state, sizeof peer->state, "%s", route_peer_state_name(known, now));
        peer->heard_ms = since_ms(known->heard_ns, now);
    }
    return 0;
}

static int fill_fleet(struct lease_agent *agent, const struct routes *routes,
                      struct lease_fleet *fleet)
{
    bool joined = routes && remote_is_joined(agent);
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    memcpy(fleet->view_from, agent->host, sizeof fleet->view_from);
    fleet->providers = calloc(count + 1, sizeof *fleet->providers);
    if (!fleet->providers)
        return LEASE_ENOMEM;
    int error = 0;
    for (uint32_t i = 0; i < count && error == 0; i++) {
        struct provider *provider = agent->providers[i];
        if (provider_open(provider) < 0)
            continue;
        sweep(provider);
        group_look(provider);
        pthread_mutex_lock(&provider->mutex);
        if (provider_look(provider) == 0)
            host_words_watch(provider->words, host_now_ns());
        struct whose whose;
        tell_whose(provider, routes, joined, &whose);
        error = fill_view(fleet, &fleet->providers[fleet->provider_count], provider, &whose);
        pthread_mutex_unlock(&provider->mutex);
        fleet->provider_count += error == 0;
    }
    qsort(fleet->providers, fleet->provider_count, sizeof *fleet->providers, by_name);
    return error < 0 ? error : fill_peers(fleet, routes);
}

void agent_discover(struct lease_agent *agent)
{
    discover_declared(agent);
    discover_books(agent);
}

int lease_fleet(lease_agent_t *agent, struct lease_fleet **fleet)
{
    int error = agent_check(agent);
    if (error < 0)
        return error;
    struct lease_fleet *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return LEASE_ENOMEM;
    agent_discover(agent);
    struct routes *routes = remote_routes(agent, false);
    discover_routes(agent, routes);
    error = fill_fleet(agent, routes, snapshot);
    routes_free(&routes);
    if (error < 0)
        lease_fleet_free(&snapshot);
    else
        *fleet = snapshot;
    return error;
}

void lease_fleet_free(struct lease_fleet **fleet)
{
    if (!fleet || !*fleet)
        return;
    free((*fleet)->providers);
    free((*fleet)->leases);
    free((*fleet)->work);
    free((*fleet)->peers);
    free(*fleet);
    *fleet = NULL;
}
