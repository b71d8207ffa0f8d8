#define _GNU_SOURCE
#include "tools/lease_ask.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* The signal that ends the thread's sleep. Its default is to do nothing, so no COMMAND misses it.
 */
#define WAKE SIGURG

static void wake(int number)
{
    (void)number;
}

static void allow_wake(void)
{
    struct sigaction action = {.sa_handler = wake}; /* without SA_RESTART: the sleep must end */
    sigset_t set;
    sigemptyset(&action.sa_mask);
    sigaction(WAKE, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, WAKE);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void *answer(void *argument)
{
    struct ask *ask = argument;
    allow_wake();
    if (ask->request.running)
        ask->rc =
            lease_acquire(ask->agent, ask->providers[0], &ask->request, &ask->lease, &ask->verdict);
    else
        ask->rc = lease_place(ask->agent, ask->providers, ask->count, &ask->request, &ask->lease,
                              &ask->verdict);
    close(ask->done_write_fd);
    return NULL;
}

bool ask_start(struct ask *ask)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    ask->done_fd = ends[0];
    ask->done_write_fd = ends[1];
    ask->verdict = (struct lease_verdict){0};
    int failed = pthread_create(&ask->thread, NULL, answer, ask);
    if (failed == 0)
        return true;
    close(ends[0]);
    close(ends[1]);
    ask->done_fd = -1;
    errno = failed;
    return false;
}

void ask_interrupt(struct ask *ask)
{
    lease_interrupt(ask->agent);
    pthread_kill(ask->thread, WAKE);
}

void ask_finish(struct ask *ask)
{
    pthread_join(ask->thread, NULL);
    close(ask->done_fd);
    ask->done_fd = -1;
}
