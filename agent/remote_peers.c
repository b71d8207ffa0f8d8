#define _GNU_SOURCE

#include "agent/remote_peers.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/host_clock.h"
#include "proto/gossip.h"

#define ASKED_MAX 64 /* at once */
#define LOOK_MS   20

struct fetching {
    struct lease_agent *agent;
    struct routes *routes;
    const char *provider; /* that is wanted, NULL: all */
    struct gossip_beat *beat;
    struct gossip_peer *peers;
    uint32_t count; /* asked in this round */
    struct ask asks[ASKED_MAX];
    char endpoints[ASKED_MAX][FLEET_ENDPOINT_SIZE];
    bool answered[ASKED_MAX];
};

/* ---- what is told ---------------------------------------------------------------------------- */

static struct route_peer *peer_at(struct routes *routes, const char *endpoint)
{
    for (uint32_t i = 0; i < routes->peer_count; i++)
        if (strcmp(routes->peers[i].endpoint, endpoint) == 0)
            return &routes->peers[i];
    if (routes->peer_count == ROUTES_PEERS_MAX)
        return NULL;
    struct route_peer *grown =
        realloc(routes->peers, (routes->peer_count + 1) * sizeof *routes->peers);
    if (!grown)
        return NULL;
    routes->peers = grown;
    struct route_peer *peer = &grown[routes->peer_count++];
    memset(peer, 0, sizeof *peer);
    snprintf(peer->endpoint, sizeof peer->endpoint, "%s", endpoint);
    return peer;
}

