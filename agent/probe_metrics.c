#include "agent/probe_metrics.h"

#include <stdlib.h>
#include <string.h>

static int count_of(const char *text, const char *end)
{
    char *after;
    double number = strtod(text, &after);
    if (after == text || after > end || (*after != '\n' && *after != '\r' && *after != ' '))
        return -1;
    return number >= 0 && number < 1e9 ? (int)number : -1;
}

int probe_metric(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const char *value = line + length;
        if (strncmp(line, name, length) != 0)
            continue;
        if (*value == '{') {
            value = memchr(value, '}', (size_t)(end - value));
            if (value == NULL)
                return -1;
            value++;
        }
        if (*value == ' ')
            return count_of(value, end);
    }
    return -1;
}
