#define _GNU_SOURCE

#include "agent/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/json_file.h"
#include "broker/error.h"

#define FILE_BYTES_MAX (4u << 20)
#define LOST_NS        (60 * NS_PER_SEC)
#define TOLD_NS        (2 * NS_PER_SEC) /* a file that is not older is of a speaker that lives */
#define SILENT_NS      (INT64_C(1) * FLEET_SILENT_BEATS * FLEET_BEAT_MS * NS_PER_MS)

/* ---- reading --------------------------------------------------------------------------------- */

static void copy_string(json_t *object, const char *key, char *to, size_t size)
{
    const char *value = json_string_value(json_object_get(object, key));
    text_copy(to, size, value ? value : "");
}

static int64_t number(json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? value : 0;
}

static bool read_peer(json_t *object, struct route_peer *peer)
{
    if (!json_is_object(object))
        return false;
    memset(peer, 0, sizeof *peer);
    copy_string(object, "name", peer->name, sizeof peer->name);
    copy_string(object, "id", peer->id, sizeof peer->id);
    copy_string(object, "version", peer->version, sizeof peer->version);
    copy_string(object, "endpoint", peer->endpoint, sizeof peer->endpoint);
    peer->heard_ns = number(object, "heard_ns");
    peer->same_name = json_is_true(json_object_get(object, "same_name"));
    return peer->name[0] || peer->endpoint[0];
}

static bool read_route(json_t *object, struct route *route)
{
    if (!json_is_object(object))
        return false;
    memset(route, 0, sizeof *route);
    copy_string(object, "provider", route->provider, sizeof route->provider);
    copy_string(object, "owner", route->owner, sizeof route->owner);
    copy_string(object, "endpoint", route->endpoint, sizeof route->endpoint);
    copy_string(object, "url", route->url, sizeof route->url);
    route->epoch = (uint64_t)number(object, "epoch");
    int64_t conflicts = number(object, "conflicts");
    route->conflicts = conflicts < FLEET_PEERS_MAX ? (uint32_t)conflicts : FLEET_PEERS_MAX;
    route->heard_ns = number(object, "heard_ns");
    return name_is_valid(route->provider);
}

static int read_object(json_t *object, struct routes *routes)
{
    json_t *peers = json_object_get(object, "peers"), *list = json_object_get(object, "routes");
    json_t *entry;
    size_t i;
    routes->peers = calloc(json_array_size(peers) + 1, sizeof *routes->peers);
    routes->routes = calloc(json_array_size(list) + 1, sizeof *routes->routes);
    if (!routes->peers || !routes->routes)
        return LEASE_ENOMEM;
    copy_string(object, "endpoint", routes->endpoint, sizeof routes->endpoint);
    copy_string(object, "publish", routes->publish, sizeof routes->publish);
    copy_string(object, "warning", routes->warning, sizeof routes->warning);
    routes->written_ns = number(object, "written_ns");
    json_array_foreach(peers, i, entry)
    {
        bool room = routes->peer_count < ROUTES_PEERS_MAX;
        routes->peer_count += room && read_peer(entry, &routes->peers[routes->peer_count]);
    }
    json_array_foreach(list, i, entry)
    {
        bool room = routes->route_count < ROUTES_MAX;
        routes->route_count += room && read_route(entry, &routes->routes[routes->route_count]);
    }
    for (i = 0; i < routes->peer_count; i++)
        routes->peers[i].told_ns = routes->written_ns;
    for (i = 0; i < routes->route_count; i++)
        routes->routes[i].told_ns = routes->written_ns;
    return 0;
}

int routes_read(const char *directory, struct routes **routes)
{
    json_t *object = NULL;
    int error = json_file_read(directory, ROUTES_FILE, FILE_BYTES_MAX, &object);
    struct routes *fresh = error == 0 ? calloc(1, sizeof *fresh) : NULL;
    if (error == 0)
        error = fresh ? read_object(object, fresh) : LEASE_ENOMEM;
    json_decref(object);
    if (error < 0) {
        routes_free(&fresh);
        return error;
    }
    routes_free(routes);
    *routes = fresh;
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *peer_object(const struct route_peer *peer)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:b}", "name", peer->name, "id", peer->id,
                     "version", peer->version, "endpoint", peer->endpoint, "heard_ns",
                     (json_int_t)peer->heard_ns, "same_name", peer->same_name);
}

static json_t *route_object(const struct route *route)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "provider", route->provider, "owner",
                     route->owner, "endpoint", route->endpoint, "url", route->url, "epoch",
                     (json_int_t)route->epoch, "conflicts", (json_int_t)route->conflicts,
                     "heard_ns", (json_int_t)route->heard_ns);
}

static json_t *to_object(const struct routes *routes)
{
    json_t *peers = json_array(), *list = json_array();
    for (uint32_t i = 0; peers && i < routes->peer_count; i++)
        json_array_append_new(peers, peer_object(&routes->peers[i]));
    for (uint32_t i = 0; list && i < routes->route_count; i++)
        json_array_append_new(list, route_object(&routes->routes[i]));
    return json_pack("{s:i, s:I, s:s, s:s, s:s, s:o, s:o}", "schema", 1, "written_ns",
                     (json_int_t)routes->written_ns, "endpoint", routes->endpoint, "publish",
                     routes->publish, "warning", routes->warning, "peers", peers, "routes", list);
}

int routes_write(const char *directory, const struct routes *routes, unsigned mode)
{
    json_t *object = to_object(routes);
    if (!object)
        return LEASE_ENOMEM;
    int error = json_file_write(directory, ROUTES_FILE, object, JSON_COMPACT, mode);
    json_decref(object);
    return error;
}

void routes_free(struct routes **routes)
{
    if (!routes || !*routes)
        return;
    free((*routes)->peers);
    free((*routes)->routes);
    free(*routes);
    *routes = NULL;
}

/* ---- questions ------------------------------------------------------------------------------- */

const struct route *routes_find(const struct routes *routes, const char *provider)
{
    for (uint32_t i = 0; routes && i < routes->route_count; i++)
        if (strcmp(routes->routes[i].provider, provider) == 0)
            return &routes->routes[i];
    return NULL;
}

static ns_t silence(ns_t heard_ns, ns_t told_ns, ns_t now)
{
    bool told = told_ns >= heard_ns && told_ns <= now && now - told_ns <= TOLD_NS;
    return (told ? told_ns : now) - heard_ns;
}

const char *route_state_name(const struct route *route, ns_t now)
{
    ns_t silent = silence(route->heard_ns, route->told_ns, now);
    if (!route->owner[0])
        return "unowned";
    if (route->endpoint[0] && silent >= LOST_NS)
        return "lost";
    if (route->endpoint[0] && silent > SILENT_NS)
        return "stale";
    return route->conflicts > 0 ? "conflict" : "live";
}

const char *route_peer_state_name(const struct route_peer *peer, ns_t now)
{
    ns_t silent = silence(peer->heard_ns, peer->told_ns, now);
    if (peer->heard_ns == 0 || silent >= LOST_NS)
        return "lost";
    return silent > SILENT_NS ? "silent" : "live";
}
