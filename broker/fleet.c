#include "broker/fleet.h"

#include <string.h>

#define SILENT_NS (FLEET_SILENT_BEATS * FLEET_BEAT_MS * NS_PER_MS)
#define LOST_NS   (60 * NS_PER_SEC)

static const uint8_t no_id[16];

void fleet_init(struct fleet *fleet, const char *name, const uint8_t *id)
{
    memset(fleet, 0, offsetof(struct fleet, peers));
    text_copy(fleet->name, sizeof fleet->name, name);
    memcpy(fleet->id, id, sizeof fleet->id);
}

/* ---- the three ways to find something -------------------------------------------------------- */

static uint64_t hash_of(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint16_t *bucket_of_id(struct fleet *fleet, const uint8_t *id)
{
    return &fleet->peers_by_id[hash_of(id, 16) % FLEET_BUCKETS];
}

static uint16_t *bucket_of_name(struct fleet *fleet, const char *name)
{
    return &fleet->peers_by_name[hash_of(name, strlen(name)) % FLEET_BUCKETS];
}

static uint32_t bucket_of_provider(const char *provider)
{
    return (uint32_t)(hash_of(provider, strlen(provider)) % FLEET_BUCKETS);
}

static bool has_id(const struct fleet_peer *peer)
{
    return memcmp(peer->id, no_id, sizeof no_id) != 0;
}

static uint32_t index_of(const struct fleet *fleet, const struct fleet_peer *peer)
{
    return (uint32_t)(peer - fleet->peers);
}

static struct fleet_peer *find_by_id(struct fleet *fleet, const uint8_t *id)
{
    for (uint16_t at = *bucket_of_id(fleet, id); at; at = fleet->peers[at - 1].next_by_id)
        if (memcmp(fleet->peers[at - 1].id, id, 16) == 0)
            return &fleet->peers[at - 1];
    return NULL;
}

static struct fleet_peer *find_by_endpoint(struct fleet *fleet, const char *endpoint)
{
    struct fleet_peer *found = NULL;
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        struct fleet_peer *peer = &fleet->peers[i];
        if (!peer->in_use || strcmp(peer->endpoint, endpoint) != 0)
            continue;
        if (!found || peer->heard_ns > found->heard_ns)
            found = peer;
    }
    return found;
}

static void join_id(struct fleet *fleet, struct fleet_peer *peer, const uint8_t *id)
{
    uint16_t *bucket = bucket_of_id(fleet, id);
    memcpy(peer->id, id, sizeof peer->id);
    peer->next_by_id = *bucket;
    *bucket = (uint16_t)(index_of(fleet, peer) + 1);
}

static void leave_id(struct fleet *fleet, struct fleet_peer *peer)
{
    if (!has_id(peer))
        return;
    uint16_t *at = bucket_of_id(fleet, peer->id);
    while (*at && &fleet->peers[*at - 1] != peer)
        at = &fleet->peers[*at - 1].next_by_id;
    *at = peer->next_by_id;
    memset(peer->id, 0, sizeof peer->id);
}

static void join_name(struct fleet *fleet, struct fleet_peer *peer, const char *name)
{
    text_copy(peer->name, sizeof peer->name, name);
    if (!peer->name[0])
        return;
    uint16_t *bucket = bucket_of_name(fleet, peer->name);
    peer->next_by_name = *bucket;
    *bucket = (uint16_t)(index_of(fleet, peer) + 1);
}

static void leave_name(struct fleet *fleet, struct fleet_peer *peer)
{
    if (!peer->name[0])
        return;
    uint16_t *at = bucket_of_name(fleet, peer->name);
    while (*at && &fleet->peers[*at - 1] != peer)
        at = &fleet->peers[*at - 1].next_by_name;
    *at = peer->next_by_name;
    peer->name[0] = '\0';
}

static void rename_to(struct fleet *fleet, struct fleet_peer *peer, const char *name)
{
    if (strcmp(peer->name, name) == 0)
        return;
    leave_name(fleet, peer);
    join_name(fleet, peer, name);
}

/* ---- offers ---------------------------------------------------------------------------------- */

