#include "proto/message_table.h"

#include <msgpack/pack.h>
#include <string.h>

struct sink {
    uint8_t *at;
    size_t left;
};

static int sink_write(void *context, const char *bytes, size_t size)
{
    struct sink *sink = context;
    if (size > sink->left) {
        return -1;
    }
    memcpy(sink->at, bytes, size);
    sink->at += size;
    sink->left -= size;
    return 0;
}

static bool put_text(msgpack_packer *to, const char *text, size_t size)
{
    return msgpack_pack_str(to, size) == 0 && msgpack_pack_str_body(to, text, size) == 0;
}

static bool put_word(msgpack_packer *to, const char *word)
{
    return put_text(to, word, strlen(word));
}

static bool put_bytes(msgpack_packer *to, const uint8_t *bytes)
{
    return msgpack_pack_bin(to, WIRE_ID_BYTES) == 0 &&
           msgpack_pack_bin_body(to, bytes, WIRE_ID_BYTES) == 0;
}

/* Of text that the caller wrote into a member; it may have forgotten the end. */
static enum wire_fault put_string(msgpack_packer *to, const char *text,
                                  const struct message_row *field)
{
    const char *end = memchr(text, 0, field->maximum + 1);
    if (!end) {
        return WIRE_EVALUE;
    }
    size_t size = (size_t)(end - text);
    const uint8_t *bytes = (const uint8_t *)text;
    if (field->type == TEXT ? !wire_is_text(bytes, size) : !wire_is_name(bytes, size)) {
        return WIRE_EVALUE;
    }
    return put_text(to, text, size) ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_names(msgpack_packer *to, const struct message *message)
{
    static const struct message_row one = {.type = NAME, .maximum = WIRE_NAME_MAX};
    if (message->provider_count > WIRE_PROVIDERS_MAX) {
        return WIRE_EVALUE;
    }
    if (msgpack_pack_array(to, message->provider_count) != 0) {
        return WIRE_EROOM;
    }
    for (uint32_t i = 0; i < message->provider_count; i++) {
        enum wire_fault fault = put_string(to, message->providers[i], &one);
        if (fault != WIRE_OK) {
            return fault;
        }
    }
    return WIRE_OK;
}

static enum wire_fault put_number(msgpack_packer *to, uint64_t number, uint64_t maximum)
{
    if (number > maximum) {
        return WIRE_EVALUE;
    }
    return msgpack_pack_uint64(to, number) == 0 ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_code(msgpack_packer *to, int32_t code)
{
    if (code > 0 || code < -WIRE_ERROR_MAX) {
        return WIRE_EVALUE;
    }
    return msgpack_pack_int32(to, code) == 0 ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_one_of(msgpack_packer *to, unsigned n, const char *const *words,
                                  uint64_t maximum)
{
    if (n == 0 || n > maximum) {
        return WIRE_EVALUE;
    }
    return put_word(to, words[n]) ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_value(msgpack_packer *to, const struct message_bytes *bytes,
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
    if (!put_word(to, field->key)) {
        return WIRE_EROOM;
    }
    switch (field->type) {
    case FLAG:
        return (*(const bool *)at ? msgpack_pack_true(to) : msgpack_pack_false(to)) == 0
                   ? WIRE_OK
                   : WIRE_EROOM;
    case CODE: return put_code(to, *(const int32_t *)(const void *)at);
    case KIND:
        return put_one_of(to, (unsigned)*(const enum message_kind *)(const void *)at, message_kinds,
                          field->maximum);
    case VERDICT:
        return put_one_of(to, (unsigned)*(const enum message_verdict *)(const void *)at,
                          message_verdicts, field->maximum);
    case U32: return put_number(to, *(const uint32_t *)(const void *)at, field->maximum);
    case U64: return put_number(to, *(const uint64_t *)(const void *)at, field->maximum);
    case ID: return put_bytes(to, (const uint8_t *)at) ? WIRE_OK : WIRE_EROOM;
    case NAMES: return put_names(to, message);
    case BYTES: return put_value(to, (const struct message_bytes *)(const void *)at, field);
    case TEXT:
    case NAME: return put_string(to, at, field);
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
    return msgpack_pack_map(to, count + 3) == 0 && put_word(to, "v") &&
           msgpack_pack_uint8(to, WIRE_VERSION) == 0 && put_word(to, "op") &&
           put_word(to, message_ops[message->op].word) && put_word(to, "req") &&
           put_bytes(to, message->req);
}

static enum wire_fault put_message(struct sink *sink, const struct message *message,
                                   const char **field)
{
    msgpack_packer to;
    size_t count;
    uint64_t set = to_write(message, &count);
    msgpack_packer_init(&to, sink, sink_write);
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
    struct sink sink = {buffer, size < WIRE_MESSAGE_MAX ? size : WIRE_MESSAGE_MAX};
    if (fault == WIRE_OK) {
        fault = put_message(&sink, message, field);
    }
    if (fault == WIRE_OK) {
        *used = (size_t)(sink.at - (uint8_t *)buffer);
    }
    return fault;
}
