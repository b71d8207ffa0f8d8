#define _GNU_SOURCE

#include "agent/agent.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/fleet_config.h"
#include "agent/group.h"
#include "agent/keeper.h"
#include "agent/remote.h"
#include "broker/host_fork.h"
#include "broker/host_guard.h"

/* ---- opening --------------------------------------------------------------------------------- */

static void set_names(struct lease_agent *agent, const struct lease_options *options)
{
    char machine[256] = "localhost", program[64] = "";
    if (options->host) {
        text_copy(agent->host, sizeof agent->host, options->host);
    } else {
        if (gethostname(machine, sizeof machine - 1) < 0 || machine[0] == '\0')
            strcpy(machine, "localhost");
        machine[strcspn(machine, ".")] = '\0';
        text_copy(agent->host, sizeof agent->host, machine);
    }
    FILE *comm = options->label ? NULL : fopen("/proc/self/comm", "re");
    if (comm) {
        if (fgets(program, sizeof program, comm))
            program[strcspn(program, "\n")] = '\0';
        fclose(comm);
    }
    text_copy(agent->label, sizeof agent->label, options->label ? options->label : program);
}

static int declare_all(struct lease_agent *agent, const struct lease_options *options, char *error,
                       size_t error_size)
{
    for (size_t i = 0; i < options->provider_count; i++) {
        char why[SPEC_ERROR_SIZE] = "";
        int result = provider_declare(agent, options->providers[i], false, why);
        if (result < 0) {
            snprintf(error, error_size, "%s", why[0] ? why : lease_error_text(result));
            return result;
        }
    }
    return 0;
}

/* Callers that were built with an earlier header have fewer options. */
static int take_options(const struct lease_options *given, struct lease_options *options)
{
    static const struct lease_options none = {.size = sizeof none};
    given = given ? given : &none;
    if (given->size < offsetof(struct lease_options, peers))
        return LEASE_EINVAL;
    memset(options, 0, sizeof *options);
    memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    return 0;
}

static int take_fleet(struct lease_agent *agent, const struct lease_options *options, char *error,
                      size_t error_size)
{
    if (options->flags & LEASE_OPEN_CLIENT)
        return 0; /* never speaks */
    struct fleet_config *fleet = calloc(1, sizeof *fleet);
    if (!fleet)
        return LEASE_ENOMEM;
    int result = fleet_config_take(options, fleet, error, error_size);
    if (result == 0 && fleet_config_is_on(fleet))
        atomic_store(&agent->fleet, fleet);
    else
        free(fleet);
    return result;
}

static void find_directory(struct lease_agent *agent, const struct lease_options *options)
{
    if (agent->flags & LEASE_OPEN_PROCESS)
        return;
    host_dir_remember(options->directory, &agent->places);
    int error = host_dir_open_of(&agent->places.places, &agent->directory);
    agent->has_directory = error == 0;
    if (error < 0)
        snprintf(agent->warning, sizeof agent->warning, "%s, leases are known to this process only",
                 agent->directory.why[0] ? agent->directory.why : lease_error_text(error));
}

/* Whoever was told no name bears that of its host's speaker: other hosts know this one by it. */
static void take_name(struct lease_agent *agent, const struct lease_options *options)
{
    if (options->host || !agent->has_directory || (agent->flags & LEASE_OPEN_DAEMON))
        return;
    struct effective *effective = malloc(sizeof *effective);
    if (effective && effective_read(agent->directory.path, effective) == 0 &&
        name_is_valid(effective->name))
        memcpy(agent->host, effective->name, sizeof agent->host);
    free(effective);
}

