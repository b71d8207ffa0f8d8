/* What goes wrong, drawn anew for each cycle: the network's habits once, the rest one by one. */
#include "tests/sim/sim.h"

bool calm = true;
ns_t calm_since;

enum { BOOT_HOST, BOOT_AGENT, BOOT_FIRST };

static ns_t fault_every; /* on average */
static bool gentle;      /* only the network is at fault */

static ns_t some_ms(uint32_t low, uint32_t high)
{
    return (ns_t)rand_from(low, high) * SIM_MS;
}

/* Whoever has a lease there may be late now. */
static void taint_all(uint32_t host)
{
    for (uint32_t i = 0; i < SIM_HOLDERS_MAX; i++)
        if (hosts[host].holders[i].has || hosts[host].holders[i].question.want)
            for (uint32_t p = 0; p < provider_count; p++)
                server_taint(p);
}

static void taint_owned(uint32_t host)
{
    for (uint32_t p = 0; p < provider_count; p++)
        if (hosts[host].voices[p].declared)
            server_taint(p);
}

/* ---- the network ----------------------------------------------------------------------------- */

static void cut_one_way(uint32_t host)
{
    uint32_t to = rand_below(host_count);
    SIM_MARK(net_one_way);
    net_cut(host, to, sim_now + some_ms(200, 8000));
}

static void clog_link(uint32_t host)
{
    uint32_t to = rand_below(host_count);
    ns_t until = sim_now + some_ms(50, 5000);
    SIM_MARK(net_clogged);
    net_cut(host, to, until);
    net_cut(to, host, until);
}

static void cut_off(uint32_t host)
{
    ns_t until = sim_now + some_ms(500, 12000);
    SIM_MARK(net_host_cut_off);
    for (uint32_t i = 0; i < host_count; i++) {
        net_cut(host, i, until);
        net_cut(i, host, until);
    }
}

