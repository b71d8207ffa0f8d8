/* What the speaker asks other hosts, a few questions at a time, none of which the loop waits for. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define ANSWER_NS (NS_PER_SEC)                 /* how long an answer is waited for */
#define OWE_NS    (NS_PER_SEC)                 /* between two tries to tell an owner */
#define LOOK_NS   (100 * NS_PER_MS)            /* an asker is to be looked at so often */
#define EYES_NS   (NS_PER_SEC / 2)             /* so often it is seen to who looks here */
#define TELL_NS   (WATCHED_MS * NS_PER_MS / 2) /* between two times that an owner is told */
#define TRIES_MAX 3 /* of a state whose version changed while it was fetched */

/* ---- asking ---------------------------------------------------------------------------------- */

static struct message *begin_request(struct room *room, enum message_op op)
{
    static const uint8_t drawn_by_the_asker[WIRE_ID_BYTES];
    const struct lease_agent *agent = room->speaker->agent;
    struct message *request = room->request;
    message_request(request, op, drawn_by_the_asker);
    snprintf(request->name, sizeof request->name, "%s", agent->host);
    memcpy(request->id, room->speaker->id, sizeof request->id);
    return request;
}

/* Who we are goes along, so that the other one need not ask back. */
static bool fill_hello(struct room *room, struct message *request)
{
    if (!room->endpoint[0])
        return true; /* nobody can reach us */
    request->beat.size = publish_pack_beat(room, room->bytes, WIRE_STATE_MAX);
    request->beat.at = room->bytes;
    return request->beat.size > 0;
}

static bool fill_obligation(struct room *room, const struct errand *errand, struct message *request)
{
    const struct obligation *owed = &room->obligations[errand->obligation];
    const struct voice *voice = room_voice(room, owed->provider);
    snprintf(request->provider, sizeof request->provider, "%s", owed->provider);
    lease_id_format(owed->provider, owed->id, request->lease);
    request->died = owed->what == OWED_DEATH;
    if (voice)
        request->epoch = room_epoch(voice);
    return voice != NULL;
}

/* The epoch that its owner is to go above, if it is not there: else nothing that it says is taken here. */
static uint64_t epoch_to_tell(struct room *room, const struct errand *errand)
{
    const struct voice *voice = room_voice(room, errand->provider);
    const struct fleet_offer *offer = fleet_offer_of(room->fleet, errand->peer, errand->provider);
    uint64_t epoch = voice ? room_copy(voice->provider).epoch : 0;
    bool former = voice && offer && offer->epoch == epoch &&
                  room_is_former(voice, (struct fact){offer->epoch, offer->version});
    return epoch + former;
}

static bool send_errand(struct room *room, struct errand *errand)
{
    static const enum message_op ops[] = {[ERRAND_HELLO] = MESSAGE_HELLO,
                                          [ERRAND_LIST] = MESSAGE_FETCH,
                                          [ERRAND_STATE] = MESSAGE_FETCH,
                                          [ERRAND_OBLIGATION] = MESSAGE_RELEASE,
                                          [ERRAND_LOOK] = MESSAGE_READ};
    bool renews = errand->kind == ERRAND_OBLIGATION &&
                  room->obligations[errand->obligation].what == OWED_RENEWAL;
    struct message *request = begin_request(room, renews ? MESSAGE_RENEW : ops[errand->kind]);
    bool good = true;
    if (errand->kind == ERRAND_HELLO)
        good = fill_hello(room, request);
    if (errand->kind == ERRAND_STATE || errand->kind == ERRAND_LOOK)
        snprintf(request->provider, sizeof request->provider, "%s", errand->provider);
    if (errand->kind == ERRAND_STATE) {
        request->part = errand->part;
        request->epoch = epoch_to_tell(room, errand);
    }
    if (errand->kind == ERRAND_OBLIGATION)
        good = fill_obligation(room, errand, request);
    errand->deadline_ns = host_now_ns() + ANSWER_NS;
    return good && ask_send(room->asker, errand->endpoint, request, &errand->ask) == 0;
}

