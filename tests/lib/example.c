#include "tests/lib/example.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t read_line(const char *line, uint8_t *to, size_t room)
{
    size_t size = 0;
    char *end;
    for (const char *at = line; size < room; at = end) {
        unsigned long byte = strtoul(at, &end, 16);
        if (end == at) {
            break;
        }
        to[size++] = (uint8_t)byte;
    }
    return size;
}

size_t example_read(unsigned n, uint8_t *to)
{
    char line[256];
    size_t size = 0;
    bool inside = false;
    FILE *file = fopen(PROTO_README, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "```", 3) == 0) {
            inside = strcmp(line, "```hex\n") == 0 && n-- == 0;
        } else if (inside) {
            line[strcspn(line, "#")] = '\0';
            size += read_line(line, to + size, EXAMPLE_MAX - size);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return size;
}
