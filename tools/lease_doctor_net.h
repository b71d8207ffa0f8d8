/* lease doctor: looking at the network. Everything has a deadline, and what can be asked at once is. */
#ifndef TOOLS_LEASE_DOCTOR_NET_H
#define TOOLS_LEASE_DOCTOR_NET_H

#include <stddef.h>
#include <stdint.h>

#include "agent/endpoint.h"
#include "broker/limits.h"

/* One endpoint: set `endpoint`; the rest is what came of it. */
struct dial {
    char endpoint[ENDPOINT_SIZE];
    char numeric[ENDPOINT_SIZE]; /* with its address, "" where it has none */
    int error; /* 0: connected; an errno; EAI_... never: ENOENT is "no such name" */
};

/* Finds the addresses of all and connects to them, each within timeout_ms. */
void dial_all(struct dial *dials, size_t count, int timeout_ms);

/* Who answered at an endpoint. */
struct greeting {
    int error; /* LEASE_E...; 0: it is a lease-agent */
    char name[NAME_SIZE], version[NAME_SIZE];
    char id[33];
    char publish[ENDPOINT_SIZE]; /* where it is heard, "" not told */
};

/* Asks all of them who they are, within timeout_ms in all; those with an error are passed over. */
void greet_all(const struct dial *dials, size_t count, int timeout_ms, struct greeting *greetings);

/* The process that listens at this TCP port of this host and its name, 0: nobody, or it is somebody
 * else's and cannot be told. */
uint32_t port_holder(uint16_t port, char *name, size_t size);

#endif
