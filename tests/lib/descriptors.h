/* A process with few descriptors left. */
#ifndef TESTS_LIB_DESCRIPTORS_H
#define TESTS_LIB_DESCRIPTORS_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/quiet_fork.h"

/* The limit below which exactly `spare` descriptors are free. */
static inline rlim_t descriptors_limit(int spare)
{
    int fd = 0;
    for (int n = 0; n < spare || fcntl(fd, F_GETFD) >= 0; fd++) {
        n += fcntl(fd, F_GETFD) < 0;
    }
    return (rlim_t)fd;
}

static inline bool descriptors_leave(int spare)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return false;
    }
    limit.rlim_cur = descriptors_limit(spare);
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* ThreadSanitizer wants no threads begun in the child of a process that has some. */
#ifdef __SANITIZE_THREAD__
#define DESCRIPTORS_FORK_WITH_THREADS 0
#else
#define DESCRIPTORS_FORK_WITH_THREADS 1
#endif

/* Whether work(arg, spare) is true in a child of its own for each number of spare descriptors up to
 * `most`; a child that aborts is not true. */
static inline bool descriptors_try(bool (*work)(void *arg, int spare), void *arg, int most)
{
    for (int spare = 0; spare <= most; spare++) {
        int status = -1;
        pid_t child = quiet_fork();
        if (child == 0) {
            _exit(descriptors_leave(spare) && work(arg, spare) ? 0 : 1);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            (void)fprintf(stderr, "%d spare: status %d\n", spare, status);
            return false;
        }
    }
    return true;
}

#endif
