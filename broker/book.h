/* The book of one provider: its leases, its queue, its last reading; and the arithmetic over them.
 *
 * A book is a private working copy. A table (table.h) brings it up to date and keeps what a step
 * changed; between the two, only the functions here and in admission.h, attribution.h and
 * requests.h touch it. Nothing here reads a clock, sends, sleeps, allocates or draws a random
 * number: `now` is an argument, and the memory is the caller's.
 *
 * Thread rules: the caller guards it. */
#ifndef BROKER_BOOK_H
#define BROKER_BOOK_H

#include "broker/floors.h"
#include "broker/reading.h"
#include "broker/record.h"

/* What an operator may set, and the tests; book_settings_default fills it from limits.h. */
struct book_settings {
    uint32_t slots;  /* slots= of the configuration, 0: not told */
    uint32_t probed; /* 1: readings can be had; 0: leases alone decide (static) */
    uint32_t source; /* reading.source of this provider's server; 0: not told, any will do */
    uint32_t settle_names_ms;
    uint32_t settle_counts_ms;
    uint32_t ghost_ms;
    uint32_t drain_ms;
    uint32_t max_age_ms;
    uint32_t held_ms_max;
};

/* Who the book is. Changes when it is initialised and when its epoch is raised. */
struct book_head {
    uint64_t instance; /* drawn when the book was initialised */
    uint64_t epoch;    /* only the owner's book issues it */
};

enum sight_flags {
    SIGHT_COPY = 1 << 0,   /* the provider belongs to another host, this is a copy (mirror.h) */
    SIGHT_TOLD = 1 << 1,   /* in a copy: the reading and the strangers are the owner's word */
    SIGHT_STATIC = 1 << 2, /* in a copy: the owner says that there is nothing to read */
};

/* What was seen of the server. Changes with each reading; committed before the records that the
 * same reading changed, so that a crash in between loses arrivals (their leases stay unseen and
 * count twice for a while) and never counts one twice (which would free a slot in use). */
struct sight {
    struct reading reading;  /* the last one; slots[] is that of the last which could be counted */
    ns_t healthy_ns;         /* how long health was ok, up to the last reading */
    ns_t healthy_since_ns;   /* since when it is, 0: it is not */
    ns_t pause_until_ns;     /* no probe before: a server must notice who has left */
    ns_t strangers_since_ns; /* 0: none */
    int32_t strangers;       /* units of in-flight work without a lease, by the last reading */
    int32_t slots_last;      /* the last slots_total that was told, 0: never */
    uint64_t heard_epoch;    /* in a copy: of what the owner said last, 0 nothing yet */
    uint64_t heard_version;  /* in a copy: of the owner's state that was taken last, 0 none */
    ns_t heard_ns;           /* when that was */
    int32_t waiting;         /* in a copy: units of the owner's waiters */
    uint32_t flags;          /* enum sight_flags */
};

/* Another member of the book's group, as it stands in this very step. */
struct neighbour {
    char name[NAME_SIZE];
    bool in_use;  /* it has dispatched leases, or work, or does not tell whether */
    bool leased;  /* in_use by dispatched leases, whatever its server says */
    bool probed;  /* a reading can be had, and its server is not being left alone */
    ns_t sent_ns; /* of its last reading, 0: none */
    ns_t answered_ns;
    ns_t fresh_until_ns;  /* for whomever that one will do */
    ns_t paused_until_ns; /* its server is left alone until then, if that is to come */
    uint64_t first_place; /* the smallest of its held leases and waiters, UINT64_MAX: none */
};

struct book {
    char provider[NAME_SIZE];
    struct book_settings settings;
    char group[NAME_SIZE]; /* "" none, or not told */
    uint32_t group_limit;  /* members in use at a time; 0: the book is in no group */
    uint32_t neighbour_count;
    struct neighbour neighbours[GROUP_MEMBERS_MAX]; /* the caller's to fill in before a step */
    struct book_head head;
    struct sight sight;
    struct floors floors;

    /* derived from the records, by book_adopt and book_set_state */
    uint64_t counter_max, place_max, token_max;
    ns_t ended_last_ns; /* when the last lease ended that is GONE */
    uint32_t used;      /* cells [0, used) were ever used */
    uint32_t live_count;
    uint32_t ended_count; /* entries in the ring of ended cells, the oldest first */
    uint32_t ended_first;
    uint16_t live[BOOK_CELLS];    /* indices of live records, in no order */
    uint16_t live_at[BOOK_CELLS]; /* where in live[] a cell stands, if its record is live */
    uint16_t ended[BOOK_CELLS];
    uint8_t in_ended[BOOK_CELLS];    /* it stands in that ring, or ended again since */
    uint32_t count[RECORD_GONE + 1]; /* records by state (FREE is not counted) */
    /* Of ids and of the requests that made them, a few bits side by side: to look for one in the records
     * themselves would touch each of them. */
    uint32_t id_marks[BOOK_CELLS], request_marks[BOOK_CELLS];

