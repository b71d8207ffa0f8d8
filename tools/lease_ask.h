/* A question to the library on a thread of its own, so that run's loop can take signals while the
 * answer is awaited. */
#ifndef TOOLS_LEASE_ASK_H
#define TOOLS_LEASE_ASK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "agent/lease.h"

struct ask {
    /* the question, set by the asker; must not change until ask_finish */
    lease_agent_t *agent;
    const char *const *providers;
    size_t count;
    struct lease_request request; /* with `running` it is acquired, otherwise placed */
    /* the answer, there for the asker after ask_finish */
    int rc;
    struct lease lease;
    struct lease_verdict verdict;
    /* how it comes back */
    int done_fd; /* readable at end of file once the answer is there; -1: nothing is asked */
    int done_write_fd;
    pthread_t thread;
};

/* False with errno where no thread or pipe is to be had. */
bool ask_start(struct ask *ask);

/* Asks the thread to come back without an answer: its place in the queue is given up. It may be on
 * its way into a sleep, so this is repeated until done_fd is readable. */
void ask_interrupt(struct ask *ask);

/* Waits for the answer where it is not there yet. */
void ask_finish(struct ask *ask);

#endif
