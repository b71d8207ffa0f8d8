/* A crowd of agents on one machine: how long they take to know each other, how long a change takes to
 * reach all of them, what they cost while nothing happens and while much does.
 *
 * Without loss they are a mesh, each connected to each, or agents of one relay. With loss each publishes to a switch of the
 * bench's, as to a relay, and hears from it; the switch drops what is to be dropped for each receiver
 * by itself. Questions from agent to agent go directly in both. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/lease.h"
#include "agent/routes.h"
#include "broker/host_clock.h"
#include "broker/host_table.h"
#include "tools/bench/fleet.h"
#include "tools/bench/fleet_switch.h"

#define PROVIDER_SPEC FLEET_PROVIDER "=static:64,own=yes"
#define JOIN_NS       INT64_C(120000000000)
#define HEAR_NS       INT64_C(5000000000) /* what took longer is not heard */
#define LOOK_NS       INT64_C(500000)     /* between two looks at all copies */
#define CHURN_A_S     20

struct view {
    struct host_table table;
    struct book *book;
    bool open, joined;
};

struct crowd {
    const struct fleet_place *place;
    struct fleet_crowd *out;
    uint32_t count;
    struct fleet_agent *agents;
    struct view *views;
    struct fleet_switch *lossy; /* NULL: a mesh, or a relay */
    struct fleet_agent relay;
    struct fleet_switch_ear *ear;
    lease_agent_t *client; /* at the owner, the first agent */
};

/* ---- what the system says ------------------------------------------------------------------------- */

/* Loopback that nobody else uses, where we may: then its counters are ours alone. */
static bool enter_own_network(void)
{
    static bool entered;
    if (entered || unshare(CLONE_NEWNET) < 0)
        return entered;
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    entered = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    return entered;
}

struct traffic {
    double bytes, packets;
};

static struct traffic traffic_now(void)
{
    char line[512];
    struct traffic traffic = {0, 0};
    FILE *file = fopen("/proc/thread-self/net/dev", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, " lo: %lf %lf", &traffic.bytes, &traffic.packets) == 2)
            break;
    if (file)
        fclose(file);
    return traffic;
}

