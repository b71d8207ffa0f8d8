#include "broker/record.h"

#include <string.h>

bool record_is_live(const struct record *record)
{
    return record->state >= RECORD_WAITING && record->state <= RECORD_ORPHAN;
}

bool lease_id_equal(struct lease_id a, struct lease_id b)
{
    return a.instance == b.instance && a.counter == b.counter;
}

bool request_id_is_none(struct request_id id)
{
    return id.hi == 0 && id.lo == 0;
}

bool request_id_equal(struct request_id a, struct request_id b)
{
    return a.hi == b.hi && a.lo == b.lo && !request_id_is_none(a);
}

/* 128 bits, five at a time from the top; the last character carries three. */
#define ID_CHARS 26

void lease_id_format(const char *provider, struct lease_id id, char *text)
{
    static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
    size_t used = 0;
    for (; provider[used] && used < NAME_CHARS_MAX; used++)
        text[used] = provider[used];
    text[used++] = ':';
    uint64_t high = id.instance, low = id.counter;
    for (unsigned i = 0; i < ID_CHARS; i++) {
        text[used++] = base32[high >> 59];
        high = high << 5 | low >> 59;
        low <<= 5;
    }
    text[used] = '\0';
}

/* What a character stands for, 32 where it stands for nothing. */
static unsigned base32_value(char character)
{
    if (character >= 'a' && character <= 'z')
        return (unsigned)(character - 'a');
    if (character >= '2' && character <= '7')
        return (unsigned)(character - '2') + 26;
    return 32;
}

static bool base32_read(const char *text, struct lease_id *id)
{
    uint64_t high = 0, low = 0;
    for (unsigned i = 0; i + 1 < ID_CHARS; i++) {
        unsigned value = base32_value(text[i]);
        if (value == 32)
            return false;
        high = high << 5 | low >> 59;
        low = low << 5 | value;
    }
    unsigned last = base32_value(text[ID_CHARS - 1]);
    if (last == 32 || last & 3 || text[ID_CHARS] != '\0')
        return false;
    id->instance = high << 3 | low >> 61;
    id->counter = low << 3 | last >> 2;
    return true;
}

bool lease_id_parse(const char *text, char *provider, struct lease_id *id)
{
    const char *colon = strchr(text, ':');
    if (!colon || colon == text || colon - text > NAME_CHARS_MAX)
        return false;
    char name[NAME_SIZE] = {0};
    memcpy(name, text, (size_t)(colon - text));
    struct lease_id read;
    if (!name_is_valid(name) || !base32_read(colon + 1, &read) || read.counter == 0)
        return false;
    memcpy(provider, name, NAME_SIZE);
    *id = read;
    return true;
}

static bool is_allowed_in_a_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
}

bool name_is_valid(const char *name)
{
    size_t length = 0;
    while (length <= NAME_CHARS_MAX && is_allowed_in_a_name(name[length]))
        length++;
    return length > 0 && length <= NAME_CHARS_MAX && name[length] == '\0';
}

/* Characters that show nothing and turn or join what stands beside them. */
static bool is_invisible(uint32_t code)
{
    return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

/* Bytes of the well-formed UTF-8 sequence at `at`, 0 where there is none. Surrogates, overlong
 * forms and C1 control characters are none. */
static size_t utf8_length(const unsigned char *at)
{
    size_t length = at[0] < 0x80             ? 1
                    : (at[0] & 0xe0) == 0xc0 ? 2
                    : (at[0] & 0xf0) == 0xe0 ? 3
                    : (at[0] & 0xf8) == 0xf0 ? 4
                                             : 0;
    if (length == 0)
        return 0;
    if (length == 1)
        return at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
    uint32_t code = at[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000};
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    bool fine = code >= least[length] && code <= 0x10ffff && !surrogate && !is_invisible(code);
    return fine ? length : 0;
}

void text_copy(char *to, size_t size, const char *from)
{
    size_t used = 0;
    const unsigned char *at = (const unsigned char *)from;
    while (*at && used + 1 < size) {
        if (*at >= 0x20 && *at < 0x7f) { /* nearly always */
            to[used++] = (char)*at++;
            continue;
        }
        size_t length = utf8_length(at);
        if (length > 1 && used + length >= size)
            break;
        if (length == 0) {
            to[used++] = '?';
            at++;
            continue;
        }
        memcpy(to + used, at, length);
        used += length;
        at += length;
    }
    memset(to + used, 0, size - used);
}

const char *record_state_name(enum record_state state)
{
    switch (state) {
    case RECORD_FREE: return "free";
    case RECORD_WAITING: return "waiting";
    case RECORD_HELD: return "held";
    case RECORD_DISPATCHED: return "dispatched";
    case RECORD_ORPHAN: return "orphan";
    case RECORD_GONE: return "gone";
    }
    return "unknown";
}

const char *record_end_name(enum record_end end)
{
    switch (end) {
    case END_NONE: return "none";
    case END_RELEASED: return "released";
    case END_EXPIRED: return "expired";
    case END_LAPSED: return "lapsed";
    case END_REFUSED: return "refused";
    case END_GAVE_UP: return "gave up";
    case END_FORCED: return "forced";
    case END_REPLACED: return "replaced";
    }
    return "unknown";
}
