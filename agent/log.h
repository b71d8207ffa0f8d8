/* What happened of late to a provider: the ring in its book, for `lease log`. */
#ifndef AGENT_LOG_H
#define AGENT_LOG_H

#include "agent/lease.h"

struct lease_log_entry {
    int64_t seq;
    int64_t wall_ms;        /* milliseconds since 1970, by this machine's clock now; for people */
    const char *kind;       /* acquired, go, refused, released, expired, lapsed, strangers, ... */
    const char *detail;     /* one line, "" for none */
    char id[LEASE_ID_SIZE]; /* "" where no lease is meant */
    char provider[LEASE_NAME_SIZE];
    char host[LEASE_NAME_SIZE];
    char label[LEASE_LABEL_SIZE];
    uint32_t pid;
    int32_t value;
};

/* Return false to end. The entry lives until it returns. */
typedef int lease_log_fn(const struct lease_log_entry *entry, void *arg);

/* Calls back for each entry with seq > after, oldest first. LEASE_EUNKNOWN, LEASE_EINVAL. */
int lease_log_read(lease_agent_t *agent, const char *provider, int64_t after, lease_log_fn *each,
                   void *arg);

#endif
