#define _GNU_SOURCE

#include "agent/effective.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/json_file.h"
#include "broker/error.h"

#define FILE_BYTES_MAX (1u << 20)

/* ---- reading --------------------------------------------------------------------------------- */

static void copy_string(json_t *object, const char *key, char *to, size_t size)
{
    const char *value = json_string_value(json_object_get(object, key));
    text_copy(to, size, value ? value : "");
}

static void read_id(json_t *object, uint8_t id[16])
{
    const char *hex = json_string_value(json_object_get(object, "id"));
    if (!hex || strlen(hex) != 32)
        return;
    for (int i = 0; i < 16; i++) {
        unsigned value = 0;
        if (sscanf(hex + 2 * i, "%2x", &value) != 1)
            return;
        id[i] = (uint8_t)value;
    }
}

static void read_endpoint(json_t *object, const char *key, char *to)
{
    struct endpoint endpoint;
    const char *text = json_string_value(json_object_get(object, key));
    if (text && endpoint_parse(text, &endpoint))
        endpoint_format(endpoint.host, endpoint.port, to);
}

static void read_fleet(json_t *object, struct fleet_config *fleet)
{
    json_t *entry;
    size_t i;
    if (!json_is_object(object))
        return;
    json_array_foreach(json_object_get(object, "listen"), i, entry)
    {
        struct endpoint endpoint;
        const char *text = json_string_value(entry);
        if (text && fleet->listen_count < FLEET_LISTEN_MAX && endpoint_parse(text, &endpoint))
            endpoint_format(endpoint.host, endpoint.port, fleet->listen[fleet->listen_count++]);
    }
    json_array_foreach(json_object_get(object, "peers"), i, entry)
    {
        if (json_is_string(entry))
            fleet_config_add_peer(fleet, json_string_value(entry));
    }
    read_endpoint(object, "publish", fleet->publish);
    read_endpoint(object, "advertise", fleet->advertise);
    read_endpoint(object, "relay", fleet->relay);
    fleet->insecure = json_is_true(json_object_get(object, "insecure"));
}

static void read_object(json_t *object, struct effective *effective)
{
    memset(effective, 0, sizeof *effective);
    copy_string(object, "name", effective->name, sizeof effective->name);
    copy_string(object, "version", effective->version, sizeof effective->version);
    copy_string(object, "kind", effective->kind, sizeof effective->kind);
    json_int_t pid = json_integer_value(json_object_get(object, "pid"));
    effective->pid = pid > 0 && pid <= INT32_MAX ? (uint32_t)pid : 0;
    read_id(object, effective->id);
    json_t *providers = json_object_get(object, "providers"), *entry;
    size_t i;
    json_array_foreach(providers, i, entry)
    {
        const char *text = json_string_value(entry);
        if (!text || effective->provider_count == PROVIDERS_MAX)
            continue;
        char *to = effective->providers[effective->provider_count].text;
        if (strlen(text) < sizeof effective->providers[0].text) {
            text_copy(to, sizeof effective->providers[0].text, text);
            effective->provider_count++;
        }
    }
    read_fleet(json_object_get(object, "fleet"), &effective->fleet);
}

int effective_read(const char *directory, struct effective *effective)
{
    json_t *object = NULL;
    int error = json_file_read(directory, EFFECTIVE_FILE, FILE_BYTES_MAX, &object);
    if (error == 0)
        read_object(object, effective);
    json_decref(object);
    return error;
}

int effective_find(const char *directory, const char *name, char *text)
{
    struct effective *effective = malloc(sizeof *effective);
    if (!effective)
        return LEASE_ENOMEM;
    int error = effective_read(directory, effective) < 0 ? LEASE_EUNKNOWN : 0;
    size_t length = strlen(name);
    uint32_t i = 0;
    while (error == 0 && i < effective->provider_count &&
           (strncmp(effective->providers[i].text, name, length) != 0 ||
            effective->providers[i].text[length] != '='))
        i++;
    if (error == 0 && i == effective->provider_count)
        error = LEASE_EUNKNOWN;
    if (error == 0)
        memcpy(text, effective->providers[i].text, EFFECTIVE_SPEC_SIZE);
    free(effective);
    return error;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *fleet_to_object(const struct fleet_config *fleet)
{
    json_t *listen = json_array(), *peers = json_array();
    for (uint32_t i = 0; listen && i < fleet->listen_count; i++)
        json_array_append_new(listen, json_string(fleet->listen[i]));
    for (uint32_t i = 0; peers && i < fleet->peer_count; i++) {
        char text[sizeof fleet->peers[0] + 8];
        fleet_config_peer_text(&fleet->peers[i], text, sizeof text);
        json_array_append_new(peers, json_string(text));
    }
    return json_pack("{s:o, s:o, s:s, s:s, s:s, s:b}", "listen", listen, "peers", peers, "publish",
                     fleet->publish, "advertise", fleet->advertise, "relay", fleet->relay,
                     "insecure", fleet->insecure);
}

static json_t *to_object(const struct effective *effective)
{
    char hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", effective->id[i]);
    json_t *providers = json_array();
    for (uint32_t i = 0; providers && i < effective->provider_count; i++)
        json_array_append_new(providers, json_string(effective->providers[i].text));
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:s, s:i, s:s, s:o}", "schema", 1, "name", effective->name,
                  "version", effective->version, "kind", effective->kind, "pid",
                  (int)effective->pid, "id", hex, "providers", providers);
    if (object && fleet_config_is_on(&effective->fleet))
        json_object_set_new(object, "fleet", fleet_to_object(&effective->fleet));
    return object;
}

int effective_write(const char *directory, const struct effective *effective, unsigned mode)
{
    json_t *object = to_object(effective);
    if (!object)
        return LEASE_ENOMEM;
    int error = json_file_write(directory, EFFECTIVE_FILE, object, JSON_INDENT(1), mode);
    json_decref(object);
    return error;
}
