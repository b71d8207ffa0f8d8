/* The fleet benchmark: what it costs to ask an owner on another host, beside other ways to ask somebody;
 * and how a crowd of agents on one machine joins, hears of a change, and idles.
 *
 * Everything is a real process: lease-agent, a bare libzmq answerer, redis-server, etcd. Nothing here
 * asserts a time. */
#ifndef TOOLS_BENCH_FLEET_H
#define TOOLS_BENCH_FLEET_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#define FLEET_WAYS_MAX   16
#define FLEET_CROWDS_MAX 16
#define FLEET_TIMES_MAX  1000000
#define FLEET_PROVIDER   "bench"

/* ---- the place -------------------------------------------------------------------------------- */

struct fleet_place {
    char directory[PATH_MAX]; /* removed at the end; each agent has one in it */
    char lease_agent[PATH_MAX];
    const char *redis, *etcd; /* HOST:PORT; NULL: left out */
};

int64_t fleet_now_ns(void);
void fleet_sleep_ns(int64_t ns);
int fleet_by_time(const void *a, const void *b); /* for qsort, int64_t */
double fleet_load(void);                         /* runnable, over the last minute */

/* ---- agents ----------------------------------------------------------------------------------- */

struct fleet_agent {
    pid_t pid;
    char name[32], directory[PATH_MAX];
    char endpoint[128], publish[128]; /* once it was seen to be bound */
};

/* Starts lease-agent in a directory of its own. provider (NAME=SPEC), peer and publish may be NULL. False
 * with a line on stderr. */
bool fleet_agent_start(const struct fleet_place *place, struct fleet_agent *agent, const char *name,
                       const char *provider, const char *peer, const char *publish);
bool fleet_agent_await(struct fleet_agent *agent); /* until it is bound */
/* A relay, once it takes in: endpoint is where agents publish to, publish where they are heard. */
bool fleet_relay_start(const struct fleet_place *place, struct fleet_agent *relay);
void fleet_agent_end(struct fleet_agent *agents, uint32_t count);

/* ---- ways to ask ------------------------------------------------------------------------------ */

struct fleet_settings {
    uint32_t paced, flat_out, a_second; /* questions of each way */
    const char *only;
};

struct fleet_times {
    uint32_t count, failed;
    double p50_us, p99_us, p999_us, a_second;
};

struct fleet_way {
    const char *name, *what;
    bool (*open)(const struct fleet_place *place, void **state); /* false: it is left out */
    int64_t (*once)(void *state); /* nanoseconds of what is measured; negative: it failed */
    void (*close)(void *state);
};

/* The first is what the others are compared with. */
extern const struct fleet_way fleet_way_bare, fleet_way_verify, fleet_way_verify_peer,
    fleet_way_place, fleet_way_redis, fleet_way_etcd;

struct fleet_row {
    const struct fleet_way *way;
    struct fleet_times paced, flat_out;
};

uint32_t fleet_ask_all(const struct fleet_place *place, const struct fleet_settings *settings,
                       struct fleet_row *rows);

/* ---- crowds ----------------------------------------------------------------------------------- */

struct fleet_crowd_settings {
    uint32_t agents, loss_percent, changes, idle_s, churn_s;
    bool relay; /* between them, instead of a mesh */
};

struct fleet_crowd {
    struct fleet_crowd_settings settings;
    bool ok, own_network;
    uint32_t unheard;                    /* agents times changes that were not heard within 5 s */
    double join_s;                       /* until all views are equal; negative: never */
    double change_p50_ms, change_p99_ms; /* of each agent */
    double all_p50_ms, all_p99_ms;       /* of the last one to hear of it */
    double idle_cpu, idle_cpu_most;      /* percent of a core, an agent */
    double idle_cpu_owner, churn_cpu, churn_cpu_owner, join_cpu_s;
    double idle_bytes, churn_bytes; /* a second and host, both ways, as the network counts them */
    double idle_packets, churn_packets; /* the same */
    double idle_said, churn_said_owner; /* messages a second that the owner publishes */
    double relay_idle_cpu, relay_churn_cpu;
    double rss_mb, rss_mb_most; /* an agent */
    double pss_mb;
    double load;
};

void fleet_crowd_run(const struct fleet_place *place, const struct fleet_crowd_settings *settings,
                     struct fleet_crowd *crowd);

/* ---- telling ---------------------------------------------------------------------------------- */

void fleet_print_ways(const struct fleet_settings *settings, const struct fleet_row *rows,
                      uint32_t count);
void fleet_print_crowds(const struct fleet_crowd *crowds, uint32_t count);
json_t *fleet_ways_json(const struct fleet_row *rows, uint32_t count);
json_t *fleet_crowds_json(const struct fleet_crowd *crowds, uint32_t count);

#endif
