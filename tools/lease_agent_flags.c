/* What lease-agent is told, by its command line and by the configuration. */
#define _GNU_SOURCE

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "tools/lease_agent.h"

static void print_help(void)
{
    fputs("usage: lease-agent [options]\n"
          "\n"
          "Speaks for this host: keeps readings fresh, reaps leases that have ended, answers over\n"
          "ipc, and, where it is told to, other hosts.\n"
          "\n"
          "  --name HOST           this host's name; the machine's by default\n"
          "  --provider NAME=SPEC  a provider, may be repeated; wins over the configuration's.\n"
          "                        SPEC is http://host:port, ENGINE+http://..., static:N, or\n"
          "                        exec:PROGRAM, with options after commas (slots=N, model=NAME,\n"
          "                        group=NAME, url=URL, own=yes|no, key-file=PATH)\n"
          "  --config FILE         instead of the usual configuration file\n"
          "  --dir DIR             the runtime directory\n"
          "  --version, --help\n"
          "\n"
          "more than one host (without these there is no socket but ipc):\n"
          "  --listen ENDPOINT     answer other hosts there, tcp://ADDRESS[:PORT], port 5771 by\n"
          "                        default, tcp://* for all addresses; may be repeated\n"
          "  --publish ENDPOINT    tell them there what happens; the port after that of --listen\n"
          "                        by default. relay=ENDPOINT: through the relay that is there\n"
          "  --advertise ENDPOINT  what they are to dial, where that is another address\n"
          "  --peer ENDPOINT[,name=PEER]\n"
          "                        another agent, tcp://HOST[:PORT]; may be repeated. One is\n"
          "                        enough, it tells of the others\n"
          "  --beacon[=PORT]       find others by broadcasts on the local network (UDP, 5771)\n"
          "  --insecure            listen beyond loopback although there are no keys: whoever\n"
          "                        reaches the port can take and end leases\n"
          "  --relay               be no agent, but pass on what agents publish, for more than\n"
          "                        200 hosts: they publish to --listen, and hear the next port\n"
          "\n"
          "SIGHUP reads the configuration again, peers included; SIGTERM and SIGINT end it.\n"
          "\n"
          "exit codes:\n"
          "   0  ended by a signal\n"
          "  64  usage, or a configuration that cannot be read\n"
          "  69  another daemon speaks for the directory, or no directory can be used; of a\n"
          "      relay: its port is in use\n"
          "  70  internal\n",
          stdout);
}

/* ---- the command line ------------------------------------------------------------------------ */

static int add(const char **list, size_t *count, size_t most, const char *what)
{
    if (*count == most) {
        say("more than %zu %s", most, what);
        return EXIT_USAGE;
    }
    list[(*count)++] = optarg;
    return 0;
}

static int take_beacon(struct flags *flags)
{
    char *end = NULL;
    unsigned long port = optarg ? strtoul(optarg, &end, 10) : WIRE_BEACON_PORT;
    if (port < 1 || port > 65535 || (end && *end)) {
        say("--beacon=%.40s is no port, take 1 to 65535", optarg);
        return EXIT_USAGE;
    }
    flags->beacon = true;
    flags->beacon_port = (uint16_t)port;
    return 0;
}

static int take_flag(int option, struct flags *flags)
{
    switch (option) {
    case 'n': flags->name = optarg; return 0;
    case 'd': flags->dir = optarg; return 0;
    case 'c': flags->config = optarg; return 0;
    case 'u': flags->publish = optarg; return 0;
    case 'a': flags->advertise = optarg; return 0;
    case 'r': flags->relay = true; return 0;
    case 'i': flags->insecure = true; return 0;
    case 'b': return take_beacon(flags);
    case 'p': return add(flags->providers, &flags->provider_count, PROVIDERS_MAX, "providers");
    case 'l':
        return add(flags->listen, &flags->listen_count, FLEET_LISTEN_MAX, "endpoints to listen at");
    case 'e': return add(flags->peers, &flags->peer_count, FLEET_CONFIG_PEERS_MAX, "peers");
    case 'f': say("--http is not in this version"); return EXIT_USAGE;
    default: say("see lease-agent --help"); return EXIT_USAGE;
    }
}

