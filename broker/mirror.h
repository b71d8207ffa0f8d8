/* The copy of a book that another host owns, and what the owner of a book hears from others.
 *
 * On a host that is not the owner, the book holds what the owner last said, what other hosts
 * announced, and this host's own leases, so that its processes see each other at once. Whatever is
 * decided there is below the owner's word. Three events (broker.h) change it:
 *
 *   STATE  the owner's whole book, of (epoch, version): replaces all that was heard before. A lease
 *          that the owner named earlier and that is not in it has ended, unless it was named by a
 *          later version than this one. Leases of this host that the owner never named stay, and so
 *          do those that others claimed, for CLAIM_STAYS_S. A state of an older epoch, or of the same
 *          and no newer version, changes nothing. It lets leases of others live again that ended here
 *          by the clock; of ours it neither extends one nor revives it: that is for NAMED. The version
 *          is to be the book's before its leases were read, never after.
 *   NAMED  the owner said in a reply what a lease of ours is now: the record is made or brought up to
 *          date, and carries RECORD_NAMED and the version, so that no older state ends it. One that
 *          was given back here stays so. Left is counted from when its holder asked.
 *   CLAIM  another host's agent announced or withdrew a lease: only a hint. At the owner it counts as
 *          an intention from then on, whatever the slots say; a withdrawal ends it. It never
 *          revives what has ended (floors), never extends what the owner has granted, and an unknown
 *          id under an epoch older than the book's is dead.
 *
 * What is dispatched here without the owner's word loses RECORD_NAMED until the owner names it so.
 * Times come as what is left or has passed: no clock of another host is believed. Whatever comes is
 * brought into bounds, or passed over.
 *
 * An event makes a copy of a book only under a higher epoch than the book's own. A host that finds
 * itself not to be the owner says so once, with mirror_begin, so that the owner's epoch counts,
 * whatever the file began with. */
#ifndef BROKER_MIRROR_H
#define BROKER_MIRROR_H

#include "broker/book.h"

struct heard_lease {
    struct lease_id id;
    enum record_state state; /* HELD, DISPATCHED, ORPHAN; in NAMED also GONE, with `end` */
    enum record_end end;
    struct holder holder; /* local: 1 where it is a process of this host, set by the caller */
    uint32_t units, arrived;
    int32_t slot;          /* -1: any */
    uint32_t ttl_ms;       /* 0: not told */
    int64_t left_ms;       /* until it ends; not above TTL_MS_MAX is believed */
    int64_t age_ms;        /* since it was acquired */
    int64_t dispatched_ms; /* since it was dispatched, -1: it is not */
    int64_t idle_ms;       /* a ghost since, -1: it is none */
    uint64_t token, place; /* 0: none */
    bool may_idle;
    bool no_holder, by_pid; /* in NAMED: as record_flags has them; in the others not told */
};

/* Of an owner. What lies behind the pointers is the caller's and borrowed for the step. */
struct heard_state {
    uint64_t epoch, version;
    struct reading reading; /* its times are this host's: when it was heard less its age; sent_ns 0:
                               never read, then slots_total alone counts. slots[] is not looked at */
    int32_t strangers;      /* units */
    int64_t strangers_ms;   /* since when, -1: none */
    int32_t waiting;        /* units of waiters, who are counted only */
    bool is_static;         /* there is nothing to read: leases alone decide */
    uint32_t lease_count;   /* at most BOOK_LEASES_MAX */
    const struct heard_lease *leases;
};

struct heard_named {
    uint64_t epoch, version; /* 0: not told, then it is taken for the newest */
    struct heard_lease lease;
};

struct heard_claim {
    uint64_t epoch; /* of the provider as the claiming agent last heard it, 0: never */
    bool withdrawn;
    struct heard_lease lease; /* HELD or DISPATCHED */
};

/* The provider belongs to another host, of whom nothing was heard yet. Nothing where the book is a
 * copy already. Leases stay; what other hosts were granted here ends with the owner's first state. The
 * caller commits. */
void mirror_begin(struct book *book);

/* This host owns the provider now. The epoch is raised to `epoch`, by one at least; leases keep id, end
 * and token, or get the place and the token that they lack, in the order of their places. Nothing where
 * the book is no copy. The caller commits. */
void mirror_becomes_owner(struct book *book, uint64_t epoch);

/* What a claim or a request carries as the epoch last heard: of a copy the owner's, 0 none. */
uint64_t mirror_epoch(const struct book *book);

struct step;

/* mirror.c and claim.c, called by broker_step. */
void mirror_take_state(struct step *step, const struct heard_state *state);
void mirror_take_named(struct step *step, const struct heard_named *named);
void mirror_take_claim(struct step *step, const struct heard_claim *claim);

#endif
