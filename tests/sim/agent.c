/* An agent: its turn, who owns what, and distrusting itself. Follows agent/speaker_fleet.c,
 * speaker_publish.c and speaker_probe.c, as far as the core has to do with it. */
#include <stdlib.h>

#include "broker/planted.h"
#include "tests/sim/sim.h"

#define BEAT_NS     (FLEET_BEAT_MS * NS_PER_MS)
#define LATE_NS     (FLEET_SILENT_BEATS * BEAT_NS)
#define COALESCE_NS (10 * NS_PER_MS)

struct sim_host hosts[SIM_HOSTS_MAX];
uint32_t host_count, provider_count;

const char *provider_name(uint32_t provider)
{
    static const char *const names[SIM_PROVIDERS_MAX] = {"p0", "p1", "p2", "p3"};
    return names[provider];
}

uint32_t host_by_name(const char *name)
{
    for (uint32_t i = 0; i < host_count; i++)
        if (strcmp(hosts[i].name, name) == 0)
            return i;
    return SIM_NOBODY;
}

uint32_t host_of_peer(uint32_t host, uint32_t peer)
{
    if (peer == FLEET_SELF)
        return host;
    return peer < FLEET_PEERS_MAX ? host_by_name(hosts[host].fleet.peers[peer].name) : SIM_NOBODY;
}

struct request_id draw_request_id(uint32_t host, uint32_t who)
{
    return (struct request_id){(uint64_t)(host + 1) << 32 | who, rand_word()};
}

/* ---- epochs ---------------------------------------------------------------------------------- */

uint64_t voice_epoch(uint32_t host, uint32_t provider)
{
    const struct book *book = &desk_of(host, provider, SIM_BY_AGENT)->book;
    return mirror_epoch(book);
}

static void raise_book(struct book *book, uint64_t epoch)
{
    if (book_is_copy(book))
        mirror_becomes_owner(book, epoch);
    else
        book_raise_epoch(book, epoch);
}

static void begin_copy(struct book *book, uint64_t unused)
{
    (void)unused;
    mirror_begin(book);
}

/* A book that is locked is raised later, and grants nothing before. */
void voice_raise(uint32_t host, uint32_t provider, uint64_t above)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    if (above == 0)
        above = 1; /* above what the book has, whenever it can be had */
    voice->raise_above = above > voice->raise_above ? above : voice->raise_above;
    if (hosts[host].locked_until > sim_now)
        return;
    shelf_look(host, provider, SIM_BY_AGENT);
    const struct book *book = &desk_of(host, provider, SIM_BY_AGENT)->book;
    uint64_t least = book->head.epoch > voice->raise_above ? book->head.epoch : voice->raise_above;
    table_change(host, provider, SIM_BY_AGENT, raise_book, epoch_next(host, provider, least));
    voice->raise_above = 0;
    voice->fresh = true;
}

/* A process of this host that asked another owner may have made a copy of our book. */
void voice_keep(uint32_t host, uint32_t provider)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    shelf_look(host, provider, SIM_BY_AGENT);
    const struct book *book = &desk_of(host, provider, SIM_BY_AGENT)->book;
    if (voice->ours && book_is_copy(book)) {
        SIM_MARK(owner_book_copied);
        voice_raise(host, provider, mirror_epoch(book));
    } else if (voice->raise_above) {
        voice_raise(host, provider, voice->raise_above);
    }
}

void voice_hear_epoch(uint32_t host, uint32_t provider, uint64_t epoch)
{
    if (epoch <= voice_epoch(host, provider))
        return;
    SIM_MARK(epoch_raised_by_word);
    voice_raise(host, provider, epoch);
}

/* ---- who owns what --------------------------------------------------------------------------- */

