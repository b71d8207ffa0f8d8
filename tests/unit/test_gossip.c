/* What agents publish comes back as it was, at every limit; what is beyond one is neither sent nor
 * taken. Bytes that are wrong: test_gossip_bytes.c. */
#include "proto/gossip.h"

#include <stdlib.h>
#include <string.h>

#include "proto/gossip_table.h"
#include "tests/lib/check.h"
#include "tests/lib/gossips.h"

static uint8_t bytes[WIRE_STATE_MAX];
static size_t size;

static void a_claim_comes_back_as_it_was(void **unused)
{
    (void)unused;
    struct gossip_claim claims[3], back;
    enum gossip_kind kind;
    gossips_fill_claim(&claims[0]);
    gossips_claim(&claims[1]);
    claims[2] = claims[1];
    claims[2].withdrawn = true;
    claims[2].lease.state = 0; /* which a withdrawn one may lack */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(gossip_claim_encode(&claims[i], bytes, sizeof bytes, &size), WIRE_OK);
        assert_int_equal(gossip_kind_of(bytes, size, &kind), WIRE_OK);
        assert_int_equal(kind, GOSSIP_CLAIM);
        assert_int_equal(gossip_claim_decode(bytes, size, &back), WIRE_OK);
        assert_memory_equal(&back, &claims[i], sizeof back);
    }
    claims[2].withdrawn = false;
    assert_int_equal(gossip_claim_encode(&claims[2], bytes, sizeof bytes, &size), WIRE_EMISSING);
    assert_int_equal(size, 0);
}

static void a_beat_comes_back_as_it_was(void **unused)
{
    (void)unused;
    static struct gossip_beat beat, back;
    enum gossip_kind kind;
    for (uint32_t offers = 0; offers <= WIRE_PROVIDERS_MAX + 1; offers++) {
        gossips_beat(&beat, offers < WIRE_PROVIDERS_MAX ? offers : 0);
        if (offers > WIRE_PROVIDERS_MAX) {
            gossips_fill_beat(&beat);
        }
        assert_int_equal(gossip_beat_encode(&beat, bytes, sizeof bytes, &size), WIRE_OK);
        assert_int_equal(gossip_kind_of(bytes, size, &kind), WIRE_OK);
        assert_int_equal(kind, GOSSIP_BEAT);
        memset(&back, 0, sizeof back);
        assert_int_equal(gossip_beat_decode(bytes, size, &back), WIRE_OK);
        assert_memory_equal(&back, &beat, sizeof back);
    }
    beat.offer_count++;
    assert_int_equal(gossip_beat_encode(&beat, bytes, sizeof bytes, &size), WIRE_EVALUE);
}

static void what_is_not_told_is_unknown(void **unused)
{
    (void)unused;
    struct gossip_state state = {.sender = {.id = {1}, .name = "a"}, .provider = "p", .parts = 1},
                        back;
    struct gossip_lease lease = {.lease = "p:x", .state = GOSSIP_HELD}, read;
    uint32_t next = 0, count;
    state.leases = 1;
    state.age_ms = state.strangers_ms = -1;
    state.slots_total = state.in_flight = state.queued = state.strangers = state.waiting = -1;
    lease.slot = -1;
    lease.left_ms = lease.age_ms = lease.dispatched_ms = lease.idle_ms = -1;
    assert_int_equal(gossip_state_encode(&state, &lease, 1, &next, bytes, sizeof bytes, &size),
                     WIRE_OK);
    assert_in_range(size, 1, 160); /* nothing but what must be there */
    assert_int_equal(gossip_state_decode(bytes, size, &back, &read, 1, &count), WIRE_OK);
    assert_memory_equal(&back, &state, sizeof back);
    assert_memory_equal(&read, &lease, sizeof read);
    /* Zero is another thing than unknown, and anything below zero is unknown. */
    lease.slot = 0;
    lease.idle_ms = 0;
    lease.left_ms = -7;
    state.queued = 0;
    next = 0;
    assert_int_equal(gossip_state_encode(&state, &lease, 1, &next, bytes, sizeof bytes, &size),
                     WIRE_OK);
    assert_int_equal(gossip_state_decode(bytes, size, &back, &read, 1, &count), WIRE_OK);
    assert_true(read.slot == 0 && read.idle_ms == 0 && read.left_ms == -1);
    assert_true(back.queued == 0 && back.in_flight == -1);
}

