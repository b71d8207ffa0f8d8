/* Placements of one host at the providers of another: real agents, their books, and what becomes of leases
 * when an owner dies and comes back. */
#define _GNU_SOURCE
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/lib/client.h"
#include "tests/lib/fleet_stage.h"
#include "tests/lib/slotserver.h"

static struct fleet_host *z4, *m5, *lap;
static lease_agent_t *agent;
static struct lease lease;
static struct lease_verdict verdict;

/* z4 and m5 own a provider each, lap has none. */
static int set_up(void **state)
{
    if (stage_set_up(state) < 0)
        return -1;
    fleet_stage_reset();
    z4 = fleet_add("z4", "far=static:2,own=yes", NULL);
    m5 = fleet_add("m5", "near=static:1,own=yes", z4);
    lap = fleet_add("lap", NULL, z4);
    fleet_await_owner(lap, "far", "z4", "live");
    fleet_await_owner(lap, "near", "m5", "live");
    fleet_await_owner(m5, "far", "z4", "live");
    fleet_await_owner(z4, "near", "m5", "live");
    agent = fleet_client(lap);
    return 0;
}

static int tear_down(void **state)
{
    lease_agent_close(&agent);
    return stage_tear_down(state);
}

#define played(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static int place(lease_agent_t *from, const char *provider, const struct lease_request *request)
{
    memset(&lease, 0, sizeof lease);
    return lease_place(from, &provider, 1, request, &lease, &verdict);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* What differs from host to host, and from one moment to the next. */
static void drop_times(json_t *value)
{
    static const char *const passing[] = {"heard_ms", "age_ms", "age_secs", "dispatched_secs",
                                          "left_ms",  "for_ms", "idle_secs"};
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_array(value)) {
        json_array_foreach(value, i, member) drop_times(member);
        return;
    }
    for (i = 0; i < sizeof passing / sizeof passing[0]; i++)
        json_object_del(value, passing[i]);
    json_object_foreach(value, key, member) drop_times(member);
}

/* The provider as this host sees it, to be freed. */
static char *view_of(const struct fleet_host *host, const char *provider)
{
    lease_agent_t *client = fleet_client(host);
    struct lease_fleet *fleet;
    char *found = NULL;
    assert_int_equal(lease_fleet(client, &fleet), 0);
    char *text = lease_fleet_json(fleet);
    json_t *object = json_loads(text, 0, NULL), *entry;
    size_t i;
    json_array_foreach(json_object_get(object, "providers"), i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "provider")), provider) != 0)
            continue;
        drop_times(entry);
        found = json_dumps(entry, JSON_SORT_KEYS | JSON_COMPACT);
    }
    json_decref(object);
    free(text);
    lease_fleet_free(&fleet);
    lease_agent_close(&client);
    return found;
}

struct views {
    const char *provider;
    char said[2][4096];
};

static bool views_are_equal(void *arg)
{
    struct views *views = arg;
    struct fleet_host *const hosts[] = {z4, m5, lap};
    char *seen[3];
    bool equal = true;
    for (int i = 0; i < 3; i++)
        seen[i] = view_of(hosts[i], views->provider);
    for (int i = 1; i < 3; i++)
        equal = equal && seen[0] && seen[i] && strcmp(seen[0], seen[i]) == 0;
    for (int i = 0; i < 2 && seen[i]; i++)
        snprintf(views->said[i], sizeof views->said[i], "%s", seen[i]);
    for (int i = 0; i < 3; i++)
        free(seen[i]);
    return equal;
}

static void await_equal_views(const char *provider)
{
    static struct views views;
    views.provider = provider;
    if (!eventually(views_are_equal, &views))
        fail_msg("views differ:\n%s\n%s", views.said[0], views.said[1]);
}

/* How a lease looks from a host: NULL, or "held", "dispatched". */
static const char *state_at(lease_agent_t *client, const char *id, enum lease_reach *reach)
{
    static char text[16];
    struct lease_fleet *fleet;
    text[0] = '\0';
    assert_int_equal(lease_fleet(client, &fleet), 0);
    for (uint32_t i = 0; i < fleet->lease_count; i++)
        if (strcmp(fleet->leases[i].id, id) == 0) {
            memcpy(text, fleet->leases[i].state, sizeof text);
            *reach = fleet->leases[i].reach;
        }
    lease_fleet_free(&fleet);
    return text[0] ? text : NULL;
}

