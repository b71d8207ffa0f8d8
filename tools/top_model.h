/* The model of leasetop: what is known of the fleet, how old that is, and what it was before.
 *
 * It takes snapshots of liblease and keeps the newest one; between two of them ages go on growing.
 * A state is a function of the last word and its age: past the limit, or when the agent that kept
 * it fresh is lost, it *is* unknown, and what it was stands beside it. Unknown is never free.
 *
 * Thread rules: one thread. No clock is read here: `now_ns` is an argument everywhere. */
#ifndef TOOLS_TOP_MODEL_H
#define TOOLS_TOP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/lease.h"

/* In the order of attention. */
enum top_state {
    TOP_STRANGER = 0,
    TOP_ORPHAN,
    TOP_GHOST,
    TOP_UNKNOWN,
    TOP_LEASED,
    TOP_DISPATCHED,
    TOP_FREE,
    TOP_STATES
};

enum top_agent {
    TOP_AGENT_NONE = 0, /* none beats, and none has since we look */
    TOP_AGENT_LIVE,
    TOP_AGENT_LOST, /* it was live */
};

/* How far the word on a provider carries. */
enum top_standing {
    TOP_LIVE = 0,
    TOP_BY_BOOK, /* the agent is lost: leases stand by the book, the rest is unknown */
    TOP_UNOWNED, /* nobody speaks for it: leases stand among those who see them */
    TOP_CONFLICT,
    TOP_STALE, /* its owner was not heard of late: everything is unknown */
    TOP_LOST,
    TOP_STANDINGS
};

#define TOP_HISTORY       60   /* samples, one character each */
#define TOP_HISTORY_MS    5000 /* between two of them */
#define TOP_WHY_SIZE      256
#define TOP_PROVIDER_SIZE (2 * LEASE_NAME_SIZE) /* NAME, or NAME@OWNER */
#define TOP_UNITS_MAX     4096                  /* of one provider; what says more is cut */

/* What is remembered of a provider from one snapshot to the next. */
struct top_memory {
    char provider[LEASE_NAME_SIZE];
    char owner[LEASE_NAME_SIZE];
    uint64_t seen;              /* the snapshot that had it last */
    uint32_t known[TOP_STATES]; /* the last composition that was known wholly... */
    int64_t known_ns;           /* ... and when; 0: never */
    int64_t
        since_ns[TOP_STATES]; /* since when as many units are in this state; 0: not seen begin */
    uint32_t before[TOP_STATES];
    int64_t sampled_ns;
    uint32_t samples;
    char history[TOP_HISTORY + 1]; /* the newest last */
};

struct top_provider {
    const struct lease_view *view;
    struct top_memory *memory;
    enum top_standing standing;
    bool remote; /* its owner is another host */
    uint32_t counts[TOP_STATES];
    uint32_t slots; /* the sum of counts is slots + over */
    uint32_t over;
    char name[TOP_PROVIDER_SIZE]; /* clean */
    char why[TOP_WHY_SIZE];       /* clean: why its unknown units are, and what they were */
};

struct top_totals {
    uint32_t counts[TOP_STATES];
    uint32_t slots, over, waiting;
    uint32_t providers, standing[TOP_STANDINGS];
    uint32_t down;     /* of the live ones: their server does not answer */
    int64_t available; /* of those that tell it */
};

/* The other hosts' agents. */
struct top_hosts {
    uint32_t live, silent;       /* silent: also those that were never heard */
    char first[LEASE_NAME_SIZE]; /* clean: a silent one's name, "" it was never told */
    int64_t first_ms;            /* since it was heard, -1: never */
};

/* What a source brings. fleet is taken. */
struct top_snapshot {
    struct lease_fleet *fleet;
    int64_t taken_ns;
    bool beats;        /* an agent speaks for this host */
    int64_t silent_ms; /* since its last beat, -1: never heard of one */
    uint32_t agent_pid;
};

struct top_model {
    struct lease_fleet *fleet; /* the newest one, as honest as standing makes it; NULL: none yet */
    int64_t taken_ns;
    enum top_agent agent;
    int64_t silent_ms;
    uint32_t agent_pid;
    int64_t lost_ns; /* when its loss was noticed, 0: it is not lost */
    uint64_t taken;  /* snapshots so far */
    char host[LEASE_NAME_SIZE];
    struct top_provider *providers;
    uint32_t provider_count;
    struct top_totals totals;
    struct top_hosts hosts;
    struct top_memory **memories;
    uint32_t memory_count;
};

void top_model_init(struct top_model *model);
void top_model_free(struct top_model *model);

/* Takes snapshot->fleet, also where it answers false: no memory, the model is unchanged. */
bool top_model_take(struct top_model *model, struct top_snapshot *snapshot);

/* How much older everything is than when it was taken. */
int64_t top_model_age_ms(const struct top_model *model, int64_t now_ns);

/* The lease should have ended, and no word of that came. */
bool top_has_lapsed(const struct lease_entry *entry, const struct top_provider *provider);

/* Its server says something else than that it is well, or nothing at all. */
bool top_is_unwell(const struct top_provider *provider);

/* A dispatched lease without work in the server: claimed only by a reading that counts work. */
bool top_is_ghost(const struct lease_entry *entry, const struct top_provider *provider);

/* "free", and '.': a word and a character for each state. */
const char *top_state_word(enum top_state state);
char top_state_glyph(enum top_state state);
const char *top_standing_word(enum top_standing standing);

/* The units of a provider as characters, in the order dispatched, ghost, orphan, leased, stranger,
 * free, unknown. Answers how many there are; at most size - 1 are written. */
uint32_t top_strip(const struct top_provider *provider, char *text, size_t size);

#endif
