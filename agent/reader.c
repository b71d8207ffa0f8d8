/* Having a reading made, by one prober a provider and host: the speaker, else whoever finds none at
 * it. All others wait for what it brings. */
#define _GNU_SOURCE

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/probe.h"
#include "broker/attribution.h"
#include "broker/host_beat.h"
#include "broker/host_clock.h"
#include "broker/host_guard.h"
#include "broker/host_wait.h"

#define SPEAKER_GRACE_MS     60
#define SPEAKER_GRACE_FEW_MS 500
#define HURRIED_MS           200 /* a server with few threads is asked nothing in less */
#define PROBER_LIMIT_MS      (PROBE_MS + 250)

bool reader_has_speaker(const struct lease_agent *agent)
{
    if (!agent->has_directory)
        return false;
    int fd = host_beat_open(agent->directory.fd, false, 0);
    if (fd < 0)
        return false;
    struct host_beat beat;
    bool alive = host_beat_read(fd, &beat) == 0 && host_beat_alive(&beat, host_now_ns());
    close(fd);
    return alive;
}

static ns_t earlier(ns_t a, ns_t b)
{
    return a < b ? a : b;
}

/* The server has been left alone since somebody else's reading: whoever wants one asks the book
 * again, which answers without. */
static bool is_left_alone(struct provider *provider)
{
    pthread_mutex_lock(&provider->mutex);
    bool pause = host_now_ns() < attribution_not_before(provider->book);
    pthread_mutex_unlock(&provider->mutex);
    return pause;
}

/* For the speaker to begin, before somebody else does. It alone can wait for what an old server does
 * not answer in time, and so notices when it is back. */
static ns_t grace_for_speaker(struct provider *provider)
{
    pthread_mutex_lock(&provider->mutex);
    bool few = provider->book->sight.reading.threads == THREADS_FEW;
    pthread_mutex_unlock(&provider->mutex);
    return (few ? SPEAKER_GRACE_FEW_MS : SPEAKER_GRACE_MS) * NS_PER_MS;
}

/* The book has a reading that is new enough, and `last` is a copy of the newest one. */
static bool has_arrived(struct provider *provider, ns_t fresh_ns, struct reading *last)
{
    pthread_mutex_lock(&provider->mutex);
    int error = provider_look(provider);
    if (last)
        *last = provider->book->sight.reading;
    bool fresh = error == 0 && admission_is_fresh(provider->book, host_now_ns(), fresh_ns);
    pthread_mutex_unlock(&provider->mutex);
    return fresh;
}

static int take_in(struct provider *provider, struct reading *reading)
{
    struct effects effects;
    struct event event = {.kind = EVENT_READING, .reading = reading};
    reading_sanitize(reading);
    return provider_step(provider, &event, &effects, LOCK_BUDGET_MS);
}

static int probe_by_myself(struct provider *provider, enum probe_wants wants, ns_t fresh_ns,
                           ns_t deadline_ns)
{
    struct reading *last = malloc(2 * sizeof *last);
    if (!last)
        return LEASE_ENOMEM;
    struct reading *reading = last + 1;
    int error = 0;
    /* a reading that seems to be of another server is of ours, where that has moved */
    agent_follow_configuration(provider->agent, true);
    if (!has_arrived(provider, fresh_ns, last)) {
        ns_t left_ms = (deadline_ns - host_now_ns()) / NS_PER_MS;
        int probe_ms = (int)(left_ms < 1                 ? 1
                             : left_ms > PROBE_BUDGET_MS ? PROBE_BUDGET_MS
                                                         : left_ms);
        bool few = last->threads == THREADS_FEW;
        if (few && probe_ms < HURRIED_MS) { /* it would only be left behind there */
            free(last);
            return LEASE_ETIMEOUT;
        }
        error = probe_now(provider_source(provider), wants, last, probe_ms, host_now_ns, reading);
        bool hurried = !few && probe_ms < PROBE_BUDGET_MS && reading->health == HEALTH_BUSY;
        if (error == 0) /* that we had no time to wait says nothing to anybody else */
            error = hurried ? LEASE_ETIMEOUT : take_in(provider, reading);
    }
    free(last);
    return error;
}

static void sleep_until_change(struct provider *provider, uint32_t seen, ns_t until_ns)
{
    ns_t left = until_ns - host_now_ns();
    if (left > 0)
        host_words_await_change(provider_words(provider), seen, left);
}

