/* The catalogue of gossip.h: what each of its structs is on the wire; for the codec alone.
 *
 * Each struct is one map. A field that may be absent is absent where it is zero or empty, a signed one
 * where it is below zero; and it is that again where it was absent. */
#ifndef PROTO_GOSSIP_TABLE_H
#define PROTO_GOSSIP_TABLE_H

#include "proto/gossip.h"

#define GOSSIP_MUST true
#define GOSSIP_MAY  false

/* Of all 64 bits only whether they are the same matters. */
#define GOSSIP_ANY UINT64_MAX

/* X(struct, member, key, type, maximum, whether it must be there). SIGNED ones are never negative on the
 * wire. LIST, MAP and OUTSIDE have a map for their elements instead of a maximum. */
#define GOSSIP_HEAD(X, of)                                                                         \
    X(of, sender, "v", VERSION, WIRE_VERSION, GOSSIP_MUST)                                         \
    X(of, sender, "op", OP, 0, GOSSIP_MUST)                                                        \
    X(of, sender.id, "id", ID, WIRE_ID_BYTES, GOSSIP_MUST)                                         \
    X(of, sender.name, "name", NAME, WIRE_NAME_MAX, GOSSIP_MUST)                                   \
    X(of, sender.incarnation, "incarnation", U64, GOSSIP_ANY, GOSSIP_MAY)

