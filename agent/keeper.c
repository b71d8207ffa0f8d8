/* The keeper: a thread that renews this process's leases, and notices those that were lost. */
#define _GNU_SOURCE

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/book_watch.h"
#include "agent/keeper.h"
#include "agent/remote.h"
#include "broker/host_clock.h"
#include "broker/host_guard.h"

#define LOOK_MS 250 /* between two looks at the books of our leases */

uint32_t keeper_ttl_ms(const struct held *held)
{
    uint32_t usual = held->dispatched ? TTL_DISPATCHED_MS_DEFAULT : TTL_HELD_MS_DEFAULT;
    return held->ttl_ms ? held->ttl_ms : usual;
}

/* A third of the time to live leaves room for two failures. */
static ns_t next_renewal(const struct held *held, ns_t now)
{
    return now + (ns_t)keeper_ttl_ms(held) * NS_PER_MS / 3;
}

static void *keep(void *arg);

static void close_watch(struct lease_agent *agent)
{
    if (agent->watch_fd >= 0)
        close(agent->watch_fd);
    if (agent->wake_fd >= 0)
        close(agent->wake_fd);
    agent->watch_fd = agent->wake_fd = -1;
}

/* With the first lease; the caller holds held_mutex. All signals are the host's: none is delivered
 * to this thread. */
static int keeper_start(struct lease_agent *agent)
{
    sigset_t all, before;
    host_guard_mask(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    agent->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    agent->watch_fd = agent->wake_fd < 0 ? -1 : book_watch_open();
    agent->keeper_runs = pthread_create(&agent->keeper, NULL, keep, agent) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!agent->keeper_runs)
        close_watch(agent);
    return agent->keeper_runs ? 0 : LEASE_ENOMEM;
}

/* ---- the list -------------------------------------------------------------------------------- */

static struct held *find(struct lease_agent *agent, struct lease_id id)
{
    for (uint32_t i = 0; i < agent->held_used; i++)
        if (agent->held[i].id.counter != 0 &&
            (lease_id_equal(agent->held[i].id, id) || lease_id_equal(agent->held[i].known_as, id)))
            return &agent->held[i];
    return NULL;
}

static struct held *find_free(struct lease_agent *agent)
{
    for (uint32_t i = 0; i < agent->held_used; i++)
        if (agent->held[i].id.counter == 0)
            return &agent->held[i];
    return agent->held_used < AGENT_HELD_MAX ? &agent->held[agent->held_used++] : NULL;
}

int keeper_add(struct lease_agent *agent, const struct held *held, ns_t now)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find_free(agent);
    int error = entry ? 0 : LEASE_EFULL;
    if (entry) {
        *entry = *held;
        entry->known_as = held->id;
        entry->renew_ns = next_renewal(entry, now);
        agent->held_count++;
        agent->held_lately = true;
        if (agent->keeper_sleeps)
            pthread_cond_signal(&agent->held_changed);
        else if (!agent->keeper_runs)
            error = keeper_start(agent);
    }
    pthread_mutex_unlock(&agent->held_mutex);
    return error;
}

void keeper_dispatched(struct lease_agent *agent, struct lease_id id, uint32_t ttl_ms, bool named,
                       ns_t now)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, id);
    if (entry) {
        entry->dispatched = true;
        entry->named = named;
        if (ttl_ms)
            entry->ttl_ms = ttl_ms;
        entry->renew_ns = next_renewal(entry, now);
    }
    pthread_mutex_unlock(&agent->held_mutex);
}

/* The caller holds held_mutex. */
static uint32_t resolve(const struct held *entry, struct lease_id *id)
{
    if (!entry)
        return UINT32_MAX;
    *id = entry->id;
    return entry->cell;
}

uint32_t keeper_resolve(struct lease_agent *agent, struct lease_id *id)
{
    pthread_mutex_lock(&agent->held_mutex);
    uint32_t cell = resolve(find(agent, *id), id);
    pthread_mutex_unlock(&agent->held_mutex);
    return cell;
}

