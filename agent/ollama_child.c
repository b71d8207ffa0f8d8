#define _GNU_SOURCE
#include "agent/ollama_child.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHILDREN_MAX    16        /* llama-servers of the host; further ones are not looked at */
#define GENERATIONS_MAX 4         /* wrappers between Ollama and its child */
#define COMMAND_MAX     (1 << 14) /* bytes of a command line */
#define LISTENING       0x0a
#define LOOPBACK_HEX    "0100007F"

const char *ollama_proc = "/proc";

struct process {
    int32_t pid, parent;
    uint64_t started;
    char name[32];
};

struct listener {
    uint32_t uid;
    unsigned long inode;
};

/* ---- one process ----------------------------------------------------------------------------- */

static FILE *open_file(int32_t pid, const char *what)
{
    char path[512];
    if (pid == 0)
        snprintf(path, sizeof path, "%s/%s", ollama_proc, what);
    else
        snprintf(path, sizeof path, "%s/%d/%s", ollama_proc, pid, what);
    return fopen(path, "re");
}

/* The name is in brackets and may hold some itself: the last one ends it. */
static bool parse_stat(char *line, struct process *process)
{
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    unsigned long long started;
    if (open == NULL || close == NULL || close < open)
        return false;
    *close = '\0';
    snprintf(process->name, sizeof process->name, "%s", open + 1);
    int got = sscanf(close + 1,
                     " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%llu",
                     &process->parent, &started);
    process->started = started;
    return got == 2;
}

static bool read_process(int32_t pid, struct process *process)
{
    char line[1024];
    FILE *file = open_file(pid, "stat");
    if (file == NULL)
        return false;
    bool got = fgets(line, sizeof line, file) != NULL && parse_stat(line, process);
    fclose(file);
    process->pid = pid;
    return got;
}

static bool uid_of(int32_t pid, uint32_t *uid)
{
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/%d", ollama_proc, pid);
    if (stat(path, &status) != 0)
        return false;
    *uid = status.st_uid;
    return true;
}

/* ---- its command line ------------------------------------------------------------------------ */

static bool host_is_loopback(const char *host)
{
    return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "localhost") == 0;
}

/* The value of --NAME VALUE or --NAME=VALUE at `at`, or NULL. Arguments end in a NUL each. */
static const char *value_of(const char *at, const char *end, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(at, name, length) != 0)
        return NULL;
    if (at[length] == '=')
        return at + length + 1;
    const char *next = at + strlen(at) + 1;
    return at[length] == '\0' && next < end ? next : NULL;
}

static uint16_t port_in(const char *command, size_t size)
{
    long port = 0;
    const char *end = command + size;
    for (const char *at = command; at < end; at += strlen(at) + 1) {
        const char *host = value_of(at, end, "--host"), *text = value_of(at, end, "--port");
        if (host != NULL && !host_is_loopback(host))
            return 0;
        if (text != NULL && isdigit((unsigned char)*text))
            port = strtol(text, NULL, 10);
    }
    return port > 0 && port < 65536 ? (uint16_t)port : 0;
}

static uint16_t port_of(int32_t pid)
{
    FILE *file = open_file(pid, "cmdline");
    char *command = malloc(COMMAND_MAX + 1);
    uint16_t port = 0;
    if (file != NULL && command != NULL) {
        size_t size = fread(command, 1, COMMAND_MAX, file);
        command[size] = '\0';
        port = port_in(command, size);
    }
    free(command);
    if (file != NULL)
        fclose(file);
    return port;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static bool parse_listener(const char *line, bool loopback, uint16_t port,
                           struct listener *listener)
{
    char address[33];
    unsigned at, state, uid;
    unsigned long inode;
    if (sscanf(line, " %*u: %32[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %u %*u %lu",
               address, &at, &state, &uid, &inode) != 5)
        return false;
    if (at != port || state != LISTENING || (loopback && strcmp(address, LOOPBACK_HEX) != 0))
        return false;
    *listener = (struct listener){.uid = uid, .inode = inode};
    return true;
}

/* Who listens on a port, by one table of the process, or of our own where pid is 0. */
static bool find_listener(int32_t pid, const char *table, bool loopback, uint16_t port,
                          struct listener *listener)
{
    char line[512];
    bool found = false;
    FILE *file = open_file(pid, table);
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = parse_listener(line, loopback, port, listener);
    fclose(file);
    return found;
}

enum answer { NO, YES, NOT_TOLD };

static enum answer holds_socket(int32_t pid, unsigned long inode)
{
    char path[512], wanted[64], target[64];
    snprintf(path, sizeof path, "%s/%d/fd", ollama_proc, pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return NOT_TOLD;
    enum answer answer = NO;
    for (struct dirent *entry; answer == NO && (entry = readdir(folder)) != NULL;) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (size > 0) {
            target[size] = '\0';
            answer = strcmp(target, wanted) == 0 ? YES : NO;
        }
    }
    closedir(folder);
    return answer;
}

/* ---- the family ------------------------------------------------------------------------------ */

struct search {
    struct listener server;
    int32_t owner; /* the Ollama whose children count; 0: none so far */
    bool several;  /* several might be it */
    int count;
    struct ollama_child first;
};

static int32_t ollama_above(const struct process *child)
{
    struct process above = *child;
    for (int i = 0; i < GENERATIONS_MAX && above.parent > 1; i++) {
        if (!read_process(above.parent, &above))
            return 0;
        if (strcmp(above.name, "ollama") == 0)
            return above.pid;
    }
    return 0;
}

/* The Ollama above is the one that listens on our port, as far as can be told. */
static bool is_ours(struct search *search, int32_t ollama)
{
    uint32_t uid;
    if (ollama == 0 || !uid_of(ollama, &uid) || uid != search->server.uid)
        return false;
    if (ollama == search->owner)
        return true;
    if (holds_socket(ollama, search->server.inode) == NO)
        return false;
    search->several = search->several || search->owner != 0;
    search->owner = ollama;
    return true;
}

static bool port_is_its_own(const struct search *search, int32_t pid, uint16_t port)
{
    struct listener ours, its;
    uint32_t uid;
    return uid_of(pid, &uid) && uid == search->server.uid &&
           find_listener(0, "net/tcp", true, port, &ours) && ours.uid == uid &&
           find_listener(pid, "net/tcp", true, port, &its) && its.inode == ours.inode;
}

static void consider(struct search *search, const struct process *process)
{
    if (strncmp(process->name, "llama-server", 12) != 0)
        return;
    uint16_t port = port_of(process->pid);
    if (port == 0 || !is_ours(search, ollama_above(process)) ||
        !port_is_its_own(search, process->pid, port))
        return;
    search->count++;
    search->first =
        (struct ollama_child){.pid = process->pid, .port = port, .started = process->started};
}

int ollama_child_find(uint16_t port, struct ollama_child *child)
{
    struct search search = {0};
    *child = (struct ollama_child){0};
    if (!find_listener(0, "net/tcp", false, port, &search.server) &&
        !find_listener(0, "net/tcp6", false, port, &search.server))
        return 0;
    DIR *folder = opendir(ollama_proc);
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL && search.count < CHILDREN_MAX;) {
        struct process process;
        if (isdigit((unsigned char)entry->d_name[0]) &&
            read_process((int32_t)strtol(entry->d_name, NULL, 10), &process))
            consider(&search, &process);
    }
    closedir(folder);
    *child = search.first;
    return search.several ? CHILDREN_MAX : search.count;
}

bool ollama_child_lives(const struct ollama_child *child)
{
    struct process process;
    return child->pid != 0 && read_process(child->pid, &process) &&
           process.started == child->started;
}
