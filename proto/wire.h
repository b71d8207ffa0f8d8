/* Reading msgpack where it lies, and what can be wrong with it.
 *
 * Reading is done by hand: an unpacker that believes the five bytes of a header reserves gigabytes
 * for the array which they announce. Here nothing is allocated, a length is held against the bytes
 * that are left before it is used, and nothing recurses. What is returned points into the input.
 * Safe from any thread. */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

/* X(name, text). From WIRE_EVERSION on the request id was read, so an answer finds its way. */
#define WIRE_FAULTS(X)                                                                             \
    X(WIRE_OK, "ok")                                                                               \
    X(WIRE_ESHORT, "cut short")                                                                    \
    X(WIRE_ELONG, "longer than its maximum")                                                       \
    X(WIRE_EEXTRA, "bytes after the end")                                                          \
    X(WIRE_ESHAPE, "not a msgpack map with text keys")                                             \
    X(WIRE_EDEPTH, "nested too deeply")                                                            \
    X(WIRE_ECOUNT, "too many elements")                                                            \
    X(WIRE_EREQ, "no request id of 16 bytes")                                                      \
    X(WIRE_EVERSION, "another version of the wire")                                                \
    X(WIRE_ETWICE, "given twice")                                                                  \
    X(WIRE_EOP, "unknown to this version")                                                         \
    X(WIRE_EMISSING, "missing")                                                                    \
    X(WIRE_ETYPE, "of the wrong type")                                                             \
    X(WIRE_EVALUE, "outside of its limits")                                                        \
    X(WIRE_EROOM, "larger than the buffer")

/* Positive, so that none is taken for a LEASE_E...: those are not known in this folder. */
enum wire_fault {
#define WIRE_FAULT_NAME(name, text) name,
    WIRE_FAULTS(WIRE_FAULT_NAME)
#undef WIRE_FAULT_NAME
};

/* Never NULL; static. */
const char *wire_fault_text(enum wire_fault fault);

enum wire_type {
    WIRE_NIL,
    WIRE_BOOL,     /* number: 0 or 1 */
    WIRE_UINT,     /* number */
    WIRE_NEGATIVE, /* number holds the two's complement: cast it to int64_t */
    WIRE_FLOAT,
    WIRE_STR, /* bytes and count, as the next two */
    WIRE_BIN,
    WIRE_EXT,
    WIRE_ARRAY, /* count elements follow */
    WIRE_MAP,   /* count pairs follow */
};

struct wire_item {
    enum wire_type type;
    uint32_t count;
    uint64_t number;
    const uint8_t *bytes; /* borrowed from the input; not ended by a zero */
};

/* A place in the input. Copy it to come back. */
struct wire_place {
    const uint8_t *at, *end;
};

/* Reads one item and moves on; of an array or a map only the head, its elements come next.
 * WIRE_ESHORT, WIRE_ECOUNT, WIRE_ESHAPE (a byte that msgpack does not use); place and item are
 * unchanged then. */
enum wire_fault wire_next(struct wire_place *place, struct wire_item *item);

/* Moves behind one whole value, however nested, down to `depth` containers inside each other (at
 * most WIRE_DEPTH_MAX). As wire_next, and WIRE_EDEPTH; on a fault the place is somewhere inside. */
enum wire_fault wire_skip(struct wire_place *place, unsigned depth);

/* Whether these bytes are text: UTF-8 without overlong forms, surrogates and zero bytes. */
bool wire_is_text(const uint8_t *bytes, size_t size);

/* Copies text: cut at a character's border to fit size bytes (> 0) with its end, and a question
 * mark for each byte that is not UTF-8, so that what was copied can always be sent. */
void wire_copy_text(char *to, size_t size, const char *from);

/* Whether this is a name: 1 to WIRE_NAME_MAX of [A-Za-z0-9._-]. */
bool wire_is_name(const uint8_t *bytes, size_t size);

#endif
