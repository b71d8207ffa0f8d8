#include "proto/gossip_table.h"

#include <string.h>

#include "proto/value.h"

#define ARRAY_HEAD 3 /* bytes; written before it is known how many elements follow */

static bool is_empty(const struct gossip_row *row, const char *object)
{
    static const uint8_t no_id[WIRE_ID_BYTES] = {0};
    const void *at = object + row->offset;
    switch ((enum gossip_type)row->type) {
    case ID: return memcmp(at, no_id, sizeof no_id) == 0;
    case TEXT:
    case NAME: return *(const char *)at == '\0';
    case LEASE_STATE: return *(const enum gossip_lease_state *)at == 0;
    case FLAG: return !*(const bool *)at;
    case U32: return *(const uint32_t *)at == 0;
    case U64: return *(const uint64_t *)at == 0;
    case I32: return *(const int32_t *)at < 0;
    case I64: return *(const int64_t *)at < 0;
    case LIST: return *gossip_list_of(row, (char *)(uintptr_t)object).count == 0;
    case VERSION:
    case OP:
    case MAP:
    case OUTSIDE: break;
    }
    return false;
}

/* Says nothing where it is empty, so that one that must be there is not. */
static bool has_no_zero(const struct gossip_row *row)
{
    return row->type == ID || row->type == TEXT || row->type == NAME;
}

/* Begins a map, and says which rows go into it. */
static enum wire_fault put_head(msgpack_packer *to, const struct gossip_map *map,
                                const char *object, uint32_t *rows)
{
    uint32_t count = 0;
    *rows = 0;
    for (uint32_t i = 0; i < map->row_count; i++) {
        const struct gossip_row *row = &map->rows[i];
        bool empty = is_empty(row, object);
        if (empty && row->must && has_no_zero(row)) {
            return WIRE_EMISSING;
        }
        if (!empty || row->must) {
            *rows |= UINT32_C(1) << i;
            count++;
        }
    }
    return msgpack_pack_map(to, count) == 0 ? WIRE_OK : WIRE_EROOM;
}

static enum wire_fault put_value(msgpack_packer *to, const struct gossip_map *map,
                                 const struct gossip_row *row, const char *object)
{
    const void *at = object + row->offset;
    switch ((enum gossip_type)row->type) {
    case VERSION: return value_put_number(to, WIRE_VERSION, WIRE_VERSION);
    case OP: return value_put_word(to, map->op, strlen(map->op)) ? WIRE_OK : WIRE_EROOM;
    case ID: return value_put_id(to, at);
    case TEXT: return value_put_text(to, at, row->maximum);
    case NAME: return value_put_name(to, at);
    case LEASE_STATE:
        return value_put_one_of(to, gossip_lease_states, *(const enum gossip_lease_state *)at,
                                row->maximum);
    case FLAG: return value_put_flag(to, *(const bool *)at);
    case U32: return value_put_number(to, *(const uint32_t *)at, row->maximum);
    case U64: return value_put_number(to, *(const uint64_t *)at, row->maximum);
    case I32: return value_put_number(to, (uint64_t) * (const int32_t *)at, row->maximum);
    case I64: return value_put_number(to, (uint64_t) * (const int64_t *)at, row->maximum);
    case MAP:
    case LIST:
    case OUTSIDE: break;
    }
    return WIRE_EVALUE;
}

/* A map without maps in it. */
static enum wire_fault put_flat(msgpack_packer *to, const struct gossip_map *map,
                                const char *object)
{
    uint32_t rows;
    enum wire_fault fault = put_head(to, map, object, &rows);
    for (uint32_t i = 0; fault == WIRE_OK && i < map->row_count; i++) {
        if (rows & UINT32_C(1) << i) {
            const struct gossip_row *row = &map->rows[i];
            fault = value_put_word(to, row->key, row->key_size) ? put_value(to, map, row, object)
                                                                : WIRE_EROOM;
        }
    }
    return fault;
}

static enum wire_fault put_list(msgpack_packer *to, const struct gossip_list *list)
{
    enum wire_fault fault = *list->count > list->room                   ? WIRE_EVALUE
                            : msgpack_pack_array(to, *list->count) != 0 ? WIRE_EROOM
                                                                        : WIRE_OK;
    for (uint32_t i = 0; fault == WIRE_OK && i < *list->count; i++) {
        fault = put_flat(to, list->of, list->first + (size_t)i * list->of->size);
    }
    return fault;
}

static enum wire_fault put_row(msgpack_packer *to, const struct gossip_map *map,
                               const struct gossip_row *row, const char *object)
{
    struct gossip_list list;
    if (!value_put_word(to, row->key, row->key_size)) {
        return WIRE_EROOM;
    }
    switch (row->type) {
    case MAP: return put_flat(to, &gossip_maps[row->maximum], object + row->offset);
    case LIST: list = gossip_list_of(row, (char *)(uintptr_t)object); return put_list(to, &list);
    case OUTSIDE: return WIRE_OK; /* the last row: its array is written behind */
    default: return put_value(to, map, row, object);
    }
}

/* All of a whole map but the array that the caller brings along, of which there is the key. */
static enum wire_fault put_map(msgpack_packer *to, enum gossip_map_name name, const void *object)
{
    const struct gossip_map *map = &gossip_maps[name];
    uint32_t rows;
    enum wire_fault fault = put_head(to, map, object, &rows);
    for (uint32_t i = 0; fault == WIRE_OK && i < map->row_count; i++) {
        if (rows & UINT32_C(1) << i) {
            fault = put_row(to, map, &map->rows[i], object);
        }
    }
    return fault;
}

