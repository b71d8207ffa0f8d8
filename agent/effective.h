/* The effective configuration that a speaker leaves in the runtime directory, for its clients and
 * for whoever takes over: agent.json, 0600 or 0660 in a group's directory. */
#ifndef AGENT_EFFECTIVE_H
#define AGENT_EFFECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/fleet_config.h"
#include "agent/spec.h"
#include "broker/record.h"

#define EFFECTIVE_FILE      "agent.json"
#define EFFECTIVE_SPEC_SIZE 2048 /* of a provider's NAME=SPEC */

struct effective {
    char name[NAME_SIZE]; /* of the host */
    char version[16];
    char kind[16]; /* daemon, embedded */
    uint32_t pid;
    uint8_t id[16]; /* the agent's lasting id */
    uint32_t provider_count;
    struct {
        char text[EFFECTIVE_SPEC_SIZE]; /* NAME=SPEC */
    } providers[PROVIDERS_MAX];
    struct fleet_config fleet; /* what whoever takes over opens too */
};

/* LEASE_EABSENT: there is none; LEASE_EDAMAGED, LEASE_EPERM, LEASE_EIO. *effective is unchanged. */
int effective_read(const char *directory, struct effective *effective);

/* Replaces it as a whole; LEASE_EIO, LEASE_ENOSPC, LEASE_ENOMEM: the old one stays. */
int effective_write(const char *directory, const struct effective *effective, unsigned mode);

/* The NAME=SPEC of this provider in it; text has EFFECTIVE_SPEC_SIZE bytes. LEASE_EUNKNOWN. */
int effective_find(const char *directory, const char *name, char *text);

#endif
