/* What agents say to each other: one catalogue, from which the codec reads and writes.
 *
 * A message is a request or the reply to one. On the wire it is one msgpack map: `v`, `op` and
 * `req`, and the fields that its op has; a reply is what carries `ok`. README.md beside this file
 * has it byte by byte. Unknown keys are passed over, so that fields can be added; a key that stands
 * there twice is a fault.
 *
 * Nothing here allocates. A message points nowhere but with its `state`, `beat` and `peers`. Safe from
 * any thread. */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/wire.h"

/* Room for whatever message_encode writes: without state, beat and peers, and with them; and what
 * these three may be together. A full beat leaves less than WIRE_STATE_MAX to the peers. */
#define MESSAGE_PACKED_MAX 8192
#define MESSAGE_BYTES_MAX  WIRE_MESSAGE_MAX
#define MESSAGE_BYTES_ROOM (MESSAGE_BYTES_MAX - MESSAGE_PACKED_MAX)

/* X(member of struct message and key on the wire, type, maximum) */
#define MESSAGE_FIELDS(X)                                                                          \
    X(ok, FLAG, 1)                                                                                 \
    X(error, CODE, WIRE_ERROR_MAX)                                                                 \
    X(text, TEXT, WIRE_TEXT_MAX)                                                                   \
    X(name, NAME, WIRE_NAME_MAX)                                                                   \
    X(id, ID, WIRE_ID_BYTES)                                                                       \
    X(version, TEXT, WIRE_NAME_MAX)                                                                \
    X(kind, KIND, MESSAGE_EMBEDDED)                                                                \
    X(pid, U32, INT32_MAX)                                                                         \
    X(uptime_ms, U64, WIRE_NUMBER_MAX)                                                             \
    X(providers, NAMES, WIRE_PROVIDERS_MAX)                                                        \
    X(directory, TEXT, WIRE_DIRECTORY_MAX)                                                         \
    X(provider, NAME, WIRE_NAME_MAX)                                                               \
    X(lease, TEXT, WIRE_LEASE_MAX)                                                                 \
    X(former, TEXT, WIRE_LEASE_MAX)                                                                \
    X(running, FLAG, 1)                                                                            \
    X(units, U32, WIRE_UNITS_MAX)                                                                  \
    X(slot_plus_1, U32, WIRE_UNITS_MAX)                                                            \
    X(ttl_ms, U32, WIRE_TIME_MS_MAX)                                                               \
    X(wait_ms, U32, WIRE_TIME_MS_MAX)                                                              \
    X(budget_ms, U32, WIRE_TIME_MS_MAX)                                                            \
    X(host, NAME, WIRE_NAME_MAX)                                                                   \
    X(label, TEXT, WIRE_LABEL_MAX)                                                                 \
    X(holder_pid, U32, INT32_MAX)                                                                  \
    X(may_idle, FLAG, 1)                                                                           \
    X(no_holder, FLAG, 1)                                                                          \
    X(by_pid, FLAG, 1)                                                                             \
    X(force, FLAG, 1)                                                                              \
    X(died, FLAG, 1)                                                                               \
    X(epoch, U64, WIRE_NUMBER_MAX)                                                                 \
    X(state_version, U64, WIRE_NUMBER_MAX)                                                         \
    X(verdict, VERDICT, MESSAGE_GONE)                                                              \
    X(undecided, FLAG, 1)                                                                          \
    X(token, U64, WIRE_NUMBER_MAX)                                                                 \
    X(left_ms, U64, WIRE_NUMBER_MAX)                                                               \
    X(waited_ms, U32, WIRE_TIME_MS_MAX)                                                            \
    X(dispatched, FLAG, 1)                                                                         \
    X(owner, NAME, WIRE_NAME_MAX)                                                                  \
    X(endpoint, TEXT, WIRE_ENDPOINT_MAX)                                                           \
    X(part, U32, WIRE_PARTS_MAX)                                                                   \
    X(parts, U32, WIRE_PARTS_MAX)                                                                  \
    X(state, BYTES, WIRE_STATE_MAX)                                                                \
    X(beat, BYTES, WIRE_STATE_MAX)                                                                 \
    X(peers, BYTES, WIRE_STATE_MAX)