static void part(uint32_t host)
{
    ns_t until = sim_now + some_ms(500, 10000);
    SIM_MARK(net_partition);
    for (uint32_t a = 0; a < host_count; a++)
        for (uint32_t b = 0; b < host_count; b++)
            if ((a % 2 == host % 2) != (b % 2 == host % 2))
                net_cut(a, b, until);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static void stop_holders(uint32_t host)
{
    for (uint32_t i = 0; i < SIM_HOLDERS_MAX; i++)
        holder_dies(host, i);
}

static void crash_agent(uint32_t host)
{
    if (!hosts[host].agent_up)
        return;
    SIM_MARK(agent_crash);
    agent_stop(host);
    sim_at(sim_now + some_ms(10, 6000), SIM_BOOT, host, BOOT_AGENT, hosts[host].life, NULL);
}

static void crash_in_commit(uint32_t host)
{
    hosts[host].crash_at = rand_from(1, rand_one_in(3) ? 8 : 2);
    hosts[host].crash_who = rand_one_in(2) ? SIM_BY_AGENT : SIM_BY_CLIENT;
}

static void reboot(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    bool forgets = rand_one_in(3);
    SIM_MARK(host_reboot);
    taint_all(host);
    taint_owned(host);
    stop_holders(host);
    if (at->agent_up)
        agent_stop(host);
    at->up = false;
    at->life++;
    at->locked_until = at->crash_at = 0;
    at->shm_missing = false;
    if (forgets) {
        SIM_MARK(host_reboot_state_lost);
        at->clock.wall_s -= rand_from(0, 400);
    }
    for (uint32_t p = 0; p < provider_count; p++) {
        if (forgets)
            at->shelves[p].kept_epoch = 0;
        table_wipe(host, p);
        check_wiped(host, p, forgets);
        at->routes[p] = (struct sim_route){.owner = SIM_NOBODY};
    }
    sim_at(sim_now + some_ms(300, 9000), SIM_BOOT, host, BOOT_HOST, at->life, NULL);
}

static void pause_agent(uint32_t host)
{
    bool longer = rand_one_in(3);
    longer ? SIM_MARK(pause_longer_than_ttl) : SIM_MARK(pause_agent);
    hosts[host].paused_until = sim_now + (longer ? some_ms(3500, 14000) : some_ms(50, 2500));
    taint_owned(host);
}

static void pause_holder(uint32_t host)
{
    struct sim_holder *holder = &hosts[host].holders[rand_below(SIM_HOLDERS_MAX)];
    SIM_MARK(pause_holder);
    holder->paused_until = sim_now + (rand_one_in(3) ? some_ms(3000, 15000) : some_ms(20, 1500));
    taint_all(host);
}

static void suspend(uint32_t host)
{
    bool longer = rand_one_in(2);
    SIM_MARK(suspend);
    if (longer)
        SIM_MARK(suspend_longer_than_ttl);
    hosts[host].asleep_until = sim_now + (longer ? some_ms(7000, 40000) : some_ms(200, 3500));
    taint_all(host);
    taint_owned(host);
}

static void change_clock(uint32_t host)
{
    struct sim_clock *clock = &hosts[host].clock;
    ns_t here = sim_here(host);
    clock->true_base = sim_now;
    clock->local_base = here;
    clock->ppm = (int32_t)rand_below(1001) - 500;
    clock->ppm > 0 ? SIM_MARK(clock_fast) : SIM_MARK(clock_slow);
    if (!rand_one_in(3))
        return;
    bool back = rand_one_in(2);
    back ? SIM_MARK(clock_wall_back) : SIM_MARK(clock_wall_forward);
    clock->wall_s += back ? -(int64_t)rand_from(1, 3600) : (int64_t)rand_from(1, 3600);
}

static void steal_identity(uint32_t host)
{
    uint32_t other = rand_below(host_count);
    if (other == host || !hosts[host].agent_up)
        return;
    SIM_MARK(duplicate_identity);
    memcpy(hosts[host].id, hosts[other].id, sizeof hosts[host].id);
    crash_agent(host);
}

static void crash_holder(uint32_t host)
{
    uint32_t index = rand_below(SIM_HOLDERS_MAX);
    if (!hosts[host].holders[index].alive)
        return;
    holder_dies(host, index);
    sim_at(sim_now + some_ms(100, 3000), SIM_BOOT, host, BOOT_FIRST + index, hosts[host].life,
           NULL);
}

static void stick_lock(uint32_t host)
{
    SIM_MARK(lock_stuck);
    hosts[host].locked_until = sim_now + some_ms(1, rand_one_in(3) ? 600 : 30);
    taint_all(host);
}

/* The processes of a host lose sight of its directory, or find it again. */
static void lose_directory(uint32_t host)
{
    hosts[host].shm_missing = !hosts[host].shm_missing;
    for (uint32_t p = 0; p < provider_count; p++) {
        server_taint(p);
        desk_drop(host, p, SIM_BY_CLIENT);
    }
}

static void damage_a_record(uint32_t host)
{
    table_damage(host, rand_below(provider_count));
}

/* ---- servers --------------------------------------------------------------------------------- */

static void blind_server(uint32_t host)
{
    servers[host % provider_count].blind_until = sim_now + some_ms(100, 4000);
}

static void slow_server(uint32_t host)
{
    servers[host % provider_count].slow_until = sim_now + some_ms(100, 6000);
}

static void restart_server(uint32_t host)
{
    server_restart(host % provider_count, some_ms(50, 4000));
}

static const struct {
    void (*happens)(uint32_t host);
    uint32_t weight;
    bool always; /* also in a gentle cycle */
} faults[] = {
    {cut_one_way, 6, true},     {clog_link, 8, true},
    {cut_off, 5, true},         {part, 3, true},
    {crash_agent, 6, false},    {crash_in_commit, 10, false},
    {reboot, 4, false},         {pause_agent, 6, false},
    {pause_holder, 8, false},   {suspend, 3, false},
    {change_clock, 6, true},    {steal_identity, 1, false},
    {crash_holder, 10, false},  {stick_lock, 6, false},
    {lose_directory, 2, false}, {blind_server, 5, true},
    {slow_server, 5, true},     {restart_server, 2, false},
    {damage_a_record, 2, true},
};
#define FAULTS (sizeof faults / sizeof faults[0])

void faults_event(const struct sim_event *event)
{
    uint32_t total = 0;
    (void)event;
    if (calm)
        return;
    for (uint32_t i = 0; i < FAULTS; i++)
        total += gentle && !faults[i].always ? 0 : faults[i].weight;
    uint32_t drawn = rand_below(total), host = rand_below(host_count);
    for (uint32_t i = 0; i < FAULTS; i++) {
        uint32_t weight = gentle && !faults[i].always ? 0 : faults[i].weight;
        if (drawn < weight) {
            TRACE("%lld fault %u at h%u\n", (long long)(sim_now / SIM_MS), i, host);
            trace_word(i << 8 | host);
            if (hosts[host].up)
                faults[i].happens(host);
            break;
        }
        drawn -= weight;
    }
    sim_at(sim_now + fault_every / 2 + (ns_t)rand_below((uint32_t)(fault_every / SIM_MS)) * SIM_MS,
           SIM_FAULT, 0, 0, 0, NULL);
}

/* ---- coming back ----------------------------------------------------------------------------- */

static void boot_host(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    at->up = true;
    at->clock.true_base = sim_now;
    at->clock.local_base = some_ms(5000, 60000);
    agent_start(host);
    for (uint32_t i = 0; i < SIM_HOLDERS_MAX; i++)
        holder_start(host, i);
}

void host_boots(const struct sim_event *event)
{
    struct sim_host *at = &hosts[event->host];
    if (event->life != at->life)
        return;
    if (event->index == BOOT_HOST)
        boot_host(event->host);
    else if (event->index == BOOT_AGENT && at->up && !at->agent_up)
        agent_start(event->host);
    else if (event->index >= BOOT_FIRST && at->up && !at->holders[event->index - BOOT_FIRST].alive)
        holder_start(event->host, event->index - BOOT_FIRST);
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static uint32_t sometimes(uint32_t most)
{
    return rand_one_in(2) ? rand_below(most + 1) : 0;
}

void faults_begin(void)
{
    calm = false;
    gentle = rand_one_in(3);
    network = (struct sim_network){.loss = sometimes(200),
                                   .duplicate = sometimes(150),
                                   .reorder = sometimes(200),
                                   .replay = sometimes(60),
                                   .corrupt = sometimes(40),
                                   .codec = 100,
                                   .way_ms = rand_one_in(3) ? rand_from(30, 300) : 5};
    fault_every = some_ms(100, 3000);
    for (uint32_t p = 0; p < provider_count; p++)
        if (servers[p].signal != SIM_STATIC)
            servers[p].strangers_permille = rand_one_in(2) ? 300 : 0;
    sim_at(sim_now + fault_every, SIM_FAULT, 0, 0, 0, NULL);
}

static void heal_host(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    uint8_t id[16] = {(uint8_t)(host + 1), 7};
    bool stolen = memcmp(at->id, id, sizeof id) != 0;
    memcpy(at->id, id, sizeof id);
    at->crash_at = 0;
    at->locked_until = 0;
    if (at->paused_until > sim_now)
        at->paused_until = sim_now + SIM_MS;
    if (at->asleep_until > sim_now)
        at->asleep_until = sim_now + SIM_MS;
    if (at->shm_missing)
        lose_directory(host);
    if (!at->up) {
        at->life++; /* the boot that was planned is void */
        boot_host(host);
        return;
    }
    if (stolen && at->agent_up)
        agent_stop(host);
    if (!at->agent_up)
        agent_start(host);
    for (uint32_t i = 0; i < SIM_HOLDERS_MAX; i++) {
        at->holders[i].paused_until = 0;
        if (!at->holders[i].alive)
            holder_start(host, i);
        else
            holder_wake(host, i, 2 * SIM_MS);
    }
    at->timer = 0;
    agent_wake(host, 2 * SIM_MS);
}

void faults_end(void)
{
    calm = true;
    calm_since = sim_now;
    net_heal();
    for (uint32_t p = 0; p < provider_count; p++)
        server_calm(p);
    for (uint32_t i = 0; i < host_count; i++)
        heal_host(i);
}
