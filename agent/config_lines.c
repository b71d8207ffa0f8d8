#include "agent/config_lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config.h"
#include "broker/error.h"
#include "broker/record.h"

#define INDENT 4

struct scan {
    struct config_lines *lines;
    size_t used;  /* bytes of lines->text */
    size_t depth; /* how deep the next line may stand */
};

void config_error(char *error, const char *path, size_t line, const char *what)
{
    char raw[2 * CONFIG_ERROR_SIZE];
    int length = snprintf(raw, sizeof raw, "%.300s:", path);
    if (line > 0)
        length += snprintf(raw + length, sizeof raw - (size_t)length, "%zu:", line);
    snprintf(raw + length, sizeof raw - (size_t)length, " %s", what);
    text_copy(error, CONFIG_ERROR_SIZE, raw);
}

/* Not isalnum: that depends on the locale. '/' is zconfig's, not the user's. */
static size_t word_length(const char *at)
{
    return strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789$-_@.&+");
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

static bool ends_here(const char *at)
{
    at = skip_blanks(at);
    return *at == '\0' || *at == '#';
}

/* NULL, or what is wrong with what follows the '='. */
static const char *check_value(const char *at)
{
    at = skip_blanks(at);
    if (*at == '\0' || *at == '#')
        return "no value after '=', put quotes around one that begins with #";
    if (*at != '"' && *at != '\'')
        return NULL;
    const char *close = strchr(at + 1, *at);
    if (!close)
        return "the closing quote is missing";
    return ends_here(close + 1) ? NULL : "something follows the closing quote";
}

/* How many bytes of `line` are the word of a `WORD NAME = ...`, 0 where it is no such line. */
static size_t named_word(const char *line)
{
    size_t length = word_length(line);
    bool known = (length == 4 && strncmp(line, "pool", 4) == 0) ||
                 (length == 8 && strncmp(line, "provider", 8) == 0);
    const char *name = skip_blanks(line + length);
    return known && name > line + length && word_length(name) > 0 ? length : 0;
}

static void append(struct scan *scan, const char *text, size_t length)
{
    memcpy(scan->lines->text + scan->used, text, length);
    scan->used += length;
}

/* Checks one line without its end and copies it. NULL, or what is wrong. */
static const char *scan_line(struct scan *scan, const char *line, size_t number)
{
    if (ends_here(line))
        return NULL;
    size_t spaces = strspn(line, " ");
    const char *word = line + spaces;
    if (*word == '\t')
        return "indent with spaces, not with tabs";
    if (spaces % INDENT != 0)
        return "indent by four spaces at a time";
    if (spaces / INDENT > scan->depth)
        return "indented deeper than the line above allows";
    size_t named = spaces == 0 ? named_word(word) : 0;
    const char *name = named ? skip_blanks(word + named) : word;
    const char *after = name + word_length(name);
    if (after == name)
        return "a line is NAME = VALUE, or begins with #";
    const char *sign = skip_blanks(after);
    const char *wrong = *sign == '='       ? check_value(sign + 1)
                        : ends_here(after) ? NULL
                                           : "a line is NAME = VALUE, or begins with #";
    if (wrong)
        return wrong;
    if (scan->lines->count >= CONFIG_ITEMS_MAX)
        return "too many lines";
    scan->lines->numbers[scan->lines->count++] = number;
    scan->depth = spaces / INDENT + 1;
    append(scan, line, spaces + named);
    if (named)
        append(scan, "/", 1);
    append(scan, name, strlen(name));
    append(scan, "\n", 1);
    return NULL;
}

/* Cuts off blanks at the end, also the '\r' of a file from elsewhere. */
static void trim_end(char *line, size_t length)
{
    while (length > 0 && strchr(" \t\r", line[length - 1]))
        line[--length] = '\0';
}

/* NULL, or what is wrong with the bytes of a line. Anything that zconfig's isspace would take for
 * white space, and the blank and tab do not, is among the control characters. */
static const char *check_bytes(const char *line, size_t length)
{
    if (length > CONFIG_LINE_MAX)
        return "the line is too long";
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)line[i];
        bool last_return = byte == '\r' && i + 1 == length;
        if ((byte < 0x20 && byte != '\t' && !last_return) || byte == 0x7f)
            return "a control character, this is no text file";
    }
    return NULL;
}

static const char *scan_text(struct scan *scan, const char *text, size_t size, size_t *number)
{
    const char *end = text + size;
    *number = 0;
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3; /* the byte order mark of some editors */
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        char line[CONFIG_LINE_MAX + 1];
        ++*number;
        const char *wrong = check_bytes(text, length);
        if (wrong)
            return wrong;
        memcpy(line, text, length);
        line[length] = '\0';
        trim_end(line, length);
        wrong = scan_line(scan, line, *number);
        if (wrong)
            return wrong;
        text = stop ? stop + 1 : end;
    }
    return NULL;
}

int config_lines_read(const char *path, const char *text, size_t size, struct config_lines *lines,
                      char *error)
{
    *lines = (struct config_lines){0};
    if (size > CONFIG_BYTES_MAX) {
        config_error(error, path, 0, "the file is too long for a configuration");
        return LEASE_EINVAL;
    }
    lines->text = malloc(size + 2); /* a line without an end gets one; no other line grows */
    lines->numbers = malloc(CONFIG_ITEMS_MAX * sizeof *lines->numbers);
    if (!lines->text || !lines->numbers) {
        config_lines_free(lines);
        config_error(error, path, 0, "out of memory");
        return LEASE_ENOMEM;
    }
    struct scan scan = {.lines = lines};
    size_t number;
    const char *wrong = scan_text(&scan, text, size, &number);
    if (wrong) {
        config_error(error, path, number, wrong);
        config_lines_free(lines);
        return LEASE_EINVAL;
    }
    lines->text[scan.used] = '\0';
    return 0;
}

void config_lines_free(struct config_lines *lines)
{
    free(lines->text);
    free(lines->numbers);
    *lines = (struct config_lines){0};
}
