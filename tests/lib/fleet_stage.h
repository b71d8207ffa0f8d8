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
    const char *providers[PROVIDERS_MAX]; /* NAME=SPEC */
    size_t provider_count;
    char listen[FLEET_ENDPOINT_SIZE], publish[FLEET_ENDPOINT_SIZE]; /* once it was started */
    char peers[FLEET_STAGE_HOSTS][FLEET_ENDPOINT_SIZE];
    size_t peer_count;
    char relay[FLEET_ENDPOINT_SIZE]; /* through which it publishes, "" none */
    pid_t pid;
};

extern struct fleet_host fleet_hosts[FLEET_STAGE_HOSTS];

/* Forgets the hosts of the test before. */
void fleet_stage_reset(void);

/* Prepares the next host: its directory, its ports; provider may be NULL, peer is the host that it is told
 * of, or NULL. */
struct fleet_host *fleet_prepare(const char *name, const char *provider,
                                 const struct fleet_host *peer);

/* And starts it. */
struct fleet_host *fleet_add(const char *name, const char *provider, const struct fleet_host *peer);

/* An endpoint of loopback that is free, and the next port too. */
void fleet_endpoint(char endpoint[FLEET_ENDPOINT_SIZE]);

/* At the same ports each time. */
void fleet_start(struct fleet_host *host);

/* A client of this host's agent. */
lease_agent_t *fleet_client(const struct fleet_host *host);

/* What the host's file says, NULL there is none; the caller's to free. */
struct routes *fleet_routes(const struct fleet_host *host);

/* Waits until it says so: with no other owner, or with so many. */
void fleet_await_owner(const struct fleet_host *at, const char *provider, const char *owner,
                       const char *state);
void fleet_await_conflict(const struct fleet_host *at, const char *provider, const char *owner,
                          uint32_t conflicts);

/* For a part that is to stay until the test ends it, longer than a test is patient. */
void fleet_stay(void);

#endif
