/* Asking the hosts of fleet_stage.h as a third one would, by the wire, and looking at what they show. The
 * provider is always x. */
#ifndef TESTS_LIB_FLEET_ASKING_H
#define TESTS_LIB_FLEET_ASKING_H

#include "agent/asker.h"
#include "tests/lib/fleet_stage.h"

#define FLEET_ANSWER_NS (5 * NS_PER_SEC)

extern struct asker *fleet_asker;
extern struct message request, reply; /* what is asked, what was answered */

int fleet_asking_open(void);
void fleet_asking_close(void);

struct message *ask_for(enum message_op op, const char *provider);
const struct message *ask(const struct fleet_host *host);

/* One of x, as it should go. lease has WIRE_LEASE_MAX + 1 bytes; verify gives back the token. */
void acquire(const struct fleet_host *host, char *lease);
uint64_t verify(const struct fleet_host *host, const char *lease);
void release(const struct fleet_host *host, const char *lease);

/* Waits until a client of this host sees so many units; how many ms that took. */
int64_t await_seen(const struct fleet_host *at, const char *provider, int64_t leased,
                   int64_t dispatched);

#endif
