/* What an agent is told about the fleet, and endpoints. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <string.h>

#include "agent/fleet_config.h"
#include "agent/lease.h"

static struct fleet_config config;
static char error[FLEET_ERROR_SIZE];

static int take(const struct lease_options *options)
{
    memset(&config, 0, sizeof config);
    error[0] = '\0';
    return fleet_config_take(options, &config, error, sizeof error);
}

static void endpoints(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           "tcp://",     "ipc:///x",   "tcp://h:",    "tcp://h:x", "tcp://h:65536",
        "tcp://h:1/", "tcp://[::1", "tcp://[]:1", "tcp://[h]:1", "h:1",       "tcp://h:1,x"};
    struct endpoint endpoint;
    char text[ENDPOINT_SIZE];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (endpoint_parse(bad[i], &endpoint))
            fail_msg("'%s' was read", bad[i]);
    assert_true(endpoint_parse("tcp://z4", &endpoint));
    assert_string_equal(endpoint.host, "z4");
    assert_int_equal(endpoint.port, 5771);
    assert_false(endpoint.has_port);
    assert_true(endpoint_parse("tcp://[fe80::1%eth0]:9", &endpoint));
    assert_string_equal(endpoint.host, "fe80::1%eth0");
    assert_int_equal(endpoint.port, 9);
    endpoint_format(endpoint.host, 10, text);
    assert_string_equal(text, "tcp://[fe80::1%eth0]:10");
    endpoint_format("10.0.0.1", 0, text);
    assert_string_equal(text, "tcp://10.0.0.1:0");
    assert_true(endpoint_is_loopback("127.8.0.1") && endpoint_is_loopback("::1"));
    assert_true(endpoint_is_loopback("localhost"));
    assert_false(endpoint_is_loopback("10.0.0.1") || endpoint_is_loopback("0.0.0.0"));
    assert_true(endpoint_is_any("0.0.0.0") && endpoint_is_any("::") && endpoint_is_any("*"));
    assert_true(endpoint_is_numeric("10.0.0.1") && endpoint_is_numeric("fe80::1"));
    assert_false(endpoint_is_numeric("z4"));
}

static void nothing_is_off(void **state)
{
    (void)state;
    struct lease_options options = {.size = sizeof options};
    assert_int_equal(take(&options), 0);
    assert_false(fleet_config_is_on(&config));
    options.advertise = "tcp://10.0.0.1";
    options.insecure = 1;
    assert_int_equal(take(&options), 0);
    assert_false(fleet_config_is_on(&config));
}

static void all_is_taken(void **state)
{
    (void)state;
    const char *listen[] = {"tcp://127.0.0.1", "tcp://[::1]:6000"};
    const char *peers[] = {"tcp://z4,name=z4", "tcp://10.0.0.9:1"};
    struct lease_options options = {.size = sizeof options,
                                    .listen = listen,
                                    .listen_count = 2,
                                    .publish = "tcp://127.0.0.1:7000",
                                    .peers = peers,
                                    .peer_count = 2};
    assert_int_equal(take(&options), 0);
    assert_true(fleet_config_is_on(&config));
    assert_string_equal(config.listen[0], "tcp://127.0.0.1:5771");
    assert_string_equal(config.listen[1], "tcp://[::1]:6000");
    assert_string_equal(config.publish, "tcp://127.0.0.1:7000");
    assert_string_equal(config.peers[0].endpoint, "tcp://z4:5771");
    assert_string_equal(config.peers[0].name, "z4");
    assert_string_equal(config.peers[1].name, "");
    char text[256];
    fleet_config_peer_text(&config.peers[0], text, sizeof text);
    assert_string_equal(text, "tcp://z4:5771,name=z4");
}

static void refuses_listen(const char *listen, int insecure, const char *why)
{
    struct lease_options options = {
        .size = sizeof options, .listen = &listen, .listen_count = 1, .insecure = insecure};
    assert_int_equal(take(&options), LEASE_EINVAL);
    if (!strstr(error, why))
        fail_msg("'%s' is not in: %s", why, error);
    assert_null(strchr(error, '\n'));
}

static void beyond_loopback_is_refused(void **state)
{
    (void)state;
    refuses_listen("tcp://0.0.0.0", 0, "beyond loopback");
    refuses_listen("tcp://10.1.2.3:99", 0, "beyond loopback");
    refuses_listen("tcp://z4", 1, "is no address");
    refuses_listen("udp://10.1.2.3", 1, "tcp://HOST[:PORT]");
    const char *open = "tcp://*";
    struct lease_options options = {
        .size = sizeof options, .listen = &open, .listen_count = 1, .insecure = 1};
    assert_int_equal(take(&options), 0);
    assert_string_equal(config.listen[0], "tcp://0.0.0.0:5771");
    options = (struct lease_options){.size = sizeof options, .publish = "tcp://10.0.0.1:1"};
    assert_int_equal(take(&options), LEASE_EINVAL);
    options.publish = "tcp://localhost:1";
    assert_int_equal(take(&options), 0);
    assert_string_equal(config.publish, "tcp://127.0.0.1:1");
}

static void peers_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"z4", "tcp://z4,", "tcp://z4,name=", "tcp://z4,name=a b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct lease_options options = {.size = sizeof options, .peers = &bad[i], .peer_count = 1};
        assert_int_equal(take(&options), LEASE_EINVAL);
        assert_non_null(strstr(error, "peer"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoints),         cmocka_unit_test(nothing_is_off),
        cmocka_unit_test(all_is_taken),      cmocka_unit_test(beyond_loopback_is_refused),
        cmocka_unit_test(peers_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