static void end_errand(struct room *room, struct errand *errand)
{
    if (errand->kind == ERRAND_OBLIGATION)
        room->obligations[errand->obligation].busy = false;
    ask_end(&errand->ask);
    errand->kind = ERRAND_NONE;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_hello(struct room *room, struct errand *errand, const struct message *reply)
{
    char publish[FLEET_ENDPOINT_SIZE];
    bool is_self = memcmp(reply->id, room->speaker->id, sizeof reply->id) == 0;
    peers_hello_ended(room, errand->peer, true, is_self);
    if (is_self || gossip_beat_decode(reply->beat.at, reply->beat.size, room->beat) != WIRE_OK)
        return; /* a host that speaks, but of no fleet */
    peers_beside(errand->endpoint, room->beat->publish_port, publish);
    hear_beat(room, room->beat, errand->endpoint, publish, HEARD_ASKED);
}

static void take_list(struct room *room, const struct message *reply)
{
    struct gossip_peer *peers = malloc(WIRE_PEERS_MAX * sizeof *peers);
    uint32_t count = 0;
    ns_t now = host_now_ns();
    if (peers && gossip_peers_decode(reply->peers.at, reply->peers.size, peers, WIRE_PEERS_MAX,
                                     &count) != WIRE_OK)
        count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct endpoint endpoint;
        if (memcmp(peers[i].id, room->speaker->id, sizeof peers[i].id) != 0 &&
            room_peer_of(room, peers[i].id) == FLEET_NOBODY &&
            endpoint_parse(peers[i].endpoint, &endpoint) && endpoint_is_numeric(endpoint.host) &&
            fleet_tell(room->fleet, peers[i].name, peers[i].id, peers[i].endpoint, false, now) <
                FLEET_PEERS_MAX) {
            room->list_wait_ns = 0;
            room->look_ns = now;
        }
    }
    free(peers);
}

/* Whether the errand goes on, with another part. */
static bool take_state(struct room *room, struct errand *errand, const struct message *reply)
{
    uint32_t parts;
    if (hear_state(room, reply->state.at, reply->state.size, errand->peer, &parts) < 0)
        return false;
    errand->part++;
    if (errand->part == parts) {
        const struct fleet_offer *offer =
            fleet_offer_of(room->fleet, errand->peer, errand->provider);
        bool behind = offer && offer->applied_version == 0;
        if (!behind || parts == 1 || ++errand->tries == TRIES_MAX)
            return false;
        errand->part = 0; /* it changed between its parts */
    }
    return true;
}

static void fill_named(const struct record *record, const struct message *reply,
                       struct heard_named *named)
{
    struct heard_lease *lease = &named->lease;
    bool gone = reply->verdict == MESSAGE_GONE;
    named->epoch = reply->epoch;
    named->version = reply->state_version;
    lease->id = record->id;
    lease->state = gone ? RECORD_GONE : RECORD_DISPATCHED;
    lease->end = gone ? END_EXPIRED : END_NONE;
    lease->holder = record->holder;
    lease->units = record->units;
    lease->arrived = record->arrived;
    lease->slot = record->slot;
    lease->ttl_ms = record->ttl_ms;
    lease->left_ms = reply->left_ms < TTL_MS_MAX ? (int64_t)reply->left_ms : TTL_MS_MAX;
    lease->age_ms = 0;
    lease->dispatched_ms = 0;
    lease->idle_ms = -1;
    lease->token = record->token;
    lease->place = record->place;
    lease->may_idle = record->flags & RECORD_MAY_IDLE;
    lease->by_pid = record->flags & RECORD_BY_PID;
    lease->no_holder = record->flags & RECORD_NO_HOLDER;
}

/* What was renewed at its owner goes on in our copy. */
static void take_renewal(struct voice *voice, struct lease_id id, const struct message *reply)
{
    struct provider *provider = voice->provider;
    struct heard_named named = {.epoch = 0};
    struct event event = {.kind = EVENT_NAMED, .named = &named};
    struct effects effects;
    pthread_mutex_lock(&provider->mutex);
    struct record *record = provider->book ? book_find(provider->book, id, UINT32_MAX) : NULL;
    if (record) {
        ns_t now = host_now_ns();
        fill_named(record, reply, &named);
        named.lease.age_ms = (now - record->acquired_ns) / NS_PER_MS;
        named.lease.dispatched_ms = (now - record->dispatched_ns) / NS_PER_MS;
    }
    pthread_mutex_unlock(&provider->mutex);
    if (record)
        provider_step(provider, &event, &effects, 0);
}

