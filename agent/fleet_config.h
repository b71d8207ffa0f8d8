/* What an agent was told about the fleet: where it answers and publishes, and whom it knows. The
 * fleet tier is off where nothing of it is set. */
#ifndef AGENT_FLEET_CONFIG_H
#define AGENT_FLEET_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/endpoint.h"
#include "broker/limits.h"

#define FLEET_LISTEN_MAX       8
#define FLEET_CONFIG_PEERS_MAX 512
#define FLEET_ERROR_SIZE       256

struct lease_options;

/* Endpoints have a port, "" is not set. */
struct fleet_config {
    uint32_t listen_count, peer_count;
    bool insecure;
    bool joins; /* peers are found otherwise (LEASE_OPEN_FLEET) */
    char listen[FLEET_LISTEN_MAX][ENDPOINT_SIZE];
    char publish[ENDPOINT_SIZE]; /* "": the port after that of the first listen */
    char advertise[ENDPOINT_SIZE];
    char relay[ENDPOINT_SIZE]; /* of its XSUB; its XPUB is the next port */
    struct fleet_config_peer {
        char endpoint[ENDPOINT_SIZE];
        char name[NAME_SIZE]; /* "" not told */
    } peers[FLEET_CONFIG_PEERS_MAX];
};

bool fleet_config_is_on(const struct fleet_config *config);

/* Of what a program gave; config is zeroed before. LEASE_EINVAL with one line in error: an endpoint
 * that is none, or one beyond loopback without `insecure`. */
int fleet_config_take(const struct lease_options *options, struct fleet_config *config, char *error,
                      size_t error_size);

/* ENDPOINT[,name=PEER]; LEASE_EINVAL, LEASE_EFULL. */
int fleet_config_add_peer(struct fleet_config *config, const char *text);
void fleet_config_peer_text(const struct fleet_config_peer *peer, char *text, size_t size);

#endif
