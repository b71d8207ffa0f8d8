/* Processes that take leases: one at a time each, by way of the owner, below it, or here. Follows
 * agent/ladder.c, remote.c and keeper.c; asking is in question.c. */
#include <stdlib.h>

#include "tests/sim/question.h"

bool holders_begin;

/* ---- waking ---------------------------------------------------------------------------------- */

void holder_wake(uint32_t host, uint32_t index, ns_t in)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    ns_t when = sim_now + (in > 0 ? in : 1);
    if (!holder->alive || (holder->scheduled && holder->wake > sim_now && holder->wake <= when))
        return;
    holder->scheduled = true;
    holder->wake = when;
    sim_at(when, SIM_HOLDER, host, index, holder->life, NULL);
}

bool pid_lives(uint32_t host, uint32_t pid)
{
    for (uint32_t i = 0; i < SIM_HOLDERS_MAX; i++)
        if (hosts[host].holders[i].alive && hosts[host].holders[i].pid == pid)
            return true;
    return false;
}

void holder_start(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    uint32_t life = holder->life + 1;
    memset(holder, 0, sizeof *holder);
    holder->life = life;
    holder->alive = true;
    holder->pid = ++hosts[host].pids;
    holder->idle_until = sim_here(host) + (ns_t)rand_from(1, 2000) * SIM_MS;
    holder_wake(host, index, (ns_t)rand_from(1, 500) * SIM_MS);
}

void holder_dies(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    if (!holder->alive)
        return;
    SIM_MARK(holder_crash);
    if (holder->has)
        server_taint(holder->provider);
    holder->alive = false;
    holder->has = false;
    holder->life++;
}

/* ---- the lease it has ------------------------------------------------------------------------ */

uint32_t holder_ttl(const struct sim_holder *holder)
{
    uint32_t usual = holder->dispatched ? TTL_DISPATCHED_MS_DEFAULT : TTL_HELD_MS_DEFAULT;
    return holder->ttl_ms ? holder->ttl_ms : usual;
}

static void plan_renewal(struct sim_holder *holder, ns_t here)
{
    holder->renew = here + (ns_t)holder_ttl(holder) * NS_PER_MS / 3;
}

void holder_takes(uint32_t host, uint32_t index, const struct answer *answer, enum sim_basis basis)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    const struct sim_question *question = &holder->question;
    ns_t here = sim_here(host);
    holder->has = true;
    holder->lost = holder->wants_release = false;
    holder->provider = question->provider;
    holder->lease = answer->lease;
    holder->token = answer->token;
    holder->epoch = question_epoch(host, question->provider, answer->lease);
    holder->units = answer->units ? answer->units : 1;
    holder->slot = answer->slot;
    if (question->request.ttl_ms)
        holder->ttl_ms = question->request.ttl_ms;
    holder->named = basis == BASIS_OWNER;
    holder->end = answer->end_ns;
    holder->basis = basis;
    plan_renewal(holder, here);
    holder->idle_until = here + (ns_t)rand_from(1, rand_one_in(6) ? 12000 : 300) * SIM_MS;
}

static ns_t some_work(void)
{
    uint32_t most = rand_one_in(12) ? 20000 : rand_one_in(3) ? 4000 : 800;
    return (ns_t)rand_from(20, most) * SIM_MS;
}

void holder_goes(uint32_t host, uint32_t index, enum sim_basis basis)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    holder->dispatched = true;
    holder->basis = basis;
    holder->named = basis == BASIS_OWNER;
    holder->working = true;
    holder->tasks_left = holder->units;
    holder->sends = sim_here(host) + (ns_t)rand_below(10) * SIM_MS;
    plan_renewal(holder, sim_here(host));
    if (basis < BASIS_OWNER)
        server_taint(holder->provider);
    static const int marks[] = {[BASIS_NONE] = MARK_place_process,
                                [BASIS_PROCESS] = MARK_place_process,
                                [BASIS_HOST] = MARK_place_host,
                                [BASIS_READING] = MARK_place_reading,
                                [BASIS_OWNER] = MARK_place_owner};
    sim_marks[marks[basis]]++;
}

void holder_forgets(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    holder->has = holder->dispatched = holder->named = holder->lost = holder->working = false;
    holder->wants_release = holder->unanswered = false;
    holder->sends = 0;
    holder->ttl_ms = 0;
    holder->running_by = (struct request_id){0, 0};
    holder->idle_until = sim_here(host) + (ns_t)rand_from(5, 1500) * SIM_MS;
}

void holder_work_ended(uint32_t host, uint32_t index, struct lease_id lease)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    (void)lease; /* it may be called otherwise by now */
    if (!holder->alive || !holder->has || holder->tasks_left == 0)
        return;
    if (--holder->tasks_left > 0)
        return;
    holder->working = false;
    holder->wants_release = true;
    holder_wake(host, index, (ns_t)rand_from(0, 20) * SIM_MS);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static uint32_t choose(uint32_t host)
{
    int32_t available[SIM_PROVIDERS_MAX], best = INT32_MIN;
    uint32_t equals = 0, nth = 0;
    for (uint32_t p = 0; p < provider_count; p++) {
        struct tally tally;
        shelf_look(host, p, SIM_BY_CLIENT);
        admission_tally(&desk_of(host, p, SIM_BY_CLIENT)->book, sim_here(host), &tally);
        available[p] = rand_one_in(3) ? 1 : tally.available;
        int32_t worth = available[p] < 0 ? 1 : 2 * available[p];
        equals = worth > best ? 1 : equals + (worth == best);
        best = worth > best ? worth : best;
    }
    uint32_t chosen = (uint32_t)broker_choose(available, provider_count, rand_word());
    for (uint32_t p = 0; p < chosen; p++)
        nth += (available[p] < 0 ? 1 : 2 * available[p]) == best;
    check_choice(equals, nth);
    return chosen;
}

