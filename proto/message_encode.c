#include "proto/message_table.h"
#include "proto/value.h"

#include <string.h>

static enum wire_fault put_names(msgpack_packer *to, const struct message *message)
{
    if (message->provider_count > WIRE_PROVIDERS_MAX) {
        return WIRE_EVALUE;
    }
    if (msgpack_pack_array(to, message->provider_count) != 0) {
        return WIRE_EROOM;
    }
    for (uint32_t i = 0; i < message->provider_count; i++) {
        enum wire_fault fault = value_put_name(to, message->providers[i]);
        if (fault != WIRE_OK) {
            return fault;
        }
    }
    return WIRE_OK;
}

static enum wire_fault put_code(msgpack_packer *to, int32_t code)
{
    if (code > 0 || code < -WIRE_ERROR_MAX) {
        return WIRE_EVALUE;
    }
    return msgpack_pack_int32(to, code) == 0 ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_bytes(msgpack_packer *to, const struct message_bytes *bytes,
                                 const struct message_row *field)
{
    if (bytes->size > field->maximum) {
        return WIRE_EVALUE;
    }
    bool put = msgpack_pack_bin(to, bytes->size) == 0 &&
               msgpack_pack_bin_body(to, bytes->at, bytes->size) == 0;
    return put ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_field(msgpack_packer *to, const struct message *message,
                                 const struct message_row *field)
{
    const char *at = (const char *)message + field->offset;
    if (!value_put_word(to, field->key, field->key_size)) {
        return WIRE_EROOM;
    }
    switch (field->type) {
    case FLAG: return value_put_flag(to, *(const bool *)at);
    case CODE: return put_code(to, *(const int32_t *)(const void *)at);
    case KIND:
        return value_put_one_of(to, message_kinds, *(const enum message_kind *)(const void *)at,
                                field->maximum);
    case VERDICT:
        return value_put_one_of(to, message_verdicts,
                                *(const enum message_verdict *)(const void *)at, field->maximum);
    case U32: return value_put_number(to, *(const uint32_t *)(const void *)at, field->maximum);
    case U64: return value_put_number(to, *(const uint64_t *)(const void *)at, field->maximum);
    case ID: return value_put_id(to, (const uint8_t *)at);
    case NAMES: return put_names(to, message);
    case BYTES: return put_bytes(to, (const struct message_bytes *)(const void *)at, field);
    case TEXT: return value_put_text(to, at, field->maximum);
    case NAME: return value_put_name(to, at);
    }
    return WIRE_EVALUE;
}

/* The set of fields that go into the map. */
static uint64_t to_write(const struct message *message, size_t *count)
{
    uint64_t must = message_must_have(message);
    uint64_t may = message_may_have(message);
    uint64_t set = 0;
    *count = 0;
    for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
        uint64_t bit = UINT64_C(1) << i;
        if (must & bit || (may & bit && !message_is_empty(message, &message_rows[i]))) {
            set |= bit;
            ++*count;
        }
    }
    return set;
}

static bool put_head(msgpack_packer *to, const struct message *message, size_t count)
{
    const char *word = message_ops[message->op].word;
    return msgpack_pack_map(to, count + 3) == 0 && value_put_word(to, "v", 1) &&
           msgpack_pack_uint8(to, WIRE_VERSION) == 0 && value_put_word(to, "op", 2) &&
           value_put_word(to, word, strlen(word)) && value_put_word(to, "req", 3) &&
           value_put_id(to, message->req) == WIRE_OK;
}

static enum wire_fault put_message(struct value_sink *sink, const struct message *message,
                                   const char **field)
{
    msgpack_packer to;
    size_t count;
    uint64_t set = to_write(message, &count);
    value_begin(&to, sink);
    if (!put_head(&to, message, count)) {
        return WIRE_EROOM;
    }
    for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
        enum wire_fault fault =
            set & UINT64_C(1) << i ? put_field(&to, message, &message_rows[i]) : WIRE_OK;
        if (fault != WIRE_OK) {
            *field = fault == WIRE_EROOM ? NULL : message_rows[i].key;
            return fault;
        }
    }
    return WIRE_OK;
}

enum wire_fault message_encode(const struct message *message, void *buffer, size_t size,
                               size_t *used, const char **field)
{
    const char *nobody;
    field = field ? field : &nobody;
    *field = NULL;
    *used = 0;
    if ((unsigned)message->op >= MESSAGE_OP_COUNT ||
        (message->op == MESSAGE_REFUSAL && !message->reply)) {
        *field = "op";
        return WIRE_EOP;
    }
    enum wire_fault fault = message_check_whole(message, field);
    struct value_sink sink = {buffer, size < WIRE_MESSAGE_MAX ? size : WIRE_MESSAGE_MAX};
    if (fault == WIRE_OK) {
        fault = put_message(&sink, message, field);
    }
    if (fault == WIRE_OK) {
        *used = (size_t)(sink.at - (uint8_t *)buffer);
    }
    return fault;
}