/* Writes a state in its parts, reads them, and answers how many there were. */
static uint32_t through_parts(struct gossip_state *state, const struct gossip_lease *leases,
                              uint32_t count)
{
    struct gossip_lease *back = calloc(count + 1, sizeof *back);
    struct gossip_state head;
    uint32_t next = 0, read = 0, some;
    assert_non_null(back);
    state->leases = count;
    state->parts = gossip_state_parts(state, leases, count);
    for (state->part = 0; state->part < state->parts; state->part++) {
        uint32_t before = next;
        assert_int_equal(
            gossip_state_encode(state, leases, count, &next, bytes, sizeof bytes, &size), WIRE_OK);
        assert_true(next > before || count == 0);
        assert_int_equal(gossip_state_decode(bytes, size, &head, back + read, count - read, &some),
                         WIRE_OK);
        assert_memory_equal(&head, state, sizeof head);
        assert_int_equal(some, next - before);
        read += some;
    }
    assert_int_equal(next, count);
    assert_memory_equal(back, leases, count * sizeof *leases);
    free(back);
    return state->parts;
}

static void a_state_goes_in_parts(void **unused)
{
    (void)unused;
    static struct gossip_lease leases[WIRE_LEASES_MAX];
    struct gossip_state state;
    uint32_t parts[2];
    gossips_state(&state, 0);
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        gossips_lease(&leases[i], i);
    }
    assert_int_equal(through_parts(&state, leases, 0), 1);
    assert_int_equal(through_parts(&state, leases, 1), 1);
    assert_int_equal(through_parts(&state, leases, 16), 1);
    parts[0] = through_parts(&state, leases, 1024);
    assert_in_range(parts[0], 2, 8);
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        memset(leases[i].label, 'l', WIRE_LABEL_MAX);
    }
    parts[1] = through_parts(&state, leases, 1024);
    assert_in_range(parts[1], parts[0], 12);
    gossips_fill_state(&state);
    for (uint32_t i = 0; i < WIRE_LEASES_MAX; i++) {
        gossips_fill_lease(&leases[i]);
    }
    for (uint32_t count = 50; count < 200; count++) { /* over the border of a part */
        assert_in_range(through_parts(&state, leases, count), 1, 3);
    }
    assert_in_range(through_parts(&state, leases, WIRE_LEASES_MAX), 16, WIRE_PARTS_MAX);
}

static void a_state_is_not_cut_unseen(void **unused)
{
    (void)unused;
    static struct gossip_lease leases[1024], back[4];
    struct gossip_state state;
    uint32_t next = 0, count;
    gossips_state(&state, 1024);
    for (uint32_t i = 0; i < 1024; i++) {
        gossips_lease(&leases[i], i);
    }
    /* Said to be one part. */
    assert_int_equal(gossip_state_encode(&state, leases, 1024, &next, bytes, sizeof bytes, &size),
                     WIRE_EROOM);
    state.parts = gossip_state_parts(&state, leases, 1024);
    /* Less room than a part has. */
    assert_int_equal(
        gossip_state_encode(&state, leases, 1024, &next, bytes, sizeof bytes - 1, &size),
        WIRE_EROOM);
    assert_true(next == 0 && size == 0);
    /* Another number than is said, parts that cannot be, a lease without a state. */
    assert_int_equal(gossip_state_encode(&state, leases, 1023, &next, bytes, sizeof bytes, &size),
                     WIRE_EVALUE);
    state.part = state.parts;
    assert_int_equal(gossip_state_encode(&state, leases, 1024, &next, bytes, sizeof bytes, &size),
                     WIRE_EVALUE);
    state.part = 0;
    state.parts = 0;
    assert_int_equal(gossip_state_encode(&state, leases, 1024, &next, bytes, sizeof bytes, &size),
                     WIRE_EVALUE);
    gossips_state(&state, 4);
    leases[3].state = 0;
    assert_int_equal(gossip_state_encode(&state, leases, 4, &next, bytes, sizeof bytes, &size),
                     WIRE_EMISSING);
    leases[3].state = GOSSIP_HELD;
    assert_int_equal(gossip_state_encode(&state, leases, 4, &next, bytes, sizeof bytes, &size),
                     WIRE_OK);
    assert_int_equal(gossip_state_decode(bytes, size, &state, back, 3, &count), WIRE_ECOUNT);
    assert_int_equal(count, 0);
    assert_int_equal(gossip_state_decode(bytes, size, &state, back, 4, &count), WIRE_OK);
    assert_int_equal(count, 4);
}

