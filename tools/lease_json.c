#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/lease_cli.h"

int print_json(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (!text) {
        say("out of memory");
        return EXIT_INTERNAL;
    }
    printf("%s\n", text);
    free(text);
    return EXIT_DONE;
}

json_t *number_or_null(int64_t number)
{
    return number < 0 ? json_null() : json_integer(number);
}

json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

/* Removes from the array `providers` all but the one of that name. */
static void keep_provider(json_t *providers, const char *name)
{
    for (size_t i = json_array_size(providers); i-- > 0;) {
        json_t *each = json_object_get(json_array_get(providers, i), "provider");
        const char *found = json_string_value(each);
        if (!found || strcmp(found, name) != 0)
            json_array_remove(providers, i);
    }
}

json_t *fleet_value(const struct lease_fleet *fleet, const char *provider)
{
    char *text = lease_fleet_json(fleet);
    json_t *value = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (value && provider[0])
        keep_provider(json_object_get(value, "providers"), provider);
    return value;
}

json_t *lease_value(const struct lease *lease)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:i, s:o, s:I, s:o, s:s}", /**/
                     "id", lease->id, "provider", lease->provider, "url", text_or_null(lease->url),
                     "state", lease->dispatched ? "dispatched" : "held", "units", (int)lease->units,
                     "slot", number_or_null(lease->slot), "left_ms", (json_int_t)lease->left_ms,
                     "token", lease->token ? json_integer((json_int_t)lease->token) : json_null(),
                     "reach", lease_reach_name(lease->reach));
}
