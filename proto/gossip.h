/* What agents publish: claims, states and beats; and the lists that fetch answers with.
 *
 * Each is one msgpack map, written and read from one catalogue (gossip_table.h) like the messages;
 * README.md has them byte by byte. Published ones go in two frames, a topic ("claim/z4", "state/z4",
 * "beat/m5") and the map. Times are what is left or has passed, in ms. Unknown keys are passed over, a
 * known one that stands there twice is a fault.
 *
 * Nothing here allocates. What is decoded is copied. Safe from any thread. */
#ifndef PROTO_GOSSIP_H
#define PROTO_GOSSIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/wire.h"

/* Of whoever publishes it; id and name must be there. `incarnation` is drawn at each start, and any 64
 * bits. */
struct gossip_sender {
    uint8_t id[WIRE_ID_BYTES];
    char name[WIRE_NAME_MAX + 1];
    uint64_t incarnation;
};

enum gossip_lease_state { GOSSIP_HELD = 1, GOSSIP_DISPATCHED, GOSSIP_ORPHAN };

/* Below zero is unknown or none; on the wire it is absent, and -1 after reading. Everywhere else zero
 * and "" are absent. The id must be there, the state too but in a claim that is withdrawn. */
struct gossip_lease {
    char lease[WIRE_LEASE_MAX + 1];
    enum gossip_lease_state state;
    char host[WIRE_NAME_MAX + 1];
    char label[WIRE_LABEL_MAX + 1];
    uint32_t pid, units, arrived, ttl_ms; /* arrived: units that a reading has shown */
    int32_t slot;
    int64_t left_ms, age_ms, dispatched_ms, idle_ms;
    uint64_t token, place;
    bool may_idle;
};

/* A holder's agent announces or withdraws a lease. */
struct gossip_claim {
    struct gossip_sender sender;
    char provider[WIRE_NAME_MAX + 1];
    uint64_t epoch; /* of the provider, as the sender last heard it */
    bool withdrawn;
    struct gossip_lease lease;
};

struct gossip_model {
    char name[WIRE_NAME_MAX + 1];
    char state[WIRE_WORD_MAX + 1];
};

/* The head of a state, the same in each of its parts. */
struct gossip_state {
    struct gossip_sender sender;
    char provider[WIRE_NAME_MAX + 1];
    char url[WIRE_URL_MAX + 1]; /* for clients, "" not told */
    char group[WIRE_NAME_MAX + 1];
    uint64_t epoch, version;
    uint32_t part, parts; /* part counts from 0, there is at least one */
    uint32_t leases;      /* over all parts */
    /* the reading */
    int64_t age_ms; /* since it was answered, -1 never read */
    int32_t slots_total, in_flight, queued;
    bool queue_means_full, probed;
    char health[WIRE_WORD_MAX + 1], signal[WIRE_WORD_MAX + 1], engine[WIRE_ENGINE_MAX + 1];
    char detail[WIRE_LABEL_MAX + 1];
    uint32_t model_count;
    struct gossip_model models[WIRE_MODELS_MAX];
    /* what the owner makes of it */
    int32_t strangers;
    int64_t strangers_ms; /* -1: none */
    int32_t waiting;
};

struct gossip_offer {
    char provider[WIRE_NAME_MAX + 1];
    char url[WIRE_URL_MAX + 1];
    uint64_t epoch, version; /* last published */
};

struct gossip_beat {
    struct gossip_sender sender;
    char version[WIRE_NAME_MAX + 1];      /* of the program */
    char endpoint[WIRE_ENDPOINT_MAX + 1]; /* where it answers, "" it does not */
    char publish[WIRE_ENDPOINT_MAX + 1];  /* where it publishes, "" it does not */
    uint32_t port, publish_port; /* the same, where only the asker knows the address; 0 none */
    uint32_t peer_count;
    uint64_t peer_digest; /* any 64 bits */
    uint32_t offer_count;
    struct gossip_offer offers[WIRE_PROVIDERS_MAX];
};

struct gossip_peer {
    uint8_t id[WIRE_ID_BYTES]; /* zeroes: never heard */
    char name[WIRE_NAME_MAX + 1];
    char endpoint[WIRE_ENDPOINT_MAX + 1];
};

enum gossip_kind { GOSSIP_NONE = 0, GOSSIP_CLAIM, GOSSIP_STATE, GOSSIP_BEAT };

/* Which it is, by the `op` in it (claim, state, beat), whatever else is in it. WIRE_EVERSION: another
 * version; WIRE_EOP: something else; or its shape is wrong. */
enum wire_fault gossip_kind_of(const void *bytes, size_t size, enum gossip_kind *kind);

/* Encoding writes at most WIRE_STATE_MAX bytes and says how many in *used. A fault: WIRE_EROOM, or it is
 * not to be sent (WIRE_EMISSING, WIRE_EVALUE); the buffer holds rubbish then. Decoding takes any
 * bytes; on a fault heads are zeroed and counts 0, and what lies behind a count is never looked at. */
enum wire_fault gossip_claim_encode(const struct gossip_claim *claim, void *buffer, size_t size,
                                    size_t *used);
enum wire_fault gossip_claim_decode(const void *bytes, size_t size, struct gossip_claim *claim);

/* How many parts a state has, at least 1: for state->parts, before the first is written. */
uint32_t gossip_state_parts(const struct gossip_state *state, const struct gossip_lease *leases,
                            uint32_t count);

/* One part: the head, in which state->part and ->parts say which of how many and ->leases says count,
 * and as many of leases[*next ...count) as go into WIRE_STATE_MAX; *next moves on behind them.
 * WIRE_EROOM where the buffer cuts it shorter than that, or the last part does not take the rest. */
enum wire_fault gossip_state_encode(const struct gossip_state *state,
                                    const struct gossip_lease *leases, uint32_t count,
                                    uint32_t *next, void *buffer, size_t size, size_t *used);

/* Reads a part: its head, and at most `room` leases to leases[0 ...*count). WIRE_ECOUNT: more. That
 * all parts are there, once each and of one (epoch, version), is the reader's to see. */
enum wire_fault gossip_state_decode(const void *bytes, size_t size, struct gossip_state *state,
                                    struct gossip_lease *leases, uint32_t room, uint32_t *count);

enum wire_fault gossip_beat_encode(const struct gossip_beat *beat, void *buffer, size_t size,
                                   size_t *used);
enum wire_fault gossip_beat_decode(const void *bytes, size_t size, struct gossip_beat *beat);

/* A list of peers, as fetch answers. Those that do not go into `size` are left out. */
enum wire_fault gossip_peers_encode(const struct gossip_peer *peers, uint32_t count, void *buffer,
                                    size_t size, size_t *used);
enum wire_fault gossip_peers_decode(const void *bytes, size_t size, struct gossip_peer *peers,
                                    uint32_t room, uint32_t *count);

#endif
