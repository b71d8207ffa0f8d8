#include "agent/mesh_frames.h"

#include <errno.h>
#include <string.h>

#include "agent/ipc.h"
#include "broker/error.h"

#define RECONNECT_MS     300 /* up to twice that, at random */
#define SUBSCRIPTION_MAX 256 /* all that a PUB is told */

bool mesh_is_topic(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    if (size == 0 || size > MESH_TOPIC_MAX) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        if (at[i] <= ' ' || at[i] > '~') {
            return false;
        }
    }
    return true;
}

static void begin(struct mesh_reader *reader, zmq_msg_t *frame, bool more)
{
    size_t size = zmq_msg_size(frame);
    if (more && mesh_is_topic(zmq_msg_data(frame), size)) {
        memcpy(reader->topic, zmq_msg_data(frame), size);
        reader->topic[size] = '\0';
        reader->topic_size = size;
        reader->has_topic = true;
    } else {
        reader->skipping = more;
        reader->dropped += !more;
    }
}

/* Whether this frame makes a message whole. */
static bool take(struct mesh_reader *reader, zmq_msg_t *frame)
{
    bool more = zmq_msg_more(frame) != 0;
    if (reader->skipping) {
        reader->skipping = more;
        reader->dropped += !more;
    } else if (!reader->has_topic) {
        begin(reader, frame, more);
    } else {
        reader->has_topic = false;
        reader->skipping = more;
        return !more;
    }
    return false;
}

enum mesh_took mesh_take(struct mesh_reader *reader, void *socket, zmq_msg_t *frame)
{
    (void)zmq_msg_init(frame);
    while (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
        if (errno != EINTR) {
            return errno == EAGAIN ? MESH_TOOK_NOTHING : MESH_TOOK_ERROR;
        }
    }
    return take(reader, frame) ? MESH_TOOK_MESSAGE : MESH_TOOK_FRAME;
}

/* A PUB takes whatever it is given, or drops it. */
bool mesh_send(void *socket, const char *topic, size_t topic_size, zmq_msg_t *frame)
{
    int rc;
    do {
        rc = zmq_send(socket, topic, topic_size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    while (rc >= 0 && (rc = zmq_msg_send(frame, socket, ZMQ_DONTWAIT)) < 0 && errno == EINTR) {
        rc = 0;
    }
    if (rc < 0) {
        (void)zmq_msg_close(frame);
    }
    return rc >= 0;
}

static int make(void *context, int type, void **socket)
{
    int error = ipc_socket(context, type, socket);
    if (error == 0) {
        error = tcp_options(*socket);
    }
    if (error == 0) {
        error = tcp_reconnect(*socket, RECONNECT_MS, MESH_RECONNECT_LONGEST_MS);
    }
    return error;
}

int mesh_make_pub(void *context, int unsent_max, void **pub)
{
    int64_t longest = SUBSCRIPTION_MAX;
    int error = make(context, ZMQ_PUB, pub);
    if (error == 0) {
        error = ipc_option(*pub, ZMQ_SNDHWM, unsent_max);
    }
    if (error == 0 && zmq_setsockopt(*pub, ZMQ_MAXMSGSIZE, &longest, sizeof longest) != 0) {
        error = LEASE_EIO;
    }
    return error;
}

int mesh_make_sub(void *context, void **sub)
{
    int error = make(context, ZMQ_SUB, sub);
    if (error == 0) {
        error = ipc_option(*sub, ZMQ_RCVHWM, MESH_UNHEARD_MAX);
    }
    if (error == 0 && zmq_setsockopt(*sub, ZMQ_SUBSCRIBE, "", 0) != 0) {
        error = LEASE_EIO;
    }
    return error;
}
