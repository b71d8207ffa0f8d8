/* Bytes that are no message, or are one in an odd form. What is well formed comes back in
 * test_message.c. */
#define _GNU_SOURCE
#include <msgpack/pack.h>
#include <msgpack/sbuffer.h>
#include <stdlib.h>
#include <string.h>

#include "proto/message.h"
#include "proto/message_table.h"
#include "tests/lib/check.h"
#include "tests/lib/messages.h"

static void nothing_cut_short_is_taken(void **state)
{
    (void)state;
    struct message m, back;
    uint8_t bytes[MESSAGE_BYTES_MAX];
    for (unsigned n = 0; messages_kind(n, &m); n++) {
        size_t size = messages_encode(&m, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *exact = malloc(cut + 1); /* so that a sanitizer sees a read behind the end */
            assert_non_null(exact);
            memcpy(exact, bytes, cut);
            assert_int_equal(message_decode(exact, cut, &back, NULL), WIRE_ESHORT);
            free(exact);
        }
        assert_int_equal(message_decode(bytes, size + 1, &back, NULL), WIRE_EEXTRA);
    }
}

/* ---- what is refused -------------------------------------------------------------------- */

#define V      "\xa1v\x01"
#define HELLO  "\xa2op\xa5hello"
#define YIELD  "\xa2op\xa5yield"
#define READ   "\xa2op\xa4read"
#define VERIFY "\xa2op\xa6verify"
#define RENEW  "\xa2op\xa5renew"
#define FETCH                                                                                      \
    "\xa2op\xa5"                                                                                   \
    "fetch"
#define Z4 "\xa8provider\xa2z4"
#define REQ                                                                                        \
    "\xa3req\xc4\x10"                                                                              \
    "0123456789abcdef"
#define OK "\xa2ok\xc3"
#define NO "\xa2ok\xc2"

struct refused {
    const char *what;
    const char *bytes;
    size_t size;
    enum wire_fault fault;
    const char *field;
};

#define BYTES(text) text, sizeof(text) - 1

