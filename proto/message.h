/* What agents say to each other: one catalogue, from which the codec reads and writes.
 *
 * A message is a request or the reply to one. On the wire it is one msgpack map: `v`, `op` and
 * `req`, and the fields that its op has; a reply is what carries `ok`. README.md beside this file
 * has it byte by byte. Unknown keys are passed over, so that fields can be added; a key that stands
 * there twice is a fault.
 *
 * Nothing here allocates, and a message points nowhere: copy it as it is. Safe from any thread. */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/wire.h"

/* Room for whatever message_encode writes. */
#define MESSAGE_PACKED_MAX 8192

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
    X(provider, NAME, WIRE_NAME_MAX)

enum message_field {
#define MESSAGE_FIELD_NAME(member, type, maximum) MESSAGE_FIELD_##member,
    MESSAGE_FIELDS(MESSAGE_FIELD_NAME)
#undef MESSAGE_FIELD_NAME
        MESSAGE_FIELD_COUNT
};

#define MESSAGE_HAS(member) (UINT32_C(1) << MESSAGE_FIELD_##member)
#define MESSAGE_HAS_NONE    UINT32_C(0)
#define MESSAGE_HAS_SENDER                                                                         \
    (MESSAGE_HAS(name) | MESSAGE_HAS(id) | MESSAGE_HAS(version) | MESSAGE_HAS(kind) |              \
     MESSAGE_HAS(pid))
#define MESSAGE_HAS_STATE (MESSAGE_HAS(uptime_ms) | MESSAGE_HAS(providers) | MESSAGE_HAS(directory))

/* X(op, word, request must have, may have; reply must have where it is ok, may have). Every reply
 * has `ok`; one that is not ok must have `error` and may lack all else; `text` is always allowed.
 *   hello  who are you? The asker may say who it is.
 *   status the same with what the speaker works on.
 *   yield  leave the sockets to me, a daemon: ok when the asked is about to close them.
 *   read   make a reading of this provider now: ok when it is begun; it arrives in the book.
 *   refusal the reply where the request's op is unknown or could not be read; never ok. */
#define MESSAGE_OPS(X)                                                                             \
    X(MESSAGE_REFUSAL, "refusal", MESSAGE_HAS_NONE, MESSAGE_HAS_NONE, MESSAGE_HAS(error),          \
      MESSAGE_HAS_NONE)                                                                            \
    X(MESSAGE_HELLO, "hello", MESSAGE_HAS_NONE, MESSAGE_HAS_SENDER, MESSAGE_HAS_SENDER,            \
      MESSAGE_HAS_STATE)                                                                           \
    X(MESSAGE_STATUS, "status", MESSAGE_HAS_NONE, MESSAGE_HAS_SENDER,                              \
      (MESSAGE_HAS_SENDER | MESSAGE_HAS_STATE), MESSAGE_HAS_NONE)                                  \
    X(MESSAGE_YIELD, "yield", MESSAGE_HAS(kind), MESSAGE_HAS_SENDER, MESSAGE_HAS_NONE,             \
      MESSAGE_HAS_SENDER)                                                                          \
    X(MESSAGE_READ, "read", MESSAGE_HAS(provider), MESSAGE_HAS_SENDER, MESSAGE_HAS_NONE,           \
      MESSAGE_HAS_NONE)

enum message_op {
#define MESSAGE_OP_NAME(op, word, must, may, reply_must, reply_may) op,
    MESSAGE_OPS(MESSAGE_OP_NAME)
#undef MESSAGE_OP_NAME
        MESSAGE_OP_COUNT
};

/* On the wire "daemon" and "embedded". */
enum message_kind { MESSAGE_NO_KIND = 0, MESSAGE_DAEMON, MESSAGE_EMBEDDED };

/* A field that a message does not have is zero. Where its op must have it, it is written whatever
 * it is; where it may, unless it is zero. */
struct message {
    enum message_op op;
    bool reply;
    uint8_t req[WIRE_ID_BYTES]; /* drawn by the asker, repeated in the reply */

    bool ok;                         /* replies: done, or granted */
    int32_t error;                   /* replies that are not ok: a LEASE_E... */
    char text[WIRE_TEXT_MAX + 1];    /* replies: one line for people */
    char name[WIRE_NAME_MAX + 1];    /* the sender's host, as it is configured */
    uint8_t id[WIRE_ID_BYTES];       /* the sender's lasting id */
    char version[WIRE_NAME_MAX + 1]; /* of its program, "0.1.0" */
    enum message_kind kind;          /* whether it is the daemon or inside another */
    uint32_t pid;                    /* of its process, in its own pid namespace */
    uint64_t uptime_ms;              /* since it began to speak */
    uint32_t provider_count;         /* of `providers`, which it speaks for */
    char providers[WIRE_PROVIDERS_MAX][WIRE_NAME_MAX + 1];
    char directory[WIRE_DIRECTORY_MAX + 1]; /* its runtime directory */
    char provider[WIRE_NAME_MAX + 1];       /* the one that is asked about */
};

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

/* The word of an op on the wire; static. */
const char *message_op_word(enum message_op op);

#endif
