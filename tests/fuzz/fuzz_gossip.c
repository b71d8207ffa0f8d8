/* Any bytes as each of what agents publish: nothing is read beyond them, and what is taken can be
 * written, and read again to the same. */
#include "proto/gossip.h"
#include "tests/fuzz/fuzz.h"

static uint8_t first[WIRE_STATE_MAX], second[WIRE_STATE_MAX];
static size_t first_size, second_size;

static void must_be_same(void)
{
    must(first_size == second_size && memcmp(first, second, first_size) == 0);
}

static void try_claim(const uint8_t *bytes, size_t size)
{
    static struct gossip_claim claim, back;
    if (gossip_claim_decode(bytes, size, &claim) != WIRE_OK) {
        return;
    }
    must(gossip_claim_encode(&claim, first, sizeof first, &first_size) == WIRE_OK);
    must(gossip_claim_decode(first, first_size, &back) == WIRE_OK);
    must(gossip_claim_encode(&back, second, sizeof second, &second_size) == WIRE_OK);
    must_be_same();
}

static void try_state(const uint8_t *bytes, size_t size)
{
    static struct gossip_state state, back;
    static struct gossip_lease leases[WIRE_LEASES_MAX], again[WIRE_LEASES_MAX];
    uint32_t count, next = 0;
    if (gossip_state_decode(bytes, size, &state, leases, WIRE_LEASES_MAX, &count) != WIRE_OK) {
        return;
    }
    must(count <= state.leases && state.part < state.parts);
    /* This part alone, as a whole. */
    state.part = 0;
    state.leases = count;
    state.parts = gossip_state_parts(&state, leases, count);
    must(gossip_state_encode(&state, leases, count, &next, first, sizeof first, &first_size) ==
         WIRE_OK);
    must(gossip_state_decode(first, first_size, &back, again, WIRE_LEASES_MAX, &count) == WIRE_OK);
    must(count == next && back.leases == state.leases);
    back.leases = count;
    back.parts = 1;
    next = 0;
    must(gossip_state_encode(&back, again, count, &next, second, sizeof second, &second_size) ==
         WIRE_OK);
    if (state.parts == 1) {
        must_be_same();
    }
}

static void try_beat(const uint8_t *bytes, size_t size)
{
    static struct gossip_beat beat, back;
    if (gossip_beat_decode(bytes, size, &beat) != WIRE_OK) {
        return;
    }
    must(gossip_beat_encode(&beat, first, sizeof first, &first_size) == WIRE_OK);
    must(gossip_beat_decode(first, first_size, &back) == WIRE_OK);
    must(gossip_beat_encode(&back, second, sizeof second, &second_size) == WIRE_OK);
    must_be_same();
}

static void try_peers(const uint8_t *bytes, size_t size)
{
    static struct gossip_peer peers[WIRE_PEERS_MAX], back[WIRE_PEERS_MAX];
    uint32_t count, again;
    if (gossip_peers_decode(bytes, size, peers, WIRE_PEERS_MAX, &count) != WIRE_OK) {
        return;
    }
    must(gossip_peers_encode(peers, count, first, sizeof first, &first_size) == WIRE_OK);
    must(gossip_peers_decode(first, first_size, back, WIRE_PEERS_MAX, &again) == WIRE_OK);
    must(again == count);
    must(gossip_peers_encode(back, again, second, sizeof second, &second_size) == WIRE_OK);
    must_be_same();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum gossip_kind kind;
    enum wire_fault fault = gossip_kind_of(bytes, size, &kind);
    must((fault == WIRE_OK) == (kind != GOSSIP_NONE));
    try_claim(bytes, size);
    try_state(bytes, size);
    try_beat(bytes, size);
    try_peers(bytes, size);
    return 0;
}
