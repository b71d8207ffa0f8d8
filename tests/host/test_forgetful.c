/* Holders that live on and forget their lease, and machines that sleep: no lease outlives its
 * limits. The clock is moved; with LEASEHOLD_REAL_TIME=1 it is not, which takes five minutes. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>

#include "broker/host_clock.h"
#include "tests/lib/host_stage.h"
#include "tests/lib/slotserver.h"

#define X       "x=static:1,own=yes"
#define STEP_MS 2000

static int64_t offset_ns;
static bool real_time;

static int64_t now_ms(void)
{
    return host_now_ns() / 1000000;
}

/* The keeper looks four times a second and the speaker at each beat: between two steps both have
 * seen the time that it is. */
static void let_time_pass(void)
{
    if (!real_time) {
        offset_ns += STEP_MS * INT64_C(1000000);
        host_clock_offset(offset_ns);
    }
    usleep(300000);
}

static void expect_lost(lease_agent_t *agent, const char *id)
{
    struct lease_event event;
    struct pollfd ready = {.fd = lease_event_fd(agent), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    assert_int_equal(lease_event_next(agent, &event), 0);
    assert_int_equal(event.kind, LEASE_EVENT_LOST);
    assert_string_equal(event.id, id);
    print_message("lost: %s\n", event.reason);
}

static bool lives(lease_agent_t *agent, const char *id, struct lease_entry *entry)
{
    struct lease_fleet *fleet;
    bool found = false;
    assert_int_equal(lease_fleet(agent, &fleet), 0);
    for (uint32_t i = 0; i < fleet->lease_count && !found; i++)
        if (strcmp(fleet->leases[i].id, id) == 0 && fleet->leases[i].left_ms > 0) {
            found = true;
            *entry = fleet->leases[i];
        }
    lease_fleet_free(&fleet);
    return found;
}

static void test_held_is_gone_after_a_minute(void **state)
{
    (void)state;
    struct lease lease;
    struct lease_entry entry;
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    int64_t began = now_ms();
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    while (lives(agent, lease.id, &entry) && now_ms() - began < 120000)
        let_time_pass();
    int64_t took = now_ms() - began;
    print_message("gone after %.1f s\n", (double)took / 1000);
    assert_in_range(took, 58000, 64000);
    expect_lost(agent, lease.id);
    assert_int_equal(lease_renew(agent, lease.id, 0, NULL), LEASE_EGONE);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    lease_agent_close(&agent);
}

/* A reading may run out of time where the machine is busy, and the server passes for busy then. */
static bool can_be_had(void *agent)
{
    struct lease lease;
    return lease_acquire(agent, "x", NULL, &lease, NULL) == 0;
}

static void test_dispatched_and_idle_is_gone_after_ghost_time(void **state)
{
    (void)state;
    struct slotserver_options options;
    struct lease lease;
    struct lease_entry entry = {.idle_ms = -1};
    char provider[64];
    slotserver_defaults(&options);
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    snprintf(provider, sizeof provider, "x=http://127.0.0.1:%u", slotserver_port(server));
    lease_agent_t *agent = stage_open(provider, 0);
    int64_t began = now_ms(), idle_most = 0;
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, NULL), 0);
    while (lives(agent, lease.id, &entry) && now_ms() - began < 300000) {
        idle_most = entry.idle_ms > idle_most ? entry.idle_ms : idle_most;
        let_time_pass();
    }
    int64_t took = now_ms() - began;
    print_message("idle for %.1f s, gone after %.1f s\n", (double)idle_most / 1000,
                  (double)took / 1000);
    assert_in_range(idle_most, 110000, 155000); /* shown as a ghost meanwhile */
    assert_in_range(took, 120000, 170000);      /* settled, ghost_ms, and the rest of its time */
    expect_lost(agent, lease.id);
    assert_true(eventually(can_be_had, agent));
    lease_agent_close(&agent);
    slotserver_stop(server);
}

static void test_force_ends_it_and_is_in_the_log(void **state)
{
    (void)state;
    struct lease lease;
    char text[4096];
    struct lease_request request = {.size = sizeof request, .label = "forgetful"};
    lease_agent_t *agent = stage_open(X, 0);
    assert_int_equal(lease_acquire(agent, "x", &request, &lease, NULL), 0);
    assert_int_equal(lease_verify(agent, lease.id, NULL, NULL, NULL), 0);
    assert_int_equal(STAGE_RUN(text, LEASE, "run", "x", "--", "true"), 75);
    assert_int_equal(STAGE_RUN(text, LEASE, "release", "--force", lease.id), 0);
    assert_int_equal(STAGE_RUN(text, LEASE, "run", "x", "--", "true"), 0);
    expect_lost(agent, lease.id);
    assert_int_equal(STAGE_RUN(text, LEASE, "log", "x"), 0);
    char *line = strstr(text, "forced");
    assert_non_null(line);
    assert_non_null(strstr(text, "forgetful"));
    lease_agent_close(&agent);
}

/* ---- a machine that slept --------------------------------------------------------------------- */

static void test_leases_have_lapsed_at_wake(void **state)
{
    (void)state;
    struct lease held, dispatched, fresh;
    struct lease_view view;
    lease_agent_t *agent = stage_open("x=static:2,own=yes", 0);
    lease_agent_t *other = stage_open("x=static:2,own=yes", LEASE_OPEN_CLIENT);
    assert_int_equal(lease_acquire(agent, "x", NULL, &held, NULL), 0);
    assert_int_equal(lease_acquire(agent, "x", NULL, &dispatched, NULL), 0);
    assert_int_equal(lease_verify(agent, dispatched.id, NULL, &dispatched, NULL), 0);
    assert_int_equal(lease_acquire(other, "x", NULL, &fresh, NULL), LEASE_EBUSY);

    host_clock_offset(INT64_C(3600000000000));
    assert_int_equal(lease_verify(agent, held.id, NULL, NULL, NULL), LEASE_EGONE);
    assert_int_equal(lease_renew(agent, dispatched.id, 0, NULL), LEASE_EGONE);
    assert_int_equal(lease_acquire(other, "x", NULL, &fresh, NULL), 0);
    assert_int_equal(lease_verify(other, fresh.id, NULL, &fresh, NULL), 0);
    assert_true(fresh.token > dispatched.token);
    assert_true(stage_look(other, "x", &view));
    assert_int_equal(view.leased, 0);
    assert_int_equal(view.dispatched, 1);
    lease_agent_close(&other);
    lease_agent_close(&agent);
}

/* The keeper may be the first to run after the sleep: it must not revive anything. */
static void test_the_keeper_revives_nothing(void **state)
{
    (void)state;
    struct lease lease;
    lease_agent_t *agent = stage_open(X, LEASE_OPEN_CLIENT);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    host_clock_offset(INT64_C(15000000000));
    expect_lost(agent, lease.id);
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    lease_agent_close(&agent);
}

static int rewind_clock(void **state)
{
    offset_ns = 0;
    return stage_set_up(state);
}

#define timed(test) cmocka_unit_test_setup_teardown(test, rewind_clock, stage_tear_down)

int main(void)
{
    real_time = getenv("LEASEHOLD_REAL_TIME") != NULL;
    const struct CMUnitTest tests[] = {
        timed(test_held_is_gone_after_a_minute),
        timed(test_dispatched_and_idle_is_gone_after_ghost_time),
        timed(test_force_ends_it_and_is_in_the_log),
        timed(test_leases_have_lapsed_at_wake),
        timed(test_the_keeper_revives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
