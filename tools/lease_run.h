/* lease run, in parts: the child and its environment (lease_child.c), and what happens when
 * (lease_run.c). */
#ifndef TOOLS_LEASE_RUN_H
#define TOOLS_LEASE_RUN_H

#include <stdbool.h>
#include <sys/types.h>

#include "tools/lease_cli.h"
#include "tools/lease_signals.h"

/* The environment of COMMAND: ours, with the LEASE_ variables replaced. lease NULL: none is held,
 * LEASE_REACH=none. One block, for free(), NULL without memory; inherited texts stay where they are.
 * Not setenv: the library's thread may be reading the environment. */
char **child_environment(const struct lease *lease, const char *directory, const char *provider);

/* Forks and executes. The child ends when the calling thread does. 0 or -1 with errno from fork;
 * a command that cannot be executed says so and exits 126 or 127 by itself. */
int child_start(char **command, char **environment, const struct run_signals *signals, pid_t *pid);

/* Executes in place of ourselves. Returns 126 or 127 after one line where that fails. */
int child_become(char **command, char **environment);

#endif
