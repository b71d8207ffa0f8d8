/* The arithmetic of admission: what is taken, what a request may have.
 *
 *   busy      = max(D + orphans and unseen ended work, I + unseen)
 *   verify    goes   iff health admits and busy + ahead + units <= N
 *   acquire   is had iff busy + held + waiting + units <= N
 *   available = max(0, N - busy - held - waiting)
 *
 * where D are dispatched units, I is in-flight work by the reading without what was released
 * since, unseen are units whose work no reading has shown yet. All of it counts units. */
#ifndef BROKER_ADMISSION_H
#define BROKER_ADMISSION_H

#include "broker/book.h"

struct tally {
    int32_t slots;      /* N */
    int32_t dispatched; /* D, of leases that live */
    int32_t ending;     /* units of ended leases whose work may run: orphans, and unseen ones */
    int32_t seen;       /* of D: shown by a reading, or taken for shown after settling */
    int32_t unseen;     /* of D and of ended ones */
    int32_t orphans;    /* shown work of ended leases */
    int32_t held;
    int32_t waiting;
    int32_t elsewhere; /* of these: waiters of the owner, where the book is a copy */
    int32_t in_flight; /* I, -1 where no reading tells it */
    int32_t busy;
    int32_t strangers;
    int32_t ghosts;
    int32_t available; /* what a new acquire would be granted, -1 unknown */
    bool trusted;      /* a reading is young enough to say anything */
    bool counts;       /* it is trusted and tells in_flight */
};

/* Why a request may not have what it wants. */
enum obstacle {
    OBSTACLE_NONE = 0,
    OBSTACLE_HEALTH,    /* the server does not take requests now */
    OBSTACLE_LEASES,    /* leases alone take the room */
    OBSTACLE_STRANGERS, /* work without a lease does */
    OBSTACLE_QUEUE,     /* the engine's own queue says that all is taken */
    OBSTACLE_AHEAD,     /* held leases and waiters with a smaller place */
    OBSTACLE_SLOT,      /* the slot it names is taken */
    OBSTACLE_GROUP,     /* another member of its group is in use, or was first */
};

/* The last reading is of the server that is meant, and not of one that went by its name before. */
bool admission_is_of_this_server(const struct book *book);

/* A reading young enough to be believed lies in the book. */
bool admission_trusts(const struct book *book, ns_t now);

/* A reading fresh enough for a verify that was asked at asked_ns. */
bool admission_is_fresh(const struct book *book, ns_t now, ns_t asked_ns);

/* The reading shows this task at work. -1 is none. */
bool admission_shows_task(const struct reading *reading, int32_t task);

void admission_tally(const struct book *book, ns_t now, struct tally *tally);

/* Units of held leases and waiters before `place` that stand in the way of a request for `slot`
 * (-1: any). place UINT64_MAX: all of them. */
int32_t admission_ahead(const struct book *book, uint64_t place, int32_t slot);

/* May a request at `place` for units of any slot, or for one slot's index, be granted? With
 * with_reading false leases alone are asked, and what they allow may still be taken.  */
enum obstacle admission_verify(const struct book *book, const struct tally *tally, uint64_t place,
                               uint32_t units, int32_t slot, bool with_reading);
enum obstacle admission_acquire(const struct book *book, const struct tally *tally, uint32_t units,
                                int32_t slot);

/* The same for a waiter of acquire at its place: all held leases, and the waiters before it. */
enum obstacle admission_waiter(const struct book *book, const struct tally *tally, uint64_t place,
                               uint32_t units, int32_t slot);

/* The member of the book's group that keeps a request at `place` from being granted, or NULL. Members
 * in use, and those with a held lease or a waiter of a smaller place, count until there are as many
 * as may be in use at a time beside this one. */
const struct neighbour *admission_neighbour(const struct book *book, uint64_t place);

/* A request at `place` that was asked at asked_ns depends on a member of which there is no reading
 * fresh enough: it shows no lease, and its server may have work, or none any more. */
bool admission_group_is_unread(const struct book *book, uint64_t place, ns_t now, ns_t asked_ns);

/* Of a member that only a reading shows in use the next one is made behind a pause: when the first of those
 * ends, where the group may have room then. 0: there is none. */
ns_t admission_group_retry_ns(const struct book *book, uint64_t place, ns_t now);
bool admission_neighbour_is_unread(const struct neighbour *neighbour, ns_t now, ns_t asked_ns);

/* The lease that stands in the way and ends first: for people. NULL where there is none. */
const struct record *admission_first_to_end(const struct book *book, uint64_t place);

/* When what a lease has not shown counts as seen all the same: some time ago (0), or a time to come;
 * NS_NEVER while health is not ok, since that clock stands still. */
ns_t admission_settled_ns(const struct book *book, const struct record *record);

/* This lease's work counts as seen, by readings, or by time at the last one. */
uint32_t admission_seen_units(const struct book *book, const struct record *record);

/* How long a dispatched lease has had no work by the readings, -1: it is no ghost. */
ns_t admission_idle_ns(const struct book *book, const struct record *record, ns_t now);

#endif
