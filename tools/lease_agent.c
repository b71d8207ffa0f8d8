/* lease-agent: speaks for a host. It keeps the readings of its providers fresh, reaps what has
 * ended, answers over ipc and, where it is told to, other hosts. SIGTERM and SIGINT end it, SIGHUP
 * reads the configuration again. */
#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/speaker_outside.h"
#include "broker/record.h"
#include "tools/lease_agent.h"
#include "tools/lease_agent_beacon.h"
#include "tools/standard_streams.h"

#define LOOK_MS 1000 /* where something can change by itself */

void say(const char *format, ...)
{
    char raw[1024], line[sizeof raw];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    text_copy(line, sizeof line, raw); /* names and paths may be anybody's */
    fprintf(stderr, "lease-agent: %s\n", line);
}

/* ---- the agent ------------------------------------------------------------------------------- */

struct daemon {
    const struct flags *flags;
    struct config config;
    struct wishes wishes;
    lease_agent_t *agent;
    struct beacons *beacons;
    struct speaker_place shown; /* as it was said last */
};

/* What changed about where other hosts reach us. */
static void show_place(struct daemon *daemon)
{
    struct speaker_place place;
    speaker_where(daemon->agent, &place);
    if (place.trouble[0] && strcmp(place.trouble, daemon->shown.trouble) != 0)
        say("%s%s", place.trouble, place.endpoint[0] ? "" : "; until then it only asks others");
    if (place.endpoint[0] && strcmp(place.endpoint, daemon->shown.endpoint) != 0)
        say("listens at %s", place.endpoint);
    daemon->shown = place;
}

static int say_why_not(int result, const char *error)
{
    say("%s", error[0] ? error : lease_strerror(result));
    return result == LEASE_EINVAL    ? EXIT_USAGE
           : result == LEASE_EDAEMON ? EXIT_UNAVAILABLE
                                     : EXIT_INTERNAL;
}

static int open_agent(struct daemon *daemon)
{
    struct lease_options options;
    char error[512];
    wishes_take(daemon->flags, &daemon->config, &daemon->wishes);
    wishes_options(&daemon->wishes, &options);
    options.label = "lease-agent";
    int result = lease_agent_open(&options, &daemon->agent, error, sizeof error);
    if (result < 0)
        return say_why_not(result, error);
    if (lease_agent_reach(daemon->agent) < LEASE_REACH_HOST) {
        say("%s", lease_agent_warning(daemon->agent));
        lease_agent_close(&daemon->agent);
        return EXIT_UNAVAILABLE;
    }
    if (lease_agent_warning(daemon->agent)[0])
        say("%s", lease_agent_warning(daemon->agent));
    size_t count = daemon->wishes.provider_count;
    say("speaks for %s, %zu provider%s", lease_agent_directory(daemon->agent), count,
        count == 1 ? "" : "s");
    memset(&daemon->shown, 0, sizeof daemon->shown);
    show_place(daemon);
    if (daemon->wishes.beacon)
        daemon->beacons = beacons_open(daemon->wishes.beacon_port);
    if (daemon->beacons)
        beacons_announce(daemon->beacons, daemon->agent);
    return 0;
}

static void close_agent(struct daemon *daemon)
{
    beacons_close(&daemon->beacons);
    lease_agent_close(&daemon->agent);
}

/* The new configuration is read before the old agent goes: a bad one changes nothing. Leases lie in
 * the books and are not touched by the change of speakers. */
static int reload(struct daemon *daemon)
{
    struct config fresh, former = daemon->config;
    if (flags_configuration(daemon->flags, &fresh) != 0) {
        say("the configuration stays as it was");
        return 0;
    }
    close_agent(daemon);
    daemon->config = fresh;
    int error = open_agent(daemon);
    if (error == 0) {
        config_free(&former);
        return 0;
    }
    config_free(&fresh);
    daemon->config = former;
    say("goes on with the configuration as it was");
    return open_agent(daemon);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* The daemon holds no lease: what it is told concerns its books. */
static void say_events(lease_agent_t *agent)
{
    struct lease_event event;
    while (lease_event_next(agent, &event) == 0 && event.kind != LEASE_EVENT_NONE)
        say("%s", event.reason);
}

static int take_signal(struct daemon *daemon, int signal_fd, bool *ended)
{
    struct signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof info) != sizeof info)
        return 0;
    *ended = info.ssi_signo != SIGHUP;
    return *ended ? 0 : reload(daemon);
}

static int serve(struct daemon *daemon, int signal_fd)
{
    bool ended = false;
    int error = open_agent(daemon);
    while (error == 0 && !ended) {
        const struct wishes *wishes = &daemon->wishes;
        bool looks = wishes->beacon || wishes->listen_count > 0 || wishes->publish;
        struct pollfd fds[3] = {{.fd = signal_fd, .events = POLLIN},
                                {.fd = beacons_fd(daemon->beacons), .events = POLLIN},
                                {.fd = lease_event_fd(daemon->agent), .events = POLLIN}};
        int ready = poll(fds, 3, looks ? LOOK_MS : -1);
        if (ready > 0 && fds[2].revents)
            say_events(daemon->agent);
        if (looks)
            show_place(daemon);
        if (daemon->beacons) {
            beacons_hear(daemon->beacons, daemon->agent);
            beacons_announce(daemon->beacons, daemon->agent);
        }
        if (ready > 0 && fds[0].revents)
            error = take_signal(daemon, signal_fd, &ended);
    }
    close_agent(daemon);
    return error;
}

/* Connections come from whoever may write in the directory: many cost descriptors. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Blocked in all threads that are begun later, and read here. */
static int take_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (fd < 0)
        say("no descriptor for signals: %s", strerror(errno));
    return fd;
}

int main(int argc, char **argv)
{
    static struct flags flags; /* both large */
    static struct daemon daemon = {.flags = &flags};
    occupy_standard_streams();
    raise_descriptor_limit();
    int error = flags_read(argc, argv, &flags);
    if (error != 0)
        return error == EXIT_SAID ? EXIT_FINE : error;
    int signal_fd = take_signals();
    error = signal_fd < 0 ? EXIT_INTERNAL : flags_configuration(&flags, &daemon.config);
    if (error == 0 && (flags.relay || daemon.config.relay)) {
        wishes_take(&flags, &daemon.config, &daemon.wishes);
        error = relay_serve(&daemon.wishes, signal_fd);
    } else if (error == 0) {
        error = serve(&daemon, signal_fd);
    }
    config_free(&daemon.config);
    return error;
}