/* clang-format off */
static const struct refused refused[] = {
    {"nothing", BYTES(""), WIRE_ESHORT, NULL},
    {"text", BYTES("hello"), WIRE_EEXTRA, NULL},
    {"a number", BYTES("\x01"), WIRE_ESHAPE, NULL},
    {"nil", BYTES("\xc0"), WIRE_ESHAPE, NULL},
    {"an array", BYTES("\x91\x01"), WIRE_ESHAPE, NULL},
    {"an empty map", BYTES("\x80"), WIRE_EREQ, "req"},
    {"the byte that is not used", BYTES("\xc1"), WIRE_ESHAPE, NULL},
    {"the same inside", BYTES("\x84" V HELLO REQ "\xa1x\xc1"), WIRE_ESHAPE, NULL},
    {"a number as a key", BYTES("\x84" V HELLO REQ "\x01\x01"), WIRE_ESHAPE, NULL},
    {"an array of 4 billion", BYTES("\xdd\xff\xff\xff\xff"), WIRE_ECOUNT, NULL},
    {"a map of 4 billion", BYTES("\xdf\xff\xff\xff\xff"), WIRE_ECOUNT, NULL},
    {"an array of 4,097", BYTES("\xdc\x10\x01"), WIRE_ECOUNT, NULL},
    {"an array of 4,096 in three bytes", BYTES("\xdc\x10\x00"), WIRE_ESHORT, NULL},
    {"a map of 2,147,483,648", BYTES("\xdf\x80\x00\x00\x00"), WIRE_ECOUNT, NULL},
    {"a text of 4 GiB", BYTES("\xdb\xff\xff\xff\xff"), WIRE_ESHORT, NULL},
    {"bytes of 4 GiB", BYTES("\xc6\xff\xff\xff\xff"), WIRE_ESHORT, NULL},
    {"an ext of 4 GiB", BYTES("\xc9\xff\xff\xff\xff\x01"), WIRE_ESHORT, NULL},
    {"five deep", BYTES("\x84" V HELLO REQ "\xa1x\x91\x91\x91\x91\x01"), WIRE_EDEPTH, NULL},
    {"five deep and empty", BYTES("\x84" V HELLO REQ "\xa1x\x91\x91\x91\x90"), WIRE_EDEPTH, NULL},
    {"no req", BYTES("\x82" V HELLO), WIRE_EREQ, "req"},
    {"a req of text", BYTES("\x83" V HELLO "\xa3req\xb0" "0123456789abcdef"), WIRE_EREQ, "req"},
    {"a req of 15", BYTES("\x83" V HELLO "\xa3req\xc4\x0f" "123456789abcdef"), WIRE_EREQ, "req"},
    {"no version", BYTES("\x82" HELLO REQ), WIRE_EVERSION, "v"},
    {"version 0", BYTES("\x83\xa1v\x00" HELLO REQ), WIRE_EVERSION, "v"},
    {"version 2", BYTES("\x83\xa1v\x02" HELLO REQ), WIRE_EVERSION, "v"},
    {"version 257", BYTES("\x83\xa1v\xcd\x01\x01" HELLO REQ), WIRE_EVERSION, "v"},
    {"version of text", BYTES("\x83\xa1v\xa1" "1" HELLO REQ), WIRE_EVERSION, "v"},
    {"no op", BYTES("\x82" V REQ), WIRE_EOP, "op"},
    {"another op", BYTES("\x83" V "\xa2op\xa4sell" REQ), WIRE_EOP, "op"},
    {"an op by number", BYTES("\x83" V "\xa2op\x01" REQ), WIRE_EOP, "op"},
    {"an op that begins well", BYTES("\x83" V "\xa2op\xa4hell" REQ), WIRE_EOP, "op"},
    {"a refusal that asks", BYTES("\x83" V "\xa2op\xa7refusal" REQ), WIRE_EOP, "op"},
    {"an op twice", BYTES("\x84" V HELLO REQ YIELD), WIRE_ETWICE, "op"},
    {"a field twice", BYTES("\x85" V HELLO REQ "\xa3pid\x01\xa3pid\x02"), WIRE_ETWICE, "pid"},
    {"no provider", BYTES("\x83" V READ REQ), WIRE_EMISSING, "provider"},
    {"no kind", BYTES("\x83" V YIELD REQ), WIRE_EMISSING, "kind"},
    {"kind is nil", BYTES("\x84" V YIELD REQ "\xa4kind\xc0"), WIRE_EMISSING, "kind"},
    {"another kind", BYTES("\x84" V YIELD REQ "\xa4kind\xa1x"), WIRE_EVALUE, "kind"},
    {"kind by number", BYTES("\x84" V YIELD REQ "\xa4kind\x01"), WIRE_ETYPE, "kind"},
    {"a name with a blank", BYTES("\x84" V READ REQ "\xa8provider\xa3z 4"), WIRE_EVALUE, "provider"},
    {"an empty name", BYTES("\x84" V READ REQ "\xa8provider\xa0"), WIRE_EVALUE, "provider"},
    {"a name of bytes", BYTES("\x84" V READ REQ "\xa8provider\xc4\x02z4"), WIRE_ETYPE, "provider"},
    {"a name of 64", BYTES("\x84" V READ REQ "\xa8provider\xd9\x40"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"), WIRE_EVALUE, "provider"},
    {"a pid below zero", BYTES("\x84" V HELLO REQ "\xa3pid\xff"), WIRE_EVALUE, "pid"},
    {"a pid of 2^31", BYTES("\x84" V HELLO REQ "\xa3pid\xce\x80\x00\x00\x00"), WIRE_EVALUE, "pid"},
    {"a pid of 2^32+1", BYTES("\x84" V HELLO REQ "\xa3pid\xcf\x00\x00\x00\x01\x00\x00\x00\x01"),
        WIRE_EVALUE, "pid"},
    {"a pid that floats", BYTES("\x84" V HELLO REQ "\xa3pid\xca\x3f\x80\x00\x00"), WIRE_ETYPE, "pid"},
    {"an id of 1", BYTES("\x84" V HELLO REQ "\xa2id\xc4\x01x"), WIRE_EVALUE, "id"},
    {"a version that is no text", BYTES("\x84" V HELLO REQ "\xa7version\xa2\xc3\x28"), WIRE_EVALUE,
        "version"},
    {"a version with a zero", BYTES("\x84" V HELLO REQ "\xa7version\xa2" "1\0"), WIRE_EVALUE,
        "version"},
    {"an ok reply without all", BYTES("\x84" V HELLO REQ OK), WIRE_EMISSING, "name"},
    {"a no without a reason", BYTES("\x84" V YIELD REQ NO), WIRE_EMISSING, "error"},
    {"a no with error 0", BYTES("\x85" V YIELD REQ NO "\xa5" "error\x00"), WIRE_EMISSING, "error"},
    {"a no with error 1", BYTES("\x85" V YIELD REQ NO "\xa5" "error\x01"), WIRE_EVALUE, "error"},
    {"an error of -4096", BYTES("\x85" V YIELD REQ NO "\xa5" "error\xd1\xf0\x00"), WIRE_EVALUE,
        "error"},
    {"an error of -2^63", BYTES("\x85" V YIELD REQ NO "\xa5" "error\xd3\x80\0\0\0\0\0\0\0"),
        WIRE_EVALUE, "error"},
    {"an error in words", BYTES("\x85" V YIELD REQ NO "\xa5" "error\xa2no"), WIRE_ETYPE, "error"},
    {"an ok with an error", BYTES("\x85" V YIELD REQ OK "\xa5" "error\xff"), WIRE_EVALUE, "ok"},
    {"an ok refusal", BYTES("\x85" V "\xa2op\xa7refusal" REQ OK "\xa5" "error\xff"), WIRE_EVALUE,
        "ok"},
    {"a refusal without a reason", BYTES("\x84" V "\xa2op\xa7refusal" REQ NO), WIRE_EMISSING,
        "error"},
    {"an ok by number", BYTES("\x84" V YIELD REQ "\xa2ok\x01"), WIRE_ETYPE, "ok"},
    {"a verify of nothing", BYTES("\x83" V VERIFY REQ), WIRE_EMISSING, "provider"},
    {"a renewal without a lease", BYTES("\x84" V RENEW REQ Z4), WIRE_EMISSING, "lease"},
    {"a renewal of an empty lease", BYTES("\x85" V RENEW REQ Z4 "\xa5lease\xa0"), WIRE_EMISSING,
        "lease"},
    {"an answer without a verdict", BYTES("\x84" V VERIFY REQ OK), WIRE_EMISSING, "verdict"},
    {"another verdict", BYTES("\x85" V VERIFY REQ OK "\xa7verdict\xa5maybe"), WIRE_EVALUE, "verdict"},
    {"half a verdict", BYTES("\x85" V VERIFY REQ OK "\xa7verdict\xa1g"), WIRE_EVALUE, "verdict"},
    {"an empty verdict", BYTES("\x85" V VERIFY REQ OK "\xa7verdict\xa0"), WIRE_EVALUE, "verdict"},
    {"a verdict by number", BYTES("\x85" V VERIFY REQ OK "\xa7verdict\x02"), WIRE_ETYPE, "verdict"},
    {"a verdict twice", BYTES("\x86" V VERIFY REQ OK "\xa7verdict\xa2go\xa7verdict\xa2no"),
        WIRE_ETWICE, "verdict"},
    {"a state of text", BYTES("\x85" V FETCH REQ OK "\xa5state\xa1x"), WIRE_ETYPE, "state"},
    {"a state that is a map", BYTES("\x85" V FETCH REQ OK "\xa5state\x80"), WIRE_ETYPE, "state"},
    {"a state twice", BYTES("\x86" V FETCH REQ OK "\xa5state\xc4\x01x\xa5state\xc4\x01x"),
        WIRE_ETWICE, "state"},
    {"a state of 4 GiB", BYTES("\x85" V FETCH REQ OK "\xa5state\xc6\xff\xff\xff\xff"),
        WIRE_ESHORT, NULL},
    {"providers that are one", BYTES("\x85" V HELLO REQ NO "\xa9providers\xa2z4"), WIRE_EMISSING,
        "error"},
};
/* clang-format on */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    assert_string_equal(wire_fault_text((enum wire_fault)99), "unknown fault");
#define IS_TOLD(name, text) assert_string_equal(wire_fault_text(name), text);
    WIRE_FAULTS(IS_TOLD)
#undef IS_TOLD
    assert_string_equal(message_op_word(MESSAGE_HELLO), "hello");
    assert_string_equal(message_op_word((enum message_op)99), "");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct refused *row = &refused[i];
        struct message m;
        const char *field = NULL;
        enum wire_fault fault = message_decode(row->bytes, row->size, &m, &field);
        if (fault != row->fault || (field == NULL) != (row->field == NULL) ||
            (field && strcmp(field, row->field) != 0)) {
            fail_msg("%s: '%s' %s", row->what, field ? field : "", wire_fault_text(fault));
        }
        if (fault >= WIRE_EVERSION) { /* an answer finds its way, and nothing else is left */
            assert_memory_equal(m.req, "0123456789abcdef", 16);
        }
        assert_true(m.pid == 0 && m.provider[0] == '\0' && m.version[0] == '\0');
    }
}

