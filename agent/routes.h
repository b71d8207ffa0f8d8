/* Whom to ask about which provider: what the speaker of this host has learned of the fleet, left in
 * the runtime directory (fleet.json) for every process of the host; or learned by asking a peer.
 *
 * Times are this host's clock that runs through suspend, which all its processes share. */
#ifndef AGENT_ROUTES_H
#define AGENT_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/fleet.h"

#define ROUTES_FILE         "fleet.json"
#define ROUTES_MAX          1024
#define ROUTES_WARNING_SIZE 256
#define ROUTES_PEERS_MAX    FLEET_PEERS_MAX

struct route_peer {
    char name[NAME_SIZE];
    char id[33]; /* hexadecimal, "" never heard */
    char version[FLEET_VERSION_SIZE];
    char endpoint[FLEET_ENDPOINT_SIZE];
    ns_t heard_ns; /* 0: never */
    ns_t told_ns;  /* when the file said so, 0: no file did */
    bool same_name;
};

struct route {
    char provider[NAME_SIZE];
    char owner[NAME_SIZE];              /* "" nobody owns it */
    char endpoint[FLEET_ENDPOINT_SIZE]; /* of the owner, "" it is this host */
    char url[FLEET_URL_SIZE];           /* for clients, as the owner tells it */
    uint64_t epoch;
    uint32_t conflicts; /* other live owners */
    ns_t heard_ns;      /* when the owner was heard last */
    ns_t told_ns;       /* when the file said so, 0: no file did */
};

struct routes {
    uint32_t peer_count, route_count;
    uint32_t capacity; /* private */
    ns_t written_ns;   /* when the speaker wrote it: once a second */
    struct route_peer *peers;
    struct route *routes;
    char endpoint[FLEET_ENDPOINT_SIZE]; /* where this host answers, "" it does not */
    char publish[FLEET_ENDPOINT_SIZE];
    char warning[ROUTES_WARNING_SIZE]; /* what the speaker cannot do, one line, "" nothing */
};

/* The caller's to free with routes_free. LEASE_EABSENT: there is no file; LEASE_EDAMAGED, LEASE_EIO,
 * LEASE_ENOMEM. *routes is unchanged then. */
int routes_read(const char *directory, struct routes **routes);
int routes_write(const char *directory, const struct routes *routes, unsigned mode);
void routes_free(struct routes **routes);

const struct route *routes_find(const struct routes *routes, const char *provider);

/* live, stale (not heard for three beats), lost (a minute), unowned, conflict: what views say. Silence is
 * what it was when a speaker that lives last said so: by the clock alone, the second until it says so
 * again would count as silence too. */
const char *route_state_name(const struct route *route, ns_t now);
const char *route_peer_state_name(const struct route_peer *peer, ns_t now); /* live, silent, lost */

#endif
