#define _GNU_SOURCE
#include "tools/top_source.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/agent.h"
#include "broker/host_beat.h"
#include "broker/host_clock.h"
#include "broker/host_guard.h"
#include "broker/host_wait.h"
#include "broker/host_words.h"
#include "tools/lease_cli.h"

#define SPACING_NS (NS_PER_SEC / 5) /* between two looks, however much changes */
#define ASK_MS     500              /* for the peers, where we ask them ourselves */
#define BEAT_NS    (NS_PER_SEC / 5) /* between two looks at the agent's beat */

struct top_source {
    struct cli cli; /* configuration and agent */
    pthread_t thread;
    bool runs;
    bool has_peers; /* to be asked where no agent of this host hears them */
    _Atomic bool closing;
    _Atomic uint32_t call; /* moves when the thread is to end */
    _Atomic int64_t *delay_ms;
    int event_fd;
    pthread_mutex_t mutex; /* guards what follows */
    struct top_snapshot newest;
};

/* ---- opening --------------------------------------------------------------------------------- */

static int open_agent(struct top_source *source, char *error, size_t error_size)
{
    int rc = cli_open_agent(&source->cli, "leasetop", error, error_size);
    source->has_peers = cli_has_peers(&source->cli);
    return rc == 0 ? EXIT_DONE : rc == LEASE_EINVAL ? EXIT_USAGE : EXIT_INTERNAL;
}

int top_source_open(const struct top_source_options *options, struct top_source **opened,
                    char *error, size_t error_size)
{
    struct top_source *source = calloc(1, sizeof *source);
    error[0] = '\0';
    if (!source) {
        snprintf(error, error_size, "out of memory");
        return EXIT_INTERNAL;
    }
    struct cli *cli = &source->cli;
    cli->quiet = true; /* `lease` and `lease doctor` tell of warnings */
    cli->options.dir = options->dir;
    cli->options.config = options->config;
    for (size_t i = 0; i < options->provider_count && i < PROVIDERS_MAX; i++)
        cli->options.providers[cli->options.provider_count++] = options->providers[i];
    for (size_t i = 0; i < options->peer_count && i < PEER_OPTIONS_MAX; i++)
        cli->options.peers[cli->options.peer_count++] = options->peers[i];
    source->event_fd = -1;
    pthread_mutex_init(&source->mutex, NULL);
    int code = EXIT_USAGE;
    if (!cli_configure(cli))
        snprintf(error, error_size, "%s", cli->config_error);
    else
        code = open_agent(source, error, error_size);
    if (code != EXIT_DONE)
        top_source_close(&source);
    else
        *opened = source;
    return code;
}

void top_source_close(struct top_source **self)
{
    struct top_source *source = *self;
    if (!source)
        return;
    atomic_store(&source->closing, true);
    atomic_fetch_add(&source->call, 1);
    host_wake(&source->call, HOST_WAIT_ANY);
    if (source->runs)
        pthread_join(source->thread, NULL);
    if (source->event_fd >= 0)
        close(source->event_fd);
    lease_fleet_free(&source->newest.fleet);
    pthread_mutex_destroy(&source->mutex);
    cli_close(&source->cli);
    free(source);
    *self = NULL;
}

/* ---- looking --------------------------------------------------------------------------------- */

static void look_at_beat(const struct lease_agent *agent, struct top_snapshot *snapshot)
{
    struct host_beat beat;
    snapshot->silent_ms = -1;
    int fd = agent->has_directory ? host_beat_open(agent->directory.fd, false, 0) : -1;
    if (fd < 0)
        return;
    int64_t now_ns = host_now_ns();
    if (host_beat_read(fd, &beat) == 0 && beat.pid != 0) {
        /* the beat of a process that nobody has waited for looks alive for a while */
        snapshot->beats =
            host_beat_alive(&beat, now_ns) &&
            host_process_check(beat.pid, beat.pid_start, beat.pidns) != HOST_PROCESS_DEAD;
        snapshot->agent_pid = beat.pid;
        snapshot->silent_ms = now_ns > beat.beat_ns ? (now_ns - beat.beat_ns) / NS_PER_MS : 0;
    }
    close(fd);
}

int top_source_take(struct top_source *source, struct top_snapshot *snapshot)
{
    struct lease_agent *agent = source->cli.agent;
    *snapshot = (struct top_snapshot){.silent_ms = -1};
    agent_follow(agent); /* an agent may have begun in another directory */
    look_at_beat(agent, snapshot);
    if (!snapshot->beats && source->has_peers)
        lease_read(agent, ASK_MS); /* what they do not answer is shown with its age */
    int rc = lease_fleet(agent, &snapshot->fleet);
    snapshot->taken_ns = host_now_ns();
    return rc;
}