static void hex_of(const uint8_t *id, char hex[33])
{
    for (int i = 0; i < WIRE_ID_BYTES; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", id[i]);
}

static struct route *route_at(struct routes *routes, const char *provider)
{
    for (uint32_t i = 0; i < routes->route_count; i++)
        if (strcmp(routes->routes[i].provider, provider) == 0)
            return &routes->routes[i];
    if (routes->route_count == ROUTES_MAX)
        return NULL;
    struct route *grown =
        realloc(routes->routes, (routes->route_count + 1) * sizeof *routes->routes);
    if (!grown)
        return NULL;
    routes->routes = grown;
    struct route *route = &grown[routes->route_count++];
    memset(route, 0, sizeof *route);
    snprintf(route->provider, sizeof route->provider, "%s", provider);
    return route;
}

/* Of several owners the one with the smallest name is asked, as everybody does. */
static void take_offer(struct fetching *fetching, const struct gossip_offer *offer,
                       const char *endpoint, ns_t now)
{
    const char *owner = fetching->beat->sender.name;
    struct route *route = route_at(fetching->routes, offer->provider);
    if (!route)
        return;
    bool other = route->owner[0] && strcmp(route->owner, owner) != 0;
    route->conflicts += other;
    if (other && strcmp(route->owner, owner) < 0)
        return;
    snprintf(route->owner, sizeof route->owner, "%s", owner);
    snprintf(route->endpoint, sizeof route->endpoint, "%s", endpoint);
    snprintf(route->url, sizeof route->url, "%s", offer->url);
    route->epoch = offer->epoch;
    route->heard_ns = now;
}

static void take_beat(struct fetching *fetching, const struct message *reply, const char *endpoint,
                      ns_t now)
{
    struct gossip_beat *beat = fetching->beat;
    struct route_peer *peer = peer_at(fetching->routes, endpoint);
    if (gossip_beat_decode(reply->beat.at, reply->beat.size, beat) != WIRE_OK)
        return;
    if (peer) {
        snprintf(peer->name, sizeof peer->name, "%s", beat->sender.name);
        snprintf(peer->version, sizeof peer->version, "%s", beat->version);
        hex_of(beat->sender.id, peer->id);
        peer->heard_ns = now;
    }
    for (uint32_t i = 0; i < beat->offer_count; i++)
        take_offer(fetching, &beat->offers[i], endpoint, now);
}

static void take_peers(struct fetching *fetching, const struct message *reply)
{
    uint32_t count = 0;
    if (gossip_peers_decode(reply->peers.at, reply->peers.size, fetching->peers, WIRE_PEERS_MAX,
                            &count) != WIRE_OK)
        return;
    for (uint32_t i = 0; i < count; i++) {
        const struct gossip_peer *told = &fetching->peers[i];
        if (asker_check_endpoint(told->endpoint) < 0)
            continue;
        struct route_peer *peer = peer_at(fetching->routes, told->endpoint);
        if (peer && !peer->name[0])
            snprintf(peer->name, sizeof peer->name, "%s", told->name);
    }
}

/* ---- a round --------------------------------------------------------------------------------- */

static void add(struct fetching *fetching, const char *endpoint)
{
    if (fetching->count < ASKED_MAX)
        snprintf(fetching->endpoints[fetching->count++], FLEET_ENDPOINT_SIZE, "%s", endpoint);
}

static bool is_known(const struct fetching *fetching)
{
    const struct route *route =
        fetching->provider ? routes_find(fetching->routes, fetching->provider) : NULL;
    return route && route->endpoint[0];
}

static void send_all(struct fetching *fetching)
{
    struct message request;
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    for (uint32_t i = 0; i < fetching->count; i++) {
        message_request(&request, MESSAGE_FETCH, drawn_there);
        snprintf(request.name, sizeof request.name, "%s", fetching->agent->host);
        int error = ask_send(remote_asker(fetching->agent), fetching->endpoints[i], &request,
                             &fetching->asks[i]);
        fetching->answered[i] = error < 0;
    }
}

/* Those that have answered. How many have not. */
static uint32_t collect(struct fetching *fetching, struct pollfd *files)
{
    struct message reply;
    uint32_t silent = 0;
    for (uint32_t i = 0; i < fetching->count; i++) {
        if (fetching->answered[i])
            continue;
        int error = ask_receive(&fetching->asks[i], &reply, 0);
        if (error == LEASE_ETIMEOUT) {
            files[silent++] = (struct pollfd){.fd = ask_fd(&fetching->asks[i]), .events = POLLIN};
            continue;
        }
        fetching->answered[i] = true;
        if (error < 0 || !reply.ok)
            continue;
        take_beat(fetching, &reply, fetching->endpoints[i], host_now_ns());
        take_peers(fetching, &reply);
    }
    return silent;
}

static void round_of(struct fetching *fetching, ns_t deadline_ns)
{
    struct pollfd files[ASKED_MAX];
    memset(fetching->asks, 0, sizeof fetching->asks);
    send_all(fetching);
    for (;;) {
        uint32_t silent = collect(fetching, files);
        ns_t left = deadline_ns - host_now_ns();
        if (silent == 0 || left <= 0 || is_known(fetching))
            break;
        poll(files, silent, left < LOOK_MS * NS_PER_MS ? (int)(left / NS_PER_MS) + 1 : LOOK_MS);
    }
    for (uint32_t i = 0; i < fetching->count; i++)
        ask_free(&fetching->asks[i]);
}

/* ---- the call -------------------------------------------------------------------------------- */

static bool was_heard(const struct routes *routes)
{
    for (uint32_t i = 0; i < routes->peer_count; i++)
        if (routes->peers[i].heard_ns)
            return true;
    return false;
}

static void ask_peers(struct fetching *fetching, char (*peers)[FLEET_ENDPOINT_SIZE], uint32_t count,
                      ns_t deadline_ns)
{
    ns_t half_ns = host_now_ns() + (deadline_ns - host_now_ns()) / 2;
    for (uint32_t i = 0; i < count; i++)
        add(fetching, peers[i]);
    round_of(fetching, half_ns);
    if (is_known(fetching))
        return;
    fetching->count = 0;
    for (uint32_t i = 0; i < fetching->routes->peer_count; i++) {
        const struct route_peer *peer = &fetching->routes->peers[i];
        bool given = false;
        for (uint32_t k = 0; k < count && !given; k++)
            given = strcmp(peers[k], peer->endpoint) == 0;
        if (peer->heard_ns == 0 && !given)
            add(fetching, peer->endpoint);
    }
    round_of(fetching, deadline_ns);
}

struct routes *remote_ask_peers(struct lease_agent *agent, char (*peers)[FLEET_ENDPOINT_SIZE],
                                uint32_t count, const char *provider, ns_t deadline_ns)
{
    struct fetching *fetching = calloc(1, sizeof *fetching);
    struct routes *routes = calloc(1, sizeof *routes);
    if (fetching) {
        fetching->agent = agent;
        fetching->provider = provider;
        fetching->routes = routes;
        fetching->beat = malloc(sizeof *fetching->beat);
        fetching->peers = malloc(WIRE_PEERS_MAX * sizeof *fetching->peers);
        if (routes && fetching->beat && fetching->peers)
            ask_peers(fetching, peers, count, deadline_ns);
        free(fetching->beat);
        free(fetching->peers);
    }
    free(fetching);
    if (routes && !was_heard(routes))
        routes_free(&routes);
    return routes;
}
