#define _GNU_SOURCE
#include "tools/bench/fleet_switch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define BACKLOG  1024
#define PORTS    200 /* tried for a pair of neighbours */
#define LOOK_MS  20
#define IN_A_ROW 64

struct pair {
    void *in, *out; /* what the agent publishes, what it hears */
    char endpoint[64];
};

struct fleet_switch {
    void *context, *all;
    char heard_at[64];
    uint32_t count, loss_percent;
    uint64_t dice;
    pthread_t thread;
    bool runs;
    _Atomic bool stop;
    struct pair *pairs;
};

/* ---- sockets ---------------------------------------------------------------------------------- */

static void *make(void *context, int type)
{
    int none = 0, backlog = BACKLOG;
    void *socket = zmq_socket(context, type);
    if (!socket)
        return NULL;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_BACKLOG, &backlog, sizeof backlog);
    if (type == ZMQ_SUB)
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
    return socket;
}

/* An agent hears its relay at the port beside that to which it publishes. */
static bool bind_pair(struct pair *pair, uint32_t *port)
{
    char beside[64];
    for (int i = 0; i < PORTS && *port < 60000; i++, *port += 2) {
        snprintf(pair->endpoint, sizeof pair->endpoint, "tcp://127.0.0.1:%u", *port);
        snprintf(beside, sizeof beside, "tcp://127.0.0.1:%u", *port + 1);
        if (zmq_bind(pair->in, pair->endpoint) != 0)
            continue;
        if (zmq_bind(pair->out, beside) == 0) {
            *port += 2;
            return true;
        }
        zmq_unbind(pair->in, pair->endpoint);
    }
    return false;
}

/* ---- passing on ------------------------------------------------------------------------------- */

static bool is_lost(struct fleet_switch *self)
{
    self->dice = self->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (self->dice >> 33) % 100 < self->loss_percent;
}

static void say(void *socket, zmq_msg_t *topic, zmq_msg_t *body)
{
    zmq_msg_t copy;
    zmq_msg_init(&copy);
    zmq_msg_copy(&copy, topic);
    if (zmq_msg_send(&copy, socket, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&copy);
        return;
    }
    zmq_msg_init(&copy);
    zmq_msg_copy(&copy, body);
    if (zmq_msg_send(&copy, socket, ZMQ_DONTWAIT) < 0)
        zmq_msg_close(&copy);
}

static bool pass_one(struct fleet_switch *self, uint32_t from)
{
    zmq_msg_t topic, body;
    zmq_msg_init(&topic);
    zmq_msg_init(&body);
    bool some = zmq_msg_recv(&topic, self->pairs[from].in, ZMQ_DONTWAIT) >= 0;
    if (some && zmq_msg_more(&topic) && zmq_msg_recv(&body, self->pairs[from].in, 0) >= 0) {
        say(self->all, &topic, &body);
        for (uint32_t i = 0; i < self->count; i++)
            if (i != from && !is_lost(self))
                say(self->pairs[i].out, &topic, &body);
    }
    zmq_msg_close(&topic);
    zmq_msg_close(&body);
    return some;
}

static void *pass_on(void *arg)
{
    struct fleet_switch *self = arg;
    zmq_pollitem_t *items = calloc(self->count, sizeof *items);
    for (uint32_t i = 0; items && i < self->count; i++)
        items[i] = (zmq_pollitem_t){.socket = self->pairs[i].in, .events = ZMQ_POLLIN};
    while (items && !atomic_load(&self->stop)) {
        zmq_poll(items, (int)self->count, LOOK_MS);
        for (uint32_t i = 0; i < self->count; i++)
            for (int n = 0; items[i].revents && n < IN_A_ROW && pass_one(self, i); n++)
                continue;
    }
    free(items);
    return NULL;
}

/* ---- opening and closing ---------------------------------------------------------------------- */

