/* One that answers by TCP in a thread of its own, and can be told to misbehave: to be silent, to
 * lose replies, to lie, to go and to come back. */
#ifndef TESTS_LIB_ANSWERER_H
#define TESTS_LIB_ANSWERER_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "agent/tcp.h"
#include "proto/message.h"

struct answerer {
    char endpoint[TCP_ENDPOINT_SIZE]; /* of the first start, the same after */
    pthread_t thread;
    atomic_bool stop;
    atomic_uint lose;    /* so many replies are not sent */
    atomic_uint rubbish; /* so many messages of rubbish before each reply */
    atomic_uint heard;   /* requests */
    atomic_bool hold;    /* keeps the next reply back until the request after it */
    size_t state_size;   /* of the reply to a fetch */
    void *context, *socket;
    zmq_msg_t held_to;
    struct message held;
    bool holding;
};

static inline void answerer_say(struct answerer *self, zmq_msg_t *to, const void *bytes,
                                size_t size)
{
    zmq_msg_t copy;
    (void)zmq_msg_init(&copy);
    (void)zmq_msg_copy(&copy, to);
    if (zmq_msg_send(&copy, self->socket, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        (void)zmq_msg_close(&copy);
        return;
    }
    (void)zmq_send(self->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(self->socket, bytes, size, ZMQ_DONTWAIT);
}

static inline void answerer_reply(struct answerer *self, zmq_msg_t *to,
                                  const struct message *request)
{
    static _Thread_local uint8_t bytes[WIRE_MESSAGE_MAX], state[WIRE_STATE_MAX];
    struct message reply;
    size_t size = 0;
    message_reply(&reply, request);
    reply.ok = true;
    reply.verdict = request->op == MESSAGE_VERIFY ? MESSAGE_GO : MESSAGE_NO_VERDICT;
    if (request->op == MESSAGE_FETCH && self->state_size > 5) {
        size_t rest = self->state_size - 5;
        memset(state, 's', sizeof state);
        state[0] = 0xdb;
        for (unsigned i = 0; i < 4; i++) {
            state[1 + i] = (uint8_t)(rest >> 8 * (3 - i));
        }
        reply.state = (struct message_bytes){state, self->state_size};
    }
    for (unsigned n = 0; n < atomic_load(&self->rubbish); n++) {
        answerer_say(self, to, "\xc1rubbish", 8);
    }
    if (message_encode(&reply, bytes, sizeof bytes, &size, NULL) == WIRE_OK) {
        answerer_say(self, to, bytes, size);
    }
}

static inline void answerer_answer(struct answerer *self, zmq_msg_t *to,
                                   const struct message *request)
{
    (void)atomic_fetch_add(&self->heard, 1);
    if (atomic_load(&self->lose) > 0) {
        (void)atomic_fetch_sub(&self->lose, 1);
        return;
    }
    if (atomic_exchange(&self->hold, false)) {
        (void)zmq_msg_copy(&self->held_to, to);
        self->held = *request;
        self->holding = true;
        return;
    }
    if (self->holding) { /* the late one first */
        answerer_reply(self, &self->held_to, &self->held);
        self->holding = false;
    }
    answerer_reply(self, to, request);
}

static inline void *answerer_run(void *arg)
{
    struct answerer *self = arg;
    zmq_msg_t to, frame;
    (void)zmq_msg_init(&to);
    (void)zmq_msg_init(&self->held_to);
    while (!atomic_load(&self->stop)) {
        struct message request;
        zmq_pollitem_t item = {.socket = self->socket, .events = ZMQ_POLLIN};
        if (zmq_poll(&item, 1, 5) <= 0) {
            continue;
        }
        (void)zmq_msg_recv(&to, self->socket, 0);
        for (int more = 1; more;) {
            (void)zmq_msg_init(&frame);
            (void)zmq_msg_recv(&frame, self->socket, 0);
            more = zmq_msg_more(&frame);
            if (!more && message_decode(zmq_msg_data(&frame), zmq_msg_size(&frame), &request,
                                        NULL) == WIRE_OK) {
                answerer_answer(self, &to, &request);
            }
            (void)zmq_msg_close(&frame);
        }
    }
    (void)zmq_msg_close(&to);
    (void)zmq_msg_close(&self->held_to);
    self->holding = false;
    ipc_close(&self->context, &self->socket);
    return NULL;
}

/* Binds in the caller's thread: whoever asks from now on finds it. */
static inline bool answerer_start(struct answerer *self)
{
    if (self->endpoint[0] == '\0') {
        (void)strcpy(self->endpoint, "tcp://127.0.0.1:0");
    }
    atomic_store(&self->stop, false);
    return ipc_open(ZMQ_ROUTER, &self->context, &self->socket) == 0 &&
           tcp_listen(self->socket, self->endpoint, self->endpoint) == 0 &&
           pthread_create(&self->thread, NULL, answerer_run, self) == 0;
}

static inline void answerer_stop(struct answerer *self)
{
    if (!atomic_exchange(&self->stop, true)) {
        (void)pthread_join(self->thread, NULL);
    }
}

#endif
