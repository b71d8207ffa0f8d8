/* Finding peers, and whose publications are heard: those of the configuration, and those that other
 * peers tell of. Who is new is asked who it is, and told who we are. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/lookup.h"
#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"
#include "broker/host_random.h"

#define GAP_NS         (150 * NS_PER_MS) /* for what was published to arrive by itself */
#define LOST_NS        (20 * NS_PER_MS)  /* where it cannot: so many may have lost the same */
#define LOOK_NS        NS_PER_SEC
#define HELLO_FIRST_NS NS_PER_SEC /* between two tries, doubled each time */
#define HELLO_MOST_NS  (60 * NS_PER_SEC)
#define STATIC_MOST_NS (5 * NS_PER_SEC)
#define LOOKUP_NS      (3 * NS_PER_SEC)
#define RESOLVED_NS    (60 * NS_PER_SEC)
#define OTHER_NS       NS_PER_SEC
#define EACH_NS        (5 * NS_PER_MS)   /* between two of many peers that are to be asked anew */
#define HELLO_NS       (100 * NS_PER_MS) /* between two peers that are asked who they are, for long */
#define HELLO_BURST    128               /* so many may be asked at once */
#define RELAY_HELLO_NS (500 * NS_PER_MS) /* the same where a relay makes most of that needless */
#define RELAY_BURST    16
#define RELAYED_NS     (8 * NS_PER_SEC) /* between two lists where beats tell of all by themselves */

/* A peer of the configuration. */
struct name {
    char endpoint[FLEET_ENDPOINT_SIZE]; /* numeric, "" not known */
    struct lookup *lookup;              /* under way */
    ns_t next_ns;                       /* NS_NEVER: it is an address */
};

struct names {
    uint32_t count;
    struct name names[FLEET_CONFIG_PEERS_MAX];
};

static ns_t some_of(ns_t span_ns)
{
    return (ns_t)(host_random_u64() % (uint64_t)span_ns);
}

