/* Asking an owner on another host: what it says counts, its silence leads down the ladder, and what was
 * decided without it is told to it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "agent/routes.h"
#include "broker/host_clock.h"
#include "tests/lib/fake_owner.h"
#include "tests/lib/host_stage.h"

static struct fake_owner far, near;
static lease_agent_t *agent;

/* ---- the stage ------------------------------------------------------------------------------- */

struct known {
    const char *provider, *owner, *endpoint, *url;
};

/* As the speaker of this host would have left it just now. */
static void write_routes(const struct known *known, uint32_t count)
{
    struct routes routes = {.route_count = count};
    routes.routes = calloc(count, sizeof *routes.routes);
    for (uint32_t i = 0; i < count; i++) {
        struct route *route = &routes.routes[i];
        snprintf(route->provider, sizeof route->provider, "%s", known[i].provider);
        snprintf(route->owner, sizeof route->owner, "%s", known[i].owner);
        snprintf(route->endpoint, sizeof route->endpoint, "%s", known[i].endpoint);
        snprintf(route->url, sizeof route->url, "%s", known[i].url ? known[i].url : "");
        route->epoch = FAKE_EPOCH;
        route->heard_ns = host_now_ns();
    }
    assert_int_equal(routes_write(stage_dir, &routes, 0600), 0);
    free(routes.routes);
}

static void open_agent(const char *const *providers, size_t count)
{
    struct lease_options options = {.size = sizeof options,
                                    .host = "here",
                                    .providers = providers,
                                    .provider_count = count,
                                    .flags = LEASE_OPEN_CLIENT};
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
}

static int set_up(void **state)
{
    if (stage_set_up(state) < 0 || !fake_owner_start(&far, "far-host") ||
        !fake_owner_start(&near, "near-host"))
        return -1;
    struct known known[] = {{"far", "far-host", far.endpoint, NULL},
                            {"near", "near-host", near.endpoint, NULL}};
    write_routes(known, 2);
    open_agent(NULL, 0);
    return 0;
}

static int tear_down(void **state)
{
    lease_agent_close(&agent);
    fake_owner_stop(&far);
    fake_owner_stop(&near);
    return stage_tear_down(state);
}

#define laddered(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const char *const far_only[] = {"far"};
static struct lease lease;
static struct lease_verdict verdict;

/* With patience, where nobody is silent: what is asked for must come, however busy the machine. */
static int place(const struct lease_request *request)
{
    static const struct lease_request patient = {.size = sizeof patient, .timeout_ms = 20000};
    memset(&lease, 0, sizeof lease);
    if (!request && far.manner != FAKE_SILENT && far.manner != FAKE_LOSES)
        request = &patient;
    return lease_place(agent, far_only, 1, request, &lease, &verdict);
}

static struct lease_request asking(void)
{
    return (struct lease_request){.size = sizeof(struct lease_request)};
}

/* How far the lease is known by a view, NONE: it is not there. */
static enum lease_reach reach_in_view(const char *id, int64_t *token)
{
    struct lease_fleet *fleet;
    enum lease_reach reach = LEASE_REACH_NONE;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    for (uint32_t i = 0; i < fleet->lease_count; i++)
        if (strcmp(fleet->leases[i].id, id) == 0) {
            reach = fleet->leases[i].reach;
            *token = (int64_t)fleet->leases[i].token;
        }
    lease_fleet_free(&fleet);
    return reach;
}

static bool was_released(void *id)
{
    struct message last;
    fake_owner_last(&far, MESSAGE_RELEASE, &last);
    return strcmp(last.lease, id) == 0;
}

/* ---- the owner answers ----------------------------------------------------------------------- */

static void test_placed_in_one_round_trip(void **state)
{
    (void)state;
    int64_t token = 0;
    assert_int_equal(place(NULL), 0);
    assert_int_equal(fake_owner_asked(&far, MESSAGE_VERIFY), 1);
    assert_int_equal(fake_owner_asked(&far, MESSAGE_ACQUIRE), 0);
    assert_int_equal(verdict.go, 1);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(lease.reach, LEASE_REACH_FLEET);
    assert_true(lease.dispatched && lease.token >> 20 == FAKE_EPOCH);
    assert_true(lease.left_ms > 20000 && lease.left_ms <= 30000);
    assert_int_equal(reach_in_view(lease.id, &token), LEASE_REACH_FLEET);
    assert_true(token == (int64_t)lease.token);

    struct message asked;
    fake_owner_last(&far, MESSAGE_VERIFY, &asked);
    assert_string_equal(asked.host, "here");
    assert_int_equal(asked.holder_pid, (uint32_t)getpid());
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_true(was_released(lease.id));
    assert_int_equal(reach_in_view(lease.id, &token), LEASE_REACH_NONE);
}

