/* What arrives from other hosts, in the words of the broker: gossip.h into mirror.h. Internal. */
#ifndef AGENT_HEARD_H
#define AGENT_HEARD_H

#include "broker/broker.h"
#include "proto/gossip.h"

/* A lease of this provider, for a host of our own name marked local; false: its id is none, or another
 * provider's. */
bool heard_lease_of(const struct gossip_lease *told, const char *provider, const char *host,
                    struct heard_lease *lease);

/* The head of a state; leases are the caller's to set. */
void heard_state_of(const struct gossip_state *told, ns_t now, struct heard_state *state);

#endif