static void own(uint32_t host, uint32_t provider)
{
    struct sim_host *at = &hosts[host];
    struct sim_voice *voice = &at->voices[provider];
    uint32_t conflicts, before = voice->owner;
    bool was_ours = voice->ours;
    uint32_t owner = fleet_owner(&at->fleet, provider_name(provider), voice->declared,
                                 sim_here(host), &conflicts);
    voice->owner = host_of_peer(host, owner);
    voice->ours = owner == FLEET_SELF;
    if (conflicts > 0)
        SIM_MARK(two_owners);
    if (owner < FLEET_PEERS_MAX &&
        fleet_peer_state(&at->fleet.peers[owner], sim_here(host)) != PEER_LIVE)
        SIM_MARK(peer_silent);
    if (before != voice->owner && before != SIM_NOBODY)
        SIM_MARK(owner_moved);
    shelf_look(host, provider, SIM_BY_AGENT);
    uint64_t heard = voice->ours ? fleet_epoch(&at->fleet, provider_name(provider)) : 0;
    uint64_t epoch = voice_epoch(host, provider);
    bool was_copy = book_is_copy(&desk_of(host, provider, SIM_BY_AGENT)->book);
    if (voice->ours && (was_copy || (heard >= epoch && heard > 0))) {
        if (was_copy)
            SIM_MARK(became_owner);
        voice_raise(host, provider, heard > epoch ? heard : epoch);
    }
    if (voice->ours) {
        voice->is_copy = false;
    } else if (owner < FLEET_PEERS_MAX && !voice->is_copy && at->locked_until <= sim_now) {
        SIM_MARK(became_copy);
        table_change(host, provider, SIM_BY_AGENT, begin_copy, 0);
        voice->is_copy = true;
    }
    if (voice->ours != was_ours)
        voice->fresh = true;
}

