/* Any bytes as fleet.json: what is read is within its bounds, and written and read again the same. */
#define _GNU_SOURCE
#include "agent/routes.h"
#include "broker/error.h"
#include "broker/record.h"
#include "tests/fuzz/room.h"

static void must_be_in_bounds(const struct routes *routes)
{
    must(routes->peer_count <= ROUTES_PEERS_MAX && routes->route_count <= ROUTES_MAX);
    must(fuzz_is_line(routes->endpoint, sizeof routes->endpoint));
    must(fuzz_is_line(routes->publish, sizeof routes->publish));
    must(fuzz_is_line(routes->warning, sizeof routes->warning));
    for (uint32_t i = 0; i < routes->peer_count; i++) {
        const struct route_peer *peer = &routes->peers[i];
        must(fuzz_is_line(peer->name, sizeof peer->name) &&
             fuzz_is_line(peer->id, sizeof peer->id));
        must(fuzz_is_line(peer->version, sizeof peer->version));
        must(fuzz_is_line(peer->endpoint, sizeof peer->endpoint) && peer->heard_ns >= 0);
        must(peer->name[0] || peer->endpoint[0]);
        must(route_peer_state_name(peer, 1) && route_peer_state_name(peer, INT64_MAX));
    }
    for (uint32_t i = 0; i < routes->route_count; i++) {
        const struct route *route = &routes->routes[i];
        must(name_is_valid(route->provider) && route->heard_ns >= 0);
        must(fuzz_is_line(route->owner, sizeof route->owner));
        must(fuzz_is_line(route->endpoint, sizeof route->endpoint));
        must(fuzz_is_line(route->url, sizeof route->url));
        must(route->conflicts <= ROUTES_PEERS_MAX && routes_find(routes, route->provider) != NULL);
        must(route_state_name(route, 1) && route_state_name(route, INT64_MAX));
    }
}

static void must_be_the_same(const struct routes *a, const struct routes *b)
{
    must(a->peer_count == b->peer_count && a->route_count == b->route_count);
    must(strcmp(a->endpoint, b->endpoint) == 0 && strcmp(a->publish, b->publish) == 0);
    must(strcmp(a->warning, b->warning) == 0);
    must(memcmp(a->peers, b->peers, a->peer_count * sizeof *a->peers) == 0);
    must(memcmp(a->routes, b->routes, a->route_count * sizeof *a->routes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct routes *first = NULL, *second = NULL;
    room_put(ROUTES_FILE, bytes, size);
    int error = routes_read(room(), &first);
    if (error < 0) {
        must(error == LEASE_EDAMAGED && first == NULL);
        return 0;
    }
    must_be_in_bounds(first);
    must(routes_write(room(), first, 0600) == 0 && routes_read(room(), &second) == 0);
    must_be_the_same(first, second);
    routes_free(&first);
    routes_free(&second);
    return 0;
}
