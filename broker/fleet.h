/* Who the other agents are, what they said last and when, and who owns which provider.
 *
 * Pure, like the rest of the core: `now` is an argument, the memory is the caller's. Every fact has
 * one writer and merges by the larger (epoch, version), so the order in which words arrive does not
 * matter. Silent for three beats: stale, counted as unknown, never as gone.
 *
 * Thread rules: plain data, the caller guards it. */
#ifndef BROKER_FLEET_H
#define BROKER_FLEET_H

#include "broker/record.h"

#define FLEET_PEERS_MAX     512  /* further ones are counted in `refused` and not listened to */
#define FLEET_OFFERS_MAX    4096 /* providers over all peers; the same */
#define FLEET_BEAT_MS       1000
#define FLEET_SILENT_BEATS  3
#define FLEET_LOST_S        (7 * 86400) /* a peer not heard for so long is dropped */
#define FLEET_ENDPOINT_SIZE 128
#define FLEET_VERSION_SIZE  64
#define FLEET_URL_SIZE      512
#define FLEET_SELF          UINT32_MAX /* instead of a peer's index: this agent */
#define FLEET_NOBODY        (UINT32_MAX - 1)
#define FLEET_BUCKETS       1024

enum peer_state {
    PEER_TOLD = 0, /* named by the configuration or by another peer, never heard */
    PEER_LIVE,
    PEER_SILENT, /* not heard for three beats */
    PEER_LOST,   /* not heard for a minute */
};

struct fleet_peer {
    uint8_t id[16]; /* lasting; zeroes: an endpoint that was never heard */
    char name[NAME_SIZE];
    char version[FLEET_VERSION_SIZE];
    char endpoint[FLEET_ENDPOINT_SIZE]; /* where it answers: as we dial it, or as it advertises */
    char publish[FLEET_ENDPOINT_SIZE];  /* where it publishes, "" not known yet */
    uint64_t incarnation;               /* drawn at each start of the agent */
    uint64_t former;                    /* the one before that, 0 none: its words are void */
    ns_t restarted_ns;                  /* when the one took the place of the other */
    ns_t heard_ns;                      /* 0: never */
    ns_t told_ns;                       /* when it was first named to us */
    bool is_static;                     /* of our own configuration: never dropped */
    bool same_name;                     /* another live agent, or we, bear its name, or its id */
    bool distrusted; /* heard before we slept: not live until it is heard again */
    bool in_use;
    uint16_t next_by_id, next_by_name; /* of the same bucket: index + 1, 0 none */
    uint16_t first_offer;              /* of its own: the same */
};

/* A provider that a peer owns, as its beat says. */
struct fleet_offer {
    uint32_t peer; /* index; FLEET_NOBODY: this entry is free */
    char provider[NAME_SIZE];
    uint64_t epoch, version;                 /* last published */
    uint64_t applied_epoch, applied_version; /* of its state that we have taken, 0 none */
    char url[FLEET_URL_SIZE];                /* for clients, "" not told */
    uint16_t next, next_of_peer; /* of the same bucket, of the same peer: index + 1, 0 none */
    bool in_beat;                /* while a beat is taken: it names this */
};

/* Entries from peer_count and offer_count on are never looked at: a small fleet touches little of it. */
struct fleet {
    char name[NAME_SIZE];
    uint8_t id[16];
    uint64_t incarnation; /* our own, set by the caller; 0: not told */
    ns_t twin_ns;         /* when another agent was heard that has our id, 0 never */
    uint32_t peer_count;  /* entries [0, peer_count) were ever used */
    uint32_t offer_count; /* the same */
    uint64_t refused;     /* peers and offers for which there was no room */
    uint16_t peers_by_id[FLEET_BUCKETS], peers_by_name[FLEET_BUCKETS];
    uint16_t offers_by_provider[FLEET_BUCKETS]; /* index + 1 of the first of each, 0 none */
    struct fleet_peer peers[FLEET_PEERS_MAX];
    struct fleet_offer offers[FLEET_OFFERS_MAX];
};

/* What a beat brings; text that lies behind pointers is borrowed for the call. */
struct heard_offer {
    const char *provider, *url;
    uint64_t epoch, version;
};

struct heard_beat {
    uint8_t id[16];
    const char *name, *version, *endpoint, *publish;
    uint64_t incarnation;
    uint32_t offer_count; /* at most PROVIDERS_MAX */
    const struct heard_offer *offers;
};

enum fleet_news {
    FLEET_NEWS_PEER = 1 << 0,      /* a peer that was not known, or only told */
    FLEET_NEWS_RESTARTED = 1 << 1, /* it is another incarnation: what it told before is void */
    FLEET_NEWS_OFFERS = 1 << 2,    /* it owns other providers than before */
    FLEET_NEWS_GAP = 1 << 3,       /* it published a version that we have not taken: fetch */
    FLEET_NEWS_BACK = 1 << 4,      /* it was silent */
    FLEET_NEWS_ENDPOINT = 1 << 5,  /* it is reached elsewhere than before */
};

void fleet_init(struct fleet *fleet, const char *name, const uint8_t *id);

/* A peer of the configuration (is_static) or told by another one; name and id may be NULL. What was
 * heard of a peer itself counts more than what others tell of it. Its index, or FLEET_NOBODY: no
 * room, no endpoint, or it is ourselves. */
uint32_t fleet_tell(struct fleet *fleet, const char *name, const uint8_t *id, const char *endpoint,
                    bool is_static, ns_t now);

/* A beat, or the answer to hello or fetch, which say the same. Answers enum fleet_news; *peer is its
 * index, FLEET_NOBODY where there was no room, it is our own word come back, or that of an earlier
 * incarnation of a live peer. endpoint and publish may be NULL or empty: as they were. */
unsigned fleet_hear(struct fleet *fleet, const struct heard_beat *beat, ns_t now, uint32_t *peer);

/* We took a state of this peer; nothing where it does not offer the provider. */
void fleet_applied(struct fleet *fleet, uint32_t peer, const char *provider, uint64_t epoch,
                   uint64_t version);

enum peer_state fleet_peer_state(const struct fleet_peer *peer, ns_t now);

/* The owner of a provider: of the live ones, that with the smallest (name, id); where none is live,
 * the one heard last. `ours`: this agent owns it too. FLEET_SELF, an index, or FLEET_NOBODY.
 * *conflict (may be NULL): how many live ones there are besides. */
uint32_t fleet_owner(const struct fleet *fleet, const char *provider, bool ours, ns_t now,
                     uint32_t *conflict);

const struct fleet_offer *fleet_offer_of(const struct fleet *fleet, uint32_t peer,
                                         const char *provider);

/* The largest epoch that anybody told of a provider: an owner goes above it before it grants. */
uint64_t fleet_epoch(const struct fleet *fleet, const char *provider);

/* Drops a peer by its name or the 32 hexadecimal digits of its id; false: there is none. Of a static
 * one its endpoint stays, and it comes back when heard. */
bool fleet_forget(struct fleet *fleet, const char *name);

/* Drops those that are lost for FLEET_LOST_S. How many. */
uint32_t fleet_prune(struct fleet *fleet, ns_t now);

/* We slept, or were stopped: nobody is live until heard again, and no state of theirs is taken for
 * applied. */
void fleet_distrust(struct fleet *fleet);

/* Of all agents that were ever heard here, ourselves among them; in whatever order. Equal for equal
 * sets of ids: endpoints are not in it, since each host may reach the same agent elsewhere. *count
 * (may be NULL): how many. */
uint64_t fleet_digest(const struct fleet *fleet, uint32_t *count);

#endif
