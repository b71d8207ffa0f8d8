/* What this process takes of memory; 0 under sanitizers, which take some of their own. */
#ifndef TESTS_LIB_RSS_H
#define TESTS_LIB_RSS_H

#include <stdio.h>
#include <unistd.h>

static inline long rss_bytes(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return 0;
#endif
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file) {
        if (fscanf(file, "%ld %ld", &size, &resident) != 2) {
            resident = 0;
        }
        (void)fclose(file);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

#endif
