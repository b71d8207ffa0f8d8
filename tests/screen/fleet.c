#define _GNU_SOURCE
#include "tests/screen/fleet.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 4096

struct lease_fleet *fleet_new(void)
{
    struct lease_fleet *fleet = calloc(1, sizeof *fleet);
    assert(fleet);
    fleet->providers = calloc(ROOM / 8, sizeof *fleet->providers);
    fleet->leases = calloc(ROOM, sizeof *fleet->leases);
    fleet->work = calloc(ROOM, sizeof *fleet->work);
    fleet->peers = calloc(ROOM / 8, sizeof *fleet->peers);
    assert(fleet->providers && fleet->leases && fleet->work && fleet->peers);
    strcpy(fleet->view_from, "here");
    return fleet;
}

struct lease_view *fleet_provider(struct lease_fleet *fleet, const char *name, int64_t slots,
                                  int64_t in_flight)
{
    assert(fleet->provider_count < ROOM / 8);
    struct lease_view *view = &fleet->providers[fleet->provider_count++];
    snprintf(view->provider, sizeof view->provider, "%s", name);
    strcpy(view->owner, "here");
    strcpy(view->state, "live");
    strcpy(view->signal, "exact");
    strcpy(view->engine, "llama.cpp");
    strcpy(view->health, "ok");
    strcpy(view->url, "http://127.0.0.1:8080");
    view->reach = LEASE_REACH_HOST;
    view->epoch = 1796000000;
    view->slots_total = slots;
    view->in_flight = in_flight;
    view->queued = -1;
    view->age_ms = 100;
    view->first_lease = fleet->lease_count;
    view->first_work = fleet->work_count;
    return view;
}

struct lease_peer *fleet_peer(struct lease_fleet *fleet, const char *name, const char *state,
                              int64_t heard_ms)
{
    assert(fleet->peer_count < ROOM / 8);
    struct lease_peer *peer = &fleet->peers[fleet->peer_count++];
    snprintf(peer->name, sizeof peer->name, "%s", name);
    snprintf(peer->state, sizeof peer->state, "%s", state);
    strcpy(peer->endpoint, "tcp://192.0.2.1:5771");
    strcpy(peer->version, "0.1.0");
    peer->heard_ms = heard_ms;
    return peer;
}

static struct lease_view *last(struct lease_fleet *fleet)
{
    return &fleet->providers[fleet->provider_count - 1];
}

struct lease_entry *fleet_lease(struct lease_fleet *fleet, const char *state, const char *label,
                                int64_t left_ms)
{
    assert(fleet->lease_count < ROOM);
    struct lease_entry *entry = &fleet->leases[fleet->lease_count++];
    bool dispatched = strcmp(state, "dispatched") == 0;
    last(fleet)->lease_count++;
    snprintf(entry->id, sizeof entry->id, "%.60s:%026u", last(fleet)->provider, fleet->lease_count);
    snprintf(entry->state, sizeof entry->state, "%s", state);
    snprintf(entry->label, sizeof entry->label, "%s", label);
    strcpy(entry->host, "ws-11");
    entry->pid = 4000 + fleet->lease_count;
    entry->units = 1;
    entry->slot = -1;
    entry->age_ms = 22000;
    entry->dispatched_ms = dispatched ? 20000 : -1;
    entry->left_ms = left_ms;
    entry->idle_ms = -1;
    entry->reach = LEASE_REACH_HOST;
    return entry;
}

struct lease_work *fleet_work(struct lease_fleet *fleet, const char *kind, uint32_t units)
{
    assert(fleet->work_count < ROOM);
    struct lease_work *work = &fleet->work[fleet->work_count++];
    last(fleet)->work_count++;
    snprintf(work->kind, sizeof work->kind, "%s", kind);
    work->units = units;
    work->slot = -1;
    work->for_ms = 131000;
    return work;
}

