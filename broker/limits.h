/* Every maximum of the decisions, with what happens when it is reached.
 *
 * Times are in the unit that the name ends with. Nothing here changes at run time; what an
 * operator may set per provider is in struct book_settings (book.h). */
#ifndef BROKER_LIMITS_H
#define BROKER_LIMITS_H

/* Text. Longer names are refused; longer labels and hosts are cut at a character's border. */
#define NAME_CHARS_MAX  63
#define LABEL_BYTES_MAX 127
#define NAME_SIZE       (NAME_CHARS_MAX + 1)
#define LABEL_SIZE      (LABEL_BYTES_MAX + 1)

/* Counts. A full book or queue refuses with a reason; nothing is evicted to make room. */
#define PROVIDERS_MAX     64   /* declared to one agent, told by one peer, in one pool */
#define BOOK_SLOTS_MAX    1024 /* a server that says more is taken to have this many */
#define BOOK_LEASES_MIN   16   /* leases at a time: twice the slots, but at least this many */
#define BOOK_LEASES_MAX   (2 * BOOK_SLOTS_MAX)
#define BOOK_WAITERS_MAX  1024
#define BOOK_CELLS        (BOOK_LEASES_MAX + BOOK_WAITERS_MAX)
#define WAITING_UNITS_MAX (BOOK_WAITERS_MAX * BOOK_SLOTS_MAX) /* of the waiters of another host */
#define BOOK_CELLS_SPARE  32   /* ended records kept for duplicates before one is used again */
#define GROUP_MEMBERS_MAX 16   /* providers of one group; further ones are not seen by the others */
#define FLOORS_MAX        512  /* instances remembered; the one idle longest makes room */
#define FLOOR_WINDOW      1024 /* counters below the highest forgotten one told apart by a bit */
#define REFUSALS_MAX      1024 /* refusals answered again; the oldest makes room */
#define WORK_MAX          (INT32_MAX / 4) /* a server that says more work than this has this much */
#define COUNTER_MAX       (UINT64_C(1) << 62) /* of ids; a file that says more is not believed */
#define READING_MODELS    16 /* models named in a reading; the rest is counted only */
#define NOTES_MAX         64 /* notes of one step; further ones are counted, not kept */

/* Leases. A time to live outside of these bounds is refused. */
#define TTL_MS_MIN                1000
#define TTL_MS_MAX                86400000
#define TTL_HELD_MS_DEFAULT       10000
#define TTL_DISPATCHED_MS_DEFAULT 30000
#define HELD_MS_MAX               60000 /* a held lease is kept alive this long, waiting not counted */
#define WAIT_MS_MAX               86400000
#define REFUSAL_MS                5000 /* how long a refusal is answered again the same */

/* Readings. */
#define MAX_AGE_MS       20    /* verify wants a reading no older */
#define PROBE_MS         500   /* a probe that takes longer means busy */
#define SETTLE_NAMES_MS  10000 /* unseen work counts as seen after this, tasks named */
#define SETTLE_COUNTS_MS 50    /* the same where only a count is told */
#define GHOST_MS         120000
#define DRAIN_MS         5000 /* an ended lease keeps its units, where readings tell nothing */
#define READING_TRUST_MS 6000 /* an older reading decides nothing and shows nothing as free */
#define PAUSE_MS         1200 /* without a probe, so that a server notices who has left */
#define PAUSE_EVERY_MS   4000
#define PROBE_ACTIVE_MS  1200 /* between background readings: something leased or watched */
#define PROBE_IDLE_MS    5000
#define UNANSWERED_MS    60000 /* a question not answered counts as sitting at the server so long */

/* Tokens: epoch << 20 | n, below 2^53 so that JavaScript holds them exactly. */
#define TOKEN_BITS  20
#define TOKEN_N_MAX ((UINT64_C(1) << TOKEN_BITS) - 1)
#define EPOCH_MAX   ((UINT64_C(1) << 33) - 1)
/* A higher one that comes from elsewhere is not believed: nobody could ever go above it. */
#define EPOCH_HEARD_MAX (EPOCH_MAX - (UINT64_C(1) << 20))

/* Places. Those that a counter gave lie below; in a copy of a book (mirror.h) a lease that the owner
 * has not named has its place from its id, the same on every host. */
#define PLACE_BY_ID     (UINT64_C(1) << 62)
#define PLACE_HEARD_MAX (UINT64_C(1) << 61) /* a higher one is not believed */
#define CLAIM_STAYS_S   3 /* in a copy: a claim which the owner's states lack goes after this */

#endif
