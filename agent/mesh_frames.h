/* A message as it is published: a topic and one frame more. What comes in other shapes is passed
 * over, a frame at a time, however many there are. Shared by who hears and who relays. */
#ifndef AGENT_MESH_FRAMES_H
#define AGENT_MESH_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "agent/mesh.h"

/* Zeroed memory is a reader at the beginning of a message. */
struct mesh_reader {
    bool has_topic, skipping;
    size_t topic_size;
    char topic[MESH_TOPIC_MAX + 1];
    uint64_t dropped;
};

enum mesh_took { MESH_TOOK_MESSAGE, MESH_TOOK_FRAME, MESH_TOOK_NOTHING, MESH_TOOK_ERROR };

/* Receives a frame, which is the caller's to close in any case. MESH_TOOK_MESSAGE: it is the second of
 * a message whose topic is in the reader. */
enum mesh_took mesh_take(struct mesh_reader *reader, void *socket, zmq_msg_t *frame);

/* Whether this is a topic: 1 to MESH_TOPIC_MAX bytes of printable ASCII. */
bool mesh_is_topic(const void *bytes, size_t size);

/* Sends both frames to a PUB; frame is taken, or closed. */
bool mesh_send(void *socket, const char *topic, size_t topic_size, zmq_msg_t *frame);

/* A PUB, and a SUB of everything, with their options. LEASE_EIO: the socket, if one was made, is the
 * caller's to close. */
int mesh_make_pub(void *context, int unsent_max, void **pub);
int mesh_make_sub(void *context, void **sub);

#endif