struct known {
    lease_agent_t *client;
    const char *id;
    bool wanted;
};

static bool is_known(void *arg)
{
    struct known *known = arg;
    enum lease_reach reach = LEASE_REACH_NONE;
    const char *is = state_at(known->client, known->id, &reach);
    return (is && strcmp(is, "dispatched") == 0 && reach == LEASE_REACH_FLEET) == known->wanted;
}

static void await_known(lease_agent_t *client, const char *id, bool wanted)
{
    struct known known = {client, id, wanted};
    assert_true(eventually(is_known, &known));
}

/* ---- while all are well ---------------------------------------------------------------------- */

static void test_a_lease_is_seen_by_all(void **state)
{
    (void)state;
    lease_agent_t *at_m5 = fleet_client(m5);
    assert_int_equal(place(agent, "far", NULL), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(lease.reach, LEASE_REACH_FLEET);
    assert_true(lease.token > 0);
    await_known(at_m5, lease.id, true);
    await_equal_views("far");
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    await_known(at_m5, lease.id, false);
    await_equal_views("far");
    await_equal_views("near");
    lease_agent_close(&at_m5);
}

static void test_two_slots_are_two(void **state)
{
    (void)state;
    struct lease first, second;
    lease_agent_t *at_m5 = fleet_client(m5), *at_z4 = fleet_client(z4);
    assert_int_equal(place(agent, "far", NULL), 0);
    first = lease;
    assert_int_equal(place(at_m5, "far", NULL), 0);
    second = lease;
    assert_true(second.token > first.token);
    assert_int_equal(place(at_z4, "far", NULL), LEASE_EBUSY);
    assert_int_equal(place(agent, "far", NULL), LEASE_EBUSY);
    assert_int_equal(lease_release(at_m5, second.id, 0), 0);
    assert_int_equal(place(at_z4, "far", NULL), 0);
    lease_agent_close(&at_m5);
    lease_agent_close(&at_z4); /* gives it back */
    assert_int_equal(lease_release(agent, first.id, 0), 0);
    await_equal_views("far");
}

static void test_the_next_candidate_has_room(void **state)
{
    (void)state;
    const char *const both[] = {"near", "far"};
    struct lease first;
    assert_int_equal(lease_place(agent, both, 2, NULL, &first, &verdict), 0);
    assert_string_equal(first.provider, "near");
    assert_int_equal(lease_place(agent, both, 2, NULL, &lease, &verdict), 0);
    assert_string_equal(lease.provider, "far");
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
}

static bool is_waiting(void *client)
{
    struct lease_view view;
    return stage_look(client, "near", &view) && view.waiting == 1;
}

static void *give_back(void *arg)
{
    lease_agent_t *at_m5 = arg;
    assert_true(eventually(is_waiting, at_m5));
    assert_int_equal(lease_release(at_m5, lease.id, 0), 0);
    return NULL;
}

static void test_waits_in_the_owners_queue(void **state)
{
    (void)state;
    pthread_t thread;
    struct lease mine;
    const char *const both[] = {"near", "nowhere"};
    struct lease_request request = {.size = sizeof request, .wait_ms = 20000};
    lease_agent_t *at_m5 = fleet_client(m5);
    assert_int_equal(place(at_m5, "near", NULL), 0);
    pthread_create(&thread, NULL, give_back, at_m5);
    assert_int_equal(lease_place(agent, both, 2, &request, &mine, &verdict), 0);
    pthread_join(thread, NULL);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_true(mine.dispatched);
    lease_agent_close(&at_m5);
}

static bool has_passed(void *until)
{
    return test_now_ns() >= *(int64_t *)until;
}

static void test_it_lives_by_renewal(void **state)
{
    (void)state;
    struct lease_request request = {.size = sizeof request, .ttl_ms = 1000};
    struct lease_event event;
    lease_agent_t *at_z4 = fleet_client(z4);
    assert_int_equal(place(agent, "far", &request), 0);
    int64_t until = test_now_ns() + INT64_C(3000000000);
    assert_true(eventually(has_passed, &until));
    assert_int_equal(lease_event_next(agent, &event), 0);
    assert_int_equal(event.kind, LEASE_EVENT_NONE);
    await_known(at_z4, lease.id, true);

    /* by force, from the owner's host: the holder hears of it, and takes another one */
    assert_int_equal(lease_release(at_z4, lease.id, LEASE_FORCE), 0);
    do {
        assert_int_equal(lease_event_next(agent, &event), 0);
    } while (event.kind == LEASE_EVENT_NONE);
    assert_string_equal(event.id, lease.id);
    struct lease fresh;
    request.running = lease.id;
    assert_int_equal(lease_acquire(agent, "far", &request, &fresh, &verdict), 0);
    assert_true(fresh.dispatched);
    assert_int_equal(fresh.reach, LEASE_REACH_FLEET);
    await_known(at_z4, fresh.id, true);
    lease_agent_close(&at_z4);
}

static int hold_and_die(int index)
{
    (void)index;
    lease_agent_t *client = fleet_client(lap);
    const char *far = "far";
    must(client);
    must(lease_place(client, &far, 1, NULL, &lease, &verdict) == 0);
    atomic_store(&board->step, 1);
    pause();
    return 0;
}

static bool nothing_is_leased(void *client)
{
    struct lease_view view;
    return stage_look(client, "far", &view) && view.dispatched == 0;
}

static void test_a_holder_dies(void **state)
{
    (void)state;
    lease_agent_t *at_z4 = fleet_client(z4);
    pid_t holder = stage_play(hold_and_die, 0);
    assert_true(stage_await(&board->step, 1));
    stage_kill(holder);
    int64_t began = test_now_ns();
    assert_true(eventually(nothing_is_leased, at_z4)); /* long before its 30 s are over */
    print_message("the owner knew after %lld ms\n", (long long)((test_now_ns() - began) / 1000000));
    lease_agent_close(&at_z4);
}

/* ---- when the owner dies --------------------------------------------------------------------- */

static bool is_stale(void *arg)
{
    struct lease_view *view = arg;
    return stage_look(agent, "far", view) && strcmp(view->state, "stale") == 0;
}

static void test_an_owner_dies_and_comes_back(void **state)
{
    (void)state;
    struct lease before, below;
    struct lease_event event;
    assert_int_equal(place(agent, "far", NULL), 0);
    before = lease;
    stage_kill(z4->pid);

    /* what it has named stands, what is asked now stands on less */
    int64_t began = test_now_ns();
    assert_int_equal(place(agent, "far", NULL), 0);
    assert_true(test_now_ns() - began < stage_patience(1500) * 1000000);
    below = lease;
    assert_int_equal(verdict.basis, LEASE_BASIS_HOST);
    assert_int_equal(below.token, 0);
    assert_int_equal(below.reach, LEASE_REACH_HOST);
    assert_int_equal(place(agent, "far", NULL), LEASE_EBUSY); /* both are known here */
    fleet_await_owner(lap, "far", "z4", "stale");
    struct lease_view view;
    assert_true(
        eventually(is_stale, &view)); /* the client reads the file of its speaker in its own time */
    assert_int_equal(view.available, -1);

    fleet_start(z4);
    fleet_await_owner(lap, "far", "z4", "live");
    lease_agent_t *at_z4 = fleet_client(z4);
    await_known(at_z4, below.id, true);
    await_known(at_z4, before.id, true);
    assert_int_equal(lease_event_next(agent, &event), 0);
    assert_int_equal(event.kind, LEASE_EVENT_NONE);
    assert_int_equal(place(at_z4, "far", NULL), LEASE_EBUSY);
    await_equal_views("far");
    assert_int_equal(lease_release(agent, before.id, 0), 0);
    assert_int_equal(lease_release(agent, below.id, 0), 0);
    assert_true(eventually(nothing_is_leased, at_z4));
    assert_int_equal(place(agent, "far", NULL), 0);
    assert_true(lease.token > before.token);
    lease_agent_close(&at_z4);
}

/* ---- below a silent owner -------------------------------------------------------------------- */

static lease_agent_t *client_that_declares(const struct fleet_host *host, const char *provider)
{
    lease_agent_t *client = NULL;
    struct lease_options options = {.size = sizeof options,
                                    .directory = host->directory,
                                    .host = host->name,
                                    .providers = &provider,
                                    .provider_count = 1,
                                    .flags = LEASE_OPEN_CLIENT};
    assert_int_equal(lease_agent_open(&options, &client, NULL, 0), 0);
    return client;
}

/* Who knows where the server is reads it; who does not has leases alone to go by, and says so. */
static void test_a_server_is_read_where_it_is_known(void **state)
{
    (void)state;
    char owns[128], knows[128];
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.http_threads = 50;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    unsigned port = slotserver_port(server);
    snprintf(owns, sizeof owns, "srv=llama.cpp+http://127.0.0.1:%u,own=yes", port);
    snprintf(knows, sizeof knows, "srv=llama.cpp+http://127.0.0.1:%u,own=no", port);
    struct fleet_host *s1 = fleet_add("s1", owns, z4);
    fleet_await_owner(lap, "srv", "s1", "live");
    lease_agent_t *knowing = client_that_declares(lap, knows);
    assert_int_equal(place(knowing, "srv", NULL), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    assert_int_equal(lease_release(knowing, lease.id, 0), 0);
    stage_kill(s1->pid);

    assert_int_equal(place(knowing, "srv", NULL), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_READING);
    assert_int_equal(lease.token, 0);
    assert_int_equal(lease.reach, LEASE_REACH_HOST);
    struct lease read = lease;
    assert_int_equal(place(agent, "srv", NULL), LEASE_EBUSY);
    assert_int_equal(lease_release(knowing, read.id, 0), 0);
    int hostly = place(agent, "srv", NULL);
    if (hostly < 0)
        fail_msg("%d: %s", hostly, verdict.reason);
    assert_int_equal(verdict.basis, LEASE_BASIS_HOST);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);

    slotserver_stop(server);
    int64_t began = test_now_ns();
    assert_int_equal(place(knowing, "srv", NULL), LEASE_EBUSY);
    assert_int_equal(verdict.go, 0);
    assert_true(test_now_ns() - began < stage_patience(1500) * 1000000);
    lease_agent_close(&knowing);
}

static void await_strangers(const char *provider, int64_t wanted)
{
    int64_t end = test_now_ns() + stage_patience(10000) * 1000000;
    struct lease_view view = {.strangers = -1};
    while (!stage_look(agent, provider, &view) || view.strangers != wanted) {
        if (test_now_ns() > end)
            fail_msg("%s: %lld strangers, %s", provider, (long long)view.strangers, view.detail);
        client_pause_ms(50);
    }
}

/* Its owner leaves an idle server alone, so that it can fall asleep, as long as nobody looks: not at home, and
 * not here. */
static void test_who_looks_from_afar_is_shown_strangers(void **state)
{
    (void)state;
    char owns[128];
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.slots = 2;
    options.tps = 10;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    unsigned port = slotserver_port(server);
    snprintf(owns, sizeof owns, "srv=llama.cpp+http://127.0.0.1:%u,own=yes", port);
    fleet_add("s1", owns, z4);
    fleet_await_owner(lap, "srv", "s1", "live");
    int work = client_begin(port, "/completion", "{\"prompt\":\"a\",\"n_predict\":600}");
    await_strangers("srv", 1);
    client_leave(work);
    await_strangers("srv", 0);
    unsigned long asked = slotserver_asked(server, "/slots");
    assert_in_range(asked, 2, 30); /* as often as for who looks at home */
    slotserver_stop(server);
}

static bool is_seen_at_work(void *provider)
{
    struct lease_view view;
    return stage_look(agent, provider, &view) && view.dispatched == 1 && view.in_flight == 1;
}

static bool has_ended(void *provider)
{
    struct lease_view view;
    return stage_look(agent, provider, &view) && view.lease_count == 0 &&
           strcmp(view.state, "live") != 0;
}

/* By our own clock the lease has ended and its work was seen; its holder goes on all the same, for whom the
 * owner is the next process. */
static void test_nothing_is_an_orphan_by_old_readings(void **state)
{
    (void)state;
    char owns[128], provider[] = "srv";
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.slots = 2;
    options.tps = 10;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    unsigned port = slotserver_port(server);
    snprintf(owns, sizeof owns, "srv=llama.cpp+http://127.0.0.1:%u,own=yes", port);
    struct fleet_host *s1 = fleet_add("s1", owns, z4);
    fleet_await_owner(lap, provider, "s1", "live");
    lease_agent_t *there = fleet_client(s1);
    struct lease_request request = {.size = sizeof request, .ttl_ms = 3000};
    assert_int_equal(place(there, provider, &request), 0);
    int work = client_begin(port, "/completion", "{\"prompt\":\"a\",\"n_predict\":6000}");
    assert_true(eventually(is_seen_at_work, provider));
    stage_kill(s1->pid);

    assert_true(eventually(has_ended, provider));
    struct lease_view view;
    assert_true(stage_look(agent, provider, &view));
    assert_int_equal(view.work_count, 0);
    assert_int_equal(view.orphans, 0);
    assert_int_equal(view.available, -1);
    client_leave(work);
    lease_agent_close(&there);
    slotserver_stop(server);
}

/* ---- a host that has only been told of a peer ------------------------------------------------ */

static void test_only_a_peer_is_known(void **state)
{
    (void)state;
    const char *peers[] = {m5->listen}, *far = "far";
    char directory[TEMP_DIR_MAX + 16];
    lease_agent_t *third = NULL;
    snprintf(directory, sizeof directory, "%s/third", stage_dir);
    struct lease_options options = {.size = sizeof options,
                                    .directory = directory,
                                    .host = "third",
                                    .flags = LEASE_OPEN_CLIENT,
                                    .peers = peers,
                                    .peer_count = 1};
    assert_int_equal(lease_agent_open(&options, &third, NULL, 0), 0);
    assert_int_equal(lease_place(third, &far, 1, NULL, &lease, &verdict), 0);
    assert_int_equal(verdict.basis, LEASE_BASIS_OWNER);
    await_known(agent, lease.id, true);
    struct lease_view view;
    assert_int_equal(lease_read(third, 0), 0);
    assert_true(stage_look(third, "far", &view));
    assert_int_equal(view.dispatched, 1);
    assert_string_equal(view.owner, "z4");
    lease_agent_close(&third);
    await_known(agent, lease.id, false);
}

/* Whoever was asked for the first candidate, and knew it, need not know the second. */
static void test_only_a_peer_of_the_first_is_known(void **state)
{
    (void)state;
    const char *peers[] = {m5->listen}, *both[] = {"near", "far"};
    char directory[TEMP_DIR_MAX + 16];
    lease_agent_t *third = NULL;
    struct lease full;
    assert_int_equal(place(agent, "near", NULL), 0);
    full = lease;
    snprintf(directory, sizeof directory, "%s/third", stage_dir);
    struct lease_options options = {.size = sizeof options,
                                    .directory = directory,
                                    .host = "third",
                                    .flags = LEASE_OPEN_CLIENT,
                                    .peers = peers,
                                    .peer_count = 1};
    for (int again = 0; again < 3; again++) { /* with and without books of an earlier time */
        assert_int_equal(lease_agent_open(&options, &third, NULL, 0), 0);
        int error = lease_place(third, both, 2, NULL, &lease, &verdict);
        if (error < 0)
            fail_msg("%d: %s: %s", again, lease_strerror(error), verdict.reason);
        assert_string_equal(lease.provider, "far");
        lease_agent_close(&third);
    }
    assert_int_equal(lease_release(agent, full.id, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        played(test_a_lease_is_seen_by_all),
        played(test_two_slots_are_two),
        played(test_the_next_candidate_has_room),
        played(test_waits_in_the_owners_queue),
        played(test_it_lives_by_renewal),
        played(test_a_holder_dies),
        played(test_an_owner_dies_and_comes_back),
        played(test_a_server_is_read_where_it_is_known),
        played(test_who_looks_from_afar_is_shown_strangers),
        played(test_nothing_is_an_orphan_by_old_readings),
        played(test_only_a_peer_is_known),
        played(test_only_a_peer_of_the_first_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
