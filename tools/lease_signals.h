/* The signals of `lease run`, as data that a loop can poll for. Only run's main thread uses it.
 *
 * Linux: signalfd. Elsewhere a handler that writes the number to a pipe belongs behind this
 * header; it cannot tell who sent a signal, so there a child needs a process group of its own. */
#ifndef TOOLS_LEASE_SIGNALS_H
#define TOOLS_LEASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

struct run_signals {
    int fd;
    sigset_t mask_before;
    struct sigaction child_before; /* of SIGCHLD */
};

struct run_signal {
    int number;
    bool from_terminal; /* the whole process group has it already */
};

/* Blocks the signals that run handles, but not those that whoever started us ignores (nohup), and
 * makes children waitable. False with errno. Signals wait from here on until they are read. */
bool signals_open(struct run_signals *signals);

/* The next one that has come. False where there is none. Never blocks. */
bool signals_next(struct run_signals *signals, struct run_signal *signal);

/* As it was before signals_open: for the child, between fork and exec, and before an exec without
 * a fork. Async-signal-safe. */
void signals_restore(const struct run_signals *signals);

#endif
