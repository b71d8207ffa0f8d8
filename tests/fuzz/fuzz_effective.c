/* Any bytes as agent.json: what is read is within its bounds, and written and read again the same. */
#define _GNU_SOURCE
#include "agent/effective.h"
#include "broker/error.h"
#include "tests/fuzz/room.h"

static struct effective first, second;

static void must_be_an_endpoint(const char *text)
{
    struct endpoint endpoint;
    must(memchr(text, '\0', ENDPOINT_SIZE) != NULL);
    must(!text[0] || (endpoint_parse(text, &endpoint) && endpoint.has_port));
}

static void must_be_in_bounds(const struct effective *effective)
{
    const struct fleet_config *fleet = &effective->fleet;
    must(fuzz_is_line(effective->name, sizeof effective->name));
    must(fuzz_is_line(effective->version, sizeof effective->version));
    must(fuzz_is_line(effective->kind, sizeof effective->kind));
    must(effective->pid <= INT32_MAX && effective->provider_count <= PROVIDERS_MAX);
    for (uint32_t i = 0; i < effective->provider_count; i++)
        must(fuzz_is_line(effective->providers[i].text, EFFECTIVE_SPEC_SIZE));
    must(fleet->listen_count <= FLEET_LISTEN_MAX && fleet->peer_count <= FLEET_CONFIG_PEERS_MAX);
    for (uint32_t i = 0; i < fleet->listen_count; i++)
        must_be_an_endpoint(fleet->listen[i]);
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        must_be_an_endpoint(fleet->peers[i].endpoint);
        must(!fleet->peers[i].name[0] || name_is_valid(fleet->peers[i].name));
    }
    must_be_an_endpoint(fleet->publish);
    must_be_an_endpoint(fleet->advertise);
    must_be_an_endpoint(fleet->relay);
}

static void must_be_found(const struct effective *effective)
{
    static char text[EFFECTIVE_SPEC_SIZE];
    for (uint32_t i = 0; i < effective->provider_count && i < 4; i++) {
        char name[NAME_SIZE];
        const char *spec = effective->providers[i].text;
        size_t length = strcspn(spec, "=");
        if (length >= sizeof name || spec[length] == '\0')
            continue;
        memcpy(name, spec, length);
        name[length] = '\0';
        must(effective_find(room(), name, text) == 0 && strncmp(text, spec, length + 1) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    room_put(EFFECTIVE_FILE, bytes, size);
    int error = effective_read(room(), &first);
    if (error < 0) {
        must(error == LEASE_EDAMAGED && memcmp(&first, &second, sizeof first) == 0);
        return 0;
    }
    must_be_in_bounds(&first);
    must_be_found(&first);
    must(effective_write(room(), &first, 0600) == 0 && effective_read(room(), &second) == 0);
    if (!fleet_config_is_on(&first.fleet)) /* is not written then */
        memset(&first.fleet, 0, sizeof first.fleet);
    must(memcmp(&first, &second, sizeof first) == 0);
    return 0;
}
