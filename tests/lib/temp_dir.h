/* What tests of the host tier share: a directory of their own, and waiting with a deadline instead
 * of sleeping in the hope that something has happened. */
#ifndef LEASEHOLD_TESTS_TEMP_DIR_H
#define LEASEHOLD_TESTS_TEMP_DIR_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMP_DIR_MAX 64

/* Makes a fresh directory, mode 0700, and writes its path to out. False on failure. */
static inline bool temp_dir_make(char out[TEMP_DIR_MAX])
{
    (void)snprintf(out, TEMP_DIR_MAX, "/tmp/leasehold-test-XXXXXX");
    return mkdtemp(out) != NULL;
}

static inline int temp_dir_remove_one(const char *path, const struct stat *st, int kind,
                                      struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void temp_dir_remove(const char *path)
{
    (void)nftw(path, temp_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int64_t test_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Looks each millisecond until holds(context) or, after 20 s, gives up with false. */
static inline bool eventually(bool (*holds)(void *context), void *context)
{
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (!holds(context)) {
        if (test_now_ns() > deadline) {
            return false;
        }
        struct timespec ms = {0, 1000000};
        (void)nanosleep(&ms, NULL);
    }
    return true;
}

#endif
