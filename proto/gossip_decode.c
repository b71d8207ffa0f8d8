#include "proto/gossip_table.h"

#include <string.h>

#include "proto/value.h"

/* Through the pairs of one map, from one known key that has a value to the next. */
struct walk {
    struct wire_place *place;
    const struct gossip_map *map;
    uint32_t left;      /* pairs to come */
    uint32_t next;      /* the row to look for first */
    uint32_t seen;      /* rows whose key was there */
    uint32_t must_left; /* rows that must be there and were not yet */
    unsigned depth;     /* that a value in it may have */
};

static enum wire_fault walk_begin(struct walk *walk, struct wire_place *place,
                                  const struct gossip_map *map, unsigned depth)
{
    struct wire_item item;
    enum wire_fault fault = wire_next(place, &item);
    if (fault != WIRE_OK || item.type != WIRE_MAP) {
        return fault != WIRE_OK ? fault : WIRE_ETYPE;
    }
    *walk = (struct walk){.place = place,
                          .map = map,
                          .left = item.count,
                          .must_left = map->must_count,
                          .depth = depth};
    return WIRE_OK;
}

/* Whoever writes by the catalogue writes in its order: the next key is a later one. */
static const struct gossip_row *row_of(struct walk *walk, const struct wire_item *key)
{
    uint32_t count = walk->map->row_count;
    for (uint32_t n = 0, i = walk->next; n < count; n++, i++) {
        i = i < count ? i : 0;
        if (value_is_word(key, walk->map->rows[i].key, walk->map->rows[i].key_size)) {
            walk->next = i + 1;
            return &walk->map->rows[i];
        }
    }
    return NULL;
}

static bool skip_nil(struct wire_place *place)
{
    bool nil = place->at < place->end && *place->at == 0xc0;
    place->at += nil ? 1 : 0;
    return nil;
}

/* The next row, whose value is at walk->place; NULL at the end, where all that must be there was. */
static enum wire_fault walk_next(struct walk *walk, const struct gossip_row **row)
{
    struct wire_item key;
    while (walk->left > 0) {
        enum wire_fault fault = wire_next(walk->place, &key);
        if (fault != WIRE_OK || key.type != WIRE_STR) {
            return fault != WIRE_OK ? fault : WIRE_ESHAPE;
        }
        walk->left--;
        *row = row_of(walk, &key);
        if (!*row) {
            if ((fault = wire_skip(walk->place, walk->depth)) != WIRE_OK) {
                return fault;
            }
            continue;
        }
        uint32_t bit = UINT32_C(1) << (*row - walk->map->rows);
        if (walk->seen & bit) {
            return WIRE_ETWICE;
        }
        walk->seen |= bit;
        if (!skip_nil(walk->place)) {
            walk->must_left -= (*row)->must ? 1 : 0;
            return WIRE_OK;
        }
    }
    *row = NULL;
    return walk->must_left > 0 ? WIRE_EMISSING : WIRE_OK;
}

/* What a struct is before anything was read into it. */
static void clear(const struct gossip_map *map, char *object)
{
    memset(object, 0, map->cleared);
    for (uint32_t i = 0; i < map->row_count; i++) {
        const struct gossip_row *row = &map->rows[i];
        if (row->type == I32) {
            *(int32_t *)(void *)(object + row->offset) = -1;
        } else if (row->type == I64) {
            *(int64_t *)(void *)(object + row->offset) = -1;
        }
    }
}

static enum wire_fault take_number(const struct gossip_row *row, const struct wire_item *item,
                                   void *at)
{
    uint64_t number = 0;
    enum wire_fault fault = value_take_number(item, row->maximum, &number);
    if (fault != WIRE_OK) {
        return fault;
    }
    switch (row->type) {
    case U32: *(uint32_t *)at = (uint32_t)number; break;
    case I32: *(int32_t *)at = (int32_t)number; break;
    case I64: *(int64_t *)at = (int64_t)number; break;
    default: *(uint64_t *)at = number; break;
    }
    return WIRE_OK;
}

/* One that has something in it, where it must. */
static enum wire_fault take_text(const struct gossip_row *row, const struct wire_item *item,
                                 char *at)
{
    enum wire_fault fault = value_take_text(item, row->maximum, at);
    return fault == WIRE_OK && row->must && item->count == 0 ? WIRE_EMISSING : fault;
}

static enum wire_fault take_id(const struct gossip_row *row, const struct wire_item *item,
                               uint8_t *at)
{
    static const uint8_t none[WIRE_ID_BYTES] = {0};
    enum wire_fault fault = value_take_id(item, at);
    bool empty = fault == WIRE_OK && row->must && memcmp(at, none, sizeof none) == 0;
    return empty ? WIRE_EMISSING : fault;
}

