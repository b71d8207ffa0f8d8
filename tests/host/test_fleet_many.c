/* A fleet of more providers than one agent may declare: each host follows them all. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "tests/lib/fleet_stage.h"

#define OF_EACH 40 /* providers of each of two hosts: more together than PROVIDERS_MAX */

static struct fleet_host *z4, *m5;
static lease_agent_t *agent;
static char specs[2][OF_EACH][NAME_SIZE];

static struct fleet_host *add_host(int index, const char *name, const struct fleet_host *peer)
{
    struct fleet_host *host = fleet_prepare(name, NULL, peer);
    for (int i = 0; i < OF_EACH; i++) {
        snprintf(specs[index][i], NAME_SIZE, "%s-%02d=static:2,own=yes", name, i);
        host->providers[host->provider_count++] = specs[index][i];
    }
    fleet_start(host);
    return host;
}

static int set_up(void **state)
{
    _Static_assert(2 * OF_EACH > PROVIDERS_MAX, "not a fleet that is larger than an agent");
    if (stage_set_up(state) < 0)
        return -1;
    fleet_stage_reset();
    z4 = add_host(0, "z4", NULL);
    m5 = add_host(1, "m5", z4);
    agent = fleet_client(m5);
    return 0;
}

static int tear_down(void **state)
{
    lease_agent_close(&agent);
    return stage_tear_down(state);
}

#define played(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* Providers in the view of this host that are live and have so many slots, all of them free. */
static uint32_t count_free(void)
{
    struct lease_fleet *fleet;
    uint32_t count = 0;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        count += strcmp(fleet->providers[i].state, "live") == 0 &&
                 fleet->providers[i].slots_total == 2 && fleet->providers[i].available == 2;
    lease_fleet_free(&fleet);
    return count;
}

static bool sees_all(void *arg)
{
    (void)arg;
    return count_free() == 2 * OF_EACH;
}

/* Whether this host knows of one lease there. */
static bool sees_lease(void *arg)
{
    const char *provider = arg;
    struct lease_fleet *fleet;
    bool seen = false;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        if (strcmp(fleet->providers[i].provider, provider) == 0)
            seen = fleet->providers[i].lease_count == 1;
    lease_fleet_free(&fleet);
    return seen;
}

static void test_all_are_seen_and_followed(void **state)
{
    (void)state;
    assert_true(eventually(sees_all, NULL));
    assert_string_equal(lease_agent_warning(agent), "");
    lease_agent_t *there = fleet_client(z4);
    for (int i = 0; i < OF_EACH; i += OF_EACH - 1) {
        char name[NAME_SIZE];
        struct lease lease;
        struct lease_verdict verdict;
        snprintf(name, sizeof name, "z4-%02d", i);
        assert_int_equal(lease_acquire(there, name, NULL, &lease, &verdict), 0);
        assert_true(eventually(sees_lease, name));
    }
    lease_agent_close(&there);
}

static void test_all_can_be_had(void **state)
{
    (void)state;
    assert_true(eventually(sees_all, NULL));
    for (int i = 0; i < 2 * OF_EACH; i++) {
        char name[NAME_SIZE];
        const char *candidate = name;
        struct lease lease;
        struct lease_verdict verdict;
        struct lease_request request = {
            .size = sizeof request, .require = LEASE_BASIS_OWNER, .timeout_ms = 10000};
        snprintf(name, sizeof name, "%s-%02d", i < OF_EACH ? "z4" : "m5", i % OF_EACH);
        if (lease_place(agent, &candidate, 1, &request, &lease, &verdict) != 0)
            fail_msg("%s: %s", name, verdict.reason);
    }
}

/* One that is another host's already counts as little as others of that host. */
static void test_no_more_are_declared_than_an_agent_may(void **state)
{
    (void)state;
    char text[PROVIDERS_MAX + 1][NAME_SIZE], error[512] = "";
    const char *declared[PROVIDERS_MAX + 1];
    for (int i = 0; i <= PROVIDERS_MAX; i++) {
        snprintf(text[i], NAME_SIZE, "more-%02d=static:1", i);
        declared[i] = text[i];
    }
    lease_agent_t *opened = NULL;
    struct lease_options options = {.size = sizeof options,
                                    .directory = m5->directory,
                                    .providers = declared,
                                    .provider_count = PROVIDERS_MAX + 1};
    assert_int_equal(lease_agent_open(&options, &opened, error, sizeof error), LEASE_EFULL);
    assert_non_null(strstr(error, "more than 64 providers"));
    options.provider_count = PROVIDERS_MAX;
    assert_int_equal(lease_agent_open(&options, &opened, error, sizeof error), 0);
    lease_agent_close(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        played(test_all_are_seen_and_followed),
        played(test_all_can_be_had),
        played(test_no_more_are_declared_than_an_agent_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
