/* What the speaker publishes of itself: the books that it owns, whole, when they change; and each
 * second that it is there. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define COALESCE_NS (10 * NS_PER_MS)
#define JOINING_NS  (100 * NS_PER_MS) /* between two states while peers come in: they fetch anyway */
#define JOINED_NS   (3 * NS_PER_SEC)  /* so long after the last one that came */

/* A state that was lost is noticed by a beat that names its version: so there is one soon after a change,
 * and another one for those who lost that too. */
#define ECHOES  2
#define ECHO_NS (100 * NS_PER_MS)

/* ---- packing --------------------------------------------------------------------------------- */

uint64_t publish_version(const struct provider *provider)
{
    if (provider->reach == LEASE_REACH_HOST)
        return host_table_version(&provider->host) & WIRE_NUMBER_MAX;
    return atomic_load(&provider->words->change) >> 1;
}

uint64_t publish_version_seen(const struct provider *provider)
{
    if (provider->reach == LEASE_REACH_HOST && provider->host.writes != 0)
        return provider->host.writes & WIRE_NUMBER_MAX;
    return publish_version(provider);
}

static const char *told_url(const struct provider *provider)
{
    const struct provider_spec *spec = provider_spec(provider);
    if (!spec)
        return "";
    if (spec->client_url[0])
        return spec->client_url;
    return spec_url_is_loopback(spec) ? "" : spec->url;
}

static void fill_sender(const struct room *room, struct gossip_sender *sender)
{
    memcpy(sender->id, room->speaker->id, sizeof sender->id);
    snprintf(sender->name, sizeof sender->name, "%s", room->speaker->agent->host);
    sender->incarnation = room->incarnation;
}

/* The book as it is now; how many leases it has. */
static uint32_t copy_book(struct room *room, struct provider *provider, struct gossip_state *state)
{
    uint32_t count = 0;
    ns_t now = host_now_ns();
    pthread_mutex_lock(&provider->mutex);
    state->version = publish_version(provider); /* before the look: never newer than what is seen */
    provider_look(provider);
    const struct book *book = provider->book;
    state->epoch = book->head.epoch;
    gossip_of_book(book, now, state);
    for (uint32_t i = 0; i < book->live_count && count < WIRE_LEASES_MAX; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_HELD || record->state == RECORD_DISPATCHED ||
            record->state == RECORD_ORPHAN)
            gossip_of_record(book, record, now, &room->leases[count++]);
    }
    pthread_mutex_unlock(&provider->mutex);
    return count;
}

static bool make_room(struct packed_state *packed, size_t wanted)
{
    if (packed->room >= wanted)
        return true;
    uint8_t *bytes = realloc(packed->bytes, wanted);
    if (!bytes)
        return false;
    packed->bytes = bytes;
    packed->room = wanted;
    return true;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Of what somebody may decide by; how old it is, and what has left to run, changes all the time. */
static uint64_t digest_of(const struct gossip_state *state, const struct gossip_lease *leases,
                          uint32_t count)
{
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), &state->epoch, sizeof state->epoch);
    int32_t counts[] = {state->slots_total, state->in_flight, state->strangers, state->waiting};
    hash = mix(hash, counts, sizeof counts);
    hash = mix(hash, state->health, strlen(state->health));
    for (uint32_t i = 0; i < count; i++) {
        hash = mix(hash, leases[i].lease, strlen(leases[i].lease));
        hash = mix(hash, &leases[i].state, sizeof leases[i].state);
    }
    return hash;
}

static int pack_parts(struct room *room, struct packed_state *packed, struct gossip_state *state,
                      uint32_t count)
{
    uint32_t next = 0;
    size_t used = 0;
    state->leases = count;
    state->parts = gossip_state_parts(state, room->leases, count);
    if (state->parts == 0 || state->parts > WIRE_PARTS_MAX)
        return LEASE_EINTERNAL;
    for (state->part = 0; state->part < state->parts; state->part++) {
        size_t size;
        if (!make_room(packed, used + WIRE_STATE_MAX))
            return LEASE_ENOMEM;
        if (gossip_state_encode(state, room->leases, count, &next, packed->bytes + used,
                                WIRE_STATE_MAX, &size) != WIRE_OK)
            return LEASE_EINTERNAL;
        used += size;
        packed->ends[state->part] = used;
    }
    packed->parts = state->parts;
    packed->epoch = state->epoch;
    packed->version = state->version;
    return 0;
}

