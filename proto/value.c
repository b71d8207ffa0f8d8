#include "proto/value.h"

#include <string.h>

static int sink_write(void *context, const char *bytes, size_t size)
{
    struct value_sink *sink = context;
    if (size > sink->left) {
        return -1;
    }
    if (sink->at) {
        memcpy(sink->at, bytes, size);
        sink->at += size;
    }
    sink->left -= size;
    return 0;
}

void value_begin(msgpack_packer *to, struct value_sink *sink)
{
    msgpack_packer_init(to, sink, sink_write);
}

/* ---- writing ---------------------------------------------------------------------------- */

static enum wire_fault room(int rc)
{
    return rc == 0 ? WIRE_OK : WIRE_EROOM;
}

bool value_put_word(msgpack_packer *to, const char *word, size_t size)
{
    return msgpack_pack_str(to, size) == 0 && msgpack_pack_str_body(to, word, size) == 0;
}

enum wire_fault value_put_text(msgpack_packer *to, const char *text, uint64_t maximum)
{
    const char *end = memchr(text, 0, maximum + 1);
    if (!end || !wire_is_text((const uint8_t *)text, (size_t)(end - text))) {
        return WIRE_EVALUE;
    }
    return value_put_word(to, text, (size_t)(end - text)) ? WIRE_OK : WIRE_EROOM;
}

enum wire_fault value_put_name(msgpack_packer *to, const char *name)
{
    const char *end = memchr(name, 0, WIRE_NAME_MAX + 1);
    if (!end || !wire_is_name((const uint8_t *)name, (size_t)(end - name))) {
        return WIRE_EVALUE;
    }
    return value_put_word(to, name, (size_t)(end - name)) ? WIRE_OK : WIRE_EROOM;
}

enum wire_fault value_put_number(msgpack_packer *to, uint64_t number, uint64_t maximum)
{
    return number > maximum ? WIRE_EVALUE : room(msgpack_pack_uint64(to, number));
}

enum wire_fault value_put_flag(msgpack_packer *to, bool flag)
{
    return room(flag ? msgpack_pack_true(to) : msgpack_pack_false(to));
}

enum wire_fault value_put_id(msgpack_packer *to, const uint8_t *id)
{
    bool put = msgpack_pack_bin(to, WIRE_ID_BYTES) == 0 &&
               msgpack_pack_bin_body(to, id, WIRE_ID_BYTES) == 0;
    return put ? WIRE_OK : WIRE_EROOM;
}

enum wire_fault value_put_one_of(msgpack_packer *to, const char *const *words, uint64_t n,
                                 uint64_t maximum)
{
    if (n == 0 || n > maximum) {
        return WIRE_EVALUE;
    }
    return value_put_word(to, words[n], strlen(words[n])) ? WIRE_OK : WIRE_EROOM;
}

/* ---- taking ----------------------------------------------------------------------------- */

bool value_is_word(const struct wire_item *item, const char *word, size_t size)
{
    return item->type == WIRE_STR && item->count == size && memcmp(item->bytes, word, size) == 0;
}

static void copy(const struct wire_item *item, char *to)
{
    memcpy(to, item->bytes, item->count);
    to[item->count] = '\0';
}

enum wire_fault value_take_text(const struct wire_item *item, uint64_t maximum, char *to)
{
    if (item->type != WIRE_STR) {
        return WIRE_ETYPE;
    }
    if (item->count > maximum || !wire_is_text(item->bytes, item->count)) {
        return WIRE_EVALUE;
    }
    copy(item, to);
    return WIRE_OK;
}

enum wire_fault value_take_name(const struct wire_item *item, char *to)
{
    if (item->type != WIRE_STR) {
        return WIRE_ETYPE;
    }
    if (!wire_is_name(item->bytes, item->count)) {
        return WIRE_EVALUE;
    }
    copy(item, to);
    return WIRE_OK;
}

enum wire_fault value_take_number(const struct wire_item *item, uint64_t maximum, uint64_t *number)
{
    if (item->type != WIRE_UINT) {
        return item->type == WIRE_NEGATIVE ? WIRE_EVALUE : WIRE_ETYPE;
    }
    *number = item->number;
    return item->number > maximum ? WIRE_EVALUE : WIRE_OK;
}

enum wire_fault value_take_flag(const struct wire_item *item, bool *flag)
{
    *flag = item->type == WIRE_BOOL && item->number != 0;
    return item->type == WIRE_BOOL ? WIRE_OK : WIRE_ETYPE;
}

enum wire_fault value_take_id(const struct wire_item *item, uint8_t *id)
{
    if (item->type != WIRE_BIN) {
        return WIRE_ETYPE;
    }
    if (item->count != WIRE_ID_BYTES) {
        return WIRE_EVALUE;
    }
    memcpy(id, item->bytes, WIRE_ID_BYTES);
    return WIRE_OK;
}

enum wire_fault value_take_one_of(const struct wire_item *item, const char *const *words,
                                  uint64_t maximum, uint64_t *n)
{
    for (uint64_t i = 1; i <= maximum; i++) {
        if (value_is_word(item, words[i], strlen(words[i]))) {
            *n = i;
            return WIRE_OK;
        }
    }
    return item->type == WIRE_STR ? WIRE_EVALUE : WIRE_ETYPE;
}
