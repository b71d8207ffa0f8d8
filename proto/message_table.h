/* The catalogue of message.h as tables; for the codec alone. */
#ifndef PROTO_MESSAGE_TABLE_H
#define PROTO_MESSAGE_TABLE_H

#include "proto/message.h"

enum field_type { FLAG, CODE, TEXT, NAME, ID, KIND, VERDICT, U32, U64, NAMES, BYTES };

struct message_row {
    const char *key;
    size_t key_size;
    enum field_type type;
    size_t offset; /* in struct message */
    uint64_t maximum;
};

struct message_op_row {
    const char *word;
    uint64_t must, may, reply_must, reply_may; /* MESSAGE_HAS(...) */
};

extern const struct message_row message_rows[MESSAGE_FIELD_COUNT];
extern const struct message_op_row message_ops[MESSAGE_OP_COUNT];
extern const char *const message_kinds[];    /* by enum message_kind, the first one is NULL */
extern const char *const message_verdicts[]; /* by enum message_verdict, the same */

/* The fields that a message of this op must have, and all that it may have. */
uint64_t message_must_have(const struct message *message);
uint64_t message_may_have(const struct message *message);

/* Whether there is nothing in a field. */
bool message_is_empty(const struct message *message, const struct message_row *row);

/* What binds the fields to each other, the same for what is sent and for what was read:
 * WIRE_EMISSING or WIRE_EVALUE and the key to blame. */
enum wire_fault message_check_whole(const struct message *message, const char **field);

#endif
