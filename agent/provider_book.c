/* The book of a provider: how it is opened, and the one way in which it is changed. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/group.h"
#include "agent/probe.h"
#include "agent/remote.h"
#include "broker/host_clock.h"
#include "broker/host_epoch.h"
#include "broker/host_random.h"

static int provider_step_locked(struct provider *provider, struct event *event,
                                struct effects *effects, int64_t budget_ms,
                                struct host_wakes *owed);
static void settle_probed(struct provider *provider);

/* ---- the book -------------------------------------------------------------------------------- */

static void settings_of(const struct provider *provider, struct book_settings *settings)
{
    book_settings_default(settings);
    const struct provider_spec *spec = provider_spec(provider);
    if (!spec)
        return;
    settings->slots = spec->slots > 0 ? (uint32_t)spec->slots : 0;
    settings->probed = spec->engine != ENGINE_STATIC;
    settings->source = probe_source(spec);
}

static uint64_t epoch_of_new_book(const struct provider *provider)
{
    if (host_table_was_initialised(provider->agent->directory.fd, provider->name))
        return (uint64_t)time(NULL) + 1; /* counts only where it is of another boot */
    return host_epoch_next(provider->name, 0);
}

/* Of a book that another host owns: epochs are its owner's. */
static bool is_copy(struct provider *provider)
{
    struct route route;
    return !provider->owned &&
           (provider->mirrored ||
            (remote_route(provider->agent, provider->name, false, &route) && route.endpoint[0]));
}

static int open_host_tier(struct provider *provider, bool create)
{
    struct lease_agent *agent = provider->agent;
    struct host_table_options options = {
        .instance = host_random_u64() | 1,
        .epoch = create && !is_copy(provider) ? epoch_of_new_book(provider) : 1,
        .mode = agent->directory.file_mode,
        .create = create,
    };
    int error = host_table_open(&provider->host, agent->directory.fd, provider->name,
                                provider->book, &options);
    if (error < 0)
        return error;
    if (provider->host.cut_short && provider->loss == LOSS_NONE)
        snprintf(
            provider->warning, sizeof provider->warning,
            "somebody cut the book of %s short: a new one is begun, and who holds leases takes "
            "them again in it",
            provider->name);
    if (provider->host.made)
        atomic_store(&provider->settled_ns, host_now_ns() + SETTLE_BOOK_MS * NS_PER_MS);
    provider->words = host_table_words(&provider->host);
    provider->reach = LEASE_REACH_HOST;
    provider->table = &provider->host.table; /* last: now it is open */
    return 0;
}

static int open_process_tier(struct provider *provider)
{
    if (!provider->memory)
        provider->memory = calloc(1, sizeof *provider->memory);
    if (!provider->memory)
        return LEASE_ENOMEM;
    table_memory_init(provider->memory);
    book_found(provider->book, host_random_u64() | 1, (uint64_t)time(NULL));
    book_clean(provider->book);
    provider->words = &provider->own_words;
    provider->reach = LEASE_REACH_PROCESS;
    provider->table = &provider->memory->table;
    return 0;
}

static void blank_book(struct provider *provider)
{
    struct book_settings settings;
    settings_of(provider, &settings);
    book_init(provider->book, provider->name, &settings);
    const struct provider_spec *spec = provider_spec(provider);
    if (spec && spec->group[0]) { /* until the others were looked at */
        provider->book->group_limit = provider->book->neighbour_count = 1;
        provider->book->neighbours[0] =
            (struct neighbour){.name = "another", .in_use = true, .leased = true};
    }
    broker_init(&provider->broker, provider->book, NULL); /* no answer is lost here */
}

void provider_settle_settings(struct provider *provider)
{
    pthread_mutex_lock(&provider->mutex);
    if (provider->book) {
        settings_of(provider, &provider->book->settings);
        settle_probed(provider);
    }
    pthread_mutex_unlock(&provider->mutex);
}

