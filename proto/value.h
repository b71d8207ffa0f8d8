/* One value of the wire, written with msgpack-c or taken from what wire.h read, under its limits;
 * for the codecs alone. Writing says WIRE_EROOM where the sink is full and WIRE_EVALUE where the
 * value is not to be sent; taking WIRE_ETYPE or WIRE_EVALUE. */
#ifndef PROTO_VALUE_H
#define PROTO_VALUE_H

#include <msgpack/pack.h>

#include "proto/wire.h"

/* Where the packer writes to; what goes to NULL is only counted. */
struct value_sink {
    uint8_t *at;
    size_t left;
};

void value_begin(msgpack_packer *to, struct value_sink *sink);

/* A word of our own: a key, an op. */
bool value_put_word(msgpack_packer *to, const char *word, size_t size);

/* Of text that the caller wrote into a member of maximum + 1 bytes; he may have forgotten its end. */
enum wire_fault value_put_text(msgpack_packer *to, const char *text, uint64_t maximum);
enum wire_fault value_put_name(msgpack_packer *to, const char *name);
enum wire_fault value_put_number(msgpack_packer *to, uint64_t number, uint64_t maximum);
enum wire_fault value_put_flag(msgpack_packer *to, bool flag);
enum wire_fault value_put_id(msgpack_packer *to, const uint8_t *id);

/* words[n], where n is 1 to maximum. */
enum wire_fault value_put_one_of(msgpack_packer *to, const char *const *words, uint64_t n,
                                 uint64_t maximum);

bool value_is_word(const struct wire_item *item, const char *word, size_t size);

/* `to` has room for maximum and the end; a name's maximum is WIRE_NAME_MAX. */
enum wire_fault value_take_text(const struct wire_item *item, uint64_t maximum, char *to);
enum wire_fault value_take_name(const struct wire_item *item, char *to);
enum wire_fault value_take_number(const struct wire_item *item, uint64_t maximum, uint64_t *number);
enum wire_fault value_take_flag(const struct wire_item *item, bool *flag);
enum wire_fault value_take_id(const struct wire_item *item, uint8_t *id);
enum wire_fault value_take_one_of(const struct wire_item *item, const char *const *words,
                                  uint64_t maximum, uint64_t *n);

#endif