/* ---- following ------------------------------------------------------------------------------- */

struct watch {
    struct host_words *words;
    uint32_t seen;
};

/* What the change words say before the look; what changes after it, differs from that. */
static uint32_t read_words(const struct lease_agent *agent, struct watch *watches)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        watches[i].words = atomic_load(&agent->providers[i]->words);
        watches[i].seen = atomic_load_explicit(&watches[i].words->change, memory_order_acquire);
    }
    return count;
}

static bool has_changed(const struct watch *watches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (host_words_differ(watches[i].words, watches[i].seen))
            return true;
    return false;
}

/* True where a book has changed. Those beyond what can be slept on are looked at when it begins. */
static bool await_change(struct top_source *source, const struct watch *watches, uint32_t count,
                         int64_t until_ns)
{
    struct host_waited waited[HOST_WAIT_MAX];
    uint32_t called = atomic_load(&source->call);
    uint32_t slept_on = count < HOST_WAIT_MAX - 1 ? count : HOST_WAIT_MAX - 1;
    waited[0] = (struct host_waited){&source->call, called};
    for (uint32_t i = 0; i < slept_on; i++) {
        waited[i + 1].word = &watches[i].words->change;
        if (!host_words_arm(watches[i].words, watches[i].seen, &waited[i + 1].seen))
            return true;
    }
    if (has_changed(watches + slept_on, count - slept_on)) /* seen at the next beat at the latest */
        return true;
    int64_t left_ns = until_ns - host_now_ns();
    if (left_ns <= 0 || atomic_load(&source->closing))
        return false;
    if (host_wait_any(waited, slept_on + 1, left_ns) != HOST_WAIT_CHANGED)
        return false;
    return has_changed(watches, slept_on);
}

static void hand_over(struct top_source *source, struct top_snapshot *snapshot)
{
    uint64_t one = 1;
    pthread_mutex_lock(&source->mutex);
    lease_fleet_free(&source->newest.fleet);
    source->newest = *snapshot;
    pthread_mutex_unlock(&source->mutex);
    if (write(source->event_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

static bool agent_changed(struct top_source *source, bool beat_before)
{
    struct top_snapshot now = {0};
    look_at_beat(source->cli.agent, &now);
    return now.beats != beat_before;
}

/* Until there is reason to look again. */
static void rest(struct top_source *source, const struct watch *watches, uint32_t count, bool beats)
{
    int64_t looked_ns = host_now_ns();
    await_change(source, NULL, 0, looked_ns + SPACING_NS);
    while (!atomic_load(&source->closing)) {
        int64_t now_ns = host_now_ns();
        int64_t due_ns = looked_ns + atomic_load(source->delay_ms) * NS_PER_MS;
        int64_t until_ns = now_ns + BEAT_NS < due_ns ? now_ns + BEAT_NS : due_ns;
        if (now_ns >= due_ns || await_change(source, watches, count, until_ns) ||
            agent_changed(source, beats))
            return;
    }
}

static void *follow(void *arg)
{
    struct top_source *source = arg;
    struct watch watches[KNOWN_MAX];
    while (!atomic_load(&source->closing)) {
        struct top_snapshot snapshot;
        uint32_t count = read_words(source->cli.agent, watches);
        int rc = top_source_take(source, &snapshot);
        bool beats = snapshot.beats;
        if (rc == 0)
            hand_over(source, &snapshot);
        /* books that this look has found are watched from the next one on */
        rest(source, watches, count, beats);
    }
    return NULL;
}

int top_source_follow(struct top_source *source, _Atomic int64_t *delay_ms)
{
    sigset_t all, before;
    source->delay_ms = delay_ms;
    source->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (source->event_fd < 0)
        return -1;
    host_guard_mask(&all);
    sigdelset(&all, SIGSEGV); /* a fault that is blocked ends the process without giving the */
    sigdelset(&all, SIGFPE);  /* terminal back */
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    source->runs = pthread_create(&source->thread, NULL, follow, source) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return source->runs ? source->event_fd : -1;
}

bool top_source_next(struct top_source *source, struct top_snapshot *snapshot)
{
    uint64_t count;
    if (read(source->event_fd, &count, sizeof count) < 0)
        return false;
    pthread_mutex_lock(&source->mutex);
    *snapshot = source->newest;
    source->newest.fleet = NULL;
    pthread_mutex_unlock(&source->mutex);
    return snapshot->fleet != NULL;
}
