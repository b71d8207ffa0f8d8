/* The lines of a configuration, checked before zconfig may see them. Private to config.c.
 *
 * zconfig tells errors only by printing them to stdout, reads beyond its input after a line of
 * more than 1,024 bytes, and knows no line numbers afterwards. So its grammar is checked here, line
 * by line; and `pool NAME = ...`, which is no ZPL, becomes `pool/NAME = ...`, which is. */
#ifndef AGENT_CONFIG_LINES_H
#define AGENT_CONFIG_LINES_H

#include <stddef.h>

struct config_lines {
    char *text;      /* what zconfig reads: NUL-ended */
    size_t *numbers; /* of each item, in the order of the file: its line, from 1 */
    size_t count;    /* items */
};

/* 0, or LEASE_EINVAL, LEASE_ENOMEM with a line in `error`; then there is nothing to free. */
int config_lines_read(const char *path, const char *text, size_t size, struct config_lines *lines,
                      char *error);
void config_lines_free(struct config_lines *lines);

/* Writes "PATH:LINE: what" into `error` (CONFIG_ERROR_SIZE bytes), made printable; line 0: none. */
void config_error(char *error, const char *path, size_t line, const char *what);

#endif
