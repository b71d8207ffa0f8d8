#include "proto/gossip_table.h"

#include <string.h>

#include "proto/value.h"

#define ROW(of, member, key, type, maximum, must)                                                  \
    {key, sizeof key - 1, type, must, (uint32_t)offsetof(struct of, member), maximum},
#define ROWS(map, of, fields, op, cleared)                                                         \
    static const struct gossip_row map##_rows[] = {fields(ROW, of)};
GOSSIP_MAPS(ROWS)
#undef ROWS
#undef ROW

#define ONE_MORE_IF(of, member, key, type, maximum, must) +((must) ? 1 : 0)
#define MAP_OF(map, of, fields, op, cleared)                                                       \
    [map] = {op,                                                                                   \
             map##_rows,                                                                           \
             sizeof map##_rows / sizeof *map##_rows,                                               \
             0 fields(ONE_MORE_IF, of),                                                            \
             sizeof(struct of),                                                                    \
             cleared},
const struct gossip_map gossip_maps[GOSSIP_MAP_COUNT] = {GOSSIP_MAPS(MAP_OF)};
#undef MAP_OF
#undef ONE_MORE_IF

/* The sets of rows that were found are 32 bits wide. */
#define FITS(map, of, fields, op, cleared)                                                         \
    _Static_assert(sizeof map##_rows / sizeof *map##_rows <= 32, "a map of at most 32 rows");
GOSSIP_MAPS(FITS)
#undef FITS

const char *const gossip_lease_states[] = {
    [GOSSIP_HELD] = "held",
    [GOSSIP_DISPATCHED] = "dispatched",
    [GOSSIP_ORPHAN] = "orphan",
};

struct gossip_list gossip_list_of(const struct gossip_row *row, void *object)
{
    struct gossip_list list = {.of = &gossip_maps[row->maximum],
                               .first = (char *)object + row->offset};
    if (row->maximum == GOSSIP_MAP_MODEL) {
        list.count = &((struct gossip_state *)object)->model_count;
        list.room = WIRE_MODELS_MAX;
    } else {
        list.count = &((struct gossip_beat *)object)->offer_count;
        list.room = WIRE_PROVIDERS_MAX;
    }
    return list;
}

enum wire_fault gossip_check_claim(const struct gossip_claim *claim)
{
    return claim->withdrawn || claim->lease.state != 0 ? WIRE_OK : WIRE_EMISSING;
}

enum wire_fault gossip_check_state(const struct gossip_state *state,
                                   const struct gossip_lease *leases, uint32_t count)
{
    if (state->parts > WIRE_PARTS_MAX || state->part >= state->parts || count > state->leases) {
        return WIRE_EVALUE;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (leases[i].state == 0) {
            return WIRE_EMISSING;
        }
    }
    return WIRE_OK;
}