static struct fleet_offer *find_offer(struct fleet *fleet, uint32_t peer, const char *provider)
{
    uint16_t at = fleet->offers_by_provider[bucket_of_provider(provider)];
    for (; at; at = fleet->offers[at - 1].next)
        if (fleet->offers[at - 1].peer == peer &&
            strcmp(fleet->offers[at - 1].provider, provider) == 0)
            return &fleet->offers[at - 1];
    return NULL;
}

const struct fleet_offer *fleet_offer_of(const struct fleet *fleet, uint32_t peer,
                                         const char *provider)
{
    return find_offer((struct fleet *)fleet, peer, provider); /* looked at only */
}

static struct fleet_offer *take_offer(struct fleet *fleet, uint32_t peer, const char *provider)
{
    uint32_t i = 0;
    while (i < fleet->offer_count && fleet->offers[i].peer != FLEET_NOBODY)
        i++;
    if (i == FLEET_OFFERS_MAX) {
        fleet->refused++;
        return NULL;
    }
    if (i == fleet->offer_count)
        fleet->offer_count++;
    struct fleet_offer *offer = &fleet->offers[i];
    uint16_t *bucket = &fleet->offers_by_provider[bucket_of_provider(provider)];
    *offer = (struct fleet_offer){
        .peer = peer, .next = *bucket, .next_of_peer = fleet->peers[peer].first_offer};
    text_copy(offer->provider, sizeof offer->provider, provider);
    *bucket = fleet->peers[peer].first_offer = (uint16_t)(i + 1);
    return offer;
}

/* Drops those of a peer's offers that no beat names any more. Whether there were any. */
static bool drop_offers(struct fleet *fleet, struct fleet_peer *peer)
{
    bool dropped = false;
    for (uint16_t *at = &peer->first_offer; *at;) {
        struct fleet_offer *offer = &fleet->offers[*at - 1];
        if (offer->in_beat) {
            at = &offer->next_of_peer;
            continue;
        }
        uint16_t *in_bucket = &fleet->offers_by_provider[bucket_of_provider(offer->provider)];
        while (*in_bucket != *at)
            in_bucket = &fleet->offers[*in_bucket - 1].next;
        *in_bucket = offer->next;
        *at = offer->next_of_peer;
        offer->peer = FLEET_NOBODY;
        dropped = true;
    }
    return dropped;
}

static void unmark_offers(struct fleet *fleet, const struct fleet_peer *peer)
{
    for (uint16_t at = peer->first_offer; at; at = fleet->offers[at - 1].next_of_peer)
        fleet->offers[at - 1].in_beat = false;
}

static bool is_newer(uint64_t epoch, uint64_t version, uint64_t than_epoch, uint64_t than_version)
{
    return epoch > than_epoch || (epoch == than_epoch && version > than_version);
}

static void take_url(struct fleet_offer *offer, const char *url)
{
    if (url && strcmp(offer->url, url) != 0)
        text_copy(offer->url, sizeof offer->url, url);
}

static unsigned hear_offers(struct fleet *fleet, struct fleet_peer *peer,
                            const struct heard_beat *beat)
{
    unsigned news = 0;
    uint32_t count = beat->offer_count < PROVIDERS_MAX ? beat->offer_count : PROVIDERS_MAX;
    unmark_offers(fleet, peer);
    for (uint32_t i = 0; i < count; i++) {
        const struct heard_offer *heard = &beat->offers[i];
        if (!heard->provider || !name_is_valid(heard->provider) || heard->epoch > EPOCH_HEARD_MAX)
            continue;
        struct fleet_offer *offer = find_offer(fleet, index_of(fleet, peer), heard->provider);
        if (!offer) {
            offer = take_offer(fleet, index_of(fleet, peer), heard->provider);
            news |= offer ? FLEET_NEWS_OFFERS : 0u;
        }
        if (!offer)
            continue;
        offer->in_beat = true;
        if (is_newer(heard->epoch, heard->version, offer->epoch, offer->version)) {
            offer->epoch = heard->epoch;
            offer->version = heard->version;
        }
        take_url(offer, heard->url);
        if (is_newer(offer->epoch, offer->version, offer->applied_epoch, offer->applied_version))
            news |= FLEET_NEWS_GAP;
    }
    if (drop_offers(fleet, peer))
        news |= FLEET_NEWS_OFFERS;
    return news;
}