int publish_pack(struct room *room, struct voice *voice, ns_t age_ns)
{
    struct packed_state *packed = &voice->packed;
    struct gossip_state state;
    ns_t now = host_now_ns();
    if (packed->made_ns && now - packed->made_ns < age_ns)
        return 0;
    memset(&state, 0, sizeof state);
    fill_sender(room, &state.sender);
    const struct provider *provider = voice->provider;
    snprintf(state.provider, sizeof state.provider, "%s", provider->name);
    snprintf(state.url, sizeof state.url, "%s", told_url(provider));
    const struct provider_spec *spec = provider_spec(provider);
    if (spec)
        snprintf(state.group, sizeof state.group, "%s", spec->group);
    packed->made_ns = 0;
    packed->looked = publish_version(provider);
    uint32_t count = copy_book(room, voice->provider, &state);
    int error = pack_parts(room, packed, &state, count);
    if (error < 0)
        return error;
    packed->digest = digest_of(&state, room->leases, count);
    packed->made_ns = now;
    return 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

static uint32_t live_peers(const struct room *room, ns_t now)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < room->fleet->peer_count; i++)
        count += room->fleet->peers[i].in_use &&
                 fleet_peer_state(&room->fleet->peers[i], now) == PEER_LIVE;
    return count;
}

/* So long that all peers together are told no more than ROOM_RATE. */
static ns_t least_interval(const struct room *room, const struct voice *voice, ns_t now)
{
    const struct packed_state *packed = &voice->packed;
    ns_t least = now - room->joined_ns < JOINED_NS ? JOINING_NS : COALESCE_NS;
    if (packed->made_ns == 0)
        return least;
    double bytes = (double)packed->ends[packed->parts - 1] * live_peers(room, now);
    ns_t interval = (ns_t)(bytes / ROOM_RATE * (double)NS_PER_SEC);
    return interval > least ? interval : least;
}

static void publish_state(struct room *room, struct voice *voice, ns_t now)
{
    char topic[MESH_TOPIC_MAX];
    voice->due = false;
    voice->published_ns = now;
    int error = room_keep(voice) ? publish_pack(room, voice, 0) : LEASE_ELOCKED;
    if (error < 0) {
        voice->due = true;
        voice->due_ns = now + (error == LEASE_ELOCKED ? COALESCE_NS : NS_PER_SEC);
        return;
    }
    voice->issued = voice->packed.epoch;
    voice->told = voice->packed.version;
    if (voice->packed.digest != voice->told_digest) {
        room->echoes = ECHOES;
        room->echo_ns = now + ECHO_NS;
    }
    voice->told_digest = voice->packed.digest;
    snprintf(topic, sizeof topic, "state/%s", voice->provider->name);
    const struct packed_state *packed = &voice->packed;
    for (uint32_t i = 0; i < packed->parts; i++) {
        size_t from = i == 0 ? 0 : packed->ends[i - 1];
        mesh_publish(room->mesh, topic, packed->bytes + from, packed->ends[i] - from);
    }
}

static void look_at(struct room *room, struct voice *voice, ns_t now)
{
    uint32_t change =
        atomic_load_explicit(&provider_words(voice->provider)->change, memory_order_acquire) & ~1u;
    if ((voice->fresh || change != voice->change) && !voice->due) {
        ns_t next = voice->published_ns + least_interval(room, voice, now);
        voice->due = true;
        voice->due_ns = voice->published_ns == 0   ? now
                        : next > now + COALESCE_NS ? next
                                                   : now + COALESCE_NS;
    }
    room_looked(room, voice, change);
    if (voice->due && now >= voice->due_ns)
        publish_state(room, voice, now);
}

