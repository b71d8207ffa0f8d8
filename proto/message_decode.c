#include "proto/message_table.h"
#include "proto/value.h"

#include <string.h>

/* Where the value of each key begins; `at` is NULL for one that is not there. */
struct found {
    struct wire_place version, op, req;
    struct wire_place field[MESSAGE_FIELD_COUNT];
    unsigned next;     /* the field to look for first */
    const char *twice; /* a key that came again */
};

static struct wire_place *place_of_field(struct found *found, const struct wire_item *key,
                                         const char **word)
{
    /* Whoever writes by the catalogue writes in its order: the next key is a later one. */
    for (unsigned n = 0, i = found->next; n < MESSAGE_FIELD_COUNT; n++) {
        if (value_is_word(key, message_rows[i].key, message_rows[i].key_size)) {
            found->next = (i + 1) % MESSAGE_FIELD_COUNT;
            *word = message_rows[i].key;
            return &found->field[i];
        }
        i = (i + 1) % MESSAGE_FIELD_COUNT;
    }
    return NULL;
}

static struct wire_place *place_of(struct found *found, const struct wire_item *key,
                                   const char **word)
{
    if (value_is_word(key, *word = "v", 1)) {
        return &found->version;
    }
    if (value_is_word(key, *word = "op", 2)) {
        return &found->op;
    }
    if (value_is_word(key, *word = "req", 3)) {
        return &found->req;
    }
    return place_of_field(found, key, word);
}

/* Looks the whole message over, and notes where the known keys are. */
static enum wire_fault find(struct wire_place place, struct found *found)
{
    struct wire_place whole = place;
    struct wire_item map, key;
    memset(found, 0, sizeof *found);
    enum wire_fault fault = wire_skip(&whole, WIRE_DEPTH_MAX);
    if (fault != WIRE_OK) {
        return fault;
    }
    if (whole.at != whole.end) {
        return WIRE_EEXTRA;
    }
    if (wire_next(&place, &map) != WIRE_OK || map.type != WIRE_MAP) {
        return WIRE_ESHAPE;
    }
    for (uint32_t i = 0; i < map.count; i++) {
        const char *word;
        if (wire_next(&place, &key) != WIRE_OK || key.type != WIRE_STR) {
            return WIRE_ESHAPE;
        }
        struct wire_place *value = place_of(found, &key, &word);
        if (value && value->at) {
            found->twice = word;
        } else if (value) {
            *value = place;
        }
        (void)wire_skip(&place, WIRE_DEPTH_MAX - 1); /* seen to be right above */
    }
    return WIRE_OK;
}

/* The value at a place that was found; a key that is not there reads as nil. */
static struct wire_item value_at(struct wire_place place)
{
    struct wire_item item = {.type = WIRE_NIL};
    if (place.at) {
        (void)wire_next(&place, &item);
    }
    return item;
}

static enum wire_fault take_names(struct wire_place place, struct message *message)
{
    struct wire_item array, name;
    if (wire_next(&place, &array) != WIRE_OK || array.type != WIRE_ARRAY) {
        return WIRE_ETYPE;
    }
    if (array.count > WIRE_PROVIDERS_MAX) {
        return WIRE_EVALUE;
    }
    for (uint32_t i = 0; i < array.count; i++) {
        if (wire_next(&place, &name) != WIRE_OK) {
            return WIRE_ETYPE;
        }
        enum wire_fault fault = value_take_name(&name, message->providers[i]);
        if (fault != WIRE_OK) {
            return fault;
        }
    }
    message->provider_count = array.count;
    return WIRE_OK;
}

static enum wire_fault take_code(const struct wire_item *item, int32_t *code)
{
    if (item->type != WIRE_NEGATIVE && item->type != WIRE_UINT) {
        return WIRE_ETYPE;
    }
    if (item->type == WIRE_UINT ? item->number != 0 : (int64_t)item->number < -WIRE_ERROR_MAX) {
        return WIRE_EVALUE;
    }
    *code = (int32_t)(int64_t)item->number;
    return WIRE_OK;
}

static enum wire_fault take_bytes(const struct wire_item *item, const struct message_row *field,
                                  struct message_bytes *bytes)
{
    if (item->type != WIRE_BIN) {
        return WIRE_ETYPE;
    }
    if (item->count > field->maximum) {
        return WIRE_EVALUE;
    }
    *bytes = (struct message_bytes){item->bytes, item->count};
    return WIRE_OK;
}