static bool change_is(const struct host_words *words, uint32_t seen)
{
    return ((atomic_load_explicit(&words->change, memory_order_acquire) ^ seen) & ~1u) == 0;
}

static int get(struct provider *provider, enum probe_wants wants, ns_t fresh_ns, ns_t deadline_ns)
{
    uint32_t pid = provider->agent->self.pid;
    bool can_probe = provider_source(provider) && provider->reach != LEASE_REACH_NONE;
    bool demanded = false;
    ns_t grace_ns = 0;
    for (;;) {
        struct host_words *words = provider_words(provider);
        uint32_t seen = atomic_load_explicit(&words->change, memory_order_acquire);
        if (has_arrived(provider, fresh_ns, NULL))
            return 0;
        ns_t now = host_now_ns();
        if (now >= deadline_ns)
            return LEASE_ETIMEOUT;
        if (!demanded) {
            demanded = true;
            bool speaker = !provider->agent->speaker && reader_has_speaker(provider->agent);
            grace_ns = speaker ? now + grace_for_speaker(provider) : now;
            if (speaker)
                host_words_demand(words);
        }
        ns_t look_ns = now + 20 * NS_PER_MS;
        if (host_words_is_probed(words, now, PROBER_LIMIT_MS * NS_PER_MS)) {
            sleep_until_change(provider, seen, earlier(look_ns, deadline_ns));
        } else if (now < grace_ns) {
            ns_t again_ns = earlier(grace_ns, now + SPEAKER_GRACE_MS * NS_PER_MS);
            sleep_until_change(provider, seen, earlier(again_ns, deadline_ns));
            if (host_now_ns() < grace_ns && change_is(words, seen)) /* it has not heard */
                host_words_demand(words);
        } else if (!can_probe) {
            return LEASE_EUNKNOWN; /* nobody here was told where the server is */
        } else if (is_left_alone(provider)) {
            return 0;
        } else if (host_words_take_probe(words, pid, now, PROBER_LIMIT_MS * NS_PER_MS)) {
            int error = probe_by_myself(provider, wants, fresh_ns, deadline_ns);
            host_words_leave_probe(provider_words(provider), pid);
            if (error < 0 || wants == PROBE_LOOK) /* which may have left the server in peace */
                return error;
        }
    }
}

int reader_get(struct provider *provider, ns_t fresh_ns, ns_t deadline_ns)
{
    return get(provider, PROBE_QUICK, fresh_ns, deadline_ns);
}

int reader_look(struct provider *provider, ns_t fresh_ns, ns_t deadline_ns)
{
    pthread_mutex_lock(&provider->mutex);
    bool active = attribution_is_active(provider->book, false);
    pthread_mutex_unlock(&provider->mutex);
    return get(provider, active ? PROBE_QUICK : PROBE_LOOK, fresh_ns, deadline_ns);
}

/* ---- several at once ------------------------------------------------------------------------- */

struct errand {
    struct provider *provider;
    ns_t fresh_ns, deadline_ns;
    int error;
    bool runs;
    pthread_t thread;
};

static void *run_errand(void *arg)
{
    struct errand *errand = arg;
    errand->error = reader_get(errand->provider, errand->fresh_ns, errand->deadline_ns);
    return NULL;
}

/* Signals are the calling program's. */
static void start_errand(struct errand *errand)
{
    sigset_t all, before;
    host_guard_mask(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errand->runs = pthread_create(&errand->thread, NULL, run_errand, errand) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void reader_get_all(struct provider *const *providers, uint32_t count, ns_t fresh_ns,
                    ns_t deadline_ns, int *errors)
{
    struct errand errands[GROUP_MEMBERS_MAX + 1];
    for (uint32_t i = 0; i < count; i++)
        errands[i] = (struct errand){
            .provider = providers[i], .fresh_ns = fresh_ns, .deadline_ns = deadline_ns};
    for (uint32_t i = 1; i < count; i++)
        start_errand(&errands[i]);
    for (uint32_t i = 0; i < count; i++)
        if (!errands[i].runs)
            run_errand(&errands[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (errands[i].runs)
            pthread_join(errands[i].thread, NULL);
        errors[i] = errands[i].error;
    }
}
