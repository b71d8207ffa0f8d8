/* The connections of an asker: idle ones are kept, new ones dialled. Internal to asker.c.
 *
 * Threads: any. A connection that was taken or made is its taker's alone, until it is put back or
 * discarded. */
#ifndef AGENT_ASKER_POOL_H
#define AGENT_ASKER_POOL_H

#include <pthread.h>
#include <stdbool.h>

#include "agent/asker.h"
#include "agent/lookup.h"

struct asker {
    pthread_mutex_t mutex; /* all below */
    void *context;         /* NULL: nothing was asked yet */
    uint32_t generation;   /* of forks */
    unsigned count, idle_count;
    struct connection *idle; /* the one last used first */
    struct lookup *names[ASKER_NAMES_MAX];
};

struct connection {
    struct connection *next; /* of the idle */
    void *socket;            /* NULL: the name is still looked up */
    struct lookup *lookup;
    int fd;
    ns_t idle_ns;               /* since when */
    ns_t asked_ns, again_ns;    /* first sent, to be sent again */
    bool said, asked, answered; /* said: libzmq has it, once more; asked: it ever had */
    enum message_op op;
    size_t size, room;
    uint8_t *packed; /* NULL: no room yet */
    char endpoint[ASKER_ENDPOINT_SIZE];
};

/* The process was forked since it was opened: nothing of it is to be touched. */
bool asker_is_forked(const struct asker *self);

/* The idle connection to this endpoint that was used last, out of the pool; NULL: there is none. */
struct connection *asker_take_idle(struct asker *self, const char *endpoint);

/* A new one to an endpoint that was checked, in the place of the one idle for longest where there are
 * ASKER_ASKS_MAX. LEASE_EIO also where none is idle then; LEASE_ENOMEM, LEASE_EABSENT (ipc only). */
int asker_make(struct asker *self, const char *endpoint, struct connection **made);

/* Gives it its socket, at a numeric endpoint. LEASE_EIO, LEASE_EINVAL. */
int asker_dial(struct asker *self, struct connection *connection, const char *numeric);

/* Back into the pool; or closed, which is its end. */
void asker_put_idle(struct asker *self, struct connection *connection);
void asker_discard(struct asker *self, struct connection *connection);

#endif
