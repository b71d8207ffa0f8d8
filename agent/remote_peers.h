/* Asking peers what they know of the fleet, for a handle that was given some. Internal to remote*.c. */
#ifndef AGENT_REMOTE_PEERS_H
#define AGENT_REMOTE_PEERS_H

#include "agent/remote.h"

struct asker *remote_asker(struct lease_agent *agent);

/* Asks all of them at once, and then the peers that they name. With a provider it comes back as soon as
 * its owner is known. NULL where nobody answered by the deadline; else the caller's to free. */
struct routes *remote_ask_peers(struct lease_agent *agent, char (*peers)[FLEET_ENDPOINT_SIZE],
                                uint32_t count, const char *provider, ns_t deadline_ns);

#endif