static void begin(uint32_t host, uint32_t index)
{
    static const uint32_t ttls_ms[] = {0, 1000, 1500, 3000, 6000};
    struct sim_holder *holder = &hosts[host].holders[index];
    uint32_t provider = choose(host);
    holder->ttl_ms = ttls_ms[rand_below(5)];
    struct request request = {.hint = UINT32_MAX, .units = 1, .slot = -1};
    request.ttl_ms = holder->ttl_ms;
    if (rand_one_in(6))
        request.units = rand_from(1, 3);
    else if (rand_one_in(8))
        request.slot = (int32_t)rand_below((uint32_t)servers[provider].slots);
    if (rand_one_in(3))
        request.wait_ms = rand_from(100, 6000);
    if (rand_one_in(8))
        request.flags |= REQUEST_MAY_IDLE;
    bool places = request.wait_ms == 0 && rand_one_in(2);
    question_begin(host, index, provider, places ? WANT_PLACE : WANT_ACQUIRE, &request);
}

/* ---- what it does next ----------------------------------------------------------------------- */

static void go_on_held(uint32_t host, uint32_t index, ns_t here)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    struct request request = {.hint = UINT32_MAX, .lease = holder->lease};
    request.units = holder->units;
    request.slot = holder->slot;
    request.ttl_ms = holder->ttl_ms;
    if (here >= holder->idle_until && (!holders_begin || rand_one_in(8))) {
        holder->wants_release = true;
        question_begin(host, index, holder->provider, WANT_RELEASE, &request);
    } else if (here >= holder->idle_until) {
        if (rand_one_in(3))
            request.wait_ms = rand_from(100, 5000);
        question_begin(host, index, holder->provider, WANT_VERIFY, &request);
    } else if (here >= holder->renew) {
        question_begin(host, index, holder->provider, WANT_RENEW, &request);
    }
}

static void go_on_dispatched(uint32_t host, uint32_t index, ns_t here)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    struct request request = {.hint = UINT32_MAX, .lease = holder->lease};
    request.units = holder->units;
    request.slot = holder->slot;
    if (holder->sends && here >= holder->sends) {
        holder->sends = 0;
        server_send(holder->provider, host, index, holder->lease, holder->units,
                    holder->basis == BASIS_OWNER && !holder->lost && here < holder->end,
                    some_work());
    }
    if (holder->wants_release && holder->lost) {
        holder_forgets(host, index);
    } else if (holder->wants_release) {
        question_begin(host, index, holder->provider, WANT_RELEASE, &request);
    } else if (!holder->lost && !holder->named && here >= holder->renew - holder->ttl_ms) {
        plan_renewal(holder, here);
        request.ttl_ms = holder->ttl_ms;
        question_begin(host, index, holder->provider,
                       question_is_remote(host, holder->provider) ? WANT_RUNNING : WANT_RENEW,
                       &request);
    } else if (!holder->lost && here >= holder->renew) {
        plan_renewal(holder, here);
        question_begin(host, index, holder->provider, WANT_RENEW, &request);
    } else if (holder->lost && here >= holder->renew && rand_one_in(2)) {
        SIM_MARK(lost_runs_on);
        plan_renewal(holder, here);
        holder->running_by = (struct request_id){0, 0};
        question_begin(host, index, holder->provider, WANT_RUNNING, &request);
    } else if (holder->lost && here >= holder->renew) {
        plan_renewal(holder, here);
    }
}

static void go_on(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = &hosts[host].holders[index];
    ns_t here = sim_here(host);
    if (holder->question.want)
        question_goes_on(host, index);
    else if (holder->has && !holder->dispatched)
        go_on_held(host, index, here);
    else if (holder->has)
        go_on_dispatched(host, index, here);
    else if (question_tells(host, index, here))
        return;
    else if (holders_begin && here >= holder->idle_until)
        begin(host, index);
}

static ns_t next_time(const struct sim_holder *holder, ns_t here)
{
    ns_t next = here + NS_PER_SEC;
    const struct sim_question *question = &holder->question;
    const ns_t times[] = {
        question->want ? question->end : 0,
        question->want ? question->resend : 0,
        question->want ? question->retry : 0,
        question->want ? question->give_up : 0,
        holder->has && !question->want ? holder->renew : 0,
        holder->has && !question->want ? holder->sends : 0,
        !holder->has && holders_begin && !question->want ? holder->idle_until : 0,
        holder->has && !holder->dispatched && !question->want ? holder->idle_until : 0,
    };
    for (uint32_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (times[i] != 0 && times[i] < next)
            next = times[i] > here ? times[i] : here + 5 * SIM_MS;
    return next;
}

void holder_event(const struct sim_event *event)
{
    struct sim_host *at = &hosts[event->host];
    struct sim_holder *holder = &at->holders[event->index];
    if (!at->up || !holder->alive || event->life != holder->life || event->at != holder->wake)
        return;
    holder->scheduled = false;
    if (holder->paused_until > sim_now) {
        holder_wake(event->host, event->index, holder->paused_until - sim_now);
        return;
    }
    go_on(event->host, event->index);
    if (!holder->alive)
        return;
    ns_t when = sim_true(event->host, next_time(holder, sim_here(event->host)));
    holder_wake(event->host, event->index, when > sim_now + SIM_MS / 2 ? when - sim_now : SIM_MS);
}
