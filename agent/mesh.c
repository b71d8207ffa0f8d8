#define _GNU_SOURCE
#include "agent/mesh.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "agent/mesh_frames.h"
#include "broker/error.h"
#include "broker/host_fork.h"

#define SOCKETS 2

struct mesh {
    void *context, *pub /* NULL: nothing is published */, *sub;
    uint32_t generation; /* of forks */
    struct mesh_counters counters;
    struct mesh_reader reader;
    char asked[TCP_ENDPOINT_SIZE], bound[TCP_ENDPOINT_SIZE]; /* of the PUB */
    uint32_t peer_count;
    char peers[MESH_PEERS_MAX][TCP_ENDPOINT_SIZE];
};

static bool is_forked(const struct mesh *self)
{
    return self->generation != host_fork_generation();
}

/* A PUB that could not do what it is for goes again, so that the next try finds none. */
static int make_pub(struct mesh *self, const char *publish, const char *relay)
{
    void *pub = NULL;
    int error = mesh_make_pub(self->context, MESH_UNSENT_MAX, &pub);
    if (error == 0) {
        error = relay ? tcp_dial(pub, relay) : tcp_listen(pub, publish, self->bound);
    }
    if (error != 0) {
        if (pub) {
            (void)zmq_close(pub);
        }
        return error;
    }
    self->pub = pub;
    (void)snprintf(self->asked, sizeof self->asked, "%s", relay ? relay : publish);
    return 0;
}

static int make_sockets(struct mesh *self, const char *publish, const char *relay)
{
    int error = ipc_context(SOCKETS, &self->context);
    if (error == 0) {
        error = mesh_make_sub(self->context, &self->sub);
    }
    return error == 0 && (publish || relay) ? make_pub(self, publish, relay) : error;
}

int mesh_open(const char *publish, const char *relay, struct mesh **mesh)
{
    struct mesh *self = calloc(1, sizeof *self);
    if (!self) {
        return LEASE_ENOMEM;
    }
    host_fork_watch();
    self->generation = host_fork_generation();
    int error = make_sockets(self, publish, relay);
    if (error != 0) {
        mesh_close(&self);
        return error;
    }
    *mesh = self;
    return 0;
}

void mesh_close(struct mesh **self_p)
{
    struct mesh *self = *self_p;
    *self_p = NULL;
    if (!self || is_forked(self)) {
        return;
    }
    if (self->pub) {
        (void)zmq_close(self->pub);
    }
    ipc_close(&self->context, &self->sub);
    free(self);
}

const char *mesh_endpoint(const struct mesh *self)
{
    return self->bound;
}

int mesh_bind(struct mesh *self, const char *publish)
{
    if (is_forked(self)) {
        return LEASE_EFORK;
    }
    if (self->pub) {
        return strcmp(publish, self->asked) == 0 || strcmp(publish, self->bound) == 0
                   ? 0
                   : LEASE_EINVAL;
    }
    return make_pub(self, publish, NULL);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static uint32_t find(const struct mesh *self, const char *endpoint)
{
    uint32_t i = 0;
    while (i < self->peer_count && strcmp(self->peers[i], endpoint) != 0) {
        i++;
    }
    return i;
}

int mesh_connect(struct mesh *self, const char *endpoint)
{
    if (is_forked(self)) {
        return LEASE_EFORK;
    }
    if (find(self, endpoint) < self->peer_count) {
        return 0;
    }
    if (self->peer_count == MESH_PEERS_MAX) {
        return LEASE_EFULL;
    }
    int error = tcp_dial(self->sub, endpoint);
    if (error == 0) {
        (void)snprintf(self->peers[self->peer_count++], TCP_ENDPOINT_SIZE, "%s", endpoint);
    }
    return error;
}

void mesh_disconnect(struct mesh *self, const char *endpoint)
{
    uint32_t i = is_forked(self) ? self->peer_count : find(self, endpoint);
    if (i < self->peer_count) {
        (void)zmq_disconnect(self->sub, endpoint);
        memmove(self->peers[i], self->peers[--self->peer_count], TCP_ENDPOINT_SIZE);
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

int mesh_publish(struct mesh *self, const char *topic, const void *bytes, size_t size)
{
    zmq_msg_t frame;
    size_t topic_size = strnlen(topic, MESH_TOPIC_MAX + 1);
    if (!mesh_is_topic(topic, topic_size) || size > WIRE_MESSAGE_MAX) {
        return LEASE_EINVAL;
    }
    if (is_forked(self)) {
        return LEASE_EFORK;
    }
    if (!self->pub) {
        return 0;
    }
    if (zmq_msg_init_size(&frame, size) != 0) {
        return LEASE_ENOMEM;
    }
    memcpy(zmq_msg_data(&frame), bytes, size);
    if (!mesh_send(self->pub, topic, topic_size, &frame)) {
        return LEASE_EIO;
    }
    self->counters.sent++;
    return 0;
}

void *mesh_socket(struct mesh *self)
{
    return self->sub;
}

int mesh_run(struct mesh *self, mesh_handler *handler, void *arg)
{
    enum mesh_took took = MESH_TOOK_FRAME;
    if (is_forked(self)) {
        return LEASE_EFORK;
    }
    for (unsigned n = 0; n < 2 * MESH_MESSAGES_MAX && took < MESH_TOOK_NOTHING; n++) {
        zmq_msg_t frame;
        took = mesh_take(&self->reader, self->sub, &frame);
        if (took == MESH_TOOK_MESSAGE) {
            self->counters.heard++;
            handler(arg, self->reader.topic, zmq_msg_data(&frame), zmq_msg_size(&frame));
        }
        (void)zmq_msg_close(&frame);
    }
    return took == MESH_TOOK_ERROR ? LEASE_EIO : 0;
}

struct mesh_counters mesh_counters(const struct mesh *self)
{
    struct mesh_counters counters = self->counters;
    counters.dropped = self->reader.dropped;
    return counters;
}
