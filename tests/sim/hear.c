/* What agents tell each other: states, claims and beats. Follows agent/speaker_publish.c, speaker_claims.c
 * and speaker_hear.c; what is converted is converted by the agent's own code. */
#include <stdlib.h>

#include "agent/heard.h"
#include "tests/sim/sim.h"

/* Of agent/speaker_gossip.c, whose header knows the whole speaker. */
void gossip_of_record(const struct book *book, const struct record *record, ns_t now,
                      struct gossip_lease *lease);
void gossip_of_book(const struct book *book, ns_t now, struct gossip_state *state);

#define REFRESH_NS (3 * NS_PER_SEC)
#define OWE_NS     NS_PER_SEC

/* ---- states ---------------------------------------------------------------------------------- */

void fill_told(uint32_t host, uint32_t provider, struct gossip_state *state,
               struct gossip_lease *leases, uint32_t *count)
{
    const struct sim_desk *desk = desk_of(host, provider, SIM_BY_AGENT);
    const struct book *book = &desk->book;
    ns_t here = sim_here(host);
    shelf_look(host, provider, SIM_BY_AGENT);
    memcpy(state->sender.id, hosts[host].id, sizeof state->sender.id);
    strcpy(state->sender.name, hosts[host].name);
    state->sender.incarnation = hosts[host].incarnation;
    strcpy(state->provider, provider_name(provider));
    state->epoch = book->head.epoch;
    state->version = desk->image->writes;
    gossip_of_book(book, here, state);
    for (uint32_t i = 0; i < book->live_count && *count < SIM_STATE_LEASES; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state != RECORD_WAITING)
            gossip_of_record(book, record, here, &leases[(*count)++]);
    }
    state->parts = 1;
    state->leases = *count;
    check_published(host, provider, state, leases, *count);
}

void publish_state(uint32_t host, uint32_t provider, uint32_t to, bool fetched)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    struct sim_packet *packet = packet_new(PACKET_STATE, host);
    packet->fetched = fetched;
    packet->state = calloc(1, sizeof *packet->state);
    packet->leases = calloc(SIM_STATE_LEASES, sizeof *packet->leases);
    shelf_look(host, provider, SIM_BY_AGENT);
    fill_told(host, provider, packet->state, packet->leases, &packet->lease_count);
    if (fetched) {
        net_send(packet, to);
        return;
    }
    voice->issued = packet->state->epoch;
    voice->told = packet->state->version;
    net_publish(packet);
}

static bool take_words(uint32_t host, uint32_t provider, enum sim_who who,
                       const struct gossip_state *told, const struct gossip_lease *leases,
                       uint32_t count)
{
    static struct heard_state state;
    static struct heard_lease heard[SIM_STATE_LEASES];
    struct effects *effects;
    heard_state_of(told, sim_here(host), &state);
    state.lease_count = 0;
    for (uint32_t i = 0; i < count; i++)
        state.lease_count += heard_lease_of(&leases[i], provider_name(provider), hosts[host].name,
                                            &heard[state.lease_count]);
    state.leases = heard;
    struct event event = {.kind = EVENT_STATE, .state = &state};
    enum sim_table_result result = table_step(host, provider, who, &event, &effects);
    if (result == TABLE_CRASHED && who == SIM_BY_AGENT)
        agent_crashed(host);
    return result == TABLE_OK;
}

static uint32_t provider_by_name(const char *name)
{
    for (uint32_t p = 0; p < provider_count; p++)
        if (strcmp(provider_name(p), name) == 0)
            return p;
    return SIM_NOBODY;
}

static uint32_t peer_of(uint32_t host, const uint8_t *id)
{
    const struct fleet *fleet = &hosts[host].fleet;
    for (uint32_t i = 0; i < fleet->peer_count; i++)
        if (fleet->peers[i].in_use && memcmp(fleet->peers[i].id, id, 16) == 0)
            return i;
    return FLEET_NOBODY;
}

