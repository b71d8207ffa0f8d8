/* A directory in memory for harnesses of what is read from files. It stays where a finding ends the
 * fuzzer. */
#ifndef TESTS_FUZZ_ROOM_H
#define TESTS_FUZZ_ROOM_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include <fcntl.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/lib/temp_dir.h"

static char room_path[TEMP_DIR_MAX];

static inline void room_leave(void)
{
    temp_dir_remove(room_path);
}

/* Its path, made at the first call. */
static inline const char *room(void)
{
    if (!room_path[0]) {
        (void)snprintf(room_path, sizeof room_path, "/dev/shm/leasehold-fuzz-XXXXXX");
        if (!mkdtemp(room_path))
            must(temp_dir_make(room_path));
        must(atexit(room_leave) == 0);
    }
    return room_path;
}

static inline void room_put(const char *name, const uint8_t *bytes, size_t size)
{
    char path[TEMP_DIR_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", room(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

#endif