static void take_obligation(struct room *room, struct errand *errand, const struct message *reply)
{
    struct obligation *owed = &room->obligations[errand->obligation];
    struct voice *voice = room_voice(room, owed->provider);
    if (voice && owed->what == OWED_RENEWAL)
        take_renewal(voice, owed->id, reply);
    owed->in_use = false;
}

/* Whether it goes on. */
static bool take_reply(struct room *room, struct errand *errand, const struct message *reply)
{
    switch (errand->kind) {
    case ERRAND_HELLO: take_hello(room, errand, reply); return false;
    case ERRAND_LIST: take_list(room, reply); return false;
    case ERRAND_STATE: return take_state(room, errand, reply);
    case ERRAND_OBLIGATION: take_obligation(room, errand, reply); return false;
    case ERRAND_LOOK: /* what it reads it publishes */
    case ERRAND_NONE: return false;
    }
    return false;
}

/* The owner is silent: our copy at least does not forget a lease whose process lives. */
static void keep_alive(struct room *room, const struct errand *errand)
{
    const struct obligation *owed = &room->obligations[errand->obligation];
    struct voice *voice = room_voice(room, owed->provider);
    if (!voice || owed->what != OWED_RENEWAL)
        return;
    struct request request = {
        .verb = VERB_RENEW, .flags = REQUEST_FIRST, .lease = owed->id, .hint = UINT32_MAX};
    struct event event = {.kind = EVENT_REQUEST, .request = &request};
    struct effects effects;
    agent_request_id(&request.id);
    provider_step(voice->provider, &event, &effects, 0);
}

static void run_errand(struct room *room, struct errand *errand)
{
    struct message *reply = room->reply;
    ns_t now = host_now_ns();
    int error = ask_receive(&errand->ask, reply, 0);
    if (error == LEASE_ETIMEOUT && now < errand->deadline_ns)
        return;
    bool goes_on = error == 0 && reply->ok && take_reply(room, errand, reply);
    if (error < 0 && errand->kind == ERRAND_HELLO)
        peers_hello_ended(room, errand->peer, false, false);
    if (error < 0 && errand->kind == ERRAND_OBLIGATION)
        keep_alive(room, errand);
    if (!goes_on || !send_errand(room, errand))
        end_errand(room, errand);
}

/* ---- what there is to do --------------------------------------------------------------------- */

void errands_owe(struct room *room, const char *provider, struct lease_id id, enum owed what,
                 ns_t until_ns)
{
    struct obligation *free_one = NULL;
    for (uint32_t i = 0; i < ROOM_OBLIGATIONS; i++) {
        struct obligation *owed = &room->obligations[i];
        if (!owed->in_use)
            free_one = free_one ? free_one : owed;
        else if (lease_id_equal(owed->id, id) && owed->what == what)
            return;
    }
    if (!free_one) {
        room->counters.full++;
        return;
    }
    /* whoever gives a lease back tells its owner, and only where that did not help we do */
    ns_t next_ns = what == OWED_RELEASE ? host_now_ns() + OWE_NS : 0;
    *free_one = (struct obligation){
        .in_use = true, .what = what, .id = id, .until_ns = until_ns, .next_ns = next_ns};
    snprintf(free_one->provider, sizeof free_one->provider, "%s", provider);
}

static const char *endpoint_of_owner(const struct room *room, const char *provider, ns_t now)
{
    uint32_t owner = fleet_owner(room->fleet, provider, false, now, NULL);
    return owner < FLEET_PEERS_MAX ? room->fleet->peers[owner].endpoint : "";
}