static enum wire_fault take_value(struct walk *walk, const struct gossip_row *row, char *object)
{
    char *at = object + row->offset;
    struct wire_item item;
    uint64_t number = 0;
    enum wire_fault fault = wire_next(walk->place, &item);
    if (fault != WIRE_OK) {
        return fault;
    }
    switch ((enum gossip_type)row->type) {
    case VERSION:
        return item.type == WIRE_UINT && item.number == WIRE_VERSION ? WIRE_OK : WIRE_EVERSION;
    case OP: return value_is_word(&item, walk->map->op, strlen(walk->map->op)) ? WIRE_OK : WIRE_EOP;
    case ID: return take_id(row, &item, (uint8_t *)at);
    case TEXT: return take_text(row, &item, at);
    case NAME: return value_take_name(&item, at);
    case LEASE_STATE:
        fault = value_take_one_of(&item, gossip_lease_states, row->maximum, &number);
        *(enum gossip_lease_state *)(void *)at = (enum gossip_lease_state)number;
        return fault;
    case FLAG: return value_take_flag(&item, (bool *)at);
    case U32:
    case U64:
    case I32:
    case I64: return take_number(row, &item, at);
    case MAP:
    case LIST:
    case OUTSIDE: break;
    }
    return WIRE_ETYPE;
}

/* A map without maps in it. */
static enum wire_fault take_flat(struct wire_place *place, const struct gossip_map *map,
                                 char *object, unsigned depth)
{
    struct walk walk;
    const struct gossip_row *row;
    enum wire_fault fault = walk_begin(&walk, place, map, depth);
    clear(map, object);
    while (fault == WIRE_OK && (fault = walk_next(&walk, &row)) == WIRE_OK && row) {
        fault = take_value(&walk, row, object);
    }
    return fault;
}

static enum wire_fault take_list(struct wire_place *place, const struct gossip_list *list,
                                 unsigned depth)
{
    struct wire_item array;
    enum wire_fault fault = wire_next(place, &array);
    if (fault != WIRE_OK || array.type != WIRE_ARRAY) {
        return fault != WIRE_OK ? fault : WIRE_ETYPE;
    }
    if (array.count > list->room) {
        return WIRE_ECOUNT;
    }
    for (uint32_t i = 0; fault == WIRE_OK && i < array.count; i++) {
        fault = take_flat(place, list->of, list->first + (size_t)i * list->of->size, depth);
    }
    *list->count = array.count;
    return fault;
}

static enum wire_fault take_map(struct wire_place *place, const struct gossip_map *map,
                                char *object, const struct gossip_list *outside)
{
    struct walk walk;
    struct gossip_list list;
    const struct gossip_row *row;
    enum wire_fault fault = walk_begin(&walk, place, map, WIRE_DEPTH_MAX - 1);
    clear(map, object);
    while (fault == WIRE_OK && (fault = walk_next(&walk, &row)) == WIRE_OK && row) {
        switch (row->type) {
        case MAP:
            fault = take_flat(place, &gossip_maps[row->maximum], object + row->offset,
                              WIRE_DEPTH_MAX - 2);
            break;
        case LIST:
            list = gossip_list_of(row, object);
            fault = take_list(place, &list, WIRE_DEPTH_MAX - 3);
            break;
        case OUTSIDE: fault = take_list(place, outside, WIRE_DEPTH_MAX - 3); break;
        default: fault = take_value(&walk, row, object); break;
        }
    }
    return fault;
}

/* What it is by its `v` and `op`, whatever else is in it. */
static enum wire_fault take_head(const void *bytes, size_t size, enum gossip_map_name *name)
{
    static const struct gossip_row rows[] = {{"v", 1, VERSION, true, 0, WIRE_VERSION},
                                             {"op", 2, OP, true, 0, 0}};
    static const struct gossip_map head = {"", rows, 2, 2, 0, 0};
    struct wire_place place = {bytes, (const uint8_t *)bytes + size}, whole = place;
    struct wire_item value, op = {.type = WIRE_NIL};
    const struct gossip_row *row;
    struct walk walk;
    bool spoken = false;
    enum wire_fault fault = size > WIRE_STATE_MAX ? WIRE_ELONG : wire_skip(&whole, WIRE_DEPTH_MAX);
    if (fault != WIRE_OK || whole.at != whole.end) {
        return fault != WIRE_OK ? fault : WIRE_EEXTRA;
    }
    if (walk_begin(&walk, &place, &head, WIRE_DEPTH_MAX - 1) != WIRE_OK) {
        return WIRE_ESHAPE;
    }
    while ((fault = walk_next(&walk, &row)) == WIRE_OK && row) {
        struct wire_place next = place;
        (void)wire_skip(&place, WIRE_DEPTH_MAX - 1); /* seen to be right above */
        (void)wire_next(&next, &value);
        if (row == &rows[0]) {
            spoken = value.type == WIRE_UINT && value.number == WIRE_VERSION;
        } else {
            op = value;
        }
    }
    if (fault == WIRE_ESHAPE || fault == WIRE_ETWICE) {
        return fault;
    }
    for (unsigned i = 0; spoken && i < GOSSIP_WHOLE_COUNT; i++) {
        if (value_is_word(&op, gossip_maps[i].op, strlen(gossip_maps[i].op))) {
            *name = (enum gossip_map_name)i;
            return WIRE_OK;
        }
    }
    return spoken ? WIRE_EOP : WIRE_EVERSION;
}

