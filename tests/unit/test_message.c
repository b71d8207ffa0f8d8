/* Messages come back as they were, and what is not to be taken is not sent. Bytes that are wrong:
 * test_message_bytes.c. */
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

#include "proto/message_table.h"
#include "tests/lib/check.h"
#include "tests/lib/messages.h"

static void every_kind_comes_back_as_it_was(void **state)
{
    (void)state;
    struct message m, back;
    uint8_t bytes[MESSAGE_BYTES_MAX];
    unsigned n = 0;
    for (; messages_kind(n, &m); n++) {
        size_t size = messages_encode(&m, bytes);
        const char *field = "";
        assert_int_equal(message_decode(bytes, size, &back, &field), WIRE_OK);
        assert_null(field);
        assert_int_equal(back.op, m.op);
        assert_int_equal(back.reply, m.reply);
        assert_memory_equal(back.req, messages_req, 16);
        assert_int_equal(back.error, m.error);
        messages_assert_msgpack_agrees(bytes, size);
        messages_assert_stands(&m);
    }
    assert_int_equal(n, MESSAGES_KINDS);
}

static void what_a_status_says_is_read(void **state)
{
    (void)state;
    struct message m, back;
    uint8_t bytes[MESSAGE_BYTES_MAX];
    message_request(&m, MESSAGE_STATUS, messages_req);
    m.reply = true;
    messages_fill(&m);
    size_t size = messages_encode(&m, bytes);
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

static void what_is_asked_of_an_owner_is_read(void **state)
{
    (void)state;
    struct message m, back;
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    message_request(&m, MESSAGE_ACQUIRE, messages_req);
    messages_fill(&m);
    size_t size = messages_encode(&m, bytes);
    assert_int_equal(message_decode(bytes, size, &back, NULL), WIRE_OK);
    assert_string_equal(back.provider, m.provider);
    assert_string_equal(back.lease, m.lease);
    assert_string_equal(back.former, m.former);
    assert_string_equal(back.host, m.host);
    assert_string_equal(back.label, m.label);
    assert_true(back.units == WIRE_UNITS_MAX && back.slot_plus_1 == WIRE_UNITS_MAX);
    assert_true(back.ttl_ms == WIRE_TIME_MS_MAX && back.wait_ms == WIRE_TIME_MS_MAX);
    assert_true(back.budget_ms == WIRE_TIME_MS_MAX && back.holder_pid == INT32_MAX);
    assert_true(back.running && back.may_idle && back.no_holder && back.by_pid);
    assert_true(back.epoch == WIRE_NUMBER_MAX);
    assert_false(back.force || back.died); /* of a release only */
    assert_int_equal(back.verdict, MESSAGE_NO_VERDICT);
    message_request(&m, MESSAGE_RELEASE, messages_req);
    messages_fill(&m);
    size = messages_encode(&m, bytes);
    assert_int_equal(message_decode(bytes, size, &back, NULL), WIRE_OK);
    assert_true(back.force && back.died && !back.running);
    assert_string_equal(back.lease, m.lease);
}

static void what_an_owner_answers_is_read(void **state)
{
    (void)state;
    static const enum message_op ops[] = {MESSAGE_ACQUIRE, MESSAGE_VERIFY, MESSAGE_RENEW,
                                          MESSAGE_RELEASE};
    struct message m, back;
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    for (size_t i = 0; i < 4; i++) {
        for (enum message_verdict v = MESSAGE_GRANTED; v <= MESSAGE_GONE; v++) {
            message_request(&m, ops[i], messages_req);
            m.reply = true;
            messages_fill(&m);
            m.verdict = v;
            size_t size = messages_encode(&m, bytes);
            assert_int_equal(message_decode(bytes, size, &back, NULL), WIRE_OK);
            assert_int_equal(back.verdict, v);
            assert_true(back.undecided && back.dispatched && back.token == WIRE_NUMBER_MAX);
            assert_true(back.left_ms == WIRE_NUMBER_MAX && back.waited_ms == WIRE_TIME_MS_MAX);
            assert_true(back.state_version == WIRE_NUMBER_MAX && back.epoch == WIRE_NUMBER_MAX);
            assert_string_equal(back.owner, m.owner);
            assert_string_equal(back.endpoint, m.endpoint);
        }
    }
    assert_string_equal(message_verdict_word(MESSAGE_GO), "go");
    assert_string_equal(message_verdict_word(MESSAGE_NO_VERDICT), "");
    assert_string_equal(message_verdict_word((enum message_verdict)5), "");
    /* Not the owner: no verdict, but who is. */
    m.ok = false;
    m.error = -1;
    m.verdict = MESSAGE_NO_VERDICT;
    size_t size = messages_encode(&m, bytes);
    assert_int_equal(message_decode(bytes, size, &back, NULL), WIRE_OK);
    assert_int_equal(back.verdict, MESSAGE_NO_VERDICT);
    assert_string_equal(back.owner, m.owner);
}

static void bytes_inside_are_borrowed(void **state)
{
    (void)state;
    static uint8_t bytes[MESSAGE_BYTES_MAX], inside[WIRE_STATE_MAX + 1];
    struct message m, back;
    size_t used;
    const char *field;
    memset(inside, 0x5a, sizeof inside);
    message_request(&m, MESSAGE_FETCH, messages_req);
    m.reply = m.ok = true;
    m.part = m.parts = WIRE_PARTS_MAX;
    m.state = (struct message_bytes){inside, WIRE_STATE_MAX};
    size_t size = messages_encode(&m, bytes);
    assert_int_equal(message_decode(bytes, size, &back, NULL), WIRE_OK);
    assert_int_equal(back.state.size, WIRE_STATE_MAX);
    assert_true(back.state.at > bytes && back.state.at + back.state.size <= bytes + size);
    assert_memory_equal(back.state.at, inside, WIRE_STATE_MAX);
    assert_true(back.beat.size == 0 && !back.beat.at && back.peers.size == 0);
    m.state.size++;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    assert_string_equal(field, "state");
    /* Two of them share what a message has room for. */
    m.state = (struct message_bytes){NULL, 0};
    m.beat = (struct message_bytes){inside, WIRE_STATE_MAX};
    m.peers = (struct message_bytes){inside, MESSAGE_BYTES_ROOM - WIRE_STATE_MAX};
    messages_assert_stands(&m);
    m.peers.size = WIRE_STATE_MAX;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EROOM);
    assert_null(field);
}

