/* Bytes that are no word of an agent, or are one in an odd form. What is well formed comes back in
 * test_gossip.c. */
#include <msgpack/pack.h>
#include <msgpack/sbuffer.h>
#include <stdlib.h>
#include <string.h>

#include "proto/gossip.h"
#include "proto/gossip_table.h"
#include "tests/lib/check.h"
#include "tests/lib/gossips.h"

static struct gossip_claim claim;
static struct gossip_state state;
static struct gossip_beat beat;
static struct gossip_lease leases[WIRE_LEASES_MAX];
static struct gossip_peer peers[WIRE_PEERS_MAX];
static uint32_t count;

static enum wire_fault take(enum gossip_map_name what, const void *bytes, size_t size)
{
    switch (what) {
    case GOSSIP_MAP_CLAIM: return gossip_claim_decode(bytes, size, &claim);
    case GOSSIP_MAP_STATE:
        return gossip_state_decode(bytes, size, &state, leases, WIRE_LEASES_MAX, &count);
    case GOSSIP_MAP_BEAT: return gossip_beat_decode(bytes, size, &beat);
    default: return gossip_peers_decode(bytes, size, peers, WIRE_PEERS_MAX, &count);
    }
}

/* The same from a buffer of just that size, so that a sanitizer sees a read behind its end. */
static enum wire_fault take_exactly(enum gossip_map_name what, const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    enum wire_fault fault = take(what, exact, size);
    free(exact);
    return fault;
}

/* One of each, as it is every day. */
static size_t sample(enum gossip_map_name what, uint8_t *bytes)
{
    size_t size = 0;
    uint32_t next = 0;
    switch (what) {
    case GOSSIP_MAP_CLAIM:
        gossips_claim(&claim);
        assert_int_equal(gossip_claim_encode(&claim, bytes, WIRE_STATE_MAX, &size), WIRE_OK);
        break;
    case GOSSIP_MAP_STATE:
        gossips_state(&state, 2);
        gossips_lease(&leases[0], 0);
        gossips_lease(&leases[1], 1);
        assert_int_equal(
            gossip_state_encode(&state, leases, 2, &next, bytes, WIRE_STATE_MAX, &size), WIRE_OK);
        break;
    case GOSSIP_MAP_BEAT:
        gossips_beat(&beat, 2);
        assert_int_equal(gossip_beat_encode(&beat, bytes, WIRE_STATE_MAX, &size), WIRE_OK);
        break;
    default:
        memset(peers, 0, 2 * sizeof *peers);
        (void)strcpy(peers[0].endpoint, "tcp://192.168.1.4:5771");
        gossips_fill_peer(&peers[1]);
        assert_int_equal(gossip_peers_encode(peers, 2, bytes, WIRE_STATE_MAX, &size), WIRE_OK);
        break;
    }
    return size;
}

static uint8_t bytes[WIRE_STATE_MAX + 1], other[WIRE_STATE_MAX];

static void nothing_cut_short_is_taken(void **unused)
{
    (void)unused;
    for (unsigned what = 0; what < GOSSIP_WHOLE_COUNT; what++) {
        size_t size = sample((enum gossip_map_name)what, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(take_exactly((enum gossip_map_name)what, bytes, cut), WIRE_ESHORT);
        }
        bytes[size] = 0xc0;
        assert_int_equal(take_exactly((enum gossip_map_name)what, bytes, size + 1), WIRE_EEXTRA);
        assert_int_equal(take((enum gossip_map_name)what, bytes, sizeof bytes), WIRE_ELONG);
    }
}