static void forget_applied(struct fleet *fleet, const struct fleet_peer *peer, bool versions_too)
{
    for (uint16_t at = peer->first_offer; at; at = fleet->offers[at - 1].next_of_peer) {
        struct fleet_offer *offer = &fleet->offers[at - 1];
        offer->applied_epoch = offer->applied_version = 0;
        if (versions_too)
            offer->epoch = offer->version = 0;
    }
}

void fleet_applied(struct fleet *fleet, uint32_t peer, const char *provider, uint64_t epoch,
                   uint64_t version)
{
    struct fleet_offer *offer = find_offer(fleet, peer, provider);
    if (!offer || epoch > EPOCH_HEARD_MAX)
        return;
    if (is_newer(epoch, version, offer->applied_epoch, offer->applied_version)) {
        offer->applied_epoch = epoch;
        offer->applied_version = version;
    }
    if (is_newer(epoch, version, offer->epoch, offer->version)) {
        offer->epoch = epoch;
        offer->version = version;
    }
}

/* ---- peers ----------------------------------------------------------------------------------- */

enum peer_state fleet_peer_state(const struct fleet_peer *peer, ns_t now)
{
    if (peer->heard_ns == 0)
        return PEER_TOLD;
    if (now - peer->heard_ns > LOST_NS)
        return PEER_LOST;
    return peer->distrusted || now - peer->heard_ns > SILENT_NS ? PEER_SILENT : PEER_LIVE;
}

static struct fleet_peer *take_peer(struct fleet *fleet, ns_t now)
{
    uint32_t i = 0;
    while (i < fleet->peer_count && fleet->peers[i].in_use)
        i++;
    if (i == FLEET_PEERS_MAX) {
        fleet->refused++;
        return NULL;
    }
    if (i == fleet->peer_count)
        fleet->peer_count++;
    memset(&fleet->peers[i], 0, sizeof fleet->peers[i]);
    fleet->peers[i].in_use = true;
    fleet->peers[i].told_ns = now;
    return &fleet->peers[i];
}

/* What it said itself; its endpoint and whether it is of our configuration stay. */
static void forget_heard(struct fleet *fleet, struct fleet_peer *peer)
{
    unmark_offers(fleet, peer);
    drop_offers(fleet, peer);
    leave_id(fleet, peer);
    leave_name(fleet, peer);
    peer->version[0] = peer->publish[0] = '\0';
    peer->incarnation = peer->former = 0;
    peer->heard_ns = peer->restarted_ns = 0;
    peer->same_name = peer->distrusted = false;
}

static void drop_peer(struct fleet *fleet, struct fleet_peer *peer)
{
    forget_heard(fleet, peer);
    peer->in_use = false;
}

static bool is_told(const char *text)
{
    return text && text[0];
}

uint32_t fleet_tell(struct fleet *fleet, const char *name, const uint8_t *id, const char *endpoint,
                    bool is_static, ns_t now)
{
    bool with_id = id && memcmp(id, no_id, sizeof no_id) != 0;
    if (!is_told(endpoint) || strlen(endpoint) >= FLEET_ENDPOINT_SIZE ||
        (with_id && memcmp(id, fleet->id, sizeof fleet->id) == 0))
        return FLEET_NOBODY;
    struct fleet_peer *peer = with_id ? find_by_id(fleet, id) : NULL;
    if (!peer)
        peer = find_by_endpoint(fleet, endpoint);
    if (!peer)
        peer = take_peer(fleet, now);
    if (!peer)
        return FLEET_NOBODY;
    peer->is_static = peer->is_static || is_static;
    if (peer->heard_ns != 0)
        return index_of(fleet, peer);
    if (is_static || !peer->is_static || !peer->endpoint[0])
        text_copy(peer->endpoint, sizeof peer->endpoint, endpoint);
    if (with_id && !has_id(peer))
        join_id(fleet, peer, id);
    if (is_told(name) && name_is_valid(name))
        rename_to(fleet, peer, name);
    return index_of(fleet, peer);
}

/* Another agent answers where one of our configuration was: what we configured is the address. */
static void inherit_configuration(struct fleet_peer *peer, struct fleet_peer *earlier, ns_t now)
{
    if (earlier->is_static && fleet_peer_state(earlier, now) != PEER_LIVE) {
        peer->is_static = true;
        earlier->is_static = false;
    }
}

