/* Publishing to all peers and hearing them: a bound PUB, and one SUB connected to every peer's.
 *
 * What is published may be lost, and says so nowhere: whoever needs it asks again. Nothing blocks, a
 * peer that is slow loses what is too much for it (MESH_UNSENT_MAX messages), and nothing that
 * arrives grows memory beyond MESH_UNHEARD_MAX messages of each peer. Not bounded is what a peer
 * subscribes to, nor the frames of one message; libzmq has no option for either (with
 * ZMQ_XPUB_MANUAL it keeps subscriptions all the same). Measured: 100,000 subscriptions of 190 bytes
 * took 23 MB, which stay when the peer has gone. Who may connect is for whoever configures the endpoint,
 * and keys; beyond that the system limits the process (ulimit -v, MemoryMax=).
 *
 * A connection that is lost is tried again by libzmq, at random intervals of at most
 * MESH_RECONNECT_LONGEST_MS; who is gone for good is for the caller to disconnect.
 * It gives up for ever where a peer has sent a frame beyond WIRE_MESSAGE_MAX, or is no ZeroMQ: one that
 * stays silent is to be disconnected and connected again now and then.
 *
 * Threads: one at a time. After fork the child may only close, which frees nothing there. */
#ifndef AGENT_MESH_H
#define AGENT_MESH_H

#include <stddef.h>
#include <stdint.h>

#include "agent/tcp.h"

#define MESH_TOPIC_MAX    80
#define MESH_MESSAGES_MAX 1024 /* that one mesh_run takes at most */
#define MESH_PEERS_MAX    WIRE_PEERS_MAX
#define MESH_UNSENT_MAX   256
#define MESH_UNHEARD_MAX  64
#define MESH_RECONNECT_LONGEST_MS                                                                  \
    1000 /* and a beat more: within three beats of a link that healed */

struct mesh;

/* bytes are borrowed for the call; topic is of printable ASCII. What comes by a relay includes what
 * one has published oneself. */
typedef void mesh_handler(void *arg, const char *topic, const uint8_t *bytes, size_t size);

/* Of messages; dropped: not a topic and one frame more. */
struct mesh_counters {
    uint64_t sent, heard, dropped;
};

/* publish: tcp://ADDRESS:PORT to bind (port 0: any), or NULL: nothing is published (outbound only).
 * relay: the endpoint of a relay's XSUB to connect the PUB to instead of binding, or NULL. Errors of
 * tcp_listen and tcp_dial, LEASE_ENOMEM; *mesh is unchanged then. */
int mesh_open(const char *publish, const char *relay, struct mesh **mesh);
void mesh_close(struct mesh **self);

/* Where it is bound, "" not at all; borrowed. */
const char *mesh_endpoint(const struct mesh *self);

/* Binds one that is not bound yet, as tcp_listen: after LEASE_EBUSY (somebody else has it) and
 * LEASE_EABSENT (the address is not there yet) it can be tried again. 0 also where it is bound to just
 * this; LEASE_EINVAL where to something else. */
int mesh_bind(struct mesh *self, const char *publish);

/* Hears the PUB at this endpoint (no name: tcp_resolve) from now on; 0 also where it does already.
 * LEASE_EFULL: MESH_PEERS_MAX are heard; LEASE_EINVAL, LEASE_EIO, LEASE_EFORK. */
int mesh_connect(struct mesh *self, const char *endpoint);
void mesh_disconnect(struct mesh *self, const char *endpoint);

/* 0 says nothing about who hears it, also where there is no PUB. LEASE_EINVAL: a topic or a message
 * beyond the limits. */
int mesh_publish(struct mesh *self, const char *topic, const void *bytes, size_t size);

/* The SUB, for zmq_poll with ZMQ_POLLIN; borrowed. */
void *mesh_socket(struct mesh *self);

/* Hands on what has arrived. 0, LEASE_EFORK, LEASE_EIO when the socket is of no more use. */
int mesh_run(struct mesh *self, mesh_handler *handler, void *arg);

struct mesh_counters mesh_counters(const struct mesh *self);

#endif
