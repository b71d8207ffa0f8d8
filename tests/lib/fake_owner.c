#define _GNU_SOURCE
#include "tests/lib/fake_owner.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "broker/error.h"
#include "proto/gossip.h"

#define INSTANCE 0x0feedULL

/* ---- what it says ---------------------------------------------------------------------------- */

static void grant(struct fake_owner *owner, const struct message *request, struct message *reply)
{
    bool goes = request->op == MESSAGE_VERIFY || request->running;
    reply->verdict = request->op == MESSAGE_VERIFY    ? MESSAGE_GO
                     : request->op == MESSAGE_RELEASE ? MESSAGE_GONE
                                                      : MESSAGE_GRANTED;
    if (request->lease[0])
        memcpy(reply->lease, request->lease, sizeof reply->lease);
    else if (memcmp(request->req, owner->lost_req, sizeof request->req) == 0)
        memcpy(reply->lease, owner->lost_lease, sizeof reply->lease);
    else
        lease_id_format(request->provider, (struct lease_id){INSTANCE, ++owner->counter},
                        reply->lease);
    reply->token = ((uint64_t)FAKE_EPOCH << 20) + owner->counter;
    reply->left_ms = request->op == MESSAGE_RELEASE ? 0
                     : request->ttl_ms              ? request->ttl_ms
                     : goes                         ? 30000
                                                    : 10000;
    reply->dispatched = goes || request->op == MESSAGE_RENEW;
    reply->units = request->units ? request->units : 1;
    reply->slot_plus_1 = request->slot_plus_1;
}

/* One slot, and somebody of a third host at work in it. */
static size_t pack_state(const struct fake_owner *owner, const char *provider, uint8_t *bytes,
                         size_t size)
{
    struct gossip_lease lease = {.state = GOSSIP_DISPATCHED,
                                 .host = "third",
                                 .label = "somebody",
                                 .pid = 4242,
                                 .units = 1,
                                 .slot = -1,
                                 .left_ms = 20000,
                                 .age_ms = 500,
                                 .dispatched_ms = 400,
                                 .idle_ms = -1,
                                 .token = ((uint64_t)FAKE_EPOCH << 20) + 7,
                                 .place = 7};
    static _Thread_local struct gossip_state state;
    uint32_t next = 0;
    size_t used = 0;
    memset(&state, 0, sizeof state);
    memset(state.sender.id, 7, sizeof state.sender.id);
    snprintf(state.sender.name, sizeof state.sender.name, "%s", owner->name);
    snprintf(state.provider, sizeof state.provider, "%s", provider);
    state.epoch = FAKE_EPOCH;
    state.version = 50 + owner->counter;
    state.parts = 1;
    state.leases = 1;
    state.age_ms = 0;
    state.slots_total = 1;
    state.in_flight = state.queued = -1;
    snprintf(state.health, sizeof state.health, "ok");
    snprintf(state.signal, sizeof state.signal, "none");
    snprintf(state.engine, sizeof state.engine, "static");
    state.strangers_ms = -1;
    lease_id_format(provider, (struct lease_id){INSTANCE, 1000000}, lease.lease);
    return gossip_state_encode(&state, &lease, 1, &next, bytes, size, &used) == WIRE_OK ? used : 0;
}

static void refuse(const struct fake_owner *owner, const struct message *request,
                   struct message *reply)
{
    static _Thread_local uint8_t bytes[WIRE_STATE_MAX];
    reply->verdict = MESSAGE_NO;
    memcpy(reply->lease, request->lease, sizeof reply->lease);
    snprintf(reply->text, sizeof reply->text, "1 of 1 slot leased by the book of the owner");
    reply->state.at = bytes;
    reply->state.size = pack_state(owner, request->provider, bytes, sizeof bytes);
}

static int grant_and_lose(struct fake_owner *owner, const struct message *request,
                          struct message *reply)
{
    grant(owner, request, reply);
    memcpy(owner->lost_req, request->req, sizeof owner->lost_req);
    memcpy(owner->lost_lease, reply->lease, sizeof owner->lost_lease);
    return SERVICE_LATER;
}

/* 0, LEASE_E..., SERVICE_LATER. The caller holds the mutex. */
static int answer(struct fake_owner *owner, const struct message *request, struct message *reply)
{
    reply->epoch = FAKE_EPOCH;
    reply->state_version = 50 + owner->counter;
    int manner = owner->manner; /* clang switches on no atomic */
    switch (manner) {
    case FAKE_QUEUES:
        if (request->wait_ms > 0)
            return SERVICE_LATER;
        if (request->op == MESSAGE_RELEASE || request->op == MESSAGE_RENEW)
            grant(owner, request, reply);
        else
            refuse(owner, request, reply);
        return 0;
    case FAKE_LOSES: return grant_and_lose(owner, request, reply);
    case FAKE_LOSES_RUN:
        if (request->running)
            return grant_and_lose(owner, request, reply);
        grant(owner, request, reply);
        return 0;
    case FAKE_SILENT: return SERVICE_LATER;
    case FAKE_REFUSES: refuse(owner, request, reply); return 0;
    case FAKE_HAS_ENDED:
        reply->verdict = MESSAGE_GONE;
        snprintf(reply->text, sizeof reply->text, "the lease expired");
        return 0;
    case FAKE_ELSEWHERE:
        snprintf(reply->owner, sizeof reply->owner, "other");
        snprintf(reply->endpoint, sizeof reply->endpoint, "%s", owner->moved_to);
        return LEASE_ENOTOWNER;
    default:
        grant(owner, request, reply);
        reply->state_version = 50 + owner->counter;
        return 0;
    }
}