/* What was taken can be sent, if it is set right which part it is. */
static void assert_can_be_sent(enum gossip_map_name what)
{
    size_t size;
    uint32_t next = 0;
    switch (what) {
    case GOSSIP_MAP_CLAIM:
        assert_int_equal(gossip_claim_encode(&claim, other, sizeof other, &size), WIRE_OK);
        break;
    case GOSSIP_MAP_STATE:
        state.part = 0;
        state.leases = count;
        assert_int_equal(
            gossip_state_encode(&state, leases, count, &next, other, sizeof other, &size), WIRE_OK);
        break;
    case GOSSIP_MAP_BEAT:
        assert_int_equal(gossip_beat_encode(&beat, other, sizeof other, &size), WIRE_OK);
        break;
    default:
        assert_int_equal(gossip_peers_encode(peers, count, other, sizeof other, &size), WIRE_OK);
    }
}

static void any_byte_may_be_any_other(void **unused)
{
    (void)unused;
    for (unsigned what = 0; what < GOSSIP_WHOLE_COUNT; what++) {
        unsigned taken = 0;
        size_t size = sample((enum gossip_map_name)what, bytes);
        uint8_t *exact = malloc(size);
        assert_non_null(exact);
        memcpy(exact, bytes, size);
        for (size_t at = 0; at < size; at++) {
            for (unsigned value = 0; value < 256; value++) {
                exact[at] = (uint8_t)value;
                if (take((enum gossip_map_name)what, exact, size) == WIRE_OK) {
                    assert_can_be_sent((enum gossip_map_name)what);
                    taken++;
                }
            }
            exact[at] = bytes[at];
        }
        assert_in_range(taken, size, 200 * size); /* of 256 */
        free(exact);
    }
}

/* ---- one field at a time ---------------------------------------------------------------- */

#define V "\xa1v\x01"
#define ID_FIELD                                                                                   \
    "\xa2id\xc4\x10"                                                                               \
    "0123456789abcdef"
#define SENDER ID_FIELD "\xa4name\xa2m5"
#define CLAIM                                                                                      \
    V "\xa2op\xa5"                                                                                 \
      "claim" SENDER "\xa8provider\xa2z4"
#define STATE                                                                                      \
    V "\xa2op\xa5state" SENDER "\xa8provider\xa2z4\xa5"                                            \
      "epoch\x01\xa7version\x02"                                                                   \
      "\xa4part\x00\xa5parts\x01"
#define BEAT                                                                                       \
    V "\xa2op\xa4"                                                                                 \
      "beat" SENDER
#define LEASE "\xa2id\xa4z4:x\xa5state\xa4held"

#define BYTES(text) text, sizeof(text) - 1

/* Where a pair may be put behind, so that it is the last one of the map. */
static const struct {
    enum gossip_map_name what, map;
    const char *before;
    size_t size;
} places[] = {
    {GOSSIP_MAP_CLAIM, GOSSIP_MAP_CLAIM, BYTES("\x87" CLAIM "\xa5lease\x82" LEASE)},
    {GOSSIP_MAP_CLAIM, GOSSIP_MAP_LEASE, BYTES("\x86" CLAIM "\xa5lease\x83" LEASE)},
    {GOSSIP_MAP_STATE, GOSSIP_MAP_STATE, BYTES("\x8a" STATE)},
    {GOSSIP_MAP_STATE, GOSSIP_MAP_LEASE,
     BYTES("\x8b" STATE "\xa5total\x01\xa6leases\x91\x83" LEASE)},
    {GOSSIP_MAP_STATE, GOSSIP_MAP_MODEL, BYTES("\x8a" STATE "\xa6models\x91\x82\xa4name\xa1x")},
    {GOSSIP_MAP_BEAT, GOSSIP_MAP_BEAT, BYTES("\x85" BEAT)},
    {GOSSIP_MAP_BEAT, GOSSIP_MAP_OFFER, BYTES("\x85" BEAT "\xa6offers\x91\x82\xa8provider\xa2z4")},
    {GOSSIP_MAP_PEERS, GOSSIP_MAP_PEER,
     BYTES("\x83" V "\xa2op\xa5peers\xa5peers\x91\x82\xa8"
           "endpoint\xa1x")},
    {GOSSIP_MAP_PEERS, GOSSIP_MAP_PEERS, BYTES("\x84" V "\xa2op\xa5peers\xa5peers\x90")},
};

