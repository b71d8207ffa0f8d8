/* bench_host: see host.sh, which builds and starts what it needs. */
#define _GNU_SOURCE

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/bench/bench.h"

static const struct subject *const subjects[] = {
    &subject_pair,  &subject_triple,       &subject_pair_agent, &subject_pair_process,
    &subject_look,  &subject_fleet,        &subject_flock,      &subject_sqlite,
    &subject_redis, &subject_redis_script,
};
#define SUBJECTS (sizeof subjects / sizeof subjects[0])

static const uint32_t gangs[] = {1, 2, 4, 8, 16};
#define GANGS (sizeof gangs / sizeof gangs[0])

struct settings {
    uint32_t rounds, ms, gangs, spawns;
    const char *directory, *redis, *only;
    bool json;
};

/* ---- the place ------------------------------------------------------------------------------ */

static bool sibling(const char *name, char *path)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    int used = snprintf(path, PATH_MAX, "%s/%s", self, name);
    return used > 0 && used < PATH_MAX && access(path, X_OK) == 0;
}

static int make_place(struct bench_place *place, const struct settings *settings)
{
    /* Memory, as /run is on a host. */
    const char *parent = settings->directory ? settings->directory : "/dev/shm";
    if (!settings->directory && access(parent, W_OK) < 0)
        parent = "/tmp";
    memset(place, 0, sizeof *place);
    place->redis = settings->redis;
    int used = snprintf(place->directory, sizeof place->directory, "%.1000s/bench-XXXXXX", parent);
    if (used < 0 || !mkdtemp(place->directory)) {
        fprintf(stderr, "bench: %s: %s\n", parent, strerror(errno));
        return -1;
    }
    snprintf(place->alone, sizeof place->alone, "%.1100s/alone", place->directory);
    snprintf(place->agent, sizeof place->agent, "%.1100s/agent", place->directory);
    if (mkdir(place->alone, 0700) < 0 || mkdir(place->agent, 0700) < 0 ||
        !sibling("lease", place->lease) || !sibling("lease-agent", place->lease_agent)) {
        fprintf(stderr, "bench: needs lease and lease-agent beside itself\n");
        return -1;
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

static void remove_place(const struct bench_place *place)
{
    nftw(place->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- the rounds ----------------------------------------------------------------------------- */

struct rounds {
    struct row row;
    uint32_t done;
    double p50[BENCH_ROUNDS_MAX], p99[BENCH_ROUNDS_MAX], ops[BENCH_ROUNDS_MAX];
};

static bool is_wanted(const struct subject *subject, const struct settings *settings, bool agent)
{
    return (!subject->needs_agent || agent) && (!subject->needs_redis || settings->redis) &&
           (!settings->only || strstr(subject->name, settings->only) ||
            strstr(subject->what, settings->only));
}

static uint32_t plan(struct rounds *all, const struct settings *settings, bool agent)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < settings->gangs; g++)
        for (uint32_t s = 0; s < SUBJECTS; s++)
            if (gangs[g] <= subjects[s]->processes_max && is_wanted(subjects[s], settings, agent))
                all[count++].row = (struct row){.subject = subjects[s], .processes = gangs[g]};
    return count;
}

static bool run_one(struct rounds *rounds, const struct bench_place *place, uint32_t ms)
{
    struct row *row = &rounds->row;
    struct measured measured;
    if (!gang_run(row->subject, place, row->processes, ms, &measured)) {
        fprintf(stderr, "bench: %s %s failed with %u\n", row->subject->name, row->subject->what,
                row->processes);
        return false;
    }
    rounds->p50[rounds->done] = measured.p50_ns;
    rounds->p99[rounds->done] = measured.p99_ns;
    rounds->ops[rounds->done] = measured.ops;
    rounds->done++;
    row->median.count += measured.count;
    row->median.failed += measured.failed;
    return true;
}

static void sum_up(struct rounds *rounds)
{
    struct row *row = &rounds->row;
    row->median.p50_ns = bench_median(rounds->p50, rounds->done);
    row->median.p99_ns = bench_median(rounds->p99, rounds->done);
    row->median.ops = bench_median(rounds->ops, rounds->done);
    row->p50_least_ns = rounds->p50[0];
    row->p50_most_ns = rounds->p50[rounds->done ? rounds->done - 1 : 0];
}

static bool run_all(const struct bench_place *place, const struct settings *settings, bool agent)
{
    static struct rounds all[GANGS * SUBJECTS];
    static struct row rows[GANGS * SUBJECTS];
    uint32_t count = plan(all, settings, agent);
    bool ok = true;
    for (uint32_t round = 0; round < settings->rounds; round++)
        for (uint32_t i = 0; i < count; i++)
            ok = run_one(&all[i], place, settings->ms) && ok;
    struct spawned spawned = {0};
    if (settings->spawns > 0) {
        spawn_measure(place, agent, settings->spawns, &spawned);
        ok = spawned.ok && ok;
    }
    for (uint32_t i = 0; i < count; i++) {
        sum_up(&all[i]);
        rows[i] = all[i].row;
    }
    struct report report = {.directory = place->directory,
                            .rounds = settings->rounds,
                            .ms = settings->ms,
                            .rows = rows,
                            .row_count = count,
                            .spawned = &spawned};
    facts_find(place->directory, &report.facts);
    if (settings->json)
        return report_json(&report) && ok;
    report_table(&report);
    return ok;
}

/* ---- the options ---------------------------------------------------------------------------- */

static void usage(FILE *out)
{
    fprintf(out, "usage: bench_host [--quick] [--rounds N] [--ms N] [--dir DIR] [--redis SOCKET]\n"
                 "                  [--only TEXT] [--json]\n"
                 "\n"
                 "What a lease costs on this host, beside flock, SQLite and Redis.\n"
                 "\n"
                 "  --quick         one short round with few processes: does it still run?\n"
                 "  --rounds N      through all subjects, interleaved (9)\n"
                 "  --ms N          of each measurement (200)\n"
                 "  --dir DIR       where books and databases lie (/dev/shm, else /tmp)\n"
                 "  --redis SOCKET  of a running redis-server; without it Redis is left out\n"
                 "  --only TEXT     only the subjects with TEXT in their name or operation\n"
                 "  --json          instead of the table\n");
}

static bool read_number(const char *text, uint32_t most, uint32_t *number)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < 1 || value > most)
        return false;
    *number = (uint32_t)value;
    return true;
}

