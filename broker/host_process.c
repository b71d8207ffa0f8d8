#define _GNU_SOURCE
#include "broker/host_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/host_fork.h"

/* What one line of /proc/PID/stat says. */
struct stat_line {
    char state;
    uint64_t threads;
    uint64_t start;
};

/* Fills text with the first bytes of a file; false where there is nothing to read. */
static bool read_small(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, text, size - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The name in parentheses may hold blanks and parentheses itself, so fields count from the last. */
static bool parse_stat(const char *text, struct stat_line *line)
{
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == '\0') {
        return false;
    }
    at += 2;
    line->state = *at;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (!at) {
            return false;
        }
        at++;
        if (field + 1 == 20) {
            line->threads = strtoull(at, NULL, 10);
        }
    }
    line->start = strtoull(at, NULL, 10);
    return true;
}

static bool read_stat(const char *path, struct stat_line *line)
{
    char text[1024];
    return read_small(path, text, sizeof text) && parse_stat(text, line);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "e7c01a6e-…": 32 digits with dashes between. */
static void read_boot_id(uint8_t boot_id[16])
{
    char text[64];
    memset(boot_id, 0, 16);
    if (!read_small("/proc/sys/kernel/random/boot_id", text, sizeof text)) {
        return;
    }
    unsigned digits = 0;
    for (const char *at = text; *at && digits < 32; at++) {
        int digit = hex_digit(*at);
        if (digit >= 0) {
            boot_id[digits / 2] = (uint8_t)(boot_id[digits / 2] << 4 | digit);
            digits++;
        }
    }
}

static void read_self(struct host_process *self)
{
    struct stat_line line;
    struct stat ns;
    self->pid = (uint32_t)getpid();
    self->start = read_stat("/proc/self/stat", &line) ? line.start : 0;
    self->pidns = stat("/proc/self/ns/pid", &ns) == 0 ? (uint64_t)ns.st_ino : 0;
    read_boot_id(self->boot_id);
}

void host_process_self(struct host_process *self)
{
    static _Thread_local struct host_process mine;
    static _Thread_local uint32_t generation;
    host_fork_watch();
    if (generation != host_fork_generation()) {
        read_self(&mine);
        generation = host_fork_generation();
    }
    *self = mine;
}

static bool elsewhere(uint64_t pidns)
{
    struct host_process self;
    host_process_self(&self);
    return pidns != 0 && self.pidns != 0 && pidns != self.pidns;
}

enum host_liveness host_process_glance(uint32_t pid, uint64_t pidns)
{
    if (pid == 0 || pid > INT_MAX || elsewhere(pidns)) {
        return HOST_PROCESS_UNKNOWN;
    }
    /* EPERM: somebody else's, but there. */
    return kill((pid_t)pid, 0) == 0 || errno == EPERM ? HOST_PROCESS_ALIVE : HOST_PROCESS_DEAD;
}

static enum host_liveness judge(const struct stat_line *line, uint64_t start)
{
    if (start != 0 && line->start != start) {
        return HOST_PROCESS_DEAD; /* the pid was reused */
    }
    /* A zombie leader whose other threads run on is a living process. */
    bool ended = line->state == 'X' || (line->state == 'Z' && line->threads <= 1);
    return ended ? HOST_PROCESS_DEAD : HOST_PROCESS_ALIVE;
}

enum host_liveness host_process_check(uint32_t pid, uint64_t start, uint64_t pidns)
{
    enum host_liveness glance = host_process_glance(pid, pidns);
    if (glance != HOST_PROCESS_ALIVE) {
        return glance;
    }
    char path[32];
    struct stat_line line;
    (void)snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (read_stat(path, &line)) {
        return judge(&line, start);
    }
    /* Gone in between, or /proc hides it (hidepid), or there is no /proc. */
    glance = host_process_glance(pid, pidns);
    return glance == HOST_PROCESS_ALIVE && start != 0 ? HOST_PROCESS_UNKNOWN : glance;
}

uint64_t host_boot_hash(const uint8_t boot_id[16])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    uint8_t any = 0;
    for (unsigned i = 0; i < 16; i++) {
        any |= boot_id[i];
        hash = (hash ^ boot_id[i]) * UINT64_C(0x100000001b3);
    }
    return any == 0 ? 0 : hash | 1;
}

uint64_t host_process_start(uint32_t pid)
{
    char path[32];
    struct stat_line line;
    (void)snprintf(path, sizeof path, "/proc/%u/stat", pid);
    return read_stat(path, &line) ? line.start : 0;
}
