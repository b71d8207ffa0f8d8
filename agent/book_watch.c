#define _GNU_SOURCE
#include "agent/book_watch.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#ifdef __linux__
#include <sys/inotify.h>
#endif
#include <unistd.h>

#include "broker/host_dir.h"
#include "broker/host_table.h"

#ifdef __linux__

#define REMOVAL_MS 10 /* who removes a whole directory is to get done before a book is made in it */
#define CHANGED    (IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_Q_OVERFLOW)

int book_watch_open(void)
{
    return inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
}

/* The books themselves are written through a mapping, which nobody hears; and a file that is mapped
 * loses a link long before it is deleted. */
void book_watch_add(int fd, const char *directory, const char *provider)
{
    char name[HOST_TABLE_NAME_SIZE], path[HOST_DIR_PATH_MAX + 1 + HOST_TABLE_NAME_SIZE];
    host_table_name(provider, name);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    inotify_add_watch(fd, path, IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DONT_FOLLOW);
    inotify_add_watch(fd, directory, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW);
}

/* All that there is to be read: what happened, of all files together. */
static uint32_t drain(int fd)
{
    union {
        struct inotify_event event;
        char bytes[4 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    } room;
    uint32_t all = 0;
    for (ssize_t size; (size = read(fd, room.bytes, sizeof room.bytes)) > 0;)
        for (char *at = room.bytes; at < room.bytes + size;) {
            const struct inotify_event *event = (const void *)at;
            all |= event->mask;
            at += sizeof *event + event->len;
        }
    return all;
}

void book_watch_wait(int fd, int wake_fd, int64_t ms)
{
    struct pollfd files[] = {{.fd = fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    if (poll(files, 2, (int)ms) <= 0 || !files[0].revents)
        return;
    if (!(drain(fd) & CHANGED) && poll(files, 2, REMOVAL_MS) > 0)
        drain(fd);
}

#else

int book_watch_open(void)
{
    return -1;
}

void book_watch_add(int fd, const char *directory, const char *provider)
{
    (void)fd, (void)directory, (void)provider;
}

void book_watch_wait(int fd, int wake_fd, int64_t ms)
{
    struct pollfd file = {.fd = wake_fd, .events = POLLIN};
    (void)fd;
    poll(&file, 1, (int)ms);
}

#endif