static void peers_that_do_not_fit_are_left_out(void **unused)
{
    (void)unused;
    static struct gossip_peer peers[WIRE_PEERS_MAX], back[WIRE_PEERS_MAX];
    enum gossip_kind kind;
    uint32_t count;
    memset(peers, 0, sizeof peers);
    for (uint32_t i = 0; i < WIRE_PEERS_MAX; i++) { /* as an endpoint that was never heard */
        (void)strcpy(peers[i].endpoint, "tcp://192.168.1.4:5771");
    }
    peers[0].id[15] = 1;
    (void)strcpy(peers[0].name, "z4");
    assert_int_equal(gossip_peers_encode(peers, WIRE_PEERS_MAX, bytes, sizeof bytes, &size),
                     WIRE_OK);
    assert_int_equal(gossip_peers_decode(bytes, size, back, WIRE_PEERS_MAX, &count), WIRE_OK);
    assert_int_equal(count, WIRE_PEERS_MAX);
    assert_memory_equal(back, peers, sizeof peers);
    assert_int_equal(gossip_peers_decode(bytes, size, back, WIRE_PEERS_MAX - 1, &count),
                     WIRE_ECOUNT);
    assert_int_equal(gossip_kind_of(bytes, size, &kind), WIRE_EOP); /* is not published */

    for (uint32_t i = 0; i < WIRE_PEERS_MAX; i++) {
        gossips_fill_peer(&peers[i]);
    }
    assert_int_equal(gossip_peers_encode(peers, WIRE_PEERS_MAX, bytes, sizeof bytes, &size),
                     WIRE_OK);
    assert_int_equal(gossip_peers_decode(bytes, size, back, WIRE_PEERS_MAX, &count), WIRE_OK);
    assert_in_range(count, 180, WIRE_PEERS_MAX - 1);
    assert_memory_equal(back, peers, count * sizeof *peers);
    assert_int_equal(gossip_peers_encode(peers, 1, bytes, 100, &size), WIRE_OK);
    assert_int_equal(gossip_peers_decode(bytes, size, back, WIRE_PEERS_MAX, &count), WIRE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(gossip_peers_encode(peers, 1, bytes, 15, &size), WIRE_EROOM);
    peers[0].endpoint[0] = '\0';
    assert_int_equal(gossip_peers_encode(peers, 1, bytes, sizeof bytes, &size), WIRE_EMISSING);
}

/* Writes one field of a filled struct as it must not be, and sends it. */
static enum wire_fault send_with(const struct gossip_map *map, char *object, uint32_t row)
{
    size_t used;
    uint32_t next = 0;
    char *at = object + map->rows[row].offset;
    switch ((enum gossip_type)map->rows[row].type) {
    case ID: memset(at, 0, WIRE_ID_BYTES); break;
    case TEXT: at[0] = '\xff'; break;
    case NAME: at[0] = ' '; break;
    case LEASE_STATE: *(enum gossip_lease_state *)(void *)at = (enum gossip_lease_state)4; break;
    case U32: *(uint32_t *)(void *)at = (uint32_t)map->rows[row].maximum + 1; break;
    case U64: *(uint64_t *)(void *)at += map->rows[row].maximum != GOSSIP_ANY; break;
    case I32: *(int32_t *)(void *)at += map->rows[row].maximum != INT32_MAX; break;
    case I64: ++*(int64_t *)(void *)at; break;
    case FLAG:
    case VERSION:
    case OP:
    case MAP:
    case LIST:
    case OUTSIDE: return WIRE_EVALUE;
    }
    if (map == &gossip_maps[GOSSIP_MAP_STATE]) {
        return gossip_state_encode((void *)object, NULL, 0, &next, bytes, sizeof bytes, &used);
    }
    if (map == &gossip_maps[GOSSIP_MAP_BEAT]) {
        return gossip_beat_encode((void *)object, bytes, sizeof bytes, &used);
    }
    return gossip_claim_encode((void *)object, bytes, sizeof bytes, &used);
}

static bool has_a_limit(const struct gossip_row *row)
{
    return row->maximum != GOSSIP_ANY && row->maximum != INT32_MAX;
}

static void what_is_beyond_a_limit_is_not_sent(void **unused)
{
    (void)unused;
    static struct gossip_beat beat;
    struct gossip_state state;
    struct gossip_claim claim;
    for (uint32_t i = 0; i < gossip_maps[GOSSIP_MAP_STATE].row_count; i++) {
        gossips_fill_state(&state);
        if (has_a_limit(&gossip_maps[GOSSIP_MAP_STATE].rows[i])) {
            assert_int_not_equal(send_with(&gossip_maps[GOSSIP_MAP_STATE], (char *)&state, i),
                                 WIRE_OK);
        }
    }
    for (uint32_t i = 0; i < gossip_maps[GOSSIP_MAP_BEAT].row_count; i++) {
        gossips_fill_beat(&beat);
        if (has_a_limit(&gossip_maps[GOSSIP_MAP_BEAT].rows[i])) {
            assert_int_not_equal(send_with(&gossip_maps[GOSSIP_MAP_BEAT], (char *)&beat, i),
                                 WIRE_OK);
        }
    }
    for (uint32_t i = 0; i < gossip_maps[GOSSIP_MAP_CLAIM].row_count; i++) {
        gossips_fill_claim(&claim);
        if (has_a_limit(&gossip_maps[GOSSIP_MAP_CLAIM].rows[i])) {
            assert_int_not_equal(send_with(&gossip_maps[GOSSIP_MAP_CLAIM], (char *)&claim, i),
                                 WIRE_OK);
        }
    }
    gossips_fill_claim(&claim);
    memset(claim.lease.label, 'x', sizeof claim.lease.label); /* without an end */
    assert_int_equal(gossip_claim_encode(&claim, bytes, sizeof bytes, &size), WIRE_EVALUE);
}

static void no_buffer_is_overrun(void **unused)
{
    (void)unused;
    static struct gossip_beat beat;
    struct gossip_claim claim;
    size_t used;
    gossips_beat(&beat, 3);
    gossips_fill_claim(&claim);
    assert_int_equal(gossip_beat_encode(&beat, bytes, sizeof bytes, &size), WIRE_OK);
    for (size_t room = 0; room < size; room++) {
        uint8_t *exact = malloc(room + 1);
        assert_non_null(exact);
        assert_int_equal(gossip_beat_encode(&beat, exact, room, &used), WIRE_EROOM);
        assert_int_equal(used, 0);
        free(exact);
    }
    assert_int_equal(gossip_claim_encode(&claim, bytes, sizeof bytes, &size), WIRE_OK);
    for (size_t room = 0; room < size; room++) {
        uint8_t *exact = malloc(room + 1);
        assert_non_null(exact);
        assert_int_equal(gossip_claim_encode(&claim, exact, room, &used), WIRE_EROOM);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_comes_back_as_it_was),
        cmocka_unit_test(a_beat_comes_back_as_it_was),
        cmocka_unit_test(what_is_not_told_is_unknown),
        cmocka_unit_test(a_state_goes_in_parts),
        cmocka_unit_test(a_state_is_not_cut_unseen),
        cmocka_unit_test(peers_that_do_not_fit_are_left_out),
        cmocka_unit_test(what_is_beyond_a_limit_is_not_sent),
        cmocka_unit_test(no_buffer_is_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