void peers_beside(const char *endpoint, uint32_t port, char *to)
{
    struct endpoint parsed;
    to[0] = '\0';
    if (port > 0 && port < 65536 && endpoint_parse(endpoint, &parsed))
        endpoint_format(parsed.host, (uint16_t)port, to);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void tell_static(struct room *room, uint32_t index)
{
    const struct fleet_config_peer *peer = &room->config->peers[index];
    fleet_tell(room->fleet, peer->name, NULL, room->names->names[index].endpoint, true,
               host_now_ns());
    room->routes_changed = true;
    room->look_ns = 0; /* who is new is asked now */
}

static void look_up(struct room *room, uint32_t index, ns_t now)
{
    struct name *name = &room->names->names[index];
    char numeric[TCP_ENDPOINT_SIZE];
    if (!name->lookup) {
        name->next_ns = now + LOOKUP_NS;
        if (lookup_begin(room->config->peers[index].endpoint, &name->lookup) < 0)
            return;
    }
    int error = lookup_result(name->lookup, numeric);
    if (error == LEASE_ETIMEOUT) {
        name->next_ns = now + 50 * NS_PER_MS;
        return;
    }
    lookup_drop(&name->lookup);
    name->next_ns = now + (error < 0 ? LOOKUP_NS : RESOLVED_NS);
    if (error == 0 && strcmp(numeric, name->endpoint) != 0) {
        snprintf(name->endpoint, sizeof name->endpoint, "%s", numeric);
        tell_static(room, index);
    }
}

static void open_names(struct room *room)
{
    room->names->count = room->config->peer_count;
    for (uint32_t i = 0; i < room->names->count; i++) {
        struct name *name = &room->names->names[i];
        struct endpoint endpoint;
        const char *text = room->config->peers[i].endpoint;
        if (!endpoint_parse(text, &endpoint) || !endpoint_is_numeric(endpoint.host))
            continue; /* looked up in the first turn */
        name->next_ns = NS_NEVER;
        snprintf(name->endpoint, sizeof name->endpoint, "%s", text);
        tell_static(room, i);
    }
}

static void run_names(struct room *room, ns_t now)
{
    for (uint32_t i = 0; i < room->names->count; i++)
        if (now >= room->names->names[i].next_ns)
            look_up(room, i, now);
}

/* ---- contacts -------------------------------------------------------------------------------- */

static bool is_heard_elsewhere(const struct room *room, uint32_t but, const char *endpoint)
{
    for (uint32_t i = 0; i < room->fleet->peer_count; i++)
        if (i != but && strcmp(room->contacts[i].connected, endpoint) == 0)
            return true;
    return false;
}

static void disconnect(struct room *room, uint32_t index)
{
    struct contact *contact = &room->contacts[index];
    if (contact->connected[0] && !is_heard_elsewhere(room, index, contact->connected))
        mesh_disconnect(room->mesh, contact->connected);
    contact->connected[0] = '\0';
}

static void connect_to(struct room *room, uint32_t index)
{
    const struct fleet_peer *peer = &room->fleet->peers[index];
    struct contact *contact = &room->contacts[index];
    bool wanted = peer->in_use && peer->publish[0] && !room->config->relay[0];
    if (strcmp(contact->connected, wanted ? peer->publish : "") == 0)
        return;
    disconnect(room, index);
    if (wanted && mesh_connect(room->mesh, peer->publish) == 0)
        snprintf(contact->connected, sizeof contact->connected, "%s", peer->publish);
}

static void ask_soon(struct contact *contact, ns_t when_ns)
{
    if (!contact->hello || when_ns < contact->hello_ns)
        contact->hello_ns = when_ns;
    contact->hello = true;
}

/* Another peer stands at this index, or it is reached elsewhere. */
static void begin_contact(struct room *room, uint32_t index)
{
    const struct fleet_peer *peer = &room->fleet->peers[index];
    struct contact *contact = &room->contacts[index];
    if (strcmp(contact->endpoint, peer->in_use ? peer->endpoint : "") == 0)
        return;
    char connected[FLEET_ENDPOINT_SIZE];
    memcpy(connected, contact->connected, sizeof connected);
    *contact = (struct contact){.hello = false};
    memcpy(contact->connected, connected, sizeof connected);
    snprintf(contact->endpoint, sizeof contact->endpoint, "%s", peer->in_use ? peer->endpoint : "");
    contact->is_self = contact->endpoint[0] && strcmp(contact->endpoint, room->endpoint) == 0;
    room->routes_changed |= contact->is_self; /* it is not shown any more */
}

/* Of two who were told of each other at the same time one asks, which tells the other enough; where the
 * one cannot, the other does after a while. Where a relay stands between, both hear each other by then. */
static ns_t hello_wait(const struct room *room, const struct fleet_peer *peer)
{
    bool told_first =
        !room->config->relay[0] &&
        (!room->endpoint[0] || memcmp(room->speaker->id, peer->id, sizeof peer->id) > 0);
    bool goes_first = peer->is_static || peer->heard_ns != 0 || told_first;
    return goes_first ? some_of(100 * NS_PER_MS) : OTHER_NS + some_of(OTHER_NS);
}

static void look_after(struct room *room, uint32_t index, ns_t now)
{
    const struct fleet_peer *peer = &room->fleet->peers[index];
    struct contact *contact = &room->contacts[index];
    begin_contact(room, index);
    connect_to(room, index);
    bool live = peer->in_use && fleet_peer_state(peer, now) == PEER_LIVE;
    if (!peer->in_use || !peer->endpoint[0] || contact->is_self)
        contact->hello = false;
    else if (!live && !contact->hello)
        ask_soon(contact, now + hello_wait(room, peer));
}

static void look_after_all(struct room *room, ns_t now)
{
    for (uint32_t i = 0; i < room->fleet->peer_count; i++)
        look_after(room, i, now);
}

/* ---- what a beat says ------------------------------------------------------------------------ */

static bool is_newer(const struct fleet_offer *offer)
{
    return offer->epoch > offer->applied_epoch ||
           (offer->epoch == offer->applied_epoch && offer->version > offer->applied_version);
}

/* What is published comes in the order in which it was said: a state that a published beat speaks of is
 * lost, unless it waits here. An answer may have come faster. */
static ns_t gap_wait(const struct room *room, uint32_t peer, const char *provider,
                     enum heard_how how)
{
    bool lost = how == HEARD_PUBLISHED && !hear_waits_for_book(room, peer, provider);
    return lost ? some_of(LOST_NS) : GAP_NS + some_of(GAP_NS / 3);
}

static void note_gap(struct room *room, uint32_t peer, const char *provider, ns_t due_ns)
{
    for (uint32_t i = 0; i < room->gap_count; i++) {
        struct gap *gap = &room->gaps[i];
        if (gap->peer != peer || strcmp(gap->provider, provider) != 0)
            continue;
        gap->due_ns = due_ns < gap->due_ns ? due_ns : gap->due_ns;
        return;
    }
    if (room->gap_count == ROOM_GAPS)
        return;
    struct gap *gap = &room->gaps[room->gap_count++];
    gap->peer = peer;
    gap->due_ns = due_ns;
    snprintf(gap->provider, sizeof gap->provider, "%s", provider);
}

static bool is_from_owner(const struct room *room, uint32_t peer, const char *provider, ns_t now)
{
    bool owned = false;
    for (uint32_t i = 0; i < room->voice_count && !owned; i++)
        owned = room->voices[i].provider->owned &&
                strcmp(room->voices[i].provider->name, provider) == 0;
    return fleet_owner(room->fleet, provider, owned, now, NULL) == peer;
}

static void note_gaps(struct room *room, uint32_t peer, enum heard_how how, ns_t now)
{
    for (uint32_t i = 0; i < room->fleet->offer_count; i++) {
        const struct fleet_offer *offer = &room->fleet->offers[i];
        if (offer->peer == peer && offer->version != 0 && is_newer(offer) &&
            is_from_owner(room, peer, offer->provider, now))
            note_gap(room, peer, offer->provider, now + gap_wait(room, peer, offer->provider, how));
    }
}

/* What it said before, or who spoke for it, is not to be taken for what it says from now on. */
static void begin_anew(struct room *room, uint32_t peer)
{
    for (uint32_t i = 0; i < room->voice_count; i++) {
        struct voice *voice = &room->voices[i];
        if (fleet_offer_of(room->fleet, peer, voice->provider->name))
            voice->stood = room_copy(voice->provider);
    }
}

void peers_heard(struct room *room, uint32_t peer, unsigned news, enum heard_how how, ns_t now)
{
    if (news & (FLEET_NEWS_PEER | FLEET_NEWS_RESTARTED | FLEET_NEWS_OFFERS | FLEET_NEWS_BACK |
                FLEET_NEWS_ENDPOINT))
        room->routes_changed = true;
    if (news & FLEET_NEWS_PEER) {
        bool soon = !room->list_asked && !room->config->relay[0];
        room->joined_ns = now;
        room->list_wait_ns = 0;
        room->list_ns = soon ? now : room->list_ns; /* it may know others */
    }
    if (news & (FLEET_NEWS_PEER | FLEET_NEWS_RESTARTED))
        begin_anew(room, peer);
    if (news & (FLEET_NEWS_PEER | FLEET_NEWS_ENDPOINT))
        look_after(room, peer, now);
    if (news & (FLEET_NEWS_OFFERS | FLEET_NEWS_PEER | FLEET_NEWS_RESTARTED | FLEET_NEWS_BACK))
        room_own(room);
    if (news & FLEET_NEWS_GAP)
        note_gaps(room, peer, how, now);
}

/* It began anew, or did not hear us either: it may not know us any more. Whoever is heard by the relay hears
 * us by it too. */
void peers_introduce(struct room *room, uint32_t peer, ns_t now)
{
    struct contact *contact = &room->contacts[peer];
    if (!room->endpoint[0] || room->config->relay[0] || !room->fleet->peers[peer].endpoint[0])
        return;
    contact->unmet = true;
    ask_soon(contact, now + some_of(100 * NS_PER_MS));
}

/* ---- the next thing to ask ------------------------------------------------------------------- */

/* Peers that do not come to speak in time are asked, which costs them time: where that is why they are
 * silent, a fleet that asks as fast as it can would stay so. When the next one may be asked. */
static ns_t hello_allowed_ns(const struct room *room)
{
    bool relayed = room->config->relay[0];
    return room->hellos_ns - (relayed ? RELAY_BURST * RELAY_HELLO_NS : HELLO_BURST * HELLO_NS);
}

static void count_hello(struct room *room, ns_t now)
{
    ns_t from = room->hellos_ns > now ? room->hellos_ns : now;
    room->hellos_ns = from + (room->config->relay[0] ? RELAY_HELLO_NS : HELLO_NS);
}

bool peers_next_hello(struct room *room, ns_t now, uint32_t *peer)
{
    uint32_t count = room->fleet->peer_count;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = (room->hello_next + n) % count; /* in turns: none waits for ever */
        struct contact *contact = &room->contacts[i];
        if (!contact->hello || now < contact->hello_ns)
            continue;
        if (!contact->unmet && fleet_peer_state(&room->fleet->peers[i], now) == PEER_LIVE) {
            contact->hello = false; /* it was heard meanwhile */
            continue;
        }
        if (now < hello_allowed_ns(room))
            return false;
        count_hello(room, now);
        room->hello_next = i + 1;
        ns_t most = room->fleet->peers[i].is_static ? STATIC_MOST_NS : HELLO_MOST_NS;
        ns_t wait = HELLO_FIRST_NS << (contact->failures < 6 ? contact->failures : 6);
        wait = wait < most ? wait : most;
        contact->hello_ns = now + wait + some_of(wait / 4);
        *peer = i;
        return true;
    }
    return false;
}

