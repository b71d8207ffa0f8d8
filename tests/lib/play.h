/* An engine's probe played without a socket: what probe.c does, with answers from tests/recorded. */
#ifndef TESTS_LIB_PLAY_H
#define TESTS_LIB_PLAY_H

#include "agent/engine.h"
#include "tests/lib/recorded.h"

#define PLAY_NOW    (1000 * NS_PER_SEC)
#define PLAY_OTHERS 4

/* What a path without its query is called in the names of bodies. */
struct play_name {
    const char *path, *name;
};

/* A server in a state that was recorded, and what differs from that. A path without a body is
 * answered 404. */
struct play {
    const struct engine *engine;
    const struct recorded *all;
    size_t count;
    const struct play_name *names; /* up to one without a path */
    const char *prefix;            /* of the bodies' names */
    struct play_other {
        const char *path; /* without the query */
        int status;
        const char *body; /* NULL: "" */
        enum http_failure failure;
    } other[PLAY_OTHERS];
    enum probe_wants wants;
    const char *model;    /* NULL: none */
    const char *key_file; /* NULL: none */
    int slots;            /* 0: not told */
    struct engine_memory memory;
    const struct reading *last; /* NULL: none; may be the one of before */
    ns_t now;                   /* 0: PLAY_NOW */
};

/* What the last one came to: run.memory for the next, and the paths in their order, '+' before each
 * that left with others under way. */
extern struct probe_run play_run;
extern char play_asked[512];

/* Each event takes a millisecond. */
const struct reading *play(const struct play *play);

/* Fails the test unless it reads so. */
void play_reads(const struct play *play, enum health health, enum signal_kind kind, int total,
                int in_flight, int queued);

#endif