static void test_acquired_then_verified(void **state)
{
    (void)state;
    assert_int_equal(lease_acquire(agent, "far", NULL, &lease, &verdict), 0);
    assert_int_equal(lease.reach, LEASE_REACH_FLEET);
    assert_false(lease.dispatched);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, &verdict), 0);
    assert_true(lease.dispatched && verdict.go);
    assert_int_equal(lease_renew(agent, lease.id, 0, &lease), 0);
    assert_int_equal(lease.reach, LEASE_REACH_FLEET);
    far.manner = FAKE_HAS_ENDED;
    assert_int_equal(lease_renew(agent, lease.id, 0, &lease), LEASE_EGONE);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, &verdict), LEASE_EGONE);
}

/* The state that comes with a refusal mends the view, and what it shows needs no second question. */
static void test_a_refusal_mends_the_view(void **state)
{
    (void)state;
    struct lease_view view;
    far.manner = FAKE_REFUSES;
    assert_int_equal(place(NULL), LEASE_EBUSY);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_non_null(strstr(verdict.reason, "by the book of the owner"));
    assert_true(stage_look(agent, "far", &view));
    assert_int_equal(view.dispatched, 1);
    assert_int_equal(view.available, 0);
    assert_int_equal(view.slots_total, 1);
    assert_string_equal(view.owner, "far-host");
    assert_string_equal(view.state, "live");
    assert_int_equal(view.reach, LEASE_REACH_FLEET);
    uint32_t asked = fake_owner_asked(&far, MESSAGE_VERIFY);
    assert_int_equal(place(NULL), LEASE_EBUSY);
    assert_int_equal(fake_owner_asked(&far, MESSAGE_VERIFY), asked);
    assert_non_null(strstr(verdict.reason, "somebody on third"));
}

