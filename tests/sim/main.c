/* The simulator: a seed, so many steps, and what came of it. */
#include <stdlib.h>
#include <time.h>

#include "broker/planted.h"
#include "tests/sim/sim.h"

#ifdef LEASEHOLD_PLANTED
enum plant leasehold_planted;
#endif

uint64_t sim_marks[MARK_COUNT];
ns_t sim_now;
bool sim_traces;

static uint64_t seed, steps_done;
static struct sim_event *heap;
static uint32_t heap_count, heap_room, heap_most;
static uint64_t next_seq;

void sim_fails(const char *what, const char *file, int line)
{
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s\n  seed %llu, step %llu, %lld ms\n", file, line, what,
            (unsigned long long)seed, (unsigned long long)steps_done,
            (long long)(sim_now / SIM_MS));
    exit(1);
}

/* ---- time ------------------------------------------------------------------------------------ */

ns_t sim_local(uint32_t host, ns_t at)
{
    const struct sim_clock *clock = &hosts[host].clock;
    ns_t since = at - clock->true_base;
    return clock->local_base + since + since / 1000000 * clock->ppm +
           since % 1000000 * clock->ppm / 1000000;
}

ns_t sim_true(uint32_t host, ns_t local)
{
    const struct sim_clock *clock = &hosts[host].clock;
    ns_t since = local - clock->local_base;
    int64_t rate = 1000000 + clock->ppm;
    return clock->true_base + since / rate * 1000000 + since % rate * 1000000 / rate;
}

ns_t sim_here(uint32_t host)
{
    return sim_local(host, sim_now);
}

/* ---- what is to come ------------------------------------------------------------------------- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

void sim_at(ns_t at, enum sim_event_kind kind, uint32_t host, uint32_t index, uint32_t life,
            void *what)
{
    if (heap_count == heap_room) {
        heap_room = heap_room ? 2 * heap_room : 1024;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    struct sim_event event = {
        at > sim_now ? at : sim_now, next_seq++, kind, host, index, life, what};
    uint32_t i = heap_count++;
    for (; i > 0 && is_before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = event;
    heap_most = heap_count > heap_most ? heap_count : heap_most;
}

static struct sim_event next_event(void)
{
    struct sim_event first = heap[0], last = heap[--heap_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= heap_count)
            break;
        if (child + 1 < heap_count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

/* ---- phases ---------------------------------------------------------------------------------- */

enum { CHAOS, HEALED, QUIET };
#define HEAL_NS  (9 * NS_PER_SEC)
#define QUIET_NS (75 * NS_PER_SEC)