/* ---- beats ----------------------------------------------------------------------------------- */

/* Those that we yield to somebody else are offered too: others must see that there are two. */
static void fill_offers(const struct room *room, struct gossip_beat *beat)
{
    for (uint32_t i = 0; i < room->voice_count; i++) {
        const struct voice *voice = &room->voices[i];
        const struct provider *provider = voice->provider;
        if (!provider_spec(provider) || !provider->owned || beat->offer_count == WIRE_PROVIDERS_MAX)
            continue;
        struct gossip_offer *offer = &beat->offers[beat->offer_count++];
        snprintf(offer->provider, sizeof offer->provider, "%s", provider->name);
        snprintf(offer->url, sizeof offer->url, "%s", told_url(provider));
        offer->epoch = voice->issued;
        offer->version = voice->told;
    }
}

static uint32_t port_of(const char *endpoint)
{
    struct endpoint parsed;
    return endpoint[0] && endpoint_parse(endpoint, &parsed) ? parsed.port : 0;
}

static void fill_places(const struct room *room, struct gossip_beat *beat)
{
    const char *publish = mesh_endpoint(room->mesh);
    beat->port = port_of(room->endpoint);
    beat->publish_port = port_of(publish);
    if (room->config->advertise[0]) {
        snprintf(beat->endpoint, sizeof beat->endpoint, "%s", room->config->advertise);
        if (beat->publish_port)
            peers_beside(beat->endpoint, beat->publish_port, beat->publish);
    }
}

size_t publish_pack_beat(struct room *room, uint8_t *bytes, size_t size)
{
    struct gossip_beat *beat = room->beat;
    size_t used;
    memset(beat, 0, sizeof *beat);
    fill_sender(room, &beat->sender);
    snprintf(beat->version, sizeof beat->version, "%s", LEASEHOLD_VERSION);
    fill_places(room, beat);
    beat->peer_digest = fleet_digest(room->fleet, &beat->peer_count) & WIRE_NUMBER_MAX;
    fill_offers(room, beat);
    return gossip_beat_encode(beat, bytes, size, &used) == WIRE_OK ? used : 0;
}

void publish_beat(struct room *room)
{
    char topic[MESH_TOPIC_MAX];
    size_t size = publish_pack_beat(room, room->bytes, WIRE_STATE_MAX);
    snprintf(topic, sizeof topic, "beat/%s", room->speaker->agent->host);
    if (size > 0)
        mesh_publish(room->mesh, topic, room->bytes, size);
}

static bool is_beat_due(struct room *room, ns_t now)
{
    bool echoes = room->echoes > 0 && now >= room->echo_ns, due = now >= room->beat_ns;
    if (echoes) {
        room->echoes--;
        room->echo_ns = now + 2 * ECHO_NS;
    }
    if (due)
        room->beat_ns = now + ROOM_BEAT_NS;
    return echoes || due;
}

/* ---- the turn -------------------------------------------------------------------------------- */

void publish_run(struct room *room, ns_t now)
{
    for (uint32_t i = 0; i < room->voice_count; i++) {
        struct voice *voice = &room->voices[i];
        if (voice->ours)
            look_at(room, voice, now);
        else
            claims_run(room, voice, now);
    }
    if (is_beat_due(room, now))
        publish_beat(room);
}

ns_t publish_deadline(const struct room *room)
{
    ns_t first = room->beat_ns;
    if (room->echoes > 0 && room->echo_ns < first)
        first = room->echo_ns;
    for (uint32_t i = 0; i < room->voice_count; i++) {
        const struct voice *voice = &room->voices[i];
        if (voice->ours && voice->due && voice->due_ns < first)
            first = voice->due_ns;
        if (!voice->ours && voice->claims_ns && voice->claims_ns < first)
            first = voice->claims_ns;
    }
    return first;
}
