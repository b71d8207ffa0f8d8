#define _GNU_SOURCE
#include "agent/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/http_watch.h"
#include "broker/error.h"

#define LOOK_NS    (10 * NS_PER_MS)  /* where there is no pidfd */
#define DYING_NS   (250 * NS_PER_MS) /* after a SIGKILL, before it becomes a corpse */
#define DYING_MS   100               /* the same where nobody runs the loop any more */
#define FD_PIPE    0
#define FD_PROCESS 1

extern char **environ;

struct child {
    pid_t pid;
    int pidfd; /* -1: none to be had */
};

struct program {
    struct http_watch watch; /* fds: the pipe (-1 after its end) and the pidfd */
    struct child child;
    bool killed; /* its end is awaited, nobody waits for its output */
    ns_t (*now)(void);
    ns_t deadline;
    http_callback *done;
    size_t size;
    char output[PROGRAM_OUTPUT_MAX + 2]; /* one more byte tells too much, one NUL */
};

/* ---- children -------------------------------------------------------------------------------- */

static int open_pidfd(pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0); /* closed on exec by itself */
#else
    (void)pid;
    return -1;
#endif
}

enum life { ALIVE, ENDED, TAKEN };

/* TAKEN: somebody waited for it (SIGCHLD ignored, a wait for any child): its number is no more ours. */
static enum life look_at(const struct child *child, int options, siginfo_t *info)
{
    idtype_t kind = child->pidfd >= 0 ? (idtype_t)3 /* P_PIDFD */ : P_PID;
    id_t id = child->pidfd >= 0 ? (id_t)child->pidfd : (id_t)child->pid;
    memset(info, 0, sizeof *info);
    if (waitid(kind, id, info, WEXITED | WNOHANG | options) != 0)
        return errno == EINTR ? ALIVE : TAKEN;
    return info->si_pid == 0 ? ALIVE : ENDED;
}

/* All of its group, while it is there: an ended one that was not waited for keeps its number. */
static void kill_group(const struct child *child)
{
    siginfo_t info;
    if (look_at(child, WNOWAIT, &info) == TAKEN)
        return;
    kill(-child->pid, SIGKILL);
    kill(child->pid, SIGKILL); /* it may have left its group */
}

/* False: it lives. */
static bool reap(struct child *child, int *status)
{
    siginfo_t info;
    enum life life = look_at(child, 0, &info);
    if (life == ALIVE)
        return false;
    if (life == ENDED && status != NULL)
        *status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    if (child->pidfd >= 0)
        close(child->pidfd);
    child->pidfd = -1;
    return true;
}

/* ---- corpses: killed, not ended, and without a loop that looks after them -------------------- */

static pthread_mutex_t corpses_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct child corpses[PROGRAM_CORPSES];
static int corpse_count;

int program_corpses(void)
{
    pthread_mutex_lock(&corpses_mutex);
    for (int i = corpse_count - 1; i >= 0; i--)
        if (reap(&corpses[i], NULL))
            corpses[i] = corpses[--corpse_count];
    int count = corpse_count;
    pthread_mutex_unlock(&corpses_mutex);
    return count;
}

static void bury(struct child *child)
{
    pthread_mutex_lock(&corpses_mutex);
    if (corpse_count < PROGRAM_CORPSES)
        corpses[corpse_count++] = *child;
    else if (child->pidfd >= 0)
        close(child->pidfd);
    pthread_mutex_unlock(&corpses_mutex);
}

/* ---- the end --------------------------------------------------------------------------------- */

static struct program *program_of(struct http_watch *watch)
{
    return (struct program *)watch;
}

static void close_pipe(struct program *program)
{
    int fd = program->watch.fds[FD_PIPE];
    if (fd < 0)
        return;
    http_watch_forget(&program->watch, FD_PIPE);
    close(fd);
}

static void begin_to_die(struct program *program)
{
    kill_group(&program->child);
    close_pipe(program);
    program->killed = true;
    program->watch.arg = NULL;
    program->deadline = program->now() + DYING_NS;
    program->watch.deadline = program->deadline;
    if (program->child.pidfd < 0)
        program->watch.deadline = program->now() + NS_PER_MS;
}