static void test_somebody_else_owns_it(void **state)
{
    (void)state;
    far.manner = FAKE_ELSEWHERE;
    snprintf(far.moved_to, sizeof far.moved_to, "%s", near.endpoint);
    assert_int_equal(place(NULL), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(fake_owner_asked(&near, MESSAGE_VERIFY), 1);
}

/* A lease that ends between acquire and verify is no slot, which is all that who places wants to know. */
static void test_a_lease_that_ends_at_once_is_no_slot(void **state)
{
    (void)state;
    const char *const both[] = {"far", "near"};
    struct lease_request wish = asking();
    far.manner = FAKE_HAS_ENDED;
    assert_int_equal(place(NULL), LEASE_EBUSY);
    wish.timeout_ms = 20000;
    assert_int_equal(lease_place(agent, both, 2, &wish, &lease, &verdict), 0);
    assert_string_equal(lease.provider, "near");
    wish.wait_ms = 100;
    assert_int_equal(place(&wish), LEASE_EBUSY);
}

static void test_the_second_candidate_has_room(void **state)
{
    (void)state;
    const char *const both[] = {"far", "near"};
    far.manner = FAKE_REFUSES;
    assert_int_equal(lease_place(agent, both, 2, NULL, &lease, &verdict), 0);
    assert_string_equal(lease.provider, "near");
}

static void test_a_lease_of_another_host_takes_force(void **state)
{
    (void)state;
    far.manner = FAKE_REFUSES;
    assert_int_equal(place(NULL), LEASE_EBUSY); /* brings the state with somebody's lease */
    char id[LEASE_ID_SIZE] = "";
    struct lease_fleet *fleet;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    assert_int_equal(fleet->lease_count, 1);
    memcpy(id, fleet->leases[0].id, sizeof id);
    lease_fleet_free(&fleet);
    far.manner = FAKE_GRANTS;
    assert_int_equal(lease_release(agent, id, 0), LEASE_EPERM);
    assert_int_equal(fake_owner_asked(&far, MESSAGE_RELEASE), 0);
    assert_int_equal(lease_release(agent, id, LEASE_FORCE), 0);
    assert_true(was_released(id));
}

/* ---- the owner is silent --------------------------------------------------------------------- */

static void test_below_a_silent_owner(void **state)
{
    (void)state;
    int64_t token = 1, began = test_now_ns();
    far.manner = FAKE_SILENT;
    assert_int_equal(place(NULL), 0);
    assert_true(test_now_ns() - began < stage_patience(1500) * 1000000);
    assert_int_equal(verdict.basis, LEASE_BASIS_HOST);
    assert_int_equal(lease.reach, LEASE_REACH_HOST);
    assert_int_equal(lease.token, 0);
    assert_int_equal(reach_in_view(lease.id, &token), LEASE_REACH_HOST);
    assert_int_equal(token, 0);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
}

static void test_an_owner_is_demanded(void **state)
{
    (void)state;
    struct lease_request request = asking();
    request.require = LEASE_BASIS_OWNER;
    assert_int_equal(lease_acquire(agent, "far", NULL, &lease, &verdict), 0);
    far.manner = FAKE_SILENT;
    assert_int_equal(lease_verify(agent, lease.id, &request, &lease, &verdict), LEASE_EBASIS);
    assert_int_equal(verdict.go, 0);
    far.manner = FAKE_GRANTS;
    assert_true(eventually(was_released, lease.id)); /* by the keeper, when it answers again */
}

/* Nobody listens at that port, and nobody owns the servers now. */
static void test_off_the_network_nothing_goes(void **state)
{
    (void)state;
    lease_agent_close(&agent);
    const char *const declared[] = {"a=llama.cpp+http://127.0.0.1:1,own=no",
                                    "b=llama.cpp+http://127.0.0.1:1,own=no",
                                    "c=llama.cpp+http://127.0.0.1:1,own=no"};
    const char *const names[] = {"a", "b", "c"};
    struct known known[] = {{"a", "a-host", far.endpoint, NULL},
                            {"b", "b-host", near.endpoint, NULL},
                            {"c", "c-host", "tcp://127.0.0.1:2", NULL}};
    write_routes(known, 3);
    open_agent(declared, 3);
    far.manner = near.manner = FAKE_SILENT;
    for (int i = 0; i < 2; i++) {
        int64_t began = test_now_ns();
        assert_int_equal(lease_place(agent, names, 3, NULL, &lease, &verdict), LEASE_EBUSY);
        int64_t took = (test_now_ns() - began) / 1000000;
        print_message("no after %lld ms: %s\n", (long long)took, verdict.reason);
        assert_true(took <= stage_patience(1500));
        assert_int_equal(verdict.go, 0);
    }
}

static void test_an_owner_that_died_is_no_error(void **state)
{
    (void)state;
    assert_int_equal(place(NULL), 0);
    char first[LEASE_ID_SIZE];
    memcpy(first, lease.id, sizeof first);
    fake_owner_stop(&far);
    int64_t began = test_now_ns();
    assert_int_equal(lease_renew(agent, first, 0, &lease), 0);
    assert_int_equal(lease.reach, LEASE_REACH_HOST);
    assert_int_equal(lease_release(agent, first, 0), 0);
    assert_true(test_now_ns() - began < stage_patience(1500) * 1000000);
}

/* ---- what the keeper does -------------------------------------------------------------------- */

static bool was_renewed(void *id)
{
    struct message last;
    fake_owner_last(&far, MESSAGE_RENEW, &last);
    return strcmp(last.lease, id) == 0;
}

static bool is_lost(void *arg)
{
    struct lease_event *event = arg;
    return lease_event_next(agent, event) == 0 && event->kind == LEASE_EVENT_LOST;
}

static void test_renewed_until_the_owner_ends_it(void **state)
{
    (void)state;
    struct lease_request request = asking();
    struct lease_event event;
    request.timeout_ms = 20000;
    request.ttl_ms = 1500;
    assert_int_equal(place(&request), 0);
    assert_true(eventually(was_renewed, lease.id));
    far.manner = FAKE_HAS_ENDED;
    assert_true(eventually(is_lost, &event));
    assert_string_equal(event.id, lease.id);
    assert_string_equal(event.reason, "the lease expired");

    struct lease fresh;
    struct message asked;
    far.manner = FAKE_GRANTS;
    request.running = lease.id;
    assert_int_equal(lease_acquire(agent, "far", &request, &fresh, &verdict), 0);
    assert_true(fresh.dispatched);
    fake_owner_last(&far, MESSAGE_ACQUIRE, &asked);
    assert_true(asked.running);
    assert_string_equal(asked.former, lease.id);
}

static bool has_passed(void *until)
{
    return test_now_ns() >= *(int64_t *)until;
}

/* Two times to live of silence, and the lease still stands here. */
static void test_silence_is_no_loss(void **state)
{
    (void)state;
    struct lease_request request = asking();
    struct lease_event event;
    int64_t token;
    request.timeout_ms = 20000;
    request.ttl_ms = 1500;
    assert_int_equal(place(&request), 0);
    far.manner = FAKE_SILENT;
    int64_t until = test_now_ns() + 3500 * INT64_C(1000000);
    assert_true(eventually(has_passed, &until));
    assert_false(is_lost(&event));
    assert_int_equal(reach_in_view(lease.id, &token), LEASE_REACH_FLEET);
    far.manner = FAKE_GRANTS;
    assert_true(eventually(was_renewed, lease.id));
}

static bool was_told_running(void *id)
{
    struct message last;
    fake_owner_last(&far, MESSAGE_ACQUIRE, &last);
    return last.running && strcmp(last.lease, id) == 0;
}

static bool is_named(void *id)
{
    int64_t token;
    return reach_in_view(id, &token) == LEASE_REACH_FLEET && token != 0;
}

static void test_what_runs_is_told_when_the_owner_is_back(void **state)
{
    (void)state;
    far.manner = FAKE_SILENT;
    assert_int_equal(place(NULL), 0);
    assert_int_equal(lease.reach, LEASE_REACH_HOST);
    far.manner = FAKE_GRANTS;
    assert_true(eventually(was_told_running, lease.id));
    assert_true(eventually(is_named, lease.id));
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_true(was_released(lease.id));
}

static int64_t left_in_view(const char *id)
{
    struct lease_fleet *fleet;
    int64_t left_ms = -1;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    for (uint32_t i = 0; i < fleet->lease_count; i++)
        if (strcmp(fleet->leases[i].id, id) == 0)
            left_ms = fleet->leases[i].left_ms;
    lease_fleet_free(&fleet);
    return left_ms;
}

/* An owner may answer what it was asked before as it did then: time runs since the first sending. */
static void test_time_runs_since_it_was_told_first(void **state)
{
    (void)state;
    struct message first, last;
    struct lease_request request = asking();
    request.ttl_ms = 40000;
    far.manner = FAKE_SILENT;
    assert_int_equal(place(&request), 0);
    far.manner = FAKE_LOSES_RUN;
    assert_true(eventually(was_told_running, lease.id));
    int64_t told = test_now_ns(), until = told + 1500 * INT64_C(1000000);
    fake_owner_last(&far, MESSAGE_ACQUIRE, &first);
    assert_true(eventually(has_passed, &until));
    far.manner = FAKE_GRANTS;
    assert_true(eventually(is_named, lease.id));
    fake_owner_last(&far, MESSAGE_ACQUIRE, &last);
    assert_memory_equal(last.req, first.req, sizeof first.req);
    int64_t most_ms = 40000 - (test_now_ns() - told) / 1000000;
    assert_in_range(left_in_view(lease.id), 1, most_ms + 50);
    assert_true(most_ms < 38600);
}

/* But not since one whose grant has ended by itself: that is another question. */
static void test_after_long_silence_it_is_told_anew(void **state)
{
    (void)state;
    struct message first, last;
    struct lease_request request = asking();
    request.ttl_ms = 2000;
    far.manner = FAKE_SILENT;
    assert_int_equal(place(&request), 0);
    far.manner = FAKE_LOSES_RUN;
    assert_true(eventually(was_told_running, lease.id));
    fake_owner_last(&far, MESSAGE_ACQUIRE, &first);
    int64_t until = test_now_ns() + 2500 * INT64_C(1000000);
    assert_true(eventually(has_passed, &until));
    far.manner = FAKE_GRANTS;
    assert_true(eventually(is_named, lease.id));
    fake_owner_last(&far, MESSAGE_ACQUIRE, &last);
    assert_memory_not_equal(last.req, first.req, sizeof first.req);
}

static void test_a_release_is_told_when_the_owner_is_back(void **state)
{
    (void)state;
    int64_t token, began = test_now_ns();
    assert_int_equal(place(NULL), 0);
    far.manner = FAKE_SILENT;
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_true(test_now_ns() - began < stage_patience(1000) * 1000000);
    assert_int_equal(reach_in_view(lease.id, &token), LEASE_REACH_NONE);
    far.manner = FAKE_GRANTS;
    assert_true(eventually(was_released, lease.id));
}

/* What was granted to nobody is given back: another one could have had it. */
static void test_a_reply_that_was_lost_is_undone(void **state)
{
    (void)state;
    far.manner = FAKE_LOSES;
    assert_int_equal(place(NULL), 0);
    assert_int_equal(lease.reach, LEASE_REACH_HOST);
    assert_string_not_equal(far.lost_lease, "");
    assert_string_not_equal(far.lost_lease, lease.id);
    far.manner = FAKE_GRANTS;
    assert_true(eventually(was_released, far.lost_lease));
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct waiter {
    pthread_t thread;
    const char *const *names;
    size_t count;
    struct lease lease;
    struct lease_verdict verdict;
    int result;
};

static void *wait_for_a_slot(void *arg)
{
    struct waiter *waiter = arg;
    struct lease_request request = asking();
    request.wait_ms = 20000;
    waiter->result = lease_place(agent, waiter->names, waiter->count, &request, &waiter->lease,
                                 &waiter->verdict);
    return NULL;
}

static bool waits_at(void *owner)
{
    struct message last;
    fake_owner_last(owner, MESSAGE_ACQUIRE, &last);
    return last.wait_ms > 0;
}

static void test_stands_in_every_queue(void **state)
{
    (void)state;
    static const char *const both[] = {"far", "near"};
    struct waiter waiter = {.names = both, .count = 2};
    struct message waited;
    far.manner = near.manner = FAKE_QUEUES;
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_a_slot, &waiter), 0);
    assert_true(eventually(waits_at, &far) && eventually(waits_at, &near));
    fake_owner_last(&far, MESSAGE_ACQUIRE, &waited);
    near.manner = FAKE_GRANTS;
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.result, 0);
    assert_string_equal(waiter.lease.provider, "near");
    assert_true(waiter.lease.dispatched);
    assert_true(was_released(waited.lease)); /* left before dispatch */
}

