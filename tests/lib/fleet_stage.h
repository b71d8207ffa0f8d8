/* Hosts of a fleet on one machine: each a directory of its own, a daemon in a child of the test, at ports of
 * its own on loopback. Beside host_stage.h, which ends whatever still runs. */
#ifndef TESTS_LIB_FLEET_STAGE_H
#define TESTS_LIB_FLEET_STAGE_H

#include "agent/routes.h"
#include "tests/lib/host_stage.h"

#define FLEET_STAGE_HOSTS 4

struct fleet_host {
    char name[NAME_SIZE];
    char directory[TEMP_DIR_MAX + 8];
    const char *providers[4]; /* NAME=SPEC */
    size_t provider_count;
    char listen[FLEET_ENDPOINT_SIZE], publish[FLEET_ENDPOINT_SIZE]; /* once it was started */
    char peers[FLEET_STAGE_HOSTS][FLEET_ENDPOINT_SIZE];
    size_t peer_count;
    pid_t pid;
};

extern struct fleet_host fleet_hosts[FLEET_STAGE_HOSTS];

/* Forgets the hosts of the test before. */
void fleet_stage_reset(void);

/* Starts the next host; provider may be NULL, peer is the host that it is told of, or NULL. */
struct fleet_host *fleet_add(const char *name, const char *provider, const struct fleet_host *peer);

/* Again, at the same ports. */
void fleet_start(struct fleet_host *host);

/* A client of this host's agent. */
lease_agent_t *fleet_client(const struct fleet_host *host);

/* Waits until the host's file says so. */
void fleet_await_owner(const struct fleet_host *at, const char *provider, const char *owner,
                       const char *state);

#endif
