/* What lease-agent's background readings cost: PROVIDERS stand-in servers, all watched, so that each
 * is read every 1.2 s. Prints the share of one core that the agent took.
 *
 *   bench_probes [-n PROVIDERS] [-s SECONDS] [-m] [-e]   -m: with /metrics, -e: engines are named */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker/limits.h"
#include "tests/lib/slotserver.h"

#define SLOTS 4

struct bench {
    int providers, seconds;
    bool metrics, named;
    char directory[64];
    struct slotserver *servers[PROVIDERS_MAX];
    char *arguments[2 * PROVIDERS_MAX + 8];
    pid_t agent, watch;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_probes: %s: %s\n", what, strerror(errno));
    exit(70);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_s(pid_t pid)
{
    char path[64], line[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    char *end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                       &system) != 2)
        fail(path);
    fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static unsigned long asked(const struct bench *bench)
{
    static const char *const paths[] = {"/props", "/slots", "/metrics"};
    unsigned long sum = 0;
    for (int i = 0; i < bench->providers; i++)
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++)
            sum += slotserver_asked(bench->servers[i], paths[k]);
    return sum;
}

static void start_servers(struct bench *bench)
{
    for (int i = 0; i < bench->providers; i++) {
        struct slotserver_options options;
        slotserver_defaults(&options);
        options.slots = SLOTS;
        options.metrics = bench->metrics;
        bench->servers[i] = slotserver_start(&options);
        if (!bench->servers[i])
            fail("a server");
    }
}

static pid_t start(char *const *arguments)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid > 0)
        return pid;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    execv(arguments[0], arguments);
    _exit(127);
}

static void start_programs(struct bench *bench)
{
    int count = 0;
    static char name[] = LEASE_AGENT, option[] = "--provider", dir[] = "--dir";
    bench->arguments[count++] = name;
    bench->arguments[count++] = dir;
    bench->arguments[count++] = bench->directory;
    for (int i = 0; i < bench->providers; i++) {
        bench->arguments[count++] = option;
        if (asprintf(&bench->arguments[count++], "p%d=%shttp://127.0.0.1:%u", i,
                     bench->named ? "llama.cpp+" : "", slotserver_port(bench->servers[i])) < 0)
            fail("memory");
    }
    bench->agent = start(bench->arguments);
    char *watch[] = {LEASE, "watch", "--dir", bench->directory, NULL};
    sleep(2);
    bench->watch = start(watch);
}

static void measure(const struct bench *bench)
{
    sleep(3);
    unsigned long asked_before = asked(bench);
    double cpu = cpu_s(bench->agent), at = now_s();
    sleep((unsigned)bench->seconds);
    cpu = cpu_s(bench->agent) - cpu;
    at = now_s() - at;
    double requests = (double)(asked(bench) - asked_before);
    printf(
        "%d providers, %.1f requests/s: lease-agent takes %.2f %% of one core, %.0f us a request\n",
        bench->providers, requests / at, 100 * cpu / at, requests > 0 ? 1e6 * cpu / requests : 0);
}

static void stop(pid_t pid)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    struct bench bench = {.providers = 64, .seconds = 20, .directory = "/tmp/bench-probes-XXXXXX"};
    for (int got; (got = getopt(argc, argv, "n:s:me")) != -1;) {
        if (got == 'n')
            bench.providers = atoi(optarg);
        else if (got == 's')
            bench.seconds = atoi(optarg);
        else if (got == 'm')
            bench.metrics = true;
        else if (got == 'e')
            bench.named = true;
        else
            return 64;
    }
    if (bench.providers < 1 || bench.providers > PROVIDERS_MAX || bench.seconds < 1)
        return 64;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(bench.directory))
        fail(bench.directory);
    start_servers(&bench);
    start_programs(&bench);
    measure(&bench);
    stop(bench.watch);
    stop(bench.agent);
    for (int i = 0; i < bench.providers; i++)
        slotserver_stop(bench.servers[i]);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", bench.directory);
    return system(command) == 0 ? 0 : 70;
}
