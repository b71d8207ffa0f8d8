#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tools/lease_run.h"

extern char **environ;

/* ---- environment ------------------------------------------------------------------------ */

static const char *const lease_names[] = {"LEASE_ID",    "LEASE_PROVIDER", "LEASE_URL",
                                          "LEASE_TOKEN", "LEASE_REACH",    "LEASE_DIR",
                                          "LEASE_SLOT"};

#define NAMES_COUNT (sizeof lease_names / sizeof lease_names[0])

static bool is_ours(const char *entry)
{
    for (size_t i = 0; i < NAMES_COUNT; i++) {
        size_t length = strlen(lease_names[i]);
        if (strncmp(entry, lease_names[i], length) == 0 && entry[length] == '=')
            return true;
    }
    return false;
}

/* Appends NAME=value; nothing where value is NULL or empty: unknown is absent. */
static bool put(char **block, size_t *count, const char *name, const char *value)
{
    if (!value || !value[0])
        return true;
    size_t size = strlen(name) + strlen(value) + 2;
    char *entry = malloc(size);
    if (!entry)
        return false;
    snprintf(entry, size, "%s=%s", name, value);
    block[(*count)++] = entry;
    return true;
}

char **child_environment(const struct lease *lease, const char *directory, const char *provider)
{
    size_t count = 0, inherited = 0;
    while (environ && environ[inherited])
        inherited++;
    char **block = calloc(inherited + NAMES_COUNT + 1, sizeof *block);
    if (!block)
        return NULL;
    for (size_t i = 0; i < inherited; i++)
        if (!is_ours(environ[i]))
            block[count++] = environ[i];
    char token[32] = "", slot[16] = "";
    if (lease && lease->token)
        snprintf(token, sizeof token, "%llu", (unsigned long long)lease->token);
    if (lease && lease->slot >= 0)
        snprintf(slot, sizeof slot, "%d", lease->slot);
    bool complete = put(block, &count, "LEASE_ID", lease ? lease->id : NULL) &&
                    put(block, &count, "LEASE_PROVIDER", lease ? lease->provider : provider) &&
                    put(block, &count, "LEASE_URL", lease ? lease->url : NULL) &&
                    put(block, &count, "LEASE_TOKEN", token) &&
                    put(block, &count, "LEASE_SLOT", slot) &&
                    put(block, &count, "LEASE_DIR", directory) &&
                    put(block, &count, "LEASE_REACH",
                        lease_reach_name(lease ? lease->reach : LEASE_REACH_NONE));
    return complete ? block : NULL;
}

/* ---- execution -------------------------------------------------------------------------- */

/* Only calls that a child of a process with threads may make. */
static int execute(char **command, char **environment)
{
    environ = environment;
    execvp(command[0], command);
    int failed = errno;
    bool missing = failed == ENOENT || failed == ENOTDIR;
    say("%s: %s", command[0],
        missing            ? "command not found, give its path or mend PATH"
        : failed == EACCES ? "command not executable, see its permissions (chmod +x)"
                           : strerror(failed));
    return missing ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

int child_become(char **command, char **environment)
{
    return environment ? execute(command, environment) : EXIT_INTERNAL;
}

/* Nobody would renew the lease of a child whose lease run was killed, so it is killed as well; not
 * asked to end, since nobody would be left to insist. Signals stay blocked up to here, so that none
 * takes its default action in a child that is still ourselves. */
static void child_main(char **command, char **environment, const struct run_signals *signals,
                       pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(EXIT_INTERNAL); /* the parent died before the kernel was told */
    signals_restore(signals);
    _exit(execute(command, environment));
}

int child_start(char **command, char **environment, const struct run_signals *signals, pid_t *pid)
{
    pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0)
        child_main(command, environment, signals, parent);
    return *pid < 0 ? -1 : 0;
}