static msgpack_sbuffer text;
static msgpack_packer packer;

/* The place and a key, behind which a value goes. */
static void begin(size_t place, const char *key)
{
    msgpack_sbuffer_clear(&text);
    msgpack_sbuffer_write(&text, places[place].before, places[place].size);
    msgpack_pack_str(&packer, strlen(key));
    msgpack_pack_str_body(&packer, key, strlen(key));
}

static void assert_taken(size_t place, const char *key, enum wire_fault fault)
{
    enum wire_fault was = take_exactly(places[place].what, (const uint8_t *)text.data, text.size);
    if (was != fault) {
        fail_msg("place %zu, %s: %s", place, key, wire_fault_text(was));
    }
}

/* A text, or bytes, of that many t. */
static void pack_long(size_t length, bool bin)
{
    if (bin) {
        msgpack_pack_bin(&packer, length);
    } else {
        msgpack_pack_str(&packer, length);
    }
    for (size_t i = 0; i < length; i++) {
        msgpack_sbuffer_write(&text, "t", 1);
    }
}

static void try_text(size_t place, const struct gossip_row *row)
{
    begin(place, row->key);
    pack_long(row->maximum, false);
    assert_taken(place, row->key, WIRE_OK);
    begin(place, row->key);
    pack_long(row->maximum + 1, false);
    assert_taken(place, row->key, WIRE_EVALUE);
    begin(place, row->key);
    msgpack_sbuffer_write(&text, "\xa1\xff", 2);
    assert_taken(place, row->key, WIRE_EVALUE);
    begin(place, row->key);
    pack_long(1, true);
    assert_taken(place, row->key, WIRE_ETYPE);
}

static void try_number(size_t place, const struct gossip_row *row)
{
    begin(place, row->key);
    msgpack_pack_uint64(&packer, row->maximum);
    assert_taken(place, row->key, WIRE_OK);
    if (row->maximum != UINT64_MAX) {
        begin(place, row->key);
        msgpack_pack_uint64(&packer, row->maximum + 1);
        assert_taken(place, row->key, WIRE_EVALUE);
    }
    begin(place, row->key);
    msgpack_pack_int(&packer, -1);
    assert_taken(place, row->key, WIRE_EVALUE);
    begin(place, row->key);
    msgpack_pack_double(&packer, 1);
    assert_taken(place, row->key, WIRE_ETYPE);
}

static void try_id(size_t place, const struct gossip_row *row)
{
    begin(place, row->key);
    pack_long(WIRE_ID_BYTES, true);
    assert_taken(place, row->key, WIRE_OK);
    begin(place, row->key);
    pack_long(WIRE_ID_BYTES - 1, true);
    assert_taken(place, row->key, WIRE_EVALUE);
    begin(place, row->key);
    pack_long(WIRE_ID_BYTES, false);
    assert_taken(place, row->key, WIRE_ETYPE);
}

/* An array of maps: one more than there may be, no array, an array of something else, a bomb. */
static void try_list(size_t place, const struct gossip_row *row, size_t room)
{
    begin(place, row->key);
    msgpack_pack_array(&packer, room + 1);
    for (size_t i = 0; i <= room; i++) {
        msgpack_pack_map(&packer, 0);
    }
    assert_taken(place, row->key, WIRE_ECOUNT);
    begin(place, row->key);
    msgpack_pack_map(&packer, 0);
    assert_taken(place, row->key, WIRE_ETYPE);
    begin(place, row->key);
    msgpack_pack_array(&packer, 1);
    msgpack_pack_int(&packer, 1);
    assert_taken(place, row->key, WIRE_ETYPE);
    begin(place, row->key);
    msgpack_pack_array(&packer, 1);
    msgpack_pack_map(&packer, 0);
    assert_taken(place, row->key, WIRE_EMISSING);
    begin(place, row->key);
    msgpack_pack_array(&packer, 1);
    msgpack_sbuffer_write(&text, "\x81\x01\x01", 3);
    assert_taken(place, row->key, WIRE_ESHAPE);
    begin(place, row->key);
    msgpack_sbuffer_write(&text, "\xdd\xff\xff\xff\xff", 5);
    assert_taken(place, row->key, WIRE_ECOUNT);
    begin(place, row->key);
    msgpack_sbuffer_write(&text, "\x91\xdf\xff\xff\xff\xff", 6);
    assert_taken(place, row->key, WIRE_ECOUNT);
    begin(place, row->key);
    msgpack_pack_array(&packer, 0);
    assert_taken(place, row->key, WIRE_OK);
}