static bool next_obligation(struct room *room, struct errand *errand, ns_t now)
{
    for (uint32_t i = 0; i < ROOM_OBLIGATIONS; i++) {
        struct obligation *owed = &room->obligations[i];
        if (owed->in_use && !owed->busy && now >= owed->until_ns)
            owed->in_use = false; /* by now it has ended there too */
        if (!owed->in_use || owed->busy || now < owed->next_ns)
            continue;
        owed->next_ns = now + OWE_NS;
        const char *endpoint = endpoint_of_owner(room, owed->provider, now);
        if (!endpoint[0])
            continue;
        owed->busy = true;
        errand->kind = ERRAND_OBLIGATION;
        errand->obligation = i;
        snprintf(errand->endpoint, sizeof errand->endpoint, "%s", endpoint);
        return true;
    }
    return false;
}

/* Who looks here at a provider of another host wants to see what is, as one who looks there does: its
 * owner is told, since it leaves alone what nobody looks at. */
static bool next_look(struct room *room, struct errand *errand, ns_t now)
{
    if (now < room->lookers_ns)
        return false;
    for (uint32_t i = 0; i < room->voice_count; i++) {
        struct voice *voice = &room->voices[i];
        if (voice->ours || now - voice->looked_ns < TELL_NS || voice->owner >= FLEET_PEERS_MAX ||
            !host_words_are_watched(provider_words(voice->provider), now))
            continue;
        const char *name = voice->provider->name, *endpoint = endpoint_of_owner(room, name, now);
        if (!endpoint[0])
            continue;
        voice->looked_ns = now;
        errand->kind = ERRAND_LOOK;
        snprintf(errand->provider, sizeof errand->provider, "%s", name);
        snprintf(errand->endpoint, sizeof errand->endpoint, "%s", endpoint);
        return true;
    }
    room->lookers_ns = now + EYES_NS;
    return false;
}

static bool next_errand(struct room *room, struct errand *errand, ns_t now)
{
    struct gap gap;
    errand->part = errand->tries = 0;
    if (next_obligation(room, errand, now))
        return true;
    if (peers_next_gap(room, now, &gap)) {
        errand->kind = ERRAND_STATE;
        errand->peer = gap.peer;
        snprintf(errand->provider, sizeof errand->provider, "%s", gap.provider);
    } else if (peers_next_hello(room, now, &errand->peer)) {
        errand->kind = ERRAND_HELLO;
    } else if (peers_next_list(room, now, &errand->peer)) {
        errand->kind = ERRAND_LIST;
    } else {
        return next_look(room, errand, now);
    }
    snprintf(errand->endpoint, sizeof errand->endpoint, "%s",
             room->fleet->peers[errand->peer].endpoint);
    return true;
}

void errands_run(struct room *room, ns_t now)
{
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++)
        if (room->errands[i].kind != ERRAND_NONE)
            run_errand(room, &room->errands[i]);
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++) {
        struct errand *errand = &room->errands[i];
        if (errand->kind != ERRAND_NONE)
            continue;
        if (!next_errand(room, errand, now))
            return;
        if (send_errand(room, errand)) {
            run_errand(room, errand); /* before its descriptor is slept on */
            continue;
        }
        if (errand->kind == ERRAND_HELLO)
            peers_hello_ended(room, errand->peer, false, false);
        end_errand(room, errand);
    }
}

void errands_drop(struct room *room)
{
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++)
        if (room->errands[i].kind != ERRAND_NONE)
            end_errand(room, &room->errands[i]);
}

void errands_close(struct room *room)
{
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++)
        ask_free(&room->errands[i].ask);
}

bool errands_are_full(const struct room *room)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++)
        busy += room->errands[i].kind != ERRAND_NONE;
    return busy == ROOM_ERRANDS;
}

ns_t errands_deadline(const struct room *room, ns_t now)
{
    ns_t first = NS_NEVER;
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++)
        if (room->errands[i].kind != ERRAND_NONE)
            first = now + LOOK_NS;
    bool full = errands_are_full(room);
    for (uint32_t i = 0; i < ROOM_OBLIGATIONS && !full; i++) {
        const struct obligation *owed = &room->obligations[i];
        if (owed->in_use && !owed->busy && owed->next_ns < first)
            first = owed->next_ns;
    }
    return first;
}

uint32_t room_fds(const struct room *room, int *fds)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ROOM_ERRANDS; i++)
        if (room->errands[i].kind != ERRAND_NONE && ask_fd(&room->errands[i].ask) >= 0)
            fds[count++] = ask_fd(&room->errands[i].ask);
    return count;
}