enum message_field {
#define MESSAGE_FIELD_NAME(member, type, maximum) MESSAGE_FIELD_##member,
    MESSAGE_FIELDS(MESSAGE_FIELD_NAME)
#undef MESSAGE_FIELD_NAME
        MESSAGE_FIELD_COUNT
};

#define MESSAGE_HAS(member) (UINT64_C(1) << MESSAGE_FIELD_##member)
#define MESSAGE_HAS_NONE    UINT64_C(0)
#define MESSAGE_HAS_SENDER                                                                         \
    (MESSAGE_HAS(name) | MESSAGE_HAS(id) | MESSAGE_HAS(version) | MESSAGE_HAS(kind) |              \
     MESSAGE_HAS(pid))
#define MESSAGE_HAS_STATE (MESSAGE_HAS(uptime_ms) | MESSAGE_HAS(providers) | MESSAGE_HAS(directory))

#define MESSAGE_HAS_HOLDER                                                                         \
    (MESSAGE_HAS(host) | MESSAGE_HAS(label) | MESSAGE_HAS(holder_pid) | MESSAGE_HAS(may_idle) |    \
     MESSAGE_HAS(no_holder) | MESSAGE_HAS(by_pid))
#define MESSAGE_HAS_WISH                                                                           \
    (MESSAGE_HAS(units) | MESSAGE_HAS(slot_plus_1) | MESSAGE_HAS(ttl_ms) | MESSAGE_HAS(wait_ms) |  \
     MESSAGE_HAS(budget_ms) | MESSAGE_HAS(epoch))
#define MESSAGE_HAS_ANSWER                                                                         \
    (MESSAGE_HAS(lease) | MESSAGE_HAS(verdict) | MESSAGE_HAS(undecided) | MESSAGE_HAS(token) |     \
     MESSAGE_HAS(left_ms) | MESSAGE_HAS(waited_ms) | MESSAGE_HAS(dispatched) |                     \
     MESSAGE_HAS(units) | MESSAGE_HAS(slot_plus_1) | MESSAGE_HAS(epoch) |                          \
     MESSAGE_HAS(state_version) | MESSAGE_HAS(owner) | MESSAGE_HAS(endpoint) | MESSAGE_HAS(state))

/* X(op, word, request must have, may have; reply must have where it is ok, may have). Every reply
 * has `ok`; one that is not ok must have `error` and may lack all else; `text` is always allowed.
 *   hello  who are you? The asker may say who it is; with its beat also where it is reached. The
 *          answer has a beat where the asked belongs to a fleet.
 *   status the same with what the speaker works on.
 *   yield  leave the sockets to me, a daemon: ok when the asked is about to close them.
 *   read   make a reading of this provider now: ok when it is begun; it arrives in the book.
 *   acquire, verify, renew, release  of a lease of a provider that the asked owns. Ok whenever it was
 *          decided: `verdict` is granted, go, no or gone, and `text` says why. Not ok, with owner and
 *          endpoint where they are known: it owns no such provider. verify without `lease` acquires
 *          first; with one that the owner does not know, it acquires with that id. left_ms counts
 *          from the first sending of this req plus waited_ms.
 *   fetch  with provider: one part of what the answerer last published of it, in `state`. Without:
 *          its `beat` and the peers that it knows. `epoch`: what the asker has is of this one, and takes
 *          no state of a lower one.
 *   forget drop the peer that is called `name`; asked on the same host only.
 *   refusal the reply where the request's op is unknown or could not be read; never ok. */
