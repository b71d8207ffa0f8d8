#include "broker/host_words.h"

#include "broker/host_process.h"
#include "broker/host_wait.h"

#define SLEEPS 1u

struct host_wakes host_words_mark(struct host_words *words, const struct effects *effects)
{
    struct host_wakes wakes = {0};
    uint32_t before = atomic_load_explicit(&words->change, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&words->change, &before, (before & ~SLEEPS) + 2,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    wakes.all = before & SLEEPS;
    for (uint32_t i = 0; i < effects->called_count; i++)
        wakes.called |= host_words_bit(effects->called[i]);
    if (wakes.called)
        atomic_fetch_add_explicit(&words->call, 1, memory_order_release);
    return wakes;
}

void host_words_wake(struct host_words *words, struct host_wakes wakes)
{
    if (wakes.all)
        host_wake(&words->change, HOST_WAIT_ANY);
    if (wakes.called)
        host_wake(&words->call, wakes.called);
}

void host_words_announce(struct host_words *words, const struct effects *effects)
{
    host_words_wake(words, host_words_mark(words, effects));
}

bool host_words_arm(struct host_words *words, uint32_t seen, uint32_t *armed)
{
    uint32_t now = atomic_load_explicit(&words->change, memory_order_acquire);
    while ((now & ~SLEEPS) == (seen & ~SLEEPS)) {
        *armed = now | SLEEPS;
        if (atomic_compare_exchange_weak_explicit(&words->change, &now, *armed,
                                                  memory_order_acquire, memory_order_acquire))
            return true;
    }
    return false;
}

bool host_words_differ(const struct host_words *words, uint32_t seen)
{
    uint32_t now = atomic_load_explicit(&words->change, memory_order_acquire);
    return (now & ~SLEEPS) != (seen & ~SLEEPS);
}

int host_words_await_change(struct host_words *words, uint32_t seen, int64_t timeout_ns)
{
    uint32_t armed;
    if (!host_words_arm(words, seen, &armed))
        return HOST_WAIT_CHANGED;
    return host_wait(&words->change, armed, HOST_WAIT_ANY, timeout_ns);
}

void host_words_demand(struct host_words *words)
{
    atomic_fetch_add_explicit(&words->demand, 1, memory_order_release);
    host_wake(&words->demand, HOST_WAIT_ANY);
}

void host_words_watch(struct host_words *words, ns_t now)
{
    atomic_store_explicit(&words->watched_ns, now, memory_order_relaxed);
}

bool host_words_are_watched(const struct host_words *words, ns_t now)
{
    ns_t watched = atomic_load_explicit(&words->watched_ns, memory_order_relaxed);
    return watched != 0 && now - watched < WATCHED_MS * NS_PER_MS;
}

static uint32_t ms_of(ns_t ns)
{
    return (uint32_t)((uint64_t)ns / (uint64_t)NS_PER_MS);
}

/* Whoever asks may have looked at the clock before the holder did: a beginning in the near future is
 * as good as one in the near past. */
static bool is_at_it(uint64_t prober, ns_t now, ns_t limit_ns)
{
    int64_t age_ms = (int32_t)(ms_of(now) - (uint32_t)prober);
    bool in_time = (age_ms < 0 ? -age_ms : age_ms) <= limit_ns / NS_PER_MS;
    return prober != 0 && in_time &&
           host_process_glance((uint32_t)(prober >> 32), 0) != HOST_PROCESS_DEAD;
}

bool host_words_take_probe(struct host_words *words, uint32_t pid, ns_t now, ns_t limit_ns)
{
    uint64_t holder = atomic_load_explicit(&words->prober, memory_order_acquire);
    if (is_at_it(holder, now, limit_ns))
        return false;
    uint64_t ours = (uint64_t)pid << 32 | ms_of(now);
    return atomic_compare_exchange_strong_explicit(&words->prober, &holder, ours,
                                                   memory_order_acq_rel, memory_order_acquire);
}

void host_words_leave_probe(struct host_words *words, uint32_t pid)
{
    uint64_t holder = atomic_load_explicit(&words->prober, memory_order_acquire);
    if (holder >> 32 == pid)
        atomic_compare_exchange_strong_explicit(&words->prober, &holder, 0, memory_order_acq_rel,
                                                memory_order_acquire);
}

bool host_words_is_probed(const struct host_words *words, ns_t now, ns_t limit_ns)
{
    return is_at_it(atomic_load_explicit(&words->prober, memory_order_acquire), now, limit_ns);
}
