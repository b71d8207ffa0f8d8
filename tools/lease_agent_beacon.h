/* lease-agent --beacon: says on the local networks that it is there, and hears who else is
 * (proto/beacon.h).
 *
 * Plain sockets, on all networks at once: zbeacon takes the first that it finds, and ends the process on
 * what a firewall may answer. Point-to-point links (WireGuard, Tailscale) have no broadcasts.
 *
 * One thread. No network, a busy port, a network that comes later: said once, and tried again. */
#ifndef TOOLS_LEASE_AGENT_BEACON_H
#define TOOLS_LEASE_AGENT_BEACON_H

#include <stdint.h>

#include "agent/lease.h"

struct beacons;

/* NULL without memory; nothing else fails for good. */
struct beacons *beacons_open(uint16_t port);
void beacons_close(struct beacons **self);

/* For poll, -1 while the port cannot be had. */
int beacons_fd(const struct beacons *self);

/* Tells the agent whom it hears. Does not block. */
void beacons_hear(struct beacons *self, lease_agent_t *agent);

/* To be called each second at least: announces, now and then, where the agent answers. */
void beacons_announce(struct beacons *self, lease_agent_t *agent);

#endif
