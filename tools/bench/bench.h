/* The host benchmark: what a lease costs on one host, beside other ways to guard a slot.
 *
 * A subject is one way to do it; a gang of processes repeats its operation for a while and measures
 * each. Rounds go through all subjects in turn, so that what disturbs the machine disturbs all. */
#ifndef TOOLS_BENCH_BENCH_H
#define TOOLS_BENCH_BENCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_PROCESSES_MAX 16
#define BENCH_SLOTS         64 /* of the one provider: nobody is ever refused */
#define BENCH_SPEC          "static:64,own=yes"
#define BENCH_ROUNDS_MAX    64
#define BENCH_SUBJECTS_MAX  16
#define BENCH_SPAWNS_MAX    1000

/* ---- where ---------------------------------------------------------------------------------- */

struct bench_place {
    char directory[PATH_MAX]; /* holds all that follows; removed at the end */
    char alone[PATH_MAX];     /* a runtime directory for which nobody speaks */
    char agent[PATH_MAX];     /* one where lease-agent runs */
    const char *redis;        /* its socket; NULL: no Redis is measured */
    char lease[PATH_MAX];     /* the programs */
    char lease_agent[PATH_MAX];
};

/* ---- subjects ------------------------------------------------------------------------------- */

struct subject {
    const char *name;
    const char *what; /* the operation */
    uint32_t processes_max;
    bool with_writer; /* one more process changes the book a thousand times a second meanwhile */
    bool needs_agent, needs_redis;
    /* In the measuring process. open returns its state, or NULL with a line on stderr. */
    void *(*open)(const struct bench_place *place);
    bool (*once)(void *state); /* false: it failed, and is not counted */
    void (*close)(void *state);
};

extern const struct subject subject_pair, subject_triple, subject_pair_agent, subject_pair_process;
extern const struct subject subject_look, subject_fleet;
extern const struct subject subject_flock;
extern const struct subject subject_sqlite;
extern const struct subject subject_redis, subject_redis_script;

/* ---- measuring ------------------------------------------------------------------------------ */

int64_t bench_now_ns(void);

struct measured {
    double p50_ns, p99_ns, ops; /* operations a second, of all processes together */
    uint64_t count, failed;
};

/* `processes` of them for `ms`, after a warm-up. False where one could not begin. */
bool gang_run(const struct subject *subject, const struct bench_place *place, uint32_t processes,
              uint32_t ms, struct measured *measured);

/* Latencies in classes that are at most 0.8 % wide. */
#define HISTOGRAM_SIZE 4480
struct histogram {
    uint32_t counts[HISTOGRAM_SIZE];
};

void histogram_add(struct histogram *histogram, int64_t ns);
double histogram_quantile(const struct histogram *gang, uint32_t count, double quantile);

double bench_median(double *values, uint32_t count); /* sorts them */

/* ---- running a command ---------------------------------------------------------------------- */

struct spawned {
    double plain_ms, alone_ms,
        agent_ms;   /* medians: `true`, under `lease run`, the same with agent */
    uint32_t count; /* of each */
    bool ok, has_agent;
};

void spawn_measure(const struct bench_place *place, bool agent, uint32_t count,
                   struct spawned *spawned);

/* A program of ours in the background; its pid, or -1 with a line on stderr. */
pid_t spawn_agent(const struct bench_place *place);
void spawn_end(pid_t pid);

/* ---- telling -------------------------------------------------------------------------------- */

struct facts {
    char cpu[128], kernel[128], file_system[32];
    long cores;
};

void facts_find(const char *directory, struct facts *facts);

struct row {
    const struct subject *subject;
    uint32_t processes;
    struct measured median; /* of each number over the rounds; failed is the sum */
    double p50_least_ns, p50_most_ns;
};

struct report {
    struct facts facts;
    const char *directory;
    uint32_t rounds, ms;
    const struct row *rows;
    uint32_t row_count;
    const struct spawned *spawned;
};

void report_table(const struct report *report);
bool report_json(const struct report *report); /* to stdout */

#endif
