#define _GNU_SOURCE
#include "agent/probe_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/record.h"

void probe_key_wipe(struct probe_key *key)
{
    explicit_bzero(key, sizeof *key);
}

static int64_t changed_ns(const struct stat *status)
{
    return (int64_t)status->st_mtim.tv_sec * NS_PER_SEC + status->st_mtim.tv_nsec;
}

static bool unchanged(const struct probe_key *key, const struct stat *status)
{
    return key->header[0] != '\0' && key->device == (uint64_t)status->st_dev &&
           key->inode == (uint64_t)status->st_ino && key->size == (uint64_t)status->st_size &&
           key->changed_ns == changed_ns(status);
}

/* Cuts the text to its first line without white space around it; NULL if that is no key. */
static const char *first_line(char *text)
{
    text += strspn(text, " \t");
    text[strcspn(text, "\r\n")] = '\0';
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        text[--length] = '\0';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7f)
            return NULL;
    return length == 0 || length >= PROBE_KEY_SIZE ? NULL : text;
}

static int read_file(struct probe_key *key, int fd)
{
    char text[PROBE_KEY_SIZE + 64];
    size_t size = 0;
    ssize_t got = 0;
    int result = 0;
    while (size < sizeof text - 1 && (got = read(fd, text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)got;
    text[size] = '\0';
    if (got < 0) {
        result = LEASE_EIO;
    } else {
        const char *line = first_line(text);
        if (line == NULL)
            result = LEASE_EINVAL;
        else
            snprintf(key->header, sizeof key->header, "Authorization: Bearer %s", line);
    }
    explicit_bzero(text, sizeof text);
    return result;
}

static int refresh(struct probe_key *key, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return LEASE_EIO;
    if (unchanged(key, &status))
        return 0;
    probe_key_wipe(key);
    int error = read_file(key, fd);
    key->open_to_others = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    key->device = (uint64_t)status.st_dev;
    key->inode = (uint64_t)status.st_ino;
    key->size = (uint64_t)status.st_size;
    key->changed_ns = changed_ns(&status);
    return error;
}

int probe_key_read(struct probe_key *key, const char *path)
{
    int error;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO may not block */
    if (fd < 0) {
        error = errno == EACCES || errno == EPERM     ? LEASE_EPERM
                : errno == ENOENT || errno == ENOTDIR ? LEASE_EABSENT
                                                      : LEASE_EIO;
    } else {
        error = refresh(key, fd);
        close(fd);
    }
    if (error != 0)
        probe_key_wipe(key);
    return error;
}
