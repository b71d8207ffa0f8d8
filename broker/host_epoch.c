#define _GNU_SOURCE
#include "broker/host_epoch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "broker/record.h"

#define PATH_SIZE   512
#define FRESH_TRIES 8

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

static int state_directory(char *path)
{
    const char *value = variable("STATE_DIRECTORY");
    int length;
    if (value)
        length = snprintf(path, PATH_SIZE, "%s", value);
    else if ((value = variable("XDG_STATE_HOME")) != NULL)
        length = snprintf(path, PATH_SIZE, "%s/leasehold", value);
    else if (geteuid() == 0)
        length = snprintf(path, PATH_SIZE, "/var/lib/leasehold");
    else if ((value = variable("HOME")) != NULL)
        length = snprintf(path, PATH_SIZE, "%s/.local/state/leasehold", value);
    else
        return -1;
    return length > 0 && length < PATH_SIZE - NAME_SIZE - 32 ? 0 : -1;
}

static void make_directories(char *path)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    mkdir(path, 0700);
}

static uint64_t read_kept(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    char *end;
    unsigned long long kept = size > 0 ? strtoull(text, &end, 10) : 0;
    return kept < EPOCH_MAX ? kept : 0;
}

/* A file that nobody else writes. A name may be taken: by another thread, or by one that was killed and
 * had our process id. */
static int create_fresh(const char *path, char *fresh, size_t size)
{
    int fd = -1;
    for (int i = 0; i < FRESH_TRIES && fd < 0; i++) {
        snprintf(fresh, size, "%s.%ld.%d", path, (long)getpid(), i);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    return fd;
}

/* Replaced as a whole, so that a full disk leaves the old one. */
static void keep(const char *path, uint64_t epoch)
{
    char fresh[PATH_SIZE + 32], text[32];
    int fd = create_fresh(path, fresh, sizeof fresh);
    if (fd < 0)
        return;
    int length = snprintf(text, sizeof text, "%llu\n", (unsigned long long)epoch);
    bool written = write(fd, text, (size_t)length) == length;
    written = close(fd) == 0 && written;
    if (!written || rename(fresh, path) < 0)
        unlink(fresh);
}

uint64_t host_epoch_next(const char *provider, uint64_t at_least)
{
    time_t wall = time(NULL);
    uint64_t epoch = wall > 0 && (uint64_t)wall < EPOCH_MAX ? (uint64_t)wall : 1;
    char path[PATH_SIZE];
    bool has_file = state_directory(path) == 0;
    if (has_file) {
        make_directories(path);
        size_t used = strlen(path);
        snprintf(path + used, sizeof path - used, "/%s.epoch", provider);
        uint64_t kept = read_kept(path);
        epoch = kept > epoch ? kept : epoch;
    }
    epoch = at_least > epoch ? at_least : epoch;
    epoch = epoch < EPOCH_MAX ? epoch + 1 : EPOCH_MAX;
    if (has_file)
        keep(path, epoch);
    return epoch;
}
