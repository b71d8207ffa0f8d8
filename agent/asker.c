#define _GNU_SOURCE
#include "agent/asker.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "agent/asker_pool.h"
#include "agent/lookup.h"
#include "agent/tcp.h"
#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_random.h"

/* An idle connection that is not there was tried ever more rarely: past this a new one is better. */
#define IDLE_HOPE_NS (500 * NS_PER_MS)

#define AGAIN_NS      (ASKER_AGAIN_MS * NS_PER_MS)
#define PATIENT_NS    (1000 * NS_PER_MS) /* waiting longer than that, it asks each second */
#define JUNK_PER_LOOK 64

/* ---- saying ---------------------------------------------------------------------------------- */

static int make_room(struct connection *connection, size_t room)
{
    uint8_t *grown = connection->room < room ? realloc(connection->packed, room) : NULL;
    if (grown) {
        connection->packed = grown;
        connection->room = room;
    }
    return connection->room < room ? LEASE_ENOMEM : 0;
}

/* Few requests carry bytes of their own (a beat), so room for those is made when one does. */
static int encode(struct connection *connection, const struct message *request)
{
    static const size_t rooms[] = {MESSAGE_PACKED_MAX, MESSAGE_BYTES_MAX};
    enum wire_fault fault = WIRE_EROOM;
    for (size_t i = 0; i < 2 && fault == WIRE_EROOM; i++) {
        int error = make_room(connection, rooms[i]);
        if (error != 0) {
            return error;
        }
        fault =
            message_encode(request, connection->packed, connection->room, &connection->size, NULL);
    }
    return fault == WIRE_OK ? 0 : LEASE_EINVAL;
}

static int pack(struct connection *connection, const struct message *request, struct ask *ask)
{
    static const uint8_t none[WIRE_ID_BYTES] = {0};
    struct message drawn;
    if (memcmp(request->req, none, sizeof none) == 0) {
        uint64_t random[2] = {host_random_u64(), host_random_u64()};
        drawn = *request;
        memcpy(drawn.req, random, sizeof drawn.req);
        request = &drawn;
    }
    memcpy(ask->req, request->req, sizeof ask->req);
    connection->op = request->op;
    connection->said = connection->asked = connection->answered = false;
    return encode(connection, request);
}

