/* The end that answers: a ROUTER at ipc://DIRECTORY/agent.ipc, and at TCP endpoints for peers.
 *
 * Whoever opens it with a directory holds the flock on agent.lock of that directory, from before service_open until
 * after service_close: binding takes the path from whoever has it, without an error on either side.
 *
 * Nothing here blocks, and nothing that arrives ends the process: what cannot be read is counted
 * and dropped, or refused with an answer (proto/README.md says which). Replies that nobody takes are
 * held up to SERVICE_OUTSTANDING_MAX bytes, over all askers; of requests libzmq reads at most
 * SERVICE_PENDING_MAX of an asker ahead of us. What is not bounded are the frames of one message,
 * which libzmq gathers before it shows the first: who may connect is therefore for the directory to
 * say, 0700, or a group's; and by TCP for whoever configures the endpoint, and keys.
 *
 * Threads: one thread at a time. After fork the child may only close, which frees nothing there. */
#ifndef AGENT_SERVICE_H
#define AGENT_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/ipc.h"
#include "agent/tcp.h"
#include "proto/message.h"

struct service;

/* A handler that cannot answer in the same turn keeps the request's envelope, returns SERVICE_LATER,
 * and has service_answer called later. At most SERVICE_LATER_MAX are kept: beyond, service_keep
 * returns NULL, and the handler answers LEASE_EFULL. Each is answered, or dropped, exactly once. */
#define SERVICE_LATER     1
#define SERVICE_LATER_MAX 4096
struct service_asker;

#define SERVICE_OUTSTANDING_MAX (32u << 20) /* half of it for replies beyond MESSAGE_PACKED_MAX */
#define SERVICE_PENDING_MAX     64

/* Answers one request: 0 with the fields of the reply filled in, SERVICE_LATER where it was kept, or
 * a LEASE_E..., which makes it a reply that is not ok; text may be set either way (wire_copy_text),
 * and is the error's own where it is not. On entry the reply is empty but for its head; `ok` and
 * `error` are set for the handler. What the reply's bytes point to must last until the next call of
 * the handler. It must not block, nor call service_run or service_close. */
typedef int service_handler(void *arg, const struct message *request, struct message *reply);

/* All only grow. */
struct service_counters {
    uint64_t answered; /* requests that the handler saw, whatever it said */
    uint64_t refused;  /* read so far that they could be answered, but wrong, or too new */
    uint64_t dropped;  /* no message, no request, or in too many frames: not answered */
    uint64_t mended;   /* replies of the handler that could not be sent: LEASE_EINTERNAL went */
    uint64_t gone;     /* replies whose asker had left */
    uint64_t full;     /* replies that found no room, since askers take none: dropped */
    uint64_t later;    /* requests that were kept */
};

/* Frames that one service_run takes at most, about a third as many requests. */
#define SERVICE_FRAMES_MAX 256

/* Binds the socket in the directory, or none where that is NULL (service_bind then); it is the user's own (0600), or the group's too (0660) where
 * the directory is (setgid, and writable for it). arg is borrowed for the life of the service.
 * LEASE_EINVAL, LEASE_EDIR as ipc_endpoint, or there is no such directory. LEASE_EPERM: others may
 * write there, or we may not. LEASE_EIO, LEASE_ENOMEM. On failure *service is unchanged. */
int service_open(const char *directory, service_handler *handler, void *arg,
                 struct service **service);

/* Takes the name away if it is still ours, closes, frees and sets *self to NULL; NULL is fine.
 * Requests that were not read are lost; their askers find nobody, or the next speaker. */
void service_close(struct service **self);

/* For the handler, while it runs: the envelope of the request that it has (NULL: too many are kept,
 * no memory, or an envelope of more than SERVICE_ENVELOPE_MAX bytes), and whether that came by ipc,
 * from this host, and not by TCP. */
#define SERVICE_ENVELOPE_MAX 512
struct service_asker *service_keep(struct service *self);
bool service_is_local(const struct service *self);

/* The numeric address from which the handler's request came by TCP, "" not known; borrowed. */
const char *service_asker_address(const struct service *self);

/* Sends the reply (message_reply of the request, with `ok` or `error` set), frees the asker and sets
 * *asker to NULL; a NULL reply only frees. Also from within the handler, for another one. Those that
 * are left when the service closes are freed by it. */
void service_answer(struct service *self, struct service_asker **asker,
                    const struct message *reply);

/* Binds one more: tcp://ADDRESS:PORT (port 0: any). As tcp_listen; bound may be NULL. */
int service_bind(struct service *self, const char *endpoint, char bound[TCP_ENDPOINT_SIZE]);

/* The ROUTER, for zmq_poll with ZMQ_POLLIN; borrowed. Not for anything else. */
void *service_socket(struct service *self);

/* Answers what has arrived, up to SERVICE_FRAMES_MAX; zmq_poll tells at once if there is more.
 * 0, LEASE_EFORK in a forked child, LEASE_EIO when the socket is of no more use. */
int service_run(struct service *self);

struct service_counters service_counters(const struct service *self);

#endif
