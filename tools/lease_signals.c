#define _GNU_SOURCE
#include "tools/lease_signals.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int handled[] = {SIGTERM,  SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                              SIGWINCH, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool signals_open(struct run_signals *signals)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
        if (!is_ignored(handled[i]))
            sigaddset(&set, handled[i]);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGPIPE); /* a warning that nobody reads must not end us */
    /* Where SIGCHLD was ignored, the kernel would reap the child and its status with it. */
    struct sigaction wait = {.sa_handler = SIG_DFL};
    sigemptyset(&wait.sa_mask);
    if (sigaction(SIGCHLD, &wait, &signals->child_before) < 0)
        return false;
    if (pthread_sigmask(SIG_BLOCK, &set, &signals->mask_before) != 0)
        return false;
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

bool signals_next(struct run_signals *signals, struct run_signal *signal)
{
    struct signalfd_siginfo info;
    if (read(signals->fd, &info, sizeof info) != (ssize_t)sizeof info)
        return false;
    signal->number = (int)info.ssi_signo;
    /* A terminal's signals come from the kernel, to each process of the group. Those from kill()
     * are passed on, though `kill %job` sends them to the whole group: then the child has it
     * twice, which is better than not at all. */
    signal->from_terminal = info.ssi_code == SI_KERNEL;
    return true;
}

void signals_restore(const struct run_signals *signals)
{
    sigaction(SIGCHLD, &signals->child_before, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
}
