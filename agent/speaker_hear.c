/* What other hosts publish, taken into the books and into what is known of the fleet. Hints, all of it:
 * what is lost is asked for again, what makes no sense is counted and dropped. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/heard.h"
#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define GATHER_NS  (5 * NS_PER_SEC) /* for all parts to arrive */
#define REST_PEERS 32 /* above so many, what they say is gathered for a moment, longer for more */
#define REST_NS    (200 * NS_PER_MS / 1000)
#define REST_MOST  (50 * NS_PER_MS)
#define BOOK_NS    (100 * NS_PER_MS) /* for the book to be had; then the next gap fetches it again */

static struct lease_agent *agent_of(const struct room *room)
{
    return room->speaker->agent;
}

uint32_t room_peer_of(const struct room *room, const uint8_t *id)
{
    for (uint32_t i = 0; i < room->fleet->peer_count; i++) {
        const struct fleet_peer *peer = &room->fleet->peers[i];
        if (peer->in_use && memcmp(peer->id, id, sizeof peer->id) == 0)
            return i;
    }
    return FLEET_NOBODY;
}

/* ---- beats ----------------------------------------------------------------------------------- */

/* That it was not silent, in all but the first words: it may not know us. */
#define NEWS_OF_A_STRANGER (FLEET_NEWS_PEER | FLEET_NEWS_RESTARTED | FLEET_NEWS_BACK)

void hear_beat(struct room *room, const struct gossip_beat *beat, const char *endpoint,
               const char *publish, enum heard_how how)
{
    struct heard_offer offers[WIRE_PROVIDERS_MAX];
    struct heard_beat heard = {.name = beat->sender.name,
                               .version = beat->version,
                               .endpoint = beat->endpoint[0] ? beat->endpoint : endpoint,
                               .publish = beat->publish[0] ? beat->publish : publish,
                               .incarnation = beat->sender.incarnation,
                               .offers = offers};
    memcpy(heard.id, beat->sender.id, sizeof heard.id);
    for (uint32_t i = 0; i < beat->offer_count && i < WIRE_PROVIDERS_MAX; i++)
        if (!room_is_epoch_mad(beat->offers[i].epoch))
            offers[heard.offer_count++] = (struct heard_offer){.provider = beat->offers[i].provider,
                                                               .url = beat->offers[i].url,
                                                               .epoch = beat->offers[i].epoch,
                                                               .version = beat->offers[i].version};
    ns_t now = host_now_ns();
    uint32_t peer;
    unsigned news = fleet_hear(room->fleet, &heard, now, &peer);
    if (peer >= FLEET_PEERS_MAX) /* our own word come back, or no room */
        return;
    room->contacts[peer].digest = beat->peer_digest;
    room->contacts[peer].count = beat->peer_count;
    peers_heard(room, peer, news, how, now);
    if (how == HEARD_PUBLISHED && (news & NEWS_OF_A_STRANGER))
        peers_introduce(room, peer, now);
}

