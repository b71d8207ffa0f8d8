#define _GNU_SOURCE
#include "tests/lib/fleet_stage.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "broker/host_clock.h"

struct fleet_host fleet_hosts[FLEET_STAGE_HOSTS];
static int host_count;

void fleet_stage_reset(void)
{
    memset(fleet_hosts, 0, sizeof fleet_hosts);
    host_count = 0;
}

void fleet_stay(void)
{
    pid_t parent = getppid();
    while (!stage_await(&board->go, 1) && getppid() == parent)
        continue;
}

static int speak(int index)
{
    struct fleet_host *host = &fleet_hosts[index];
    const char *listen = host->listen, *peers[FLEET_STAGE_HOSTS];
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
                                    .relay = host->relay[0] ? host->relay : NULL,
                                    .peers = peers,
                                    .peer_count = host->peer_count};
    char error[512] = "";
    lease_agent_t *agent = NULL;
    if (lease_agent_open(&options, &agent, error, sizeof error) < 0)
        fprintf(stderr, "%s: %s\n", host->name, error);
    must(agent);
    fleet_stay();
    lease_agent_close(&agent);
    return 0;
}

struct routes *fleet_routes(const struct fleet_host *host)
{
    struct routes *routes = NULL;
    return routes_read(host->directory, &routes) == 0 ? routes : NULL;
}

static bool is_bound(void *arg)
{
    struct fleet_host *host = arg;
    struct routes *routes = fleet_routes(host);
    bool bound = routes && routes->endpoint[0] && (host->relay[0] || routes->publish[0]);
    if (bound)
        snprintf(host->publish, sizeof host->publish, "%s", routes->publish);
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

/* ---- ports ----------------------------------------------------------------------------------- */

static bool is_free(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return bound;
}

/* Below those that the kernel gives to whoever connects: a peer that dials one that nobody has could be
 * connected with itself. */
void fleet_endpoint(char endpoint[FLEET_ENDPOINT_SIZE])
{
    static unsigned port;
    if (port == 0)
        port = 20000 + (unsigned)getpid() * 16 % 12000;
    while (!is_free(port) || !is_free(port + 1))
        port = port < 32000 ? port + 2 : 20000;
    snprintf(endpoint, FLEET_ENDPOINT_SIZE, "tcp://127.0.0.1:%u", port);
    port += 2;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

struct fleet_host *fleet_prepare(const char *name, const char *provider,
                                 const struct fleet_host *peer)
{
    assert_true(host_count < FLEET_STAGE_HOSTS);
    struct fleet_host *host = &fleet_hosts[host_count];
    snprintf(host->name, sizeof host->name, "%s", name);
    snprintf(host->directory, sizeof host->directory, "%s/%d", stage_dir, host_count++);
    assert_int_equal(mkdir(host->directory, 0700), 0);
    fleet_endpoint(host->listen);
    if (provider)
        host->providers[host->provider_count++] = provider;
    if (peer)
        memcpy(host->peers[host->peer_count++], peer->listen, sizeof host->peers[0]);
    return host;
}

struct fleet_host *fleet_add(const char *name, const char *provider, const struct fleet_host *peer)
{
    struct fleet_host *host = fleet_prepare(name, provider, peer);
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

/* ---- what they know -------------------------------------------------------------------------- */

struct wanted {
    const struct fleet_host *at;
    const char *provider, *owner, *state;
    uint32_t conflicts;
};

static bool route_is(void *arg)
{
    const struct wanted *wanted = arg;
    struct routes *routes = fleet_routes(wanted->at);
    const struct route *route = routes_find(routes, wanted->provider);
    bool so = route && strcmp(route->owner, wanted->owner) == 0 &&
              strcmp(route_state_name(route, host_now_ns()), wanted->state) == 0 &&
              route->conflicts == wanted->conflicts;
    routes_free(&routes);
    return so;
}

void fleet_await_owner(const struct fleet_host *at, const char *provider, const char *owner,
                       const char *state)
{
    struct wanted wanted = {at, provider, owner, state, 0};
    assert_true(eventually(route_is, &wanted));
}

void fleet_await_conflict(const struct fleet_host *at, const char *provider, const char *owner,
                          uint32_t conflicts)
{
    struct wanted wanted = {at, provider, owner, "conflict", conflicts};
    assert_true(eventually(route_is, &wanted));
}
