/* Messages of every kind, full and bare, for the tests of the codec. */
#ifndef TESTS_LIB_MESSAGES_H
#define TESTS_LIB_MESSAGES_H

#include "proto/message.h"

extern const uint8_t messages_req[WIRE_ID_BYTES]; /* 00 to 0f */

/* Every field filled to its limit. */
void messages_fill(struct message *m);

/* Message number n of all kinds, full and bare, asked, granted and refused; false at the end. */
bool messages_kind(unsigned n, struct message *m);
#define MESSAGES_KINDS (5 * MESSAGE_OP_COUNT)

/* Written; fails where that cannot be. `bytes` has MESSAGE_BYTES_MAX. */
size_t messages_encode(const struct message *m, uint8_t *bytes);

/* Written, read and written again, the bytes are the same. */
void messages_assert_stands(const struct message *m);

/* msgpack's own reader must find one whole value in what we take. */
void messages_assert_msgpack_agrees(const uint8_t *bytes, size_t size);

#endif
