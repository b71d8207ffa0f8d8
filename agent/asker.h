/* Asking other hosts: questions to the owners of providers, each over a DEALER of its own.
 *
 * The caller's own thread asks, so that nothing is handed over between threads on the way. A
 * connection that is free is used again by whoever asks the same endpoint next; at most
 * ASKER_IDLE_MAX lie idle, the one unused for longest is closed. One whose last question was not
 * answered is not used again: a new one finds a host that was restarted sooner. No send blocks, a
 * peer that is not connected is no error but silence, replies to questions that were given up are
 * dropped by their `req`, and a reply that cannot be read counts as none. A question is sent again
 * each ASKER_AGAIN_MS (each second, where it waits longer than one), the same bytes: peers answer it
 * the same, and one that was restarted has not heard it. The context is the asker's own, its thread
 * blocks all signals, and nothing ends the process: where there are no IPC_SPARE_FDS left the answer
 * is LEASE_EIO.
 *
 * Threads: any number at once, but for asker_close. One `struct ask` belongs to one thread. After
 * fork the child may only call asker_close, ask_end and ask_free, which free nothing of the asker's
 * there. */
#ifndef AGENT_ASKER_H
#define AGENT_ASKER_H

#include <stddef.h>
#include <stdint.h>

#include "broker/record.h"
#include "proto/message.h"

#define ASKER_IDLE_MAX      64
#define ASKER_ASKS_MAX      1024 /* connections at once, idle ones counted: then LEASE_EIO */
#define ASKER_NAMES_MAX     16   /* names that are looked up at once: then LEASE_EIO */
#define ASKER_ENDPOINT_SIZE 128
#define ASKER_AGAIN_MS      250

struct asker;

/* Makes no socket and no thread yet: those come with the first question. LEASE_ENOMEM. */
int asker_open(struct asker **asker);

/* All questions have been ended before. */
void asker_close(struct asker **self);

/* tcp://ADDRESS:PORT with a numeric address (in brackets for IPv6) or a name, or ipc://PATH.
 * LEASE_EINVAL. */
int asker_check_endpoint(const char *endpoint);

/* A question that is under way. Zeroed memory is none. The reply's bytes (state, beat, peers) lie in
 * `buffer`, which grows by malloc to what a reply needs and is kept for the next. */
struct ask {
    struct asker *asker;
    void *connection; /* private */
    uint8_t req[WIRE_ID_BYTES];
    uint8_t *buffer;
    size_t buffer_size;
};

/* Sends it, or keeps it to be sent by ask_receive as soon as there is a connection. request->req is
 * drawn where it is zeroes, and told in ask->req: asking again with the same req is answered the
 * same. 0, or LEASE_EINVAL, LEASE_EIO, LEASE_ENOMEM, LEASE_EFORK; LEASE_EABSENT: known at once that nobody
 * listens (ipc only). A question under way is given up first. */
int ask_send(struct asker *asker, const char *endpoint, const struct message *request,
             struct ask *ask);

/* The reply, or LEASE_ETIMEOUT by deadline_ns (host clock, host_clock.h); a deadline that is past
 * only looks. After a timeout it may be called again. LEASE_EABSENT: the endpoint's name is nobody's.
 * LEASE_EINVAL: nothing is under way, or it was answered. *reply is rubbish unless it is 0. */
int ask_receive(struct ask *ask, struct message *reply, ns_t deadline_ns);

/* A descriptor that is readable when ask_receive is worth calling (edge-triggered: call it once
 * before sleeping on it, and at least each ASKER_AGAIN_MS); another one once a name was found; -1:
 * none. */
int ask_fd(const struct ask *ask);

/* Gives it up or back: the connection serves others. Keeps the buffer; ask_free frees it too. */
void ask_end(struct ask *ask);
void ask_free(struct ask *ask);

/* send, receive, end. reply's bytes are valid until the next use of `ask` or ask_free. */
int ask_once(struct asker *asker, const char *endpoint, const struct message *request,
             struct message *reply, ns_t deadline_ns, struct ask *ask);

#endif