static void take_state(uint32_t host, const struct sim_packet *packet)
{
    const struct gossip_state *told = packet->state;
    struct sim_host *at = &hosts[host];
    uint32_t provider = provider_by_name(told->provider);
    struct sim_voice *voice = &at->voices[provider];
    uint32_t peer = peer_of(host, told->sender.id);
    const struct book *book = &desk_of(host, provider, SIM_BY_AGENT)->book;
    if (peer == FLEET_NOBODY || told->sender.incarnation != at->fleet.peers[peer].incarnation ||
        fleet_owner(&at->fleet, told->provider, voice->declared, sim_here(host), NULL) != peer)
        return;
    if (!voice->is_copy)
        agent_own(host);
    if (!voice->is_copy || voice->ours)
        return;
    shelf_look(host, provider, SIM_BY_AGENT);
    bool old = told->epoch < mirror_epoch(book) ||
               (told->epoch == mirror_epoch(book) && told->version <= book->sight.heard_version);
    old ? SIM_MARK(state_old_refused) : SIM_MARK(state_taken);
    if (packet->fetched)
        SIM_MARK(state_fetched);
    if (take_words(host, provider, SIM_BY_AGENT, told, packet->leases, packet->lease_count))
        fleet_applied(&at->fleet, peer, told->provider, told->epoch, told->version);
}

/* ---- beats ----------------------------------------------------------------------------------- */

static void note_gaps(uint32_t host, uint32_t peer)
{
    struct sim_host *at = &hosts[host];
    for (uint32_t p = 0; p < provider_count; p++) {
        const struct fleet_offer *offer = fleet_offer_of(&at->fleet, peer, provider_name(p));
        bool behind =
            offer &&
            (offer->epoch > offer->applied_epoch ||
             (offer->epoch == offer->applied_epoch && offer->version > offer->applied_version));
        if (!behind || at->voices[p].fetch_at != 0 ||
            at->voices[p].owner != host_of_peer(host, peer))
            continue;
        SIM_MARK(beat_gap);
        at->voices[p].fetch_at = sim_here(host) + (ns_t)rand_from(5, 50) * SIM_MS;
        agent_wake(host, 5 * SIM_MS);
    }
}

static void owe(uint32_t host, uint32_t provider, struct lease_id id, ns_t until, uint64_t epoch);

/* An owner that began anew may have forgotten how high its epoch was: somebody must say so. */
static void tell_epoch(uint32_t host, uint32_t peer, bool restarted)
{
    struct sim_host *at = &hosts[host];
    for (uint32_t p = 0; p < provider_count; p++) {
        const struct fleet_offer *offer = fleet_offer_of(&at->fleet, peer, provider_name(p));
        uint64_t heard = voice_epoch(host, p);
        if (!offer || offer->epoch == 0 || at->voices[p].ours ||
            at->voices[p].owner != host_of_peer(host, peer) || offer->epoch > heard ||
            (offer->epoch == heard && !restarted))
            continue;
        SIM_MARK(owner_told_its_epoch);
        owe(host, p, (struct lease_id){1, 1}, sim_here(host) + 3 * NS_PER_SEC, heard + 1);
    }
}

