#define _GNU_SOURCE
#include "agent/relay.h"

#include <string.h>
#include <sys/wait.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "agent/mesh.h"
#include "broker/error.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/quiet_fork.h"
#include "tests/lib/temp_dir.h"

#define ANY    "tcp://127.0.0.1:0"
#define AGENTS 8

struct fleet {
    struct relay *relay;
    struct mesh *agents[AGENTS];
    unsigned heard[AGENTS]; /* a bit for each other agent */
    void *context, *pub;    /* a foreign one */
};

static int set_up(void **state)
{
    static struct fleet fleet;
    memset(&fleet, 0, sizeof fleet);
    assert_int_equal(relay_open(ANY, ANY, &fleet.relay), 0);
    for (unsigned i = 0; i < AGENTS; i++) {
        assert_int_equal(mesh_open(NULL, relay_publish_to(fleet.relay), &fleet.agents[i]), 0);
        assert_int_equal(mesh_connect(fleet.agents[i], relay_heard_at(fleet.relay)), 0);
    }
    *state = &fleet;
    return 0;
}

static int tear_down(void **state)
{
    struct fleet *fleet = *state;
    for (unsigned i = 0; i < AGENTS; i++) {
        mesh_close(&fleet->agents[i]);
    }
    relay_close(&fleet->relay);
    assert_null(fleet->relay);
    ipc_close(&fleet->context, &fleet->pub);
    return 0;
}

static void hear(void *arg, const char *topic, const uint8_t *bytes, size_t size)
{
    assert_string_equal(topic, "beat/x");
    assert_int_equal(size, 1);
    *(unsigned *)arg |= 1u << bytes[0];
}

static void turn(struct fleet *fleet)
{
    zmq_pollitem_t item = {.socket = relay_socket(fleet->relay), .events = ZMQ_POLLIN};
    (void)zmq_poll(&item, 1, 1);
    assert_int_equal(relay_run(fleet->relay), 0);
    for (unsigned i = 0; i < AGENTS; i++) {
        assert_int_equal(mesh_run(fleet->agents[i], hear, &fleet->heard[i]), 0);
    }
}

static void all_hear_all(struct fleet *fleet)
{
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    memset(fleet->heard, 0, sizeof fleet->heard);
    for (unsigned done = 0; done < AGENTS;) {
        done = 0;
        assert_true(test_now_ns() < deadline);
        for (uint8_t i = 0; i < AGENTS; i++) {
            assert_int_equal(mesh_publish(fleet->agents[i], "beat/x", &i, 1), 0);
            done += fleet->heard[i] == (1u << AGENTS) - 1; /* itself, too */
        }
        turn(fleet);
    }
}

static void a_relay_passes_all_to_all(void **state)
{
    struct fleet *fleet = *state;
    all_hear_all(fleet);
    assert_true(relay_counters(fleet->relay).passed >= AGENTS);
    assert_int_equal(relay_counters(fleet->relay).dropped, 0);
}

static void a_relay_that_comes_back_is_found(void **state)
{
    struct fleet *fleet = *state;
    char publish_to[TCP_ENDPOINT_SIZE], heard_at[TCP_ENDPOINT_SIZE];
    all_hear_all(fleet);
    (void)strcpy(publish_to, relay_publish_to(fleet->relay));
    (void)strcpy(heard_at, relay_heard_at(fleet->relay));
    struct relay *second = NULL;
    assert_int_equal(relay_open(publish_to, ANY, &second), LEASE_EBUSY);
    assert_int_equal(relay_open(ANY, heard_at, &second), LEASE_EBUSY);
    assert_null(second);
    relay_close(&fleet->relay);
    assert_int_equal(relay_open(publish_to, heard_at, &fleet->relay), 0);
    all_hear_all(fleet);
}

static void turn_of_relay(struct fleet *fleet)
{
    zmq_pollitem_t item = {.socket = relay_socket(fleet->relay), .events = ZMQ_POLLIN};
    (void)zmq_poll(&item, 1, 1);
    assert_int_equal(relay_run(fleet->relay), 0);
}

/* Publishes beats until one waits, none having waited. */
static ns_t make_one_wait(struct fleet *fleet)
{
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (relay_deadline(fleet->relay) != NS_NEVER) {
        turn_of_relay(fleet);
    }
    while (relay_deadline(fleet->relay) == NS_NEVER) {
        assert_true(test_now_ns() < deadline);
        assert_int_equal(mesh_publish(fleet->agents[0], "beat/x", "\1", 1), 0);
        turn_of_relay(fleet);
    }
    return relay_deadline(fleet->relay);
}

