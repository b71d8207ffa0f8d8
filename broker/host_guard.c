#define _GNU_SOURCE
#include "broker/host_guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/error.h"

/* begin == 0: free. Written under the mutex, end before begin; read by the handler. */
struct guard {
    _Atomic uintptr_t begin, end;
    _Atomic bool hit;
};

static struct guard guards[HOST_GUARD_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static uintptr_t page_size; /* 0: no handler is installed */

/* ---- the handler: async-signal-safe, and without a lock ---------------------------------------- */

static struct guard *guard_at(uintptr_t address)
{
    for (size_t i = 0; i < HOST_GUARD_MAX; i++) {
        uintptr_t begin = atomic_load_explicit(&guards[i].begin, memory_order_acquire);
        if (begin != 0 && begin <= address && address < atomic_load(&guards[i].end))
            return &guards[i];
    }
    return NULL;
}

static bool replace_page(uintptr_t address)
{
    struct guard *guard = guard_at(address);
    if (!guard)
        return false;
    atomic_store(&guard->hit, true); /* first: whoever reads the zeros can know what they are */
    void *page = (void *)(address - address % page_size);
    return mmap(page, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                -1, 0) != MAP_FAILED;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    bool was_sent = info->si_code <= 0;
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (!was_sent || before.sa_handler == SIG_DFL) {
        /* A fault happens again as soon as we return, and ends the process as if we had not been here. */
        signal(number, SIG_DFL);
        if (was_sent)
            raise(number);
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    if (info->si_code != BUS_ADRERR || !replace_page((uintptr_t)info->si_addr))
        pass_on(number, info, context);
    errno = kept;
}

/* ---- the list ---------------------------------------------------------------------------------- */

void host_guard_mask(sigset_t *mask)
{
    sigfillset(mask);
    sigdelset(mask, SIGBUS);
}

int host_guard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    long size = sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&mutex);
    if (page_size == 0 && size > 0 && sigaction(SIGBUS, NULL, &before) == 0) {
        page_size = (uintptr_t)size; /* first: the handler divides by it */
        if (sigaction(SIGBUS, &action, NULL) < 0)
            page_size = 0;
    }
    int error = page_size != 0 ? 0 : LEASE_EIO;
    pthread_mutex_unlock(&mutex);
    return error;
}

/* The caller holds the mutex. */
static int take_guard(uintptr_t begin, size_t size)
{
    for (int i = 0; i < HOST_GUARD_MAX; i++) {
        struct guard *guard = &guards[i];
        if (atomic_load(&guard->begin) != 0)
            continue;
        atomic_store(&guard->hit, false);
        atomic_store(&guard->end, begin + size);
        atomic_store_explicit(&guard->begin, begin, memory_order_release);
        return i;
    }
    return -1;
}

int host_guard_add(void *at, size_t size)
{
    pthread_mutex_lock(&mutex);
    int guard = take_guard((uintptr_t)at, size);
    pthread_mutex_unlock(&mutex);
    return guard;
}

bool host_guard_was_hit(int guard)
{
    return guard >= 0 && atomic_load_explicit(&guards[guard].hit, memory_order_acquire);
}

void host_guard_drop(const void *at)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < HOST_GUARD_MAX; i++)
        if (atomic_load(&guards[i].begin) == (uintptr_t)at)
            atomic_store(&guards[i].begin, 0);
    pthread_mutex_unlock(&mutex);
}