static void begin_phase(uint32_t phase)
{
    TRACE("%lld phase %u\n", (long long)(sim_now / SIM_MS), phase);
    switch (phase) {
    case CHAOS:
        holders_begin = true;
        faults_begin();
        sim_at(sim_now + (ns_t)rand_from(15, 70) * NS_PER_SEC, SIM_PHASE, 0, HEALED, 0, NULL);
        break;
    case HEALED:
        faults_end();
        sim_at(sim_now + HEAL_NS, SIM_PHASE, 0, QUIET, 0, NULL);
        break;
    case QUIET:
        check_healed();
        holders_begin = false;
        sim_at(sim_now + QUIET_NS, SIM_PHASE, 0, QUIET + 1, 0, NULL);
        break;
    default:
        check_quiet();
        begin_phase(CHAOS);
        break;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void make_host(uint32_t i)
{
    struct sim_host *host = &hosts[i];
    struct sim_shelf *shelves = host->shelves;
    struct sim_asked *asked = host->asked;
    memset(host, 0, sizeof *host);
    host->shelves = shelves ? shelves : calloc(SIM_PROVIDERS_MAX, sizeof *shelves);
    host->asked = asked ? asked : calloc(SIM_ASKED_MAX, sizeof *asked);
    snprintf(host->name, sizeof host->name, "h%02u", i);
    host->id[0] = (uint8_t)(i + 1);
    host->id[1] = 7;
    host->clock = (struct sim_clock){.local_base = (ns_t)rand_from(10, 100000) * NS_PER_SEC,
                                     .ppm = (int32_t)rand_below(1001) - 500,
                                     .wall_s = 1796000000};
    host->up = true;
    for (uint32_t p = 0; p < provider_count; p++) {
        host->routes[p] = (struct sim_route){.owner = SIM_NOBODY};
        host->voices[p].declared = p % host_count == i;
        struct sim_shelf *shelf = &host->shelves[p];
        memset(&shelf->image.sight, 0, sizeof shelf->image.sight);
        memset(shelf->read_sent, 0, sizeof shelf->read_sent);
        memset(shelf->read_shown, 0, sizeof shelf->read_shown);
        host->shelves[p].image.ready = false;
        host->shelves[p].kept_epoch = 0;
        host->shelves[p].reading = false;
        host->shelves[p].desks[0].open = host->shelves[p].desks[1].open = false;
    }
}

static void make_world(uint32_t wanted)
{
    host_count = wanted ? wanted : rand_from(2, 8);
    provider_count = host_count > 16 ? 2 : rand_from(1, SIM_PROVIDERS_MAX);
    sim_now = 1000 * NS_PER_SEC;
    for (uint32_t p = 0; p < provider_count; p++)
        server_begin(p);
    for (uint32_t i = 0; i < host_count; i++)
        make_host(i);
    for (uint32_t p = 1; p < provider_count && host_count > 2; p++)
        if (rand_one_in(6)) { /* two hosts think that it is theirs */
            hosts[(p + 1) % host_count].voices[p].declared = true;
            servers[p].has_two_owners = true;
        }
    for (uint32_t i = 0; i < host_count; i++) {
        agent_start(i);
        for (uint32_t k = 0; k < SIM_HOLDERS_MAX; k++)
            holder_start(i, k);
    }
}

static void happen(const struct sim_event *event)
{
    bool of_host = event->kind == SIM_PACKET || event->kind == SIM_AGENT ||
                   event->kind == SIM_HOLDER || event->kind == SIM_READING;
    sim_now = event->at;
    if (of_host && hosts[event->host].up && hosts[event->host].asleep_until > sim_now) {
        struct sim_host *host = &hosts[event->host];
        ns_t later = sim_earlier(host->asleep_until, sim_now + 250 * SIM_MS);
        if (event->kind == SIM_AGENT && event->at == host->timer)
            host->timer = later;
        if (event->kind == SIM_HOLDER && event->at == host->holders[event->index].wake)
            host->holders[event->index].wake = later;
        sim_at(later, event->kind, event->host, event->index, event->life, event->what);
        return;
    }
    TRACE("%lld.%06lld event %d of %u, %u\n", (long long)(sim_now / SIM_MS),
          (long long)(sim_now % SIM_MS), (int)event->kind, event->host, event->index);
    trace_word((uint64_t)event->at);
    trace_word((uint64_t)event->kind << 32 | event->host << 16 | event->index);
    switch (event->kind) {
    case SIM_PACKET: net_event(event); break;
    case SIM_AGENT: agent_event(event); break;
    case SIM_HOLDER: holder_event(event); break;
    case SIM_READING: reading_event(event); break;
    case SIM_SERVER: server_event(event); break;
    case SIM_FAULT: faults_event(event); break;
    case SIM_BOOT: host_boots(event); break;
    case SIM_PHASE: begin_phase(event->index); break;
    }
    check_event(event);
}

static void drop_events(void)
{
    while (heap_count > 0) {
        struct sim_event event = next_event();
        if (event.kind == SIM_PACKET)
            packet_free(event.what);
        else
            free(event.what);
    }
}

static void run(uint64_t from, uint64_t steps, uint32_t wanted_hosts)
{
    seed = from;
    rand_seed(from);
    next_seq = steps_done = 0;
    calm = true;
    calm_since = 0;
    holders_begin = false;
    sim_now = 0;
    net_heal();
    network.codec = 100;
    check_begin();
    make_world(wanted_hosts);
    sim_at(sim_now + 5 * NS_PER_SEC, SIM_PHASE, 0, CHAOS, 0, NULL);
    for (; steps_done < steps; steps_done++) {
        struct sim_event event = next_event();
        happen(&event);
    }
    drop_events();
}

/* ---- the command ----------------------------------------------------------------------------- */

static const char *const mark_names[] = {
#define MARK_TEXT(name) #name,
    SIM_MARKS(MARK_TEXT)
#undef MARK_TEXT
};

static uint32_t print_marks(bool all)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < MARK_COUNT; i++) {
        missing += sim_marks[i] == 0;
        if (all)
            printf("  %-26s %llu\n", mark_names[i], (unsigned long long)sim_marks[i]);
        else if (sim_marks[i] == 0)
            printf("%s%s", missing == 1 ? "not reached: " : ", ", mark_names[i]);
    }
    if (missing > 0 && !all)
        printf("\n");
    printf("coverage: %u of %u marks\n", MARK_COUNT - missing, (unsigned)MARK_COUNT);
    return missing;
}

