#define _GNU_SOURCE
#include "broker/host_lock_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

#include "broker/error.h"

#define OPEN_TRIES     8          /* against somebody who unlinks as fast as we make */
#define LOCKS_TEXT_MAX (4L << 20) /* of /proc/locks that is read at most */
#define TASKS_MAX      64         /* threads of a lock's holder that are looked at */

static int meaning_of_errno(bool create)
{
    switch (errno) {
    case ENOENT: return create ? LEASE_EVANISHED : LEASE_EABSENT;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP: /* O_NOFOLLOW met a link */
    case EISDIR:
    case ENXIO: return LEASE_EPERM;
    case ENOSPC:
    case EDQUOT: return LEASE_ENOSPC;
    case ENOMEM: return LEASE_ENOMEM;
    case EBADF: return LEASE_ECLOSED;
    default: return LEASE_EIO;
    }
}

/* O_NONBLOCK so that a planted FIFO cannot hang us; it means nothing to regular files. */
#define OPEN_FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)

/* The umask has taken bits away that a group's directory needs. */
static int create(int dir_fd, const char *name, unsigned mode)
{
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | OPEN_FLAGS, (mode_t)mode);
    if (fd >= 0) {
        (void)fchmod(fd, (mode_t)mode);
    }
    return fd;
}

/* Where the program has closed its standard streams, what it prints must not go into a book. */
static int above_streams(int fd, host_lock_file *file)
{
    *file = fd;
    if (fd > STDERR_FILENO)
        return 0;
    *file = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(fd);
    return *file < 0 ? LEASE_EIO : 0;
}

int host_lock_os_open(host_lock_file *file, int dir_fd, const char *name, unsigned flags,
                      unsigned mode)
{
    int access = (flags & HOST_LOCK_READ) ? O_RDONLY : O_RDWR;
    for (int i = 0; i < OPEN_TRIES; i++) {
        /* First without O_CREAT: in a sticky directory fs.protected_regular refuses O_CREAT on a
         * file that is another user's, even where opening it is allowed. */
        int fd = openat(dir_fd, name, access | OPEN_FLAGS);
        if (fd < 0 && errno == ENOENT && (flags & HOST_LOCK_CREATE)) {
            fd = create(dir_fd, name, mode);
        }
        if (fd >= 0)
            return above_streams(fd, file);
        if (errno != EEXIST && errno != EINTR) { /* EEXIST: made in between */
            return meaning_of_errno((flags & HOST_LOCK_CREATE) != 0);
        }
    }
    return LEASE_EIO;
}

void host_lock_os_close(host_lock_file file)
{
    (void)close((int)file);
}

int host_lock_os_take(host_lock_file file, enum host_lock_mode mode, bool wait)
{
    int how = (mode == HOST_LOCK_SHARED ? LOCK_SH : LOCK_EX) | (wait ? 0 : LOCK_NB);
    while (flock((int)file, how)) {
        if (errno == EWOULDBLOCK) {
            return LEASE_ELOCKED;
        }
        if (errno != EINTR) {
            return meaning_of_errno(false);
        }
    }
    return 0;
}

void host_lock_os_give(host_lock_file file)
{
    (void)flock((int)file,
                LOCK_UN); /* fails only for what is no descriptor: then nothing is held */
}

int host_lock_os_facts(host_lock_file file, struct host_lock_facts *facts)
{
    struct stat st;
    if (fstat((int)file, &st)) {
        return meaning_of_errno(false);
    }
    facts->device = (uint64_t)st.st_dev;
    facts->inode = (uint64_t)st.st_ino;
    facts->size = (uint64_t)st.st_size;
    facts->links = (uint64_t)st.st_nlink;
    facts->regular = S_ISREG(st.st_mode);
    return 0;
}

/* Nobody uses the descriptor's position. */
uint64_t host_lock_os_size(host_lock_file file)
{
    off_t end = lseek((int)file, 0, SEEK_END);
    return end < 0 ? 0 : (uint64_t)end;
}

uint32_t host_lock_os_pid(void)
{
    return (uint32_t)getpid();
}

void host_lock_os_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    (void)pthread_atfork(before, parent, child);
}

#ifdef __linux__

/* "1: FLOCK  ADVISORY  WRITE 4242 fd:01:131 0 EOF"; "->" before FLOCK is one who waits. */
static uint32_t holder_in_line(const char *line, uint64_t device, uint64_t inode)
{
    long pid;
    unsigned major_number, minor_number;
    uint64_t number;
    if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%" SCNu64, &pid, &major_number, &minor_number,
               &number) != 4) {
        return 0;
    }
    bool same = number == inode && major_number == major((dev_t)device) &&
                minor_number == minor((dev_t)device);
    return same && pid > 0 ? (uint32_t)pid : 0;
}

uint32_t host_lock_os_holder(uint64_t device, uint64_t inode)
{
    char line[256];
    uint32_t pid = 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (!locks) {
        return 0;
    }
    for (long read = 0; pid == 0 && read < LOCKS_TEXT_MAX && fgets(line, sizeof line, locks);) {
        read += (long)strlen(line);
        pid = holder_in_line(line, device, inode);
    }
    (void)fclose(locks);
    return pid;
}

static bool task_is_at_work(int tasks, const char *task)
{
    char path[NAME_MAX + 8], text[512];
    (void)snprintf(path, sizeof path, "%s/stat", task);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *state = strrchr(text, ')');
    return state && state[1] == ' ' && (state[2] == 'R' || state[2] == 'D');
}

bool host_lock_os_is_at_work(uint32_t pid)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%u/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks) {
        return false;
    }
    bool found = false;
    const struct dirent *task;
    for (int i = 0; !found && i < TASKS_MAX && (task = readdir(tasks)); i++) {
        found = task->d_name[0] != '.' && task_is_at_work(dirfd(tasks), task->d_name);
    }
    (void)closedir(tasks);
    return found;
}

#else

bool host_lock_os_is_at_work(uint32_t pid)
{
    (void)pid;
    return false;
}

uint32_t host_lock_os_holder(uint64_t device, uint64_t inode)
{
    (void)device;
    (void)inode;
    return 0;
}

#endif
