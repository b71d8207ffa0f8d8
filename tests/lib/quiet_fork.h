/* A fork while every other thread of the process sleeps.
 *
 * libc's malloc can be used in the child of a process with threads, since fork() waits for its locks.
 * That of AddressSanitizer waits for nothing (gcc 12): if another thread is in it at that moment, its
 * lock is never given back in the child, and whatever allocates there hangs. Threads that sleep in
 * their loops are in no malloc. */
#ifndef TESTS_LIB_QUIET_FORK_H
#define TESTS_LIB_QUIET_FORK_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Counts how often a thread was put to sleep; false: it does not sleep now. One that has ended
 * meanwhile does neither. */
static inline bool quiet_thread(const char *tid, unsigned long *slept)
{
    char path[64], line[128];
    bool sleeps = true;
    unsigned long times;
    (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/status", tid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "State:", 6) == 0) {
            sleeps = strstr(line, "S (sleeping)") != NULL;
        } else if (sscanf(line, "voluntary_ctxt_switches: %lu", &times) == 1) {
            *slept += times;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return sleeps;
}

/* All the others sleep now; *slept: how often they were put to it so far, all of them. */
static inline bool quiet_now(unsigned long *slept)
{
    char own[24];
    bool quiet = true;
    (void)snprintf(own, sizeof own, "%ld",
                   (long)getpid()); /* the first thread, which is the caller */
    *slept = 0;
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    while (tasks && quiet && (task = readdir(tasks))) {
        quiet = task->d_name[0] == '.' || strcmp(task->d_name, own) == 0 ||
                quiet_thread(task->d_name, slept);
    }
    if (tasks) {
        (void)closedir(tasks);
    }
    return quiet;
}

/* fork(), from the process's first thread. Two looks with nobody run in between, for one is not taken
 * at one instant; after 10 s it forks anyway. Where there is no /proc it just forks. */
static inline pid_t quiet_fork(void)
{
    unsigned long before = 0, after = 1;
    for (unsigned ms = 0; ms < 10000; ms++) {
        if (quiet_now(&before) && quiet_now(&after) && before == after) {
            break;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* and looks again */
    }
    return fork();
}

#endif