    /* what the present step changed, in the order in which it must be committed */
    uint16_t dirty[BOOK_CELLS];
    uint8_t is_dirty[BOOK_CELLS];
    uint16_t dirty_floors[FLOORS_MAX];
    uint8_t is_dirty_floor[FLOORS_MAX];
    uint32_t dirty_count, dirty_floor_count;
    bool head_dirty, sight_dirty;
    bool sight_last; /* after the records: it says that they are as of a version */

    struct record records[BOOK_CELLS];
};

void book_settings_default(struct book_settings *settings);

/* An empty book without an instance; memory of any content. */
void book_init(struct book *book, const char *provider, const struct book_settings *settings);

/* Makes an empty book a new one: instance drawn by the caller, epoch above all earlier ones. */
void book_found(struct book *book, uint64_t instance, uint64_t epoch);

/* The owner starts or wakes: a higher epoch, nothing ends. Lower or equal ones change nothing. */
void book_raise_epoch(struct book *book, uint64_t epoch);

/* A table has read cell `index`: replaces the record and what is derived from it. The record must
 * fit (book_record_fits), and is not marked changed. */
void book_adopt(struct book *book, uint32_t index, const struct record *record);

/* In bounds, as record.h promises. */
bool book_record_is_valid(const struct record *record);

/* And could have been written under this book's head: what a table asks of a record that it read from
 * a file. */
bool book_record_fits(const struct book *book, const struct record *record);

/* The same of what was read of the server. */
bool book_sight_is_valid(const struct sight *sight);

/* The record with this id, or NULL. hint: the cell where it was last seen. */
struct record *book_find(struct book *book, struct lease_id id, uint32_t hint);

/* The record that this request made, or NULL. */
struct record *book_find_made(struct book *book, struct request_id by, uint32_t hint);

/* The id was issued once and has ended, or can never be valid in this book. */
bool book_is_dead(const struct book *book, struct lease_id id);

/* A cell for a new record, RECORD_FREE or RECORD_GONE before, now blank but for its maxima; NULL
 * where the book is full. The record is dirty and not yet live. */
struct record *book_take(struct book *book, ns_t now);

uint32_t book_index(const struct book *book, const struct record *record);

/* The only way to change a record's state: keeps what is derived, marks it dirty. */
void book_set_state(struct book *book, struct record *record, enum record_state state);

/* Ends a live record, as GONE, or as ORPHAN where its work may still run. */
void book_end(struct book *book, struct record *record, enum record_end end, ns_t now);

/* An id of another book is dead from now on, without a record. */
void book_forget(struct book *book, struct lease_id id, ns_t now);

/* Marks a record as changed. */
void book_touch(struct book *book, const struct record *record);

/* A copy issues ids, but neither places (they are the id's) nor tokens (they stay as they are). */
uint64_t book_next_counter(struct book *book, struct record *record);
uint64_t book_next_place(struct book *book, struct record *record);
uint64_t book_next_token(struct book *book, struct record *record);

/* The place of a lease that no owner has given one: random by its id, the same everywhere. */
uint64_t book_place_by_id(struct lease_id id);

/* Everything was committed. */
void book_clean(struct book *book);
bool book_is_dirty(const struct book *book);

/* Fills in how this book looks to the others of its group, by the leases and, while it is trusted,
 * the last reading. */
void book_as_neighbour(const struct book *book, ns_t now, struct neighbour *neighbour);

/* The place of a new request is above `place`: one order in all books of a group. */
void book_raise_place(struct book *book, uint64_t place);

/* Another host owns the provider. */
static inline bool book_is_copy(const struct book *book)
{
    return book->sight.flags & SIGHT_COPY;
}

/* Readings can be had at all, by this host or by the owner. */
static inline bool book_is_probed(const struct book *book)
{
    return book->settings.probed && !(book->sight.flags & SIGHT_STATIC);
}

/* How long health was ok so far: the clock of settling and of ghosts. */
ns_t book_healthy_ns(const struct book *book, ns_t now);

/* Slots by the last word, else by the configuration, else 1. */
int32_t book_slots(const struct book *book);

/* For one lease more, where there are so many slots. */
bool book_has_room(const struct book *book, int32_t slots);

/* Asserts every invariant of record.h and of this header. For debug builds and tests. */
void book_check(const struct book *book);

#endif
