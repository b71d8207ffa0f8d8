#include "tests/lib/messages.h"

#include <msgpack/unpack.h>
#include <string.h>

#include "proto/message_table.h"
#include "tests/lib/check.h"

const uint8_t messages_req[WIRE_ID_BYTES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void fill_field(const struct message_row *row, struct message *m)
{
    static const uint8_t bytes[WIRE_STATE_MAX] = {0xc0};
    void *at = (char *)m + row->offset;
    switch (row->type) {
    case FLAG: *(bool *)at = true; break;
    case TEXT: memset(at, 't', row->maximum); break;
    case NAME: memset(at, 'n', row->maximum); break;
    case ID: memset(at, 0xfe, WIRE_ID_BYTES); break;
    case KIND: *(enum message_kind *)at = MESSAGE_EMBEDDED; break;
    case VERDICT: *(enum message_verdict *)at = MESSAGE_GONE; break;
    case U32: *(uint32_t *)at = (uint32_t)row->maximum; break;
    case U64: *(uint64_t *)at = row->maximum; break;
    case BYTES: *(struct message_bytes *)at = (struct message_bytes){bytes, 1}; break;
    case NAMES:
        m->provider_count = WIRE_PROVIDERS_MAX;
        for (size_t i = 0; i < WIRE_PROVIDERS_MAX; i++) {
            memset(m->providers[i], 'p', WIRE_NAME_MAX);
            m->providers[i][WIRE_NAME_MAX] = '\0';
        }
        break;
    case CODE: break; /* an ok reply has none */
    }
}

void messages_fill(struct message *m)
{
    for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
        fill_field(&message_rows[i], m);
    }
    m->ok = m->reply;
}

/* By n modulo 5: a request, a bare one, an ok reply, a bare one, one that is not ok. */
bool messages_kind(unsigned n, struct message *m)
{
    enum message_op op = (enum message_op)(n / 5);
    if (n >= MESSAGES_KINDS) {
        return false;
    }
    message_request(m, op, messages_req);
    m->reply = n % 5 >= 2 || op == MESSAGE_REFUSAL;
    m->ok = m->reply && n % 5 != 4 && op != MESSAGE_REFUSAL;
    bool ok = m->ok;
    bool bare = n % 5 == 1 || n % 5 == 3;
    uint64_t set = bare ? message_must_have(m) : UINT64_MAX;
    for (unsigned i = 0; i < MESSAGE_FIELD_COUNT; i++) {
        if (set & UINT64_C(1) << i) {
            fill_field(&message_rows[i], m);
        }
    }
    m->ok = ok;
    m->error = m->reply && !ok ? -(int32_t)(n % 5 + 1) : 0;
    return true;
}

size_t messages_encode(const struct message *m, uint8_t *bytes)
{
    size_t size = 0;
    const char *field = NULL;
    enum wire_fault fault = message_encode(m, bytes, MESSAGE_BYTES_MAX, &size, &field);
    if (fault != WIRE_OK) {
        fail_msg("%s: '%s' %s", message_op_word(m->op), field ? field : "", wire_fault_text(fault));
    }
    return size;
}

void messages_assert_stands(const struct message *m)
{
    static uint8_t first[MESSAGE_BYTES_MAX], second[MESSAGE_BYTES_MAX];
    static struct message back;
    size_t size = messages_encode(m, first);
    assert_int_equal(message_decode(first, size, &back, NULL), WIRE_OK);
    assert_int_equal(messages_encode(&back, second), size);
    assert_memory_equal(first, second, size);
}

void messages_assert_msgpack_agrees(const uint8_t *bytes, size_t size)
{
    msgpack_unpacked unpacked;
    size_t offset = 0;
    msgpack_unpacked_init(&unpacked);
    int rc = msgpack_unpack_next(&unpacked, (const char *)bytes, size, &offset);
    msgpack_unpacked_destroy(&unpacked);
    assert_int_equal(rc, MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(offset, size);
}
