/* Leases of this host at providers that other hosts own: those of which the owner cannot know are
 * announced to all, and taken back when they end; the owner hears of the dead, and of those that live
 * on with a process that did not take them. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define REFRESH_NS (3 * NS_PER_SEC) /* a claim is lost now and then, and its lease goes on */
#define GROWS_BY   16

static bool is_ours(const struct record *record)
{
    return record->holder.local &&
           (record->state == RECORD_HELD || record->state == RECORD_DISPATCHED);
}

static bool is_named(const struct record *record)
{
    return record->flags & RECORD_NAMED;
}

/* And others may not know of it yet: at its deadline they have forgotten it by themselves. */
static bool has_died(const struct record *record, ns_t now)
{
    return record->holder.local &&
           (record->state == RECORD_GONE || record->state == RECORD_ORPHAN) &&
           record->end == END_LAPSED && !record->end_heard && record->deadline_ns > now;
}

/* ---- saying it ------------------------------------------------------------------------------- */

static void tell(struct room *room, const struct book *book, const struct record *record,
                 bool withdrawn, ns_t now)
{
    char topic[MESH_TOPIC_MAX];
    uint8_t bytes[2048];
    size_t size;
    /* an owner that has forgotten it since shall not take it for a new one */
    uint64_t epoch = record->token ? record->token >> TOKEN_BITS : mirror_epoch(book);
    struct gossip_claim claim = {.epoch = epoch, .withdrawn = withdrawn};
    memcpy(claim.sender.id, room->speaker->id, sizeof claim.sender.id);
    snprintf(claim.sender.name, sizeof claim.sender.name, "%s", room->speaker->agent->host);
    claim.sender.incarnation = room->incarnation;
    snprintf(claim.provider, sizeof claim.provider, "%s", book->provider);
    gossip_of_record(book, record, now, &claim.lease);
    if (withdrawn) /* whatever it is now: a claim speaks of held and dispatched ones */
        claim.lease.state = record->dispatched_ns ? GOSSIP_DISPATCHED : GOSSIP_HELD;
    snprintf(topic, sizeof topic, "claim/%s", book->provider);
    if (gossip_claim_encode(&claim, bytes, sizeof bytes, &size) == WIRE_OK)
        mesh_publish(room->mesh, topic, bytes, size);
}

/* ---- what has ended -------------------------------------------------------------------------- */

/* `record` is that of its cell, and may be another one's by now. What was announced is withdrawn also where
 * its owner has named it since: a process that did not know the owner gave it back only here. */
static void take_back(struct room *room, const struct book *book, const struct claimed *claimed,
                      const struct record *record, ns_t now)
{
    bool same = lease_id_equal(record->id, claimed->id);
    struct record gone = {.id = claimed->id, .units = 1, .slot = -1};
    memcpy(gone.holder.host, room->speaker->agent->host, sizeof gone.holder.host);
    if (same && record->end == END_LAPSED && is_named(record))
        errands_owe(room, book->provider, claimed->id, OWED_DEATH, record->deadline_ns);
    /* by a process that may have ended with its word lost on the way, and the owner tells no news of itself */
    if (same && record->end == END_RELEASED && is_named(record) && !record->end_heard)
        errands_owe(room, book->provider, claimed->id, OWED_RELEASE, record->deadline_ns);
    /* what ran out here may wait in the owner's queue, and has its end from there */
    bool expired = same && record->end == END_EXPIRED;
    if ((claimed->told_ns != 0 && !expired) || (same && record->end == END_LAPSED))
        tell(room, book, same ? record : &gone, true, now);
}

static void drop_ended(struct room *room, struct voice *voice, const struct book *book, ns_t now)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < voice->claimed_count; i++) {
        struct claimed *claimed = &voice->claimed[i];
        const struct record *record = &book->records[claimed->cell];
        bool same = lease_id_equal(record->id, claimed->id);
        bool goes_on = same && is_ours(record), dead = same && has_died(record, now);
        if (!goes_on && !claimed->dead)
            take_back(room, book, claimed, record, now);
        claimed->dead = dead;
        if (goes_on || dead)
            voice->claimed[kept++] = *claimed;
    }
    voice->claimed_count = kept;
}

/* ---- what is there --------------------------------------------------------------------------- */

static struct claimed *find(struct voice *voice, struct lease_id id)
{
    for (uint32_t i = 0; i < voice->claimed_count; i++)
        if (lease_id_equal(voice->claimed[i].id, id))
            return &voice->claimed[i];
    if (voice->claimed_count == voice->claimed_room) {
        uint32_t room = voice->claimed_room + GROWS_BY;
        struct claimed *claimed = realloc(voice->claimed, room * sizeof *claimed);
        if (!claimed)
            return NULL;
        voice->claimed = claimed;
        voice->claimed_room = room;
    }
    struct claimed *fresh = &voice->claimed[voice->claimed_count++];
    *fresh = (struct claimed){.id = id};
    return fresh;
}

