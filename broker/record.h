/* A record: one lease or one waiter of a book, as it lies in memory and in the host's file.
 *
 * All times are nanoseconds of a clock that runs through suspend and means nothing on another
 * host. The struct has no padding and no pointers: it is sealed with a checksum byte by byte.
 *
 * Thread rules: plain data, the caller guards it. Nothing here allocates. */
#ifndef BROKER_RECORD_H
#define BROKER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/limits.h"

typedef int64_t ns_t;
#define NS_PER_MS  INT64_C(1000000)
#define NS_PER_SEC INT64_C(1000000000)
#define NS_NEVER   INT64_MAX

/* Within 73 years of the start of its clock, as every time of a record is: the sum or difference of two
 * such cannot overflow. What a file says beyond that is not taken. */
static inline bool ns_is_near(ns_t at)
{
    return at >= -(INT64_MAX / 4) && at <= INT64_MAX / 4;
}

/* Who a lease is, everywhere and for ever: an instance is drawn whenever a book is initialised,
 * the counter is taken under that book's lock. counter 0 is no lease. */
struct lease_id {
    uint64_t instance;
    uint64_t counter;
};

/* Chosen by the asker for one acquire, verify, renew or release. All zero is none. */
struct request_id {
    uint64_t hi;
    uint64_t lo;
};

enum record_state {
    RECORD_FREE = 0,   /* never used */
    RECORD_WAITING,    /* in the queue: to become held, or dispatched (RECORD_TO_DISPATCH) */
    RECORD_HELD,       /* announced, counts as intention */
    RECORD_DISPATCHED, /* verified: the request is on its way or running */
    RECORD_ORPHAN,     /* ended by death or expiry, its work may still run */
    RECORD_GONE,       /* ended; kept so that duplicates get their answer again */
};

enum record_end {
    END_NONE = 0,
    END_RELEASED,
    END_EXPIRED,
    END_LAPSED,   /* the holder died */
    END_REFUSED,  /* verify said no */
    END_GAVE_UP,  /* a waiter whose wait ended */
    END_FORCED,   /* released by somebody else */
    END_REPLACED, /* a lease taken with `running` stands in its place */
};

enum record_flags {
    RECORD_TO_DISPATCH = 1 << 0, /* a waiter that waits for the go */
    RECORD_CALLED = 1 << 1,      /* head of the queue, only a fresh reading is missing */
    RECORD_MAY_IDLE = 1 << 2,    /* its holder may pause: a ghost is renewed all the same */
    RECORD_BY_PID = 1 << 3,      /* lives with the pid of its holder, renewed by the speaker */
    RECORD_NO_HOLDER = 1 << 4,   /* outlives the process that took it: time alone ends it */
    RECORD_GHOST = 1 << 5,       /* the last reading showed no work for it; idle_mark_ns is set */
    RECORD_SETTLED = 1 << 6,     /* counted as seen by time, not by a reading */
    RECORD_NAMED = 1 << 7,       /* in a copy: the owner on another host has named it */
};

struct holder {
    char host[NAME_SIZE];
    char label[LABEL_SIZE];
    uint64_t pid_start; /* start time of the process, 0 unknown */
    uint64_t pid_space; /* inode of its pid namespace, 0 unknown: liveness cannot be told */
    uint32_t pid;       /* 0: no process */
    uint32_t local;     /* 1: a process of this host */
};

/* Invariants (checked by book_check after every step in debug builds):
 *  - state FREE  <=> id.counter == 0
 *  - 1 <= units <= BOOK_SLOTS_MAX, arrived <= units unless FREE
 *  - slot is -1, or units == 1
 *  - DISPATCHED, ORPHAN: dispatched_ns >= acquired_ns
 *  - HELD: deadline_ns <= hold_end_ns
 *  - GONE, ORPHAN: end != END_NONE, ended_ns set
 *  - counter_max >= id.counter where the id is of this book, place_max >= place where a counter gave
 *    it (below PLACE_BY_ID), token_max >= token: what was ever in this cell is carried forward, so
 *    that the next of each is one more than the largest of all cells and no counter lies anywhere
 *    that a crash could tear from the record it belongs to */
struct record {
    struct lease_id id;
    struct request_id acquired_by; /* the request that made it */
    struct request_id last_by;     /* the last one that changed it */
    uint64_t place;                /* order of arrival, kept from queue to dispatched */
    uint64_t token;                /* 0: none yet */
    uint64_t counter_max;
    uint64_t place_max;
    uint64_t token_max;
    uint64_t named_version; /* of the owner's book, when it named it last; 0: never */
    ns_t acquired_ns;
    ns_t deadline_ns;      /* held, dispatched: end of the lease; waiting: end of the wait */
    ns_t hold_end_ns;      /* the latest end while held */
    ns_t dispatched_ns;    /* 0: not yet */
    ns_t ended_ns;         /* 0: not yet */
    ns_t waiting_since_ns; /* 0: not waiting */
    ns_t settle_mark_ns;   /* the book's healthy time (book.h) when it was dispatched */
    ns_t idle_mark_ns;     /* the same when it became a ghost */
    uint32_t ttl_ms;
    int32_t task;      /* the server's name for its (first) work, -1 unknown */
    uint16_t units;    /* slots it takes */
    uint16_t arrived;  /* units whose work a reading has shown */
    int16_t slot;      /* the index it names, -1: any */
    uint8_t state;     /* enum record_state */
    uint8_t end;       /* enum record_end */
    uint8_t flags;     /* enum record_flags */
    uint8_t verb;      /* enum verb (broker.h) of last_by */
    uint8_t end_heard; /* in a copy: 1: ended by the owner's word or silence, not by ours */
    uint8_t spare;
    uint32_t heard_s; /* in a copy: the second in which word of it came from another host; 0: it
                         was made here, or its holder here was told of it by the owner */
    struct holder holder;
};

_Static_assert(sizeof(struct holder) == 64 + 128 + 16 + 8, "no padding in a holder");
_Static_assert(sizeof(struct record) == 16 * 3 + 8 * 6 + 8 * 8 + 4 * 2 + 2 * 3 + 4 + 2 + 4 + 216,
               "no padding in a record");

/* Lives, or may have work running: what admission counts. */
bool record_is_live(const struct record *record);

bool lease_id_equal(struct lease_id a, struct lease_id b);
bool request_id_equal(struct request_id a, struct request_id b); /* none equals nothing */
bool request_id_is_none(struct request_id id);

/* `PROVIDER:` and 26 characters of base32 (no padding, lower case). */
#define LEASE_ID_TEXT_SIZE (NAME_SIZE + 1 + 26 + 1)

/* Writes the text of an id; text has LEASE_ID_TEXT_SIZE bytes. */
void lease_id_format(const char *provider, struct lease_id id, char *text);

/* Reads it back. provider has NAME_SIZE bytes. False where the text is not an id: then neither
 * provider nor id is changed. */
bool lease_id_parse(const char *text, char *provider, struct lease_id *id);

/* 1 to 63 characters of [A-Za-z0-9._-]. */
bool name_is_valid(const char *name);

/* Copies text of any origin: cut to size - 1 bytes at a border of UTF-8, control characters and
 * bytes that are no UTF-8 made '?'. The rest of `to` is filled with zeroes. */
void text_copy(char *to, size_t size, const char *from);

const char *record_state_name(enum record_state state);
const char *record_end_name(enum record_end end);

#endif
