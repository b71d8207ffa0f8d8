/* A reading: what a server said about itself, or that it said nothing, and when.
 *
 * Plain data without pointers; lies in the host's file as it is here. -1 is unknown, never 0. */
#ifndef BROKER_READING_H
#define BROKER_READING_H

#include "broker/record.h"

enum health {
    HEALTH_UNKNOWN = 0,
    HEALTH_OK,
    HEALTH_BUSY, /* accepted the connection, did not answer in time */
    HEALTH_LOADING,
    HEALTH_SLEEPING,     /* the first request wakes it */
    HEALTH_UNLOADED,     /* the first request loads the model */
    HEALTH_UNAUTHORIZED, /* it wants a key, or another one */
    HEALTH_DOWN,         /* refused, or not reached */
};

enum signal_kind {
    SIGNAL_NONE = 0, /* nothing is told: leases alone decide */
    SIGNAL_INFERRED, /* guessed from something else: leases alone decide */
    SIGNAL_EXACT,
};

enum model_state { MODEL_UNKNOWN = 0, MODEL_LOADED, MODEL_LOADING, MODEL_UNLOADED, MODEL_SLEEPING };

/* Whether a question that the server does not answer costs it one of few threads. */
enum threads { THREADS_UNKNOWN = 0, THREADS_FEW, THREADS_MANY };

#define ENGINE_SIZE 24
#define DETAIL_SIZE 128

#define READING_TICK_NS (NS_PER_SEC / 4)
#define READING_TRIAL_S 512

struct reading_slot {
    int32_t task; /* the server's name of the work in it, -1 none told */
    int32_t busy; /* 1 or 0 */
};

struct reading_model {
    char name[NAME_SIZE];
    uint32_t state; /* enum model_state */
    uint32_t spare;
};

struct reading {
    ns_t sent_ns;     /* when the question left; 0: never read */
    ns_t answered_ns; /* when the answer, or its absence, was known */
    ns_t hung_ns; /* when the question was sent that sits unanswered at the server; 0: none does */
    int32_t health; /* enum health */
    int32_t signal; /* enum signal_kind */
    int32_t slots_total;
    int32_t in_flight;
    int32_t queued;
    int32_t queue_means_full; /* 1: on this engine anything queued says that all is taken */
    int32_t named;            /* 1: slots[].task names the work */
    int32_t slot_count;       /* entries of slots that are told, 0 where there are none */
    int32_t model_count;      /* entries of models */
    int32_t threads;          /* enum threads */
    int32_t in_peace;         /* 1: what is at work was not asked, so that it can fall asleep */
    uint16_t idle_ticks; /* READING_TICKs: how long each that asked has found nothing at work */
    uint16_t rest_ticks; /* how long nobody has asked */
    uint32_t source;     /* a hash of where and what was asked, by the prober; 0: not told */
    int32_t found_by;    /* what told the engine, by the prober's numbers; 0: it was named */
    char engine[ENGINE_SIZE];
    char detail[DETAIL_SIZE]; /* one line for people: what it cannot tell, what went wrong */
    struct reading_model models[READING_MODELS];
    struct reading_slot slots[BOOK_SLOTS_MAX];
};

_Static_assert(sizeof(struct reading) % 8 == 0, "no padding at a reading's end");

/* Nothing known: every number -1, health unknown, signal none. */
void reading_clear(struct reading *reading);

/* Brings a reading that came from outside into bounds; what cannot be is made unknown. */
void reading_sanitize(struct reading *reading);

/* Verify may say go: ok, or sleeping or unloaded (the first request wakes or loads). */
bool health_admits(enum health health);

/* What is asked of an idle server keeps it from falling asleep. `last` is the reading before, of the same
 * server. Of one that is known to sleep, who only looks asks when it was left in peace as long as it has
 * been seen to be idle, so at distances that double: then it falls asleep whatever time that takes. */
void reading_rest(struct reading *reading, const struct reading *last);
bool reading_rest_is_over(const struct reading *last, ns_t now);

/* Of one that never slept yet, as most never do, who looks wants to see what strangers do. It is left in
 * peace for less than a quarter of its idle time, in pieces that double, to find out whether it sleeps; the
 * longest is of READING_TRIAL_S. */
bool reading_is_trial(const struct reading *last, ns_t now);

/* in_flight of this reading can be counted with. */
bool reading_counts(const struct reading *reading);

const char *health_name(enum health health);
const char *signal_name(enum signal_kind kind);
const char *model_state_name(enum model_state state);

#endif