static void try_row(size_t place, const struct gossip_row *row)
{
    bool there = row->must || row->type == LEASE_STATE;
    begin(place, row->key);
    msgpack_pack_nil(&packer);
    if (there) {
        assert_taken(place, row->key, WIRE_ETWICE);
        return;
    }
    assert_taken(place, row->key, WIRE_OK); /* as if it were not there */
    switch ((enum gossip_type)row->type) {
    case ID: try_id(place, row); break;
    case TEXT:
    case NAME: try_text(place, row); break;
    case U32:
    case U64:
    case I32:
    case I64: try_number(place, row); break;
    case FLAG:
        begin(place, row->key);
        msgpack_pack_int(&packer, 1);
        assert_taken(place, row->key, WIRE_ETYPE);
        break;
    case LIST:
        try_list(place, row,
                 row->maximum == GOSSIP_MAP_MODEL ? WIRE_MODELS_MAX : WIRE_PROVIDERS_MAX);
        break;
    case OUTSIDE: try_list(place, row, WIRE_LEASES_MAX); break;
    case LEASE_STATE:
    case VERSION:
    case OP:
    case MAP: fail_msg("%s is in no place", row->key); /* they must be there */
    }
}

static void every_field_keeps_its_limits(void **unused)
{
    (void)unused;
    msgpack_sbuffer_init(&text);
    msgpack_packer_init(&packer, &text, msgpack_sbuffer_write);
    for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
        const struct gossip_map *map = &gossip_maps[places[place].map];
        for (uint32_t i = 0; i < map->row_count; i++) {
            try_row(place, &map->rows[i]);
        }
        begin(place, "unheard");
        msgpack_pack_array(&packer, 1);
        msgpack_pack_true(&packer);
        assert_taken(place, "unheard", WIRE_OK);
        begin(place, "unheard");
        msgpack_sbuffer_write(&text, "\x91\x91\x91\x91\x01", 5);
        assert_taken(place, "unheard", WIRE_EDEPTH);
    }
    msgpack_sbuffer_destroy(&text);
}

/* ---- what is refused -------------------------------------------------------------------- */

