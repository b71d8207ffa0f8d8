/* fleet.json: what the processes of this host are told of the fleet. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define WRITE_NS  NS_PER_SEC        /* between two times, for when peers were heard */
#define CHANGE_NS (250 * NS_PER_MS) /* where something else is news; later where it is long */
#define EACH_NS   (NS_PER_MS * 5 / 2)
#define TWIN_NS   (10 * NS_PER_SEC)
#define STAYS_NS  (10 * NS_PER_SEC)

static void add_peer(struct routes *routes, const struct fleet_peer *known)
{
    struct route_peer *peer = &routes->peers[routes->peer_count++];
    static const char digits[] = "0123456789abcdef";
    static const uint8_t none[16];
    snprintf(peer->name, sizeof peer->name, "%s", known->name);
    snprintf(peer->version, sizeof peer->version, "%s", known->version);
    snprintf(peer->endpoint, sizeof peer->endpoint, "%s", known->endpoint);
    for (int i = 0; i < 16 && memcmp(known->id, none, sizeof none) != 0; i++) {
        peer->id[2 * i] = digits[known->id[i] >> 4];
        peer->id[2 * i + 1] = digits[known->id[i] & 15];
    }
    peer->heard_ns = known->heard_ns;
    peer->same_name = known->same_name;
}

static void add_own(struct room *room, struct routes *routes, const struct voice *voice, ns_t now)
{
    struct route *route = &routes->routes[routes->route_count++];
    const struct provider *provider = voice->provider;
    memcpy(route->provider, provider->name, sizeof route->provider);
    snprintf(route->owner, sizeof route->owner, "%s", room->speaker->agent->host);
    snprintf(route->url, sizeof route->url, "%s", provider_url(provider));
    route->epoch = voice->issued;
    route->conflicts = voice->conflicts;
    route->heard_ns = now;
}

/* Of another host's, or of nobody's. */
static void add_other(struct room *room, struct routes *routes, const char *provider, bool owned,
                      ns_t now)
{
    struct route *route = &routes->routes[routes->route_count++];
    uint32_t owner = fleet_owner(room->fleet, provider, owned, now, &route->conflicts);
    snprintf(route->provider, sizeof route->provider, "%s", provider);
    if (owner >= FLEET_PEERS_MAX)
        return;
    const struct fleet_peer *peer = &room->fleet->peers[owner];
    const struct fleet_offer *offer = fleet_offer_of(room->fleet, owner, provider);
    snprintf(route->owner, sizeof route->owner, "%s", peer->name);
    snprintf(route->endpoint, sizeof route->endpoint, "%s", peer->endpoint);
    snprintf(route->url, sizeof route->url, "%s", offer ? offer->url : "");
    route->epoch = offer ? offer->epoch : 0;
    route->heard_ns = peer->heard_ns;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_offers(struct room *room, struct routes *routes, ns_t now)
{
    const char **names = malloc((FLEET_OFFERS_MAX + 1) * sizeof *names);
    uint32_t count = 0;
    for (uint32_t i = 0; names && i < room->fleet->offer_count; i++)
        if (room->fleet->offers[i].peer != FLEET_NOBODY)
            names[count++] = room->fleet->offers[i].provider;
    if (count > 0)
        qsort(names, count, sizeof *names, by_name);
    for (uint32_t i = 0; i < count && routes->route_count < ROUTES_MAX; i++)
        if ((i == 0 || strcmp(names[i], names[i - 1]) != 0) && !room_voice(room, names[i]))
            add_other(room, routes, names[i], false, now);
    free(names);
}

static struct route *find(struct routes *routes, const char *provider)
{
    for (uint32_t i = 0; i < routes->route_count; i++)
        if (strcmp(routes->routes[i].provider, provider) == 0)
            return &routes->routes[i];
    return NULL;
}

/* Who takes over has not heard of anybody yet; owners are asked all the same, as before. */
static void add_remembered(struct room *room, struct routes *routes, ns_t now)
{
    for (uint32_t i = 0; room->before && i < room->before->route_count; i++) {
        const struct route *before = &room->before->routes[i];
        struct route *route = find(routes, before->provider);
        if (!before->endpoint[0] || before->heard_ns > now || now - before->heard_ns > STAYS_NS ||
            (route && route->owner[0]))
            continue;
        if (!route && routes->route_count < ROUTES_MAX)
            route = &routes->routes[routes->route_count++];
        if (route)
            *route = *before;
    }
}

static void fill(struct room *room, struct routes *routes, ns_t now)
{
    const char *publish = mesh_endpoint(room->mesh);
    snprintf(routes->endpoint, sizeof routes->endpoint, "%s", room->endpoint);
    snprintf(routes->publish, sizeof routes->publish, "%s", publish);
    memcpy(routes->warning, room->trouble, sizeof routes->warning);
    if (room->fleet->twin_ns && now - room->fleet->twin_ns < TWIN_NS)
        snprintf(routes->warning, sizeof routes->warning,
                 "another agent has the id of this one, remove " EFFECTIVE_FILE
                 " of one of them and restart it");
    for (uint32_t i = 0; i < room->fleet->peer_count; i++) {
        const struct fleet_peer *known = &room->fleet->peers[i];
        bool is_self = room->contacts[i].is_self && known->heard_ns == 0;
        if (known->in_use && !is_self)
            add_peer(routes, known);
    }
    for (uint32_t i = 0; i < room->voice_count; i++) {
        const struct voice *voice = &room->voices[i];
        if (voice->ours)
            add_own(room, routes, voice, now);
        else if (voice->owner != FLEET_NOBODY || provider_spec(voice->provider))
            add_other(room, routes, voice->provider->name, voice->provider->owned, now);
    }
    add_offers(room, routes, now);
    add_remembered(room, routes, now);
}

ns_t room_routes_deadline(const struct room *room)
{
    ns_t change = CHANGE_NS + (ns_t)room->fleet->peer_count * EACH_NS;
    return room->written_ns + (room->routes_changed && change < WRITE_NS ? change : WRITE_NS);
}

void room_write_routes(struct room *room, ns_t now)
{
    const struct host_dir *directory = &room->speaker->agent->directory;
    if (now < room_routes_deadline(room))
        return;
    struct routes *routes = calloc(1, sizeof *routes);
    if (!routes)
        return;
    routes->peers = calloc(FLEET_PEERS_MAX, sizeof *routes->peers);
    routes->routes = calloc(ROUTES_MAX + KNOWN_MAX, sizeof *routes->routes);
    routes->written_ns = now;
    if (routes->peers && routes->routes) {
        fill(room, routes, now);
        if (room->routes_changed || routes->peer_count > 0)
            routes_write(directory->path, routes, directory->file_mode);
        room->routes_changed = false;
        room->written_ns = now;
    }
    routes_free(&routes);
}
