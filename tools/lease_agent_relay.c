/* lease-agent --relay: passes on what agents publish, and speaks for nobody. */
#define _GNU_SOURCE

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/relay.h"
#include "broker/error.h"
#include "broker/host_clock.h"
#include "tools/lease_agent.h"

/* Where agents publish to, and the next port, where they hear it. 0, or an exit code after one line. */
static int places(const struct wishes *wishes, char *publish_to, char *heard_at)
{
    char error[FLEET_ERROR_SIZE] = "";
    struct lease_options options;
    struct endpoint endpoint;
    struct fleet_config *config = calloc(1, sizeof *config);
    if (!config)
        return EXIT_INTERNAL;
    wishes_options(wishes, &options);
    int rc = fleet_config_take(&options, config, error, sizeof error);
    if (rc < 0) {
        say("%s", error);
    } else if (config->listen_count != 1 || config->publish[0]) {
        say("--relay wants one --listen and no --publish: agents publish there and hear the next "
            "port");
        rc = LEASE_EINVAL;
    } else if (endpoint_parse(config->listen[0], &endpoint)) {
        bool any = endpoint.port == 0 || endpoint.port == 65535;
        endpoint_format(endpoint.host, any ? 0 : (uint16_t)(endpoint.port + 1), heard_at);
        strcpy(publish_to, config->listen[0]);
    }
    free(config);
    return rc < 0 ? EXIT_USAGE : 0;
}

static int open_relay(const struct wishes *wishes, struct relay **relay)
{
    char publish_to[ENDPOINT_SIZE], heard_at[ENDPOINT_SIZE];
    int code = places(wishes, publish_to, heard_at);
    if (code != 0)
        return code;
    int rc = relay_open(publish_to, heard_at, relay);
    if (rc == 0)
        return 0;
    say("%s and the next port cannot be had: %s", publish_to,
        rc == LEASE_EBUSY     ? "in use"
        : rc == LEASE_EABSENT ? "no address of this host"
                              : lease_error_text(rc));
    return rc == LEASE_EBUSY || rc == LEASE_EABSENT ? EXIT_UNAVAILABLE : EXIT_INTERNAL;
}

/* SIGHUP has nothing to read anew here. */
static bool is_to_end(int signal_fd)
{
    struct signalfd_siginfo info;
    return read(signal_fd, &info, sizeof info) == sizeof info && info.ssi_signo != SIGHUP;
}

/* Rounded up: a turn that comes too early would be one for nothing. */
static long sleep_ms(const struct relay *relay)
{
    ns_t due = relay_deadline(relay), now = host_now_ns();
    return due == NS_NEVER ? -1 : due <= now ? 0 : (long)((due - now + NS_PER_MS - 1) / NS_PER_MS);
}

int relay_serve(const struct wishes *wishes, int signal_fd)
{
    struct relay *relay = NULL;
    int code = open_relay(wishes, &relay), rc = 0;
    if (code != 0)
        return code;
    say("relays what is published to %s, heard at %s", relay_publish_to(relay),
        relay_heard_at(relay));
    for (;;) {
        zmq_pollitem_t items[2] = {{.fd = signal_fd, .events = ZMQ_POLLIN},
                                   {.socket = relay_socket(relay), .events = ZMQ_POLLIN}};
        if (zmq_poll(items, 2, sleep_ms(relay)) < 0 && errno != EINTR)
            rc = LEASE_EIO;
        if (rc < 0 || (items[0].revents && is_to_end(signal_fd)))
            break;
        rc = relay_run(relay);
    }
    relay_close(&relay);
    if (rc < 0)
        say("the relay's sockets are of no more use: %s", lease_error_text(rc));
    return rc < 0 ? EXIT_INTERNAL : EXIT_FINE;
}
