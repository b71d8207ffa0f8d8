/* A placement process with an agent of its own in it: places work of a few milliseconds again and again, and writes
 * down each go and each end, so that somebody else can count them.
 *
 *     embedded LOG PROVIDER [client] [OPTION...]
 *
 * `client`: it never speaks for its host. OPTION is NAME=SPEC of a provider, listen:ENDPOINT or peer:ENDPOINT; an agent
 * without them takes what the speaker before it has left. Lines of LOG: NANOSECONDS go PID TOKEN BASIS, NANOSECONDS
 * end PID TOKEN, NANOSECONDS no PID ERROR. Ends at SIGTERM. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/lease.h"

enum { WORK_NS = 4000000, OPTIONS_MAX = 8 };

static volatile sig_atomic_t ended;
static int log_fd;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

/* One write: lines of several processes never mix, and one that is killed has written it or not. */
static void note(const char *what, const char *more)
{
    struct timespec now;
    char line[256];
    clock_gettime(CLOCK_MONOTONIC, &now);
    int size = snprintf(line, sizeof line, "%lld%09ld %s %d %s\n", (long long)now.tv_sec,
                        now.tv_nsec, what, (int)getpid(), more);
    if (size > 0 && write(log_fd, line, (size_t)size) != size)
        _exit(70);
}

static void work(void)
{
    struct timespec time = {.tv_nsec = WORK_NS};
    nanosleep(&time, NULL);
}

static void place(lease_agent_t *agent, const char *provider)
{
    struct lease lease;
    struct lease_verdict verdict;
    char more[LEASE_REASON_SIZE];
    int error = lease_place(agent, &provider, 1, NULL, &lease, &verdict);
    if (error < 0) {
        snprintf(more, sizeof more, "%d %.120s", error, verdict.reason);
        note("no", more);
        work();
        return;
    }
    unsigned long long token = (unsigned long long)lease.token;
    snprintf(more, sizeof more, "%llu %s", token, lease_basis_name(verdict.basis));
    note("go", more);
    work();
    snprintf(more, sizeof more, "%llu", token);
    note("end", more);
    error = lease_release(agent, lease.id, 0);
    if (error < 0) {
        snprintf(more, sizeof more, "%d release", error);
        note("no", more);
    }
    work();
}

struct given {
    struct lease_options options;
    const char *providers[OPTIONS_MAX], *listen[OPTIONS_MAX], *peers[OPTIONS_MAX];
};

static int take(struct given *given, const char *word)
{
    struct lease_options *options = &given->options;
    if (strcmp(word, "client") == 0)
        options->flags |= LEASE_OPEN_CLIENT;
    else if (strncmp(word, "listen:", 7) == 0 && options->listen_count < OPTIONS_MAX)
        given->listen[options->listen_count++] = word + 7;
    else if (strncmp(word, "peer:", 5) == 0 && options->peer_count < OPTIONS_MAX)
        given->peers[options->peer_count++] = word + 5;
    else if (strchr(word, '=') && options->provider_count < OPTIONS_MAX)
        given->providers[options->provider_count++] = word;
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    static struct given given;
    struct lease_options *options = &given.options;
    struct sigaction action = {.sa_handler = on_signal};
    lease_agent_t *agent = NULL;
    char error[256] = "";
    *options = (struct lease_options){.size = sizeof *options,
                                      .label = "embedded",
                                      .providers = given.providers,
                                      .listen = given.listen,
                                      .peers = given.peers,
                                      .insecure = 1};
    for (int i = 3; i < argc; i++)
        if (take(&given, argv[i]) < 0)
            return 64;
    log_fd = argc < 3 ? -1 : open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0)
        return 64;
    sigaction(SIGTERM, &action, NULL);
    if (lease_agent_open(options, &agent, error, sizeof error) < 0) {
        fprintf(stderr, "embedded: %s\n", error);
        return 70;
    }
    while (!ended)
        place(agent, argv[2]);
    lease_agent_close(&agent);
    return 0;
}
