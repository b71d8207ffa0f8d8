/* Routes: written whole, read with suspicion. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <stdlib.h>
#include <string.h>

#include "agent/routes.h"
#include "broker/error.h"
#include "tests/lib/temp_dir.h"

static char directory[TEMP_DIR_MAX];
static struct routes *got;

static int setup(void **state)
{
    (void)state;
    got = NULL;
    return temp_dir_make(directory) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    routes_free(&got);
    temp_dir_remove(directory);
    return 0;
}

static void write_text(const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, ROUTES_FILE);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct route_peer peer = {.name = "z4",
                              .id = "00112233445566778899aabbccddeeff",
                              .version = "0.2.0",
                              .endpoint = "tcp://10.0.0.4:5771",
                              .heard_ns = INT64_C(123456789012345),
                              .same_name = true};
    struct route routes[2] = {{.provider = "z4",
                               .owner = "z4",
                               .endpoint = "tcp://10.0.0.4:5771",
                               .url = "http://10.0.0.4:8080",
                               .epoch = 1796000000,
                               .conflicts = 1,
                               .heard_ns = 77},
                              {.provider = "lost"}};
    struct routes written = {.peer_count = 1,
                             .route_count = 2,
                             .peers = &peer,
                             .routes = routes,
                             .endpoint = "tcp://127.0.0.1:5771",
                             .warning = "cannot publish",
                             .written_ns = 77};
    peer.told_ns = routes[0].told_ns = routes[1].told_ns = 77;
    assert_int_equal(routes_write(directory, &written, 0600), 0);
    assert_int_equal(routes_read(directory, &got), 0);
    assert_int_equal(got->peer_count, 1);
    assert_int_equal(got->route_count, 2);
    assert_memory_equal(&got->peers[0], &peer, sizeof peer);
    assert_memory_equal(got->routes, routes, sizeof routes);
    assert_string_equal(got->endpoint, written.endpoint);
    assert_string_equal(got->warning, written.warning);
    assert_ptr_equal(routes_find(got, "z4"), &got->routes[0]);
    assert_null(routes_find(got, "m5"));
    assert_null(routes_find(NULL, "z4"));
}

static void nothing_is_absent_and_rubbish_damaged(void **state)
{
    (void)state;
    assert_int_equal(routes_read(directory, &got), LEASE_EABSENT);
    static const char *const rubbish[] = {"", "[]", "{", "7", "{\"a\":1,\"a\":2}", "null"};
    for (size_t i = 0; i < sizeof rubbish / sizeof rubbish[0]; i++) {
        write_text(rubbish[i]);
        assert_int_equal(routes_read(directory, &got), LEASE_EDAMAGED);
        assert_null(got);
    }
}

static void what_makes_no_sense_is_passed_over(void **state)
{
    (void)state;
    write_text("{\"peers\":[1,{},{\"name\":7},{\"endpoint\":\"tcp://h:1\",\"heard_ns\":-5}],"
               "\"routes\":[null,{\"provider\":\"a b\"},{\"provider\":\"x\",\"epoch\":-3,"
               "\"conflicts\":99999999999,\"owner\":[]}],\"warning\":{}}");
    assert_int_equal(routes_read(directory, &got), 0);
    assert_int_equal(got->peer_count, 1);
    assert_int_equal(got->peers[0].heard_ns, 0);
    assert_int_equal(got->route_count, 1);
    assert_int_equal(got->routes[0].epoch, 0);
    assert_int_equal(got->routes[0].conflicts, FLEET_PEERS_MAX);
    write_text("{\"peers\":{\"a\":1},\"routes\":\"x\"}");
    assert_int_equal(routes_read(directory, &got), 0);
    assert_int_equal(got->route_count, 0);
}

static void states_have_names(void **state)
{
    (void)state;
    ns_t now = 1000 * NS_PER_SEC;
    struct route route = {.provider = "x"};
    assert_string_equal(route_state_name(&route, now), "unowned");
    strcpy(route.owner, "z4");
    assert_string_equal(route_state_name(&route, now), "live"); /* our own is as old as it likes */
    strcpy(route.endpoint, "tcp://h:1");
    route.heard_ns = now - NS_PER_SEC;
    assert_string_equal(route_state_name(&route, now), "live");
    route.conflicts = 1;
    assert_string_equal(route_state_name(&route, now), "conflict");
    route.heard_ns = now - 4 * NS_PER_SEC;
    assert_string_equal(route_state_name(&route, now), "stale");
    route.heard_ns = now - 61 * NS_PER_SEC;
    assert_string_equal(route_state_name(&route, now), "lost");
    struct route_peer peer = {.heard_ns = 0};
    assert_string_equal(route_peer_state_name(&peer, now), "lost");
    peer.heard_ns = now;
    assert_string_equal(route_peer_state_name(&peer, now), "live");
    peer.heard_ns = now - 10 * NS_PER_SEC;
    assert_string_equal(route_peer_state_name(&peer, now), "silent");
}

/* A beat that is lost makes nobody silent, though the file is a second old when it is read. */
static void silence_is_what_a_living_speaker_told(void **state)
{
    (void)state;
    ns_t now = 1000 * NS_PER_SEC;
    struct route_peer peer = {.heard_ns = now - 35 * NS_PER_SEC / 10, .told_ns = now - NS_PER_SEC};
    struct route route = {.provider = "x", .owner = "z4", .endpoint = "tcp://h:1"};
    route.heard_ns = peer.heard_ns;
    route.told_ns = peer.told_ns;
    assert_string_equal(route_peer_state_name(&peer, now), "live");
    assert_string_equal(route_state_name(&route, now), "live");
    now += 11 * NS_PER_SEC / 10; /* it does not write any more */
    assert_string_equal(route_peer_state_name(&peer, now), "silent");
    assert_string_equal(route_state_name(&route, now), "stale");
    peer.told_ns = now + NS_PER_SEC; /* of another boot, or rubbish */
    assert_string_equal(route_peer_state_name(&peer, now), "silent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_absent_and_rubbish_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_passed_over, setup, teardown),
        cmocka_unit_test(states_have_names),
        cmocka_unit_test(silence_is_what_a_living_speaker_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
