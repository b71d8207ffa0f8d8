#include "agent/probe_json.h"

#include <limits.h>

static bool shape_is_sane(const char *text, size_t size)
{
    int depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            values++;
            if (++depth > PROBE_JSON_DEPTH_MAX)
                return false;
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (c == ',') {
            values++;
        }
        if (values > PROBE_JSON_VALUES_MAX)
            return false;
    }
    return true;
}

json_t *probe_json(const char *text, size_t size)
{
    json_error_t error;
    if (!shape_is_sane(text, size))
        return NULL;
    /* NUL is allowed in strings: generated text that nobody reads is no reason to understand
     * nothing. */
    return json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
}

bool probe_json_flag(const json_t *object, const char *key, int *value)
{
    const json_t *found = json_object_get(object, key);
    if (found == NULL)
        return true;
    if (!json_is_boolean(found))
        return false;
    *value = json_is_true(found);
    return true;
}

bool probe_json_count(const json_t *object, const char *key, int *value)
{
    const json_t *found = json_object_get(object, key);
    if (found == NULL)
        return true;
    json_int_t number = json_integer_value(found);
    if (!json_is_integer(found) || number < 0 || number > INT_MAX / 4)
        return false;
    *value = (int)number;
    return true;
}

bool probe_json_text(const json_t *object, const char *key, const char **value)
{
    const json_t *found = json_object_get(object, key);
    if (found == NULL)
        return true;
    if (!json_is_string(found))
        return false;
    *value = json_string_value(found);
    return true;
}
