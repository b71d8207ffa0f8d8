/* Who we are, whom we know, and what we last published: for those who come in, or missed something. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define FRESH_NS (20 * NS_PER_MS) /* a state that is fetched may be so old */

/* The same budget of traffic as for what is published. */
static bool may_tell(struct room *room, size_t bytes)
{
    ns_t now = host_now_ns();
    room->tokens += (double)(now - room->tokens_ns) / (double)NS_PER_SEC * ROOM_RATE;
    room->tokens = room->tokens > ROOM_RATE ? ROOM_RATE : room->tokens;
    room->tokens_ns = now;
    if (room->tokens < (double)bytes)
        return false;
    room->tokens -= (double)bytes;
    return true;
}

/* ---- hello ----------------------------------------------------------------------------------- */

/* Whoever asks tells where it is reached: by what it advertises, or by the port beside the address that it
 * comes from. An address that we dialled ourselves is kept. */
static void hear_asker(struct room *room, const struct message *request)
{
    struct gossip_beat *beat = room->beat;
    char endpoint[FLEET_ENDPOINT_SIZE] = "", publish[FLEET_ENDPOINT_SIZE] = "";
    if (request->beat.size == 0 ||
        gossip_beat_decode(request->beat.at, request->beat.size, beat) != WIRE_OK)
        return;
    uint32_t peer = room_peer_of(room, beat->sender.id);
    const char *address = service_asker_address(room->speaker->service);
    bool known = peer != FLEET_NOBODY && room->fleet->peers[peer].endpoint[0];
    if (!known && address[0] && beat->port > 0 && beat->port < 65536) {
        endpoint_format(address, (uint16_t)beat->port, endpoint);
        peers_beside(endpoint, beat->publish_port, publish);
    }
    /* others told of it, but not where it publishes; who was asked by it does not ask it in turn */
    if (known && !room->fleet->peers[peer].publish[0])
        peers_beside(room->fleet->peers[peer].endpoint, beat->publish_port, publish);
    hear_beat(room, beat, endpoint, publish, HEARD_ASKING);
}

int hello_handle(struct room *room, const struct message *request, struct message *reply)
{
    hear_asker(room, request);
    reply->beat.size = publish_pack_beat(room, room->bytes, WIRE_STATE_MAX);
    reply->beat.at = room->bytes;
    return 0;
}

/* ---- fetch ----------------------------------------------------------------------------------- */

static size_t pack_peers(struct room *room, size_t size)
{
    struct gossip_peer *peers = calloc(FLEET_PEERS_MAX, sizeof *peers);
    uint32_t count = 0;
    size_t used = 0;
    for (uint32_t i = 0; peers && i < room->fleet->peer_count; i++) {
        const struct fleet_peer *known = &room->fleet->peers[i];
        if (!known->in_use || known->heard_ns == 0 || !known->endpoint[0])
            continue;
        struct gossip_peer *peer = &peers[count++];
        memcpy(peer->id, known->id, sizeof peer->id);
        snprintf(peer->name, sizeof peer->name, "%s", known->name);
        snprintf(peer->endpoint, sizeof peer->endpoint, "%s", known->endpoint);
    }
    if (!peers || gossip_peers_encode(peers, count, room->list, size, &used) != WIRE_OK)
        used = 0;
    free(peers);
    return used;
}

static int fetch_list(struct room *room, struct message *reply)
{
    reply->beat.size = publish_pack_beat(room, room->bytes, WIRE_STATE_MAX);
    reply->beat.at = room->bytes;
    size_t size = MESSAGE_BYTES_ROOM - reply->beat.size;
    reply->peers.size = pack_peers(room, size < WIRE_STATE_MAX ? size : WIRE_STATE_MAX);
    reply->peers.at = room->list;
    return may_tell(room, reply->beat.size + reply->peers.size) ? 0 : LEASE_EBUSY;
}

/* Parts belong together: only with the first is the book looked at again. */
static int fetch_state(struct room *room, struct voice *voice, uint32_t part, struct message *reply)
{
    int error = publish_pack(room, voice, part == 0 ? FRESH_NS : NS_NEVER);
    const struct packed_state *packed = &voice->packed;
    if (error == 0 && part >= packed->parts)
        error = LEASE_EINVAL;
    if (error < 0)
        return error;
    size_t from = part == 0 ? 0 : packed->ends[part - 1];
    snprintf(reply->provider, sizeof reply->provider, "%s", voice->provider->name);
    reply->part = part;
    reply->parts = packed->parts;
    reply->state.at = packed->bytes + from;
    reply->state.size = packed->ends[part] - from;
    return may_tell(room, reply->state.size) ? 0 : LEASE_EBUSY;
}

int fetch_handle(struct room *room, const struct message *request, struct message *reply)
{
    const struct lease_agent *agent = room->speaker->agent;
    snprintf(reply->name, sizeof reply->name, "%s", agent->host);
    memcpy(reply->id, room->speaker->id, sizeof reply->id);
    int error;
    struct voice *voice = room_voice(room, request->provider);
    if (request->provider[0] == '\0') {
        error = fetch_list(room, reply);
    } else if (voice && voice->ours) {
        room_hear_epoch(voice, request->epoch);
        error = fetch_state(room, voice, request->part, reply);
    } else {
        return say_who_owns(room, request, reply);
    }
    if (error < 0) {
        struct message_bytes none = {NULL, 0};
        reply->beat = reply->peers = reply->state = none;
    }
    return error;
}