#define MESSAGE_OPS(X)                                                                             \
    X(MESSAGE_REFUSAL, "refusal", MESSAGE_HAS_NONE, MESSAGE_HAS_NONE, MESSAGE_HAS(error),          \
      MESSAGE_HAS_NONE)                                                                            \
    X(MESSAGE_HELLO, "hello", MESSAGE_HAS_NONE, (MESSAGE_HAS_SENDER | MESSAGE_HAS(beat)),          \
      MESSAGE_HAS_SENDER, (MESSAGE_HAS_STATE | MESSAGE_HAS(beat)))                                 \
    X(MESSAGE_STATUS, "status", MESSAGE_HAS_NONE, MESSAGE_HAS_SENDER,                              \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS_STATE), MESSAGE_HAS_NONE)                                  \
    X(MESSAGE_YIELD, "yield", MESSAGE_HAS(kind), MESSAGE_HAS_SENDER, MESSAGE_HAS_NONE,             \
      MESSAGE_HAS_SENDER)                                                                          \
    X(MESSAGE_READ, "read", MESSAGE_HAS(provider), MESSAGE_HAS_SENDER, MESSAGE_HAS_NONE,           \
      MESSAGE_HAS_NONE)                                                                            \
    X(MESSAGE_ACQUIRE, "acquire", MESSAGE_HAS(provider),                                           \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS_HOLDER | MESSAGE_HAS_WISH | MESSAGE_HAS(lease) |           \
       MESSAGE_HAS(former) | MESSAGE_HAS(running)),                                                \
      MESSAGE_HAS(verdict), MESSAGE_HAS_ANSWER)                                                    \
    X(MESSAGE_VERIFY, "verify", MESSAGE_HAS(provider),                                             \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS_HOLDER | MESSAGE_HAS_WISH | MESSAGE_HAS(lease)),           \
      MESSAGE_HAS(verdict), MESSAGE_HAS_ANSWER)                                                    \
    X(MESSAGE_RENEW, "renew", (MESSAGE_HAS(provider) | MESSAGE_HAS(lease)),                        \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS(ttl_ms) | MESSAGE_HAS(epoch)), MESSAGE_HAS(verdict),       \
      MESSAGE_HAS_ANSWER)                                                                          \
    X(MESSAGE_RELEASE, "release", (MESSAGE_HAS(provider) | MESSAGE_HAS(lease)),                    \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS(force) | MESSAGE_HAS(died) | MESSAGE_HAS(epoch)),          \
      MESSAGE_HAS(verdict), MESSAGE_HAS_ANSWER)                                                    \
    X(MESSAGE_FETCH, "fetch", MESSAGE_HAS_NONE,                                                    \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS(provider) | MESSAGE_HAS(part) | MESSAGE_HAS(epoch)),       \
      MESSAGE_HAS_NONE,                                                                            \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS(provider) | MESSAGE_HAS(part) | MESSAGE_HAS(parts) |       \
       MESSAGE_HAS(state) | MESSAGE_HAS(beat) | MESSAGE_HAS(peers) | MESSAGE_HAS(owner) |          \
       MESSAGE_HAS(endpoint)))                                                                     \
    X(MESSAGE_FORGET, "forget", MESSAGE_HAS(name), MESSAGE_HAS_NONE, MESSAGE_HAS_NONE,             \
      MESSAGE_HAS_NONE)

enum message_op {
#define MESSAGE_OP_NAME(op, word, must, may, reply_must, reply_may) op,
    MESSAGE_OPS(MESSAGE_OP_NAME)
#undef MESSAGE_OP_NAME
        MESSAGE_OP_COUNT
};

/* Bytes inside a message: a whole msgpack value of gossip.h. Borrowed, from whoever encodes or from
 * the bytes that were decoded. size 0: none. */
struct message_bytes {
    const uint8_t *at;
    size_t size;
};

/* On the wire "daemon" and "embedded". */
enum message_kind { MESSAGE_NO_KIND = 0, MESSAGE_DAEMON, MESSAGE_EMBEDDED };

/* On the wire "granted", "go", "no" and "gone". */
enum message_verdict {
    MESSAGE_NO_VERDICT = 0, /* none in it */
    MESSAGE_GRANTED,        /* acquire, renew: it is held, or dispatched, for left_ms more */
    MESSAGE_GO,             /* verify: dispatch */
    MESSAGE_NO,             /* not now; see `undecided` */
    MESSAGE_GONE,           /* the lease has ended, a release included */
};

/* A field that a message does not have is zero. Where its op must have it, it is written whatever
 * it is; where it may, unless it is zero. */
struct message {
    enum message_op op;
    bool reply;
    uint8_t req[WIRE_ID_BYTES]; /* drawn by the asker, repeated in the reply */