static uint64_t number(int argc, char **argv, const char *name, uint64_t usual)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return usual;
}

static bool has(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

static void list_plants(void)
{
    static const char *const plants[] = {
#define PLANT_TEXT(name, what) #name ": " what,
        PLANTS(PLANT_TEXT)
#undef PLANT_TEXT
    };
    for (uint32_t i = 0; i < PLANT_COUNT; i++)
        printf("%u %s\n", i, plants[i]);
}

static uint64_t queued(bool of_owner)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < provider_count; p++)
        sum += of_owner ? servers[p].queued_by_owner : servers[p].queued;
    return sum;
}

int main(int argc, char **argv)
{
    uint64_t first = number(argc, argv, "--seed", 1), seeds = number(argc, argv, "--seeds", 1);
    uint64_t steps = number(argc, argv, "--steps", 100000), total = 0;
    uint32_t wanted = (uint32_t)number(argc, argv, "--hosts", 0);
    if (has(argc, argv, "--help") || wanted == 1 || wanted > SIM_HOSTS_MAX) {
        printf("sim [--seed N] [--seeds N] [--steps N] [--hosts 2..50] [--trace] [--marks] "
               "[--need-all] [--hash] [--plant N] [--plants]\n");
        return 64;
    }
    if (has(argc, argv, "--plants")) {
        list_plants();
        return 0;
    }
#ifdef LEASEHOLD_PLANTED
    leasehold_planted = (enum plant)number(argc, argv, "--plant", 0);
#endif
    sim_traces = has(argc, argv, "--trace");
    for (uint64_t i = 0; i < seeds; i++) {
        run(first + i, steps, wanted);
        total += steps;
        if (has(argc, argv, "--hash"))
            printf("seed %llu: %016llx\n", (unsigned long long)seed,
                   (unsigned long long)trace_hash());
    }
    if (has(argc, argv, "--hash"))
        return 0;
    printf("%llu seeds, %llu steps: no violation; the last: %lld s, %u hosts, %u providers, "
           "%llu requests queued (%llu with the owner's go), trace %016llx\n",
           (unsigned long long)seeds, (unsigned long long)total,
           (long long)((sim_now - 1000 * NS_PER_SEC) / NS_PER_SEC), host_count, provider_count,
           (unsigned long long)queued(false), (unsigned long long)queued(true),
           (unsigned long long)trace_hash());
    uint32_t missing = print_marks(has(argc, argv, "--marks"));
    return missing > 0 && has(argc, argv, "--need-all") ? 1 : 0;
}
