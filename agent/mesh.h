/* Publishing to all peers and hearing them: a bound PUB, and one SUB connected to every peer's.
 *
 * What is published may be lost, and says so nowhere: whoever needs it asks again. Nothing blocks, a
 * peer that is slow loses what is too much for it, and nothing that arrives grows memory beyond the
 * high-water marks.
 *
 * Threads: one at a time. After fork the child may only close, which frees nothing there. */
#ifndef AGENT_MESH_H
#define AGENT_MESH_H

#include <stddef.h>
#include <stdint.h>

#define MESH_TOPIC_MAX    80
#define MESH_MESSAGES_MAX 1024 /* that one mesh_run takes at most */

struct mesh;

/* bytes are borrowed for the call. */
typedef void mesh_handler(void *arg, const char *topic, const uint8_t *bytes, size_t size);

struct mesh_counters {
    uint64_t sent, heard, dropped /* frames that are no topic and message */;
};

/* publish: tcp://ADDRESS:PORT to bind (port 0: any), or NULL: nothing is published (outbound only).
 * relay: a comma-free endpoint of a relay's XSUB to connect the PUB to instead of binding, or NULL.
 * LEASE_EIO, LEASE_ENOMEM, LEASE_EINVAL; LEASE_EBUSY: the address is in use. */
int mesh_open(const char *publish, const char *relay, struct mesh **mesh);
void mesh_close(struct mesh **self);

/* Where it is bound, "" not at all; borrowed. A bind that failed can be tried again. */
const char *mesh_endpoint(const struct mesh *self);
int mesh_bind(struct mesh *self, const char *publish);

/* Hears the PUB at this endpoint from now on; 0 also where it does already. */
int mesh_connect(struct mesh *self, const char *endpoint);
void mesh_disconnect(struct mesh *self, const char *endpoint);

int mesh_publish(struct mesh *self, const char *topic, const void *bytes, size_t size);

/* The SUB, for zmq_poll with ZMQ_POLLIN; borrowed. */
void *mesh_socket(struct mesh *self);
int mesh_run(struct mesh *self, mesh_handler *handler, void *arg);

struct mesh_counters mesh_counters(const struct mesh *self);

#endif