/* One above the maximum, each of them a name as it should be. */
static void more_providers_than_the_maximum_are_refused(void **state)
{
    (void)state;
    static const char head[] = "\x86" V HELLO REQ NO "\xa5"
                               "error\xff\xa9providers\xdc\x00\x41";
    uint8_t bytes[sizeof head - 1 + 2 * (WIRE_PROVIDERS_MAX + 1)];
    struct message m;
    const char *field = NULL;
    memcpy(bytes, head, sizeof head - 1);
    for (size_t i = sizeof head - 1; i < sizeof bytes; i += 2)
        memcpy(bytes + i, "\xa1p", 2);
    assert_int_equal(message_decode(bytes, sizeof bytes, &m, &field), WIRE_EVALUE);
    assert_string_equal(field, "providers");
}

static void what_may_be_is_taken(void **state)
{
    (void)state;
    /* Keys in any order, unknown ones of any type and long forms where short ones would do. */
    static const char odd[] =
        "\xde\x00\x09" REQ "\xa1x\x91\x91\x91\x01\xa3pid\xcf\0\0\0\0\0\0\0\x07"
        "\xa4name\xc0\xa1y\xd4\x01\x02\xa1z\xcb\0\0\0\0\0\0\0\0"
        "\xa2uu\xa3\xff\xff\xff\xd9\x02op\xda\x00\x05hello\xd9\x01v\xd0\x01";
    struct message m;
    const char *field = NULL;
    assert_int_equal(message_decode(odd, sizeof odd - 1, &m, &field), WIRE_OK);
    assert_int_equal(m.op, MESSAGE_HELLO);
    assert_false(m.reply);
    assert_int_equal(m.pid, 7);
    assert_string_equal(m.name, "");
    /* A field of another op is an unknown key, whatever is in it. */
    static const char stray[] = "\x84" V HELLO REQ "\xa8provider\x05";
    assert_int_equal(message_decode(stray, sizeof stray - 1, &m, NULL), WIRE_OK);
}