static bool open_pairs(struct fleet_switch *self)
{
    uint32_t port = 40001;
    size_t size = sizeof self->heard_at;
    self->all = make(self->context, ZMQ_PUB);
    if (!self->all || zmq_bind(self->all, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(self->all, ZMQ_LAST_ENDPOINT, self->heard_at, &size) != 0)
        return false;
    for (uint32_t i = 0; i < self->count; i++) {
        struct pair *pair = &self->pairs[i];
        pair->in = make(self->context, ZMQ_SUB);
        pair->out = make(self->context, ZMQ_PUB);
        if (!pair->in || !pair->out || !bind_pair(pair, &port))
            return false;
    }
    return true;
}

struct fleet_switch *fleet_switch_open(uint32_t count, uint32_t loss_percent)
{
    struct fleet_switch *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->count = count;
    self->loss_percent = loss_percent;
    self->dice = 20261130;
    self->pairs = calloc(count, sizeof *self->pairs);
    self->context = zmq_ctx_new();
    zmq_ctx_set(self->context, ZMQ_MAX_SOCKETS, (int)(2 * count + 8));
    bool ok = self->pairs && self->context && open_pairs(self);
    self->runs = ok && pthread_create(&self->thread, NULL, pass_on, self) == 0;
    if (!self->runs) {
        fprintf(stderr, "bench: the switch that loses messages cannot be made\n");
        fleet_switch_close(&self);
    }
    return self;
}

void fleet_switch_close(struct fleet_switch **self_p)
{
    struct fleet_switch *self = *self_p;
    *self_p = NULL;
    if (!self)
        return;
    atomic_store(&self->stop, true);
    if (self->runs)
        pthread_join(self->thread, NULL);
    for (uint32_t i = 0; self->pairs && i < self->count; i++) {
        if (self->pairs[i].in)
            zmq_close(self->pairs[i].in);
        if (self->pairs[i].out)
            zmq_close(self->pairs[i].out);
    }
    if (self->all)
        zmq_close(self->all);
    if (self->context)
        zmq_ctx_term(self->context);
    free(self->pairs);
    free(self);
}

const char *fleet_switch_endpoint(const struct fleet_switch *self, uint32_t agent)
{
    return self->pairs[agent].endpoint;
}

const char *fleet_switch_heard_at(const struct fleet_switch *self)
{
    return self->heard_at;
}

/* ---- counting --------------------------------------------------------------------------------- */

struct fleet_switch_ear {
    void *context, *sub;
};

struct fleet_switch_ear *fleet_switch_listen(const char *publish, const char *name,
                                             const char *provider)
{
    char beats[80], states[80];
    struct fleet_switch_ear *ear = calloc(1, sizeof *ear);
    if (!ear)
        return NULL;
    ear->context = zmq_ctx_new();
    ear->sub = zmq_socket(ear->context, ZMQ_SUB);
    int none = 0;
    size_t beats_size = (size_t)snprintf(beats, sizeof beats, "beat/%s", name);
    size_t states_size = (size_t)snprintf(states, sizeof states, "state/%s", provider);
    zmq_setsockopt(ear->sub, ZMQ_RCVHWM, &none, sizeof none);
    zmq_setsockopt(ear->sub, ZMQ_SUBSCRIBE, beats, beats_size);
    zmq_setsockopt(ear->sub, ZMQ_SUBSCRIBE, states, states_size);
    if (zmq_connect(ear->sub, publish) != 0)
        fprintf(stderr, "bench: cannot hear %s\n", publish);
    return ear;
}

double fleet_switch_heard(struct fleet_switch_ear *ear)
{
    char bytes[128];
    double count = 0;
    int more = 0;
    size_t size = sizeof more;
    while (zmq_recv(ear->sub, bytes, sizeof bytes, ZMQ_DONTWAIT) >= 0) {
        zmq_getsockopt(ear->sub, ZMQ_RCVMORE, &more, &size);
        count += !more;
    }
    return count;
}

void fleet_switch_deafen(struct fleet_switch_ear **ear_p)
{
    struct fleet_switch_ear *ear = *ear_p;
    *ear_p = NULL;
    if (!ear)
        return;
    zmq_close(ear->sub);
    zmq_ctx_term(ear->context);
    free(ear);
}