static void take_beat(uint32_t host, const struct gossip_beat *beat)
{
    struct sim_host *at = &hosts[host];
    struct heard_offer offers[SIM_PROVIDERS_MAX];
    struct heard_beat heard = {.name = beat->sender.name,
                               .version = "0",
                               .endpoint = beat->endpoint,
                               .incarnation = beat->sender.incarnation,
                               .offers = offers};
    memcpy(heard.id, beat->sender.id, sizeof heard.id);
    for (uint32_t i = 0; i < beat->offer_count && i < SIM_PROVIDERS_MAX; i++)
        offers[heard.offer_count++] = (struct heard_offer){.provider = beat->offers[i].provider,
                                                           .epoch = beat->offers[i].epoch,
                                                           .version = beat->offers[i].version};
    uint32_t peer;
    ns_t twin = at->fleet.twin_ns;
    unsigned news = fleet_hear(&at->fleet, &heard, sim_here(host), &peer);
    if (at->fleet.twin_ns != twin)
        SIM_MARK(twin_noticed);
    if (peer >= FLEET_PEERS_MAX)
        return;
    if (news & FLEET_NEWS_BACK)
        SIM_MARK(peer_back);
    if (news & FLEET_NEWS_RESTARTED)
        SIM_MARK(peer_restarted);
    if (news & (FLEET_NEWS_OFFERS | FLEET_NEWS_PEER | FLEET_NEWS_RESTARTED | FLEET_NEWS_BACK))
        agent_own(host);
    if (news & FLEET_NEWS_GAP)
        note_gaps(host, peer);
    tell_epoch(host, peer, news & FLEET_NEWS_RESTARTED);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void take_claim(uint32_t host, const struct gossip_claim *told)
{
    struct heard_claim claim;
    struct effects *effects;
    uint32_t provider = provider_by_name(told->provider);
    struct sim_voice *voice = &hosts[host].voices[provider];
    if (memcmp(told->sender.id, hosts[host].id, 16) == 0 ||
        peer_of(host, told->sender.id) == FLEET_NOBODY ||
        !heard_lease_of(&told->lease, told->provider, "", &claim.lease))
        return;
    claim.lease.holder.local = 0;
    claim.epoch = told->epoch;
    claim.withdrawn = told->withdrawn;
    shelf_look(host, provider, SIM_BY_AGENT);
    if (voice->ours)
        voice_hear_epoch(host, provider, told->epoch);
    bool known =
        book_find(&desk_of(host, provider, SIM_BY_AGENT)->book, claim.lease.id, UINT32_MAX) != NULL;
    if (claim.withdrawn && !known)
        SIM_MARK(withdrawn_before_claim);
    if (voice->ours && !known && !claim.withdrawn)
        SIM_MARK(claim_taken);
    struct event event = {.kind = EVENT_CLAIM, .claim = &claim};
    if (table_step(host, provider, SIM_BY_AGENT, &event, &effects) == TABLE_CRASHED)
        agent_crashed(host);
}

static bool is_to_be_claimed(const struct record *record)
{
    return record->holder.local &&
           (record->state == RECORD_HELD || record->state == RECORD_DISPATCHED);
}

static void tell(uint32_t host, const struct book *book, const struct record *record,
                 uint64_t epoch, bool withdrawn)
{
    struct sim_packet *packet = packet_new(PACKET_CLAIM, host);
    struct gossip_claim *claim = packet->claim = calloc(1, sizeof *claim);
    withdrawn ? SIM_MARK(claim_withdrawn) : SIM_MARK(claim_sent);
    claim->epoch = record->token ? record->token >> TOKEN_BITS : epoch;
    claim->withdrawn = withdrawn;
    memcpy(claim->sender.id, hosts[host].id, sizeof claim->sender.id);
    strcpy(claim->sender.name, hosts[host].name);
    claim->sender.incarnation = hosts[host].incarnation;
    strcpy(claim->provider, book->provider);
    gossip_of_record(book, record, sim_here(host), &claim->lease);
    if (withdrawn)
        claim->lease.state = record->dispatched_ns ? GOSSIP_DISPATCHED : GOSSIP_HELD;
    if (!claim->lease.host[0])
        strcpy(claim->lease.host, hosts[host].name);
    net_publish(packet);
}

static void owe(uint32_t host, uint32_t provider, struct lease_id id, ns_t until, uint64_t epoch)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    for (uint32_t i = 0; i < 16; i++)
        if (voice->owed[i].in_use && lease_id_equal(voice->owed[i].id, id))
            return;
    for (uint32_t i = 0; i < 16; i++)
        if (!voice->owed[i].in_use) {
            voice->owed[i] = (struct sim_owed){true, id, until, 0, epoch};
            return;
        }
}

static void drop_ended(uint32_t host, uint32_t provider, const struct book *book)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < voice->claimed_count; i++) {
        const struct sim_claimed *claimed = &voice->claimed[i];
        const struct record *record = &book->records[claimed->cell];
        bool same = lease_id_equal(record->id, claimed->id);
        struct record gone = {.id = claimed->id, .units = 1, .slot = -1};
        if (same && is_to_be_claimed(record)) {
            voice->claimed[kept++] = *claimed;
            continue;
        }
        bool lapsed = same && record->end == END_LAPSED;
        if (lapsed && (record->flags & RECORD_NAMED))
            owe(host, provider, claimed->id, record->deadline_ns, 0);
        bool expired = same && record->end == END_EXPIRED; /* there it has its own end */
        if ((claimed->state != RECORD_FREE && !expired) || lapsed)
            tell(host, book, same ? record : &gone, claimed->epoch, true);
    }
    voice->claimed_count = kept;
}