static void settle(const struct lease_fleet *fleet, struct lease_view *view)
{
    int64_t busy = 0;
    view->leased = view->dispatched = view->strangers = view->orphans = view->ghosts = 0;
    for (uint32_t i = 0; i < view->lease_count; i++) {
        const struct lease_entry *entry = &fleet->leases[view->first_lease + i];
        bool held = strcmp(entry->state, "held") == 0;
        *(held ? &view->leased : &view->dispatched) += entry->units;
        view->ghosts += entry->idle_ms >= 0 ? entry->units : 0;
    }
    for (uint32_t i = 0; i < view->work_count; i++) {
        const struct lease_work *work = &fleet->work[view->first_work + i];
        bool stranger = strcmp(work->kind, "stranger") == 0;
        *(stranger ? &view->strangers : &view->orphans) += work->units;
    }
    busy = view->dispatched + view->strangers + view->orphans;
    view->free = view->in_flight < 0 ? -1 : view->slots_total - view->in_flight;
    view->available = strcmp(view->health, "ok") != 0 ? 0 : view->slots_total - busy - view->leased;
    if (view->available < 0)
        view->available = 0;
    if (view->in_flight < 0 && strcmp(view->engine, "static") != 0)
        view->available = -1;
}

void fleet_settle(struct lease_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        settle(fleet, &fleet->providers[i]);
}

/* ---- the demonstration ------------------------------------------------------------------ */

static void add_other_hosts(struct lease_fleet *fleet)
{
    struct lease_view *view = fleet_provider(fleet, "far", 2, 1);
    strcpy(view->owner, "gpu-04");
    view->reach = LEASE_REACH_FLEET;
    fleet_lease(fleet, "dispatched", "carol/sweep-22", 25000);
    view = fleet_provider(fleet, "far-lost", 4, 2);
    strcpy(view->owner, "gpu-05");
    strcpy(view->state, "lost");
    view->heard_ms = 47000;
    view->age_ms = 47200;
    fleet_lease(fleet, "dispatched", "alice/train-7", 9000);
    fleet_lease(fleet, "held", "ci@build-2", -20000);
    view = fleet_provider(fleet, "far-stale", 1, 0);
    strcpy(view->owner, "gpu-06");
    strcpy(view->state, "stale");
    view->heard_ms = 4000;
    view->age_ms = 4100;
    view = fleet_provider(fleet, "two-owners", 1, 0);
    strcpy(view->owner, "gpu-07");
    strcpy(view->state, "conflict");
    view = fleet_provider(fleet, "unowned", 1, -1);
    view->owner[0] = '\0';
    strcpy(view->state, "unowned");
    view->age_ms = -1;
    strcpy(view->signal, "none");
    fleet_lease(fleet, "held", "dave/eval", 8000);
}

struct lease_fleet *fleet_demo(void)
{
    struct lease_fleet *fleet = fleet_new();
    struct lease_view *view = fleet_provider(fleet, "down", 2, -1);
    strcpy(view->health, "down");
    strcpy(view->detail, "refused, or not reached");
    add_other_hosts(fleet);
    fleet_provider(fleet, "free", 4, 0);
    fleet_provider(fleet, "m5", 4, 2);
    fleet_lease(fleet, "held", "ci@build-2", 4300);
    fleet_lease(fleet, "dispatched", "alice/train-7", 28000)->slot = 2;
    fleet_work(fleet, "stranger", 1);
    fleet_provider(fleet, "odd", 3, 1);
    fleet_lease(fleet, "dispatched", "nightly", 20000)->idle_ms = 180000;
    struct lease_work *work = fleet_work(fleet, "orphan", 1);
    strcpy(work->was_host, "here");
    strcpy(work->was_label, "crashed");
    work->was_pid = 31337;
    view = fleet_provider(fleet, "tally", 2, -1);
    strcpy(view->engine, "static");
    strcpy(view->signal, "none");
    fleet_lease(fleet, "held", "someone", 9500);
    fleet_settle(fleet);
    return fleet;
}

struct lease_fleet *fleet_large(uint32_t providers, uint32_t leases)
{
    struct lease_fleet *fleet = fleet_new();
    for (uint32_t i = 0; i < providers; i++) {
        char name[LEASE_NAME_SIZE], label[LEASE_LABEL_SIZE];
        snprintf(name, sizeof name, "gpu-%03u", i);
        fleet_provider(fleet, name, 8, leases / 2);
        for (uint32_t k = 0; k < leases; k++) {
            snprintf(label, sizeof label, "user-%u/job-%u", i % 17, k);
            fleet_lease(fleet, k % 2 ? "held" : "dispatched", label, 10000 + 100 * k);
        }
    }
    fleet_settle(fleet);
    return fleet;
}

