/* JSON from a server, which may be anything: parsed only if it is of a sane shape.
 *
 * 4 MiB of "[[[[" or "0,0,0," would cost 100 MB and a deep stack before anybody looked at it; so
 * nesting and number of values are counted first. Thread-safe. */
#ifndef AGENT_PROBE_JSON_H
#define AGENT_PROBE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define PROBE_JSON_DEPTH_MAX  64
#define PROBE_JSON_VALUES_MAX 400000

/* NULL: no JSON, truncated, duplicate keys, too deep or too many values. The caller decrefs it. */
json_t *probe_json(const char *text, size_t size);

/* The three below leave *value as it is where there is no such key, and say whether that or the
 * right type was found: false is a wrong type or a number out of range. */
bool probe_json_flag(const json_t *object, const char *key, int *value);
bool probe_json_count(const json_t *object, const char *key, int *value); /* 0 to INT_MAX / 4 */
bool probe_json_text(const json_t *object, const char *key, const char **value);

#endif