static const struct {
    const char *what;
    enum gossip_map_name as;
    const char *bytes;
    size_t size;
    enum wire_fault fault;
} refused[] = {
    {"nothing", GOSSIP_MAP_BEAT, BYTES(""), WIRE_ESHORT},
    {"an array of 4 billion", GOSSIP_MAP_STATE, BYTES("\xdd\xff\xff\xff\xff"), WIRE_ECOUNT},
    {"a map of 4 billion", GOSSIP_MAP_STATE, BYTES("\xdf\xff\xff\xff\xff"), WIRE_ECOUNT},
    {"a map of 4,096 in three bytes", GOSSIP_MAP_STATE, BYTES("\xde\x10\x00"), WIRE_ESHORT},
    {"an array", GOSSIP_MAP_CLAIM, BYTES("\x90"), WIRE_ESHAPE},
    {"a number as a key", GOSSIP_MAP_BEAT, BYTES("\x85" BEAT "\x01\x01"), WIRE_ESHAPE},
    {"an empty map", GOSSIP_MAP_CLAIM, BYTES("\x80"), WIRE_EVERSION},
    {"version 2", GOSSIP_MAP_BEAT,
     BYTES("\x84"
           "\xa1v\x02\xa2op\xa4"
           "beat" SENDER),
     WIRE_EVERSION},
    {"version 2 behind a field of another type", GOSSIP_MAP_BEAT,
     BYTES("\x84\xa4name\x07" ID_FIELD "\xa2op\xa4"
           "beat\xa1v\x02"),
     WIRE_EVERSION},
    {"version 257", GOSSIP_MAP_BEAT,
     BYTES("\x84"
           "\xa1v\xcd\x01\x01\xa2op\xa4"
           "beat" SENDER),
     WIRE_EVERSION},
    {"a beat as a claim", GOSSIP_MAP_CLAIM, BYTES("\x84" BEAT), WIRE_EOP},
    {"an unknown op", GOSSIP_MAP_BEAT,
     BYTES("\x84" V "\xa2op\xa4"
           "boat" SENDER),
     WIRE_EOP},
    {"an op twice", GOSSIP_MAP_BEAT,
     BYTES("\x85" BEAT "\xa2op\xa4"
           "beat"),
     WIRE_ETWICE},
    {"a sender without a name", GOSSIP_MAP_BEAT,
     BYTES("\x83" V "\xa2op\xa4"
           "beat" ID_FIELD),
     WIRE_EMISSING},
    {"an id of zeroes", GOSSIP_MAP_BEAT,
     BYTES("\x84" V "\xa2op\xa4"
           "beat\xa4name\xa2m5\xa2id\xc4\x10"
           "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
     WIRE_EMISSING},
    {"a claim without a lease", GOSSIP_MAP_CLAIM, BYTES("\x85" CLAIM), WIRE_EMISSING},
    {"a claim of a lease without an id", GOSSIP_MAP_CLAIM,
     BYTES("\x86" CLAIM "\xa5lease\x81\xa5state\xa4held"), WIRE_EMISSING},
    {"a claim with an empty id", GOSSIP_MAP_CLAIM,
     BYTES("\x86" CLAIM "\xa5lease\x82\xa2id\xa0\xa5state\xa4held"), WIRE_EMISSING},
    {"a claim of a lease without a state", GOSSIP_MAP_CLAIM,
     BYTES("\x86" CLAIM "\xa5lease\x81\xa2id\xa1x"), WIRE_EMISSING},
    {"another state", GOSSIP_MAP_CLAIM,
     BYTES("\x86" CLAIM "\xa5lease\x82\xa2id\xa1x\xa5state\xa4gone"), WIRE_EVALUE},
    {"a state by number", GOSSIP_MAP_CLAIM,
     BYTES("\x86" CLAIM "\xa5lease\x82\xa2id\xa1x\xa5state\x01"), WIRE_ETYPE},
    {"a lease that is an array", GOSSIP_MAP_CLAIM, BYTES("\x86" CLAIM "\xa5lease\x90"), WIRE_ETYPE},
    {"a lease that is a bomb", GOSSIP_MAP_CLAIM,
     BYTES("\x86" CLAIM "\xa5lease\xdf\xff\xff\xff\xff"), WIRE_ECOUNT},
    {"part 1 of 1", GOSSIP_MAP_STATE,
     BYTES("\x89" V "\xa2op\xa5state" SENDER "\xa8provider\xa2z4\xa5"
           "epoch\x01\xa7version\x02"
           "\xa4part\x01\xa5parts\x01"),
     WIRE_EVALUE},
    {"65 parts", GOSSIP_MAP_STATE,
     BYTES("\x89" V "\xa2op\xa5state" SENDER "\xa8provider\xa2z4\xa5"
           "epoch\x01\xa7version\x02"
           "\xa4part\x00\xa5parts\x41"),
     WIRE_EVALUE},
    {"more leases than there are", GOSSIP_MAP_STATE, BYTES("\x8a" STATE "\xa6leases\x91\x82" LEASE),
     WIRE_EVALUE},
    {"leases that are lists of lists", GOSSIP_MAP_STATE,
     BYTES("\x8a" STATE "\xa6leases\x91\x91\x91\x91\x01"), WIRE_EDEPTH},
};

static void what_is_wrong_is_named(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        claim = (struct gossip_claim){.withdrawn = true};
        state = (struct gossip_state){.part = 1};
        beat.sender = (struct gossip_sender){.name = ""};
        enum wire_fault fault =
            take_exactly(refused[i].as, (const uint8_t *)refused[i].bytes, refused[i].size);
        if (fault != refused[i].fault) {
            fail_msg("%s: %s", refused[i].what, wire_fault_text(fault));
        }
        /* Nothing is left of it. */
        assert_true(claim.sender.name[0] == '\0' && state.sender.name[0] == '\0');
        assert_true(beat.sender.name[0] == '\0' && count == 0);
    }
}

