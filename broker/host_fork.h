/* Noticing a fork for the price of one load.
 *
 * What must not be shared with a forked child (locks, random state, who-am-I) remembers the
 * generation it was made in; a child sees a larger one. getpid() would answer the same question but
 * is a system call, too dear beside a lock of half a microsecond. A child made by a bare clone()
 * runs no handlers and is not noticed here; slow paths compare pids as well.
 *
 * Safe from any thread. Windows has no fork: the generation stays 1.
 */
#ifndef LEASEHOLD_BROKER_HOST_FORK_H
#define LEASEHOLD_BROKER_HOST_FORK_H

#include <stdint.h>

#ifdef _WIN32

static inline uint32_t host_fork_generation(void)
{
    return 1;
}

static inline void host_fork_watch(void)
{
}

#else

#include <stdatomic.h>

/* Private to host_fork.c; here so that the look is inline. */
extern _Atomic uint32_t host_fork_counter;

/* Number of forks between the process that called host_fork_watch() first and this one, plus 1:
 * never 0, so that zeroed memory is always of an older generation. */
static inline uint32_t host_fork_generation(void)
{
    return atomic_load_explicit(&host_fork_counter, memory_order_relaxed);
}

/* Starts counting. Idempotent; call it before the first generation is remembered. */
void host_fork_watch(void);

#endif
#endif
