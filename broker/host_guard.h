/* Mapped files that somebody cuts short under us.
 *
 * A touch of a mapped page that the file no longer has is SIGBUS, which ends the process. No look at the
 * size beforehand rules it out: the file may be cut between the look and the touch. So what is mapped
 * is guarded: a page that is gone is replaced by one of zeros, of this process alone, and the mapping
 * counts as spoilt from then on. Whoever uses it asks whether it is, and maps the file anew.
 *
 * That takes a handler for SIGBUS, and whether there may be one is the program's to say. What is not
 * about a guarded page is passed on to whatever was installed before, or ends the process as it would
 * have. Without the handler, and behind one that is installed later in its place, only what the size
 * shows before the touch is survived.
 *
 * Thread rules: any thread, at any time. */
#ifndef BROKER_HOST_GUARD_H
#define BROKER_HOST_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Mappings at once: the open books of a process and those it has left. More go unguarded. */
#define HOST_GUARD_MAX 1024

/* For a thread that reads books and to which no signal is to be delivered: all of them, but for the
 * one that says a page is gone. A fault whose signal is blocked ends the process whatever is
 * installed. */
void host_guard_mask(sigset_t *mask);

/* Installs the handler, once. LEASE_EIO where it cannot be had. */
int host_guard_install(void);

/* Guards what is mapped at `at`, page aligned, readable and writable. Answers the guard, or -1 where
 * there are too many. */
int host_guard_add(void *at, size_t size);

/* A page of it was replaced since it was guarded. False for -1. */
bool host_guard_was_hit(int guard);

/* Before it is unmapped. Nothing where it is not guarded. */
void host_guard_drop(const void *at);

#endif
