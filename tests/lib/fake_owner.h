/* An owner on another host, as far as those who ask can tell: a thread that answers as the test says.
 * It issues ids and tokens of its own and remembers what it was asked. */
#ifndef TESTS_LIB_FAKE_OWNER_H
#define TESTS_LIB_FAKE_OWNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "agent/service.h"
#include "broker/record.h"

enum fake_manner {
    FAKE_GRANTS,    /* acquire is granted, verify goes, renew and release are done */
    FAKE_REFUSES,   /* no, with the state of a book of one slot that somebody has */
    FAKE_HAS_ENDED, /* every lease is gone */
    FAKE_LOSES,     /* grants, and the reply is lost; asked again it grants the same */
    FAKE_LOSES_RUN, /* the same of what runs already; all else is granted */
    FAKE_SILENT,    /* takes everything, answers nothing */
    FAKE_QUEUES,    /* who waits is kept until the manner changes, others are told no */
    FAKE_ELSEWHERE, /* not the owner: `endpoint` is */
};

#define FAKE_EPOCH 1000

struct fake_owner {
    pthread_t thread;
    struct service *service;
    _Atomic bool stop;
    _Atomic int manner;
    _Atomic uint32_t asked[MESSAGE_OP_COUNT];
    char name[NAME_SIZE];
    char endpoint[128]; /* where it answers */
    char moved_to[128]; /* of FAKE_ELSEWHERE */

    pthread_mutex_t mutex; /* guards what follows */
    uint64_t counter;
    struct message last[MESSAGE_OP_COUNT]; /* of each op */
    uint8_t lost_req[WIRE_ID_BYTES];       /* of FAKE_LOSES: the question, and what it granted */
    char lost_lease[WIRE_LEASE_MAX + 1];
    struct kept {
        struct service_asker *asker;
        struct message request;
    } kept[16];
    uint32_t kept_count;
};

/* At a port of its own on loopback. */
bool fake_owner_start(struct fake_owner *owner, const char *name);

/* Where it stood once before, at the same port. */
bool fake_owner_start_at(struct fake_owner *owner, const char *name, const char *endpoint);
void fake_owner_stop(struct fake_owner *owner);

uint32_t fake_owner_asked(struct fake_owner *owner, enum message_op op);
void fake_owner_last(struct fake_owner *owner, enum message_op op, struct message *request);

#endif
