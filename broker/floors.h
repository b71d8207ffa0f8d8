/* Floors: which ids of other books are dead, without a tombstone for each.
 *
 * For each instance the highest counter that was forgotten, and a bit for each of the 1,024 below
 * it. A counter whose bit is set, or that lies below them all, is dead: no message order brings it
 * back. Plain data, the caller guards it. */
#ifndef BROKER_FLOORS_H
#define BROKER_FLOORS_H

#include "broker/record.h"

struct floor {
    uint64_t instance;
    uint64_t highest;                  /* the highest counter forgotten; 0: this entry is unused */
    ns_t used_ns;                      /* when it last changed */
    uint64_t below[FLOOR_WINDOW / 64]; /* bit i: counter highest - 1 - i was forgotten too */
};

struct floors {
    struct floor entries[FLOORS_MAX];
};

/* Remembers that id is dead. Returns the entry that changed, or -1 where nothing did. Where all
 * entries are taken, the one unused for longest makes room. */
int floors_forget(struct floors *floors, struct lease_id id, ns_t now);

bool floors_is_dead(const struct floors *floors, struct lease_id id);

/* Gives up entries unused for max_idle_ns: by then no lease of theirs can still live. Returns how
 * many; an entry given up has highest 0. */
int floors_drop_idle(struct floors *floors, ns_t now, ns_t max_idle_ns);

#endif