int flags_read(int argc, char **argv, struct flags *flags)
{
    static const struct option options[] = {{"name", required_argument, NULL, 'n'},
                                            {"provider", required_argument, NULL, 'p'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"listen", required_argument, NULL, 'l'},
                                            {"publish", required_argument, NULL, 'u'},
                                            {"peer", required_argument, NULL, 'e'},
                                            {"advertise", required_argument, NULL, 'a'},
                                            {"http", required_argument, NULL, 'f'},
                                            {"beacon", optional_argument, NULL, 'b'},
                                            {"relay", no_argument, NULL, 'r'},
                                            {"insecure", no_argument, NULL, 'i'},
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

/* ---- the configuration ----------------------------------------------------------------------- */

int flags_configuration(const struct flags *flags, struct config *config)
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

/* ---- both ------------------------------------------------------------------------------------ */

#define RELAY_PREFIX "relay="

static void warn_of_what_does_nothing(const struct wishes *wishes)
{
    if (wishes->advertise && wishes->listen_count == 0)
        say("warning: advertise without listen tells others of nothing, add --listen");
    if (wishes->peer_count > 0 && wishes->listen_count == 0)
        say("warning: without listen this host only asks: others can neither lease its slots nor "
            "hear of its leases, add --listen");
}

static void take_publish(struct wishes *wishes, const char *publish)
{
    bool relayed = publish && strncmp(publish, RELAY_PREFIX, strlen(RELAY_PREFIX)) == 0;
    wishes->publish = relayed ? NULL : publish;
    wishes->relay = relayed ? publish + strlen(RELAY_PREFIX) : NULL;
}

static void join(const char **to, size_t *count, size_t most, const char *const *from, size_t more)
{
    for (size_t i = 0; i < more && *count < most; i++)
        to[(*count)++] = from[i];
}

static const char *const *items(const struct config_list *list)
{
    return (const char *const *)(void *)list->items;
}

void wishes_take(const struct flags *flags, const struct config *config, struct wishes *wishes)
{
    memset(wishes, 0, sizeof *wishes);
    wishes->name = flags->name ? flags->name : config->name;
    wishes->dir = flags->dir ? flags->dir : config->dir;
    wishes->advertise = flags->advertise ? flags->advertise : config->advertise;
    take_publish(wishes, flags->publish ? flags->publish : config->publish);
    wishes->beacon = flags->beacon || config->beacon;
    wishes->beacon_port = flags->beacon ? flags->beacon_port : WIRE_BEACON_PORT;
    wishes->is_relay = flags->relay || config->relay;
    wishes->insecure = flags->insecure || config->insecure;
    join(wishes->providers, &wishes->provider_count, PROVIDERS_MAX, items(&config->providers),
         config->providers.count);
    join(wishes->providers, &wishes->provider_count, 2 * PROVIDERS_MAX, flags->providers,
         flags->provider_count);
    join(wishes->peers, &wishes->peer_count, CONFIG_ENDPOINTS_MAX, items(&config->peers),
         config->peers.count);
    join(wishes->peers, &wishes->peer_count, CONFIG_ENDPOINTS_MAX + FLEET_CONFIG_PEERS_MAX,
         flags->peers, flags->peer_count);
    if (flags->listen_count > 0)
        join(wishes->listen, &wishes->listen_count, FLEET_LISTEN_MAX, flags->listen,
             flags->listen_count);
    else
        join(wishes->listen, &wishes->listen_count, CONFIG_ENDPOINTS_MAX, items(&config->listen),
             config->listen.count);
    warn_of_what_does_nothing(wishes);
}

void wishes_options(const struct wishes *wishes, struct lease_options *options)
{
    *options = (struct lease_options){
        .size = sizeof *options,
        .directory = wishes->dir,
        .host = wishes->name,
        .providers = wishes->providers,
        .provider_count = wishes->provider_count,
        .peers = wishes->peers,
        .peer_count = wishes->peer_count,
        .listen = wishes->listen,
        .listen_count = wishes->listen_count,
        .publish = wishes->publish,
        .relay = wishes->relay,
        .advertise = wishes->advertise,
        .insecure = wishes->insecure,
        .flags = LEASE_OPEN_DAEMON | LEASE_OPEN_GUARD | (wishes->beacon ? LEASE_OPEN_FLEET : 0),
    };
}
