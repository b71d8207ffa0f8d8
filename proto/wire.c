#include "proto/wire.h"

#include <string.h>

const char *wire_fault_text(enum wire_fault fault)
{
    switch (fault) {
#define WIRE_FAULT_CASE(name, text)                                                                \
    case name: return text;
        WIRE_FAULTS(WIRE_FAULT_CASE)
#undef WIRE_FAULT_CASE
    }
    return "unknown fault";
}

/* How to read what a first byte announces. */
struct form {
    enum wire_type type;
    uint8_t width;    /* bytes of the number or length behind the first byte */
    bool has_number;  /* these bytes are the value; otherwise they are a length or count */
    bool is_signed;   /* and may be below zero */
    uint32_t payload; /* bytes that follow whatever the length says (type of an ext, floats) */
};

/* 0xc0 to 0xdf; the rest carries its value in the first byte itself. */
static const struct form forms[32] = {
    [0x00] = {WIRE_NIL, 0, false, false, 0},      [0x01] = {WIRE_NIL, 0, false, false, 0},
    [0x02] = {WIRE_BOOL, 0, true, false, 0},      [0x03] = {WIRE_BOOL, 0, true, false, 0},
    [0x04] = {WIRE_BIN, 1, false, false, 0},      [0x05] = {WIRE_BIN, 2, false, false, 0},
    [0x06] = {WIRE_BIN, 4, false, false, 0},      [0x07] = {WIRE_EXT, 1, false, false, 1},
    [0x08] = {WIRE_EXT, 2, false, false, 1},      [0x09] = {WIRE_EXT, 4, false, false, 1},
    [0x0a] = {WIRE_FLOAT, 0, false, false, 4},    [0x0b] = {WIRE_FLOAT, 0, false, false, 8},
    [0x0c] = {WIRE_UINT, 1, true, false, 0},      [0x0d] = {WIRE_UINT, 2, true, false, 0},
    [0x0e] = {WIRE_UINT, 4, true, false, 0},      [0x0f] = {WIRE_UINT, 8, true, false, 0},
    [0x10] = {WIRE_UINT, 1, true, true, 0},       [0x11] = {WIRE_UINT, 2, true, true, 0},
    [0x12] = {WIRE_UINT, 4, true, true, 0},       [0x13] = {WIRE_UINT, 8, true, true, 0},
    [0x14] = {WIRE_EXT, 0, false, false, 1 + 1},  [0x15] = {WIRE_EXT, 0, false, false, 1 + 2},
    [0x16] = {WIRE_EXT, 0, false, false, 1 + 4},  [0x17] = {WIRE_EXT, 0, false, false, 1 + 8},
    [0x18] = {WIRE_EXT, 0, false, false, 1 + 16}, [0x19] = {WIRE_STR, 1, false, false, 0},
    [0x1a] = {WIRE_STR, 2, false, false, 0},      [0x1b] = {WIRE_STR, 4, false, false, 0},
    [0x1c] = {WIRE_ARRAY, 2, false, false, 0},    [0x1d] = {WIRE_ARRAY, 4, false, false, 0},
    [0x1e] = {WIRE_MAP, 2, false, false, 0},      [0x1f] = {WIRE_MAP, 4, false, false, 0},
};

#define UNUSED_BYTE 0xc1

static uint64_t big_endian(const uint8_t *at, unsigned width)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) {
        value = value << 8 | at[i];
    }
    return value;
}

static uint64_t sign_extended(uint64_t value, unsigned width)
{
    uint64_t sign = UINT64_C(1) << (8 * width - 1);
    return (value ^ sign) - sign;
}

/* Holds a count against what is left: no element is shorter than a byte. */
static enum wire_fault container(struct wire_item *item, enum wire_type type, uint64_t count,
                                 size_t left)
{
    item->type = type;
    if (count > WIRE_COUNT_MAX) {
        return WIRE_ECOUNT;
    }
    item->count = (uint32_t)count;
    return (type == WIRE_MAP ? 2 * count : count) > left ? WIRE_ESHORT : WIRE_OK;
}

/* Takes `length` bytes as the item's own. */
static enum wire_fault payload(struct wire_place *place, struct wire_item *item, uint64_t length)
{
    if (length > (uint64_t)(place->end - place->at)) {
        return WIRE_ESHORT;
    }
    item->count = (uint32_t)length;
    item->bytes = place->at;
    place->at += length;
    return WIRE_OK;
}

