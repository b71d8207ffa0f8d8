#include "broker/host_fork.h"

#include <pthread.h>

_Atomic uint32_t host_fork_counter = 1;

static void in_child(void)
{
    atomic_fetch_add_explicit(&host_fork_counter, 1, memory_order_relaxed);
}

static void start(void)
{
    /* Fails only without memory; then pids are compared on the slow paths, nothing else is lost. */
    (void)pthread_atfork(NULL, NULL, in_child);
}

void host_fork_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, start);
}
