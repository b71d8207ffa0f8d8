/* What a speaker answers over ipc. */
#define _GNU_SOURCE

#include <stdio.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

static void fill_sender(const struct speaker *speaker, struct message *reply)
{
    const struct lease_agent *agent = speaker->agent;
    snprintf(reply->name, sizeof reply->name, "%s", agent->host);
    snprintf(reply->version, sizeof reply->version, "%s", LEASEHOLD_VERSION);
    memcpy(reply->id, speaker->id, sizeof reply->id);
    reply->kind = agent->flags & LEASE_OPEN_DAEMON ? MESSAGE_DAEMON : MESSAGE_EMBEDDED;
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

/* As for who looks at home: often enough, and no more often however many ask. */
static int answer_read(struct speaker *speaker, const struct message *request)
{
    for (uint32_t i = 0; i < speaker->prober_count; i++) {
        struct provider *provider = speaker->probers[i]->provider;
        if (strcmp(provider->name, request->provider) == 0) {
            host_words_watch(provider_words(provider), host_now_ns());
            return 0;
        }
    }
    return LEASE_EUNKNOWN;
}

static int answer_yield(const struct speaker *speaker, struct message *reply)
{
    if (!(speaker->agent->flags & LEASE_OPEN_DAEMON))
        return LEASE_EINVAL; /* that is asked by a file, not from afar */
    wire_copy_text(reply->text, sizeof reply->text, "a daemon yields to nobody");
    return LEASE_EDAEMON;
}

/* For the host's own people: whoever can open the socket in its directory. */
static int answer_forget(struct room *room, const struct message *request, struct message *reply)
{
    if (!service_is_local(room->speaker->service)) {
        wire_copy_text(reply->text, sizeof reply->text, "only the host's own processes say that");
        return LEASE_EPERM;
    }
    if (!fleet_forget(room->fleet, request->name))
        return LEASE_EUNKNOWN;
    room->own_ns = room->look_ns = 0; /* who owns what, and who is heard */
    room->routes_changed = true;
    room->written_ns = 0;
    return 0;
}

/* What concerns other hosts. */
static int answer_fleet(struct room *room, const struct message *request, struct message *reply)
{
    switch (request->op) {
    case MESSAGE_FETCH: return fetch_handle(room, request, reply);
    case MESSAGE_FORGET: return answer_forget(room, request, reply);
    case MESSAGE_ACQUIRE:
    case MESSAGE_VERIFY:
    case MESSAGE_RENEW:
    case MESSAGE_RELEASE: return asked_handle(room, request, reply);
    default: return LEASE_EINVAL;
    }
}

static int answer(void *arg, const struct message *request, struct message *reply)
{
    struct speaker *speaker = arg;
    switch (request->op) {
    case MESSAGE_HELLO:
    case MESSAGE_STATUS:
        fill_sender(speaker, reply);
        fill_state(speaker, reply);
        return speaker->room && request->op == MESSAGE_HELLO
                   ? hello_handle(speaker->room, request, reply)
                   : 0;
    case MESSAGE_YIELD: return answer_yield(speaker, reply);
    case MESSAGE_READ: return answer_read(speaker, request);
    default: return speaker->room ? answer_fleet(speaker->room, request, reply) : LEASE_EINVAL;
    }
}

/* A speaker that cannot bind works on without answering, which doctor tells. An embedded one binds only
 * where it is configured to answer other hosts: see request_yield in speaker.c. */
int speaker_service_open(struct speaker *speaker)
{
    bool daemon = speaker->agent->flags & LEASE_OPEN_DAEMON;
    if (!daemon && !room_wants_service(speaker))
        return 0;
    const char *path = daemon ? speaker->agent->directory.path : NULL;
    int error = service_open(path, answer, speaker, &speaker->service);
    return error == LEASE_ENOMEM ? error : 0;
}

void speaker_service_close(struct speaker *speaker)
{
    service_close(&speaker->service);
}
