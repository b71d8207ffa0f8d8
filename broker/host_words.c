#include "broker/host_words.h"

#include "broker/host_process.h"
#include "broker/host_wait.h"

#define SLEEPS 1u

void host_words_announce(struct host_words *words, const struct effects *effects)
{
    uint32_t before = atomic_load_explicit(&words->change, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&words->change, &before, (before & ~SLEEPS) + 2,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    if (before & SLEEPS)
        host_wake(&words->change, HOST_WAIT_ANY);
    if (effects->called_count == 0)
        return;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < effects->called_count; i++)
        bits |= host_words_bit(effects->called[i]);
    atomic_fetch_add_explicit(&words->call, 1, memory_order_release);
    host_wake(&words->call, bits);
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

static bool is_at_it(const struct host_words *words, uint32_t pid, ns_t now, ns_t limit_ns)
{
    ns_t since = atomic_load_explicit(&words->prober_since_ns, memory_order_acquire);
    bool in_time = since <= now && now - since <= limit_ns;
    return in_time && host_process_glance(pid, 0) != HOST_PROCESS_DEAD;
}

bool host_words_take_probe(struct host_words *words, uint32_t pid, ns_t now, ns_t limit_ns)
{
    uint32_t holder = atomic_load_explicit(&words->prober_pid, memory_order_acquire);
    if (holder != 0 && is_at_it(words, holder, now, limit_ns))
        return false;
    if (!atomic_compare_exchange_strong_explicit(&words->prober_pid, &holder, pid,
                                                 memory_order_acq_rel, memory_order_acquire))
        return false;
    atomic_store_explicit(&words->prober_since_ns, now, memory_order_release);
    return true;
}

void host_words_leave_probe(struct host_words *words, uint32_t pid)
{
    uint32_t holder = pid;
    atomic_compare_exchange_strong_explicit(&words->prober_pid, &holder, 0, memory_order_acq_rel,
                                            memory_order_acquire);
}

bool host_words_is_probed(const struct host_words *words, ns_t now, ns_t limit_ns)
{
    uint32_t holder = atomic_load_explicit(&words->prober_pid, memory_order_acquire);
    return holder != 0 && is_at_it(words, holder, now, limit_ns);
}