static struct fleet_peer *peer_of(struct fleet *fleet, const struct heard_beat *beat, ns_t now)
{
    struct fleet_peer *peer = find_by_id(fleet, beat->id);
    if (peer)
        return peer;
    struct fleet_peer *there =
        is_told(beat->endpoint) ? find_by_endpoint(fleet, beat->endpoint) : NULL;
    if (there && there->heard_ns == 0) { /* named to us, under another id perhaps: this is it */
        leave_id(fleet, there);
        join_id(fleet, there, beat->id);
        return there;
    }
    peer = take_peer(fleet, now);
    if (!peer)
        return NULL;
    join_id(fleet, peer, beat->id);
    if (there)
        inherit_configuration(peer, there, now);
    return peer;
}

/* False: it is the word of an incarnation that is over, late, or of a twin with the same id. Two that
 * live must not take turns: the later one is listened to until it is silent. */
static bool take_incarnation(struct fleet *fleet, struct fleet_peer *peer, uint64_t incarnation,
                             ns_t now, unsigned *news)
{
    if (peer->heard_ns == 0 || peer->incarnation == incarnation) {
        peer->incarnation = incarnation;
        return true;
    }
    if (incarnation == peer->former && fleet_peer_state(peer, now) == PEER_LIVE) {
        if (now - peer->restarted_ns > SILENT_NS)
            peer->same_name = true;
        return false;
    }
    peer->former = peer->incarnation;
    peer->incarnation = incarnation;
    peer->restarted_ns = now;
    forget_applied(fleet, peer, true);
    *news |= FLEET_NEWS_RESTARTED;
    return true;
}

static bool take_text(char *text, size_t size, const char *heard)
{
    if (!is_told(heard) || strlen(heard) >= size || strcmp(text, heard) == 0)
        return false;
    text_copy(text, size, heard);
    return true;
}

/* Whoever is live and shares its name with another live one, or with us, is told apart by its id only:
 * said of both, while both are live. */
static void look_at_name(struct fleet *fleet, const char *name, ns_t now)
{
    uint32_t live = strcmp(fleet->name, name) == 0;
    uint16_t first = *bucket_of_name(fleet, name);
    for (uint16_t at = first; at; at = fleet->peers[at - 1].next_by_name) {
        const struct fleet_peer *peer = &fleet->peers[at - 1];
        live += strcmp(peer->name, name) == 0 && fleet_peer_state(peer, now) == PEER_LIVE;
    }
    for (uint16_t at = first; at; at = fleet->peers[at - 1].next_by_name)
        if (strcmp(fleet->peers[at - 1].name, name) == 0)
            fleet->peers[at - 1].same_name = live > 1;
}

/* An endpoint that was only named to us turned out to be this peer's. */
static void absorb_told(struct fleet *fleet, struct fleet_peer *peer)
{
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        struct fleet_peer *told = &fleet->peers[i];
        if (!told->in_use || told == peer || told->heard_ns != 0 ||
            strcmp(told->endpoint, peer->endpoint) != 0)
            continue;
        peer->is_static = peer->is_static || told->is_static;
        drop_peer(fleet, told);
    }
}

static bool is_of_us(struct fleet *fleet, const struct heard_beat *beat, ns_t now)
{
    if (memcmp(beat->id, fleet->id, sizeof fleet->id) != 0)
        return false;
    if (fleet->incarnation != 0 && beat->incarnation != fleet->incarnation)
        fleet->twin_ns = now;
    return true;
}

unsigned fleet_hear(struct fleet *fleet, const struct heard_beat *beat, ns_t now, uint32_t *index)
{
    unsigned news = 0;
    *index = FLEET_NOBODY;
    if (is_of_us(fleet, beat, now) || memcmp(beat->id, no_id, sizeof no_id) == 0 || !beat->name ||
        !name_is_valid(beat->name))
        return 0;
    struct fleet_peer *peer = peer_of(fleet, beat, now);
    if (!peer || !take_incarnation(fleet, peer, beat->incarnation, now, &news))
        return 0;
    enum peer_state before = fleet_peer_state(peer, now);
    if (before == PEER_TOLD)
        news |= FLEET_NEWS_PEER;
    else if (before != PEER_LIVE)
        news |= FLEET_NEWS_BACK;
    peer->heard_ns = now > peer->heard_ns ? now : peer->heard_ns;
    peer->distrusted = false;
    rename_to(fleet, peer, beat->name);
    take_text(peer->version, sizeof peer->version, beat->version);
    bool moved = take_text(peer->endpoint, sizeof peer->endpoint, beat->endpoint);
    if (moved)
        absorb_told(fleet, peer);
    moved |= take_text(peer->publish, sizeof peer->publish, beat->publish);
    if (moved)
        news |= FLEET_NEWS_ENDPOINT;
    look_at_name(fleet, peer->name, now);
    *index = index_of(fleet, peer);
    return news | hear_offers(fleet, peer, beat);
}

