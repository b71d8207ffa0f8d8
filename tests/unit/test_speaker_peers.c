/* How fast a speaker asks many peers who they are, in a clock that is moved by hand. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "tests/lib/check.h"

#define PEERS 300

static struct room room;

/* All of them are silent, and due. */
static int begin(void **state)
{
    (void)state;
    static const uint8_t self[16] = {1};
    memset(&room, 0, sizeof room);
    room.fleet = calloc(1, sizeof *room.fleet);
    room.config = calloc(1, sizeof *room.config);
    room.contacts = calloc(FLEET_PEERS_MAX, sizeof *room.contacts);
    assert_true(room.fleet && room.config && room.contacts);
    fleet_init(room.fleet, "z4", self);
    for (uint32_t i = 0; i < PEERS; i++) {
        char name[16], endpoint[48];
        uint8_t id[16] = {2, (uint8_t)(i / 256), (uint8_t)i};
        snprintf(name, sizeof name, "m%u", i);
        snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", 20000 + i);
        assert_true(fleet_tell(room.fleet, name, id, endpoint, false, NS_PER_SEC) < PEERS);
        room.contacts[i].hello = true;
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(room.fleet);
    free(room.config);
    free(room.contacts);
    return 0;
}

static uint32_t ask_all_that_may_be(ns_t now, bool *asked)
{
    uint32_t peer, count = 0;
    while (peers_next_hello(&room, now, &peer)) {
        assert_true(peer < PEERS && count++ < PEERS);
        asked[peer] = true;
    }
    return count;
}

static void expect_pace(uint32_t at_once, uint32_t a_second)
{
    static bool asked[PEERS];
    uint32_t all = 0;
    ns_t now = 10 * NS_PER_SEC;
    memset(asked, 0, sizeof asked);
    uint32_t first = ask_all_that_may_be(now, asked);
    assert_in_range(first, at_once, at_once + 1);
    assert_int_equal(ask_all_that_may_be(now, asked), 0);
    for (uint32_t s = 0; s < PEERS / a_second; s++) {
        now += NS_PER_SEC;
        assert_int_equal(ask_all_that_may_be(now, asked), a_second);
    }
    for (uint32_t i = 0; i < PEERS; i++)
        all += asked[i];
    assert_int_equal(all, PEERS); /* none waits while another is asked again and again */
}

static void of_a_mesh_all_soon_and_then_ten_a_second(void **state)
{
    (void)state;
    expect_pace(128, 10);
}

static void behind_a_relay_few(void **state)
{
    (void)state;
    snprintf(room.config->relay, sizeof room.config->relay, "tcp://127.0.0.1:5771");
    expect_pace(16, 2);
}

static void it_is_slept_until_the_next_may_be_asked(void **state)
{
    (void)state;
    static bool asked[PEERS];
    static struct speaker nobody;
    ns_t now = 10 * NS_PER_SEC;
    room.speaker = &nobody;
    room.look_ns = NS_NEVER;
    room.names = calloc(1, 4096);
    assert_non_null(room.names);
    ask_all_that_may_be(now, asked);
    ns_t next = peers_deadline(&room);
    free(room.names);
    assert_in_range(next, now + 1, now + 100 * NS_PER_MS);
    assert_int_equal(ask_all_that_may_be(next - 1, asked), 0);
    assert_int_equal(ask_all_that_may_be(next, asked), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_a_mesh_all_soon_and_then_ten_a_second, begin, end),
        cmocka_unit_test_setup_teardown(behind_a_relay_few, begin, end),
        cmocka_unit_test_setup_teardown(it_is_slept_until_the_next_may_be_asked, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