static void take_beat(struct room *room, const uint8_t *bytes, size_t size)
{
    struct gossip_beat *beat = room->beat;
    if (gossip_beat_decode(bytes, size, beat) != WIRE_OK)
        room->counters.unreadable++;
    else
        hear_beat(room, beat, "", "", HEARD_PUBLISHED);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void take_claim(struct room *room, const uint8_t *bytes, size_t size)
{
    struct gossip_claim told;
    struct heard_claim claim;
    if (gossip_claim_decode(bytes, size, &told) != WIRE_OK) {
        room->counters.unreadable++;
        return;
    }
    const uint8_t *id = told.sender.id;
    struct voice *voice = room_voice(room, told.provider);
    if (!voice || memcmp(id, room->speaker->id, sizeof told.sender.id) == 0 ||
        room_peer_of(room, id) == FLEET_NOBODY || room_is_epoch_mad(told.epoch) ||
        !heard_lease_of(&told.lease, told.provider, "", &claim.lease)) {
        room->counters.foreign++;
        return;
    }
    claim.lease.holder.local = 0; /* whoever has our name is another host */
    claim.epoch = told.epoch;
    claim.withdrawn = told.withdrawn;
    if (voice->ours)
        room_hear_epoch(voice, told.epoch);
    struct event event = {.kind = EVENT_CLAIM, .claim = &claim};
    struct effects effects;
    provider_step(voice->provider, &event, &effects, 0); /* locked: it was but a hint */
}

/* ---- states ---------------------------------------------------------------------------------- */

static void drop_gather(struct gather *gather)
{
    struct heard_lease *leases = gather->leases;
    uint32_t room = gather->lease_room;
    memset(gather, 0, sizeof *gather);
    gather->leases = leases;
    gather->lease_room = room;
}

static bool is_of(const struct gather *gather, uint32_t peer, const struct gossip_state *state)
{
    return gather->in_use && gather->peer == peer && gather->state.epoch == state->epoch &&
           gather->state.version == state->version && gather->parts == state->parts &&
           gather->wanted == state->leases && strcmp(gather->provider, state->provider) == 0;
}

/* Of this state, or a free one, or that which is being gathered for longest. An older state of the same
 * provider that is not complete will not become so. */
static struct gather *gather_for(struct room *room, uint32_t peer, const struct gossip_state *state)
{
    struct gather *chosen = NULL;
    for (uint32_t i = 0; i < ROOM_GATHERS; i++) {
        struct gather *gather = &room->gathers[i];
        if (is_of(gather, peer, state))
            return gather;
        if (gather->in_use && !gather->complete && gather->peer == peer &&
            strcmp(gather->provider, state->provider) == 0 &&
            (state->epoch > gather->state.epoch || state->version > gather->state.version)) {
            room->counters.parts_lost++;
            drop_gather(gather);
        }
        if (!chosen || (chosen->in_use && (!gather->in_use || gather->began_ns < chosen->began_ns)))
            chosen = gather;
    }
    room->counters.parts_lost += chosen->in_use;
    drop_gather(chosen);
    chosen->in_use = true;
    chosen->peer = peer;
    chosen->parts = state->parts;
    chosen->wanted = state->leases;
    chosen->began_ns = host_now_ns();
    chosen->incarnation = state->sender.incarnation;
    snprintf(chosen->provider, sizeof chosen->provider, "%s", state->provider);
    return chosen;
}

static bool take_leases(struct room *room, struct gather *gather, uint32_t count)
{
    uint32_t wanted = gather->state.lease_count + count;
    if (wanted > BOOK_LEASES_MAX)
        return false;
    if (wanted > gather->lease_room) {
        uint32_t more = wanted < 16 ? 16 : wanted + wanted / 2;
        struct heard_lease *leases = realloc(gather->leases, more * sizeof *leases);
        if (!leases)
            return false;
        gather->leases = leases;
        gather->lease_room = more;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct heard_lease *lease = &gather->leases[gather->state.lease_count];
        if (!heard_lease_of(&room->leases[i], gather->provider, agent_of(room)->host, lease))
            return false;
        gather->state.lease_count++;
    }
    gather->state.leases = gather->leases;
    return true;
}

/* The book may hold what is newer, and passes over this: the owner hears of it when it is asked. */
static bool is_taken(const struct voice *voice, struct provider *provider,
                     const struct heard_state *state)
{
    struct fact told = {state->epoch, state->version}, copy = room_copy(provider);
    return copy.epoch == told.epoch && copy.version >= told.version &&
           !(voice && room_is_former(voice, told));
}

/* Whether it is done with; else it is tried again. */
static bool apply(struct room *room, struct gather *gather, ns_t now)
{
    int error;
    struct provider *provider = provider_mirror(agent_of(room), gather->provider, &error);
    struct voice *voice = room_voice(room, gather->provider);
    if (!provider || (voice && voice->ours)) {
        room->counters.full += error == LEASE_EFULL;
        return error != LEASE_ELOCKED || now - gather->complete_ns > BOOK_NS;
    }
    if (voice && !room_begin_copy(voice))
        return now - gather->complete_ns > BOOK_NS;
    struct event event = {.kind = EVENT_STATE, .state = &gather->state};
    struct effects effects;
    error = provider_step(provider, &event, &effects, 0);
    if (error == LEASE_ELOCKED)
        return now - gather->complete_ns > BOOK_NS;
    if (error == 0 && is_taken(voice, provider, &gather->state)) {
        const struct fleet_offer *offer =
            fleet_offer_of(room->fleet, gather->peer, gather->provider);
        room->routes_changed |= !offer || offer->applied_epoch != gather->state.epoch;
        fleet_applied(room->fleet, gather->peer, gather->provider, gather->state.epoch,
                      gather->state.version);
        claims_hand_back(room, provider, &gather->state, now);
    }
    return true;
}

int hear_state(struct room *room, const uint8_t *bytes, size_t size, uint32_t peer, uint32_t *parts)
{
    struct gossip_state state;
    uint32_t count;
    if (gossip_state_decode(bytes, size, &state, room->leases, WIRE_LEASES_MAX, &count) !=
        WIRE_OK) {
        room->counters.unreadable++;
        return LEASE_EINVAL;
    }
    uint32_t sender = room_peer_of(room, state.sender.id);
    const struct voice *voice = room_voice(room, state.provider);
    bool owned = voice && voice->provider->owned;
    if (sender == FLEET_NOBODY || (peer != FLEET_NOBODY && sender != peer) ||
        state.sender.incarnation != room->fleet->peers[sender].incarnation ||
        fleet_owner(room->fleet, state.provider, owned, host_now_ns(), NULL) != sender ||
        state.parts < 1 || state.parts > WIRE_PARTS_MAX || state.part >= state.parts ||
        room_is_epoch_mad(state.epoch)) {
        room->counters.foreign++;
        return LEASE_EINVAL;
    }
    *parts = state.parts;
    struct gather *gather = gather_for(room, sender, &state);
    uint64_t bit = UINT64_C(1) << state.part;
    if (gather->complete || gather->parts_seen & bit)
        return 0;
    if (gather->parts_seen == 0 || state.part == 0)
        heard_state_of(&state, host_now_ns(), &gather->state);
    gather->parts_seen |= bit;
    uint64_t all = state.parts == 64 ? UINT64_MAX : (UINT64_C(1) << state.parts) - 1;
    bool sound = take_leases(room, gather, count);
    gather->complete = gather->parts_seen == all;
    gather->complete_ns = host_now_ns();
    if (!sound || (gather->complete && gather->state.lease_count != gather->wanted)) {
        room->counters.unreadable++;
        drop_gather(gather);
        return LEASE_EINVAL;
    }
    if (gather->complete && apply(room, gather, gather->complete_ns))
        drop_gather(gather);
    return 0;
}

/* ---- the turn -------------------------------------------------------------------------------- */

static void handle(void *arg, const char *topic, const uint8_t *bytes, size_t size)
{
    struct room *room = arg;
    enum gossip_kind kind;
    uint32_t parts;
    (void)topic; /* only what the message says about itself counts */
    if (gossip_kind_of(bytes, size, &kind) != WIRE_OK)
        kind = GOSSIP_NONE;
    switch (kind) {
    case GOSSIP_BEAT: take_beat(room, bytes, size); break;
    case GOSSIP_STATE: hear_state(room, bytes, size, FLEET_NOBODY, &parts); break;
    case GOSSIP_CLAIM: take_claim(room, bytes, size); break;
    case GOSSIP_NONE: room->counters.unreadable++; break;
    }
}

/* Where many publish, a turn of the loop for each message would be most of its work. */
static void hear_all(struct room *room)
{
    if (!room->to_hear || host_now_ns() < room->hear_ns)
        return;
    room->to_hear = false;
    uint64_t before = mesh_counters(room->mesh).heard;
    mesh_run(room->mesh, handle, room);
    bool heard = mesh_counters(room->mesh).heard != before;
    ns_t rest = (ns_t)room->fleet->peer_count * REST_NS;
    if (heard && room->fleet->peer_count > REST_PEERS) {
        room->hear_ns = host_now_ns() + (rest < REST_MOST ? rest : REST_MOST);
        room->to_hear = true; /* by then */
    }
}

void hear_run(struct room *room)
{
    hear_all(room);
    ns_t now = host_now_ns();
    for (uint32_t i = 0; i < ROOM_GATHERS; i++) {
        struct gather *gather = &room->gathers[i];
        bool done = gather->in_use && (gather->complete ? apply(room, gather, now)
                                                        : now - gather->began_ns > GATHER_NS);
        if (done)
            drop_gather(gather);
    }
}

bool hear_waits_for_book(const struct room *room, uint32_t peer, const char *provider)
{
    for (uint32_t i = 0; i < ROOM_GATHERS; i++) {
        const struct gather *gather = &room->gathers[i];
        if (gather->in_use && gather->complete && gather->peer == peer &&
            strcmp(gather->provider, provider) == 0)
            return true;
    }
    return false;
}

ns_t hear_deadline(const struct room *room)
{
    ns_t now = host_now_ns();
    for (uint32_t i = 0; i < ROOM_GATHERS; i++)
        if (room->gathers[i].in_use && room->gathers[i].complete)
            return now + NS_PER_MS;
    return room->hear_ns > now ? room->hear_ns : NS_NEVER;
}