static struct lease_agent *new_agent(const struct lease_options *options)
{
    struct lease_agent *agent = calloc(1, sizeof *agent);
    if (!agent)
        return NULL;
    agent->held = calloc(AGENT_HELD_MAX, sizeof *agent->held);
    if (!agent->held) {
        free(agent);
        return NULL;
    }
    host_fork_watch();
    agent->generation = host_fork_generation();
    agent->flags = options->flags;
    host_process_self(&agent->self);
    pthread_mutex_init(&agent->providers_mutex, NULL);
    pthread_mutex_init(&agent->directory_mutex, NULL);
    pthread_mutex_init(&agent->groups_mutex, NULL);
    pthread_mutex_init(&agent->held_mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&agent->held_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    agent->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return agent;
}

static void free_agent(struct lease_agent *agent)
{
    uint32_t count = atomic_load(&agent->provider_count);
    for (uint32_t i = 0; i < count; i++)
        provider_free(agent->providers[i]);
    group_free_all(agent);
    remote_close(agent);
    if (agent->has_directory)
        host_dir_close(&agent->directory);
    if (agent->event_fd >= 0)
        close(agent->event_fd);
    pthread_cond_destroy(&agent->held_changed);
    pthread_mutex_destroy(&agent->held_mutex);
    pthread_mutex_destroy(&agent->providers_mutex);
    pthread_mutex_destroy(&agent->directory_mutex);
    pthread_mutex_destroy(&agent->groups_mutex);
    free(agent->held);
    free(atomic_load(&agent->fleet));
    free(agent);
}

int lease_agent_open(const struct lease_options *given, lease_agent_t **agent, char *error,
                     size_t error_size)
{
    struct lease_options taken, *options = &taken;
    char unwanted[1];
    if (!error || error_size == 0) {
        error = unwanted;
        error_size = sizeof unwanted;
    }
    error[0] = '\0';
    if (!agent || take_options(given, options) < 0)
        return LEASE_EINVAL;
    if (options->host && !name_is_valid(options->host)) {
        snprintf(error, error_size, "a host's name is 1 to 63 characters of A-Z a-z 0-9 . _ -");
        return LEASE_EINVAL;
    }
    struct lease_agent *self = new_agent(options);
    if (!self)
        return LEASE_ENOMEM;
    set_names(self, options);
    int result = self->flags & LEASE_OPEN_GUARD ? host_guard_install() : 0;
    if (result == 0)
        result = remote_open(self, options->peers, options->peer_count, error, error_size);
    if (result == 0)
        result = declare_all(self, options, error, error_size);
    if (result == 0)
        result = take_fleet(self, options, error, error_size);
    if (result == 0)
        find_directory(self, options);
    if (result == 0)
        take_name(self, options);
    if (result == 0 && self->has_directory && !(self->flags & LEASE_OPEN_CLIENT)) {
        result = speaker_start(self, error, error_size);
        if (result == LEASE_EBUSY && !(self->flags & LEASE_OPEN_DAEMON))
            result = 0; /* somebody speaks already: we are its client */
    }
    if (result < 0) {
        free_agent(self);
        return result;
    }
    *agent = self;
    return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

static bool held_at(struct lease_agent *agent, uint32_t index, struct held *held)
{
    pthread_mutex_lock(&agent->held_mutex);
    bool there = index < agent->held_used;
    if (there)
        *held = agent->held[index];
    pthread_mutex_unlock(&agent->held_mutex);
    return there;
}

static void release_all(struct lease_agent *agent)
{
    struct held held;
    for (uint32_t i = 0; held_at(agent, i, &held); i++) {
        if (held.id.counter == 0 || held.lost || held.untold ||
            (held.flags & (LEASE_NO_HOLDER | LEASE_BY_PID)))
            continue;
        char id[LEASE_ID_SIZE];
        lease_id_format(held.provider->name, held.id, id);
        lease_release(agent, id, 0);
    }
}

void lease_agent_close(lease_agent_t **self)
{
    if (!self || !*self)
        return;
    struct lease_agent *agent = *self;
    *self = NULL;
    if (agent_check(agent) < 0)
        return; /* a forked child: its parent's threads and locks are not ours to touch */
    release_all(agent);
    atomic_store(&agent->closing, true);
    keeper_stop(agent);
    keeper_tell_all(agent);
    speaker_stop(agent);
    free_agent(agent);
}

/* ---- small questions ------------------------------------------------------------------------- */

enum lease_reach lease_agent_reach(const lease_agent_t *agent)
{
    if (agent_check(agent) < 0)
        return LEASE_REACH_NONE;
    if (remote_is_joined((struct lease_agent *)(uintptr_t)agent))
        return LEASE_REACH_FLEET;
    return agent->has_directory ? LEASE_REACH_HOST : LEASE_REACH_PROCESS;
}

const char *lease_agent_directory(const lease_agent_t *agent)
{
    return agent_check(agent) == 0 && agent->has_directory ? agent->directory.path : "";
}

const char *lease_agent_warning(const lease_agent_t *agent)
{
    if (agent_check(agent) < 0)
        return lease_error_text(LEASE_EFORK);
    uint32_t count = atomic_load(&agent->provider_count);
    for (uint32_t i = 0; i < count && agent->warning[0] == '\0'; i++)
        if (agent->providers[i]->warning[0])
            return agent->providers[i]->warning;
    if (agent->warning[0] == '\0' && atomic_load(&agent->is_full))
        return "the fleet has more providers than are followed here, the rest is not shown";
    return agent->warning;
}

const char *lease_strerror(int error)
{
    return lease_error_text(error);
}

const char *lease_reach_name(enum lease_reach reach)
{
    switch (reach) {
    case LEASE_REACH_NONE: return "none";
    case LEASE_REACH_PROCESS: return "process";
    case LEASE_REACH_HOST: return "host";
    case LEASE_REACH_FLEET: return "fleet";
    }
    return "none";
}

const char *lease_basis_name(enum lease_basis basis)
{
    switch (basis) {
    case LEASE_BASIS_PROCESS: return "process";
    case LEASE_BASIS_HOST: return "host";
    case LEASE_BASIS_READING: return "reading";
    case LEASE_BASIS_OWNER: return "owner";
    }
    return "process";
}
