#define _GNU_SOURCE

#include "agent/speaker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"
#include "broker/host_epoch.h"
#include "broker/host_guard.h"
#include "broker/host_random.h"

#define BEAT_NS       NS_PER_SEC
#define YIELD_ASKED_S 3                /* so long an asking for the office counts */
#define TRY_NS        (NS_PER_SEC / 2) /* between two tries to take over */
#define YIELDED_NS    (3 * NS_PER_SEC) /* who yielded does not try again before */
#define SERVER_TRIES  30               /* of a daemon that asks an embedded agent to yield */
#define SERVER_TRY_MS 100

/* ---- taking and leaving the office ----------------------------------------------------------- */

void speaker_raise(struct book *book, uint64_t epoch)
{
    if (book_is_copy(book))
        mirror_becomes_owner(book, epoch);
    else
        book_raise_epoch(book, epoch);
}

/* Whoever becomes the owner's voice raises the epoch: tokens grow, nothing ends. */
static void raise_epochs(struct speaker *speaker)
{
    for (uint32_t i = 0; i < speaker->prober_count; i++) {
        struct provider *provider = speaker->probers[i]->provider;
        if (speaker->room && !provider->owned)
            continue; /* another host's to raise */
        pthread_mutex_lock(&provider->mutex);
        if (table_begin(provider->table, provider->book, LOCK_BUDGET_MS) == 0) {
            static const struct effects none_happened;
            uint64_t now = provider->book->head.epoch;
            speaker_raise(provider->book, host_epoch_next(provider->name, now));
            table_commit(provider->table, provider->book, &none_happened, host_now_ns());
            table_end(provider->table);
        }
        pthread_mutex_unlock(&provider->mutex);
    }
}

static void copy_providers(struct lease_agent *agent, struct effective *effective)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        const struct declared *declared = atomic_load(&agent->providers[i]->declared);
        if (!declared)
            continue;
        memcpy(effective->providers[effective->provider_count++].text, declared->text,
               EFFECTIVE_SPEC_SIZE);
    }
}

/* A daemon knows by itself what it is to be. */
static void inherit_fleet(struct lease_agent *agent, const struct fleet_config *left)
{
    if (agent->flags & LEASE_OPEN_DAEMON || atomic_load(&agent->fleet) || !fleet_config_is_on(left))
        return;
    struct fleet_config *fleet = malloc(sizeof *fleet);
    if (!fleet)
        return;
    *fleet = *left;
    atomic_store(&agent->fleet, fleet);
}

/* What the last speaker served is served on; its lasting id is kept. */
static void take_over(struct speaker *speaker, struct effective *effective)
{
    if (effective_read(speaker->agent->directory.path, effective) < 0)
        return;
    memcpy(speaker->id, effective->id, sizeof speaker->id);
    inherit_fleet(speaker->agent, &effective->fleet);
    for (uint32_t i = 0; i < effective->provider_count; i++) {
        char why[SPEC_ERROR_SIZE];
        if (!(speaker->agent->flags & LEASE_OPEN_DAEMON))
            provider_declare(speaker->agent, effective->providers[i].text, true, why);
    }
}

static int leave_word(struct speaker *speaker)
{
    struct lease_agent *agent = speaker->agent;
    struct effective *effective = calloc(1, sizeof *effective);
    if (!effective)
        return LEASE_ENOMEM;
    take_over(speaker, effective);
    memset(effective, 0, sizeof *effective);
    static const uint8_t none[16];
    if (memcmp(speaker->id, none, sizeof none) == 0) {
        uint64_t drawn[2] = {host_random_u64(), host_random_u64()};
        memcpy(speaker->id, drawn, sizeof drawn);
    }
    memcpy(effective->id, speaker->id, sizeof effective->id);
    memcpy(effective->name, agent->host, sizeof effective->name);
    snprintf(effective->version, sizeof effective->version, "%s", LEASEHOLD_VERSION);
    snprintf(effective->kind, sizeof effective->kind, "%s",
             agent->flags & LEASE_OPEN_DAEMON ? "daemon" : "embedded");
    effective->pid = agent->self.pid;
    copy_providers(agent, effective);
    const struct fleet_config *fleet = atomic_load(&agent->fleet);
    if (fleet)
        effective->fleet = *fleet;
    int error = effective_write(agent->directory.path, effective, agent->directory.file_mode);
    free(effective);
    return error;
}

