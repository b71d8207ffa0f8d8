/* The servers of providers, and how they are read. A server knows the truth; a reading shows a moment
 * of it, late. */
#include <stdlib.h>

#include "tests/sim/sim.h"

struct sim_server servers[SIM_PROVIDERS_MAX];

/* What a server event is about. */
enum { WORK_ENDS, WORK_ARRIVES, STRANGERS_COME, COMES_UP };

struct arrival {
    struct sim_task task;
};

struct answer_on_its_way {
    struct reading reading; /* times are the host's */
    ns_t shown;
};

static void at(ns_t when, uint32_t provider, uint32_t what, uint32_t index, void *arrival)
{
    sim_at(when, SIM_SERVER, provider, what, index, arrival);
}

void server_begin(uint32_t provider)
{
    struct sim_server *server = &servers[provider];
    memset(server, 0, sizeof *server);
    server->signal = (enum sim_signal)rand_below(4);
    if (provider == 0 && rand_one_in(2))
        server->signal = SIM_NAMES;
    server->slots = (int32_t)rand_from(1, 4);
    server->up = true;
    server->next_name = 1;
    server->strangers_permille = rand_one_in(2) && server->signal != SIM_STATIC ? 300 : 0;
    static const int marks[] = {MARK_server_named, MARK_server_counts, MARK_server_inferred,
                                MARK_server_static};
    sim_marks[marks[server->signal]]++;
    at(sim_now + SIM_MS, provider, STRANGERS_COME, 0, NULL);
}

void server_taint(uint32_t provider)
{
    ns_t until = sim_now + 90 * NS_PER_SEC;
    if (servers[provider].tainted_until < until)
        servers[provider].tainted_until = until;
}

bool server_is_clean(uint32_t provider)
{
    const struct sim_server *server = &servers[provider];
    return server->strangers_permille == 0 && !server->has_two_owners &&
           server->tainted_until <= sim_now &&
           (server->signal == SIM_NAMES || server->signal == SIM_COUNTS ||
            server->signal == SIM_STATIC);
}

/* ---- work ------------------------------------------------------------------------------------ */

static int32_t free_slot(const struct sim_server *server)
{
    for (int32_t slot = 0; slot < server->slots; slot++) {
        bool taken = false;
        for (uint32_t i = 0; i < SIM_TASKS_MAX; i++)
            taken |= server->tasks[i].in_use && server->tasks[i].slot == slot;
        if (!taken)
            return slot;
    }
    return -1;
}

static void begin_work(uint32_t provider, struct sim_task *task, int32_t slot)
{
    struct sim_server *server = &servers[provider];
    task->slot = slot;
    task->name = server->next_name++;
    task->start = sim_now;
    task->end = sim_now + task->work;
    at(task->end, provider, WORK_ENDS, (uint32_t)(task - server->tasks), NULL);
}

static void arrive(uint32_t provider, const struct sim_task *arrival)
{
    struct sim_server *server = &servers[provider];
    struct sim_task *task = NULL;
    for (uint32_t i = 0; i < SIM_TASKS_MAX && !task; i++)
        if (!server->tasks[i].in_use)
            task = &server->tasks[i];
    if (!task || !server->up) {
        if (!arrival->stranger)
            holder_work_ended(arrival->host, arrival->holder, arrival->lease);
        return;
    }
    *task = *arrival;
    task->in_use = true;
    task->order = server->next_order++;
    task->slot = -1;
    server->arrived++;
    int32_t slot = free_slot(server);
    if (slot >= 0) {
        begin_work(provider, task, slot);
        return;
    }
    SIM_MARK(server_request_queued);
    server->queued++;
    server->queued_by_owner += task->by_owner;
    SIM_MUST(!task->by_owner || !server_is_clean(provider));
}

