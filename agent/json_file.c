#define _GNU_SOURCE

#include "agent/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/error.h"

#define PATH_SIZE 512

/* As much of it as there is now, in one go: jansson would ask the kernel for each byte. NULL without
 * memory, or where it cannot be read. */
static char *read_whole(int fd, size_t size, size_t *used)
{
    char *text = malloc(size + 1);
    ssize_t got = 1;
    for (*used = 0; text && *used < size && got > 0; *used += got > 0 ? (size_t)got : 0)
        got = read(fd, text + *used, size - *used);
    if (got >= 0)
        return text;
    free(text);
    return NULL;
}

static int load_file(const char *path, size_t size_max, json_t **object)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? LEASE_EABSENT : errno == EACCES ? LEASE_EPERM : LEASE_EIO;
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || (size_t)status.st_size > size_max) {
        close(fd);
        return LEASE_EDAMAGED;
    }
    json_error_t where;
    size_t size;
    char *text = read_whole(fd, (size_t)status.st_size, &size);
    close(fd);
    *object = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, &where) : NULL;
    free(text);
    return json_is_object(*object) ? 0 : LEASE_EDAMAGED;
}

int json_file_read(const char *directory, const char *name, size_t size_max, json_t **object)
{
    char path[PATH_SIZE];
    *object = NULL;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return LEASE_EIO;
    int error = load_file(path, size_max, object);
    if (error < 0) {
        json_decref(*object);
        *object = NULL;
    }
    return error;
}

static bool write_whole(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t wrote = write(fd, text, size);
        if (wrote < 0 && errno != EINTR)
            return false;
        text += wrote > 0 ? wrote : 0;
        size -= wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

static int why_not_written(void)
{
    return errno == ENOSPC || errno == EDQUOT ? LEASE_ENOSPC : LEASE_EIO;
}

static int write_fresh(const char *path, const char *text, unsigned mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return why_not_written();
    bool written = fchmod(fd, mode) == 0 && write_whole(fd, text, strlen(text));
    int error = written ? 0 : why_not_written();
    return close(fd) < 0 && error == 0 ? why_not_written() : error;
}

int json_file_write(const char *directory, const char *name, const json_t *object, size_t flags,
                    unsigned mode)
{
    char path[PATH_SIZE], fresh[PATH_SIZE + 48];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return LEASE_EIO;
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    char *text = json_dumps(object, flags);
    if (!text)
        return LEASE_ENOMEM;
    int error = write_fresh(fresh, text, mode);
    free(text);
    if (error == 0 && rename(fresh, path) < 0)
        error = why_not_written();
    if (error < 0)
        unlink(fresh);
    return error;
}
