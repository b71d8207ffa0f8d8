/* Where the speaker's loop sleeps.
 *
 * By poll on the descriptors of libzmq's sockets, and not by zmq_poll, which asks each socket before and
 * after, and so stands between a question and its answer. Such a descriptor tells that something has
 * happened since the socket was last used in whatever way; whether there is something to receive is to
 * be asked before each sleep. After one, the receive itself finds out. */
#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

static void drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) > 0)
        continue;
}

static bool has_message(void *socket)
{
    int events = 0, rc;
    size_t size = sizeof events;
    do
        rc = zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size);
    while (rc != 0 && errno == EINTR);
    return rc == 0 && events & ZMQ_POLLIN;
}

/* -1, over which poll passes, where there is no socket. */
static int descriptor_of(void *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    return socket && zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

enum { WAKE, HTTP, SERVICE, MESH, ERRANDS };

void speaker_sleep(struct speaker *speaker, ns_t until_ns)
{
    struct room *room = speaker->room;
    void *service = speaker->service ? service_socket(speaker->service) : NULL;
    void *mesh = room ? room_socket(room) : NULL;
    struct pollfd items[ERRANDS + ROOM_ERRANDS] = {{0}};
    int errands[ROOM_ERRANDS];
    nfds_t count = ERRANDS + (room ? room_fds(room, errands) : 0);
    items[WAKE].fd = speaker->wake_fd;
    items[HTTP].fd = speaker->http ? http_fd(speaker->http) : -1;
    items[SERVICE].fd = descriptor_of(service);
    items[MESH].fd = descriptor_of(mesh);
    for (nfds_t i = ERRANDS; i < count; i++)
        items[i].fd = errands[i - ERRANDS];
    for (nfds_t i = 0; i < count; i++)
        items[i].events = POLLIN;

    speaker->to_answer = service && has_message(service);
    bool heard = mesh && has_message(mesh);
    ns_t left = speaker->to_answer || heard ? 0 : until_ns - host_now_ns();
    if (room)
        room_sleeps(room, until_ns);
    poll(items, count, left <= 0 ? 0 : (int)((left + NS_PER_MS - 1) / NS_PER_MS));
    if (items[WAKE].revents)
        drain(speaker->wake_fd);
    speaker->to_answer = speaker->to_answer || items[SERVICE].revents;
    if (heard || items[MESH].revents)
        room_to_hear(room);
}