static void beats_pass_together_when_they_are_due(void **state)
{
    struct fleet *fleet = *state;
    all_hear_all(fleet);
    ns_t due = make_one_wait(fleet);
    assert_true(due <= host_now_ns() + RELAY_REST_MS * NS_PER_MS);
    uint64_t before = relay_counters(fleet->relay).passed;
    while (relay_counters(fleet->relay).passed == before) {
        turn_of_relay(fleet);
    }
    assert_true(host_now_ns() >= due);
    assert_true(relay_deadline(fleet->relay) == NS_NEVER);
}

static void note_topic(void *arg, const char *topic, const uint8_t *bytes, size_t size)
{
    (void)bytes, (void)size;
    *(bool *)arg = *(bool *)arg || strcmp(topic, "state/x") == 0;
}

/* On a machine that stops us for so long that the beats were due, it is tried again. */
static void what_is_no_beat_does_not_wait(void **state)
{
    struct fleet *fleet = *state;
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    bool overtook = false;
    all_hear_all(fleet);
    while (!overtook) {
        assert_true(test_now_ns() < deadline);
        ns_t due = make_one_wait(fleet);
        bool heard = false;
        assert_int_equal(mesh_publish(fleet->agents[1], "state/x", "s", 1), 0);
        while (relay_deadline(fleet->relay) == due && !heard) {
            turn_of_relay(fleet);
            assert_int_equal(mesh_run(fleet->agents[2], note_topic, &heard), 0);
        }
        overtook = heard && relay_deadline(fleet->relay) == due;
    }
}

/* Room for one more is made by passing those that wait, however early. */
static void more_beats_than_may_wait_pass(void **state)
{
    struct fleet *fleet = *state;
    all_hear_all(fleet);
    uint64_t before = relay_counters(fleet->relay).passed;
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (relay_counters(fleet->relay).passed < before + 2 * RELAY_BEATS_MAX) {
        assert_true(test_now_ns() < deadline);
        for (unsigned i = 0; i < 64; i++) {
            assert_int_equal(mesh_publish(fleet->agents[i % AGENTS], "beat/x", "\1", 1), 0);
        }
        turn_of_relay(fleet);
    }
}

static void rubbish_does_not_pass(void **state)
{
    struct fleet *fleet = *state;
    static char large[WIRE_MESSAGE_MAX + 1];
    assert_int_equal(ipc_open(ZMQ_PUB, &fleet->context, &fleet->pub), 0);
    assert_int_equal(tcp_dial(fleet->pub, relay_publish_to(fleet->relay)), 0);
    all_hear_all(fleet);
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (relay_counters(fleet->relay).dropped < 1000) {
        assert_true(test_now_ns() < deadline);
        (void)zmq_send(fleet->pub, "alone", 5, 0);
        for (unsigned n = 0; n < 100; n++) {
            (void)zmq_send(fleet->pub, "more", 4, n < 99 ? ZMQ_SNDMORE : 0);
        }
        turn(fleet);
    }
    (void)zmq_send(fleet->pub, "t", 1, ZMQ_SNDMORE);
    (void)zmq_send(fleet->pub, large, sizeof large, 0);
    all_hear_all(fleet);
}

static void a_forked_child_leaves_it_alone(void **state)
{
    struct fleet *fleet = *state;
    pid_t child = quiet_fork();
    if (child == 0) {
        bool fine = relay_run(fleet->relay) == LEASE_EFORK;
        relay_close(&fleet->relay);
        _exit(fine && !fleet->relay ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    all_hear_all(fleet);
}

static bool open_with_few(void *arg, int spare)
{
    (void)arg;
    struct relay *relay = NULL;
    int error = relay_open(ANY, ANY, &relay);
    relay_close(&relay);
    return spare < IPC_SPARE_FDS ? error == LEASE_EIO : error == 0 || error == LEASE_EIO;
}

static void without_descriptors_it_fails_and_lives(void **state)
{
    if (!DESCRIPTORS_FORK_WITH_THREADS) {
        skip();
    }
    assert_true(descriptors_try(open_with_few, *state, IPC_SPARE_FDS + 8));
}

int main(void)
{
#define PLACED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PLACED(a_relay_passes_all_to_all),
        PLACED(a_relay_that_comes_back_is_found),
        PLACED(beats_pass_together_when_they_are_due),
        PLACED(what_is_no_beat_does_not_wait),
        PLACED(more_beats_than_may_wait_pass),
        PLACED(rubbish_does_not_pass),
        PLACED(a_forked_child_leaves_it_alone),
        PLACED(without_descriptors_it_fails_and_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