uint32_t keeper_remove(struct lease_agent *agent, struct lease_id *id)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, *id);
    uint32_t cell = resolve(entry, id);
    if (entry) {
        entry->id.counter = 0;
        agent->held_count--;
        while (agent->held_used > 0 && agent->held[agent->held_used - 1].id.counter == 0)
            agent->held_used--;
    }
    pthread_mutex_unlock(&agent->held_mutex);
    return cell;
}

void keeper_renewed(struct lease_agent *agent, struct lease_id id, bool named, bool unanswered,
                    ns_t now)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, id);
    if (entry) {
        entry->named = named;
        entry->unanswered = unanswered;
        entry->renew_ns = next_renewal(entry, now);
    }
    pthread_mutex_unlock(&agent->held_mutex);
}

bool keeper_replaced(struct lease_agent *agent, struct lease_id id, struct lease_id by,
                     uint32_t cell, bool named, ns_t now)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, id);
    if (entry) {
        entry->id = by;
        entry->cell = cell;
        entry->named = named;
        entry->asked_by = (struct request_id){0, 0};
        entry->renew_ns = next_renewal(entry, now);
    }
    pthread_mutex_unlock(&agent->held_mutex);
    return entry != NULL;
}

void keeper_put_off(struct lease_agent *agent, struct lease_id id, ns_t away_ns)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, id);
    if (entry)
        entry->away_ns = away_ns;
    pthread_mutex_unlock(&agent->held_mutex);
}

void keeper_asked(struct lease_agent *agent, struct lease_id id, struct request_id asked_by,
                  ns_t asked_ns)
{
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, id);
    if (entry) {
        entry->asked_by = asked_by;
        entry->asked_ns = asked_ns;
    }
    pthread_mutex_unlock(&agent->held_mutex);
}

/* ---- losing ---------------------------------------------------------------------------------- */

