/* lease-agent: speaks for a host. It keeps the readings of its providers fresh, reaps what has
 * ended, and answers over ipc. SIGTERM and SIGINT end it, SIGHUP reads the configuration again. */
#define _GNU_SOURCE

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/lease.h"
#include "broker/record.h"
#include "tools/standard_streams.h"

enum exit_code { EXIT_FINE = 0, EXIT_USAGE = 64, EXIT_UNAVAILABLE = 69, EXIT_INTERNAL = 70 };

struct flags {
    const char *name, *dir, *config;
    const char *providers[PROVIDERS_MAX];
    size_t provider_count;
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    char raw[1024], line[sizeof raw];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    text_copy(line, sizeof line, raw); /* names and paths may be anybody's */
    fprintf(stderr, "lease-agent: %s\n", line);
}

static void print_help(void)
{
    fputs(
        "usage: lease-agent [--name HOST] [--provider NAME=SPEC]... [--config FILE] [--dir DIR]\n"
        "\n"
        "Speaks for this host: keeps readings fresh, reaps leases that have ended, answers over\n"
        "ipc. SPEC is http://host:port, ENGINE+http://..., or static:N, with options after commas\n"
        "(slots=N, model=NAME, url=URL, own=yes|no, key-file=PATH).\n"
        "\n"
        "  --name HOST           this host's name; the machine's by default\n"
        "  --provider NAME=SPEC  a provider, may be repeated; wins over the configuration's\n"
        "  --config FILE         instead of the usual configuration file\n"
        "  --dir DIR             the runtime directory\n"
        "  --version, --help\n"
        "\n"
        "SIGHUP reads the configuration again, SIGTERM and SIGINT end it.\n"
        "\n"
        "exit codes:\n"
        "   0  ended by a signal\n"
        "  64  usage, or a configuration that cannot be read\n"
        "  69  another daemon speaks for the directory, or no directory can be used\n"
        "  70  internal\n",
        stdout);
}

/* ---- flags and configuration ----------------------------------------------------------------- */

static int take_flag(int option, struct flags *flags)
{
    switch (option) {
    case 'n': flags->name = optarg; return 0;
    case 'd': flags->dir = optarg; return 0;
    case 'c': flags->config = optarg; return 0;
    case 'p':
        if (flags->provider_count == PROVIDERS_MAX) {
            say("more than %d providers", PROVIDERS_MAX);
            return EXIT_USAGE;
        }
        flags->providers[flags->provider_count++] = optarg;
        return 0;
    case 'f':
        say("that flag needs the fleet tier, which this version does not have");
        return EXIT_USAGE;
    default: say("see lease-agent --help"); return EXIT_USAGE;
    }
}

/* 0: go on; else the exit code, EXIT_FINE + 1000 where all was said. */
#define EXIT_SAID 1000

