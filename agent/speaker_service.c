/* What a speaker answers over ipc. */
#define _GNU_SOURCE

#include <stdio.h>
#include <string.h>

#include "agent/speaker.h"
#include "broker/host_clock.h"

static void fill_sender(const struct speaker *speaker, struct message *reply)
{
    const struct lease_agent *agent = speaker->agent;
    snprintf(reply->name, sizeof reply->name, "%s", agent->host);
    snprintf(reply->version, sizeof reply->version, "%s", LEASEHOLD_VERSION);
    memcpy(reply->id, speaker->id, sizeof reply->id);
    reply->kind = MESSAGE_DAEMON; /* no other has a socket */
    reply->pid = agent->self.pid;
}

static void fill_state(const struct speaker *speaker, struct message *reply)
{
    reply->uptime_ms = (uint64_t)((host_now_ns() - speaker->started_ns) / NS_PER_MS);
    snprintf(reply->directory, sizeof reply->directory, "%s", speaker->agent->directory.path);
    for (uint32_t i = 0; i < speaker->prober_count && i < WIRE_PROVIDERS_MAX; i++)
        snprintf(reply->providers[reply->provider_count++], sizeof reply->providers[0], "%s",
                 speaker->probers[i]->provider->name);
}

static int answer_read(struct speaker *speaker, const struct message *request)
{
    for (uint32_t i = 0; i < speaker->prober_count; i++) {
        struct provider *provider = speaker->probers[i]->provider;
        if (strcmp(provider->name, request->provider) == 0) {
            host_words_demand(provider_words(provider));
            return 0;
        }
    }
    return LEASE_EUNKNOWN;
}

static int answer(void *arg, const struct message *request, struct message *reply)
{
    struct speaker *speaker = arg;
    switch (request->op) {
    case MESSAGE_HELLO:
    case MESSAGE_STATUS:
        fill_sender(speaker, reply);
        fill_state(speaker, reply);
        return 0;
    case MESSAGE_YIELD:
        wire_copy_text(reply->text, sizeof reply->text, "a daemon yields to nobody");
        return LEASE_EDAEMON;
    case MESSAGE_READ: return answer_read(speaker, request);
    default: return LEASE_EINVAL;
    }
}

/* A speaker that cannot bind works on without answering, which doctor tells. An embedded one does not
 * bind: see request_yield in speaker.c. */
int speaker_service_open(struct speaker *speaker)
{
    if (!(speaker->agent->flags & LEASE_OPEN_DAEMON))
        return 0;
    const char *path = speaker->agent->directory.path;
    int error = service_open(path, answer, speaker, &speaker->service);
    return error == LEASE_ENOMEM ? error : 0;
}

void speaker_service_close(struct speaker *speaker)
{
    service_close(&speaker->service);
}