/* The forms that need no more than their first byte: small numbers, texts, arrays and maps. */
static enum wire_fault next_small(struct wire_place *place, struct wire_item *item, uint8_t first)
{
    size_t left = (size_t)(place->end - place->at);
    if (first <= 0x7f) {
        item->type = WIRE_UINT;
        item->number = first;
        return WIRE_OK;
    }
    if (first >= 0xe0) {
        item->type = WIRE_NEGATIVE;
        item->number = sign_extended(first, 1);
        return WIRE_OK;
    }
    if (first <= 0x8f) {
        return container(item, WIRE_MAP, first & 0x0f, left);
    }
    if (first <= 0x9f) {
        return container(item, WIRE_ARRAY, first & 0x0f, left);
    }
    item->type = WIRE_STR;
    return payload(place, item, first & 0x1f);
}

static void number(struct wire_item *item, const struct form *form, uint8_t first, uint64_t value)
{
    if (form->type == WIRE_BOOL) {
        item->number = first & 1;
        return;
    }
    item->number = form->is_signed ? sign_extended(value, form->width) : value;
    if (form->is_signed && (int64_t)item->number < 0) {
        item->type = WIRE_NEGATIVE;
    }
}

static enum wire_fault next_formed(struct wire_place *place, struct wire_item *item, uint8_t first)
{
    const struct form *form = &forms[first - 0xc0];
    if (first == UNUSED_BYTE) {
        return WIRE_ESHAPE;
    }
    if (form->width > place->end - place->at) {
        return WIRE_ESHORT;
    }
    uint64_t value = big_endian(place->at, form->width);
    place->at += form->width;
    item->type = form->type;
    if (form->has_number) {
        number(item, form, first, value);
        return WIRE_OK;
    }
    if (form->type == WIRE_ARRAY || form->type == WIRE_MAP) {
        return container(item, form->type, value, (size_t)(place->end - place->at));
    }
    return payload(place, item, value + form->payload);
}

enum wire_fault wire_next(struct wire_place *place, struct wire_item *item)
{
    if (place->at == place->end) {
        return WIRE_ESHORT;
    }
    struct wire_place here = *place;
    struct wire_item read = {.type = WIRE_NIL};
    uint8_t first = *here.at++;
    bool formed = first >= 0xc0 && first <= 0xdf;
    enum wire_fault fault =
        formed ? next_formed(&here, &read, first) : next_small(&here, &read, first);
    if (fault == WIRE_OK) {
        *place = here;
        *item = read;
    }
    return fault;
}

enum wire_fault wire_skip(struct wire_place *place, unsigned depth)
{
    uint32_t left[WIRE_DEPTH_MAX + 1] = {1}; /* values still to come, by how deep they lie */
    unsigned level = 0;
    if (depth > WIRE_DEPTH_MAX) {
        depth = WIRE_DEPTH_MAX;
    }
    while (left[0] > 0 || level > 0) {
        if (left[level] == 0) {
            level--;
            continue;
        }
        struct wire_item item;
        enum wire_fault fault = wire_next(place, &item);
        if (fault != WIRE_OK) {
            return fault;
        }
        left[level]--;
        if (item.type != WIRE_ARRAY && item.type != WIRE_MAP) {
            continue;
        }
        if (level == depth) {
            return WIRE_EDEPTH;
        }
        left[++level] = item.type == WIRE_MAP ? 2 * item.count : item.count;
    }
    return WIRE_OK;
}

/* Bytes of the character that begins here; 0 where none does. */
static size_t character(const uint8_t *at, size_t left)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] == 0 || at[0] > 0xf4 || size == 0 || size > left) {
        return 0;
    }
    if (size == 1) {
        return 1;
    }
    uint32_t value = at[0] & (0x7fU >> size);
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        value = value << 6 | (at[i] & 0x3fU);
    }
    bool surrogate = value >= 0xd800 && value <= 0xdfff;
    return value < least[size] || surrogate || value > 0x10ffff ? 0 : size;
}

bool wire_is_text(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t n = character(bytes + i, size - i);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

void wire_copy_text(char *to, size_t size, const char *from)
{
    size_t left = strlen(from);
    while (left > 0) {
        size_t n = character((const uint8_t *)from, left);
        size_t taken = n > 0 ? n : 1;
        if (taken >= size) {
            break;
        }
        memcpy(to, n > 0 ? from : "?", taken);
        to += taken;
        size -= taken;
        from += taken;
        left -= taken;
    }
    *to = '\0';
}

bool wire_is_name(const uint8_t *bytes, size_t size)
{
    if (size == 0 || size > WIRE_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        uint8_t c = bytes[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-') {
            return false;
        }
    }
    return true;
}