static bool read_options(int argc, char **argv, struct settings *settings)
{
    static const struct option options[] = {
        {"quick", no_argument, NULL, 'q'},
        {"rounds", required_argument, NULL, 'r'},
        {"ms", required_argument, NULL, 'm'},
        {"dir", required_argument, NULL, 'd'},
        {"redis", required_argument, NULL, 's'},
        {"only", required_argument, NULL, 'o'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter;
    bool ok = true;
    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (letter) {
        case 'q':
            settings->rounds = 1;
            settings->ms = 20;
            settings->gangs = 2;
            settings->spawns = 3;
            break;
        case 'r': ok = read_number(optarg, BENCH_ROUNDS_MAX, &settings->rounds) && ok; break;
        case 'm': ok = read_number(optarg, 60000, &settings->ms) && ok; break;
        case 'd': settings->directory = optarg; break;
        case 's': settings->redis = optarg; break;
        case 'o': settings->only = optarg; break;
        case 'j': settings->json = true; break;
        case 'h': usage(stdout); exit(0);
        default: ok = false; break;
        }
    }
    return ok && optind == argc;
}

int main(int argc, char **argv)
{
    struct settings settings = {.rounds = 9, .ms = 200, .gangs = GANGS, .spawns = 100};
    static struct bench_place place;
    if (!read_options(argc, argv, &settings)) {
        usage(stderr);
        return 64;
    }
    if (settings.only)
        settings.spawns = 0;
    if (make_place(&place, &settings) < 0)
        return 70;
    pid_t agent = spawn_agent(&place);
    bool ok = run_all(&place, &settings, agent > 0) && agent > 0;
    spawn_end(agent);
    remove_place(&place);
    return ok ? 0 : 70;
}