static void write_beat(struct speaker *speaker, ns_t now)
{
    bool daemon = speaker->agent->flags & LEASE_OPEN_DAEMON;
    if (speaker->beat_fd >= 0)
        host_beat_write(speaker->beat_fd, daemon ? HOST_BEAT_DAEMON : HOST_BEAT_EMBEDDED);
    speaker->beat_ns = now + BEAT_NS;
}

/* The office is given back in the reverse order in which it was taken; what was never had is
 * passed over. */
static void leave(struct speaker *speaker)
{
    atomic_store(&speaker->watches, SPEAKER_WATCHES_DEMANDS);
    room_close(speaker);
    speaker_service_close(speaker);
    speaker_probers_free(speaker);
    http_close(&speaker->http);
    if (speaker->beat_fd >= 0)
        close(speaker->beat_fd);
    speaker->beat_fd = -1;
    if (host_lock_held(&speaker->lock))
        host_lock_release(&speaker->lock);
    host_lock_close(&speaker->lock);
}

static int try_lock(struct speaker *speaker)
{
    struct lease_agent *agent = speaker->agent;
    const struct host_dir *directory = &agent->directory;
    pthread_mutex_lock(&agent->directory_mutex);
    int error = host_lock_open(&speaker->lock, directory->fd, SPEAKER_LOCK_FILE, HOST_LOCK_CREATE,
                               directory->file_mode);
    pthread_mutex_unlock(&agent->directory_mutex);
    if (error == 0)
        error = host_lock_acquire(&speaker->lock, HOST_LOCK_EXCLUSIVE, 0);
    if (error < 0)
        host_lock_close(&speaker->lock);
    return error;
}

static int open_beat(struct lease_agent *agent)
{
    pthread_mutex_lock(&agent->directory_mutex);
    int fd = host_beat_open(agent->directory.fd, true, agent->directory.file_mode);
    pthread_mutex_unlock(&agent->directory_mutex);
    return fd;
}

