/* What the tests of whole programs share: a host of their own (runtime directory, home, state), a
 * stand-in server in the test's own process, the real `lease` and `lease-agent`, and contenders.
 *
 * Nothing sleeps in the hope of something: STAGE_UNTIL looks again and again, up to a deadline. */
#ifndef TESTS_SERVER_STAGE_H
#define TESTS_SERVER_STAGE_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include "tests/lib/check.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tests/lib/client.h"
#include "tests/lib/slotserver.h"
#include "tests/lib/temp_dir.h"

#define STAGE_CHILDREN_MAX 64
#define CONTENDERS_MAX     16

/* In what company a test runs. */
struct company {
    bool agent;
    const char *version; /* of the server */
};

/* A program that was run to its end. The texts are never NULL. */
struct ran {
    int code; /* 128+n for a signal */
    int64_t ms;
    char *out, *err;
    json_t *json; /* of out, NULL where it is none */
};

struct stage {
    const struct company *company;
    char root[TEMP_DIR_MAX];
    char run[TEMP_DIR_MAX + 8]; /* the runtime directory */
    char spec[256];             /* x=http://... */
    struct slotserver_options options;
    struct slotserver *server;
    unsigned port;
    pid_t agent;
    pid_t contenders[CONTENDERS_MAX];
    int contender_outs[CONTENDERS_MAX];
    unsigned contender_count;
};

/* What all contenders together have had. */
struct contest {
    long acquires, refused, verifies, go, no, errors, longest_ms;
};

/* A fresh host and options for a server; then the server, and the agent where it is of the company. */
void stage_open(struct stage *stage, const struct company *company, unsigned slots);
void stage_start(struct stage *stage);
/* Everything ended and removed. Fails the test where a program of ours had crashed. */
void stage_close(struct stage *stage);
void stage_agent_start(struct stage *stage);
void stage_agent_end(struct stage *stage);

/* `lease` with these arguments, the last NULL; run to its end within 30 s. */
struct ran stage_lease(struct stage *stage, const char *argument, ...);
struct ran stage_run(struct stage *stage, char *const *argv);
void ran_done(struct ran *ran);
/* One line that begins with "lease: " and holds the text. */
void ran_says(const struct ran *ran, const char *text);

/* Any program, left running; *out is a pipe from its stdout where out is not NULL. */
pid_t stage_spawn(struct stage *stage, char *const *argv, int *out);
/* `lease` with these arguments, left running. */
pid_t stage_lease_begin(struct stage *stage, int *out, const char *argument, ...);
/* Waits for its end, at most so long; its exit code, -1 where it runs on. */
int stage_await(struct stage *stage, pid_t child, int64_t within_ms);
void stage_kill(struct stage *stage, pid_t child, int signal);

/* Processes that acquire and verify as fast as they can, and release what they get at once. */
void stage_contend(struct stage *stage, unsigned count);
struct contest stage_contest_end(struct stage *stage);

/* The provider x as `lease fleet --json` shows it; the caller's. */
json_t *stage_fleet(struct stage *stage);
long long number_of(const json_t *object, const char *key); /* -1: null, or not there */
const char *text_of(const json_t *object, const char *key); /* "" where it is none */
/* A number of the fleet's x. */
long long stage_number(struct stage *stage, const char *key);

struct slotserver_stats stage_stats(struct stage *stage);
/* Asks the server for a completion of so many tokens, not streamed, and returns the socket. */
int stage_request(struct stage *stage, unsigned tokens);

/* Looks each 5 ms until the condition holds or the time is over. True where it held. */
#define STAGE_UNTIL(condition, within_ms)                                                          \
    ({                                                                                             \
        int64_t until_end_ = client_now_ms() + (within_ms);                                        \
        bool until_held_;                                                                          \
        while (!(until_held_ = (condition)) && client_now_ms() < until_end_)                       \
            client_pause_ms(5);                                                                    \
        until_held_;                                                                               \
    })

/* Every test in four companies: with and without an agent, the new server and the old one. */
extern struct company companies[4];
#define IN_COMPANY(test)                                                                           \
    {#test " (new)", test, NULL, NULL, &companies[0]},                                             \
        {#test " (new, agent)", test, NULL, NULL, &companies[1]},                                  \
        {#test " (old)", test, NULL, NULL, &companies[2]},                                         \
    {                                                                                              \
#test " (old, agent)", test, NULL, NULL, &companies[3]                                     \
    }
/* Those where the server's version makes no difference. */
#define IN_NEW_COMPANY(test)                                                                       \
    {#test, test, NULL, NULL, &companies[0]},                                                      \
    {                                                                                              \
#test " (agent)", test, NULL, NULL, &companies[1]                                          \
    }

/* A filter for cases by name, for running one by hand; call it first in main. */
void stage_main(int argc, char **argv);

#endif
