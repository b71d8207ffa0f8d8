/* bench_fleet: see fleet.sh, which builds and starts what it needs. */
#define _GNU_SOURCE

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/bench/fleet.h"

struct options {
    struct fleet_settings ask;
    uint32_t crowds[FLEET_CROWDS_MAX], crowd_count, changes, seconds;
    int loss; /* percent; negative: none and five */
    bool json, asks, relay;
    const char *directory;
};

/* ---- the place -------------------------------------------------------------------------------- */

static bool sibling(const char *name, char *path)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    int used = snprintf(path, PATH_MAX, "%s/%s", self, name);
    return used > 0 && used < PATH_MAX && access(path, X_OK) == 0;
}

static bool make_place(struct fleet_place *place, const struct options *options)
{
    /* Memory, as /run is on a host. */
    const char *parent = options->directory ? options->directory : "/dev/shm";
    if (!options->directory && access(parent, W_OK) < 0)
        parent = "/tmp";
    snprintf(place->directory, sizeof place->directory, "%.1000s/fleet-XXXXXX", parent);
    if (!mkdtemp(place->directory)) {
        fprintf(stderr, "bench: %s: %s\n", parent, strerror(errno));
        return false;
    }
    if (sibling("lease-agent", place->lease_agent))
        return true;
    fprintf(stderr, "bench: needs lease-agent beside itself\n");
    return false;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

/* Each agent has a descriptor for every other one, and more. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- the runs --------------------------------------------------------------------------------- */

static uint32_t run_crowds(const struct fleet_place *place, const struct options *options,
                           struct fleet_crowd *crowds)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < options->crowd_count; i++)
        for (uint32_t lossy = 0; lossy < 2; lossy++) {
            struct fleet_crowd_settings settings = {.agents = options->crowds[i],
                                                    .loss_percent = lossy * 5,
                                                    .changes = options->changes,
                                                    .idle_s = options->seconds,
                                                    .churn_s = options->seconds,
                                                    .relay = options->relay};
            if ((options->loss >= 0 || options->relay) && lossy)
                continue;
            if (options->loss >= 0 && !options->relay)
                settings.loss_percent = (uint32_t)options->loss;
            fprintf(stderr, "bench: %u agents, %u%% lost%s ...\n", settings.agents,
                    settings.loss_percent, settings.relay ? ", by a relay" : "");
            fleet_crowd_run(place, &settings, &crowds[count++]);
        }
    return count;
}

static bool all_ok(const struct fleet_row *rows, uint32_t row_count,
                   const struct fleet_crowd *crowds, uint32_t crowd_count)
{
    bool ok = true;
    for (uint32_t i = 0; i < row_count; i++)
        ok = ok && rows[i].paced.count > 0 && rows[i].flat_out.count > 0;
    for (uint32_t i = 0; i < crowd_count; i++)
        ok = ok && crowds[i].ok;
    return ok;
}

static bool run_all(const struct fleet_place *place, const struct options *options)
{
    static struct fleet_row rows[FLEET_WAYS_MAX];
    static struct fleet_crowd crowds[2 * FLEET_CROWDS_MAX];
    double before = fleet_load();
    uint32_t row_count = options->asks ? fleet_ask_all(place, &options->ask, rows) : 0;
    double after = fleet_load();
    if (row_count && !options->json) {
        printf("load of the machine: %.1f before, %.1f after, %ld cores\n", before, after,
               sysconf(_SC_NPROCESSORS_ONLN));
        fleet_print_ways(&options->ask, rows, row_count);
        fflush(stdout);
    }
    uint32_t crowd_count = run_crowds(place, options, crowds);
    if (!options->json)
        fleet_print_crowds(crowds, crowd_count);
    bool ok = all_ok(rows, row_count, crowds, crowd_count);
    if (!options->json)
        return ok;
    json_t *root = json_pack(
        "{s:i,s:s,s:I,s:f,s:f,s:o,s:o}", "schema", 1, "version", LEASEHOLD_VERSION, "cores",
        (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "load_before", before, "load_after", after,
        "ask", fleet_ways_json(rows, row_count), "crowds", fleet_crowds_json(crowds, crowd_count));
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(root);
    return ok;
}

/* ---- the options ------------------------------------------------------------------------------ */

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: bench_fleet [--quick] [--paced N] [--flat-out N] [--rate N] [--only TEXT]\n"
        "                   [--no-ask] [--crowds N,N,...|none] [--loss PERCENT] [--relay]\n"
        "                   [--changes N] [--seconds N] [--dir DIR] [--redis HOST:PORT]\n"
        "                   [--etcd HOST:PORT] [--json]\n"
        "\n"
        "What it costs to ask an owner on another host, and how a crowd of agents joins, hears\n"
        "of changes and idles.\n"
        "\n"
        "  --quick        few of everything, three agents: does it still run?\n"
        "  --paced N      questions at a steady rate (2000), --flat-out N as fast as can be "
        "(20000)\n"
        "  --rate N       questions a second and way (100)\n"
        "  --only TEXT    beside bare REQ/REP only the ways with TEXT in their name or operation\n"
        "  --no-ask       crowds alone\n"
        "  --crowds LIST  of how many agents (2,10,50,100,200)\n"
        "  --loss PERCENT of what is published; default: each crowd without and with 5\n"
        "  --relay        between the agents instead of a mesh; nothing is lost\n"
        "  --changes N    that a crowd is to hear of (50)\n"
        "  --seconds N    of idling, and of churn (10)\n"
        "  --dir DIR      where books lie (/dev/shm, else /tmp)\n"
        "  --redis, --etcd HOST:PORT  of running servers; without them they are left out\n"
        "  --json         instead of the tables\n");
}