/* Puts into a field what must not be sent; false: any value may. */
static bool spoil(struct message *m, const struct message_row *row)
{
    void *at = (char *)m + row->offset;
    switch (row->type) {
    case TEXT: *(char *)at = '\xff'; return true;
    case NAME: *(char *)at = ' '; return true;
    case KIND: *(enum message_kind *)at = (enum message_kind)(MESSAGE_EMBEDDED + 1); return true;
    case VERDICT:
        *(enum message_verdict *)at = (enum message_verdict)(MESSAGE_GONE + 1);
        return true;
    case U32: *(uint32_t *)at = (uint32_t)row->maximum + 1; return true;
    case U64: *(uint64_t *)at = row->maximum + 1; return true;
    case BYTES: ((struct message_bytes *)at)->size = WIRE_STATE_MAX + 1; return true;
    case NAMES: m->provider_count = WIRE_PROVIDERS_MAX + 1; return true;
    case FLAG:
    case CODE:
    case ID: break;
    }
    return false;
}

static void what_is_beyond_a_limit_is_not_sent(void **state)
{
    (void)state;
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    struct message m;
    size_t used;
    const char *field;
    unsigned tried = 0;
    for (unsigned n = 0; messages_kind(n, &m); n++) {
        for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
            (void)messages_kind(n, &m);
            if (!(message_may_have(&m) & UINT64_C(1) << i) || !spoil(&m, &message_rows[i])) {
                continue;
            }
            assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
            assert_string_equal(field, message_rows[i].key);
            tried++;
        }
    }
    assert_in_range(tried, 300, 2000);
}

static void no_buffer_is_overrun(void **state)
{
    (void)state;
    struct message m;
    uint8_t bytes[MESSAGE_BYTES_MAX];
    for (unsigned n = 0; messages_kind(n, &m); n++) {
        size_t size = messages_encode(&m, bytes);
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

static void what_is_not_taken_is_not_sent(void **state)
{
    (void)state;
    uint8_t bytes[MESSAGE_BYTES_MAX];
    size_t used;
    const char *field;
    struct message m;
    message_request(&m, MESSAGE_READ, messages_req);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EMISSING);
    assert_string_equal(field, "provider");
    memset(m.provider, 'x', sizeof m.provider); /* without an end */
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    (void)strcpy(m.provider, "no name");
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    message_request(&m, MESSAGE_REFUSAL, messages_req);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EOP);
    message_request(&m, MESSAGE_OP_COUNT, messages_req);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EOP);
    message_request(&m, MESSAGE_HELLO, messages_req);
    m.pid = UINT32_MAX;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EVALUE);
    assert_string_equal(field, "pid");
    m.pid = 0;
    m.kind = (enum message_kind)9;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, NULL), WIRE_EVALUE);
    message_request(&m, MESSAGE_VERIFY, messages_req);
    (void)strcpy(m.provider, "z4");
    m.reply = m.ok = true;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &used, &field), WIRE_EMISSING);
    assert_string_equal(field, "verdict");
    struct message reply;
    message_request(&m, MESSAGE_HELLO, messages_req);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back_as_it_was),
        cmocka_unit_test(what_a_status_says_is_read),
        cmocka_unit_test(what_is_asked_of_an_owner_is_read),
        cmocka_unit_test(what_an_owner_answers_is_read),
        cmocka_unit_test(bytes_inside_are_borrowed),
        cmocka_unit_test(what_is_beyond_a_limit_is_not_sent),
        cmocka_unit_test(no_buffer_is_overrun),
        cmocka_unit_test(what_is_not_taken_is_not_sent),
        cmocka_unit_test(text_is_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
