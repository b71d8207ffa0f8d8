#include "broker/floors.h"

#include <string.h>

static int find(const struct floors *floors, uint64_t instance)
{
    for (int i = 0; i < FLOORS_MAX; i++)
        if (floors->entries[i].highest != 0 && floors->entries[i].instance == instance)
            return i;
    return -1;
}

static int make_room(const struct floors *floors)
{
    int oldest = 0;
    for (int i = 0; i < FLOORS_MAX; i++) {
        if (floors->entries[i].highest == 0)
            return i;
        if (floors->entries[i].used_ns < floors->entries[oldest].used_ns)
            oldest = i;
    }
    return oldest;
}

/* The window moves up by `by` counters: bit 0 is then the old highest. */
static void raise_window(struct floor *floor, uint64_t by)
{
    const unsigned words = FLOOR_WINDOW / 64;
    if (by >= FLOOR_WINDOW) {
        memset(floor->below, 0, sizeof floor->below);
    } else {
        unsigned whole = (unsigned)by / 64, part = (unsigned)by % 64;
        for (unsigned i = words; i-- > 0;) {
            uint64_t value = i >= whole ? floor->below[i - whole] << part : 0;
            if (part && i > whole)
                value |= floor->below[i - whole - 1] >> (64 - part);
            floor->below[i] = value;
        }
    }
    if (by - 1 < FLOOR_WINDOW)
        floor->below[(by - 1) / 64] |= UINT64_C(1) << ((by - 1) % 64);
}

int floors_forget(struct floors *floors, struct lease_id id, ns_t now)
{
    if (floors_is_dead(floors, id))
        return -1;
    int at = find(floors, id.instance);
    if (at < 0) {
        at = make_room(floors);
        memset(&floors->entries[at], 0, sizeof floors->entries[at]);
        floors->entries[at].instance = id.instance;
        floors->entries[at].highest = id.counter;
    } else {
        struct floor *floor = &floors->entries[at];
        if (id.counter > floor->highest) {
            raise_window(floor, id.counter - floor->highest);
            floor->highest = id.counter;
        } else {
            uint64_t below = floor->highest - 1 - id.counter;
            floor->below[below / 64] |= UINT64_C(1) << (below % 64);
        }
    }
    floors->entries[at].used_ns = now;
    return at;
}

bool floors_is_dead(const struct floors *floors, struct lease_id id)
{
    int at = id.counter ? find(floors, id.instance) : -1;
    if (at < 0)
        return id.counter == 0;
    const struct floor *floor = &floors->entries[at];
    if (id.counter >= floor->highest)
        return id.counter == floor->highest;
    uint64_t below = floor->highest - 1 - id.counter;
    return below >= FLOOR_WINDOW || (floor->below[below / 64] >> (below % 64) & 1u);
}

int floors_drop_idle(struct floors *floors, ns_t now, ns_t max_idle_ns)
{
    int dropped = 0;
    for (int i = 0; i < FLOORS_MAX; i++) {
        struct floor *floor = &floors->entries[i];
        if (floor->highest != 0 && now - floor->used_ns > max_idle_ns) {
            floor->highest = 0;
            dropped++;
        }
    }
    return dropped;
}
