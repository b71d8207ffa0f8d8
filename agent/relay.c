#include "agent/relay.h"

#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "agent/mesh_frames.h"
#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_fork.h"

#define SOCKETS 2

struct beat {
    size_t topic_size;
    char topic[MESH_TOPIC_MAX + 1];
    zmq_msg_t frame;
};

struct relay {
    void *context, *in, *out;
    uint32_t beat_count;
    ns_t due_ns; /* of the beats that wait */
    struct beat beats[RELAY_BEATS_MAX];
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
    for (uint32_t i = 0; i < self->beat_count; i++) {
        (void)zmq_msg_close(&self->beats[i].frame);
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

ns_t relay_deadline(const struct relay *self)
{
    return self->beat_count ? self->due_ns : NS_NEVER;
}

static bool pass(struct relay *self, const char *topic, size_t topic_size, zmq_msg_t *frame)
{
    self->passed++;
    return mesh_send(self->out, topic, topic_size, frame);
}

/* Each is sent, or closed. */
static bool pass_beats(struct relay *self)
{
    bool good = true;
    for (uint32_t i = 0; i < self->beat_count; i++) {
        struct beat *beat = &self->beats[i];
        good = pass(self, beat->topic, beat->topic_size, &beat->frame) && good;
    }
    self->beat_count = 0;
    return good;
}

static bool keep_beat(struct relay *self, zmq_msg_t *frame)
{
    if (self->beat_count == RELAY_BEATS_MAX && !pass_beats(self)) {
        (void)zmq_msg_close(frame);
        return false;
    }
    if (self->beat_count == 0) {
        self->due_ns = host_now_ns() + RELAY_REST_MS * NS_PER_MS;
    }
    struct beat *beat = &self->beats[self->beat_count++];
    beat->topic_size = self->reader.topic_size;
    memcpy(beat->topic, self->reader.topic, beat->topic_size);
    (void)zmq_msg_init(&beat->frame);
    (void)zmq_msg_move(&beat->frame, frame);
    (void)zmq_msg_close(frame);
    return true;
}

static bool take_message(struct relay *self, zmq_msg_t *frame)
{
    static const char beat[] = "beat/";
    const struct mesh_reader *reader = &self->reader;
    return strncmp(reader->topic, beat, sizeof beat - 1) == 0
               ? keep_beat(self, frame)
               : pass(self, reader->topic, reader->topic_size, frame);
}

int relay_run(struct relay *self)
{
    enum mesh_took took = MESH_TOOK_FRAME;
    if (self->generation != host_fork_generation()) {
        return LEASE_EFORK;
    }
    for (unsigned n = 0; n < 2 * RELAY_MESSAGES_MAX && took < MESH_TOOK_NOTHING; n++) {
        zmq_msg_t frame;
        took = mesh_take(&self->reader, self->in, &frame);
        if (took != MESH_TOOK_MESSAGE) {
            (void)zmq_msg_close(&frame);
        } else if (!take_message(self, &frame)) {
            return LEASE_EIO;
        }
    }
    if (took == MESH_TOOK_ERROR) {
        return LEASE_EIO;
    }
    bool due = self->beat_count && host_now_ns() >= self->due_ns;
    return !due || pass_beats(self) ? 0 : LEASE_EIO;
}

struct relay_counters relay_counters(const struct relay *self)
{
    return (struct relay_counters){.passed = self->passed, .dropped = self->reader.dropped};
}