void server_send(uint32_t provider, uint32_t host, uint32_t holder, struct lease_id lease,
                 uint32_t units, bool by_owner, ns_t work)
{
    for (uint32_t i = 0; i < units; i++) {
        struct sim_task *task = calloc(1, sizeof *task);
        *task = (struct sim_task){.host = host,
                                  .holder = holder,
                                  .life = hosts[host].holders[holder].life,
                                  .lease = lease,
                                  .by_owner = by_owner,
                                  .work = work};
        at(sim_now + (ns_t)rand_from(1, 10) * SIM_MS, provider, WORK_ARRIVES, 0, task);
    }
}

static void next_in_queue(uint32_t provider)
{
    struct sim_server *server = &servers[provider];
    int32_t slot;
    while ((slot = free_slot(server)) >= 0) {
        struct sim_task *first = NULL;
        for (uint32_t i = 0; i < SIM_TASKS_MAX; i++) {
            struct sim_task *task = &server->tasks[i];
            if (task->in_use && task->slot < 0 && (!first || task->order < first->order))
                first = task;
        }
        if (!first)
            return;
        begin_work(provider, first, slot);
    }
}

static void end_work(uint32_t provider, struct sim_task *task)
{
    struct sim_task ended = *task;
    task->in_use = false;
    if (!ended.stranger && hosts[ended.host].holders[ended.holder].life == ended.life)
        holder_work_ended(ended.host, ended.holder, ended.lease);
    next_in_queue(provider);
}

static void strangers_come(uint32_t provider)
{
    struct sim_server *server = &servers[provider];
    at(sim_now + (ns_t)rand_from(200, 2000) * SIM_MS, provider, STRANGERS_COME, 0, NULL);
    if (!rand_permille(server->strangers_permille) || calm)
        return;
    SIM_MARK(server_strangers);
    uint32_t count = rand_from(1, (uint32_t)server->slots);
    struct sim_task stranger = {.stranger = true};
    ns_t most = rand_one_in(10) ? 20000 : 3000;
    for (uint32_t i = 0; i < count; i++) {
        stranger.work = (ns_t)rand_from(100, (uint32_t)most) * SIM_MS;
        arrive(provider, &stranger);
    }
}

void server_event(const struct sim_event *event)
{
    uint32_t provider = event->host;
    struct sim_server *server = &servers[provider];
    struct sim_task *task = event->index == WORK_ENDS ? &server->tasks[event->life] : NULL;
    if (event->index == WORK_ENDS && task->in_use && task->slot >= 0 && task->end == sim_now)
        end_work(provider, task);
    if (event->index == WORK_ARRIVES) {
        arrive(provider, event->what);
        free(event->what);
    }
    if (event->index == STRANGERS_COME)
        strangers_come(provider);
    if (event->index == COMES_UP)
        server->up = true;
}

/* All its work is lost, and its names begin anew. */
void server_restart(uint32_t provider, ns_t down)
{
    struct sim_server *server = &servers[provider];
    SIM_MARK(server_restart);
    server_taint(provider);
    server->up = false;
    server->next_name = 1;
    for (uint32_t i = 0; i < SIM_TASKS_MAX; i++) {
        struct sim_task ended = server->tasks[i];
        server->tasks[i].in_use = false;
        if (ended.in_use && !ended.stranger &&
            hosts[ended.host].holders[ended.holder].life == ended.life)
            holder_work_ended(ended.host, ended.holder, ended.lease);
    }
    at(sim_now + down, provider, COMES_UP, 0, NULL);
}

void server_calm(uint32_t provider)
{
    struct sim_server *server = &servers[provider];
    server->up = true;
    server->blind_until = server->slow_until = 0;
    for (uint32_t i = 0; i < SIM_TASKS_MAX; i++)
        if (server->tasks[i].in_use && server->tasks[i].stranger)
            server->tasks[i].in_use = false;
    next_in_queue(provider);
}

bool server_has_work(uint32_t provider, struct lease_id lease)
{
    for (uint32_t i = 0; i < SIM_TASKS_MAX; i++)
        if (servers[provider].tasks[i].in_use && !servers[provider].tasks[i].stranger &&
            lease_id_equal(servers[provider].tasks[i].lease, lease))
            return true;
    return false;
}