    bool ok;                                /* replies: done, or granted */
    int32_t error;                          /* replies that are not ok: a LEASE_E... */
    char text[WIRE_TEXT_MAX + 1];           /* replies: one line for people */
    char name[WIRE_NAME_MAX + 1];           /* the sender's host, as it is configured */
    uint8_t id[WIRE_ID_BYTES];              /* the sender's lasting id */
    char version[WIRE_NAME_MAX + 1];        /* of its program, "0.1.0" */
    enum message_kind kind;                 /* whether it is the daemon or inside another */
    uint32_t pid;                           /* of its process, in its own pid namespace */
    uint64_t uptime_ms;                     /* since it began to speak */
    uint32_t provider_count;                /* of `providers`, which it speaks for */
    char directory[WIRE_DIRECTORY_MAX + 1]; /* its runtime directory */
    char provider[WIRE_NAME_MAX + 1];       /* the one that is asked about */

    char lease[WIRE_LEASE_MAX + 1];  /* its id, as `lease` prints it */
    char former[WIRE_LEASE_MAX + 1]; /* acquire with running: the one that ended */
    bool running;                    /* the work runs already: dispatched at once */
    uint32_t units;                  /* 0: one */
    uint32_t slot_plus_1;            /* the index of the slot it pins, plus one; 0: any */
    uint32_t ttl_ms;                 /* 0: the default */
    uint32_t wait_ms;                /* stand in the queue for so long */
    uint32_t budget_ms; /* after it (and wait_ms) nobody listens: grant nothing. 0: 1,500 */
    char host[WIRE_NAME_MAX + 1];   /* of the holder; the sender's name where empty */
    char label[WIRE_LABEL_MAX + 1]; /* of the holder */
    uint32_t holder_pid;            /* of the holder; 0: none */
    bool may_idle, no_holder, by_pid;
    bool force;                    /* release of somebody else's lease */
    bool died;                     /* release, since the holder died: its work may run on */
    uint64_t epoch;                /* of the provider: as heard, or as it is */
    uint64_t state_version;        /* replies: of the owner's book that has this answer in it */
    enum message_verdict verdict;  /* ok replies to acquire, verify, renew, release */
    bool undecided;                /* a no that ended nothing */
    uint64_t token, left_ms;       /* of the lease; 0: none */
    uint32_t waited_ms;            /* in the queue, before it was granted */
    bool dispatched;               /* the lease is, and not only held */
    char owner[WIRE_NAME_MAX + 1]; /* who owns the provider, where the asked does not */
    char endpoint[WIRE_ENDPOINT_MAX + 1]; /* and where it is asked */
    uint32_t part, parts;                 /* of `state`: part counts from 0 */
    struct message_bytes state, beat, peers;
    /* Last, as most messages have none and would spend more time on clearing it than on all else. What
     * stands in it from provider_count on is anything. */
    char providers[WIRE_PROVIDERS_MAX][WIRE_NAME_MAX + 1];
};

/* Nothing in it: what lies behind provider_count stays as it was. */
void message_clear(struct message *message);

/* A request of this op, or the reply to a request (ok is false, error 0), with nothing else in it.
 * The caller draws `req`, different for each request and random enough to be nobody else's. */
void message_request(struct message *message, enum message_op op, const uint8_t *req);
void message_reply(struct message *reply, const struct message *request);

/* Writes a message to buffer and its size to used. A fault: WIRE_EROOM, or the message itself is
 * not to be sent (WIRE_EOP, WIRE_EMISSING, WIRE_EVALUE); field, which may be NULL, then names the
 * key (static, NULL where none is to blame), and the buffer holds rubbish. */
enum wire_fault message_encode(const struct message *message, void *buffer, size_t size,
                               size_t *used, const char **field);

/* Reads a message. On a fault all is zero but what an answer needs: `req` and `reply` from
 * WIRE_EVERSION on, `op` where it was known; field as above. Any bytes may be given. */
enum wire_fault message_decode(const void *bytes, size_t size, struct message *message,
                               const char **field);

/* The word of an op or of a verdict on the wire, "" where it has none; static. */
const char *message_op_word(enum message_op op);
const char *message_verdict_word(enum message_verdict verdict);

#endif
