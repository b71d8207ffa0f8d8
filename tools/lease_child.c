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

/* ---- environment ----------------------------------------------------------------------------- */

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

/* What is built: pointers, and behind them in the same block the texts of ours. */
struct block {
    char **entries;
    size_t count;
    char *texts;
    size_t left; /* bytes of texts */
};

/* Appends NAME=value; nothing where value is NULL or empty: unknown is absent. */
static void put(struct block *block, const char *name, const char *value)
{
    if (!value || !value[0])
        return;
    int length = snprintf(block->texts, block->left, "%s=%s", name, value);
    if (length < 0 || (size_t)length >= block->left)
        return; /* TEXTS_SIZE is the sum of all: does not happen */
    block->entries[block->count++] = block->texts;
    block->texts += length + 1;
    block->left -= (size_t)length + 1;
}

#define TEXTS_SIZE (LEASE_ID_SIZE + LEASE_NAME_SIZE + LEASE_URL_SIZE + 32 * (NAMES_COUNT + 3))

static void put_lease(struct block *block, const struct lease *lease)
{
    char token[32] = "", slot[16] = "";
    if (lease->token)
        snprintf(token, sizeof token, "%llu", (unsigned long long)lease->token);
    if (lease->slot >= 0)
        snprintf(slot, sizeof slot, "%d", lease->slot);
    put(block, "LEASE_ID", lease->id);
    put(block, "LEASE_PROVIDER", lease->provider);
    put(block, "LEASE_URL", lease->url);
    put(block, "LEASE_TOKEN", token);
    put(block, "LEASE_SLOT", slot);
}

char **child_environment(const struct lease *lease, const char *directory, const char *provider)
{
    size_t inherited = 0;
    while (environ && environ[inherited])
        inherited++;
    size_t pointers = (inherited + NAMES_COUNT + 1) * sizeof(char *);
    size_t texts = TEXTS_SIZE + (directory ? strlen(directory) : 0);
    char *memory = calloc(1, pointers + texts);
    if (!memory)
        return NULL;
    struct block block = {(char **)(void *)memory, 0, memory + pointers, texts};
    for (size_t i = 0; i < inherited; i++)
        if (!is_ours(environ[i]))
            block.entries[block.count++] = environ[i];
    if (lease)
        put_lease(&block, lease);
    else
        put(&block, "LEASE_PROVIDER", provider);
    put(&block, "LEASE_DIR", directory);
    put(&block, "LEASE_REACH", lease_reach_name(lease ? lease->reach : LEASE_REACH_NONE));
    return block.entries;
}

/* ---- execution ------------------------------------------------------------------------------- */

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
