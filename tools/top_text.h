/* Text of any origin as leasetop shows it: harmless, and as wide as it says.
 *
 * Names, labels and details come from other processes and hosts. What passed top_text_clean holds
 * no byte that a terminal obeys, and every character of it takes one or two columns.
 *
 * Thread rules: pure, but for top_text_use_utf8, which is for the start. */
#ifndef TOOLS_TOP_TEXT_H
#define TOOLS_TOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether characters beyond ASCII may be shown; false until told otherwise. */
void top_text_use_utf8(bool on);

/* The next character of UTF-8, 0 at the end; a byte that is none is U+FFFD. */
uint32_t top_text_next(const char **text);

/* Columns of a character that top_text_clean let through: 1 or 2. */
int top_text_columns(uint32_t character);

/* Copies, cut to size - 1 bytes at a character's border. What a terminal would obey or reorder, and
 * what it cannot show, becomes '?'; characters without width are left out. */
void top_text_clean(char *to, size_t size, const char *from);

/* Columns of a clean text. */
int top_text_width(const char *text);

/* Cuts a clean text to at most `width` columns in its middle, where '~' then stands: both ends tell
 * names apart that share the beginning. */
void top_text_cut(char *to, size_t size, const char *text, int width);

/* A time in at most 5 characters: 0.4s 12s 1m50 2h13 1d02 120d; "-" for what is negative. */
#define TOP_SPAN_SIZE 16
void top_text_span(char text[TOP_SPAN_SIZE], int64_t ms);

/* The same in whole seconds, for what is looked at each second: digits that dance tell nothing. */
void top_text_seconds(char text[TOP_SPAN_SIZE], int64_t ms);

/* Writes a character as UTF-8, answers its bytes (at most 4). */
size_t top_text_put(char *to, uint32_t character);

#endif