/* Why the book cannot be used, with the mend where there is one. */
static void describe_trouble(const struct provider *provider, int error, char *text, size_t size)
{
    char name[HOST_TABLE_NAME_SIZE];
    struct stat status;
    host_table_name(provider->name, name);
    bool there = fstatat(provider->agent->directory.fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (error == LEASE_ENOSPC)
        snprintf(text, size, "%s: free some, or set LEASE_DIR to another directory",
                 lease_error_text(error));
    else if (error == LEASE_EPERM && there && S_ISLNK(status.st_mode))
        snprintf(text, size, "%s is a symbolic link: remove it", name);
    else if (error == LEASE_EPERM && there && !S_ISREG(status.st_mode))
        snprintf(text, size, "%s is %s: remove it", name,
                 S_ISDIR(status.st_mode) ? "a directory" : "no regular file");
    else if (error == LEASE_EPERM && there)
        snprintf(text, size, "%s belongs to uid %u, mode %03o, and not to you", name,
                 (unsigned)status.st_uid, (unsigned)status.st_mode & 0777);
    else
        snprintf(text, size, "%s", lease_error_text(error));
}

static void warn_of_fallback(struct provider *provider, int error)
{
    char trouble[150];
    describe_trouble(provider, error, trouble, sizeof trouble);
    snprintf(provider->warning, sizeof provider->warning,
             "the book of %s in %s cannot be used (%s): only this process knows its leases",
             provider->name, provider->agent->directory.path, trouble);
}

/* An agent serves this host, so that its processes could meet in its book: deciding alone would be
 * deciding against them. The agent itself has nobody else. */
static bool must_not_go_alone(const struct provider *provider, int error)
{
    struct lease_agent *agent = provider->agent;
    bool spoilt = error == LEASE_ENOSPC || error == LEASE_ELAYOUT || error == LEASE_EDAMAGED;
    return spoilt && !(agent->flags & LEASE_OPEN_DAEMON) && !agent->speaker &&
           reader_has_speaker(agent);
}

/* What is fixed is told to the book once, so that processes to which the provider was not declared
 * know that nobody can be asked. The caller holds provider->mutex. */
static void tell_static(struct provider *provider)
{
    struct book *book = provider->book;
    const struct reading *last = &book->sight.reading;
    const struct provider_spec *spec = provider_spec(provider);
    settle_probed(provider);
    if (!spec || spec->engine != ENGINE_STATIC ||
        (book->sight.slots_last == spec->slots && last->slots_total == spec->slots))
        return;
    struct reading reading;
    struct effects effects;
    struct event event = {.kind = EVENT_READING, .reading = &reading};
    if (probe_now(spec, PROBE_QUICK, last, PROBE_MS, host_now_ns, &reading) == 0)
        provider_step_locked(provider, &event, &effects, LOCK_BUDGET_MS, NULL);
}

/* The caller holds provider->mutex. */
static int open_locked(struct provider *provider, bool create)
{
    if (provider->table)
        return 0;
    if (!provider->book)
        provider->book = malloc(sizeof *provider->book);
    if (!provider->book)
        return LEASE_ENOMEM;
    blank_book(provider);
    int error = LEASE_EUNKNOWN;
    if (provider->agent->has_directory) {
        error = open_host_tier(provider, create);
        if (error == LEASE_ELOCKED)
            return error; /* somebody makes it just now: that is no reason to decide alone */
        if (must_not_go_alone(provider, error))
            return error;
        if (error < 0 && error != LEASE_EUNKNOWN) {
            warn_of_fallback(provider, error);
            blank_book(provider);
            error = open_process_tier(provider);
        }
    } else if (create) {
        error = open_process_tier(provider);
    }
    if (error < 0)
        return error;
    tell_static(provider);
    return provider->table ? 0 : LEASE_ELOCKED; /* it was spoilt again meanwhile: another time */
}

int provider_open(struct provider *provider)
{
    if (atomic_load_explicit(&provider->table, memory_order_acquire))
        return 0;
    bool create = provider_spec(provider) || is_copy(provider);
    pthread_mutex_lock(&provider->mutex);
    int error = open_locked(provider, create);
    pthread_mutex_unlock(&provider->mutex);
    return error < 0 ? error : group_join(provider);
}

int provider_open_copy(struct provider *provider)
{
    int error = 0;
    if (!atomic_load_explicit(&provider->table, memory_order_acquire)) {
        pthread_mutex_lock(&provider->mutex);
        provider->mirrored = true;
        error = open_locked(provider, true);
        pthread_mutex_unlock(&provider->mutex);
    }
    return error < 0 ? error : group_join(provider);
}

void provider_settle(struct provider *provider)
{
    ns_t until = atomic_load_explicit(&provider->settled_ns, memory_order_relaxed);
    if (until == 0)
        return;
    ns_t left = until - host_now_ns();
    struct timespec pause = {0, (long)left};
    if (left > 0 && left <= SETTLE_BOOK_MS * NS_PER_MS)
        nanosleep(&pause, NULL);
    atomic_compare_exchange_strong(&provider->settled_ns, &until, 0);
}

/* ---- the way of every change ----------------------------------------------------------------- */

/* Threads may sleep on the words of the table that is left: its mapping stays for a while. */
static void leave_table(struct provider *provider)
{
    if (provider->retired_count == RETIRED_MAX) {
        host_table_unmap(provider->retired[0]);
        provider->retired_count--;
        memmove(provider->retired, provider->retired + 1,
                provider->retired_count * sizeof provider->retired[0]);
    }
    struct host_file *file = host_table_detach(&provider->host);
    if (file)
        provider->retired[provider->retired_count++] = file;
    provider->table = NULL;
    provider->words = &provider->own_words;
    provider->reach = LEASE_REACH_NONE;
}

/* Nobody else may notice that what was in the book is gone: it is told. The caller holds
 * provider->mutex. */
static void note_loss(struct provider *provider, enum book_loss loss)
{
    const struct lease_agent *agent = provider->agent;
    uint64_t one = 1;
    if (provider->loss != LOSS_NONE || loss == LOSS_NONE)
        return;
    provider->loss = loss;
    if (agent->event_fd >= 0 && write(agent->event_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it is readable, which is all that matters */
}

bool provider_take_loss(struct provider *provider, char *text, size_t size)
{
    static const char *const what[] = {"", "was removed", "was cut short or spoilt",
                                       "was cut short"};
    pthread_mutex_lock(&provider->mutex);
    enum book_loss loss = provider->loss;
    provider->loss = LOSS_NONE;
    if (loss != LOSS_NONE)
        snprintf(text, size, "the book of %s %s: %s", provider->name, what[loss],
                 provider->reach == LEASE_REACH_HOST
                     ? "a new one is begun, and who holds leases takes them again in it"
                     : "leases are known to this process only");
    pthread_mutex_unlock(&provider->mutex);
    return loss != LOSS_NONE;
}

/* The directory was removed under us, or the file spoilt: what was in the book is gone, a new one
 * begins. */
static int reopen(struct provider *provider, enum book_loss loss)
{
    note_loss(provider, loss);
    leave_table(provider);
    int error = agent_find_directory_again(provider->agent);
    return error < 0 ? error : open_locked(provider, true);
}

void provider_move(struct provider *provider, enum book_loss loss)
{
    pthread_mutex_lock(&provider->mutex);
    if (provider->reach == LEASE_REACH_HOST) {
        note_loss(provider, loss);
        leave_table(provider);
        open_locked(provider, true);
    }
    pthread_mutex_unlock(&provider->mutex);
}

static int begin(struct provider *provider, int64_t budget_ms)
{
    int error = provider->table ? 0 : open_locked(provider, true); /* it could not be opened anew */
    if (error < 0)
        return error;
    uint64_t instance = provider->book->head.instance;
    error = table_begin(provider->table, provider->book, budget_ms);
    if (error == 0 && provider->book->head.instance != instance)
        note_loss(provider, LOSS_REPLACED);
    bool lost = error == LEASE_EVANISHED || error == LEASE_EDAMAGED;
    if (!lost || provider->reach != LEASE_REACH_HOST)
        return error;
    error = reopen(provider, error == LEASE_EVANISHED ? LOSS_REMOVED : LOSS_SPOILT);
    return error < 0 ? error : table_begin(provider->table, provider->book, budget_ms);
}

/* Whether readings can be had: what nobody declared here may be known by what the book says, which others
 * write. The caller holds provider->mutex. */
static void settle_probed(struct provider *provider)
{
    struct book *book = provider->book;
    const struct provider_spec *spec = provider_spec(provider);
    if (!spec)
        book->settings.probed = strcmp(book->sight.reading.engine, engine_name(ENGINE_STATIC)) != 0;
    else
        book->settings.probed = spec->engine != ENGINE_STATIC;
    if (provider->blind)
        book->settings.probed = 0;
}

/* When the book was locked: the clock is read once for both. */
static ns_t begun_ns(const struct provider *provider)
{
    return provider->reach == LEASE_REACH_HOST ? provider->host.lock.taken_ns : host_now_ns();
}

/* The caller holds provider->mutex. owed: who sleeps is to be woken later, by provider_wake. */
static int provider_step_locked(struct provider *provider, struct event *event,
                                struct effects *effects, int64_t budget_ms, struct host_wakes *owed)
{
    int error = begin(provider, budget_ms);
    if (error < 0)
        return error;
    settle_probed(provider);
    event->now = begun_ns(provider);
    broker_step(&provider->broker, event, effects);
    bool changed = book_is_dirty(provider->book);
    if (changed || effects->note_count > 0)
        table_commit(provider->table, provider->book, effects, event->now);
    struct host_wakes wakes = {0};
    if (changed)
        wakes = host_words_mark(provider->words, effects);
    table_end(provider->table);
    if (!owed) {
        host_words_wake(provider->words, wakes);
        return 0;
    }
    owed->all = owed->all || wakes.all;
    owed->called |= wakes.called;
    return 0;
}

static int step_in_group(struct provider *provider, bool blind, struct event *event,
                         struct effects *effects, int64_t budget_ms, struct host_wakes *owed)
{
    int error = group_enter(provider, budget_ms);
    if (error < 0)
        return error;
    pthread_mutex_lock(&provider->mutex);
    provider->blind = blind;
    error = provider_step_locked(provider, event, effects, budget_ms, owed);
    provider->blind = false;
    if (blind && provider->table)
        settle_probed(provider);
    pthread_mutex_unlock(&provider->mutex);
    group_leave(provider, error < 0 ? NULL : effects);
    return error;
}

int provider_step(struct provider *provider, struct event *event, struct effects *effects,
                  int64_t budget_ms)
{
    return step_in_group(provider, false, event, effects, budget_ms, NULL);
}

int provider_step_owing(struct provider *provider, struct event *event, struct effects *effects,
                        int64_t budget_ms, struct host_wakes *owed)
{
    return step_in_group(provider, false, event, effects, budget_ms, owed);
}

void provider_wake(struct provider *provider, struct host_wakes *owed)
{
    struct host_wakes wakes = *owed;
    if (!wakes.all && !wakes.called)
        return;
    *owed = (struct host_wakes){0};
    pthread_mutex_lock(&provider->mutex);
    host_words_wake(provider->words, wakes);
    pthread_mutex_unlock(&provider->mutex);
}

int provider_step_blind(struct provider *provider, struct event *event, struct effects *effects,
                        int64_t budget_ms)
{
    return step_in_group(provider, true, event, effects, budget_ms, NULL);
}

void provider_follow(struct provider *provider)
{
    static const struct effects none_happened;
    pthread_mutex_lock(&provider->mutex);
    bool new = provider->table && !provider->owned && !book_is_copy(provider->book);
    if (new &&begin(provider, LOCK_BUDGET_MS) == 0) {
        mirror_begin(provider->book);
        if (book_is_dirty(provider->book))
            table_commit(provider->table, provider->book, &none_happened, begun_ns(provider));
        table_end(provider->table);
    }
    pthread_mutex_unlock(&provider->mutex);
}

int provider_look(struct provider *provider)
{
    if (!provider->table)
        return LEASE_EVANISHED;
    uint64_t instance = provider->book->head.instance;
    int error = table_look(provider->table, provider->book);
    if (provider->book->head.instance != instance)
        note_loss(provider, LOSS_REPLACED);
    if (error == 0)
        settle_probed(provider);
    return error;
}

/* ---- the dead -------------------------------------------------------------------------------- */

static bool is_dead(const struct record *record, enum reap how)
{
    const struct holder *holder = &record->holder;
    bool looked_at = record->state == RECORD_HELD || record->state == RECORD_DISPATCHED ||
                     (record->state == RECORD_WAITING && how == REAP_ALL);
    if (!looked_at || !holder->local || holder->pid == 0 || (record->flags & RECORD_NO_HOLDER))
        return false;
    enum host_liveness liveness =
        how == REAP_ALL ? host_process_check(holder->pid, holder->pid_start, holder->pid_space)
                        : host_process_glance(holder->pid, holder->pid_space);
    return liveness == HOST_PROCESS_DEAD;
}

static uint32_t find_dead(const struct book *book, enum reap how, uint16_t *dead)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < book->live_count; i++)
        if (is_dead(&book->records[book->live[i]], how))
            dead[count++] = book->live[i];
    return count;
}

/* Those who are found without the lock are looked at once more, under it: nobody shall wait for it
 * while we read about processes. The caller holds provider->mutex. */
static int reap_locked(struct provider *provider, enum reap how, struct effects *effects,
                       int64_t budget_ms)
{
    uint16_t dead[BOOK_CELLS];
    struct event event = {.kind = EVENT_DEAD, .dead = dead};
    int error = begin(provider, budget_ms);
    if (error < 0)
        return error;
    event.dead_count = find_dead(provider->book, how, dead);
    struct host_wakes wakes = {0};
    if (event.dead_count > 0) {
        event.now = host_now_ns();
        broker_step(&provider->broker, &event, effects);
        table_commit(provider->table, provider->book, effects, event.now);
        wakes = host_words_mark(provider->words, effects);
    }
    table_end(provider->table);
    host_words_wake(provider->words, wakes);
    return (int)event.dead_count;
}

static bool anybody_died(struct provider *provider, enum reap how)
{
    uint16_t dead[BOOK_CELLS];
    pthread_mutex_lock(&provider->mutex);
    bool any = provider_look(provider) < 0 || find_dead(provider->book, how, dead) > 0;
    pthread_mutex_unlock(&provider->mutex);
    return any;
}

int provider_reap(struct provider *provider, enum reap how, int64_t budget_ms)
{
    struct effects effects;
    if (!anybody_died(provider, how))
        return 0;
    int result = group_enter(provider, budget_ms);
    if (result < 0)
        return result;
    pthread_mutex_lock(&provider->mutex);
    result = reap_locked(provider, how, &effects, budget_ms);
    pthread_mutex_unlock(&provider->mutex);
    group_leave(provider, result > 0 ? &effects : NULL);
    return result;
}

/* Asked through a handle of its own: the book's may be in use, or could not be opened. */
static uint32_t who_sits_on(struct lease_agent *agent, const char *name)
{
    char file[HOST_TABLE_NAME_SIZE];
    struct host_lock lock;
    uint32_t pid = 0;
    host_table_name(name, file);
    pthread_mutex_lock(&agent->directory_mutex);
    int dir = agent->has_directory ? agent->directory.fd : -1;
    if (dir >= 0 && host_lock_open(&lock, dir, file, HOST_LOCK_READ, 0) == 0) {
        pid = host_lock_holder(&lock);
        host_lock_close(&lock);
    }
    pthread_mutex_unlock(&agent->directory_mutex);
    return pid;
}

struct host_words *provider_words(struct provider *provider)
{
    pthread_mutex_lock(&provider->mutex);
    struct host_words *words = provider->words;
    if (provider->reach == LEASE_REACH_HOST && !host_table_is_whole(&provider->host))
        words = &provider->own_words;
    pthread_mutex_unlock(&provider->mutex);
    return words;
}

void provider_lock_text(struct lease_agent *agent, const char *name, char *text, size_t size)
{
    uint32_t pid = who_sits_on(agent, name);
    if (pid)
        snprintf(text, size, "book locked by pid %u, continue or end that process", pid);
    else
        snprintf(text, size, "book locked by another process, try again");
}
