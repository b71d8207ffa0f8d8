/* Takes many leases of a provider, with labels as long as they may be, and holds them until SIGTERM:
 *
 *     many PROVIDER COUNT READY
 *
 * READY is written when it has them all. Exit code 75: it did not get them. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/lease.h"

static void fill_label(char label[LEASE_LABEL_SIZE], unsigned number)
{
    int size = snprintf(label, LEASE_LABEL_SIZE, "subagent/%u/", number);
    memset(label + size, 'x', LEASE_LABEL_SIZE - 1 - (size_t)size);
    label[LEASE_LABEL_SIZE - 1] = '\0';
}

static int take(lease_agent_t *agent, const char *provider, unsigned number)
{
    char label[LEASE_LABEL_SIZE];
    struct lease lease;
    struct lease_verdict verdict;
    struct lease_request request = {.size = sizeof request,
                                    .ttl_ms = 120000,
                                    .require = LEASE_BASIS_OWNER,
                                    .timeout_ms = 5000,
                                    .label = label};
    fill_label(label, number);
    int error = lease_place(agent, &provider, 1, &request, &lease, &verdict);
    if (error < 0)
        fprintf(stderr, "many: %u: %s: %s\n", number, lease_strerror(error), verdict.reason);
    return error;
}

int main(int argc, char **argv)
{
    struct lease_options options = {.size = sizeof options, .flags = LEASE_OPEN_CLIENT};
    lease_agent_t *agent = NULL;
    sigset_t term;
    int caught;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (argc != 4 || lease_agent_open(&options, &agent, NULL, 0) < 0)
        return 64;
    for (unsigned i = 0, count = (unsigned)atoi(argv[2]); i < count; i++)
        if (take(agent, argv[1], i) < 0)
            return 75;
    FILE *ready = fopen(argv[3], "w");
    if (!ready || fclose(ready) != 0)
        return 70;
    while (sigwait(&term, &caught) != 0)
        continue;
    lease_agent_close(&agent);
    return 0;
}
