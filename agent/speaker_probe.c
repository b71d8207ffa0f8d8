/* Keeping readings fresh and books swept, one prober a provider. */
#define _GNU_SOURCE

#include <stdlib.h>

#include "agent/speaker_fleet.h"
#include "broker/attribution.h"
#include "broker/host_clock.h"
#include "broker/host_wait.h"

#define TICK_NS          (NS_PER_SEC / 2) /* between two sweeps of a book */
#define PARKED_MS        20               /* a reading waits this long for a locked book */
#define PROBER_LIMIT_MS  (PROBE_MS + 250)
#define UNANSWERED_SLOWS 2 /* so many hung probes, and the server is asked less often */

static struct host_words *words_of(const struct prober *prober)
{
    return provider_words(prober->provider);
}

/* ---- the list -------------------------------------------------------------------------------- */

static int add_prober(struct speaker *speaker, struct provider *provider)
{
    struct prober *prober = calloc(1, sizeof *prober);
    if (!prober)
        return LEASE_ENOMEM;
    prober->speaker = speaker;
    prober->provider = provider;
    int error = 0;
    const struct provider_spec *spec = provider_spec(provider);
    if (spec && spec->engine != ENGINE_STATIC)
        error = probe_target_new(spec, host_now_ns, &prober->target);
    if (error < 0) {
        free(prober);
        return error;
    }
    prober->demand_seen = atomic_load(&words_of(prober)->demand);
    speaker->probers[speaker->prober_count++] = prober;
    atomic_fetch_add_explicit(&speaker->news, 1, memory_order_release);
    host_wake(&speaker->news, HOST_WAIT_ANY); /* its demands are to be heard from now on */
    return 0;
}

int speaker_probers_update(struct speaker *speaker)
{
    struct lease_agent *agent = speaker->agent;
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    int error = 0;
    while (speaker->prober_count < count && error == 0) {
        struct provider *provider = agent->providers[speaker->prober_count];
        error = provider_open(provider);
        if (error == 0)
            error = add_prober(speaker, provider);
    }
    return error;
}

static void leave_office(struct prober *prober)
{
    if (prober->has_office)
        host_words_leave_probe(words_of(prober), prober->speaker->agent->self.pid);
    prober->has_office = false;
}

void speaker_probers_free(struct speaker *speaker)
{
    for (uint32_t i = 0; i < speaker->prober_count; i++) {
        probe_target_destroy(&speaker->probers[i]->target);
        leave_office(speaker->probers[i]);
        free(speaker->probers[i]);
    }
    speaker->prober_count = 0;
}

/* ---- probing --------------------------------------------------------------------------------- */

/* The loop never waits for a lock: the reading is kept and offered again each millisecond. */
static void offer(struct prober *prober)
{
    struct effects effects;
    struct event event = {.kind = EVENT_READING, .reading = &prober->reading};
    int error = provider_step(prober->provider, &event, &effects, 0);
    ns_t since = host_now_ns() - prober->parked_ns;
    prober->parked = error == LEASE_ELOCKED && since < PARKED_MS * NS_PER_MS;
    if (prober->parked)
        return;
    leave_office(prober);
    /* whoever asked meanwhile wakes up to this one, and asks itself where it slept too long */
    prober->demand_seen = atomic_load_explicit(&words_of(prober)->demand, memory_order_acquire);
}

static void probed(void *arg, const struct reading *reading)
{
    struct prober *prober = arg;
    prober->reading = *reading;
    prober->parked_ns = host_now_ns();
    reading_sanitize(&prober->reading);
    offer(prober);
}

static void make_plan(struct prober *prober, struct probe_plan *plan)
{
    struct provider *provider = prober->provider;
    pthread_mutex_lock(&provider->mutex);
    provider_look(provider);
    plan->due_ns = attribution_next_due(provider->book, plan->watched);
    plan->not_before_ns = attribution_not_before(provider->book);
    plan->active = attribution_is_active(provider->book, false);
    bool read = provider->book->sight.reading.answered_ns != 0;
    pthread_mutex_unlock(&provider->mutex);
    int hung = probe_unanswered(prober->target);
    if (hung >= UNANSWERED_SLOWS && read)
        plan->due_ns += hung * PROBE_IDLE_MS * NS_PER_MS;
}

/* Each turn of the loop asks this of all providers, and a look at a book costs a system call, as does
 * one at its words: so the demand is taken along. */
static const struct probe_plan *plan_of(struct prober *prober, ns_t now)
{
    struct probe_plan *plan = &prober->plan;
    struct host_words *words = words_of(prober);
    bool is_watched = host_words_are_watched(words, now);
    uint32_t change = atomic_load_explicit(&words->change, memory_order_acquire) & ~1u;
    prober->demand = atomic_load_explicit(&words->demand, memory_order_acquire);
    if (plan->made_ns != 0 && now - plan->made_ns < TICK_NS && plan->change == change &&
        plan->watched == is_watched)
        return plan;
    *plan = (struct probe_plan){.made_ns = now, .change = change, .watched = is_watched};
    make_plan(prober, plan);
    return plan;
}

