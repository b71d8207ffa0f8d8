/* Only peers are known, and they tell who the owner is: those that a handle was given, and those of the
 * speaker of this host just after its start. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "agent/effective.h"
#include "agent/routes.h"
#include "tests/lib/fake_owner.h"
#include "tests/lib/host_stage.h"

static struct fake_owner far;
static lease_agent_t *agent;

static int set_up(void **state)
{
    agent = NULL;
    return stage_set_up(state) < 0 || !fake_owner_start(&far, "far-host") ? -1 : 0;
}

static int tear_down(void **state)
{
    lease_agent_close(&agent);
    fake_owner_stop(&far);
    return stage_tear_down(state);
}

#define peered(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const char *const far_only[] = {"far"};
static struct lease lease;
static struct lease_verdict verdict;

static int place(uint32_t timeout_ms)
{
    struct lease_request request = {.size = sizeof request, .timeout_ms = timeout_ms};
    memset(&lease, 0, sizeof lease);
    return lease_place(agent, far_only, 1, &request, &lease, &verdict);
}

/* ---- those of the handle --------------------------------------------------------------------- */

static void test_a_peer_tells_the_owner(void **state)
{
    (void)state;
    const char *peers[] = {far.endpoint};
    struct lease_options options = {.size = sizeof options,
                                    .host = "third",
                                    .flags = LEASE_OPEN_CLIENT,
                                    .peers = peers,
                                    .peer_count = 1};
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
    assert_int_equal(place(20000), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);

    struct lease_view view;
    assert_int_equal(lease_read(agent, 0), 0);
    assert_true(stage_look(agent, "far", &view));
    assert_string_equal(view.owner, "far-host");
    assert_int_equal(view.slots_total, 1);
    assert_int_equal(lease_agent_reach(agent), LEASE_REACH_FLEET);
    struct lease_fleet *fleet;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    assert_int_equal(fleet->peer_count, 1);
    assert_string_equal(fleet->peers[0].name, "far-host");
    assert_string_equal(fleet->peers[0].state, "live");
    lease_fleet_free(&fleet);
}

static void test_a_dead_peer_is_no_owner(void **state)
{
    (void)state;
    fake_owner_stop(&far);
    const char *peers[] = {far.endpoint};
    struct lease_options options = {
        .size = sizeof options, .flags = LEASE_OPEN_CLIENT, .peers = peers, .peer_count = 1};
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
    int64_t began = test_now_ns();
    assert_int_equal(place(0), LEASE_EUNKNOWN);
    assert_true(test_now_ns() - began < stage_patience(1500) * 1000000);
    options.peers = (const char *[]){"nonsense"};
    char error[256];
    lease_agent_t *none = NULL;
    assert_int_equal(lease_agent_open(&options, &none, error, sizeof error), LEASE_EINVAL);
    assert_non_null(strstr(error, "nonsense"));
}

/* ---- those of the speaker -------------------------------------------------------------------- */

/* The speaker of this host as it is just after its start: it has left its configuration, with the peer
 * that it was told of, and has heard nobody. The handle was given nothing. */
static void begin_beside_new_speaker(int64_t age_s)
{
    char path[128];
    struct effective *effective = calloc(1, sizeof *effective);
    snprintf(effective->name, sizeof effective->name, "here");
    snprintf(effective->kind, sizeof effective->kind, "daemon");
    assert_int_equal(fleet_config_add_peer(&effective->fleet, far.endpoint), 0);
    assert_int_equal(effective_write(stage_dir, effective, 0600), 0);
    free(effective);
    snprintf(path, sizeof path, "%s/%s", stage_dir, EFFECTIVE_FILE);
    struct timespec then[2];
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &then[0]), 0);
    then[0].tv_sec -= age_s;
    then[1] = then[0];
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    struct lease_options options = {
        .size = sizeof options, .host = "here", .flags = LEASE_OPEN_CLIENT};
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
}

static void test_the_peers_of_a_new_speaker_are_asked(void **state)
{
    (void)state;
    begin_beside_new_speaker(0);
    assert_int_equal(place(20000), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
}

/* It has said what it was told of, and does not know yet whose that is. */
static void test_also_where_it_names_no_owner_yet(void **state)
{
    (void)state;
    struct route nobodys = {.provider = "far"};
    struct routes routes = {.route_count = 1, .routes = &nobodys};
    assert_int_equal(routes_write(stage_dir, &routes, 0600), 0);
    begin_beside_new_speaker(0);
    assert_int_equal(place(20000), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
}

/* What it has not heard by then nobody tells. */
static void test_those_of_one_that_runs_for_long_are_not(void **state)
{
    (void)state;
    begin_beside_new_speaker(60);
    assert_int_equal(place(0), LEASE_EUNKNOWN);
    assert_int_equal(fake_owner_asked(&far, MESSAGE_FETCH), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        peered(test_a_peer_tells_the_owner),
        peered(test_a_dead_peer_is_no_owner),
        peered(test_the_peers_of_a_new_speaker_are_asked),
        peered(test_also_where_it_names_no_owner_yet),
        peered(test_those_of_one_that_runs_for_long_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
