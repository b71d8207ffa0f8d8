#define _GNU_SOURCE
#include "broker/host_wait.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <time.h>

#include "broker/error.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449 /* one number on every architecture but alpha */
#endif
/* Our own, as kernel headers older than 5.16 lack it. */
struct waitv {
    uint64_t val;
    uint64_t uaddr;
    uint32_t flags;
    uint32_t reserved;
};
#define WAITV_U32 2u
_Static_assert(sizeof(struct waitv) == 24, "futex_waitv as the kernel has it");
#endif

#define SECOND_NS INT64_C(1000000000)

static _Atomic bool look_only;

void host_wait_look_only(bool on)
{
    atomic_store(&look_only, on);
}

static int64_t monotonic_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int64_t deadline_of(int64_t timeout_ns)
{
    if (timeout_ns < 0) {
        return INT64_MAX;
    }
    int64_t now = monotonic_ns();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

static bool any_changed(const struct host_waited *waited, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (atomic_load_explicit(waited[i].word, memory_order_acquire) != waited[i].seen) {
            return true;
        }
    }
    return false;
}

/* The substitute for a futex. */
static int look(const struct host_waited *waited, unsigned n, int64_t deadline_ns)
{
    while (!any_changed(waited, n)) {
        int64_t left = deadline_ns - monotonic_ns();
        if (left <= 0) {
            return LEASE_ETIMEOUT;
        }
        int64_t nap = HOST_WAIT_LOOK_MS * INT64_C(1000000);
        nap = left < nap ? left : nap;
        struct timespec t = {0, (long)nap};
        if (nanosleep(&t, NULL) && errno == EINTR) {
            return HOST_WAIT_LOOK;
        }
    }
    return HOST_WAIT_CHANGED;
}

#ifdef __linux__

/* NULL where there is no end. */
static const struct timespec *timespec_of(int64_t deadline_ns, struct timespec *t)
{
    if (deadline_ns == INT64_MAX) {
        return NULL;
    }
    t->tv_sec = (time_t)(deadline_ns / SECOND_NS);
    t->tv_nsec = (long)(deadline_ns % SECOND_NS);
    return t;
}

static int meaning_of_errno(void)
{
    switch (errno) {
    case EAGAIN: return HOST_WAIT_CHANGED;
    case EINTR: return HOST_WAIT_LOOK;
    case ETIMEDOUT: return LEASE_ETIMEOUT;
    default: return LEASE_EINVAL;
    }
}

int host_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, int64_t timeout_ns)
{
    if (!word || bits == 0) {
        return LEASE_EINVAL;
    }
    int64_t deadline_ns = deadline_of(timeout_ns);
    if (atomic_load(&look_only)) {
        struct host_waited one = {word, seen};
        return look(&one, 1, deadline_ns);
    }
    /* FUTEX_WAIT_BITSET because its timeout is a point in time: no drift when a caller loops. */
    struct timespec t;
    long rc =
        syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, timespec_of(deadline_ns, &t), NULL, bits);
    return rc == 0 ? HOST_WAIT_CHANGED : meaning_of_errno();
}

int host_wake(_Atomic uint32_t *word, uint32_t bits)
{
    if (!word || bits == 0) {
        return LEASE_EINVAL;
    }
    long woken = syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
    return woken < 0 ? LEASE_EINVAL : (int)woken;
}

/* 0 and *answer, or LEASE_EABSENT where the kernel has no such call. */
static int wait_in_kernel(const struct host_waited *waited, unsigned n, int64_t deadline_ns,
                          int *answer)
{
    struct waitv v[HOST_WAIT_MAX];
    for (unsigned i = 0; i < n; i++) {
        v[i] = (struct waitv){waited[i].seen, (uint64_t)(uintptr_t)waited[i].word, WAITV_U32, 0};
    }
    struct timespec t;
    long rc = syscall(SYS_futex_waitv, v, n, 0u, timespec_of(deadline_ns, &t), CLOCK_MONOTONIC);
    /* EPERM is what container filters answer for calls that they do not know. */
    if (rc < 0 && (errno == ENOSYS || errno == EPERM)) {
        return LEASE_EABSENT;
    }
    *answer = rc >= 0 ? HOST_WAIT_CHANGED : meaning_of_errno();
    return 0;
}

static int wait_many(const struct host_waited *waited, unsigned n, int64_t deadline_ns)
{
    static _Atomic bool absent;
    int answer;
    if (n > 0 && !atomic_load(&look_only) && !atomic_load(&absent)) {
        if (!wait_in_kernel(waited, n, deadline_ns, &answer)) {
            return answer;
        }
        atomic_store(&absent, true);
    }
    return look(waited, n, deadline_ns);
}

#else

int host_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, int64_t timeout_ns)
{
    struct host_waited one = {word, seen};
    return word && bits ? look(&one, 1, deadline_of(timeout_ns)) : LEASE_EINVAL;
}

int host_wake(_Atomic uint32_t *word, uint32_t bits)
{
    return word && bits ? 0 : LEASE_EINVAL;
}

static int wait_many(const struct host_waited *waited, unsigned n, int64_t deadline_ns)
{
    return look(waited, n, deadline_ns);
}

#endif

int host_wait_any(const struct host_waited *waited, unsigned n, int64_t timeout_ns)
{
    if (n > HOST_WAIT_MAX || (n > 0 && !waited)) {
        return LEASE_EINVAL;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!waited[i].word) {
            return LEASE_EINVAL;
        }
    }
    return wait_many(waited, n, deadline_of(timeout_ns));
}
