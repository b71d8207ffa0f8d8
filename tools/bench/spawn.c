/* What `lease run` adds to a command that does nothing. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench.h"

#define AGENT_MS 5000 /* for it to say that it is ready, or to end */

extern char **environ;

static pid_t spawn(char *const *argv, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, 1);
    pid_t pid = -1;
    errno = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno) {
        perror(argv[0]);
        return -1;
    }
    return pid;
}

/* Milliseconds until it has ended with 0; negative where it did not. */
static double time_of(char *const *argv)
{
    int64_t start = bench_now_ns();
    int status = 0;
    pid_t pid = spawn(argv, -1);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return -1;
    return (double)(bench_now_ns() - start) / 1e6;
}

void spawn_measure(const struct bench_place *place, bool agent, uint32_t count,
                   struct spawned *spawned)
{
    char spec[] = "bench=" BENCH_SPEC;
    char *plain[] = {"true", NULL};
    char *alone[] = {(char *)place->lease,
                     "run",
                     "--dir",
                     (char *)place->alone,
                     "--provider",
                     spec,
                     "bench",
                     "--",
                     "true",
                     NULL};
    char *beside[] = {
        (char *)place->lease, "run", "--dir", (char *)place->agent, "bench", "--", "true", NULL};
    static double times[3][BENCH_SPAWNS_MAX];
    memset(spawned, 0, sizeof *spawned);
    spawned->has_agent = agent;
    spawned->count = count;
    for (uint32_t i = 0; i < count; i++) {
        times[0][i] = time_of(plain);
        times[1][i] = time_of(alone);
        times[2][i] = agent ? time_of(beside) : 0;
        if (times[0][i] < 0 || times[1][i] < 0 || times[2][i] < 0)
            return;
    }
    spawned->plain_ms = bench_median(times[0], count);
    spawned->alone_ms = bench_median(times[1], count);
    spawned->agent_ms = bench_median(times[2], count);
    spawned->ok = true;
}

/* ---- the agent ------------------------------------------------------------------------------ */

/* Ready when it holds the office of its directory's speaker. */
static bool is_ready(const struct bench_place *place)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/agent.lock", place->agent);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool taken = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return taken;
}

pid_t spawn_agent(const struct bench_place *place)
{
    char *argv[] = {(char *)place->lease_agent, "--dir", (char *)place->agent, "--provider",
                    "bench=" BENCH_SPEC,        NULL};
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid = spawn(argv, nowhere);
    close(nowhere);
    int64_t end = bench_now_ns() + (int64_t)AGENT_MS * 1000000;
    while (pid >= 0 && !is_ready(place)) {
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        if (waitpid(pid, NULL, WNOHANG) == pid)
            pid = -1;
        else if (bench_now_ns() > end) {
            spawn_end(pid);
            pid = -1;
        }
    }
    if (pid < 0)
        fprintf(stderr, "bench: lease-agent did not start, see above\n");
    return pid;
}

void spawn_end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}