void peers_hello_ended(struct room *room, uint32_t peer, bool answered, bool is_self)
{
    struct contact *contact = &room->contacts[peer];
    contact->failures = answered ? 0 : contact->failures + 1;
    room->routes_changed |= is_self;
    contact->is_self = contact->is_self || is_self;
    if (answered)
        contact->hello = contact->unmet = false;
}

bool peers_next_gap(struct room *room, ns_t now, struct gap *gap)
{
    for (uint32_t i = 0; i < room->gap_count; i++) {
        if (now < room->gaps[i].due_ns)
            continue;
        *gap = room->gaps[i];
        room->gaps[i] = room->gaps[--room->gap_count];
        const struct fleet_offer *offer = fleet_offer_of(room->fleet, gap->peer, gap->provider);
        if (offer && is_newer(offer) && is_from_owner(room, gap->peer, gap->provider, now))
            return true;
        i--; /* it came by itself; another one stands here now */
    }
    return false;
}

/* Whoever knows others than we do is asked whom, the one with the most first; more rarely while that
 * brings nothing. */
bool peers_next_list(struct room *room, ns_t now, uint32_t *peer)
{
    uint32_t ours, most = 0;
    if (now < room->list_ns)
        return false;
    uint64_t digest = fleet_digest(room->fleet, &ours);
    bool found = false;
    for (uint32_t i = 0; i < room->fleet->peer_count; i++) {
        const struct contact *contact = &room->contacts[i];
        const struct fleet_peer *known = &room->fleet->peers[i];
        if (!known->in_use || !known->endpoint[0] || contact->digest == digest ||
            contact->digest == contact->list_digest || contact->count < most ||
            fleet_peer_state(known, now) != PEER_LIVE)
            continue;
        most = contact->count;
        *peer = i;
        found = true;
    }
    ns_t least = LOOK_NS / 4 + room->fleet->peer_count * EACH_NS; /* long lists are dear */
    ns_t wait = room->list_wait_ns * 2;
    wait = wait < least ? least : wait > 8 * LOOK_NS ? 8 * LOOK_NS : wait;
    wait = room->config->relay[0] ? RELAYED_NS : wait;
    room->list_wait_ns = found ? wait : room->list_wait_ns;
    room->list_ns = now + (found ? wait : LOOK_NS);
    room->list_asked = found;
    if (found)
        room->contacts[*peer].list_digest = room->contacts[*peer].digest;
    return found;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int peers_open(struct room *room)
{
    room->contacts = calloc(FLEET_PEERS_MAX, sizeof *room->contacts);
    room->names = calloc(1, sizeof *room->names);
    if (!room->contacts || !room->names)
        return LEASE_ENOMEM;
    open_names(room);
    if (room->config->relay[0]) {
        char endpoint[ENDPOINT_SIZE];
        struct endpoint relay;
        if (endpoint_parse(room->config->relay, &relay)) {
            peers_beside(room->config->relay, relay.port + 1u, endpoint);
            mesh_connect(room->mesh, endpoint);
        }
    }
    return 0;
}

void peers_close(struct room *room)
{
    for (uint32_t i = 0; room->names && i < room->names->count; i++)
        if (room->names->names[i].lookup)
            lookup_drop(&room->names->names[i].lookup);
    free(room->names);
    free(room->contacts);
}

void peers_run(struct room *room, ns_t now)
{
    run_names(room, now);
    if (now >= room->look_ns) {
        room->look_ns = now + LOOK_NS;
        fleet_prune(room->fleet, now);
        look_after_all(room, now);
    }
}

/* Everybody is asked anew who is not heard by himself, and not all at once: where a machine is so busy
 * that its agents are late, questions of each to each would make it busier. */
void peers_distrust(struct room *room)
{
    ns_t now = host_now_ns(), span = 200 * NS_PER_MS + room->fleet->peer_count * EACH_NS;
    ns_t first = now + (room->config->relay[0] ? OTHER_NS : 0);
    room->gap_count = 0;
    room->list_ns = 0;
    for (uint32_t i = 0; i < room->fleet->peer_count; i++) {
        room->contacts[i].list_digest = 0;
        if (room->fleet->peers[i].in_use && room->fleet->peers[i].endpoint[0])
            ask_soon(&room->contacts[i], first + some_of(span));
    }
}

ns_t peers_deadline(const struct room *room)
{
    ns_t first = room->look_ns;
    for (uint32_t i = 0; i < room->names->count; i++)
        first = room->names->names[i].next_ns < first ? room->names->names[i].next_ns : first;
    if (errands_are_full(room)) /* the loop would not sleep until one of them ends */
        return first;
    for (uint32_t i = 0; i < room->gap_count; i++)
        first = room->gaps[i].due_ns < first ? room->gaps[i].due_ns : first;
    ns_t allowed = hello_allowed_ns(room);
    for (uint32_t i = 0; i < room->fleet->peer_count; i++) {
        const struct contact *contact = &room->contacts[i];
        ns_t due = contact->hello_ns > allowed ? contact->hello_ns : allowed;
        first = contact->hello && due < first ? due : first;
    }
    return first;
}