static void look_at(uint32_t host, uint32_t provider, const struct book *book,
                    const struct record *record, ns_t here)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    struct sim_claimed *claimed = NULL;
    for (uint32_t i = 0; i < voice->claimed_count && !claimed; i++)
        if (lease_id_equal(voice->claimed[i].id, record->id))
            claimed = &voice->claimed[i];
    if (!claimed) {
        if (voice->claimed_count == SIM_CLAIMED_MAX)
            return;
        claimed = &voice->claimed[voice->claimed_count++];
        *claimed = (struct sim_claimed){.id = record->id, .epoch = mirror_epoch(book)};
    }
    claimed->cell = (uint16_t)(record - book->records);
    if (record->flags & RECORD_NAMED) {
        claimed->state = RECORD_FREE;
        return;
    }
    if (claimed->state != record->state || here - claimed->told >= REFRESH_NS) {
        tell(host, book, record, claimed->epoch, false);
        claimed->state = record->state;
        claimed->told = here;
    }
    voice->claims_at = here + REFRESH_NS;
}

/* The owner hears of those that died. */
static void pay(uint32_t host, uint32_t provider, ns_t here)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    for (uint32_t i = 0; i < 16; i++) {
        struct sim_owed *owed = &voice->owed[i];
        if (owed->in_use && here >= owed->until)
            owed->in_use = false;
        if (!owed->in_use || here < owed->next || voice->owner == SIM_NOBODY)
            continue;
        owed->next = here + OWE_NS;
        struct sim_packet *packet = packet_new(PACKET_MESSAGE, host);
        struct message *message = packet->message = calloc(1, sizeof *message);
        struct request_id id = draw_request_id(host, SIM_AGENT_ASKS + 1 + provider * 16 + i);
        uint8_t req[WIRE_ID_BYTES];
        memcpy(req, &id, sizeof req);
        message_request(message, MESSAGE_RELEASE, req);
        strcpy(message->name, hosts[host].name);
        strcpy(message->provider, provider_name(provider));
        lease_id_format(provider_name(provider), owed->id, message->lease);
        message->died = true;
        message->epoch = owed->epoch ? owed->epoch : voice_epoch(host, provider);
        net_send(packet, voice->owner);
    }
}

void claims_run(uint32_t host, uint32_t provider)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    const struct sim_desk *desk = desk_of(host, provider, SIM_BY_AGENT);
    ns_t here = sim_here(host);
    pay(host, provider, here);
    bool due = voice->claims_at != 0 && here >= voice->claims_at;
    if (!voice->fresh && voice->writes == desk->image->writes && !due)
        return;
    voice->fresh = false;
    voice->writes = desk->image->writes;
    voice->claims_at = 0;
    drop_ended(host, provider, &desk->book);
    for (uint32_t i = 0; i < desk->book.live_count; i++)
        if (is_to_be_claimed(&desk->book.records[desk->book.live[i]]))
            look_at(host, provider, &desk->book, &desk->book.records[desk->book.live[i]], here);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

static void take_message(uint32_t host, const struct sim_packet *packet)
{
    const struct message *message = packet->message;
    uint32_t provider = provider_by_name(message->provider);
    if (message->op != MESSAGE_FETCH)
        asked_take(host, provider, message, packet->from);
    else if (hosts[host].voices[provider].ours)
        publish_state(host, provider, packet->from, true);
}

void hear_packet(uint32_t host, const struct sim_event *event)
{
    const struct sim_packet *packet = event->what;
    uint32_t life = hosts[host].agent_life;
    agent_woken(host);
    if (hosts[host].agent_life != life)
        return;
    switch (packet->kind) {
    case PACKET_BEAT: take_beat(host, packet->beat); break;
    case PACKET_STATE: take_state(host, packet); break;
    case PACKET_CLAIM: take_claim(host, packet->claim); break;
    case PACKET_MESSAGE: take_message(host, packet); break;
    }
}

/* What a refusal brings, for a process of a copy's host. */
void hear_state_of_reply(uint32_t host, uint32_t provider, const struct sim_packet *packet)
{
    SIM_MARK(reply_state_taken);
    take_words(host, provider, SIM_BY_CLIENT, packet->state, packet->leases, packet->lease_count);
}
