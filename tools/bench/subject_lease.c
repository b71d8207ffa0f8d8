/* Leasehold itself. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/lease.h"
#include "broker/host_table.h"
#include "tools/bench/bench.h"

#define OPEN_TRIES 100

static lease_agent_t *open_agent(const char *directory, unsigned flags)
{
    char error[256] = "";
    const char *providers[] = {"bench=" BENCH_SPEC};
    struct lease_options options = {.size = sizeof options,
                                    .directory = directory,
                                    .providers = providers,
                                    .provider_count = 1,
                                    .flags = flags};
    lease_agent_t *agent = NULL;
    if (lease_agent_open(&options, &agent, error, sizeof error) < 0)
        fprintf(stderr, "bench: %s\n", error);
    return agent;
}

/* Where its first lease reaches; NONE where a book that many are at was never had. */
static enum lease_reach reach_of(lease_agent_t *agent)
{
    struct lease lease = {.reach = LEASE_REACH_NONE};
    for (int i = 0; i < OPEN_TRIES && lease.reach == LEASE_REACH_NONE; i++)
        if (lease_acquire(agent, "bench", NULL, &lease, NULL) == 0)
            lease_release(agent, lease.id, 0);
    return lease.reach;
}

/* A host tier that fell back to the process tier would be measured as something else. */
static lease_agent_t *open_host_tier(const char *directory)
{
    lease_agent_t *agent = open_agent(directory, LEASE_OPEN_CLIENT);
    if (agent && reach_of(agent) != LEASE_REACH_HOST) {
        fprintf(stderr, "bench: no host tier in %s: %s\n", directory, lease_agent_warning(agent));
        lease_agent_close(&agent);
    }
    return agent;
}

static void *open_alone(const struct bench_place *place)
{
    return open_host_tier(place->alone);
}

static void *open_beside_agent(const struct bench_place *place)
{
    return open_host_tier(place->agent);
}

static void *open_process_tier(const struct bench_place *place)
{
    (void)place;
    return open_agent(NULL, LEASE_OPEN_PROCESS);
}

static void close_agent(void *state)
{
    lease_agent_t *agent = state;
    lease_agent_close(&agent);
}

static bool pair_once(void *state)
{
    struct lease lease;
    return lease_acquire(state, "bench", NULL, &lease, NULL) == 0 &&
           lease_release(state, lease.id, 0) == 0;
}

static bool triple_once(void *state)
{
    struct lease lease;
    struct lease_verdict verdict;
    if (lease_acquire(state, "bench", NULL, &lease, NULL) < 0)
        return false;
    bool go = lease_verify(state, lease.id, NULL, NULL, &verdict) == 0;
    return lease_release(state, lease.id, 0) == 0 && go;
}

static bool fleet_once(void *state)
{
    struct lease_fleet *fleet = NULL;
    bool ok = lease_fleet(state, &fleet) == 0 && fleet->provider_count == 1;
    lease_fleet_free(&fleet);
    return ok;
}

const struct subject subject_pair = {.name = "leasehold",
                                     .what = "acquire+release",
                                     .processes_max = BENCH_PROCESSES_MAX,
                                     .open = open_alone,
                                     .once = pair_once,
                                     .close = close_agent};
const struct subject subject_triple = {.name = "leasehold",
                                       .what = "acquire+verify+release",
                                       .processes_max = BENCH_PROCESSES_MAX,
                                       .open = open_alone,
                                       .once = triple_once,
                                       .close = close_agent};
const struct subject subject_pair_agent = {.name = "leasehold, agent runs",
                                           .what = "acquire+release",
                                           .processes_max = BENCH_PROCESSES_MAX,
                                           .needs_agent = true,
                                           .open = open_beside_agent,
                                           .once = pair_once,
                                           .close = close_agent};
const struct subject subject_pair_process = {.name = "leasehold, process tier",
                                             .what = "acquire+release",
                                             .processes_max = 1,
                                             .open = open_process_tier,
                                             .once = pair_once,
                                             .close = close_agent};
const struct subject subject_fleet = {.name = "leasehold, no lock",
                                      .what = "lease_fleet",
                                      .processes_max = BENCH_PROCESSES_MAX,
                                      .with_writer = true,
                                      .open = open_alone,
                                      .once = fleet_once,
                                      .close = close_agent};

/* ---- the look at one book that is below lease_fleet ------------------------------------------ */

struct looker {
    struct host_table table;
    struct book book;
    struct broker broker;
    int32_t available;
};

static void *looker_open(const struct bench_place *place)
{
    struct looker *looker = calloc(1, sizeof *looker);
    int dir = open(place->alone, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct book_settings settings;
    struct host_table_options options = {.instance = 1, .epoch = 1, .mode = 0600, .create = true};
    int error = looker ? 0 : LEASE_ENOMEM;
    if (looker) {
        book_settings_default(&settings);
        settings.slots = BENCH_SLOTS;
        settings.probed = 0;
        book_init(&looker->book, "bench", &settings);
        error = host_table_open(&looker->table, dir, "bench", &looker->book, &options);
    }
    close(dir);
    if (error == 0)
        return looker;
    fprintf(stderr, "bench: %s\n", lease_strerror(error));
    free(looker);
    return NULL;
}

/* Reads the book and works out what a new acquire would be granted. */
static bool looker_once(void *state)
{
    struct looker *looker = state;
    struct tally tally;
    if (table_look(&looker->table.table, &looker->book) < 0)
        return false;
    admission_tally(&looker->book, bench_now_ns(), &tally);
    looker->available = tally.available;
    return tally.available >= 0;
}

static void looker_close(void *state)
{
    struct looker *looker = state;
    host_table_close(&looker->table);
    free(looker);
}

const struct subject subject_look = {.name = "leasehold, no lock",
                                     .what = "look at one book",
                                     .processes_max = BENCH_PROCESSES_MAX,
                                     .with_writer = true,
                                     .open = looker_open,
                                     .once = looker_once,
                                     .close = looker_close};
