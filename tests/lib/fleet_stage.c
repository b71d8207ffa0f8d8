#define _GNU_SOURCE
#include "tests/lib/fleet_stage.h"

#include <sys/stat.h>

#include "broker/host_clock.h"

struct fleet_host fleet_hosts[FLEET_STAGE_HOSTS];
static int host_count;

void fleet_stage_reset(void)
{
    memset(fleet_hosts, 0, sizeof fleet_hosts);
    host_count = 0;
}

static int speak(int index)
{
    struct fleet_host *host = &fleet_hosts[index];
    const char *listen = host->listen[0] ? host->listen : "tcp://127.0.0.1:0";
    const char *peers[FLEET_STAGE_HOSTS];
    for (size_t i = 0; i < host->peer_count; i++)
        peers[i] = host->peers[i];
    struct lease_options options = {.size = sizeof options,
                                    .directory = host->directory,
                                    .host = host->name,
                                    .label = "speaker",
                                    .providers = host->providers,
                                    .provider_count = host->provider_count,
                                    .flags = LEASE_OPEN_DAEMON,
                                    .listen = &listen,
                                    .listen_count = 1,
                                    .publish = host->publish[0] ? host->publish : NULL,
                                    .peers = peers,
                                    .peer_count = host->peer_count};
    char error[512] = "";
    lease_agent_t *agent = NULL;
    if (lease_agent_open(&options, &agent, error, sizeof error) < 0)
        fprintf(stderr, "%s: %s\n", host->name, error);
    must(agent);
    must(stage_await(&board->go, 1));
    lease_agent_close(&agent);
    return 0;
}

static bool is_bound(void *arg)
{
    struct fleet_host *host = arg;
    struct routes *routes = NULL;
    bool bound =
        routes_read(host->directory, &routes) == 0 && routes->endpoint[0] && routes->publish[0];
    if (bound) {
        snprintf(host->listen, sizeof host->listen, "%s", routes->endpoint);
        snprintf(host->publish, sizeof host->publish, "%s", routes->publish);
    }
    routes_free(&routes);
    return bound;
}

void fleet_start(struct fleet_host *host)
{
    char path[sizeof host->directory + sizeof "/" ROUTES_FILE];
    snprintf(path, sizeof path, "%s/" ROUTES_FILE, host->directory);
    unlink(path);
    host->pid = stage_play(speak, (int)(host - fleet_hosts));
    assert_true(eventually(is_bound, host));
}

struct fleet_host *fleet_add(const char *name, const char *provider, const struct fleet_host *peer)
{
    struct fleet_host *host = &fleet_hosts[host_count];
    snprintf(host->name, sizeof host->name, "%s", name);
    snprintf(host->directory, sizeof host->directory, "%s/%d", stage_dir, host_count++);
    assert_int_equal(mkdir(host->directory, 0700), 0);
    if (provider)
        host->providers[host->provider_count++] = provider;
    if (peer)
        memcpy(host->peers[host->peer_count++], peer->listen, sizeof host->peers[0]);
    fleet_start(host);
    return host;
}

lease_agent_t *fleet_client(const struct fleet_host *host)
{
    lease_agent_t *agent = NULL;
    struct lease_options options = {.size = sizeof options,
                                    .directory = host->directory,
                                    .host = host->name,
                                    .label = "test",
                                    .flags = LEASE_OPEN_CLIENT};
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
    return agent;
}

struct wanted {
    const struct fleet_host *at;
    const char *provider, *owner, *state;
};

static bool route_is(void *arg)
{
    const struct wanted *wanted = arg;
    struct routes *routes = NULL;
    if (routes_read(wanted->at->directory, &routes) < 0)
        return false;
    const struct route *route = routes_find(routes, wanted->provider);
    bool so = route && strcmp(route->owner, wanted->owner) == 0 &&
              strcmp(route_state_name(route, host_now_ns()), wanted->state) == 0;
    routes_free(&routes);
    return so;
}

void fleet_await_owner(const struct fleet_host *at, const char *provider, const char *owner,
                       const char *state)
{
    struct wanted wanted = {at, provider, owner, state};
    assert_true(eventually(route_is, &wanted));
}
