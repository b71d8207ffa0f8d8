#include "proto/message_table.h"

#include <string.h>

const struct message_row message_rows[MESSAGE_FIELD_COUNT] = {
#define FIELD_ROW(member, type, maximum)                                                           \
    {#member, sizeof #member - 1, type, offsetof(struct message, member), maximum},
    MESSAGE_FIELDS(FIELD_ROW)
#undef FIELD_ROW
};

const struct message_op_row message_ops[MESSAGE_OP_COUNT] = {
#define OP_ROW(op, word, must, may, reply_must, reply_may) {word, must, may, reply_must, reply_may},
    MESSAGE_OPS(OP_ROW)
#undef OP_ROW
};

_Static_assert(MESSAGE_FIELD_COUNT <= 64, "the sets of fields are 64 bits wide");

const char *const message_kinds[] = {[MESSAGE_DAEMON] = "daemon", [MESSAGE_EMBEDDED] = "embedded"};

const char *const message_verdicts[] = {
    [MESSAGE_GRANTED] = "granted",
    [MESSAGE_GO] = "go",
    [MESSAGE_NO] = "no",
    [MESSAGE_GONE] = "gone",
};

const char *message_op_word(enum message_op op)
{
    return (unsigned)op < MESSAGE_OP_COUNT ? message_ops[op].word : "";
}

const char *message_verdict_word(enum message_verdict verdict)
{
    bool known = verdict >= MESSAGE_GRANTED && verdict <= MESSAGE_GONE;
    return known ? message_verdicts[verdict] : "";
}

void message_clear(struct message *message)
{
    memset(message, 0, offsetof(struct message, providers));
}

void message_request(struct message *message, enum message_op op, const uint8_t *req)
{
    message_clear(message);
    message->op = op;
    memcpy(message->req, req, WIRE_ID_BYTES);
}

void message_reply(struct message *reply, const struct message *request)
{
    message_clear(reply);
    reply->op = request->op;
    reply->reply = true;
    memcpy(reply->req, request->req, WIRE_ID_BYTES);
}

uint64_t message_must_have(const struct message *message)
{
    const struct message_op_row *op = &message_ops[message->op];
    if (!message->reply) {
        return op->must;
    }
    return MESSAGE_HAS(ok) | (message->ok ? op->reply_must : MESSAGE_HAS(error));
}

uint64_t message_may_have(const struct message *message)
{
    const struct message_op_row *op = &message_ops[message->op];
    if (!message->reply) {
        return op->must | op->may;
    }
    return MESSAGE_HAS(ok) | MESSAGE_HAS(error) | MESSAGE_HAS(text) | op->reply_must |
           op->reply_may;
}

bool message_is_empty(const struct message *message, const struct message_row *row)
{
    static const uint8_t no_id[WIRE_ID_BYTES] = {0};
    const char *at = (const char *)message + row->offset;
    switch (row->type) {
    case FLAG: return !*(const bool *)at;
    case CODE: return *(const int32_t *)(const void *)at == 0;
    case KIND: return *(const enum message_kind *)(const void *)at == MESSAGE_NO_KIND;
    case VERDICT: return *(const enum message_verdict *)(const void *)at == MESSAGE_NO_VERDICT;
    case U32: return *(const uint32_t *)(const void *)at == 0;
    case U64: return *(const uint64_t *)(const void *)at == 0;
    case ID: return memcmp(at, no_id, sizeof no_id) == 0;
    case NAMES: return message->provider_count == 0;
    case BYTES: return ((const struct message_bytes *)(const void *)at)->size == 0;
    case TEXT:
    case NAME: return *at == '\0';
    }
    return true;
}

/* Types that say nothing at zero cannot be had by a message that must have them. */
static bool has_no_zero(enum field_type type)
{
    return type != FLAG && type != U32 && type != U64 && type != NAMES;
}

enum wire_fault message_check_whole(const struct message *message, const char **field)
{
    uint64_t must = message_must_have(message);
    for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
        if (must & UINT64_C(1) << i && has_no_zero(message_rows[i].type) &&
            message_is_empty(message, &message_rows[i])) {
            *field = message_rows[i].key;
            return WIRE_EMISSING;
        }
    }
    if (message->ok && (message->error != 0 || message->op == MESSAGE_REFUSAL)) {
        *field = "ok";
        return WIRE_EVALUE;
    }
    return WIRE_OK;
}
