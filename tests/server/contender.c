/* One of many that want a slot: acquires and verifies as fast as it can, releases what it gets at
 * once, and says at its end how it went: contender NAME=SPEC */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/lease.h"

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct result {
    long acquires, refused, verifies, go, no, errors, longest_ms;
};

static void take_time(struct result *result, long since)
{
    long ms = now_ms() - since;
    if (ms > result->longest_ms)
        result->longest_ms = ms;
}

/* What is neither a grant nor a no. */
static void take_error(struct result *result, const char *what, int rc)
{
    if (rc == 0 || rc == LEASE_EBUSY)
        return;
    if (result->errors++ == 0)
        fprintf(stderr, "contender: %s: %s\n", what, lease_strerror(rc));
}

static void verify(lease_agent_t *agent, const struct lease *lease, struct result *result)
{
    struct lease_verdict verdict;
    long begun = now_ms();
    int rc = lease_verify(agent, lease->id, NULL, NULL, &verdict);
    take_time(result, begun);
    result->verifies++;
    result->go += rc == 0;
    result->no += rc == LEASE_EBUSY;
    take_error(result, "verify", rc);
    lease_release(agent, lease->id, 0);
}

static void contend(lease_agent_t *agent, struct result *result)
{
    struct lease lease;
    struct timespec breath = {.tv_nsec = 1000000};
    long begun = now_ms();
    int rc = lease_acquire(agent, "x", NULL, &lease, NULL);
    take_time(result, begun);
    result->acquires++;
    result->refused += rc == LEASE_EBUSY;
    take_error(result, "acquire", rc);
    if (rc == 0)
        verify(agent, &lease, result);
    nanosleep(&breath, NULL); /* two processors are shared with the server that is asked */
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    if (argc != 2)
        return 64;
    const char *providers[] = {argv[1]};
    struct lease_options options = {.size = sizeof options,
                                    .label = "contender",
                                    .providers = providers,
                                    .provider_count = 1,
                                    .flags = LEASE_OPEN_CLIENT | LEASE_OPEN_GUARD};
    struct result result = {0};
    lease_agent_t *agent;
    char error[256];
    if (lease_agent_open(&options, &agent, error, sizeof error) < 0) {
        fprintf(stderr, "contender: %s\n", error);
        return 1;
    }
    while (!ended)
        contend(agent, &result);
    lease_agent_close(&agent);
    printf("%ld %ld %ld %ld %ld %ld %ld\n", result.acquires, result.refused, result.verifies,
           result.go, result.no, result.errors, result.longest_ms);
    return 0;
}