#define GOSSIP_LEASE_FIELDS(X, of)                                                                 \
    X(of, lease, "id", TEXT, WIRE_LEASE_MAX, GOSSIP_MUST)                                          \
    X(of, state, "state", LEASE_STATE, GOSSIP_ORPHAN, GOSSIP_MAY)                                  \
    X(of, host, "host", TEXT, WIRE_NAME_MAX, GOSSIP_MAY)                                           \
    X(of, label, "label", TEXT, WIRE_LABEL_MAX, GOSSIP_MAY)                                        \
    X(of, pid, "pid", U32, INT32_MAX, GOSSIP_MAY)                                                  \
    X(of, units, "units", U32, WIRE_UNITS_MAX, GOSSIP_MAY)                                         \
    X(of, arrived, "seen", U32, WIRE_UNITS_MAX, GOSSIP_MAY)                                        \
    X(of, ttl_ms, "ttl_ms", U32, WIRE_TIME_MS_MAX, GOSSIP_MAY)                                     \
    X(of, slot, "slot", I32, WIRE_UNITS_MAX - 1, GOSSIP_MAY)                                       \
    X(of, left_ms, "left_ms", I64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                    \
    X(of, age_ms, "age_ms", I64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                      \
    X(of, dispatched_ms, "run_ms", I64, WIRE_NUMBER_MAX, GOSSIP_MAY)                               \
    X(of, idle_ms, "idle_ms", I64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                    \
    X(of, token, "token", U64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                        \
    X(of, place, "place", U64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                        \
    X(of, may_idle, "may_idle", FLAG, 1, GOSSIP_MAY)

#define GOSSIP_CLAIM_FIELDS(X, of)                                                                 \
    GOSSIP_HEAD(X, of)                                                                             \
    X(of, provider, "provider", NAME, WIRE_NAME_MAX, GOSSIP_MUST)                                  \
    X(of, epoch, "epoch", U64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                        \
    X(of, withdrawn, "withdrawn", FLAG, 1, GOSSIP_MAY)                                             \
    X(of, lease, "lease", MAP, GOSSIP_MAP_LEASE, GOSSIP_MUST)

#define GOSSIP_MODEL_FIELDS(X, of)                                                                 \
    X(of, name, "name", TEXT, WIRE_NAME_MAX, GOSSIP_MUST)                                          \
    X(of, state, "state", TEXT, WIRE_WORD_MAX, GOSSIP_MAY)

#define GOSSIP_STATE_FIELDS(X, of)                                                                 \
    GOSSIP_HEAD(X, of)                                                                             \
    X(of, provider, "provider", NAME, WIRE_NAME_MAX, GOSSIP_MUST)                                  \
    X(of, url, "url", TEXT, WIRE_URL_MAX, GOSSIP_MAY)                                              \
    X(of, group, "group", TEXT, WIRE_NAME_MAX, GOSSIP_MAY)                                         \
    X(of, epoch, "epoch", U64, WIRE_NUMBER_MAX, GOSSIP_MUST)                                       \
    X(of, version, "version", U64, WIRE_NUMBER_MAX, GOSSIP_MUST)                                   \
    X(of, part, "part", U32, WIRE_PARTS_MAX - 1, GOSSIP_MUST)                                      \
    X(of, parts, "parts", U32, WIRE_PARTS_MAX, GOSSIP_MUST)                                        \
    X(of, leases, "total", U32, WIRE_LEASES_MAX, GOSSIP_MAY)                                       \
    X(of, age_ms, "age_ms", I64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                      \
    X(of, slots_total, "slots", I32, INT32_MAX, GOSSIP_MAY)                                        \
    X(of, in_flight, "in_flight", I32, INT32_MAX, GOSSIP_MAY)                                      \
    X(of, queued, "queued", I32, INT32_MAX, GOSSIP_MAY)                                            \
    X(of, queue_means_full, "queue_full", FLAG, 1, GOSSIP_MAY)                                     \
    X(of, probed, "probed", FLAG, 1, GOSSIP_MAY)                                                   \
    X(of, health, "health", TEXT, WIRE_WORD_MAX, GOSSIP_MAY)                                       \
    X(of, signal, "signal", TEXT, WIRE_WORD_MAX, GOSSIP_MAY)                                       \
    X(of, engine, "engine", TEXT, WIRE_ENGINE_MAX, GOSSIP_MAY)                                     \
    X(of, detail, "detail", TEXT, WIRE_LABEL_MAX, GOSSIP_MAY)                                      \
    X(of, models, "models", LIST, GOSSIP_MAP_MODEL, GOSSIP_MAY)                                    \
    X(of, strangers, "strangers", I32, INT32_MAX, GOSSIP_MAY)                                      \
    X(of, strangers_ms, "strangers_ms", I64, WIRE_NUMBER_MAX, GOSSIP_MAY)                          \
    X(of, waiting, "waiting", I32, INT32_MAX, GOSSIP_MAY)                                          \
    X(of, sender, "leases", OUTSIDE, GOSSIP_MAP_LEASE, GOSSIP_MAY)

#define GOSSIP_OFFER_FIELDS(X, of)                                                                 \
    X(of, provider, "provider", NAME, WIRE_NAME_MAX, GOSSIP_MUST)                                  \
    X(of, url, "url", TEXT, WIRE_URL_MAX, GOSSIP_MAY)                                              \
    X(of, epoch, "epoch", U64, WIRE_NUMBER_MAX, GOSSIP_MAY)                                        \
    X(of, version, "version", U64, WIRE_NUMBER_MAX, GOSSIP_MAY)

#define GOSSIP_BEAT_FIELDS(X, of)                                                                  \
    GOSSIP_HEAD(X, of)                                                                             \
    X(of, version, "version", TEXT, WIRE_NAME_MAX, GOSSIP_MAY)                                     \
    X(of, endpoint, "endpoint", TEXT, WIRE_ENDPOINT_MAX, GOSSIP_MAY)                               \
    X(of, publish, "publish", TEXT, WIRE_ENDPOINT_MAX, GOSSIP_MAY)                                 \
    X(of, port, "port", U32, UINT16_MAX, GOSSIP_MAY)                                               \
    X(of, publish_port, "publish_port", U32, UINT16_MAX, GOSSIP_MAY)                               \
    X(of, peer_count, "peer_count", U32, INT32_MAX, GOSSIP_MAY)                                    \
    X(of, peer_digest, "peer_digest", U64, GOSSIP_ANY, GOSSIP_MAY)                                 \
    X(of, offers, "offers", LIST, GOSSIP_MAP_OFFER, GOSSIP_MAY)

#define GOSSIP_PEER_FIELDS(X, of)                                                                  \
    X(of, id, "id", ID, WIRE_ID_BYTES, GOSSIP_MAY)                                                 \
    X(of, name, "name", NAME, WIRE_NAME_MAX, GOSSIP_MAY)                                           \
    X(of, endpoint, "endpoint", TEXT, WIRE_ENDPOINT_MAX, GOSSIP_MUST)

/* The list of peers has no struct of its own. */
#define GOSSIP_PEERS_FIELDS(X, of)                                                                 \
    X(of, id, "v", VERSION, WIRE_VERSION, GOSSIP_MUST)                                             \
    X(of, id, "op", OP, 0, GOSSIP_MUST)                                                            \
    X(of, id, "peers", OUTSIDE, GOSSIP_MAP_PEER, GOSSIP_MUST)

/* X(map, struct, its fields, op, how much of it is cleared before it is read) */
#define GOSSIP_MAPS(X)                                                                             \
    X(GOSSIP_MAP_CLAIM, gossip_claim, GOSSIP_CLAIM_FIELDS, "claim", sizeof(struct gossip_claim))   \
    X(GOSSIP_MAP_STATE, gossip_state, GOSSIP_STATE_FIELDS, "state", sizeof(struct gossip_state))   \
    X(GOSSIP_MAP_BEAT, gossip_beat, GOSSIP_BEAT_FIELDS, "beat",                                    \
      offsetof(struct gossip_beat, offers))                                                        \
    X(GOSSIP_MAP_PEERS, gossip_peer, GOSSIP_PEERS_FIELDS, "peers", 0)                              \
    X(GOSSIP_MAP_LEASE, gossip_lease, GOSSIP_LEASE_FIELDS, "", sizeof(struct gossip_lease))        \
    X(GOSSIP_MAP_MODEL, gossip_model, GOSSIP_MODEL_FIELDS, "", sizeof(struct gossip_model))        \
    X(GOSSIP_MAP_OFFER, gossip_offer, GOSSIP_OFFER_FIELDS, "", sizeof(struct gossip_offer))        \
    X(GOSSIP_MAP_PEER, gossip_peer, GOSSIP_PEER_FIELDS, "", sizeof(struct gossip_peer))

/* The first ones are whole, and have an op. */
enum gossip_map_name {
#define GOSSIP_MAP_NAME(map, of, fields, op, cleared) map,
    GOSSIP_MAPS(GOSSIP_MAP_NAME)
#undef GOSSIP_MAP_NAME
        GOSSIP_MAP_COUNT
};
#define GOSSIP_WHOLE_COUNT GOSSIP_MAP_LEASE

enum gossip_type {
    VERSION,
    OP,
    ID,
    TEXT,
    NAME,
    LEASE_STATE,
    FLAG,
    U32,
    U64,
    I32,
    I64,
    MAP,     /* a struct inside, without lists */
    LIST,    /* an array of such structs inside, and its number */
    OUTSIDE, /* one that the caller brings along */
};

struct gossip_row {
    const char *key;
    uint8_t key_size;
    uint8_t type; /* enum gossip_type */
    bool must;
    uint32_t offset;
    uint64_t maximum; /* MAP, LIST, OUTSIDE: enum gossip_map_name of what is inside */
};

struct gossip_map {
    const char *op;
    const struct gossip_row *rows;
    uint32_t row_count, must_count;
    uint32_t size; /* of the struct */
    uint32_t cleared;
};

extern const struct gossip_map gossip_maps[GOSSIP_MAP_COUNT];
extern const char *const gossip_lease_states[]; /* by enum gossip_lease_state, the first is NULL */

/* An array of structs: one inside a struct, or the caller's. */
struct gossip_list {
    const struct gossip_map *of;
    char *first;
    uint32_t *count;
    uint32_t room;
};

/* The one inside `object` that this row speaks of. */
struct gossip_list gossip_list_of(const struct gossip_row *row, void *object);

/* What binds fields to each other, the same for what is sent and what was read. */
enum wire_fault gossip_check_claim(const struct gossip_claim *claim);
enum wire_fault gossip_check_state(const struct gossip_state *state,
                                   const struct gossip_lease *leases, uint32_t count);

#endif