static int enter(struct speaker *speaker)
{
    int error = try_lock(speaker);
    if (error < 0)
        return error;
    error = http_open(host_now_ns, &speaker->http);
    if (error == 0)
        error = leave_word(speaker);
    if (error == 0)
        error = speaker_probers_update(speaker);
    if (error == 0)
        error = speaker_service_open(speaker);
    if (error == 0)
        error = room_open(speaker);
    if (error < 0) {
        leave(speaker);
        return error;
    }
    unlinkat(speaker->agent->directory.fd, SPEAKER_YIELD_FILE, 0);
    raise_epochs(speaker);
    speaker->beat_fd = open_beat(speaker->agent);
    speaker->started_ns = host_now_ns();
    speaker->yields = false;
    speaker->moves = atomic_load(&speaker->agent->moves);
    write_beat(speaker, speaker->started_ns);
    return 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void set_state(struct speaker *speaker, enum speaker_state state)
{
    pthread_mutex_lock(&speaker->state_mutex);
    speaker->state = state;
    pthread_cond_broadcast(&speaker->state_changed);
    pthread_mutex_unlock(&speaker->state_mutex);
}

static bool should_stop(const struct speaker *speaker)
{
    return atomic_load_explicit(&speaker->stop, memory_order_acquire);
}

/* A daemon asked for the office just now; one that asked and died is forgotten. */
static bool is_asked_to_yield(const struct speaker *speaker)
{
    struct stat status;
    const struct lease_agent *agent = speaker->agent;
    return !(agent->flags & LEASE_OPEN_DAEMON) &&
           fstatat(agent->directory.fd, SPEAKER_YIELD_FILE, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           llabs((long long)time(NULL) - (long long)status.st_mtime) <= YIELD_ASKED_S;
}

static ns_t next_turn(struct speaker *speaker)
{
    ns_t probers = speaker_probers_deadline(speaker);
    ns_t room = speaker->room ? room_deadline(speaker->room) : NS_NEVER;
    return probers < room ? probers : room;
}

static void speak(struct speaker *speaker)
{
    set_state(speaker, SPEAKER_SPEAKING);
    while (!should_stop(speaker) && !speaker->yields &&
           speaker->moves == atomic_load(&speaker->agent->moves)) {
        ns_t now = host_now_ns();
        agent_follow(speaker->agent);
        speaker->yields = speaker->yields || is_asked_to_yield(speaker);
        if (now >= speaker->beat_ns)
            write_beat(speaker, now);
        if (speaker->room)
            room_wake(speaker->room);
        if (speaker->service && speaker->to_answer)
            service_run(speaker->service);
        speaker_probers_update(speaker);
        speaker_probers_run(speaker);
        if (speaker->room)
            room_run(speaker->room);
        ns_t until = next_turn(speaker);
        speaker_sleep(speaker, until < speaker->beat_ns ? until : speaker->beat_ns);
    }
    leave(speaker);
    speaker->next_try_ns = host_now_ns() + (speaker->yields ? YIELDED_NS : 0);
}

/* An embedded agent that found somebody else at it takes over when the kernel drops that lock. */
static void *run(void *arg)
{
    struct speaker *speaker = arg;
    bool daemon = speaker->agent->flags & LEASE_OPEN_DAEMON;
    while (!should_stop(speaker)) {
        agent_follow(speaker->agent);
        ns_t now = host_now_ns();
        if (now >= speaker->next_try_ns) {
            speaker->next_try_ns = now + TRY_NS;
            speaker->refusal = enter(speaker);
            if (speaker->refusal == 0) {
                speak(speaker);
                continue;
            }
            set_state(speaker, daemon ? SPEAKER_REFUSED : SPEAKER_LISTENING);
            if (daemon)
                return NULL;
        }
        speaker_sleep(speaker, speaker->next_try_ns);
    }
    return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static void free_speaker(struct speaker *speaker)
{
    close(speaker->wake_fd);
    pthread_cond_destroy(&speaker->state_changed);
    pthread_mutex_destroy(&speaker->outside.mutex);
    pthread_mutex_destroy(&speaker->state_mutex);
    free(speaker);
}

static struct speaker *new_speaker(struct lease_agent *agent)
{
    struct speaker *speaker = calloc(1, sizeof *speaker);
    if (!speaker)
        return NULL;
    speaker->agent = agent;
    speaker->beat_fd = -1;
    speaker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (speaker->wake_fd < 0) {
        free(speaker);
        return NULL;
    }
    pthread_mutex_init(&speaker->state_mutex, NULL);
    pthread_mutex_init(&speaker->outside.mutex, NULL);
    pthread_cond_init(&speaker->state_changed, NULL);
    return speaker;
}

/* All signals are the host's: none is delivered to these threads, nor to those that they start. */
static int start_threads(struct speaker *speaker)
{
    sigset_t all, before;
    host_guard_mask(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&speaker->thread, NULL, run, speaker) == 0 ? 0 : LEASE_ENOMEM;
    if (error == 0)
        speaker_watch_start(speaker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static enum speaker_state await_start(struct speaker *speaker)
{
    pthread_mutex_lock(&speaker->state_mutex);
    while (speaker->state == SPEAKER_STARTING)
        pthread_cond_wait(&speaker->state_changed, &speaker->state_mutex);
    enum speaker_state state = speaker->state;
    pthread_mutex_unlock(&speaker->state_mutex);
    return state;
}

static void stop_threads(struct speaker *speaker)
{
    uint64_t one = 1;
    atomic_store_explicit(&speaker->stop, 1, memory_order_release);
    while (write(speaker->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* a counter that is full is readable too */
    pthread_join(speaker->thread, NULL);
    speaker_watch_stop(speaker);
}

static int start_once(struct lease_agent *agent)
{
    struct speaker *speaker = new_speaker(agent);
    if (!speaker)
        return LEASE_ENOMEM;
    int error = start_threads(speaker);
    if (error == 0 && await_start(speaker) == SPEAKER_REFUSED) {
        stop_threads(speaker);
        error = speaker->refusal == LEASE_ELOCKED ? LEASE_EBUSY : speaker->refusal;
    }
    if (error < 0)
        free_speaker(speaker);
    else
        agent->speaker = speaker;
    return error;
}

/* By a file, not by a message: an embedded agent has no socket, since libzmq ends the process whose
 * descriptors run out when somebody connects, and that process is a stranger's. */
static void request_yield(const char *directory)
{
    char path[HOST_DIR_PATH_MAX + sizeof "/" SPEAKER_YIELD_FILE];
    snprintf(path, sizeof path, "%s/" SPEAKER_YIELD_FILE, directory);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        close(fd);
}

/* Who sits on the lock: an embedded agent is asked to yield, a daemon stays. */
static int ask_to_yield(struct lease_agent *agent, char *error, size_t error_size)
{
    struct effective *effective = calloc(1, sizeof *effective);
    if (!effective)
        return LEASE_ENOMEM;
    int result = effective_read(agent->directory.path, effective);
    bool daemon = result == 0 && strcmp(effective->kind, "daemon") == 0;
    if (daemon) {
        snprintf(
            error, error_size,
            "lease-agent of %s (pid %u) speaks for %s already, stop it or choose another --dir",
            effective->name, effective->pid, agent->directory.path);
        result = LEASE_EDAEMON;
    } else {
        snprintf(error, error_size, "an embedded agent (pid %u) speaks for %s and does not yield",
                 effective->pid, agent->directory.path);
        request_yield(agent->directory.path);
        result = 0; /* whether it does shows when we try again */
    }
    free(effective);
    return result;
}

/* Embedded agents that speak in other candidates yield too, and follow to where the daemon is. */
static void ask_the_others(struct lease_agent *agent)
{
    struct host_dir_candidate candidates[HOST_DIR_CANDIDATES_MAX];
    unsigned count = host_dir_candidates_of(&agent->places.places, candidates);
    for (unsigned i = 0; i < count; i++)
        if (candidates[i].alive && candidates[i].speaker_kind == HOST_BEAT_EMBEDDED &&
            strcmp(candidates[i].path, agent->directory.path) != 0)
            request_yield(candidates[i].path);
}

int speaker_start(struct lease_agent *agent, char *error, size_t error_size)
{
    if (agent->flags & LEASE_OPEN_DAEMON)
        ask_the_others(agent);
    int result = start_once(agent);
    bool daemon = agent->flags & LEASE_OPEN_DAEMON;
    for (int i = 0; daemon && result == LEASE_EBUSY && i < SERVER_TRIES; i++) {
        result = ask_to_yield(agent, error, error_size);
        if (result < 0)
            return result;
        struct timespec pause = {0, SERVER_TRY_MS * 1000000L};
        nanosleep(&pause, NULL);
        result = start_once(agent);
    }
    if (daemon && result < 0 && result != LEASE_EBUSY)
        snprintf(error, error_size, "%s in %s cannot be had: %s", SPEAKER_LOCK_FILE,
                 agent->directory.path, lease_error_text(result));
    return result;
}

void speaker_stop(struct lease_agent *agent)
{
    if (!agent->speaker)
        return;
    stop_threads(agent->speaker);
    free_speaker(agent->speaker);
    agent->speaker = NULL;
}
