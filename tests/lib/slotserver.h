/*
 * A stand-in that behaves as llama.cpp's llama-server does, without a model: it has slots, a queue
 * behind them and simulated work that takes real time. What it does was measured on two versions
 * of the real server; the recorded bodies are in tests/recorded/llama.cpp.
 *
 * A test starts it in its own process, asks it over HTTP, and reads the counters: the truth about
 * how many tasks had to queue, whatever anybody claims. Ignore SIGPIPE in such a process.
 */
#ifndef SLOTSERVER_H
#define SLOTSERVER_H

#include <stdbool.h>

enum slotserver_version {
    SLOTSERVER_OLD, /* b6845, 2025-10 */
    SLOTSERVER_NEW, /* v0.4.0, 2026-09 */
};

struct slotserver_options {
    const char *host;    /* numeric IPv4 address to listen on */
    unsigned port;       /* 0: a free one */
    const char *version; /* "new" or "old" */
    unsigned slots;
    unsigned ctx; /* context of the whole server, divided among the slots */
    double prefill_tps;
    double tps;            /* generation; each slot's own, as one decode serves them all */
    unsigned batch;        /* most prompt tokens in one decode */
    unsigned blind_ms;     /* every decode takes at least this long */
    unsigned http_threads; /* 0: as the version has it (old: slots + 2, new: no limit) */
    bool metrics;
    bool no_slots;
    const char *alias;   /* comma-separated names; NULL: the model's path */
    const char *api_key; /* NULL: none */
    unsigned loading_ms;
    double sleep_idle_seconds; /* 0: never sleeps; only the new version knows sleep */
    unsigned wake_ms;
    const char *router; /* comma-separated names of models; NULL: no router */
    unsigned models_max;
    unsigned model_load_ms;
    const char *misbehave; /* NULL or "none", else see slotserver_misbehave() */
};

struct slotserver_stats {
    unsigned in_slots, max_in_slots;
    unsigned long tasks;     /* handed in, ever */
    unsigned long queued;    /* of them those that no slot was free for when they came */
    long long queue_wait_ms; /* of all that queued and then began */
    long long queue_wait_longest_ms;
    unsigned long completed;
    unsigned long abandoned; /* ended because their client had gone away */
    unsigned long wakes;
    unsigned long model_loads, model_evictions;
    unsigned connections, max_connections;
    unsigned long unserved; /* connections that found no HTTP thread free */
};

struct slotserver;

void slotserver_defaults(struct slotserver_options *options);

/*
 * NULL if an option makes no sense or the port is taken; says why on stderr. The texts that the
 * options point to must live as long as the server.
 */
struct slotserver *slotserver_start(const struct slotserver_options *options);
unsigned slotserver_port(const struct slotserver *server);

/* Ends whatever runs; clients see their connections close. */
void slotserver_stop(struct slotserver *server);

/*
 * What the real server does on SIGTERM. The port is closed. Returns true if the process may end at
 * once; otherwise it lingers until slotserver_lingers() says no more (the new version, which waits
 * for clients that have not had a byte yet). slotserver_stop() is still to be called.
 */
bool slotserver_terminate(struct slotserver *server);
bool slotserver_lingers(struct slotserver *server);
bool slotserver_in_flight(struct slotserver *server);

void slotserver_stats(struct slotserver *server, struct slotserver_stats *stats);
unsigned long slotserver_asked(struct slotserver *server, const char *path);
char *slotserver_stats_json(struct slotserver *server); /* for free() */
void slotserver_reset(struct slotserver *server);       /* all counters to 0 */

/*
 * From now on, on every path but those that begin with /_ :
 *   hang          takes the request and never answers
 *   html          200 and an HTML page
 *   truncated     200 and JSON that breaks off
 *   cut           announces more bytes than it sends, then closes
 *   huge          200 and 100 MB of JSON
 *   garbage       bytes that are not HTTP
 *   redirect      302 to /_redirected of this server
 *   refuse-slots  closes the connection on /slots and /metrics, else behaves
 *   none          behaves again
 * Returns false for a word that it does not know.
 */
bool slotserver_misbehave(struct slotserver *server, const char *how);

#endif
