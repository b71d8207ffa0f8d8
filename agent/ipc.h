/* What both ends of the host's own socket share: its name, and a ZeroMQ socket that is fit to live
 * inside somebody else's process.
 *
 * Contexts are our own: the host may use ZeroMQ too, and what it sets or ends must not be ours. A
 * socket belongs to one thread at a time; the functions are safe from any. */
#ifndef AGENT_IPC_H
#define AGENT_IPC_H

#define IPC_NAME          "/agent.ipc" /* in the runtime directory */
#define IPC_SCHEME        "ipc://"
#define IPC_PATH_MAX      107 /* bytes that a socket's path may have (sun_path) */
#define IPC_DIRECTORY_MAX (IPC_PATH_MAX - (int)sizeof IPC_NAME + 1)
#define IPC_ENDPOINT_SIZE (sizeof IPC_SCHEME + IPC_PATH_MAX)

/* Writes the endpoint of a runtime directory; its path begins behind IPC_SCHEME. LEASE_EINVAL: not
 * an absolute path. LEASE_EDIR: longer than IPC_DIRECTORY_MAX bytes, which callers should say, with
 * the number. endpoint is unchanged then. */
int ipc_endpoint(const char *directory, char endpoint[IPC_ENDPOINT_SIZE]);

/* Whether a process listens at the endpoint, asked of the kernel without a word to that process:
 * 0 (it may be stopped), LEASE_EABSENT, LEASE_EPERM, LEASE_EIO. Does not block. */
int ipc_probe(const char *endpoint);

/* Makes a context for so many sockets of ours; no threads yet. LEASE_EIO; *context is unchanged. */
int ipc_context(int sockets, void **context);

/* Makes a socket of a ZMQ_ type, which lingers for nothing, waits for nothing (no send or receive
 * blocks), and drops whoever sends frames beyond WIRE_MESSAGE_MAX. The context's threads begin with
 * its first socket, and block all signals. LEASE_EIO: no descriptors, threads or memory left, or too
 * many sockets; *socket is unchanged.
 * libzmq ends the process when it runs out of descriptors half-way, so there must be IPC_SPARE_FDS
 * to spare before a context is made, and one less before each socket. */
#define IPC_SPARE_FDS 16
int ipc_socket(void *context, int type, void **socket);

/* A context and its only socket. LEASE_EIO; out parameters unchanged. */
int ipc_open(int type, void **context, void **socket);

/* Closes both and sets them to NULL; NULL is fine. Not for a forked child. */
void ipc_close(void **context, void **socket);

/* Sets an option of type int: 0 or LEASE_EIO. */
int ipc_option(void *socket, int option, int value);

/* zmq_bind and zmq_connect, which a signal of the host's may interrupt before they have begun: 0, or
 * -1 with errno. */
int ipc_bind(void *socket, const char *endpoint);
int ipc_connect(void *socket, const char *endpoint);

#endif
