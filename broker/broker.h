/* The broker: one function takes an event and returns effects as data, a second one says when it
 * wants to be called again. Pure: the same code runs in the daemon, in the library, in the
 * simulator and in the tests.
 *
 *   events : TICK      time has passed: expiry, settling, the queue
 *            REQUEST   acquire, verify, renew, release, from this host or from a peer
 *            READING   what the server said
 *            STATE, NAMED, CLAIM  what other hosts said, see mirror.h
 *            DEAD      processes of this host that are known to have died
 *   effects: reply     the answer to a REQUEST
 *            probe     a reading is wanted, not before probe_not_before_ns
 *            called    waiters whose record changed: wake them
 *            notes     what happened, for the log and for watchers
 *            and the book is dirty: commit it
 *
 * A verify that needs a reading is answered ANSWER_UNREAD: the caller has one made and asks again
 * with the same request id. It is never kept here, so a caller that dies leaves nothing behind.
 *
 * Thread rules: one step at a time for one book. `now` never runs backwards for a book: an older
 * one is taken to be the latest. */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include "broker/admission.h"
#include "broker/book.h"
#include "broker/mirror.h"

enum verb { VERB_NONE = 0, VERB_ACQUIRE, VERB_VERIFY, VERB_RENEW, VERB_RELEASE };

enum request_flags {
    REQUEST_FIRST = 1 << 0,   /* its id was drawn just now: no duplicate to look for */
    REQUEST_RUNNING = 1 << 1, /* acquire: its work runs already, `former` was its lease */
    REQUEST_FORCE = 1 << 2,   /* release of somebody else's lease */
    REQUEST_MAY_IDLE = 1 << 3,
    REQUEST_BY_PID = 1 << 4,
    REQUEST_NO_HOLDER = 1 << 5,
    REQUEST_GIVE_UP = 1 << 6, /* release by a waiter whose wait is over */
    REQUEST_AS_KNOWN =
        1 << 7, /* no newer reading is to be had: decide by what is known, if at all */
    REQUEST_BRINGS_ID =
        1 << 8,            /* acquire, verify: `lease` was issued by the asker's own book; where
                                   it is not known here, and not dead, it is acquired with that id.
                                   A no makes it dead, unless it is undecided */
    REQUEST_DIED = 1 << 9, /* release: its holder died on another host; its work may run on */
    REQUEST_GROUP_AS_KNOWN = 1 << 10, /* AS_KNOWN of the other members of the group */
};

struct request {
    enum verb verb;
    uint32_t flags; /* enum request_flags */
    struct request_id id;
    struct lease_id lease;  /* verify, renew, release. verify without (counter 0, units given):
                               acquire and verify in one step, of which a no leaves nothing */
    struct lease_id former; /* acquire with REQUEST_RUNNING; may be none */
    uint64_t epoch;         /* of the provider as the asker last heard it, 0: never. With
                               REQUEST_BRINGS_ID an unknown id under an older one is dead */
    uint32_t hint;          /* the cell where the lease was last seen; UINT32_MAX: unknown */
    uint32_t units;         /* acquire, and a verify that acquires */
    int32_t slot;           /* the same: an index, -1: any */
    uint32_t ttl_ms;        /* 0: the default */
    uint32_t wait_ms;       /* acquire, verify: stand in the queue this long from asked_ns */
    ns_t asked_ns;          /* when it was first asked: the wait counts from here */
    ns_t fresh_ns;          /* a reading sent since then is fresh; 0: since asked_ns */
    struct holder holder;   /* acquire, and a verify that acquires; release: who asks, pid 0 for
                               the broker's own, or the agent of `host`, for its processes */
};

enum verdict {
    ANSWER_GRANTED, /* acquired, renewed, released */
    ANSWER_GO,
    ANSWER_NO,
    ANSWER_WAIT,   /* stands in the queue: ask again when woken, or at retry_ns */
    ANSWER_UNREAD, /* a reading is wanted, not before retry_ns */
    ANSWER_GONE,   /* the lease had ended */
};

enum reason {
    REASON_NONE = 0,
    REASON_WAKES,      /* go, and the request wakes the server */
    REASON_LOADS,      /* go, and it loads the model */
    REASON_LEASES,     /* leases take all of it */
    REASON_AHEAD,      /* somebody with a smaller place */
    REASON_STRANGERS,  /* work without a lease */
    REASON_QUEUE,      /* the engine says so itself */
    REASON_SLOT,       /* the slot it names */
    REASON_HEALTH,     /* see health */
    REASON_UNITS,      /* more than there are, or none */
    REASON_SLOT_RANGE, /* no such slot */
    REASON_TTL,        /* out of bounds */
    REASON_BOOK_FULL,
    REASON_QUEUE_FULL,
    REASON_PAUSE, /* the server is left alone for a moment */
    REASON_GHOST, /* no work shows for it: not renewed */
    REASON_ENDED, /* see end */
    REASON_UNKNOWN_ID,
    REASON_WAIT_OVER,
    REASON_GROUP,     /* another member of the group: see member */
    REASON_NOT_YOURS, /* release of a lease whose holder lives, without force */
};

