/* The host's own socket, the end that asks: one question to the speaker of a runtime directory.
 *
 * Each call makes a context and ends it, which takes about a millisecond: for hello, status and the
 * like. Safe from any thread, several at once; nothing is kept between calls. */
#ifndef AGENT_CLIENT_H
#define AGENT_CLIENT_H

#include "agent/ipc.h"
#include "proto/message.h"

/* Asks, and waits at most timeout_ms (CLOCK_MONOTONIC, >= 0) for the answer; ending the context may
 * take some ms on top. A req of zeroes is replaced by one that is drawn here. 0: the speaker has
 * answered, which may be a reply that is not ok. reply is unchanged otherwise:
 *   LEASE_EABSENT  nobody has bound the socket, or who had is dead: known at once
 *   LEASE_ETIMEOUT somebody has, but does not answer (stopped, or very busy): unknown, not no
 *   LEASE_EINVAL   not a request that can be sent, a bad directory, a negative time
 *   LEASE_EDIR     the directory is longer than IPC_DIRECTORY_MAX
 *   LEASE_EPERM    the socket is somebody else's
 *   LEASE_EIO      no descriptors or threads left, or an answer that this version cannot read */
int client_ask(const char *directory, const struct message *request, struct message *reply,
               int timeout_ms);

#endif