/* ---- looking --------------------------------------------------------------------------------- */

struct bid {
    uint32_t peer;
    const char *name;
    const uint8_t *id;
};

static bool is_smaller(struct bid a, struct bid b)
{
    int order = strcmp(a.name, b.name);
    return order != 0 ? order < 0 : memcmp(a.id, b.id, 16) < 0;
}

uint32_t fleet_owner(const struct fleet *fleet, const char *provider, bool ours, ns_t now,
                     uint32_t *conflict)
{
    struct bid best = {ours ? FLEET_SELF : FLEET_NOBODY, fleet->name, fleet->id};
    uint32_t live = ours, last = FLEET_NOBODY;
    uint16_t at = fleet->offers_by_provider[bucket_of_provider(provider)];
    for (; at; at = fleet->offers[at - 1].next) {
        const struct fleet_offer *offer = &fleet->offers[at - 1];
        if (strcmp(offer->provider, provider) != 0)
            continue;
        const struct fleet_peer *peer = &fleet->peers[offer->peer];
        if (last == FLEET_NOBODY || peer->heard_ns > fleet->peers[last].heard_ns)
            last = offer->peer;
        if (fleet_peer_state(peer, now) != PEER_LIVE)
            continue;
        struct bid bid = {offer->peer, peer->name, peer->id};
        if (live++ == 0 || is_smaller(bid, best))
            best = bid;
    }
    if (conflict)
        *conflict = live > 1 ? live - 1 : 0;
    return live > 0 ? best.peer : last;
}

uint64_t fleet_epoch(const struct fleet *fleet, const char *provider)
{
    uint64_t epoch = 0;
    uint16_t at = fleet->offers_by_provider[bucket_of_provider(provider)];
    for (; at; at = fleet->offers[at - 1].next)
        if (strcmp(fleet->offers[at - 1].provider, provider) == 0 &&
            fleet->offers[at - 1].epoch > epoch)
            epoch = fleet->offers[at - 1].epoch;
    return epoch;
}

static void id_text(const uint8_t *id, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        text[2 * i] = digits[id[i] >> 4];
        text[2 * i + 1] = digits[id[i] & 15];
    }
    text[32] = '\0';
}

bool fleet_forget(struct fleet *fleet, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        struct fleet_peer *peer = &fleet->peers[i];
        char id[33];
        id_text(peer->id, id);
        if (!peer->in_use || !name[0] ||
            (strcmp(peer->name, name) != 0 && (!has_id(peer) || strcmp(id, name) != 0)))
            continue;
        found = true;
        if (peer->is_static)
            forget_heard(fleet, peer);
        else
            drop_peer(fleet, peer);
    }
    return found;
}

uint32_t fleet_prune(struct fleet *fleet, ns_t now)
{
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        struct fleet_peer *peer = &fleet->peers[i];
        ns_t since = peer->heard_ns ? peer->heard_ns : peer->told_ns;
        if (!peer->in_use || peer->is_static || now - since <= FLEET_LOST_S * NS_PER_SEC)
            continue;
        drop_peer(fleet, peer);
        dropped++;
    }
    return dropped;
}

void fleet_distrust(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        fleet->peers[i].distrusted = true;
        forget_applied(fleet, &fleet->peers[i], false);
    }
}

uint64_t fleet_digest(const struct fleet *fleet, uint32_t *count)
{
    uint64_t sum = hash_of(fleet->id, sizeof fleet->id);
    uint32_t known = 1;
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        const struct fleet_peer *peer = &fleet->peers[i];
        if (!peer->in_use || peer->heard_ns == 0)
            continue;
        sum += hash_of(peer->id, sizeof peer->id);
        known++;
    }
    if (count)
        *count = known;
    return sum;
}