void keeper_report_lost(struct lease_agent *agent, struct lease_id id, enum reason reason,
                        enum record_end end)
{
    bool told = false;
    pthread_mutex_lock(&agent->held_mutex);
    struct held *entry = find(agent, id);
    if (entry && !entry->lost) {
        entry->lost = told = true;
        entry->reason = reason;
        entry->end = end;
    }
    pthread_mutex_unlock(&agent->held_mutex);
    uint64_t one = 1;
    if (told && agent->event_fd >= 0 && write(agent->event_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it is readable, which is all that matters */
}

/* What the book says now. Another book than the one that issued the lease stands in its place where
 * the runtime directory was changed or removed. */
enum standing keeper_look_up(const struct held *held, enum reason *reason, enum record_end *end)
{
    struct provider *provider = held->provider;
    enum standing standing = STANDS;
    pthread_mutex_lock(&provider->mutex);
    int error = provider->table ? provider_look(provider) : 0;
    if (error == LEASE_EVANISHED || error == LEASE_EDAMAGED) {
        standing = IS_ELSEWHERE;
    } else if (provider->table && error == 0) {
        const struct record *record = book_find(provider->book, held->id, held->cell);
        bool lives = record && record_is_live(record) && record->state != RECORD_ORPHAN;
        bool elsewhere = !record && provider->book->head.instance != held->id.instance;
        standing = lives ? STANDS : elsewhere ? IS_ELSEWHERE : IS_LOST;
        *reason = record ? REASON_ENDED : REASON_UNKNOWN_ID;
        *end = record ? (enum record_end)record->end : END_NONE;
    }
    pthread_mutex_unlock(&provider->mutex);
    return standing;
}

/* Taken again in the book that there is now: running work is counted there at once, an intention
 * has to be admitted like any other. The caller goes on using the id that it knows. */
static void take_again(struct lease_agent *agent, const struct held *held)
{
    struct request request = {.verb = VERB_ACQUIRE,
                              .flags = REQUEST_FIRST | (held->dispatched ? REQUEST_RUNNING : 0u),
                              .former = held->id,
                              .hint = UINT32_MAX,
                              .units = held->units,
                              .slot = held->slot,
                              .ttl_ms = held->ttl_ms,
                              .asked_ns = host_now_ns(),
                              .holder = held->holder};
    if (held->flags & LEASE_MAY_IDLE)
        request.flags |= REQUEST_MAY_IDLE;
    struct event event = {.kind = EVENT_REQUEST, .request = &request};
    struct effects effects;
    agent_request_id(&request.id);
    if (provider_step(held->provider, &event, &effects, LOCK_BUDGET_MS) < 0 ||
        effects.reply.verdict == ANSWER_UNREAD)
        return; /* tried again at the next look */
    if (effects.reply.verdict != ANSWER_GRANTED) {
        keeper_report_lost(agent, held->id, REASON_UNKNOWN_ID, END_NONE);
        return;
    }
    if (keeper_replaced(agent, held->id, effects.reply.lease, effects.reply.cell, false, event.now))
        return;
    request.verb = VERB_RELEASE; /* given back meanwhile */
    request.lease = effects.reply.lease;
    agent_request_id(&request.id);
    provider_step(held->provider, &event, &effects, LOCK_BUDGET_MS);
}

int keeper_step(const struct held *held, enum verb verb, struct effects *effects)
{
    struct request request = {.verb = verb,
                              .flags = REQUEST_FIRST,
                              .lease = held->id,
                              .hint = held->cell,
                              .ttl_ms = held->ttl_ms};
    struct event event = {.kind = EVENT_REQUEST, .request = &request};
    agent_request_id(&request.id);
    return provider_step(held->provider, &event, effects, LOCK_BUDGET_MS);
}

static void renew(struct lease_agent *agent, const struct held *held)
{
    struct effects effects;
    if (keeper_step(held, VERB_RENEW, &effects) < 0)
        return; /* tried again at the next look */
    if (effects.reply.verdict == ANSWER_GONE)
        keeper_report_lost(agent, held->id, effects.reply.reason, effects.reply.end);
    else
        keeper_renewed(agent, held->id, false, false, host_now_ns());
}

static void release(struct lease_agent *agent, const struct held *held)
{
    struct effects effects;
    struct lease_id id = held->id;
    if (keeper_step(held, VERB_RELEASE, &effects) == 0)
        keeper_remove(agent, &id);
}

bool keeper_renews(const struct held *held)
{
    return !(held->flags & (LEASE_NO_HOLDER | LEASE_NO_RENEW)) &&
           (!(held->flags & LEASE_BY_PID) || !held->dispatched);
}

/* From the second look on: the kernel takes 5 to 20 ms to close a descriptor of inotify that has
 * watched anything, which is more than all the rest of a command that ends at once. Until then the
 * looks themselves find out. */
static void watch(struct lease_agent *agent, const struct provider *provider)
{
    char path[HOST_DIR_PATH_MAX + 1];
    if (agent->watch_fd < 0 || !agent->has_directory)
        return;
    pthread_mutex_lock(&agent->directory_mutex);
    memcpy(path, agent->directory.path, sizeof path);
    pthread_mutex_unlock(&agent->directory_mutex);
    book_watch_add(agent->watch_fd, path, provider->name);
}

static void look_after(struct lease_agent *agent, const struct held *held)
{
    enum reason reason;
    enum record_end end;
    if (held->releasing) {
        release(agent, held);
        return;
    }
    if (held->untold) { /* nobody on another host is left to be told */
        struct lease_id id = held->id;
        keeper_remove(agent, &id);
        return;
    }
    enum standing standing = keeper_look_up(held, &reason, &end);
    if (standing == IS_LOST)
        keeper_report_lost(agent, held->id, reason, end);
    else if (standing == IS_ELSEWHERE)
        take_again(agent, held);
    else if (keeper_renews(held) && host_now_ns() >= held->renew_ns)
        renew(agent, held);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void sleep_ms(struct lease_agent *agent, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&agent->held_changed, &agent->held_mutex, &until);
}

/* The caller holds held_mutex, which is let go meanwhile. */
static void sleep_until_look(struct lease_agent *agent)
{
    if (agent->watch_fd < 0) {
        sleep_ms(agent, LOOK_MS);
        return;
    }
    pthread_mutex_unlock(&agent->held_mutex);
    book_watch_wait(agent->watch_fd, agent->wake_fd, LOOK_MS);
    pthread_mutex_lock(&agent->held_mutex);
}

/* The caller holds held_mutex, which is let go in between. Leases that other hosts know come in a round
 * of their own, after those of this host, which no silence of an owner shall delay: of those that are
 * silent one a round is waited for. */
static bool look_after_round(struct lease_agent *agent, bool away)
{
    bool any_away = false, answered = true;
    for (uint32_t i = 0; i < agent->held_used && answered; i++) {
        struct held held = agent->held[i];
        if (held.id.counter == 0 || held.lost)
            continue;
        agent->held[i].looked_at = true;
        pthread_mutex_unlock(&agent->held_mutex);
        struct route route;
        if (held.looked_at && !away)
            watch(agent, held.provider);
        bool is_away = !held.releasing && keeper_is_away(agent, &held, &route);
        any_away = any_away || is_away;
        if (is_away && away)
            answered = keeper_look_away(agent, &held, &route);
        else if (!is_away && !away)
            look_after(agent, &held);
        pthread_mutex_lock(&agent->held_mutex);
    }
    return any_away;
}

static void look_after_all(struct lease_agent *agent)
{
    pthread_mutex_unlock(&agent->held_mutex);
    agent_follow(agent);
    pthread_mutex_lock(&agent->held_mutex);
    if (look_after_round(agent, false))
        look_after_round(agent, true);
}

/* Nobody is woken for a lease that comes while looks are being taken anyway: a process that takes
 * and gives back thousands a second pays for no wake. It sleeps for good once there was none
 * between two looks. */
static void *keep(void *arg)
{
    struct lease_agent *agent = arg;
    pthread_mutex_lock(&agent->held_mutex);
    while (!atomic_load_explicit(&agent->closing, memory_order_relaxed)) {
        if (agent->held_count == 0 && !agent->held_lately) {
            agent->keeper_sleeps = true;
            pthread_cond_wait(&agent->held_changed, &agent->held_mutex);
            agent->keeper_sleeps = false;
            continue;
        }
        agent->held_lately = false;
        look_after_all(agent);
        if (!atomic_load_explicit(&agent->closing, memory_order_relaxed))
            sleep_until_look(agent);
    }
    pthread_mutex_unlock(&agent->held_mutex);
    return NULL;
}

void keeper_stop(struct lease_agent *agent)
{
    pthread_mutex_lock(&agent->held_mutex);
    bool runs = agent->keeper_runs;
    agent->keeper_runs = false;
    pthread_cond_broadcast(&agent->held_changed);
    pthread_mutex_unlock(&agent->held_mutex);
    if (!runs)
        return;
    if (agent->wake_fd >= 0)
        eventfd_write(agent->wake_fd, 1);
    pthread_join(agent->keeper, NULL);
    close_watch(agent);
}

/* ---- events ---------------------------------------------------------------------------------- */

int lease_event_fd(lease_agent_t *agent)
{
    return agent_check(agent) < 0 ? -1 : agent->event_fd;
}

static void fill_event(const struct held *held, struct lease_event *event)
{
    struct answer answer = {.verdict = ANSWER_GONE, .reason = held->reason, .end = held->end};
    event->kind = LEASE_EVENT_LOST;
    lease_id_format(held->provider->name, held->known_as, event->id);
    broker_reason_text(&answer, event->reason, sizeof event->reason);
}

/* False where no book was lost. */
static bool tell_of_book(struct lease_agent *agent, struct lease_event *event)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++)
        if (provider_take_loss(agent->providers[i], event->reason, sizeof event->reason)) {
            event->kind = LEASE_EVENT_BOOK;
            return true;
        }
    return false;
}

int lease_event_next(lease_agent_t *agent, struct lease_event *event)
{
    int error = agent_check(agent);
    if (error < 0)
        return error;
    memset(event, 0, sizeof *event);
    struct lease_id lost = {0, 0};
    pthread_mutex_lock(&agent->held_mutex);
    for (uint32_t i = 0; i < agent->held_used && lost.counter == 0; i++)
        if (agent->held[i].id.counter != 0 && agent->held[i].lost) {
            lost = agent->held[i].id;
            fill_event(&agent->held[i], event);
        }
    pthread_mutex_unlock(&agent->held_mutex);
    uint64_t drained;
    if (lost.counter != 0)
        keeper_remove(agent, &lost);
    else if (!tell_of_book(agent, event) && agent->event_fd >= 0 &&
             read(agent->event_fd, &drained, sizeof drained) < 0)
        return 0; /* nothing waited there either */
    return 0;
}