static void what_may_be_is_taken(void **unused)
{
    (void)unused;
    /* Keys from the last to the first, unknown ones, long forms where short ones would do. */
    static const char odd[] = "\xde\x00\x08\xa5zzzzz\x91\x91\x91\x01"
                              "\xa6offers\xdd\0\0\0\1\x84\xa7version\xcf\0\0\0\0\0\0\0\x07"
                              "\xa2xx\x90\xa5"
                              "epoch\xc0\xd9\x08provider\xda\0\2z4"
                              "\xa4port\xc0\xa4name\xd9\2m5\xa2id\xc5\0\x10"
                              "0123456789abcdef"
                              "\xa7version\xc0\xa2op\xdb\0\0\0\4"
                              "beat\xa1v\xd3\0\0\0\0\0\0\0\1";
    assert_int_equal(take(GOSSIP_MAP_BEAT, odd, sizeof odd - 1), WIRE_OK);
    assert_string_equal(beat.sender.name, "m5");
    assert_int_equal(beat.offer_count, 1);
    assert_string_equal(beat.offers[0].provider, "z4");
    assert_int_equal(beat.offers[0].version, 7);
    assert_int_equal(beat.offers[0].epoch, 0);
}

/* ---- mutations -------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static void mutations_are_survived(void **unused)
{
    (void)unused;
    static const uint8_t heads[] = {0x80, 0x90, 0xa0, 0xc0, 0xc1, 0xc4, 0xcf, 0xdd, 0xdf, 0xff};
    const char *given = getenv("LEASEHOLD_SEED");
    random_state = given ? strtoull(given, NULL, 0) : 20261130;
    print_message("seed %llu\n", (unsigned long long)random_state);
    unsigned taken = 0;
    for (unsigned n = 0; n < 40000; n++) {
        enum gossip_map_name what = (enum gossip_map_name)draw(GOSSIP_WHOLE_COUNT);
        size_t size = sample(what, bytes);
        for (uint32_t changes = 1 + draw(3); changes > 0; changes--) {
            uint32_t at = draw((uint32_t)size - 1);
            switch (draw(4)) {
            case 0: bytes[at] ^= (uint8_t)(1U << draw(8)); break;
            case 1: bytes[at] = heads[draw(sizeof heads)]; break;
            case 2: memmove(bytes + at, bytes + at + 1, --size - at); break;
            default: bytes[at] = bytes[draw((uint32_t)size)]; break;
            }
        }
        if (take_exactly(what, bytes, size) == WIRE_OK) {
            assert_can_be_sent(what);
            taken++;
        }
    }
    assert_in_range(taken, 400, 39000); /* else nothing was tried */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_cut_short_is_taken),   cmocka_unit_test(any_byte_may_be_any_other),
        cmocka_unit_test(every_field_keeps_its_limits), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_may_be_is_taken),         cmocka_unit_test(mutations_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