/* Reads it in one go; only where that fails is it looked over from the beginning, so that another
 * version is told from a fault whatever comes first. */
static enum wire_fault take_whole(const void *bytes, size_t size, enum gossip_map_name name,
                                  void *object, const struct gossip_list *outside)
{
    struct wire_place place = {bytes, (const uint8_t *)bytes + size};
    enum wire_fault fault = size > WIRE_STATE_MAX ? WIRE_ELONG : WIRE_OK, before;
    enum gossip_map_name found;
    if (fault == WIRE_OK) {
        fault = take_map(&place, &gossip_maps[name], object, outside);
    }
    if (fault == WIRE_OK && place.at != place.end) {
        fault = WIRE_EEXTRA;
    }
    if (fault != WIRE_OK && (before = take_head(bytes, size, &found)) != WIRE_OK) {
        fault = before;
    }
    return fault;
}

enum wire_fault gossip_kind_of(const void *bytes, size_t size, enum gossip_kind *kind)
{
    static const enum gossip_kind kinds[GOSSIP_WHOLE_COUNT] = {[GOSSIP_MAP_CLAIM] = GOSSIP_CLAIM,
                                                               [GOSSIP_MAP_STATE] = GOSSIP_STATE,
                                                               [GOSSIP_MAP_BEAT] = GOSSIP_BEAT};
    enum gossip_map_name name = GOSSIP_MAP_PEERS;
    enum wire_fault fault = take_head(bytes, size, &name);
    *kind = fault == WIRE_OK ? kinds[name] : GOSSIP_NONE;
    return fault == WIRE_OK && *kind == GOSSIP_NONE ? WIRE_EOP : fault;
}

enum wire_fault gossip_claim_decode(const void *bytes, size_t size, struct gossip_claim *claim)
{
    enum wire_fault fault = take_whole(bytes, size, GOSSIP_MAP_CLAIM, claim, NULL);
    fault = fault == WIRE_OK ? gossip_check_claim(claim) : fault;
    if (fault != WIRE_OK) {
        memset(claim, 0, sizeof *claim);
    }
    return fault;
}

enum wire_fault gossip_state_decode(const void *bytes, size_t size, struct gossip_state *state,
                                    struct gossip_lease *leases, uint32_t room, uint32_t *count)
{
    struct gossip_list list = {&gossip_maps[GOSSIP_MAP_LEASE], (char *)leases, count, room};
    *count = 0;
    enum wire_fault fault = take_whole(bytes, size, GOSSIP_MAP_STATE, state, &list);
    fault = fault == WIRE_OK ? gossip_check_state(state, leases, *count) : fault;
    if (fault != WIRE_OK) {
        memset(state, 0, sizeof *state);
        *count = 0;
    }
    return fault;
}

enum wire_fault gossip_beat_decode(const void *bytes, size_t size, struct gossip_beat *beat)
{
    beat->offer_count = 0;
    enum wire_fault fault = take_whole(bytes, size, GOSSIP_MAP_BEAT, beat, NULL);
    if (fault != WIRE_OK) {
        memset(beat, 0, offsetof(struct gossip_beat, offers));
    }
    return fault;
}

enum wire_fault gossip_peers_decode(const void *bytes, size_t size, struct gossip_peer *peers,
                                    uint32_t room, uint32_t *count)
{
    struct gossip_list list = {&gossip_maps[GOSSIP_MAP_PEER], (char *)peers, count, room};
    struct gossip_peer nobody; /* the map itself has no struct */
    *count = 0;
    enum wire_fault fault = take_whole(bytes, size, GOSSIP_MAP_PEERS, &nobody, &list);
    if (fault != WIRE_OK) {
        *count = 0;
    }
    return fault;
}
