#include "agent/relay.h"

#include <stdlib.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "agent/mesh_frames.h"
#include "broker/error.h"
#include "broker/host_fork.h"

#define SOCKETS 2

struct relay {
    void *context, *in, *out;
    uint32_t generation; /* of forks */
    uint64_t passed;
    struct mesh_reader reader;
    char publish_to[TCP_ENDPOINT_SIZE], heard_at[TCP_ENDPOINT_SIZE];
};

static int make_sockets(struct relay *self, const char *publish_to, const char *heard_at)
{
    int error = ipc_context(SOCKETS, &self->context);
    if (error == 0) {
        error = mesh_make_pub(self->context, RELAY_UNSENT_MAX, &self->out);
    }
    if (error == 0) {
        error = mesh_make_sub(self->context, &self->in);
    }
    if (error == 0) {
        error = tcp_listen(self->out, heard_at, self->heard_at);
    }
    return error == 0 ? tcp_listen(self->in, publish_to, self->publish_to) : error;
}

int relay_open(const char *publish_to, const char *heard_at, struct relay **relay)
{
    struct relay *self = calloc(1, sizeof *self);
    if (!self) {
        return LEASE_ENOMEM;
    }
    host_fork_watch();
    self->generation = host_fork_generation();
    int error = make_sockets(self, publish_to, heard_at);
    if (error != 0) {
        relay_close(&self);
        return error;
    }
    *relay = self;
    return 0;
}

void relay_close(struct relay **self_p)
{
    struct relay *self = *self_p;
    *self_p = NULL;
    if (!self || self->generation != host_fork_generation()) {
        return;
    }
    if (self->out) {
        (void)zmq_close(self->out);
    }
    ipc_close(&self->context, &self->in);
    free(self);
}

const char *relay_publish_to(const struct relay *self)
{
    return self->publish_to;
}

const char *relay_heard_at(const struct relay *self)
{
    return self->heard_at;
}

void *relay_socket(struct relay *self)
{
    return self->in;
}

int relay_run(struct relay *self)
{
    if (self->generation != host_fork_generation()) {
        return LEASE_EFORK;
    }
    for (unsigned n = 0; n < 2 * RELAY_MESSAGES_MAX; n++) {
        zmq_msg_t frame;
        enum mesh_took took = mesh_take(&self->reader, self->in, &frame);
        if (took == MESH_TOOK_MESSAGE) {
            if (!mesh_send(self->out, self->reader.topic, self->reader.topic_size, &frame)) {
                return LEASE_EIO;
            }
            self->passed++;
            continue;
        }
        (void)zmq_msg_close(&frame);
        if (took != MESH_TOOK_FRAME) {
            return took == MESH_TOOK_ERROR ? LEASE_EIO : 0;
        }
    }
    return 0;
}

struct relay_counters relay_counters(const struct relay *self)
{
    return (struct relay_counters){.passed = self->passed, .dropped = self->reader.dropped};
}