/* An array of as many elements from *next on as there is room for; moves on behind them. */
static enum wire_fault put_some(struct value_sink *sink, msgpack_packer *to,
                                const struct gossip_map *of, const void *first, uint32_t count,
                                uint32_t *next)
{
    uint8_t *head = sink->at;
    uint32_t begin = *next;
    if (sink->left < ARRAY_HEAD) {
        return WIRE_EROOM;
    }
    sink->at += ARRAY_HEAD;
    sink->left -= ARRAY_HEAD;
    while (*next < count) {
        struct value_sink before = *sink;
        enum wire_fault fault = put_flat(to, of, (const char *)first + (size_t)*next * of->size);
        if (fault == WIRE_EROOM) {
            *sink = before;
            break;
        }
        if (fault != WIRE_OK) {
            return fault;
        }
        ++*next;
    }
    head[0] = 0xdc;
    head[1] = (uint8_t)((*next - begin) >> 8);
    head[2] = (uint8_t)(*next - begin);
    return WIRE_OK;
}

static struct value_sink sink_of(void *buffer, size_t size)
{
    return (struct value_sink){buffer, size < WIRE_STATE_MAX ? size : WIRE_STATE_MAX};
}

static enum wire_fault put_alone(enum gossip_map_name name, const void *object, void *buffer,
                                 size_t size, size_t *used)
{
    struct value_sink sink = sink_of(buffer, size);
    msgpack_packer to;
    value_begin(&to, &sink);
    enum wire_fault fault = put_map(&to, name, object);
    *used = fault == WIRE_OK ? (size_t)(sink.at - (uint8_t *)buffer) : 0;
    return fault;
}

enum wire_fault gossip_claim_encode(const struct gossip_claim *claim, void *buffer, size_t size,
                                    size_t *used)
{
    *used = 0;
    enum wire_fault fault = gossip_check_claim(claim);
    return fault == WIRE_OK ? put_alone(GOSSIP_MAP_CLAIM, claim, buffer, size, used) : fault;
}

enum wire_fault gossip_beat_encode(const struct gossip_beat *beat, void *buffer, size_t size,
                                   size_t *used)
{
    return put_alone(GOSSIP_MAP_BEAT, beat, buffer, size, used);
}

/* `part` and `parts` are a byte each, whatever they are: the head is as long in every part. */
_Static_assert(WIRE_PARTS_MAX < 128, "a part's number is one byte");

uint32_t gossip_state_parts(const struct gossip_state *state, const struct gossip_lease *leases,
                            uint32_t count)
{
    struct value_sink sink = {NULL, WIRE_STATE_MAX}; /* which only counts */
    msgpack_packer to;
    value_begin(&to, &sink);
    (void)put_map(&to, GOSSIP_MAP_STATE, state);
    size_t room = sink.left > ARRAY_HEAD ? sink.left - ARRAY_HEAD : 0;
    size_t left = room;
    uint32_t parts = 1;
    for (uint32_t i = 0; i < count; i++) {
        sink.left = WIRE_STATE_MAX;
        (void)put_flat(&to, &gossip_maps[GOSSIP_MAP_LEASE], (const char *)&leases[i]);
        size_t size = WIRE_STATE_MAX - sink.left;
        if (size > left) {
            parts++;
            left = room;
        }
        left -= size < left ? size : left;
    }
    return parts;
}

enum wire_fault gossip_state_encode(const struct gossip_state *state,
                                    const struct gossip_lease *leases, uint32_t count,
                                    uint32_t *next, void *buffer, size_t size, size_t *used)
{
    struct value_sink sink = sink_of(buffer, size);
    uint32_t behind = *next;
    msgpack_packer to;
    *used = 0;
    value_begin(&to, &sink);
    enum wire_fault fault = gossip_check_state(state, leases, count);
    if (fault == WIRE_OK && count != state->leases) {
        fault = WIRE_EVALUE;
    }
    if (fault == WIRE_OK) {
        fault = put_map(&to, GOSSIP_MAP_STATE, state);
    }
    if (fault == WIRE_OK) {
        fault = put_some(&sink, &to, &gossip_maps[GOSSIP_MAP_LEASE], leases, count, &behind);
    }
    /* Cut by the size of a part, but not by a smaller buffer, nor in the last one. */
    if (fault == WIRE_OK && behind < count &&
        (size < WIRE_STATE_MAX || state->part + 1 == state->parts || behind == *next)) {
        fault = WIRE_EROOM;
    }
    if (fault == WIRE_OK) {
        *next = behind;
        *used = (size_t)(sink.at - (uint8_t *)buffer);
    }
    return fault;
}

enum wire_fault gossip_peers_encode(const struct gossip_peer *peers, uint32_t count, void *buffer,
                                    size_t size, size_t *used)
{
    struct gossip_peer nobody = {.name = ""}; /* the map itself has no struct */
    struct value_sink sink = sink_of(buffer, size);
    uint32_t next = 0;
    msgpack_packer to;
    *used = 0;
    value_begin(&to, &sink);
    enum wire_fault fault = put_map(&to, GOSSIP_MAP_PEERS, &nobody);
    if (fault == WIRE_OK) {
        count = count < WIRE_PEERS_MAX ? count : WIRE_PEERS_MAX;
        fault = put_some(&sink, &to, &gossip_maps[GOSSIP_MAP_PEER], peers, count, &next);
    }
    if (fault == WIRE_OK) {
        *used = (size_t)(sink.at - (uint8_t *)buffer);
    }
    return fault;
}
