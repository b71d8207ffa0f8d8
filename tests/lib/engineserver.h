/*
 * Stand-ins for the servers that are no llama-server: each tells of its work as that one does, with
 * the same blind spots. The work is the same in all of them: a POST to a path below /v1 takes a
 * place, waits first come first served while there is none, and keeps it for the `ms` of its body
 * (without: until its client has gone away).
 *
 *   vllm         gauges that show what was lag_ms ago; /load, which stays 0 without `tracking` and
 *                is off by `drift`; not told how many places there are
 *   sglang       new: /v1/loads, as written down at most lag_ms ago; old: /get_load
 *   tgi          /info and /metrics, whose gauges are missing before the first request
 *   llama-swap   one model at a time: a request for another, or anything below /upstream/MODEL,
 *                stops the one that runs and starts its own, which takes load_ms; one that was idle
 *                for ttl_s is stopped
 *   llama-skein  the same with /api/hardware, which says 1 slot whatever there is
 *   ollama       one model at a time too, but neither a question nor a probe loads one; /api/ps tells
 *                which, never how much it does; from max_waiting on requests are turned away (503)
 *   lmstudio     the same without that; tells how many at a time of what is loaded, the old one not
 *                even that; answers 200 to whatever it does not know, with an error inside
 *
 * GET /_/stats tells the truth, POST /_/set?NAME=NUMBER changes lag_ms, tracking, drift, ttl_s.
 * Ignore SIGPIPE in a process that starts one.
 */
#ifndef ENGINESERVER_H
#define ENGINESERVER_H

#include <stdbool.h>

struct engineserver_options {
    const char *kind; /* as above */
    const char *host; /* numeric IPv4 address */
    unsigned port;    /* 0: a free one */
    bool old;         /* the older version */
    unsigned slots;
    unsigned lag_ms;
    bool tracking;
    int drift;
    unsigned loading_ms; /* 503 until then */
    const char *models;  /* comma-separated */
    unsigned load_ms;
    unsigned ttl_s; /* 0: never stopped */
    unsigned max_waiting;
    const char *api_key; /* NULL: none */
};

struct engineserver_stats {
    unsigned long tasks;
    unsigned long queued; /* of them those that had to wait for a place */
    unsigned long turned_away;
    unsigned running, waiting, max_running;
    unsigned long loads, stops; /* of models */
    unsigned long asked;        /* GETs, but for those below /_ */
};

struct engineserver;

void engineserver_defaults(struct engineserver_options *options);

/* NULL: an option makes no sense, or the port is taken; says why on stderr. The texts must live as
 * long as the server. */
struct engineserver *engineserver_start(const struct engineserver_options *options);
unsigned engineserver_port(const struct engineserver *server);

/* Ends what runs; clients see their connections close. */
void engineserver_stop(struct engineserver *server);

void engineserver_stats(struct engineserver *server, struct engineserver_stats *stats);

/* False: no such name. */
bool engineserver_set(struct engineserver *server, const char *name, int value);

#endif
