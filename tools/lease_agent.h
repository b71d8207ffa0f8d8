/* What the files of `lease-agent` share. */
#ifndef TOOLS_LEASE_AGENT_H
#define TOOLS_LEASE_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/config.h"
#include "agent/fleet_config.h"
#include "agent/lease.h"
#include "broker/limits.h"

enum exit_code {
    EXIT_FINE = 0,
    EXIT_USAGE = 64,
    EXIT_UNAVAILABLE = 69,
    EXIT_INTERNAL = 70,
    EXIT_SAID = 1000, /* all was said: end with EXIT_FINE */
};

/* Of the command line; text points into argv. */
struct flags {
    const char *name, *dir, *config, *publish, *advertise;
    const char *providers[PROVIDERS_MAX];
    const char *listen[FLEET_LISTEN_MAX];
    const char *peers[FLEET_CONFIG_PEERS_MAX];
    size_t provider_count, listen_count, peer_count;
    bool beacon, relay, insecure;
    uint16_t beacon_port;
};

/* Flags and configuration as one; text is borrowed from both. */
struct wishes {
    const char *name, *dir, *publish, *relay, *advertise;
    const char *providers[2 * PROVIDERS_MAX];
    const char *listen[CONFIG_ENDPOINTS_MAX];
    const char *peers[CONFIG_ENDPOINTS_MAX + FLEET_CONFIG_PEERS_MAX];
    size_t provider_count, listen_count, peer_count;
    bool beacon, is_relay, insecure;
    uint16_t beacon_port;
};

/* One line on stderr, made printable. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* ---- lease_agent_flags.c ---------------------------------------------------------------- */

/* 0: go on; else the exit code, after one line. */
int flags_read(int argc, char **argv, struct flags *flags);
int flags_configuration(const struct flags *flags, struct config *config);

/* Flags win over the file, what is a list of things to know is joined. Warns of what has no effect. */
void wishes_take(const struct flags *flags, const struct config *config, struct wishes *wishes);

/* The agent's, without its label. */
void wishes_options(const struct wishes *wishes, struct lease_options *options);

/* ---- lease_agent_relay.c: nothing but passing on, until SIGTERM or SIGINT -------------------- */

int relay_serve(const struct wishes *wishes, int signal_fd);

#endif
