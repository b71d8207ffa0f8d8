/* A program that is run for what it prints, inside the loop of a struct http.
 *
 * No shell, no arguments; where its name holds no slash it is looked for in PATH. It gets the
 * environment of this process and LEASE_PROVIDER, /dev/null as stdin and stderr, nothing else of our
 * descriptors, signals as in a fresh process, and a process group of its own. At its end, or when the
 * time is over, whatever is left of that group is killed. It is reaped by its own number: this may be
 * a stranger's process, with children and a SIGCHLD handler of its own.
 *
 * Starting it blocks until it has been executed, which is at once but for a file system that hangs.
 *
 * Linux tells its end by a pidfd; elsewhere (macOS: kqueue's NOTE_EXIT would) it is looked for every
 * 10 ms.
 *
 * Thread rules: those of the struct http; different ones are independent. */
#ifndef AGENT_PROGRAM_H
#define AGENT_PROGRAM_H

#include "agent/http.h"

#define PROGRAM_OUTPUT_MAX (64u << 10) /* bytes; more is HTTP_TOO_LARGE and it is killed */
#define PROGRAM_CORPSES    16 /* killed and not ending (a dead disk): beyond that none is started */

/* `done` comes out of http_run: the output is the body, and `status` the exit code, or minus the
 * signal that ended it (0 where somebody else took its status). HTTP_TIMEOUT_ANSWER: it was killed.
 *
 * LEASE_EABSENT: there is no such program; LEASE_EPERM: it may not be executed; LEASE_EINVAL: it is no
 * program, or the times are none; LEASE_EFULL, LEASE_ENOMEM, LEASE_EIO. Nothing has happened then. */
int program_start(struct http *http, ns_t (*now)(void), const char *program, const char *provider,
                  int timeout_ms, http_callback *done, void *arg);

/* Processes that were killed and have not ended, and by whom nobody waits: 0 but for a moment. */
int program_corpses(void);

#endif
