/* What this process takes of memory. */
#ifndef TESTS_LIB_RSS_H
#define TESTS_LIB_RSS_H

#include <stdio.h>
#include <unistd.h>

static inline long rss_bytes(void)
{
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
