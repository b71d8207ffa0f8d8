#define _GNU_SOURCE

#include "agent/fleet_config.h"

#include <stdio.h>
#include <string.h>

#include "agent/lease.h"
#include "broker/record.h"

bool fleet_config_is_on(const struct fleet_config *config)
{
    return config->listen_count > 0 || config->publish[0] || config->peer_count > 0 ||
           config->relay[0] || config->joins;
}

/* With its port written out. */
static bool take_endpoint(const char *text, char *to)
{
    struct endpoint endpoint;
    if (!endpoint_parse(text, &endpoint))
        return false;
    endpoint_format(endpoint.host, endpoint.port, to);
    return true;
}

static int refuse_endpoint(const char *what, const char *text, char *error, size_t error_size)
{
    snprintf(error, error_size, "%s '%.127s' is not tcp://HOST[:PORT]", what, text);
    return LEASE_EINVAL;
}

/* One of this host. Beyond loopback anybody could come in who reaches it. */
static int take_own(const char *what, const char *text, bool insecure, char *to, char *error,
                    size_t error_size)
{
    struct endpoint endpoint;
    if (!endpoint_parse(text, &endpoint))
        return refuse_endpoint(what, text, error, error_size);
    if (strcmp(endpoint.host, "localhost") == 0)
        strcpy(endpoint.host, "127.0.0.1");
    if (strcmp(endpoint.host, "*") == 0)
        strcpy(endpoint.host, "0.0.0.0");
    if (!endpoint_is_numeric(endpoint.host)) {
        snprintf(error, error_size, "%s %s is no address, take one of this host's", what, text);
        return LEASE_EINVAL;
    }
    if (!insecure && !endpoint_is_loopback(endpoint.host)) {
        snprintf(
            error, error_size,
            "%s %s is beyond loopback: without keys that needs --insecure, or take tcp://127.0.0.1",
            what, text);
        return LEASE_EINVAL;
    }
    endpoint_format(endpoint.host, endpoint.port, to);
    return 0;
}

int fleet_config_add_peer(struct fleet_config *config, const char *text)
{
    char endpoint[ENDPOINT_SIZE];
    size_t length = strcspn(text, ",");
    if (config->peer_count == FLEET_CONFIG_PEERS_MAX)
        return LEASE_EFULL;
    struct fleet_config_peer *peer = &config->peers[config->peer_count];
    if (length >= sizeof endpoint)
        return LEASE_EINVAL;
    memcpy(endpoint, text, length);
    endpoint[length] = '\0';
    const char *name = "";
    if (text[length] == ',') {
        if (strncmp(text + length, ",name=", 6) != 0 || !name_is_valid(text + length + 6))
            return LEASE_EINVAL;
        name = text + length + 6;
    }
    if (!take_endpoint(endpoint, peer->endpoint))
        return LEASE_EINVAL;
    snprintf(peer->name, sizeof peer->name, "%s", name);
    config->peer_count++;
    return 0;
}

void fleet_config_peer_text(const struct fleet_config_peer *peer, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", peer->endpoint, peer->name[0] ? ",name=" : "", peer->name);
}

static int take_listen(const struct lease_options *options, struct fleet_config *config,
                       char *error, size_t error_size)
{
    for (size_t i = 0; i < options->listen_count; i++) {
        const char *text = options->listen[i];
        if (config->listen_count == FLEET_LISTEN_MAX) {
            snprintf(error, error_size, "more than %d endpoints to listen at", FLEET_LISTEN_MAX);
            return LEASE_EINVAL;
        }
        int result = take_own("listen", text, config->insecure,
                              config->listen[config->listen_count], error, error_size);
        if (result < 0)
            return result;
        config->listen_count++;
    }
    return 0;
}

static int take_peers(const struct lease_options *options, struct fleet_config *config, char *error,
                      size_t error_size)
{
    for (size_t i = 0; i < options->peer_count; i++) {
        int result = fleet_config_add_peer(config, options->peers[i]);
        if (result == LEASE_EFULL)
            snprintf(error, error_size, "more than %d peers", FLEET_CONFIG_PEERS_MAX);
        else if (result < 0)
            snprintf(error, error_size, "peer '%.127s' is not tcp://HOST[:PORT][,name=PEER]",
                     options->peers[i]);
        if (result < 0)
            return LEASE_EINVAL;
    }
    return 0;
}

int fleet_config_take(const struct lease_options *options, struct fleet_config *config, char *error,
                      size_t error_size)
{
    config->insecure = options->insecure != 0;
    config->joins = options->flags & LEASE_OPEN_FLEET;
    /* others take it as it is told, and ask no resolver about it */
    int result = options->advertise ? take_own("advertise", options->advertise, true,
                                               config->advertise, error, error_size)
                                    : 0;
    if (result == 0 && options->publish)
        result = take_own("publish", options->publish, config->insecure, config->publish, error,
                          error_size);
    if (result == 0 && options->relay)
        result = take_own("relay", options->relay, true, config->relay, error, error_size);
    if (result == 0)
        result = take_listen(options, config, error, error_size);
    return result < 0 ? result : take_peers(options, config, error, error_size);
}
