#define _GNU_SOURCE
#include "tools/top_text.h"

#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define REPLACEMENT 0xfffdu

static bool shows_utf8;

void top_text_use_utf8(bool on)
{
    shows_utf8 = on;
}

static int bytes_that_follow(unsigned char lead)
{
    return lead < 0x80   ? 0
           : lead < 0xc2 ? -1
           : lead < 0xe0 ? 1
           : lead < 0xf0 ? 2
           : lead < 0xf5 ? 3
                         : -1;
}

uint32_t top_text_next(const char **text)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)*text;
    if (at[0] == '\0')
        return 0;
    *text += 1;
    int follow = bytes_that_follow(at[0]);
    if (follow <= 0)
        return follow == 0 ? at[0] : REPLACEMENT;
    uint32_t value = at[0] & (0x3fu >> follow);
    for (int i = 1; i <= follow; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return REPLACEMENT;
        value = value << 6 | (at[i] & 0x3fu);
    }
    if (value < least[follow] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return REPLACEMENT;
    *text += follow;
    return value;
}

/* Terminals disagree on these whatever their width is said to be, or turn the line around. */
static bool is_treacherous(uint32_t c)
{
    return c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) ||
           c >= 0xe0000 || (c >= 0x0590 && c <= 0x08ff) || (c >= 0xfb1d && c <= 0xfdff);
}

/* -1: not to be shown, 0: left out. */
static int columns_of(uint32_t c)
{
    if (c < 0x80)
        return c >= 0x20 && c < 0x7f ? 1 : -1;
    if (!shows_utf8 || is_treacherous(c))
        return -1;
    int columns = wcwidth((wchar_t)c);
    return columns > 2 ? -1 : columns;
}

int top_text_columns(uint32_t character)
{
    int columns = columns_of(character);
    return columns < 1 ? 1 : columns;
}

size_t top_text_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t follow = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(leads[follow] | c >> (6 * follow));
    for (size_t i = 1; i <= follow; i++)
        to[i] = (char)(0x80u | (c >> (6 * (follow - i)) & 0x3fu));
    return follow + 1;
}

void top_text_clean(char *to, size_t size, const char *from)
{
    size_t used = 0;
    for (uint32_t c; (c = top_text_next(&from)) != 0;) {
        int columns = columns_of(c);
        char bytes[4];
        size_t length = top_text_put(bytes, columns < 0 ? '?' : c);
        if (columns == 0)
            continue;
        if (used + length >= size)
            break;
        memcpy(to + used, bytes, length);
        used += length;
    }
    to[used] = '\0';
}

int top_text_width(const char *text)
{
    int width = 0;
    for (uint32_t c; (c = top_text_next(&text)) != 0;)
        width += top_text_columns(c);
    return width;
}

/* Where the longest end of the text begins that takes at most `width` columns. */
static const char *end_of(const char *text, int width)
{
    int skip = top_text_width(text) - width;
    while (skip > 0) {
        uint32_t c = top_text_next(&text);
        skip -= top_text_columns(c);
    }
    return text;
}

void top_text_cut(char *to, size_t size, const char *text, int width)
{
    if (top_text_width(text) <= width) {
        snprintf(to, size, "%s", text);
        return;
    }
    size_t used = 0;
    const char *at = text;
    for (int left = (width - 1) / 2; width > 0;) {
        const char *before = at;
        uint32_t c = top_text_next(&at);
        left -= top_text_columns(c);
        if (left < 0 || used + 6 >= size) {
            at = before;
            break;
        }
        used += top_text_put(to + used, c);
    }
    to[used] = '\0';
    int rest = width - top_text_width(to) - 1;
    if (width > 0)
        snprintf(to + used, size - used, "~%s", end_of(text, rest));
}

void top_text_span(char text[TOP_SPAN_SIZE], int64_t ms)
{
    long long s = ms / 1000;
    if (ms < 0)
        snprintf(text, TOP_SPAN_SIZE, "-");
    else if (ms < 9950)
        snprintf(text, TOP_SPAN_SIZE, "%.1fs", (double)ms / 1000);
    else if (s < 60)
        snprintf(text, TOP_SPAN_SIZE, "%llds", s);
    else if (s < 3600)
        snprintf(text, TOP_SPAN_SIZE, "%lldm%02lld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, TOP_SPAN_SIZE, "%lldh%02lld", s / 3600, s / 60 % 60);
    else if (s < 100 * 86400)
        snprintf(text, TOP_SPAN_SIZE, "%lldd%02lld", s / 86400, s / 3600 % 24);
    else
        snprintf(text, TOP_SPAN_SIZE, "%lldd", s / 86400 < 9999 ? s / 86400 : 9999);
}

void top_text_seconds(char text[TOP_SPAN_SIZE], int64_t ms)
{
    if (ms >= 0 && ms < 10000)
        snprintf(text, TOP_SPAN_SIZE, "%ds", (int)(ms / 1000));
    else
        top_text_span(text, ms);
}