static void fill_sender(const struct fake_owner *owner, struct message *reply)
{
    snprintf(reply->name, sizeof reply->name, "%s", owner->name);
    snprintf(reply->version, sizeof reply->version, "0.1.0");
    memset(reply->id, 7, sizeof reply->id);
    reply->kind = MESSAGE_DAEMON;
    reply->pid = 1;
}

static size_t pack_beat(const struct fake_owner *owner, uint8_t *bytes, size_t size)
{
    static _Thread_local struct gossip_beat beat;
    size_t used = 0;
    memset(&beat, 0, sizeof beat);
    memset(beat.sender.id, 7, sizeof beat.sender.id);
    snprintf(beat.sender.name, sizeof beat.sender.name, "%s", owner->name);
    snprintf(beat.version, sizeof beat.version, "0.1.0");
    snprintf(beat.endpoint, sizeof beat.endpoint, "%s", owner->endpoint);
    beat.offer_count = 1;
    snprintf(beat.offers[0].provider, sizeof beat.offers[0].provider, "far");
    beat.offers[0].epoch = FAKE_EPOCH;
    return gossip_beat_encode(&beat, bytes, size, &used) == WIRE_OK ? used : 0;
}

static int answer_fetch(struct fake_owner *owner, const struct message *request,
                        struct message *reply)
{
    static _Thread_local uint8_t bytes[WIRE_STATE_MAX];
    struct message_bytes *field = request->provider[0] ? &reply->state : &reply->beat;
    fill_sender(owner, reply);
    field->at = bytes;
    field->size = request->provider[0] ? pack_state(owner, request->provider, bytes, sizeof bytes)
                                       : pack_beat(owner, bytes, sizeof bytes);
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int keep(struct fake_owner *owner, const struct message *request)
{
    struct service_asker *asker = service_keep(owner->service);
    if (!asker)
        return LEASE_EFULL;
    if (owner->manner == FAKE_QUEUES && owner->kept_count < 16)
        owner->kept[owner->kept_count++] = (struct kept){asker, *request};
    else
        service_answer(owner->service, &asker, NULL);
    return SERVICE_LATER;
}

static int handle(void *arg, const struct message *request, struct message *reply)
{
    struct fake_owner *owner = arg;
    int result = 0;
    pthread_mutex_lock(&owner->mutex);
    atomic_fetch_add(&owner->asked[request->op], 1);
    owner->last[request->op] = *request;
    if (request->op == MESSAGE_HELLO && owner->manner != FAKE_SILENT)
        fill_sender(owner, reply);
    else if (request->op == MESSAGE_FETCH && owner->manner != FAKE_SILENT)
        result = answer_fetch(owner, request, reply);
    else
        result = answer(owner, request, reply);
    if (result == SERVICE_LATER)
        result = keep(owner, request);
    pthread_mutex_unlock(&owner->mutex);
    return result;
}

/* Those that wait, once the manner is another one. */
static void answer_kept(struct fake_owner *owner)
{
    pthread_mutex_lock(&owner->mutex);
    for (uint32_t i = 0; owner->manner != FAKE_QUEUES && i < owner->kept_count; i++) {
        static _Thread_local struct message reply;
        message_reply(&reply, &owner->kept[i].request);
        int result = answer(owner, &owner->kept[i].request, &reply);
        reply.ok = result == 0;
        service_answer(owner->service, &owner->kept[i].asker,
                       result == SERVICE_LATER ? NULL : &reply);
    }
    if (owner->manner != FAKE_QUEUES)
        owner->kept_count = 0;
    pthread_mutex_unlock(&owner->mutex);
}

static void *serve(void *arg)
{
    struct fake_owner *owner = arg;
    while (!owner->stop) {
        zmq_pollitem_t item = {.socket = service_socket(owner->service), .events = ZMQ_POLLIN};
        zmq_poll(&item, 1, 5);
        service_run(owner->service);
        answer_kept(owner);
    }
    return NULL;
}

bool fake_owner_start_at(struct fake_owner *owner, const char *name, const char *endpoint)
{
    memset(owner, 0, sizeof *owner);
    snprintf(owner->name, sizeof owner->name, "%s", name);
    pthread_mutex_init(&owner->mutex, NULL);
    char bound[TCP_ENDPOINT_SIZE];
    if (service_open(NULL, handle, owner, &owner->service) < 0 ||
        service_bind(owner->service, endpoint, bound) < 0)
        return false;
    snprintf(owner->endpoint, sizeof owner->endpoint, "%s", bound);
    return pthread_create(&owner->thread, NULL, serve, owner) == 0;
}

bool fake_owner_start(struct fake_owner *owner, const char *name)
{
    return fake_owner_start_at(owner, name, "tcp://127.0.0.1:0");
}

void fake_owner_stop(struct fake_owner *owner)
{
    if (!owner->service)
        return;
    owner->stop = true;
    pthread_join(owner->thread, NULL);
    service_close(&owner->service);
    pthread_mutex_destroy(&owner->mutex);
}

uint32_t fake_owner_asked(struct fake_owner *owner, enum message_op op)
{
    return atomic_load(&owner->asked[op]);
}

void fake_owner_last(struct fake_owner *owner, enum message_op op, struct message *request)
{
    pthread_mutex_lock(&owner->mutex);
    *request = owner->last[op];
    pthread_mutex_unlock(&owner->mutex);
}
