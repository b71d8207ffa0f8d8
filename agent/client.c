#define _GNU_SOURCE
#include "agent/client.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "broker/error.h"
#include "broker/host_random.h"

#define RECONNECT_MS 50 /* as soon as the next speaker has bound; a random part goes on top */

struct ask {
    void *context, *socket;
    int64_t deadline_ms;
    uint8_t req[WIRE_ID_BYTES];
    size_t size;
    uint8_t packed[MESSAGE_PACKED_MAX];
    char endpoint[IPC_ENDPOINT_SIZE];
};

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int prepare(struct ask *ask, const struct message *request)
{
    static const uint8_t none[WIRE_ID_BYTES] = {0};
    struct message copy = *request;
    if (memcmp(copy.req, none, sizeof none) == 0) {
        uint64_t drawn[2] = {host_random_u64(), host_random_u64()};
        memcpy(copy.req, drawn, sizeof drawn);
    }
    memcpy(ask->req, copy.req, sizeof copy.req);
    enum wire_fault fault =
        message_encode(&copy, ask->packed, sizeof ask->packed, &ask->size, NULL);
    return fault == WIRE_OK && !copy.reply ? 0 : LEASE_EINVAL;
}

/* Immediate: nothing is queued for a speaker that is not connected, to be said to a later one. */
static int dial(struct ask *ask)
{
    int error = ipc_open(ZMQ_DEALER, &ask->context, &ask->socket);
    if (error != 0) {
        return error;
    }
    int reconnect_ms = RECONNECT_MS + (int)(host_random_u64() % RECONNECT_MS);
    if (ipc_option(ask->socket, ZMQ_IMMEDIATE, 1) != 0 ||
        ipc_option(ask->socket, ZMQ_RECONNECT_IVL, reconnect_ms) != 0 ||
        ipc_connect(ask->socket, ask->endpoint) != 0) {
        return LEASE_EIO;
    }
    return 0;
}

/* Waits until the socket is ready for events; LEASE_ETIMEOUT past the deadline, ready or not, so
 * that no peer holds us up by what it sends. */
static int await(struct ask *ask, short events)
{
    for (;;) {
        zmq_pollitem_t item = {.socket = ask->socket, .events = events};
        int64_t left = ask->deadline_ms - now_ms();
        if (left < 0) {
            return LEASE_ETIMEOUT;
        }
        int rc = zmq_poll(&item, 1, (long)left + 1);
        if (rc > 0) {
            return 0;
        }
        if (rc < 0 && errno != EINTR) {
            return LEASE_EIO;
        }
    }
}

/* Sends the question as a REQ would, once there is a connection. */
static int say(struct ask *ask)
{
    for (;;) {
        int error = await(ask, ZMQ_POLLOUT);
        if (error != 0) {
            return error;
        }
        if (zmq_send(ask->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0) {
            break;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return LEASE_EIO;
        }
    }
    int rc;
    do {
        rc = zmq_send(ask->socket, ask->packed, ask->size, ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? LEASE_EIO : 0;
}

/* Reads the last frame of a message into read. 0 it is our answer, LEASE_ETIMEOUT it is none,
 * LEASE_EIO it is, but cannot be read. */
static int look(const struct ask *ask, zmq_msg_t *frame, struct message *read)
{
    enum wire_fault fault = message_decode(zmq_msg_data(frame), zmq_msg_size(frame), read, NULL);
    bool ours = (fault == WIRE_OK || fault >= WIRE_EVERSION) && read->reply &&
                memcmp(read->req, ask->req, sizeof ask->req) == 0;
    if (!ours) {
        return LEASE_ETIMEOUT;
    }
    return fault == WIRE_OK ? 0 : LEASE_EIO;
}

/* Takes frames until our answer is among them; what else comes is passed over. */
static int hear(struct ask *ask, struct message *read)
{
    for (;;) {
        int error = await(ask, ZMQ_POLLIN);
        if (error != 0) {
            return error;
        }
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        error = LEASE_ETIMEOUT;
        int rc = zmq_msg_recv(&frame, ask->socket, ZMQ_DONTWAIT);
        if (rc >= 0 && !zmq_msg_more(&frame)) {
            error = look(ask, &frame, read);
        } else if (rc < 0 && errno != EAGAIN && errno != EINTR) {
            error = LEASE_EIO;
        }
        (void)zmq_msg_close(&frame);
        if (error != LEASE_ETIMEOUT) {
            return error;
        }
    }
}

static int converse(struct ask *ask, struct message *read)
{
    int error = ipc_probe(ask->endpoint);
    if (error == 0) {
        error = dial(ask);
    }
    if (error == 0) {
        error = say(ask);
    }
    if (error == 0) {
        error = hear(ask, read);
    }
    ipc_close(&ask->context, &ask->socket);
    if (error == LEASE_ETIMEOUT && ipc_probe(ask->endpoint) == LEASE_EABSENT) {
        return LEASE_EABSENT; /* it went while we waited */
    }
    return error;
}

int client_ask(const char *directory, const struct message *request, struct message *reply,
               int timeout_ms)
{
    struct ask ask = {.deadline_ms = now_ms() + timeout_ms};
    struct message read;
    int error = timeout_ms < 0 ? LEASE_EINVAL : ipc_endpoint(directory, ask.endpoint);
    if (error == 0) {
        error = prepare(&ask, request);
    }
    if (error == 0) {
        error = converse(&ask, &read);
    }
    if (error == 0) {
        *reply = read;
    }
    return error;
}