static bool read_number(const char *text, uint32_t least, uint32_t most, uint32_t *number)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < least || value > most)
        return false;
    *number = (uint32_t)value;
    return true;
}

static bool read_crowds(char *text, struct options *options)
{
    options->crowd_count = 0;
    if (strcmp(text, "none") == 0)
        return true;
    for (char *save, *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save))
        if (options->crowd_count == FLEET_CROWDS_MAX ||
            !read_number(word, 2, 500, &options->crowds[options->crowd_count++]))
            return false;
    return options->crowd_count > 0;
}

static void be_quick(struct options *options)
{
    options->ask.paced = options->ask.flat_out = 50;
    options->crowds[0] = 3;
    options->crowd_count = 1;
    options->changes = 4;
    options->seconds = 1;
}

static bool read_options(int argc, char **argv, struct options *options, struct fleet_place *place)
{
    static const struct option known[] = {
        {"quick", no_argument, NULL, 'q'},
        {"paced", required_argument, NULL, 'p'},
        {"flat-out", required_argument, NULL, 'f'},
        {"rate", required_argument, NULL, 'r'},
        {"only", required_argument, NULL, 'o'},
        {"no-ask", no_argument, NULL, 'n'},
        {"crowds", required_argument, NULL, 'c'},
        {"loss", required_argument, NULL, 'l'},
        {"changes", required_argument, NULL, 'g'},
        {"seconds", required_argument, NULL, 's'},
        {"dir", required_argument, NULL, 'd'},
        {"redis", required_argument, NULL, 'R'},
        {"etcd", required_argument, NULL, 'E'},
        {"json", no_argument, NULL, 'j'},
        {"relay", no_argument, NULL, 'y'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter;
    uint32_t loss = 0;
    bool ok = true;
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 'q': be_quick(options); break;
        case 'p': ok = read_number(optarg, 1, FLEET_TIMES_MAX, &options->ask.paced) && ok; break;
        case 'f': ok = read_number(optarg, 1, FLEET_TIMES_MAX, &options->ask.flat_out) && ok; break;
        case 'r': ok = read_number(optarg, 1, 10000, &options->ask.a_second) && ok; break;
        case 'o': options->ask.only = optarg; break;
        case 'n': options->asks = false; break;
        case 'c': ok = read_crowds(optarg, options) && ok; break;
        case 'l':
            ok = read_number(optarg, 0, 90, &loss) && ok;
            options->loss = (int)loss;
            break;
        case 'g': ok = read_number(optarg, 1, 10000, &options->changes) && ok; break;
        case 's': ok = read_number(optarg, 1, 3600, &options->seconds) && ok; break;
        case 'd': options->directory = optarg; break;
        case 'R': place->redis = optarg; break;
        case 'E': place->etcd = optarg; break;
        case 'j': options->json = true; break;
        case 'y': options->relay = true; break;
        case 'h': usage(stdout); exit(0);
        default: ok = false; break;
        }
    }
    return ok && optind == argc;
}

int main(int argc, char **argv)
{
    static struct fleet_place place;
    struct options options = {.ask = {.paced = 2000, .flat_out = 20000, .a_second = 100},
                              .crowds = {2, 10, 50, 100, 200},
                              .crowd_count = 5,
                              .changes = 50,
                              .seconds = 10,
                              .loss = -1,
                              .asks = true};
    if (!read_options(argc, argv, &options, &place)) {
        usage(stderr);
        return 64;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_limits();
    bool ok = make_place(&place, &options) && run_all(&place, &options);
    nftw(place.directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return ok ? 0 : 70;
}