void agent_own(uint32_t host)
{
    hosts[host].own_at = sim_here(host) + BEAT_NS;
    for (uint32_t p = 0; p < provider_count; p++)
        own(host, p);
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static void tell_peers(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    for (uint32_t i = 0; i < host_count; i++)
        if (i != host)
            fleet_tell(&at->fleet, NULL, NULL, hosts[i].name, true, sim_here(host));
}

void agent_start(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    ns_t here = sim_here(host);
    at->agent_up = true;
    at->agent_life++;
    at->incarnation = rand_word();
    fleet_init(&at->fleet, at->name, at->id);
    at->fleet.incarnation = at->incarnation;
    tell_peers(host);
    at->beat_at = at->own_at = at->reap_at = at->route_at = at->planned = here;
    at->asked_count = 0;
    memset(at->asked, 0, SIM_ASKED_MAX * sizeof *at->asked);
    for (uint32_t p = 0; p < provider_count; p++) {
        bool declared = at->voices[p].declared;
        at->voices[p] = (struct sim_voice){.declared = declared, .owner = SIM_NOBODY};
        at->voices[p].fresh = true;
        desk_open(host, p, SIM_BY_AGENT);
        if (declared)
            voice_raise(host, p, 0);
    }
    at->timer = 0;
    agent_wake(host, 0);
}

void agent_stop(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    at->agent_up = false;
    at->agent_life++;
    at->paused_until = 0;
    for (uint32_t p = 0; p < provider_count; p++)
        desk_drop(host, p, SIM_BY_AGENT);
}

/* It died in the middle of a commit, and somebody else takes over. */
void agent_crashed(uint32_t host)
{
    SIM_MARK(agent_crash_in_commit);
    agent_stop(host);
    sim_at(sim_now + (ns_t)rand_from(100, 3000) * SIM_MS, SIM_BOOT, host, 1, hosts[host].life,
           NULL);
}

void agent_wake(uint32_t host, ns_t in)
{
    struct sim_host *at = &hosts[host];
    ns_t when = sim_now + in;
    if (!at->agent_up || (at->timer > sim_now && at->timer <= when))
        return;
    at->timer = when > sim_now ? when : sim_now + 1;
    sim_at(at->timer, SIM_AGENT, host, 0, at->agent_life, NULL);
}

void agent_changed(uint32_t host, uint32_t provider, const struct effects *effects)
{
    struct sim_host *at = &hosts[host];
    const struct sim_image *image = &at->shelves[provider].image;
    (void)effects;
    for (uint32_t i = 0; i < SIM_HOLDERS_MAX; i++) {
        struct sim_holder *holder = &at->holders[i];
        if (holder->alive && holder->question.want && !holder->question.remote &&
            holder->question.provider == provider)
            holder_wake(host, i, SIM_MS / 10);
    }
    if (at->agent_up && image->writes != at->voices[provider].writes)
        agent_wake(host, at->asked_count > 0 ? 1 : COALESCE_NS);
}

/* ---- our own lateness ------------------------------------------------------------------------ */

static void distrust(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    struct event tick = {.kind = EVENT_TICK};
    struct effects *effects;
    SIM_MARK(distrust);
    for (uint32_t p = 0; p < provider_count; p++) {
        if (!at->voices[p].ours)
            continue;
        if (table_step(host, p, SIM_BY_AGENT, &tick, &effects) == TABLE_CRASHED) {
            agent_crashed(host);
            return;
        }
        check_distrusted(host, p);
        if (!PLANTED(PLANT_EPOCH_NOT_RAISED))
            voice_raise(host, p, 0);
    }
    fleet_distrust(&at->fleet);
    at->beat_at = at->own_at = sim_here(host);
}

void agent_woken(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    ns_t here = sim_here(host);
    bool late = here - at->planned > LATE_NS;
    if (!late)
        return;
    at->planned = here;
    distrust(host);
}

/* ---- the turn -------------------------------------------------------------------------------- */

static bool dies_of(uint32_t host, enum sim_table_result result)
{
    if (result != TABLE_CRASHED)
        return false;
    agent_crashed(host);
    return true;
}

static void reap(uint32_t host)
{
    static uint16_t dead[BOOK_CELLS];
    struct effects *effects;
    for (uint32_t p = 0; p < provider_count && hosts[host].agent_up; p++) {
        shelf_look(host, p, SIM_BY_AGENT);
        const struct book *book = &desk_of(host, p, SIM_BY_AGENT)->book;
        struct event event = {.kind = EVENT_DEAD, .dead = dead};
        for (uint32_t i = 0; i < book->live_count; i++) {
            const struct record *record = &book->records[book->live[i]];
            if (record->holder.local && record->state != RECORD_ORPHAN &&
                !pid_lives(host, record->holder.pid))
                dead[event.dead_count++] = book->live[i];
        }
        if (event.dead_count == 0)
            continue;
        SIM_MARK(dead_holder_reaped);
        dies_of(host, table_step(host, p, SIM_BY_AGENT, &event, &effects));
    }
}

/* What ends by the clock ends at its time, also where nobody asks. */
static void tick(uint32_t host, uint32_t provider, ns_t here)
{
    struct event event = {.kind = EVENT_TICK};
    struct effects *effects;
    if (here >= broker_deadline(&desk_of(host, provider, SIM_BY_AGENT)->broker))
        dies_of(host, table_step(host, provider, SIM_BY_AGENT, &event, &effects));
}

static void probe(uint32_t host, uint32_t provider, ns_t here)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    const struct book *book = &desk_of(host, provider, SIM_BY_AGENT)->book;
    if (!voice->ours || servers[provider].signal == SIM_STATIC)
        return;
    voice->read_at = attribution_next_due(book, false);
    if (here >= voice->read_at) {
        reading_ask(host, provider);
        voice->read_at = here + PROBE_ACTIVE_MS * SIM_MS;
    }
}

static void publish(uint32_t host, uint32_t provider, ns_t here)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    const struct sim_desk *desk = desk_of(host, provider, SIM_BY_AGENT);
    if (!voice->ours) {
        claims_run(host, provider);
        return;
    }
    if ((voice->fresh || desk->image->writes != voice->writes) && !voice->due) {
        voice->due = true;
        voice->due_at = voice->published_at + COALESCE_NS;
    }
    voice->fresh = false;
    voice->writes = desk->image->writes;
    if (!voice->due || here < voice->due_at)
        return;
    voice->due = false;
    voice->published_at = here;
    publish_state(host, provider, SIM_NOBODY, false);
}

static void beat(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    struct sim_packet *packet = packet_new(PACKET_BEAT, host);
    struct gossip_beat *told = packet->beat = calloc(1, sizeof *told);
    memcpy(told->sender.id, at->id, sizeof told->sender.id);
    strcpy(told->sender.name, at->name);
    strcpy(told->endpoint, at->name);
    told->sender.incarnation = at->incarnation;
    for (uint32_t p = 0; p < provider_count; p++) {
        if (!at->voices[p].declared)
            continue;
        struct gossip_offer *offer = &told->offers[told->offer_count++];
        strcpy(offer->provider, provider_name(p));
        offer->epoch = at->voices[p].issued;
        offer->version = at->voices[p].told;
    }
    net_publish(packet);
}