static void start_probe(struct prober *prober, enum probe_wants wants, ns_t now)
{
    struct provider *provider = prober->provider;
    uint32_t pid = prober->speaker->agent->self.pid;
    if (!prober->has_office &&
        !host_words_take_probe(words_of(prober), pid, now, PROBER_LIMIT_MS * NS_PER_MS))
        return; /* somebody is at it: what it brings will do */
    prober->has_office = true;
    pthread_mutex_lock(&provider->mutex);
    provider_look(provider);
    struct reading last = provider->book->sight.reading;
    pthread_mutex_unlock(&provider->mutex);
    if (probe_start(prober->speaker->http, prober->target, wants, &last, PROBE_MS, probed, prober) <
        0)
        leave_office(prober);
}

static void run_probe(struct prober *prober, ns_t now)
{
    if (prober->parked)
        offer(prober);
    if (!prober->target || prober->parked || probe_is_running(prober->target))
        return;
    const struct probe_plan *plan = plan_of(prober, now);
    uint32_t demand = prober->demand;
    prober->recovered = probe_recovered(prober->target) || prober->recovered;
    bool demanded = demand != prober->demand_seen || prober->recovered;
    bool unasked = room_probes(prober->speaker->room, prober->provider, now);
    if (now < plan->not_before_ns || (!demanded && (!unasked || now < plan->due_ns)))
        return;
    prober->demand_seen = demand;
    prober->recovered = false;
    start_probe(prober,
                demanded        ? PROBE_QUICK
                : plan->active  ? PROBE_FULL
                : plan->watched ? PROBE_LOOK
                                : PROBE_IDLE,
                now);
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* Leases tied to a process that is not the one which took them: renewed here while it lives. */
static uint32_t find_by_pid(struct provider *provider, ns_t now, struct lease_id *ids,
                            uint32_t most)
{
    uint32_t count = 0;
    pthread_mutex_lock(&provider->mutex);
    const struct book *book = provider->book;
    for (uint32_t i = 0; i < book->live_count && count < most; i++) {
        const struct record *record = &book->records[book->live[i]];
        uint32_t ttl = record->ttl_ms ? record->ttl_ms : TTL_DISPATCHED_MS_DEFAULT;
        bool due = record->deadline_ns - now < (ns_t)ttl * NS_PER_MS * 2 / 3 &&
                   !(record->flags & RECORD_NAMED); /* its owner is asked: speaker_claims.c */
        if (record->state == RECORD_DISPATCHED && (record->flags & RECORD_BY_PID) && due)
            ids[count++] = record->id;
    }
    pthread_mutex_unlock(&provider->mutex);
    return count;
}

static void renew_by_pid(struct provider *provider, ns_t now)
{
    struct lease_id ids[BOOK_LEASES_MIN];
    uint32_t count = find_by_pid(provider, now, ids, BOOK_LEASES_MIN);
    for (uint32_t i = 0; i < count; i++) {
        struct request request = {
            .verb = VERB_RENEW, .flags = REQUEST_FIRST, .lease = ids[i], .hint = UINT32_MAX};
        struct event event = {.kind = EVENT_REQUEST, .request = &request};
        struct effects effects;
        agent_request_id(&request.id);
        provider_step(provider, &event, &effects, 0);
    }
}

static void sweep(struct prober *prober, ns_t now)
{
    if (now < prober->tick_ns)
        return;
    prober->tick_ns = now + TICK_NS;
    struct event tick = {.kind = EVENT_TICK};
    struct effects effects;
    int error = provider_reap(prober->provider, REAP_ALL, 0);
    if (error >= 0)
        error = provider_step(prober->provider, &tick, &effects, 0);
    if (error >= 0)
        renew_by_pid(prober->provider, now);
    if (error == LEASE_ELOCKED)
        prober->tick_ns = now + 20 * NS_PER_MS;
}

/* ---- the turn -------------------------------------------------------------------------------- */

void speaker_probers_run(struct speaker *speaker)
{
    http_run(speaker->http);
    for (uint32_t i = 0; i < speaker->prober_count; i++) {
        ns_t now = host_now_ns();
        sweep(speaker->probers[i], now);
        run_probe(speaker->probers[i], now);
    }
}

static ns_t earlier(ns_t a, ns_t b)
{
    return a < b ? a : b;
}

ns_t speaker_probers_deadline(const struct speaker *speaker)
{
    ns_t first = http_deadline(speaker->http), now = host_now_ns();
    for (uint32_t i = 0; i < speaker->prober_count; i++) {
        struct prober *prober = speaker->probers[i];
        first = earlier(first, prober->tick_ns);
        if (prober->parked)
            first = earlier(first, now + NS_PER_MS);
        if (!prober->target || prober->parked || probe_is_running(prober->target))
            continue;
        const struct probe_plan *plan = plan_of(prober, now);
        bool demanded = prober->demand != prober->demand_seen || prober->recovered;
        if (demanded)
            first = earlier(first, plan->not_before_ns);
        else if (room_probes(speaker->room, prober->provider, now))
            first = earlier(first, plan->due_ns);
    }
    return first;
}
