/* The relay of a fleet that is too large for everyone to hear everyone: two sockets, one that all
 * agents publish to and one that all of them hear.
 *
 * On the wire they are an XSUB and an XPUB that are bound. Inside, a SUB of everything and a PUB: who
 * subscribes to what is not passed on, so that a word is never lost since a subscription was still
 * under way. Only messages of the mesh's shape pass, whatever is in them.
 *
 * Beats are kept for RELAY_REST_MS and passed on together, so that each hearer is written to, and wakes,
 * so often and not for each of some hundred agents. All else passes at once, and may overtake a beat:
 * what a late beat says of versions is then older than what is known, and changes nothing.
 *
 * How agents use it. A relay tells both endpoints in its hello and beat, as a peer that publishes
 * (`publish`: where it is heard) and takes in (`relay`: where one publishes to); or the configuration
 * of an agent tells them, --peer for the former and --publish relay=ENDPOINT for the latter. The agent
 * opens its mesh with mesh_open(NULL, RELAY), so that its PUB connects to the relay instead of
 * binding, and hears the relay's other endpoint alone, by mesh_connect. Peers that come by words of
 * other peers are asked (fetch, verify) at their own endpoints, but not heard directly. An agent
 * hears what it has published itself, and knows it by its own id. Several relays make a fleet
 * survive the loss of one: each agent hears all of them, publishes through one, and moves on to the
 * next when its own words have not come back for three beats.
 *
 * Bounded as the mesh is; a hearer that is slow loses what is too much for it (RELAY_UNSENT_MAX).
 *
 * Threads: one at a time; one of its own serves a large fleet best. After fork the child may only
 * close, which frees nothing there. */
#ifndef AGENT_RELAY_H
#define AGENT_RELAY_H

#include <stdint.h>

#include "agent/tcp.h"
#include "broker/record.h"

#define RELAY_MESSAGES_MAX 4096 /* that one relay_run takes at most */
#define RELAY_UNSENT_MAX   4096
#define RELAY_BEATS_MAX    1024 /* that wait; one more, and all of them pass */
#define RELAY_REST_MS      50

struct relay;

struct relay_counters {
    uint64_t passed, dropped;
};

/* Binds both, tcp://ADDRESS:PORT (port 0: any). Errors of tcp_listen, LEASE_ENOMEM; *relay is unchanged
 * then, and it can be tried again. */
int relay_open(const char *publish_to, const char *heard_at, struct relay **relay);
void relay_close(struct relay **self);

/* Where they are bound; borrowed. */
const char *relay_publish_to(const struct relay *self);
const char *relay_heard_at(const struct relay *self);

/* For zmq_poll with ZMQ_POLLIN; borrowed. */
void *relay_socket(struct relay *self);

/* Passes on what has arrived, and beats that have waited. 0, LEASE_EFORK, LEASE_EIO when a socket is of no
 * more use. */
int relay_run(struct relay *self);

/* When relay_run is to be called again though nothing arrives, by host_now_ns: NS_NEVER unless beats wait. */
ns_t relay_deadline(const struct relay *self);

struct relay_counters relay_counters(const struct relay *self);

#endif
