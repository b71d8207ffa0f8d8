#define _GNU_SOURCE
#include "tools/lease_host.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/host_beat.h"
#include "broker/host_clock.h"
#include "broker/host_process.h"
#include "broker/host_table.h"

#define STAT_SIZE     512
#define ANCESTORS_MAX 64

/* What /proc/PID/stat says after the name in parentheses, which may hold anything; "" where there is
 * no such process. text has STAT_SIZE bytes. */
static const char *stat_of(uint32_t pid, char *text)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, STAT_SIZE - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[size > 0 ? size : 0] = '\0';
    const char *after = strrchr(text, ')');
    return after && after[1] == ' ' ? after + 2 : "";
}

bool host_is_stopped(uint32_t pid)
{
    char text[STAT_SIZE];
    const char *state = stat_of(pid, text);
    return *state == 'T' || *state == 't';
}

bool host_is_ancestor(uint32_t pid)
{
    uint32_t at = (uint32_t)getppid();
    for (int i = 0; i < ANCESTORS_MAX && at > 1 && at != pid; i++) {
        char text[STAT_SIZE];
        if (sscanf(stat_of(at, text), "%*c %u", &at) != 1)
            return false;
    }
    return at == pid && pid > 1;
}

static bool read_beat(const char *directory, struct host_beat *beat)
{
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    int fd = host_beat_open(folder, false, 0);
    close(folder);
    if (fd < 0)
        return false;
    int rc = host_beat_read(fd, beat);
    close(fd);
    return rc == 0;
}

void host_speaker(const char *directory, struct host_speaker *speaker)
{
    struct host_beat beat;
    struct host_process self;
    *speaker = (struct host_speaker){.kind = ""};
    if (!directory[0] || !read_beat(directory, &beat) || beat.pid == 0)
        return;
    host_process_self(&self);
    speaker->pid = beat.pid;
    speaker->alive = host_beat_alive(&beat, host_now_ns());
    speaker->elsewhere = beat.pidns != 0 && self.pidns != 0 && beat.pidns != self.pidns;
    speaker->exists = !speaker->elsewhere && host_process_check(beat.pid, beat.pid_start,
                                                                beat.pidns) == HOST_PROCESS_ALIVE;
    speaker->stopped = speaker->exists && host_is_stopped(beat.pid);
    speaker->kind = beat.kind == HOST_BEAT_DAEMON     ? "daemon"
                    : beat.kind == HOST_BEAT_EMBEDDED ? "embedded"
                                                      : "";
}

bool host_speaker_lives(const char *directory)
{
    struct host_speaker speaker;
    host_speaker(directory, &speaker);
    return speaker.alive && !speaker.stopped;
}

uint32_t host_book_locked_by(const char *directory, const char *provider)
{
    char name[HOST_TABLE_NAME_SIZE];
    struct host_lock lock;
    uint32_t pid = 0;
    int folder = directory[0] ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder < 0)
        return 0;
    host_table_name(provider, name);
    if (host_lock_open(&lock, folder, name, HOST_LOCK_READ, 0) == 0) {
        pid = host_lock_holder(&lock);
        host_lock_close(&lock);
    }
    close(folder);
    return pid;
}