int32_t server_held_since(uint32_t provider, ns_t since)
{
    int32_t count = 0;
    for (uint32_t i = 0; i < SIM_TASKS_MAX; i++) {
        const struct sim_task *task = &servers[provider].tasks[i];
        count += task->in_use && task->slot >= 0 && task->start <= since && task->end > sim_now;
    }
    return count;
}

/* ---- readings -------------------------------------------------------------------------------- */

static void show(const struct sim_server *server, struct reading *reading)
{
    reading_clear(reading);
    reading->health = HEALTH_OK;
    reading->slots_total = server->slots;
    reading->signal = server->signal == SIM_INFERRED ? SIGNAL_INFERRED : SIGNAL_EXACT;
    if (server->signal == SIM_INFERRED)
        return;
    reading->in_flight = reading->queued = 0;
    reading->named = server->signal == SIM_NAMES;
    reading->slot_count = reading->named ? server->slots : 0;
    for (int32_t i = 0; i < reading->slot_count; i++)
        reading->slots[i].task = -1;
    for (uint32_t i = 0; i < SIM_TASKS_MAX; i++) {
        const struct sim_task *task = &server->tasks[i];
        if (!task->in_use)
            continue;
        reading->queued += task->slot < 0;
        reading->in_flight += task->slot >= 0;
        if (reading->named && task->slot >= 0)
            reading->slots[task->slot] = (struct reading_slot){task->name, 1};
    }
}

/* The moment that it shows is drawn now, and nothing happens in between: the server is looked at when
 * the question arrives, which is at once. */
void reading_ask(uint32_t host, uint32_t provider)
{
    struct sim_shelf *shelf = &hosts[host].shelves[provider];
    const struct sim_server *server = &servers[provider];
    if (shelf->reading || server->signal == SIM_STATIC)
        return;
    struct answer_on_its_way *way = calloc(1, sizeof *way);
    ns_t takes = (ns_t)rand_from(1, 4) * SIM_MS;
    show(server, &way->reading);
    if (server->slow_until > sim_now) {
        SIM_MARK(server_slow);
        takes = (ns_t)rand_from(20, 400) * SIM_MS;
    }
    if (!server->up || server->blind_until > sim_now) {
        reading_clear(&way->reading);
        way->reading.health = server->up ? HEALTH_BUSY : HEALTH_DOWN;
        if (server->up) {
            SIM_MARK(server_blind);
            takes = PROBE_MS * SIM_MS;
        } else {
            SIM_MARK(server_down);
        }
    }
    way->shown = sim_now;
    way->reading.sent_ns = sim_here(host);
    shelf->reading = true;
    sim_at(sim_now + takes, SIM_READING, host, provider, hosts[host].life, way);
}

void reading_event(const struct sim_event *event)
{
    uint32_t host = event->host, provider = event->index;
    struct sim_shelf *shelf = &hosts[host].shelves[provider];
    struct answer_on_its_way *way = event->what;
    struct effects *effects;
    if (event->life != hosts[host].life || !hosts[host].up) {
        free(way);
        return;
    }
    enum sim_who who = hosts[host].agent_up ? SIM_BY_AGENT : SIM_BY_CLIENT;
    way->reading.answered_ns = sim_here(host);
    shelf->reading = false;
    shelf->read_sent[0] = shelf->read_sent[1];
    shelf->read_shown[0] = shelf->read_shown[1];
    shelf->read_sent[1] = way->reading.sent_ns;
    shelf->read_shown[1] = way->shown;
    struct event taken = {.kind = EVENT_READING, .reading = &way->reading};
    reading_sanitize(&way->reading);
    enum sim_table_result result = table_step(host, provider, who, &taken, &effects);
    if (result == TABLE_CRASHED && who == SIM_BY_AGENT)
        agent_stop(host);
    free(way);
}
