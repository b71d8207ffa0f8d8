/* The stage on which real processes of one host meet: a runtime directory of its own, children that
 * play a part each, our own programs run as users run them, and a board that all of them share.
 *
 * A part is a function that runs in a forked child, opens whatever it needs itself and answers with
 * an exit code. It says must() where a test would assert: cmocka's own macros know nothing of other
 * processes. Everything that was started and still runs is killed by stage_tear_down. */
#ifndef TESTS_LIB_HOST_STAGE_H
#define TESTS_LIB_HOST_STAGE_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "agent/lease.h"
#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

#define STAGE_PARTS   64 /* counters of the board */
#define STAGE_PATIENT 20000
#define PART_FAILED   99

/* Lies in memory that all children share. */
struct board {
    _Atomic uint32_t step; /* how far the parts are */
    _Atomic uint32_t go;   /* what they wait for */
    _Atomic uint32_t inside, overlaps;
    _Atomic uint64_t last_token, tokens_that_fell;
    _Atomic uint64_t count[STAGE_PARTS];
    _Atomic int64_t longest_ns[STAGE_PARTS];
};

extern char stage_dir[TEMP_DIR_MAX]; /* the runtime directory; its parent is the home */
extern struct board *board;

int stage_set_up(void **state);
int stage_tear_down(void **state);
#define staged(test) cmocka_unit_test_setup_teardown(test, stage_set_up, stage_tear_down)

/* ---- parts ------------------------------------------------------------------------------------- */

typedef int stage_part(int index);

pid_t stage_play(stage_part *part, int index);

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            fflush(stderr);                                                                        \
            _exit(PART_FAILED);                                                                    \
        }                                                                                          \
    } while (0)

/* Waits until *word is at least `least`; false after STAGE_PATIENT ms. */
bool stage_await(const _Atomic uint32_t *word, uint32_t least);

/* The independent proof: whoever was told *go* is inside until he leaves, and nobody else may be.
 * It uses neither a lock nor anything of ours. */
void stage_enter(uint64_t token);
void stage_leave(void);

/* ---- programs ---------------------------------------------------------------------------------- */

/* Starts argv[0] with stdout and stderr in files ("" or NULL: /dev/null). */
pid_t stage_start(char *const argv[], const char *out, const char *err);

#define STAGE_RUN(out, ...) stage_run((char *const[]){__VA_ARGS__, NULL}, out, sizeof out)
/* Runs it to its end: the exit code, and what it said on stdout. */
int stage_run(char *const argv[], char *out, size_t size);

/* The exit code, 128 + n for a signal; a process that lives on after STAGE_PATIENT fails the test. */
int stage_end(pid_t pid);
int stage_end_within(pid_t pid, int64_t ms);
/* The next of all children that ends, and its exit code; fails the test after STAGE_PATIENT. */
pid_t stage_next(int *code);
void stage_kill(pid_t pid); /* with SIGKILL, and waits for it */

bool stage_read(const char *path, char *text, size_t size);

/* ---- our programs ------------------------------------------------------------------------------ */

/* The daemon on the stage's directory, once it beats; provider may be NULL. */
pid_t stage_start_agent(const char *provider);
pid_t stage_start_agents(const char *one, const char *other); /* one agent of two providers */
void stage_stop_agent(pid_t agent);

/* A handle, in a test or in a part; flags of lease_open_flags. NULL where it cannot. */
lease_agent_t *stage_open(const char *provider, unsigned flags);

/* What `view` says of a provider; false where it is not there. */
bool stage_look(lease_agent_t *agent, const char *provider, struct lease_view *view);

/* How many slots are available by a view, -1 unknown, -2 none. */
int64_t stage_available(lease_agent_t *agent, const char *provider);

/* What should take ms at most may take longer where the machine has more to do than processors. */
int64_t stage_patience(int64_t ms);

/* A number of the environment, or its default. */
long stage_number(const char *variable, long usual);

#endif
