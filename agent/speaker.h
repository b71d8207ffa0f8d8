/* The speaker: the one process of a host that keeps readings fresh, reaps what has ended, and
 * answers over ipc. Whoever holds the lock on agent.lock is it: the daemon where there is one,
 * else an embedded agent. Internal.
 *
 * A thread of its own, with all signals blocked; everything here but `stop` and `wake_fd` belongs
 * to it. */
#ifndef AGENT_SPEAKER_H
#define AGENT_SPEAKER_H

#include "agent/agent.h"
#include "agent/http.h"
#include "agent/probe.h"
#include "agent/service.h"
#include "agent/speaker_outside.h"
#include "broker/host_beat.h"

#define SPEAKER_LOCK_FILE  "agent.lock"
#define SPEAKER_YIELD_FILE "agent.yield" /* made by a daemon that wants the office */

/* When a provider is to be asked, as its book says: the same until the book changes. */
struct probe_plan {
    ns_t made_ns;       /* 0: never */
    uint32_t change;    /* the book's change word before it was read */
    bool watched;       /* somebody looked lately */
    bool active;        /* or it is of interest for another reason */
    ns_t due_ns;        /* of the next background probe */
    ns_t not_before_ns; /* the server's pause */
};

/* One provider's probe. */
struct prober {
    struct speaker *speaker;
    struct provider *provider;
    struct probe_target *target;
    uint32_t demand_seen; /* of the provider's words, as last acted upon */
    uint32_t demand;      /* the same, as the plan was last looked at */
    bool has_office;      /* we are the prober in the provider's words */
    bool recovered;       /* the server has got to a question that it had left waiting */
    bool parked;          /* `reading` waits for the book's lock */
    ns_t parked_ns;
    ns_t tick_ns; /* when the book is looked at next */
    struct probe_plan plan;
    struct reading reading;
};

enum speaker_state { SPEAKER_STARTING, SPEAKER_LISTENING, SPEAKER_SPEAKING, SPEAKER_REFUSED };

struct room;

struct speaker {
    struct lease_agent *agent;
    pthread_t thread;
    pthread_t watcher;
    bool watcher_runs;
    int wake_fd;           /* eventfd: a demand, or stop */
    _Atomic uint32_t stop; /* 1: end; the watcher sleeps on it, too */
    _Atomic uint32_t news; /* the same: grows with each prober */

    pthread_mutex_t state_mutex;
    pthread_cond_t state_changed;
    enum speaker_state state;

    int refusal; /* why the office was not had when it was last tried for */
    struct host_lock lock;
    int beat_fd;
    bool yields;    /* a daemon asked for the office */
    uint32_t moves; /* of the agent, when the office was taken */
    ns_t started_ns, beat_ns, next_try_ns;
    uint8_t id[16]; /* lasting */
    struct http *http;
    struct service *service;
    uint32_t prober_count;
    struct prober *probers[KNOWN_MAX];
    struct room *room; /* what there is of the fleet; NULL: nothing */
    struct outside outside;
    bool to_answer;                     /* there may be a question in the service's socket */
    _Atomic unsigned watches;           /* enum speaker_watches */
    _Atomic uint32_t looked[KNOWN_MAX]; /* change words of books, as the loop last saw them */
};

/* What the watcher sleeps on beside demands: changes of books, to be published now and then, or for
 * which somebody waits. */
enum speaker_watches { SPEAKER_WATCHES_DEMANDS, SPEAKER_WATCHES_BOOKS, SPEAKER_WATCHES_CLOSELY };

/* speaker_probe.c */
int speaker_probers_update(struct speaker *speaker); /* one for each provider that is known */
void speaker_probers_free(struct speaker *speaker);
void speaker_probers_run(struct speaker *speaker);
ns_t speaker_probers_deadline(const struct speaker *speaker);

/* speaker_watch.c: a thread that turns demands in shared memory into a readable descriptor. */
int speaker_watch_start(struct speaker *speaker);
void speaker_watch_stop(struct speaker *speaker);

/* speaker_sleep.c: until there is something to do, or it is until_ns. */
void speaker_sleep(struct speaker *speaker, ns_t until_ns);

/* speaker.c: this host is the owner from now on. */
void speaker_raise(struct book *book, uint64_t epoch);

/* speaker_service.c */
int speaker_service_open(struct speaker *speaker);
void speaker_service_close(struct speaker *speaker);

#endif