/* Sends the question as a REQ would, if there is a connection that takes it. */
static int say(struct connection *connection)
{
    int rc;
    do {
        rc = zmq_send(connection->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        return errno == EAGAIN ? 0 : LEASE_EIO;
    }
    do { /* which never fails for want of room, now that its first frame is under way */
        rc = zmq_send(connection->socket, connection->packed, connection->size, ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        return LEASE_EIO;
    }
    ns_t now = host_now_ns();
    connection->asked_ns = connection->asked ? connection->asked_ns : now;
    connection->again_ns = now + (now - connection->asked_ns < PATIENT_NS ? AGAIN_NS : PATIENT_NS);
    connection->said = connection->asked = true;
    return 0;
}

/* An idle connection first; a new one where that is not connected and has not been for long. */
static int send_over(struct asker *asker, struct connection *connection,
                     const struct message *request, struct ask *ask)
{
    int error = pack(connection, request, ask);
    if (error == 0 && connection->socket) {
        error = say(connection);
    }
    if (error != 0) {
        asker_discard(asker, connection);
        return error;
    }
    ask->asker = asker;
    ask->connection = connection;
    return 0;
}

int ask_send(struct asker *asker, const char *endpoint, const struct message *request,
             struct ask *ask)
{
    if (asker_is_forked(asker)) {
        return LEASE_EFORK;
    }
    ask_end(ask);
    if (request->reply || !endpoint) {
        return LEASE_EINVAL;
    }
    struct connection *connection =
        asker_take_idle(asker, endpoint); /* whose endpoint was checked */
    if (connection) {
        ns_t idle_ns = host_now_ns() - connection->idle_ns;
        int error = send_over(asker, connection, request, ask);
        if (error != LEASE_EIO && (error != 0 || connection->said || idle_ns < IDLE_HOPE_NS)) {
            return error;
        }
        ask->connection = NULL;
        if (error == 0) {
            asker_discard(asker, connection);
        }
    }
    int error = asker_check_endpoint(endpoint);
    if (error == 0) {
        error = asker_make(asker, endpoint, &connection);
    }
    return error != 0 ? error : send_over(asker, connection, request, ask);
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* The reply's bytes lie in the frame; they move to the ask's buffer. */
static int keep_bytes(struct ask *ask, zmq_msg_t *frame, struct message *reply)
{
    size_t size = zmq_msg_size(frame);
    if (reply->state.size == 0 && reply->beat.size == 0 && reply->peers.size == 0) {
        return 0;
    }
    if (ask->buffer_size < size) {
        uint8_t *grown = realloc(ask->buffer, size);
        if (!grown) {
            return LEASE_ENOMEM;
        }
        ask->buffer = grown;
        ask->buffer_size = size;
    }
    const uint8_t *from = zmq_msg_data(frame);
    memcpy(ask->buffer, from, size);
    struct message_bytes *all[] = {&reply->state, &reply->beat, &reply->peers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->size > 0) {
            all[i]->at = ask->buffer + (all[i]->at - from);
        }
    }
    return 0;
}

/* LEASE_ETIMEOUT: it is not the answer. */
static int look(struct ask *ask, zmq_msg_t *frame, struct message *reply)
{
    const struct connection *connection = ask->connection;
    bool ours = message_decode(zmq_msg_data(frame), zmq_msg_size(frame), reply, NULL) == WIRE_OK &&
                reply->reply && (reply->op == connection->op || reply->op == MESSAGE_REFUSAL) &&
                memcmp(reply->req, ask->req, sizeof ask->req) == 0;
    return ours ? keep_bytes(ask, frame, reply) : LEASE_ETIMEOUT;
}

/* Takes what is there until the answer is among it; LEASE_ETIMEOUT: it is not. A peer that goes on
 * sending other things does not hold us beyond the deadline. */
static int hear(struct ask *ask, struct message *reply, ns_t deadline_ns)
{
    const struct connection *connection = ask->connection;
    for (unsigned junk = 1;; junk++) {
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        int error = LEASE_ETIMEOUT;
        int rc = zmq_msg_recv(&frame, connection->socket, ZMQ_DONTWAIT);
        int reason = errno;
        if (rc >= 0 && !zmq_msg_more(&frame)) {
            error = look(ask, &frame, reply);
        }
        (void)zmq_msg_close(&frame);
        if (error != LEASE_ETIMEOUT || (rc < 0 && reason == EAGAIN)) {
            return error;
        }
        if (rc < 0 && reason != EINTR) {
            return LEASE_EIO;
        }
        if (junk % JUNK_PER_LOOK == 0 && host_now_ns() >= deadline_ns) {
            return LEASE_ETIMEOUT;
        }
    }
}

/* What the socket is ready for. Unlike sends and receives it takes in all that has happened: sleeping
 * on the descriptor is right after it only, or after a receive that found nothing. */
static int ready(const struct connection *connection, int *events)
{
    size_t size = sizeof *events;
    int rc;
    do {
        rc = zmq_getsockopt(connection->socket, ZMQ_EVENTS, events, &size);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : LEASE_EIO;
}

/* Says it, for the first time or again, as soon as that can be. *busy: there may be something to
 * hear or to say now. */
static int speak(struct connection *connection, bool *busy)
{
    int events = 0;
    connection->said = false;
    int error = ready(connection, &events);
    if (error == 0 && events & ZMQ_POLLOUT) {
        error = say(connection);
        if (error == 0) {
            error = ready(connection, &events);
        }
    }
    *busy = events & ZMQ_POLLIN || (!connection->said && events & ZMQ_POLLOUT);
    return error;
}

static void sleep_on(int fd, ns_t until_ns, ns_t now)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    ns_t left = until_ns > now ? until_ns - now : 0;
    struct timespec time = {.tv_sec = left / NS_PER_SEC, .tv_nsec = left % NS_PER_SEC};
    (void)ppoll(&item, 1, &time, NULL); /* a signal is as good a reason to look as any */
}

/* Waits for the address of a name, and dials it. */
static int find(struct ask *ask, ns_t deadline_ns)
{
    struct connection *connection = ask->connection;
    char numeric[TCP_ENDPOINT_SIZE];
    for (;;) {
        int error = lookup_result(connection->lookup, numeric);
        if (error == 0) {
            error = asker_dial(ask->asker, connection, numeric);
            if (error == 0) {
                lookup_drop(&connection->lookup);
            }
            return error;
        }
        ns_t now = host_now_ns();
        if (error != LEASE_ETIMEOUT || now >= deadline_ns) {
            return error;
        }
        sleep_on(lookup_fd(connection->lookup), deadline_ns, now);
    }
}

static int await(struct ask *ask, struct message *reply, ns_t deadline_ns)
{
    struct connection *connection = ask->connection;
    for (;;) {
        bool busy = false;
        int error = hear(ask, reply, deadline_ns);
        if (error != LEASE_ETIMEOUT) {
            return error;
        }
        ns_t now = host_now_ns();
        if (!connection->said || now >= connection->again_ns) {
            error = speak(connection, &busy);
            if (error != 0) {
                return error;
            }
        }
        if (now >= deadline_ns) {
            return LEASE_ETIMEOUT;
        }
        if (!busy) {
            bool again = connection->said && connection->again_ns < deadline_ns;
            sleep_on(connection->fd, again ? connection->again_ns : deadline_ns, now);
        }
    }
}

int ask_receive(struct ask *ask, struct message *reply, ns_t deadline_ns)
{
    struct connection *connection = ask->connection;
    if (!connection || asker_is_forked(ask->asker)) {
        return connection ? LEASE_EFORK : LEASE_EINVAL;
    }
    if (connection->answered) {
        return LEASE_EINVAL;
    }
    int error = connection->socket ? 0 : find(ask, deadline_ns);
    if (error == 0) {
        error = await(ask, reply, deadline_ns);
    }
    connection->answered = error == 0;
    return error;
}

int ask_fd(const struct ask *ask)
{
    const struct connection *connection = ask->connection;
    if (!connection || asker_is_forked(ask->asker)) {
        return -1;
    }
    return connection->socket ? connection->fd : lookup_fd(connection->lookup);
}

void ask_end(struct ask *ask)
{
    struct connection *connection = ask->connection;
    ask->connection = NULL;
    if (!connection || asker_is_forked(ask->asker)) {
        return;
    }
    if (connection->answered || (connection->socket && !connection->asked)) {
        asker_put_idle(ask->asker, connection);
    } else {
        asker_discard(ask->asker, connection);
    }
}

void ask_free(struct ask *ask)
{
    ask_end(ask);
    free(ask->buffer);
    *ask = (struct ask){0};
}

int ask_once(struct asker *asker, const char *endpoint, const struct message *request,
             struct message *reply, ns_t deadline_ns, struct ask *ask)
{
    int error = ask_send(asker, endpoint, request, ask);
    if (error == 0) {
        error = ask_receive(ask, reply, deadline_ns);
        ask_end(ask);
    }
    return error;
}