static void on_dying(struct program *program)
{
    siginfo_t info;
    ns_t now = program->now();
    if (look_at(&program->child, WNOWAIT, &info) == ALIVE && now < program->deadline) {
        program->watch.deadline = program->child.pidfd >= 0 ? program->deadline : now + LOOK_NS;
        return;
    }
    http_unwatch(&program->watch);
    if (!reap(&program->child, NULL))
        bury(&program->child);
    free(program);
}

static void give_up(struct program *program, enum http_failure failure, const char *reason)
{
    struct http_answer answer = {.failure = failure, .body = "", .reason = reason};
    void *arg = program->watch.arg;
    begin_to_die(program);
    program->done(arg, &answer);
}

static void finish(struct program *program)
{
    struct http_answer answer = {.body = program->output, .size = program->size, .reason = ""};
    void *arg = program->watch.arg;
    kill_group(&program->child); /* what it left behind; itself it has ended */
    close_pipe(program);
    http_unwatch(&program->watch);
    reap(&program->child, &answer.status);
    program->output[program->size] = '\0';
    program->done(arg, &answer);
    free(program);
}

/* ---- in between ------------------------------------------------------------------------------ */

/* False: it prints too much. */
static bool read_output(struct program *program)
{
    for (;;) {
        int fd = program->watch.fds[FD_PIPE];
        size_t room = PROGRAM_OUTPUT_MAX + 1 - program->size;
        ssize_t got = fd < 0 ? -1 : read(fd, program->output + program->size, room);
        if (got < 0 && fd >= 0 && errno == EINTR)
            continue;
        if (got == 0)
            close_pipe(program);
        if (got <= 0)
            return true;
        program->size += (size_t)got;
        if (program->size > PROGRAM_OUTPUT_MAX)
            return false;
    }
}

/* Whether it has ended is asked first: what it printed is all there then. */
static void on_ready(struct http_watch *watch)
{
    struct program *program = program_of(watch);
    siginfo_t info;
    if (program->killed) {
        on_dying(program);
        return;
    }
    bool ended = look_at(&program->child, WNOWAIT, &info) != ALIVE;
    if (!read_output(program))
        give_up(program, HTTP_TOO_LARGE, "it prints more than 64 KiB");
    else if (ended)
        finish(program);
    else if (program->now() >= program->deadline)
        give_up(program, HTTP_TIMEOUT_ANSWER, "it did not end in time and was killed");
    else if (program->child.pidfd < 0)
        watch->deadline = program->now() + LOOK_NS;
}

static void on_cancel(struct http_watch *watch)
{
    struct program *program = program_of(watch);
    if (!program->killed)
        begin_to_die(program);
}

static void on_drop(struct http_watch *watch)
{
    struct program *program = program_of(watch);
    struct pollfd end = {.fd = program->child.pidfd, .events = POLLIN};
    if (program->watch.fds[FD_PIPE] >= 0)
        close(program->watch.fds[FD_PIPE]);
    kill_group(&program->child);
    if (!reap(&program->child, NULL)) {
        poll(&end, program->child.pidfd >= 0, DYING_MS);
        if (!reap(&program->child, NULL))
            bury(&program->child);
    }
    free(program);
}

/* ---- the start ------------------------------------------------------------------------------- */

/* Above the three that the child has: dup2 there may not hit it. */
static int move_up(int fd)
{
    if (fd >= 3)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return up;
}

static bool open_pipe(int pipe_fds[2])
{
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return false;
    pipe_fds[0] = move_up(pipe_fds[0]);
    pipe_fds[1] = move_up(pipe_fds[1]);
    if (pipe_fds[0] >= 0 && pipe_fds[1] >= 0 && fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK) == 0)
        return true;
    if (pipe_fds[0] >= 0)
        close(pipe_fds[0]);
    if (pipe_fds[1] >= 0)
        close(pipe_fds[1]);
    return false;
}