/* ---- one field at a time ---------------------------------------------------------------- */

static msgpack_sbuffer text;
static msgpack_packer packer;

/* A message that can do with another pair, and the key of it. */
static void begin(const struct message *m, const struct message_row *row)
{
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    size_t size = messages_encode(m, bytes);
    assert_in_range(bytes[0], 0x80, 0x8e);
    bytes[0]++;
    msgpack_sbuffer_clear(&text);
    msgpack_sbuffer_write(&text, (char *)bytes, size);
    msgpack_pack_str(&packer, row->key_size);
    msgpack_pack_str_body(&packer, row->key, row->key_size);
}

static void assert_taken(const struct message *m, const struct message_row *row,
                         enum wire_fault fault)
{
    static struct message back;
    const char *field = NULL;
    enum wire_fault was = message_decode(text.data, text.size, &back, &field);
    if (was != fault || (fault != WIRE_OK && strcmp(field, row->key) != 0)) {
        fail_msg("%s, %s: '%s' %s", message_op_word(m->op), row->key, field ? field : "",
                 wire_fault_text(was));
    }
}

static void pack_long(uint64_t length, bool bin)
{
    if (bin) {
        msgpack_pack_bin(&packer, length);
    } else {
        msgpack_pack_str(&packer, length);
    }
    for (uint64_t i = 0; i < length; i++) {
        msgpack_sbuffer_write(&text, "t", 1);
    }
}

/* As long as it may be, one longer, and of another type. */
static void try_long(const struct message *m, const struct message_row *row, bool bin)
{
    begin(m, row);
    pack_long(row->maximum, bin);
    assert_taken(m, row, WIRE_OK);
    begin(m, row);
    pack_long(row->maximum + 1, bin);
    assert_taken(m, row, WIRE_EVALUE);
    begin(m, row);
    pack_long(1, !bin);
    assert_taken(m, row, WIRE_ETYPE);
}

static void try_number(const struct message *m, const struct message_row *row)
{
    begin(m, row);
    msgpack_pack_uint64(&packer, row->maximum);
    assert_taken(m, row, WIRE_OK);
    begin(m, row);
    msgpack_pack_uint64(&packer, row->maximum + 1);
    assert_taken(m, row, WIRE_EVALUE);
    begin(m, row);
    msgpack_pack_int(&packer, -1);
    assert_taken(m, row, WIRE_EVALUE);
    begin(m, row);
    msgpack_pack_float(&packer, 1);
    assert_taken(m, row, WIRE_ETYPE);
}