static void write_routes(uint32_t host, ns_t here)
{
    struct sim_host *at = &hosts[host];
    at->route_at = here + BEAT_NS / 2;
    for (uint32_t p = 0; p < provider_count; p++) {
        struct sim_voice *voice = &at->voices[p];
        if (voice->owner == SIM_NOBODY)
            continue;
        at->routes[p].owner = voice->owner;
        uint64_t epoch = fleet_epoch(&at->fleet, provider_name(p));
        at->routes[p].epoch = epoch > at->routes[p].epoch ? epoch : at->routes[p].epoch;
        at->routes[p].heard = here;
    }
}

/* A state that is missing is asked for, of whom we take to be its owner. */
static void fetch(uint32_t host, uint32_t provider, ns_t here)
{
    struct sim_voice *voice = &hosts[host].voices[provider];
    if (voice->fetch_at == 0 || here < voice->fetch_at)
        return;
    voice->fetch_at = 0;
    if (voice->ours || voice->owner == SIM_NOBODY)
        return;
    struct sim_packet *packet = packet_new(PACKET_MESSAGE, host);
    struct request_id id = draw_request_id(host, SIM_AGENT_ASKS);
    uint8_t req[WIRE_ID_BYTES];
    memcpy(req, &id, sizeof req);
    packet->message = calloc(1, sizeof *packet->message);
    message_request(packet->message, MESSAGE_FETCH, req);
    strcpy(packet->message->provider, provider_name(provider));
    strcpy(packet->message->name, hosts[host].name);
    net_send(packet, voice->owner);
}

static ns_t earlier(ns_t a, ns_t b)
{
    return b > 0 && b < a ? b : a;
}

static ns_t next_turn(uint32_t host)
{
    const struct sim_host *at = &hosts[host];
    ns_t first = earlier(earlier(at->beat_at, at->own_at), at->reap_at);
    first = earlier(first, at->route_at);
    for (uint32_t i = 0; i < SIM_ASKED_MAX && at->asked_count > 0; i++)
        if (at->asked[i].in_use)
            first = earlier(earlier(first, at->asked[i].retry), at->asked[i].end);
    for (uint32_t p = 0; p < provider_count; p++) {
        const struct sim_voice *voice = &at->voices[p];
        first = earlier(first, voice->due ? voice->due_at : 0);
        first = earlier(first, voice->ours ? voice->read_at : voice->claims_at);
        first = earlier(first, voice->fetch_at);
        first = earlier(first, broker_deadline(&desk_of(host, p, SIM_BY_AGENT)->broker));
    }
    return first;
}

static void turn(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    uint32_t life = at->agent_life;
    ns_t here = sim_here(host);
    if (here >= at->own_at)
        agent_own(host);
    if (here >= at->reap_at) {
        at->reap_at = here + BEAT_NS;
        reap(host);
    }
    if (at->agent_life == life)
        asked_run(host);
    for (uint32_t p = 0; p < provider_count && at->agent_life == life; p++) {
        voice_keep(host, p);
        tick(host, p, here);
        if (at->agent_life != life)
            return;
        probe(host, p, here);
        publish(host, p, here);
        fetch(host, p, here);
    }
    if (at->agent_life != life)
        return;
    if (here >= at->beat_at) {
        at->beat_at = here + BEAT_NS;
        beat(host);
    }
    if (here >= at->route_at)
        write_routes(host, here);
    at->planned = next_turn(host);
    ns_t when = sim_true(host, at->planned);
    agent_wake(host, when > sim_now ? when - sim_now + 2 : SIM_MS);
}

void agent_event(const struct sim_event *event)
{
    struct sim_host *at = &hosts[event->host];
    if (!at->up || !at->agent_up || event->life != at->agent_life || event->at != at->timer)
        return;
    if (at->paused_until > sim_now) {
        at->timer = at->paused_until;
        sim_at(at->timer, SIM_AGENT, event->host, 0, at->agent_life, NULL);
        return;
    }
    at->timer = 0;
    uint32_t life = at->agent_life;
    agent_woken(event->host);
    if (at->agent_life == life)
        turn(event->host);
}
