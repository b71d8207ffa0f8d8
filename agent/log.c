#define _GNU_SOURCE

#include "agent/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "broker/host_clock.h"

static int64_t wall_ms_of(ns_t at_ns)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t now_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    return now_ms - (host_now_ns() - at_ns) / NS_PER_MS;
}

static void fill(const struct provider *provider, const struct log_entry *raw,
                 struct lease_log_entry *entry, char *detail, size_t size)
{
    memset(entry, 0, sizeof *entry);
    entry->seq = (int64_t)raw->seq;
    entry->wall_ms = wall_ms_of(raw->at_ns);
    entry->kind = note_name((enum note_kind)raw->kind);
    entry->pid = raw->pid;
    entry->value = raw->value;
    if (raw->lease.counter)
        lease_id_format(provider->name, raw->lease, entry->id);
    text_copy(entry->provider, sizeof entry->provider, provider->name);
    text_copy(entry->host, sizeof entry->host, raw->host);
    text_copy(entry->label, sizeof entry->label, raw->label);
    detail[0] = '\0';
    if (raw->kind == NOTE_HEALTH)
        snprintf(detail, size, "%s", health_name((enum health)raw->value));
    else if (raw->kind == NOTE_STRANGERS || raw->kind == NOTE_STRANGERS_GONE)
        snprintf(detail, size, "%d", raw->value);
    else if (raw->reason != REASON_NONE)
        snprintf(detail, size, "%s", reason_name((enum reason)raw->reason));
    entry->detail = detail;
}

static uint32_t copy_ring(struct provider *provider, int64_t after, struct log_entry *ring)
{
    uint64_t above = after > 0 ? (uint64_t)after : 0;
    if (provider->reach == LEASE_REACH_HOST)
        return host_table_log(&provider->host, above, ring);
    return table_memory_log(provider->memory, above, ring);
}

int lease_log_read(lease_agent_t *agent, const char *name, int64_t after, lease_log_fn *each,
                   void *arg)
{
    int error = agent_check(agent);
    struct provider *provider = error < 0 ? NULL : provider_find(agent, name, &error);
    if (!provider)
        return error;
    struct log_entry *ring = malloc(LOG_ENTRIES * sizeof *ring);
    if (!ring)
        return LEASE_ENOMEM;
    pthread_mutex_lock(&provider->mutex);
    uint32_t count = copy_ring(provider, after, ring);
    pthread_mutex_unlock(&provider->mutex);
    for (uint32_t i = 0; i < count; i++) {
        struct lease_log_entry entry;
        char detail[64];
        fill(provider, &ring[i], &entry, detail, sizeof detail);
        if (!each(&entry, arg))
            break;
    }
    free(ring);
    return 0;
}