/* ---- chance ----------------------------------------------------------------------------- */

uint64_t fleet_draw(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t value = (*seed ^ *seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static int64_t between(uint64_t *seed, int64_t least, int64_t most)
{
    return least + (int64_t)(fleet_draw(seed) % (uint64_t)(most - least + 1));
}

static const char *any_name(uint64_t *seed)
{
    static const char *const names[] = {
        "z4",
        "m5",
        "gpu-01",
        "",
        "\033[2J\033]0;gone\007",
        "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",
        "a-name-of-63-characters-that-has-the-same-beginning-as-others-1",
        "a-name-of-63-characters-that-has-the-same-beginning-as-others-2",
        "bad \xff\xfe\xc3 utf-8",
        "\xe2\x80\xae"
        "desrever",
        "e\xcc\x81",
        "\r\n\t",
        "\xc2\x9b"
        "31m"};
    return names[fleet_draw(seed) % (sizeof names / sizeof names[0])];
}

static void add_random(struct lease_fleet *fleet, uint64_t *seed)
{
    static const char *const states[] = {"live", "live",    "live",    "stale",
                                         "lost", "unowned", "conflict"};
    static const char *const healths[] = {"ok", "ok", "ok", "busy", "loading", "down", "unknown"};
    static const char *const kinds[] = {"stranger", "orphan", "ghost"};
    struct lease_view *view = fleet_provider(fleet, any_name(seed), between(seed, -1, 12), -1);
    snprintf(view->owner, sizeof view->owner, "%s", between(seed, 0, 2) ? "here" : any_name(seed));
    strcpy(view->state, states[between(seed, 0, 6)]);
    strcpy(view->health, healths[between(seed, 0, 6)]);
    strcpy(view->signal, between(seed, 0, 3) ? "exact" : "none");
    view->in_flight = between(seed, -1, 14);
    view->age_ms = between(seed, -1, 100000000);
    view->heard_ms = between(seed, 0, 100000);
    for (int64_t i = between(seed, 0, 4); i > 0; i--) {
        struct lease_entry *entry = fleet_lease(fleet, between(seed, 0, 1) ? "held" : "dispatched",
                                                any_name(seed), between(seed, -9000, 90000));
        entry->units = (uint32_t)between(seed, 1, 3);
        entry->slot = (int32_t)between(seed, -1, 20);
        entry->idle_ms = between(seed, -1, 0) * 1000;
        snprintf(entry->host, sizeof entry->host, "%s", any_name(seed));
    }
    for (int64_t i = between(seed, 0, 2); i > 0; i--)
        fleet_work(fleet, kinds[between(seed, 0, 2)], (uint32_t)between(seed, 1, 4));
    settle(fleet, view);
    if (between(seed, 0, 3) == 0)
        view->available = between(seed, -1, 12);
    view->waiting = between(seed, 0, 3);
}

static void add_random_peers(struct lease_fleet *fleet, uint64_t *seed)
{
    static const char *const states[] = {"live", "live", "silent", "lost"};
    for (int64_t i = between(seed, 0, 1) * between(seed, 0, 5); i > 0; i--)
        fleet_peer(fleet, any_name(seed), states[between(seed, 0, 3)], between(seed, -1, 100000));
}

struct lease_fleet *fleet_random(uint64_t *seed, uint32_t providers_max)
{
    struct lease_fleet *fleet = fleet_new();
    for (int64_t i = between(seed, 0, providers_max); i > 0; i--)
        add_random(fleet, seed);
    add_random_peers(fleet, seed);
    return fleet;
}

void fleet_show(struct top_model *model, struct lease_fleet *fleet, int64_t now_ns, bool beats)
{
    struct top_snapshot snapshot = {.fleet = fleet,
                                    .taken_ns = now_ns,
                                    .beats = beats,
                                    .silent_ms = beats ? 300 : 3000,
                                    .agent_pid = 77};
    bool taken = top_model_take(model, &snapshot);
    assert(taken);
    (void)taken;
}