static int read_flags(int argc, char **argv, struct flags *flags)
{
    static const struct option options[] = {{"name", required_argument, NULL, 'n'},
                                            {"provider", required_argument, NULL, 'p'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"listen", required_argument, NULL, 'f'},
                                            {"publish", required_argument, NULL, 'f'},
                                            {"peer", required_argument, NULL, 'f'},
                                            {"advertise", required_argument, NULL, 'f'},
                                            {"http", required_argument, NULL, 'f'},
                                            {"beacon", no_argument, NULL, 'f'},
                                            {"relay", no_argument, NULL, 'f'},
                                            {"insecure", no_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    int option, error = 0;
    while (error == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h') {
            print_help();
            return EXIT_SAID;
        }
        if (option == 'v') {
            puts("lease-agent " LEASEHOLD_VERSION);
            return EXIT_SAID;
        }
        error = take_flag(option, flags);
    }
    if (error == 0 && optind < argc) {
        say("'%s' is not an option, see lease-agent --help", argv[optind]);
        error = EXIT_USAGE;
    }
    return error;
}

static int read_configuration(const struct flags *flags, struct config *config)
{
    char path[CONFIG_PATH_SIZE], error[CONFIG_ERROR_SIZE];
    memset(config, 0, sizeof *config);
    if (!config_find(flags->config, path))
        return 0;
    if (config_load(path, config, error) < 0) {
        say("%s", error);
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < config->warnings.count; i++)
        say("%s", config->warnings.items[i]);
    return 0;
}

/* ---- the agent ------------------------------------------------------------------------------- */

static int open_agent(const struct flags *flags, const struct config *config, lease_agent_t **agent)
{
    const char *providers[2 * PROVIDERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < config->providers.count && count < PROVIDERS_MAX; i++)
        providers[count++] = config->providers.items[i];
    for (size_t i = 0; i < flags->provider_count; i++)
        providers[count++] = flags->providers[i];
    struct lease_options options = {.size = sizeof options,
                                    .directory = flags->dir ? flags->dir : config->dir,
                                    .host = flags->name ? flags->name : config->name,
                                    .label = "lease-agent",
                                    .providers = providers,
                                    .provider_count = count,
                                    .flags = LEASE_OPEN_DAEMON};
    char error[512];
    int result = lease_agent_open(&options, agent, error, sizeof error);
    if (result < 0) {
        say("%s", error[0] ? error : lease_strerror(result));
        return result == LEASE_EINVAL    ? EXIT_USAGE
               : result == LEASE_EDAEMON ? EXIT_UNAVAILABLE
                                         : EXIT_INTERNAL;
    }
    if (lease_agent_reach(*agent) < LEASE_REACH_HOST) {
        say("%s", lease_agent_warning(*agent));
        lease_agent_close(agent);
        return EXIT_UNAVAILABLE;
    }
    if (lease_agent_warning(*agent)[0])
        say("%s", lease_agent_warning(*agent));
    say("speaks for %s, %zu provider%s", lease_agent_directory(*agent), count,
        count == 1 ? "" : "s");
    return 0;
}

/* The new configuration is read before the old agent goes: a bad one changes nothing. Leases lie in
 * the books and are not touched by the change of speakers. */
static int reload(const struct flags *flags, struct config *config, lease_agent_t **agent)
{
    struct config fresh;
    if (read_configuration(flags, &fresh) != 0) {
        say("the configuration stays as it was");
        return 0;
    }
    lease_agent_close(agent);
    int error = open_agent(flags, &fresh, agent);
    if (error == 0) {
        config_free(config);
        *config = fresh;
        return 0;
    }
    config_free(&fresh);
    say("goes on with the configuration as it was");
    return open_agent(flags, config, agent);
}

static void say_events(lease_agent_t *agent)
{
    struct lease_event event;
    while (lease_event_next(agent, &event) == 0 && event.kind != LEASE_EVENT_NONE)
        if (event.kind == LEASE_EVENT_BOOK)
            say("%s", event.reason);
}

/* The next signal; what the agent has to tell meanwhile is said. */
static int await_signal(int signal_fd, lease_agent_t *agent)
{
    for (;;) {
        struct pollfd files[] = {{.fd = signal_fd, .events = POLLIN},
                                 {.fd = lease_event_fd(agent), .events = POLLIN}};
        struct signalfd_siginfo signal;
        poll(files, 2, -1);
        if (files[1].revents)
            say_events(agent);
        if (read(signal_fd, &signal, sizeof signal) == (ssize_t)sizeof signal)
            return (int)signal.ssi_signo;
    }
}

static int serve(const struct flags *flags, struct config *config, const sigset_t *signals)
{
    lease_agent_t *agent = NULL;
    int signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0) {
        say("signals cannot be taken: %m");
        return EXIT_INTERNAL;
    }
    int error = open_agent(flags, config, &agent);
    while (error == 0 && await_signal(signal_fd, agent) == SIGHUP)
        error = reload(flags, config, &agent);
    close(signal_fd);
    lease_agent_close(&agent);
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

int main(int argc, char **argv)
{
    occupy_standard_streams();
    raise_descriptor_limit();
    struct flags flags = {0};
    struct config config;
    int error = read_flags(argc, argv, &flags);
    if (error != 0)
        return error == EXIT_SAID ? EXIT_FINE : error;

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);

    error = read_configuration(&flags, &config);
    if (error == 0)
        error = serve(&flags, &config, &signals);
    config_free(&config);
    return error;
}
