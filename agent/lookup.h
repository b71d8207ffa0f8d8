/* The address of a name, asked for by a thread of its own: whoever waits has a deadline, and the
 * system's resolver has none.
 *
 * A lookup is shared by all who hold it; the thread holds it too, and may outlive them. Safe from any
 * thread. Not for a forked child. */
#ifndef AGENT_LOOKUP_H
#define AGENT_LOOKUP_H

#include "agent/tcp.h"

struct lookup;

/* Begins to ask for this endpoint's address (ENDPOINT_NAME). LEASE_ENOMEM, LEASE_EIO: no thread or
 * descriptor left. The caller holds it. */
int lookup_begin(const char *endpoint, struct lookup **lookup);
struct lookup *lookup_hold(struct lookup *lookup);
void lookup_drop(struct lookup **lookup); /* NULL is fine */

/* The endpoint as it was given. */
const char *lookup_of(const struct lookup *lookup);

/* Readable from when it is done until it is dropped. */
int lookup_fd(const struct lookup *lookup);

/* LEASE_ETIMEOUT: not done yet; else as tcp_resolve. */
int lookup_result(const struct lookup *lookup, char numeric[TCP_ENDPOINT_SIZE]);

#endif
