#define _GNU_SOURCE
#include "proto/message.h"

#include <msgpack/unpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"

static const uint8_t req[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Every field filled to its limit. */
static void fill(struct message *m)
{
    m->ok = m->reply;
    memset(m->text, 't', WIRE_TEXT_MAX);
    memset(m->name, 'n', WIRE_NAME_MAX);
    memset(m->id, 0xfe, sizeof m->id);
    memset(m->version, '1', WIRE_NAME_MAX);
    m->kind = MESSAGE_EMBEDDED;
    m->pid = INT32_MAX;
    m->uptime_ms = WIRE_NUMBER_MAX;
    m->provider_count = WIRE_PROVIDERS_MAX;
    for (size_t i = 0; i < WIRE_PROVIDERS_MAX; i++) {
        memset(m->providers[i], 'p', WIRE_NAME_MAX);
    }
    memset(m->directory, '/', WIRE_DIRECTORY_MAX);
    memset(m->provider, 'q', WIRE_NAME_MAX);
}

/* Message number n of all kinds, full and bare, asked, granted and refused; false at the end. */
static bool kind_of_message(unsigned n, struct message *m)
{
    enum message_op op = (enum message_op)(n / 5);
    if (n / 5 >= MESSAGE_OP_COUNT) {
        return false;
    }
    message_request(m, op, req);
    m->reply = n % 5 >= 2 || op == MESSAGE_REFUSAL;
    if (n % 2 == 0 || op != MESSAGE_REFUSAL) {
        fill(m);
    }
    if (n % 5 == 4 || op == MESSAGE_REFUSAL) {
        m->ok = false;
        m->error = -(int32_t)(n % 5 + 1);
    }
    if (n % 5 == 1 || n % 5 == 3) { /* as little as the kind can do with */
        m->text[0] = '\0';
        m->provider_count = 0;
        m->uptime_ms = 0;
        m->pid = 0;
    }
    return true;
}

/* msgpack's own reader must find one whole value in what we take. */
static void assert_msgpack_agrees(const uint8_t *bytes, size_t size)
{
    msgpack_unpacked unpacked;
    size_t offset = 0;
    msgpack_unpacked_init(&unpacked);
    int rc = msgpack_unpack_next(&unpacked, (const char *)bytes, size, &offset);
    msgpack_unpacked_destroy(&unpacked);
    assert_int_equal(rc, MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(offset, size);
}

static size_t encode(const struct message *m, uint8_t *bytes)
{
    size_t size = 0;
    const char *field = NULL;
    enum wire_fault fault = message_encode(m, bytes, MESSAGE_PACKED_MAX, &size, &field);
    if (fault != WIRE_OK) {
        fail_msg("%s: '%s' %s", message_op_word(m->op), field ? field : "", wire_fault_text(fault));
    }
    return size;
}

/* Written, read and written again, the bytes are the same. */
static void assert_stands(const struct message *m)
{
    uint8_t first[MESSAGE_PACKED_MAX], second[MESSAGE_PACKED_MAX];
    static struct message back;
    size_t size = encode(m, first);
    assert_int_equal(message_decode(first, size, &back, NULL), WIRE_OK);
    assert_int_equal(encode(&back, second), size);
    assert_memory_equal(first, second, size);
}

static void every_kind_comes_back_as_it_was(void **state)
{
    (void)state;
    struct message m, back;
    uint8_t bytes[MESSAGE_PACKED_MAX];
    unsigned n = 0;
    for (; kind_of_message(n, &m); n++) {
        size_t size = encode(&m, bytes);
        const char *field = "";
        assert_int_equal(message_decode(bytes, size, &back, &field), WIRE_OK);
        assert_null(field);
        assert_int_equal(back.op, m.op);
        assert_int_equal(back.reply, m.reply);
        assert_memory_equal(back.req, req, 16);
        assert_int_equal(back.error, m.error);
        assert_msgpack_agrees(bytes, size);
        assert_stands(&m);
    }
    assert_int_equal(n, 5 * MESSAGE_OP_COUNT);
}

static void what_a_status_says_is_read(void **state)
{
    (void)state;
    struct message m, back;
    uint8_t bytes[MESSAGE_PACKED_MAX];
    message_request(&m, MESSAGE_STATUS, req);
    m.reply = true;
    fill(&m);
    size_t size = encode(&m, bytes);
    assert_int_equal(message_decode(bytes, size, &back, NULL), WIRE_OK);
    assert_true(back.ok);
    assert_string_equal(back.text, m.text);
    assert_string_equal(back.name, m.name);
    assert_memory_equal(back.id, m.id, 16);
    assert_string_equal(back.version, m.version);
    assert_int_equal(back.kind, MESSAGE_EMBEDDED);
    assert_int_equal(back.pid, INT32_MAX);
    assert_true(back.uptime_ms == WIRE_NUMBER_MAX);
    assert_int_equal(back.provider_count, WIRE_PROVIDERS_MAX);
    assert_memory_equal(back.providers, m.providers, sizeof m.providers);
    assert_string_equal(back.directory, m.directory);
    assert_string_equal(back.provider, ""); /* no field of a status: not sent */
}

static void nothing_cut_short_is_taken(void **state)
{
    (void)state;
    struct message m, back;
    uint8_t bytes[MESSAGE_PACKED_MAX];
    for (unsigned n = 0; kind_of_message(n, &m); n++) {
        size_t size = encode(&m, bytes);
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

static void no_buffer_is_overrun(void **state)
{
    (void)state;
    struct message m;
    uint8_t bytes[MESSAGE_PACKED_MAX];
    for (unsigned n = 0; kind_of_message(n, &m); n++) {
        size_t size = encode(&m, bytes);
        for (size_t room = 0; room < size; room++) {
            size_t used = 1;
            uint8_t *exact = malloc(room + 1);
            assert_non_null(exact);
            exact[room] = 0x5a;
            assert_int_equal(message_encode(&m, exact, room, &used, NULL), WIRE_EROOM);
            assert_int_equal(exact[room], 0x5a);
            assert_int_equal(used, 0);
            free(exact);
        }
    }
}

/* ---- what is refused -------------------------------------------------------------------- */

#define V     "\xa1v\x01"
#define HELLO "\xa2op\xa5hello"
#define YIELD "\xa2op\xa5yield"
#define READ  "\xa2op\xa4read"
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
    {"providers that are one", BYTES("\x85" V HELLO REQ NO "\xa9providers\xa2z4"), WIRE_EMISSING,
        "error"},
};
/* clang-format on */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    assert_string_equal(wire_fault_text((enum wire_fault)99), "unknown fault");
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

static void a_long_message_is_not_looked_at(void **state)
{
    (void)state;
    static const uint8_t bytes[WIRE_MESSAGE_MAX + 1] = {0x80};
    struct message m;
    assert_int_equal(message_decode(bytes, sizeof bytes, &m, NULL), WIRE_ELONG);
    assert_int_equal(message_decode(bytes, sizeof bytes - 1, &m, NULL), WIRE_EEXTRA);
}

static void what_is_not_taken_is_not_sent(void **state)
{
    (void)state;
    uint8_t bytes[MESSAGE_PACKED_MAX];
    size_t used;
    const char *field;
    struct message m;
    message_request(&m, MESSAGE_READ, req);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EMISSING);
    assert_string_equal(field, "provider");
    memset(m.provider, 'x', sizeof m.provider); /* without an end */
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    (void)strcpy(m.provider, "no name");
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    message_request(&m, MESSAGE_REFUSAL, req);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EOP);
    message_request(&m, MESSAGE_OP_COUNT, req);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EOP);
    message_request(&m, MESSAGE_HELLO, req);
    m.pid = UINT32_MAX;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    assert_string_equal(field, "pid");
    m.pid = 0;
    m.kind = (enum message_kind)9;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, NULL), WIRE_EVALUE);
    struct message reply;
    message_request(&m, MESSAGE_HELLO, req);
    message_reply(&reply, &m);
    reply.error = 5;
    assert_int_equal(message_encode(&reply, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    assert_string_equal(field, "error");
    reply.error = -1;
    reply.provider_count = WIRE_PROVIDERS_MAX + 1;
    assert_int_equal(message_encode(&reply, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    assert_string_equal(field, "providers");
}

static void text_is_cut_at_a_character(void **state)
{
    (void)state;
    char to[6];
    wire_copy_text(to, sizeof to, "abcd\xc3\xa4z");
    assert_string_equal(to, "abcd");
    wire_copy_text(to, sizeof to, "abc\xc3\xa4z");
    assert_string_equal(to, "abc\xc3\xa4");
    wire_copy_text(to, sizeof to, "a\xff\xc3");
    assert_string_equal(to, "a??");
    wire_copy_text(to, 1, "abc");
    assert_string_equal(to, "");
    assert_true(wire_is_text((const uint8_t *)"\xf4\x8f\xbf\xbf", 4));
    assert_false(wire_is_text((const uint8_t *)"\xf4\x90\x80\x80", 4)); /* above 10FFFF */
    assert_false(wire_is_text((const uint8_t *)"\xed\xa0\x80", 3));     /* surrogate */
    assert_false(wire_is_text((const uint8_t *)"\xe0\x80\x80", 3));     /* overlong */
    assert_false(wire_is_text((const uint8_t *)"\xc0\x80", 2));
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
        uint8_t bytes[MESSAGE_PACKED_MAX];
        static struct message m, back;
        (void)kind_of_message(draw(5 * MESSAGE_OP_COUNT), &m);
        size_t size = mutate(bytes, encode(&m, bytes));
        uint8_t *exact = malloc(size);
        assert_non_null(exact);
        memcpy(exact, bytes, size);
        enum wire_fault fault = message_decode(exact, size, &back, NULL);
        if (fault == WIRE_OK) {
            taken++;
            assert_msgpack_agrees(exact, size);
            assert_stands(&back);
        }
        free(exact);
    }
    assert_in_range(taken, 100, 19900); /* else nothing was tried */
}

/* ---- the example of the manual ---------------------------------------------------------- */

/* Bytes of the n-th block of the README that is fenced as hex; what follows a # is left out. */
static size_t example(unsigned n, uint8_t *bytes)
{
    char line[256];
    size_t size = 0;
    bool inside = false;
    FILE *file = fopen(PROTO_README, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "```", 3) == 0) {
            inside = strcmp(line, "```hex\n") == 0 && n-- == 0;
            continue;
        }
        line[strcspn(line, "#")] = '\0';
        for (char *at = line, *end; inside; at = end) {
            unsigned long byte = strtoul(at, &end, 16);
            if (end == at) {
                break;
            }
            bytes[size++] = (uint8_t)byte;
        }
    }
    (void)fclose(file);
    return size;
}

