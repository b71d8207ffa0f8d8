/* What sockets between hosts share: their endpoints, and how patient they are with a network.
 *
 * Safe from any thread, for sockets that are the caller's. */
#ifndef AGENT_TCP_H
#define AGENT_TCP_H

#include <stdbool.h>

#include "proto/limits.h"

#define TCP_ENDPOINT_SIZE (WIRE_ENDPOINT_MAX + 1)

enum endpoint_kind {
    ENDPOINT_BAD = 0,
    ENDPOINT_IPC,  /* ipc:// and an absolute path, or @ and an abstract name */
    ENDPOINT_IPV4, /* tcp://192.0.2.1:5771 */
    ENDPOINT_IPV6, /* tcp://[2001:db8::1]:5771, with %ZONE where it is needed */
    ENDPOINT_NAME, /* tcp://m5.example:5771 */
};

/* What this text is; wildcards, device names and port 0 are bad. Text of any length. */
enum endpoint_kind tcp_endpoint_kind(const char *endpoint);

/* Asks the system for the address of a name, which may take many seconds: not for a loop. numeric
 * becomes the endpoint with its first address, or a copy of one that needs no asking. 0,
 * LEASE_EINVAL, LEASE_EABSENT: there is no such name, or nobody can be asked. */
int tcp_resolve(const char *endpoint, char numeric[TCP_ENDPOINT_SIZE]);

/* How soon a peer that has vanished without a word is noticed: at the latest after three beats of
 * silence and three probes, or TCP_SILENCE_MS after something sent to it was not acknowledged. To be
 * set before a socket binds or connects. LEASE_EIO. */
#define TCP_SILENCE_MS 5000
#define TCP_CONNECT_MS 1500
int tcp_options(void *socket);

/* The interval at which a connection is tried again: from first to twice that at random, growing up
 * to longest_ms (0: not growing). */
int tcp_reconnect(void *socket, int first_ms, int longest_ms);

/* Binds: numeric addresses only, with port 0 for any free one. bound, which may be NULL, becomes the
 * endpoint it ended up with. LEASE_EINVAL; LEASE_EBUSY: in use; LEASE_EABSENT: not an address of
 * this host, or not yet; LEASE_EPERM: a port that takes privileges; LEASE_EIO. */
int tcp_listen(void *socket, const char *endpoint, char bound[TCP_ENDPOINT_SIZE]);

/* Begins to connect to what is not a name; nobody need be there. LEASE_EINVAL, LEASE_EIO. */
int tcp_dial(void *socket, const char *endpoint);

#endif