static enum wire_fault take_field(struct wire_place place, const struct message_row *field,
                                  struct message *message)
{
    char *at = (char *)message + field->offset;
    struct wire_item item = value_at(place);
    uint64_t number = 0;
    enum wire_fault fault;
    switch (field->type) {
    case FLAG: return value_take_flag(&item, (bool *)at);
    case CODE: return take_code(&item, (int32_t *)(void *)at);
    case KIND:
        fault = value_take_one_of(&item, message_kinds, field->maximum, &number);
        *(enum message_kind *)(void *)at = (enum message_kind)number;
        return fault;
    case VERDICT:
        fault = value_take_one_of(&item, message_verdicts, field->maximum, &number);
        *(enum message_verdict *)(void *)at = (enum message_verdict)number;
        return fault;
    case U32:
        fault = value_take_number(&item, field->maximum, &number);
        *(uint32_t *)(void *)at = (uint32_t)number;
        return fault;
    case U64: return value_take_number(&item, field->maximum, (uint64_t *)(void *)at);
    case ID: return value_take_id(&item, (uint8_t *)at);
    case NAMES: return take_names(place, message);
    case BYTES: return take_bytes(&item, field, (struct message_bytes *)(void *)at);
    case TEXT: return value_take_text(&item, field->maximum, at);
    case NAME: return value_take_name(&item, at);
    }
    return WIRE_ETYPE;
}

/* `ok` comes first in the table, so what a reply must have is known when the others are read. */
static enum wire_fault take_fields(const struct found *found, struct message *message,
                                   const char **field)
{
    for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
        uint64_t bit = UINT64_C(1) << i;
        bool there = value_at(found->field[i]).type != WIRE_NIL;
        enum wire_fault fault = WIRE_OK;
        if (!there && message_must_have(message) & bit) {
            fault = WIRE_EMISSING;
        } else if (there && message_may_have(message) & bit) {
            fault = take_field(found->field[i], &message_rows[i], message);
        }
        if (fault != WIRE_OK) {
            *field = message_rows[i].key;
            return fault;
        }
    }
    return message_check_whole(message, field);
}

static enum wire_fault take_version(const struct found *found, const char **field)
{
    struct wire_item version = value_at(found->version);
    bool spoken = version.type == WIRE_UINT && version.number == WIRE_VERSION;
    *field = spoken ? found->twice : "v";
    return !spoken ? WIRE_EVERSION : found->twice ? WIRE_ETWICE : WIRE_OK;
}

/* A refusal is no request. */
static enum wire_fault take_op(const struct found *found, struct message *message)
{
    struct wire_item op = value_at(found->op);
    for (unsigned i = message->reply ? MESSAGE_REFUSAL : MESSAGE_HELLO; i < MESSAGE_OP_COUNT; i++) {
        if (value_is_word(&op, message_ops[i].word, strlen(message_ops[i].word))) {
            message->op = (enum message_op)i;
            return WIRE_OK;
        }
    }
    return WIRE_EOP;
}

/* Takes out what was read before a fault, so that nobody uses half a message. */
static void keep_head(struct message *message)
{
    enum message_op op = message->op;
    bool reply = message->reply;
    uint8_t req[WIRE_ID_BYTES];
    memcpy(req, message->req, sizeof req);
    message_request(message, op, req);
    message->reply = reply;
}

enum wire_fault message_decode(const void *bytes, size_t size, struct message *message,
                               const char **field)
{
    const char *nobody;
    struct found found;
    field = field ? field : &nobody;
    *field = NULL;
    message_clear(message);
    if (size > WIRE_MESSAGE_MAX) {
        return WIRE_ELONG;
    }
    const uint8_t *at = bytes;
    enum wire_fault fault = find((struct wire_place){at, at + size}, &found);
    if (fault != WIRE_OK) {
        return fault;
    }
    struct wire_item req = value_at(found.req);
    if (value_take_id(&req, message->req) != WIRE_OK) {
        *field = "req";
        return WIRE_EREQ;
    }
    message->reply = found.field[MESSAGE_FIELD_ok].at != NULL;
    fault = take_version(&found, field);
    if (fault == WIRE_OK && (fault = take_op(&found, message)) != WIRE_OK) {
        *field = "op";
    }
    if (fault == WIRE_OK && (fault = take_fields(&found, message, field)) != WIRE_OK) {
        keep_head(message);
    }
    return fault;
}