static void the_readme_is_right(void **state)
{
    (void)state;
    uint8_t told[1024], ours[MESSAGE_PACKED_MAX];
    struct message m, reply;
    size_t size = example(0, told);
    message_request(&m, MESSAGE_HELLO, req);
    assert_int_equal(size, encode(&m, ours));
    assert_memory_equal(told, ours, size);
    assert_int_equal(message_decode(told, size, &m, NULL), WIRE_OK);

    message_reply(&reply, &m);
    reply.ok = true;
    (void)strcpy(reply.name, "m5");
    memset(reply.id, 0xaa, sizeof reply.id);
    (void)strcpy(reply.version, "0.1.0");
    reply.kind = MESSAGE_DAEMON;
    reply.pid = 4242;
    reply.uptime_ms = 70000;
    reply.provider_count = 2;
    (void)strcpy(reply.providers[0], "z4");
    (void)strcpy(reply.providers[1], "m5");
    (void)strcpy(reply.directory, "/run/leasehold");
    size = example(1, told);
    assert_int_equal(size, encode(&reply, ours));
    assert_memory_equal(told, ours, size);
    assert_int_equal(message_decode(told, size, &m, NULL), WIRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back_as_it_was),
        cmocka_unit_test(what_a_status_says_is_read),
        cmocka_unit_test(nothing_cut_short_is_taken),
        cmocka_unit_test(no_buffer_is_overrun),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(more_providers_than_the_maximum_are_refused),
        cmocka_unit_test(what_may_be_is_taken),
        cmocka_unit_test(a_long_message_is_not_looked_at),
        cmocka_unit_test(what_is_not_taken_is_not_sent),
        cmocka_unit_test(text_is_cut_at_a_character),
        cmocka_unit_test(mutations_are_survived),
        cmocka_unit_test(the_readme_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