/* Seconds of processor that a process has used. */
static double cpu_of(pid_t pid)
{
    char path[64], text[1024];
    double user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[size] = '\0';
    const char *end = strrchr(text, ')');
    if (end)
        sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lf %lf", &user, &kernel);
    return (user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static double memory_of(pid_t pid, const char *what)
{
    char path[64], line[256], key[32];
    double kb = 0, found = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%31[^:]: %lf kB", key, &kb) == 2 && strcmp(key, what) == 0)
            found = kb;
    if (file)
        fclose(file);
    return found / 1024;
}

/* ---- joining -------------------------------------------------------------------------------------- */

static void copy_view(struct view *view, int dir)
{
    struct book_settings settings;
    struct host_table_options options = {.instance = 1, .epoch = 1, .mode = 0600};
    if (!view->book)
        view->book = malloc(sizeof *view->book);
    if (!view->book || view->open)
        return;
    book_settings_default(&settings);
    book_init(view->book, FLEET_PROVIDER, &settings);
    view->open = host_table_open(&view->table, dir, FLEET_PROVIDER, view->book, &options) == 0;
}

/* It has heard each of the others lately, knows the owner, and has a copy of its book. */
static bool is_joined(struct crowd *crowd, uint32_t index)
{
    struct view *view = &crowd->views[index];
    const char *directory = crowd->agents[index].directory;
    struct routes *routes = NULL;
    if (view->joined || routes_read(directory, &routes) < 0)
        return view->joined;
    uint32_t live = 0;
    for (uint32_t i = 0; i < routes->peer_count; i++)
        live += strcmp(route_peer_state_name(&routes->peers[i], host_now_ns()), "live") == 0;
    const struct route *route = routes_find(routes, FLEET_PROVIDER);
    bool owner = route && strcmp(route->owner, crowd->agents[0].name) == 0;
    view->joined = live == crowd->count - 1 && routes->peer_count == live && owner;
    routes_free(&routes);
    int dir = view->joined ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir >= 0) {
        copy_view(view, dir);
        close(dir);
    }
    view->joined = view->joined && view->open;
    return view->joined;
}

static bool await_joined(struct crowd *crowd, int64_t began)
{
    while (fleet_now_ns() - began < JOIN_NS) {
        uint32_t joined = 0;
        while (joined < crowd->count && is_joined(crowd, joined))
            joined++;
        if (joined == crowd->count) {
            crowd->out->join_s = (double)(fleet_now_ns() - began) / 1e9;
            return true;
        }
        fleet_sleep_ns(50000000);
    }
    crowd->out->join_s = -1;
    return false;
}

static bool start_agents(struct crowd *crowd)
{
    char name[32], publish[160];
    if (crowd->out->settings.relay && !fleet_relay_start(crowd->place, &crowd->relay))
        return false;
    for (uint32_t i = 0; i < crowd->count; i++) {
        const char *through = crowd->lossy       ? fleet_switch_endpoint(crowd->lossy, i)
                              : crowd->relay.pid ? crowd->relay.endpoint
                                                 : NULL;
        snprintf(name, sizeof name, "host-%03u", i);
        if (through) {
            snprintf(publish, sizeof publish, "relay=%s", through);
            through = publish;
        }
        if (!fleet_agent_start(crowd->place, &crowd->agents[i], name, i ? NULL : PROVIDER_SPEC,
                               i ? crowd->agents[0].endpoint : NULL, through))
            return false;
        if (i == 0 && !fleet_agent_await(&crowd->agents[0]))
            return false;
    }
    return true;
}

/* ---- changes -------------------------------------------------------------------------------------- */

/* A copy that has not changed since it was looked at last costs one load. */
static bool has_lease(struct view *view, struct lease_id id, bool wanted)
{
    if (host_table_version(&view->table) == view->table.writes)
        return false;
    if (table_look(&view->table.table, view->book) < 0)
        return false;
    const struct record *record = book_find(view->book, id, UINT32_MAX);
    return (record && record_is_live(record)) == wanted;
}

struct change {
    struct lease_id id;
    bool wanted;
    int64_t began;
};

/* Until every copy has it; the times are those of all agents but the owner. How many had it. */
static uint32_t await_change(struct crowd *crowd, const struct change *change, int64_t *times)
{
    bool *heard = calloc(crowd->count, sizeof *heard);
    uint32_t count = 0;
    while (heard && count < crowd->count - 1 && fleet_now_ns() - change->began < HEAR_NS) {
        for (uint32_t i = 1; i < crowd->count; i++) {
            if (heard[i] || !has_lease(&crowd->views[i], change->id, change->wanted))
                continue;
            heard[i] = true;
            times[count++] = fleet_now_ns() - change->began;
        }
        fleet_sleep_ns(LOOK_NS);
    }
    free(heard);
    return count;
}

static double ms_at(const int64_t *times, uint32_t count, double part)
{
    return count ? (double)times[(uint32_t)((double)(count - 1) * part)] / 1e6 : 0;
}

/* A lease is acquired, or given back, at the owner, again and again. */
static bool measure_changes(struct crowd *crowd, uint32_t changes)
{
    uint32_t each = crowd->count - 1, all = 0;
    int64_t *times = calloc((size_t)changes * each, sizeof *times);
    int64_t *last = calloc(changes, sizeof *last);
    struct lease lease = {0};
    char provider[NAME_SIZE];
    bool ok = times && last;
    for (uint32_t n = 0; ok && n < changes; n++) {
        struct change change = {.wanted = n % 2 == 0, .began = fleet_now_ns()};
        ok = change.wanted ? lease_acquire(crowd->client, FLEET_PROVIDER, NULL, &lease, NULL) == 0
                           : lease_release(crowd->client, lease.id, 0) == 0;
        ok = ok && lease_id_parse(lease.id, provider, &change.id);
        uint32_t heard = ok ? await_change(crowd, &change, times + all) : 0;
        crowd->out->unheard += ok ? each - heard : 0;
        last[n] = heard == each ? times[all + heard - 1] : HEAR_NS;
        all += heard;
        fleet_sleep_ns(100000000 + random() % 200000000);
    }
    if (ok) {
        qsort(times, all, sizeof *times, fleet_by_time);
        qsort(last, changes, sizeof *last, fleet_by_time);
        crowd->out->change_p50_ms = ms_at(times, all, 0.5);
        crowd->out->change_p99_ms = ms_at(times, all, 0.99);
        crowd->out->all_p50_ms = ms_at(last, changes, 0.5);
        crowd->out->all_p99_ms = ms_at(last, changes, 0.99);
    }
    free(times);
    free(last);
    return ok;
}

/* ---- idling and churn ----------------------------------------------------------------------------- */

struct usage {
    double cpu, cpu_most, cpu_owner, cpu_relay, bytes, packets, said;
};

static void churn_for(struct crowd *crowd, int64_t ns)
{
    int64_t end = fleet_now_ns() + ns;
    struct lease lease;
    for (bool held = false; fleet_now_ns() < end; held = !held) {
        if (held)
            lease_release(crowd->client, lease.id, 0);
        else if (lease_acquire(crowd->client, FLEET_PROVIDER, NULL, &lease, NULL) < 0)
            break;
        fleet_sleep_ns(INT64_C(1000000000) / CHURN_A_S);
    }
}

/* Per host, and a second of that time. */
static void measure_usage(struct crowd *crowd, uint32_t seconds, bool churns, struct usage *usage)
{
    double *before = calloc(crowd->count, sizeof *before);
    memset(usage, 0, sizeof *usage);
    if (!before)
        return;
    for (uint32_t i = 0; i < crowd->count; i++)
        before[i] = cpu_of(crowd->agents[i].pid);
    double relay_before = crowd->relay.pid ? cpu_of(crowd->relay.pid) : 0;
    fleet_switch_heard(crowd->ear);
    struct traffic from = traffic_now();
    int64_t began = fleet_now_ns();
    if (churns)
        churn_for(crowd, (int64_t)seconds * 1000000000);
    else
        fleet_sleep_ns((int64_t)seconds * 1000000000);
    double span = (double)(fleet_now_ns() - began) / 1e9;
    struct traffic to = traffic_now();
    usage->said = fleet_switch_heard(crowd->ear) / span;
    for (uint32_t i = 0; i < crowd->count; i++) {
        double percent = (cpu_of(crowd->agents[i].pid) - before[i]) / span * 100;
        usage->cpu += percent / crowd->count;
        usage->cpu_most = percent > usage->cpu_most ? percent : usage->cpu_most;
        usage->cpu_owner = i == 0 ? percent : usage->cpu_owner;
    }
    if (crowd->relay.pid)
        usage->cpu_relay = (cpu_of(crowd->relay.pid) - relay_before) / span * 100;
    /* loopback counts each once as sent and once as received, and this is one of the two */
    usage->bytes = (to.bytes - from.bytes) / span / crowd->count;
    usage->packets = (to.packets - from.packets) / span / crowd->count;
    free(before);
}

static void measure_cost(struct crowd *crowd)
{
    struct fleet_crowd *out = crowd->out;
    struct usage idle, churn;
    measure_usage(crowd, out->settings.idle_s, false, &idle);
    measure_usage(crowd, out->settings.churn_s, true, &churn);
    out->idle_cpu = idle.cpu;
    out->idle_cpu_most = idle.cpu_most;
    out->idle_cpu_owner = idle.cpu_owner;
    out->relay_idle_cpu = idle.cpu_relay;
    out->relay_churn_cpu = churn.cpu_relay;
    out->idle_bytes = idle.bytes;
    out->idle_packets = idle.packets;
    out->idle_said = idle.said;
    out->churn_cpu = churn.cpu;
    out->churn_cpu_owner = churn.cpu_owner;
    out->churn_bytes = churn.bytes;
    out->churn_packets = churn.packets;
    out->churn_said_owner = churn.said;
    for (uint32_t i = 0; i < crowd->count; i++) {
        double rss = memory_of(crowd->agents[i].pid, "Rss");
        out->rss_mb += rss / crowd->count;
        out->pss_mb += memory_of(crowd->agents[i].pid, "Pss") / crowd->count;
        out->rss_mb_most = rss > out->rss_mb_most ? rss : out->rss_mb_most;
    }
}

/* ---- the whole ------------------------------------------------------------------------------------ */

static bool open_client(struct crowd *crowd)
{
    char error[512] = "";
    struct lease_options options = {.size = sizeof options,
                                    .directory = crowd->agents[0].directory,
                                    .host = crowd->agents[0].name,
                                    .label = "bench",
                                    .flags = LEASE_OPEN_CLIENT};
    if (lease_agent_open(&options, &crowd->client, error, sizeof error) == 0)
        return true;
    fprintf(stderr, "bench: %s\n", error);
    return false;
}

static bool run(struct crowd *crowd)
{
    struct fleet_crowd *out = crowd->out;
    if (out->settings.loss_percent > 0 &&
        !(crowd->lossy = fleet_switch_open(crowd->count, out->settings.loss_percent)))
        return false;
    int64_t began = fleet_now_ns();
    if (!start_agents(crowd) || !await_joined(crowd, began) || !open_client(crowd))
        return false;
    for (uint32_t i = 0; i < crowd->count; i++)
        out->join_cpu_s += cpu_of(crowd->agents[i].pid) / crowd->count;
    const char *heard_at = crowd->lossy       ? fleet_switch_heard_at(crowd->lossy)
                           : crowd->relay.pid ? crowd->relay.publish
                                              : crowd->agents[0].publish;
    crowd->ear = fleet_switch_listen(heard_at, crowd->agents[0].name, FLEET_PROVIDER);
    fleet_sleep_ns(INT64_C(4000000000)); /* while peers come in, less is told */
    return measure_changes(crowd, out->settings.changes) && (measure_cost(crowd), true);
}

static void end(struct crowd *crowd)
{
    lease_agent_close(&crowd->client);
    fleet_switch_deafen(&crowd->ear);
    fleet_agent_end(crowd->agents, crowd->count);
    fleet_agent_end(&crowd->relay, 1);
    fleet_switch_close(&crowd->lossy);
    for (uint32_t i = 0; i < crowd->count; i++) {
        if (crowd->views[i].open)
            host_table_close(&crowd->views[i].table);
        free(crowd->views[i].book);
    }
    free(crowd->views);
    free(crowd->agents);
}

static void forget_directories(const struct crowd *crowd)
{
    char command[PATH_MAX + 32];
    snprintf(command, sizeof command, "rm -rf '%s'/host-*", crowd->place->directory);
    if (system(command) != 0)
        fprintf(stderr, "bench: directories of agents are left\n");
}

/* In a process of its own, which alone is in the network that it makes. */
void fleet_crowd_run(const struct fleet_place *place, const struct fleet_crowd_settings *settings,
                     struct fleet_crowd *out)
{
    int ends[2];
    *out = (struct fleet_crowd){.settings = *settings, .join_s = -1};
    if (pipe(ends) < 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        out->own_network = enter_own_network();
        struct crowd crowd = {.place = place, .out = out, .count = settings->agents};
        crowd.agents = calloc(crowd.count, sizeof *crowd.agents);
        crowd.views = calloc(crowd.count, sizeof *crowd.views);
        out->ok = crowd.agents && crowd.views && run(&crowd);
        out->load = fleet_load();
        end(&crowd);
        forget_directories(&crowd);
        _exit(write(ends[1], out, sizeof *out) == sizeof *out ? 0 : 70);
    }
    close(ends[1]);
    struct fleet_crowd told;
    if (read(ends[0], &told, sizeof told) == sizeof told)
        *out = told;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
}