static void test_an_interrupt_gives_the_place_up(void **state)
{
    (void)state;
    struct waiter waiter = {.names = far_only, .count = 1};
    struct message waited;
    far.manner = FAKE_QUEUES;
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_a_slot, &waiter), 0);
    assert_true(eventually(waits_at, &far));
    fake_owner_last(&far, MESSAGE_ACQUIRE, &waited);
    lease_interrupt(agent);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.result, LEASE_ECLOSED);
    assert_true(eventually(was_released, waited.lease));
}

/* The owner is started anew while somebody stands in its queue: the place is asked for again. */
static void test_an_owner_restarts_under_its_queue(void **state)
{
    (void)state;
    struct waiter waiter = {.names = far_only, .count = 1};
    char endpoint[128];
    far.manner = FAKE_QUEUES;
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_a_slot, &waiter), 0);
    assert_true(eventually(waits_at, &far));
    memcpy(endpoint, far.endpoint, sizeof endpoint);
    fake_owner_stop(&far);
    assert_true(fake_owner_start_at(&far, "far-host", endpoint));
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.result, 0);
    assert_true(waiter.lease.dispatched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        laddered(test_placed_in_one_round_trip),
        laddered(test_acquired_then_verified),
        laddered(test_a_refusal_mends_the_view),
        laddered(test_somebody_else_owns_it),
        laddered(test_a_lease_that_ends_at_once_is_no_slot),
        laddered(test_the_second_candidate_has_room),
        laddered(test_a_lease_of_another_host_takes_force),
        laddered(test_below_a_silent_owner),
        laddered(test_an_owner_is_demanded),
        laddered(test_off_the_network_nothing_goes),
        laddered(test_an_owner_that_died_is_no_error),
        laddered(test_renewed_until_the_owner_ends_it),
        laddered(test_silence_is_no_loss),
        laddered(test_what_runs_is_told_when_the_owner_is_back),
        laddered(test_time_runs_since_it_was_told_first),
        laddered(test_after_long_silence_it_is_told_anew),
        laddered(test_a_release_is_told_when_the_owner_is_back),
        laddered(test_a_reply_that_was_lost_is_undone),
        laddered(test_stands_in_every_queue),
        laddered(test_an_interrupt_gives_the_place_up),
        laddered(test_an_owner_restarts_under_its_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
