/* What other threads of the agent's own program say to its speaker, and hear of it. Internal: the
 * daemon uses it, liblease does not show it.
 *
 * Safe from any thread while the agent is open. */
#ifndef AGENT_SPEAKER_OUTSIDE_H
#define AGENT_SPEAKER_OUTSIDE_H

#include <pthread.h>
#include <stdint.h>

#include "agent/endpoint.h"
#include "agent/routes.h"

#define OUTSIDE_PEERS_MAX 64 /* told and not yet taken; further ones are dropped, and told again */

struct lease_agent;

/* In struct speaker; guarded by its mutex. */
struct outside {
    pthread_mutex_t mutex;
    uint32_t peer_count;
    struct {
        uint8_t id[16];
        char endpoint[ENDPOINT_SIZE];
    } peers[OUTSIDE_PEERS_MAX];
    struct speaker_place {
        uint8_t id[16];                    /* lasting, of the agent; zeroes: it does not speak */
        char endpoint[ENDPOINT_SIZE];      /* where it answers other hosts, "" nowhere */
        char trouble[ROUTES_WARNING_SIZE]; /* what it could not bind, "" nothing */
    } place;
};

/* The agent with this lasting id was noticed at this numeric endpoint: it is asked who it is.
 * LEASE_EINVAL: that is no endpoint; LEASE_EFULL; LEASE_EABSENT: this agent does not speak. */
int speaker_tell_peer(struct lease_agent *agent, const uint8_t id[16], const char *endpoint);

void speaker_where(struct lease_agent *agent, struct speaker_place *place);

#endif