static void try_names(const struct message *m, const struct message_row *row)
{
    for (uint64_t count = row->maximum; count <= row->maximum + 1; count++) {
        begin(m, row);
        msgpack_pack_array(&packer, count);
        for (uint64_t i = 0; i < count; i++) {
            pack_long(1, false);
        }
        assert_taken(m, row, count == row->maximum ? WIRE_OK : WIRE_EVALUE);
    }
    begin(m, row);
    msgpack_pack_array(&packer, 1);
    msgpack_pack_int(&packer, 1);
    assert_taken(m, row, WIRE_ETYPE);
}

static void try_field(const struct message *m, const struct message_row *row)
{
    begin(m, row);
    msgpack_pack_nil(&packer);
    assert_taken(m, row, WIRE_OK); /* as if it were not there */
    switch (row->type) {
    case TEXT:
    case NAME: try_long(m, row, false); break;
    case ID:
    case BYTES: try_long(m, row, true); break;
    case U32:
    case U64: try_number(m, row); break;
    case NAMES: try_names(m, row); break;
    case FLAG:
    case KIND:
    case VERDICT:
        begin(m, row);
        msgpack_pack_int(&packer, 1);
        assert_taken(m, row, WIRE_ETYPE);
        break;
    case CODE: break; /* of `refused` above */
    }
}

static void every_field_keeps_its_limits(void **state)
{
    (void)state;
    struct message m;
    unsigned tried = 0;
    msgpack_sbuffer_init(&text);
    msgpack_packer_init(&packer, &text, msgpack_sbuffer_write);
    for (unsigned n = 0; messages_kind(n, &m); n++) {
        bool bare = n % 5 == 1 || n % 5 == 3;
        uint64_t may = message_may_have(&m) & ~message_must_have(&m);
        for (unsigned i = 0; bare && i < MESSAGE_FIELD_COUNT; i++) {
            if (may & UINT64_C(1) << i) {
                try_field(&m, &message_rows[i]);
                tried++;
            }
        }
    }
    msgpack_sbuffer_destroy(&text);
    assert_in_range(tried, 100, 1000);
}

static void a_long_message_is_not_looked_at(void **state)
{
    (void)state;
    static const uint8_t bytes[WIRE_MESSAGE_MAX + 1] = {0x80};
    struct message m;
    assert_int_equal(message_decode(bytes, sizeof bytes, &m, NULL), WIRE_ELONG);
    assert_int_equal(message_decode(bytes, sizeof bytes - 1, &m, NULL), WIRE_EEXTRA);
}

/* ---- mutations -------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static size_t mutate(uint8_t *bytes, size_t size)
{
    static const uint8_t heads[] = {0xc1, 0xc4, 0xc9, 0xcf, 0xd3, 0xdb,
                                    0xdc, 0xdd, 0xde, 0xdf, 0xff};
    for (uint32_t changes = 1 + draw(4); changes > 0 && size > 1; changes--) {
        uint32_t at = draw((uint32_t)size);
        switch (draw(5)) {
        case 0: bytes[at] ^= (uint8_t)(1U << draw(8)); break;
        case 1: bytes[at] = (uint8_t)draw(256); break;
        case 2: bytes[at] = heads[draw(sizeof heads)]; break;
        case 3: memmove(bytes + at, bytes + at + 1, --size - at); break;
        default: size = at + 1; break;
        }
    }
    return size;
}

static void mutations_are_survived(void **state)
{
    (void)state;
    const char *given = getenv("LEASEHOLD_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20261130;
    unsigned taken = 0;
    random_state = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned n = 0; n < 20000; n++) {
        uint8_t bytes[MESSAGE_BYTES_MAX];
        static struct message m, back;
        (void)messages_kind(draw(MESSAGES_KINDS), &m);
        size_t size = mutate(bytes, messages_encode(&m, bytes));
        uint8_t *exact = malloc(size);
        assert_non_null(exact);
        memcpy(exact, bytes, size);
        enum wire_fault fault = message_decode(exact, size, &back, NULL);
        if (fault == WIRE_OK) {
            taken++;
            messages_assert_msgpack_agrees(exact, size);
            messages_assert_stands(&back);
        }
        free(exact);
    }
    assert_in_range(taken, 100, 19900); /* else nothing was tried */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_cut_short_is_taken),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(more_providers_than_the_maximum_are_refused),
        cmocka_unit_test(every_field_keeps_its_limits),
        cmocka_unit_test(what_may_be_is_taken),
        cmocka_unit_test(a_long_message_is_not_looked_at),
        cmocka_unit_test(mutations_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
