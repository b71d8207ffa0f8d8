#define _GNU_SOURCE
#include "agent/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "broker/error.h"
#include "broker/host_random.h"
#include "proto/limits.h"

#define HANDSHAKE_MS    3000 /* whoever connects and says nothing is dropped after this */
#define CONTEXT_SOCKETS 15   /* libzmq's own, beside ours; the default of 1,023 takes memory */

_Static_assert(IPC_PATH_MAX < sizeof((struct sockaddr_un *)0)->sun_path, "path and its end fit");

int ipc_endpoint(const char *directory, char endpoint[IPC_ENDPOINT_SIZE])
{
    if (!directory || directory[0] != '/') {
        return LEASE_EINVAL;
    }
    if (strlen(directory) > IPC_DIRECTORY_MAX) {
        return LEASE_EDIR;
    }
    (void)snprintf(endpoint, IPC_ENDPOINT_SIZE, "%s%s%s", IPC_SCHEME, directory, IPC_NAME);
    return 0;
}

static int probe_error(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED: return LEASE_EABSENT;
    case EACCES:
    case EPERM: return LEASE_EPERM;
    case EAGAIN: /* more wait to be let in than fit: there is somebody, who is slow or stopped */
    case EINPROGRESS:
    case EINTR: return 0;
    default: return LEASE_EIO;
    }
}

int ipc_probe(const char *endpoint)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", endpoint + strlen(IPC_SCHEME));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return LEASE_EIO;
    }
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof address);
    int error = rc == 0 ? 0 : probe_error(errno);
    (void)close(fd);
    return error;
}

static bool descriptors_to_spare(size_t wanted)
{
    int fds[IPC_SPARE_FDS];
    size_t n = 0;
    while (n < wanted && (fds[n] = open("/", O_RDONLY | O_CLOEXEC)) >= 0) {
        n++;
    }
    bool enough = n == wanted;
    while (n > 0) {
        (void)close(fds[--n]);
    }
    return enough;
}

int ipc_option(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0 ? 0 : LEASE_EIO;
}

/* ZMTP's own heartbeats stay off: in libzmq 4.3.4 they abort the process when a reader stalls. */
static int set_options(void *socket)
{
    int64_t longest = WIRE_MESSAGE_MAX;
    if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest) != 0 ||
        ipc_option(socket, ZMQ_LINGER, 0) != 0 || ipc_option(socket, ZMQ_SNDTIMEO, 0) != 0 ||
        ipc_option(socket, ZMQ_RCVTIMEO, 0) != 0 || ipc_option(socket, ZMQ_IPV6, 0) != 0) {
        return LEASE_EIO;
    }
    return ipc_option(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
}

int ipc_context(int sockets, void **context)
{
    void *made = descriptors_to_spare(IPC_SPARE_FDS) ? zmq_ctx_new() : NULL;
    if (!made) {
        return LEASE_EIO;
    }
    if (zmq_ctx_set(made, ZMQ_MAX_SOCKETS, sockets + CONTEXT_SOCKETS) != 0 ||
        zmq_ctx_set(made, ZMQ_BLOCKY, 0) != 0) {
        (void)zmq_ctx_term(made);
        return LEASE_EIO;
    }
    *context = made;
    return 0;
}

/* A ROUTER numbers its peers from what rand() says, which is the same in every process that has not
 * seeded it; and it ends the process when a peer has called itself by the number of the next one. So
 * the number is drawn from a state of our own, and the host's goes on as if nothing had been. */
static void *unguessable_socket(void *context, int type)
{
#ifdef __GLIBC__
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static char ours[128];
    (void)pthread_mutex_lock(&mutex);
    char *hosts = initstate((unsigned)host_random_u64(), ours, sizeof ours);
    void *socket = zmq_socket(context, type);
    if (hosts) {
        (void)setstate(hosts);
    }
    (void)pthread_mutex_unlock(&mutex);
    return socket;
#else
    return zmq_socket(context, type);
#endif
}

/* libzmq's threads inherit the mask. They block signals by themselves too, but only once they run. */
int ipc_socket(void *context, int type, void **socket)
{
    sigset_t all, before;
    if (!descriptors_to_spare(IPC_SPARE_FDS - 1)) { /* the context took one */
        return LEASE_EIO;
    }
    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return LEASE_EIO;
    }
    void *made = type == ZMQ_ROUTER ? unguessable_socket(context, type) : zmq_socket(context, type);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!made) {
        return LEASE_EIO;
    }
    if (set_options(made) != 0) {
        (void)zmq_close(made);
        return LEASE_EIO;
    }
    *socket = made;
    return 0;
}

int ipc_open(int type, void **context, void **socket)
{
    void *made;
    int error = ipc_context(1, &made);
    if (error != 0) {
        return error;
    }
    error = ipc_socket(made, type, socket);
    if (error != 0) {
        (void)zmq_ctx_term(made);
        return error;
    }
    *context = made;
    return 0;
}

int ipc_bind(void *socket, const char *endpoint)
{
    int rc;
    do {
        rc = zmq_bind(socket, endpoint);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

int ipc_connect(void *socket, const char *endpoint)
{
    int rc;
    do {
        rc = zmq_connect(socket, endpoint);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

void ipc_close(void **context, void **socket)
{
    if (*socket) {
        (void)zmq_close(*socket);
        *socket = NULL;
    }
    while (*context && zmq_ctx_term(*context) != 0 && errno == EINTR) {
        /* a signal of the host's came; go on waiting for the threads to end */
    }
    *context = NULL;
}