/* Between two looks a process may take a lease and die, and another one put that down; and a speaker that died
 * with its own leases has told nobody. */
static void take_back_dead(struct room *room, struct voice *voice, const struct book *book,
                           ns_t now)
{
    for (uint32_t i = 0; i < book->used; i++) {
        const struct record *record = &book->records[i];
        struct claimed *claimed = has_died(record, now) ? find(voice, record->id) : NULL;
        if (!claimed || claimed->dead)
            continue;
        claimed->cell = (uint16_t)i;
        claimed->dead = true;
        take_back(room, book, claimed, record, now);
    }
}

/* Due with two thirds of its time left, as those are that a process renews by itself. */
static bool is_to_be_renewed(const struct record *record, ns_t now)
{
    uint32_t ttl = record->ttl_ms ? record->ttl_ms : TTL_DISPATCHED_MS_DEFAULT;
    return record->state == RECORD_DISPATCHED && (record->flags & RECORD_BY_PID) &&
           record->deadline_ns - now < (ns_t)ttl * NS_PER_MS * 2 / 3;
}

static void look_at(struct room *room, struct voice *voice, const struct book *book,
                    const struct record *record, ns_t now)
{
    struct claimed *claimed = find(voice, record->id);
    if (!claimed)
        return;
    claimed->cell = (uint16_t)(record - book->records);
    if (is_named(record)) {
        claimed->state = RECORD_FREE; /* its owner's state tells of it */
        if (is_to_be_renewed(record, now))
            errands_owe(room, book->provider, record->id, OWED_RENEWAL, record->deadline_ns);
    } else if (claimed->state != record->state || now - claimed->told_ns >= REFRESH_NS) {
        tell(room, book, record, false, now);
        claimed->state = record->state;
        claimed->told_ns = now;
    }
    ns_t next = now + (is_named(record) ? NS_PER_SEC : REFRESH_NS);
    bool matters = !is_named(record) || (record->flags & RECORD_BY_PID);
    if (matters && (voice->claims_ns == 0 || next < voice->claims_ns))
        voice->claims_ns = next;
}

void claims_run(struct room *room, struct voice *voice, ns_t now)
{
    struct provider *provider = voice->provider;
    uint32_t change =
        atomic_load_explicit(&provider_words(provider)->change, memory_order_acquire) & ~1u;
    bool due = voice->claims_ns != 0 && now >= voice->claims_ns;
    if (!voice->fresh && change == voice->change && !due)
        return;
    room_looked(room, voice, change);
    voice->claims_ns = 0;
    pthread_mutex_lock(&provider->mutex);
    if (provider->book && provider_look(provider) == 0) {
        const struct book *book = provider->book;
        drop_ended(room, voice, book, now);
        take_back_dead(room, voice, book, now);
        for (uint32_t i = 0; i < book->live_count; i++)
            if (is_ours(&book->records[book->live[i]]))
                look_at(room, voice, book, &book->records[book->live[i]], now);
    }
    pthread_mutex_unlock(&provider->mutex);
}

/* ---- what the owner has not heard ------------------------------------------------------------ */

static bool is_in(const struct heard_state *state, struct lease_id id)
{
    for (uint32_t i = 0; i < state->lease_count; i++)
        if (lease_id_equal(state->leases[i].id, id))
            return true;
    return false;
}

static void drop_told(struct room *room, const char *provider, const struct heard_state *state)
{
    for (uint32_t i = 0; i < ROOM_OBLIGATIONS; i++) {
        struct obligation *owed = &room->obligations[i];
        if (owed->in_use && !owed->busy && owed->what == OWED_RELEASE &&
            strcmp(owed->provider, provider) == 0 && !is_in(state, owed->id))
            owed->in_use = false;
    }
}

static bool was_given_back(struct book *book, const struct heard_lease *lease)
{
    const struct record *record = book_find(book, lease->id, UINT32_MAX);
    return record && record->state == RECORD_GONE && record->end == END_RELEASED &&
           !record->end_heard;
}

void claims_hand_back(struct room *room, struct provider *provider, const struct heard_state *state,
                      ns_t now)
{
    drop_told(room, provider->name, state);
    pthread_mutex_lock(&provider->mutex);
    for (uint32_t i = 0; provider->book && i < state->lease_count; i++) {
        const struct heard_lease *lease = &state->leases[i];
        bool lives = lease->state == RECORD_HELD || lease->state == RECORD_DISPATCHED;
        if (lease->holder.local && lives && was_given_back(provider->book, lease))
            errands_owe(room, provider->name, lease->id, OWED_RELEASE,
                        now + lease->left_ms * NS_PER_MS);
    }
    pthread_mutex_unlock(&provider->mutex);
}
