/* lease-agent processes, each as if it were a host of its own. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/routes.h"
#include "tools/bench/fleet.h"

#define START_NS INT64_C(20000000000)

int64_t fleet_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void fleet_sleep_ns(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (ns > 0 && nanosleep(&t, &t) < 0 && errno == EINTR)
        continue;
}

int fleet_by_time(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

double fleet_load(void)
{
    double load = -1;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

static void become(const char *directory, const char *const *argv)
{
    char log[PATH_MAX + 8];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(log, sizeof log, "%s.log", directory);
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    setenv("STATE_DIRECTORY", directory, 1);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* In the child. What it says goes to a file beside its books. */
static void become_agent(const struct fleet_place *place, const struct fleet_agent *agent,
                         const char *provider, const char *peer, const char *publish)
{
    const char *argv[20] = {place->lease_agent, "--name",   agent->name,        "--dir",
                            agent->directory,   "--listen", "tcp://127.0.0.1:0"};
    int count = 7;
    const char *const more[][2] = {
        {"--provider", provider}, {"--peer", peer}, {"--publish", publish}};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        if (!more[i][1])
            continue;
        argv[count++] = more[i][0];
        argv[count++] = more[i][1];
    }
    become(agent->directory, argv);
}

bool fleet_agent_start(const struct fleet_place *place, struct fleet_agent *agent, const char *name,
                       const char *provider, const char *peer, const char *publish)
{
    memset(agent, 0, sizeof *agent);
    snprintf(agent->name, sizeof agent->name, "%s", name);
    snprintf(agent->directory, sizeof agent->directory, "%.1000s/%s", place->directory, name);
    mkdir(agent->directory, 0700);
    agent->pid = fork();
    if (agent->pid == 0)
        become_agent(place, agent, provider, peer, publish);
    if (agent->pid < 0)
        fprintf(stderr, "bench: %s: %s\n", name, strerror(errno));
    return agent->pid > 0;
}

bool fleet_agent_await(struct fleet_agent *agent)
{
    int64_t end = fleet_now_ns() + START_NS;
    while (fleet_now_ns() < end) {
        struct routes *routes = NULL;
        if (routes_read(agent->directory, &routes) == 0) {
            memcpy(agent->endpoint, routes->endpoint, sizeof agent->endpoint);
            memcpy(agent->publish, routes->publish, sizeof agent->publish);
        }
        routes_free(&routes);
        if (agent->endpoint[0])
            return true;
        if (waitpid(agent->pid, NULL, WNOHANG) == agent->pid)
            break;
        fleet_sleep_ns(5000000);
    }
    fprintf(stderr, "bench: %s did not start, see %s.log\n", agent->name, agent->directory);
    return false;
}

static bool takes_in(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool taken = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return taken;
}

/* At two ports below those that are given out by themselves: agents know the second by the first. */
bool fleet_relay_start(const struct fleet_place *place, struct fleet_agent *relay)
{
    uint16_t port = (uint16_t)(20000 + 2 * (getpid() % 5000));
    memset(relay, 0, sizeof *relay);
    snprintf(relay->name, sizeof relay->name, "relay");
    snprintf(relay->directory, sizeof relay->directory, "%.1000s/host-relay", place->directory);
    snprintf(relay->endpoint, sizeof relay->endpoint, "tcp://127.0.0.1:%u", port);
    snprintf(relay->publish, sizeof relay->publish, "tcp://127.0.0.1:%u", port + 1u);
    const char *argv[] = {place->lease_agent, "--relay", "--listen", relay->endpoint, NULL};
    relay->pid = fork();
    if (relay->pid == 0)
        become(relay->directory, argv);
    int64_t end = fleet_now_ns() + START_NS;
    while (relay->pid > 0 && fleet_now_ns() < end) {
        if (takes_in((uint16_t)(port + 1)))
            return true;
        if (waitpid(relay->pid, NULL, WNOHANG) == relay->pid)
            relay->pid = 0;
        fleet_sleep_ns(5000000);
    }
    fprintf(stderr, "bench: the relay did not start, see %s.log\n", relay->directory);
    return false;
}

void fleet_agent_end(struct fleet_agent *agents, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (agents[i].pid > 0)
            kill(agents[i].pid, SIGTERM);
    for (uint32_t i = 0; i < count; i++)
        if (agents[i].pid > 0)
            waitpid(agents[i].pid, NULL, 0);
}
