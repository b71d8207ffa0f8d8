#define _GNU_SOURCE
#include "broker/host_clock.h"

#include <stdatomic.h>
#include <time.h>

#ifdef __linux__
#define LEASE_CLOCK CLOCK_BOOTTIME
#elif defined(_WIN32) /* where only the lock is compiled: suspend is not told apart */
#define LEASE_CLOCK CLOCK_MONOTONIC
#else
#define LEASE_CLOCK CLOCK_MONOTONIC_RAW
#endif

static _Atomic int64_t offset_ns;

int64_t host_now_ns(void)
{
    struct timespec t;
    /* Cannot fail for a clock that exists; a kernel without BOOTTIME (before 2.6.39) has no futex
     * bitsets either. */
    (void)clock_gettime(LEASE_CLOCK, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec +
           atomic_load_explicit(&offset_ns, memory_order_relaxed);
}

void host_clock_offset(int64_t ns)
{
    atomic_store_explicit(&offset_ns, ns, memory_order_relaxed);
}