struct answer {
    enum verdict verdict;
    bool undecided; /* a no that ended nothing: the caller releases */
    enum reason reason;
    enum health health;
    enum record_end end; /* with REASON_ENDED */
    struct lease_id lease;
    uint32_t cell; /* where its record lies: a hint, and what a waiter watches */
    uint64_t token;
    uint64_t place;
    uint32_t units;
    int32_t slot;
    enum record_state state;
    ns_t end_ns;   /* when the lease, or the wait, ends */
    ns_t retry_ns; /* with WAIT, UNREAD, and a NO for as long as a pause of the server; else 0 */
    uint32_t waited_ms;
    int32_t slots, busy, ahead, strangers, available;
    char group[NAME_SIZE];  /* with REASON_GROUP, "" not told */
    char member[NAME_SIZE]; /* with REASON_GROUP: who of the group is in use, or was first */
    struct { /* who is in the way and ends first; pid 0 and empty where nobody is known */
        char host[NAME_SIZE];
        char label[LABEL_SIZE];
        uint32_t pid;
        uint32_t state;
        int64_t left_ms;
    } other;
};

enum note_kind {
    NOTE_ACQUIRED,
    NOTE_QUEUED,
    NOTE_WENT, /* verify said go */
    NOTE_REFUSED,
    NOTE_RELEASED,
    NOTE_FORCED,
    NOTE_EXPIRED,
    NOTE_LAPSED,
    NOTE_GAVE_UP,
    NOTE_REPLACED,
    NOTE_RENEWAL_REFUSED,
    NOTE_STRANGERS,      /* value: how many there are now */
    NOTE_STRANGERS_GONE, /* value: how many there were */
    NOTE_GHOST,
    NOTE_ORPHAN,
    NOTE_ORPHAN_GONE,
    NOTE_HEALTH, /* value: the new health */
    NOTE_KINDS,
};

struct note {
    enum note_kind kind;
    enum reason reason;
    int32_t value;
    struct lease_id lease;
    uint32_t pid;
    char host[NAME_SIZE];
    char label[LABEL_SIZE];
};

enum event_kind {
    EVENT_TICK,
    EVENT_REQUEST,
    EVENT_READING,
    EVENT_DEAD,
    EVENT_STATE,
    EVENT_NAMED,
    EVENT_CLAIM,
};

struct event {
    enum event_kind kind;
    ns_t now;
    const struct request *request; /* EVENT_REQUEST */
    const struct reading *reading; /* EVENT_READING */
    const uint16_t *dead;          /* EVENT_DEAD: cells, as seen in this very book */
    uint32_t dead_count;
    const struct heard_state *state; /* EVENT_STATE */
    const struct heard_named *named; /* EVENT_NAMED */
    const struct heard_claim *claim; /* EVENT_CLAIM */
};

struct effects {
    bool has_reply;
    struct answer reply;
    bool probe;
    ns_t probe_not_before_ns;
    uint32_t called_count;
    uint16_t called[BOOK_WAITERS_MAX + BOOK_SLOTS_MAX];
    uint32_t note_count, notes_lost;
    struct note notes[NOTES_MAX];
};

/* Refusals, answered again the same for REFUSAL_MS to whoever asks again. Private to a process. */
struct refusals {
    uint32_t next;
    struct {
        struct request_id id;
        ns_t at;
    } keys[REFUSALS_MAX]; /* apart from the answers: each new request is looked for among them */
    struct answer answers[REFUSALS_MAX];
};

struct broker {
    struct book *book;
    struct refusals *refusals; /* NULL: none are kept, every request is a first one */
    ns_t now;                  /* the latest seen */
    ns_t refusal_noted_ns;     /* when a refused acquire was noted last, 0 never */
};

void broker_init(struct broker *broker, struct book *book, struct refusals *refusals);

void broker_step(struct broker *broker, const struct event *event, struct effects *effects);

/* The refusal of this request is told to nobody: asked again, it is decided anew. */
void broker_unsay(struct broker *broker, struct request_id id);

/* When a TICK is next of use: the earliest end of anything. NS_NEVER: nothing will change. */
ns_t broker_deadline(const struct broker *broker);

/* A lower-case line for people: why, and what it would take. size > 0. */
void broker_reason_text(const struct answer *answer, char *text, size_t size);

const char *note_name(enum note_kind kind);

/* One word or two for the log. */
const char *reason_name(enum reason reason);

/* Candidates that are equals: one of those with the most available, at random by `entropy`;
 * unknown (-1) counts as less than 1 and more than 0. Returns its index, or -1 where count is 0. */
int broker_choose(const int32_t *available, uint32_t count, uint64_t entropy);

#endif
