/* Sleeping until a word in shared memory changes.
 *
 * On Linux futexes, not private ones: the words lie in files that several processes map. Elsewhere
 * a look every 10 ms (HOST_WAIT_LOOK_MS), compiled where __linux__ is not defined.
 *
 * Waking is a hint, never a message: whoever returns from a wait looks at the words again. Safe
 * from any thread. The timeouts do not run while the machine sleeps: read host_now_ns() after each
 * wake.
 */
#ifndef LEASEHOLD_BROKER_HOST_WAIT_H
#define LEASEHOLD_BROKER_HOST_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HOST_WAIT_MAX     128        /* words that host_wait_any() takes; more is LEASE_EINVAL */
#define HOST_WAIT_ANY     UINT32_MAX /* bits: whoever wakes, and whomever */
#define HOST_WAIT_LOOK_MS 10

/* What a wait answers, beside a negative error. */
enum {
    HOST_WAIT_CHANGED = 0, /* a word differs, or somebody woke us */
    HOST_WAIT_LOOK = 1     /* a signal arrived: look again, and at whatever else there is to do */
};

/* Sleeps while *word == seen, until a wake with an overlapping bit (bits != 0), for at most
 * timeout_ns (0: only looks; negative: no end).
 * Answers HOST_WAIT_CHANGED, HOST_WAIT_LOOK, LEASE_ETIMEOUT, or LEASE_EINVAL. */
int host_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, int64_t timeout_ns);

/* Wakes all that sleep on the word with an overlapping bit (bits != 0), in every process, and those
 * in host_wait_any() whatever the bits. Answers how many were woken, 0 where that is not known.
 * Change the word first. A system call of about 0.25 us even where nobody sleeps. */
int host_wake(_Atomic uint32_t *word, uint32_t bits);

struct host_waited {
    _Atomic uint32_t *word; /* borrowed for the length of the call */
    uint32_t seen;
};

/* As host_wait(), on up to HOST_WAIT_MAX words at once (n == 0 just sleeps); Linux 5.16, a 10 ms
 * look before that. Which word it was is for the caller to see. */
int host_wait_any(const struct host_waited *waited, unsigned n, int64_t timeout_ns);

/* For tests: true makes waits of this process look every 10 ms instead of asking the kernel. */
void host_wait_look_only(bool on);

#endif