/* Ours and LEASE_PROVIDER; the list is for free, `own` is what it points to. */
static char **environment_with(char *own)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = malloc((count + 2) * sizeof *list);
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < count && environ[i] != NULL; i++)
        if (strncmp(environ[i], "LEASE_PROVIDER=", 15) != 0)
            list[kept++] = environ[i];
    list[kept++] = own;
    list[kept] = NULL;
    return list;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = posix_spawnattr_setsigmask(attributes, &none);
    if (error == 0)
        error = posix_spawnattr_setsigdefault(attributes, &all);
    if (error == 0)
        error = posix_spawnattr_setpgroup(attributes, 0);
    if (error == 0)
        error = posix_spawnattr_setflags(
            attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    return error;
}

/* macOS: POSIX_SPAWN_CLOEXEC_DEFAULT instead of the last. */
static int set_actions(posix_spawn_file_actions_t *actions, int out)
{
    int error = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(actions, out, 1);
    if (error == 0)
        error = posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0);
    if (error == 0)
        error = posix_spawn_file_actions_addclosefrom_np(actions, 3);
    return error;
}

static int spawn_with(pid_t *pid, const char *program, char **environment, int out)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    char name[4096];
    if (snprintf(name, sizeof name, "%s", program) >= (int)sizeof name)
        return ENOENT;
    char *arguments[] = {name, NULL};
    int error = posix_spawnattr_init(&attributes);
    if (error != 0)
        return error;
    error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = set_attributes(&attributes);
        if (error == 0)
            error = set_actions(&actions, out);
        if (error == 0)
            error = posix_spawnp(pid, name, &actions, &attributes, arguments, environment);
        posix_spawn_file_actions_destroy(&actions);
    }
    posix_spawnattr_destroy(&attributes);
    return error;
}

static int spawn(pid_t *pid, const char *program, const char *provider, int out)
{
    char own[64 + NAME_SIZE];
    snprintf(own, sizeof own, "LEASE_PROVIDER=%s", provider);
    char **environment = environment_with(own);
    int error = environment == NULL ? ENOMEM : spawn_with(pid, program, environment, out);
    free(environment);
    switch (error) {
    case 0: return 0;
    case ENOENT:
    case ENOTDIR: return LEASE_EABSENT;
    case EACCES:
    case EPERM: return LEASE_EPERM;
    case ENOEXEC:
    case EINVAL: return LEASE_EINVAL;
    case EAGAIN:
    case ENOMEM: return LEASE_ENOMEM;
    default: return LEASE_EIO;
    }
}

static int start(struct program *program, const char *name, const char *provider)
{
    int pipe_fds[2];
    if (!open_pipe(pipe_fds))
        return LEASE_EIO;
    int error = spawn(&program->child.pid, name, provider, pipe_fds[1]);
    close(pipe_fds[1]);
    if (error != 0) {
        close(pipe_fds[0]);
        return error;
    }
    program->child.pidfd = open_pidfd(program->child.pid);
    program->watch.fds[FD_PIPE] = pipe_fds[0];
    program->watch.fds[FD_PROCESS] = program->child.pidfd;
    return 0;
}

int program_start(struct http *http, ns_t (*now)(void), const char *program, const char *provider,
                  int timeout_ms, http_callback *done, void *arg)
{
    if (timeout_ms <= 0 || timeout_ms > HTTP_TIMEOUT_MS_MAX)
        return LEASE_EINVAL;
    if (program_corpses() == PROGRAM_CORPSES)
        return LEASE_EFULL;
    struct program *self = malloc(sizeof *self);
    if (self == NULL)
        return LEASE_ENOMEM;
    memset(self, 0, offsetof(struct program, output));
    self->watch.arg = arg;
    self->watch.ready = on_ready;
    self->watch.cancel = on_cancel;
    self->watch.drop = on_drop;
    self->now = now;
    self->done = done;
    self->deadline = now() + timeout_ms * NS_PER_MS;
    int error = start(self, program, provider);
    if (error != 0) {
        free(self);
        return error;
    }
    self->watch.deadline = self->child.pidfd >= 0 ? self->deadline : now() + LOOK_NS;
    error = http_watch(http, &self->watch);
    if (error != 0)
        on_drop(&self->watch);
    return error;
}
