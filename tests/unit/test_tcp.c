#include "agent/tcp.h"

#include <stdio.h>
#include <string.h>

#include "broker/error.h"
#include "tests/lib/check.h"

static void an_endpoint_is_of_one_kind(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint;
        enum endpoint_kind kind;
    } all[] = {
        {"tcp://192.0.2.1:5771", ENDPOINT_IPV4},
        {"tcp://0.0.0.0:1", ENDPOINT_IPV4},
        {"tcp://[::1]:65535", ENDPOINT_IPV6},
        {"tcp://[fe80::1%eth0]:5771", ENDPOINT_IPV6},
        {"tcp://m5.example:5771", ENDPOINT_NAME},
        {"tcp://m5:5771", ENDPOINT_NAME},
        {"tcp://3com:5771", ENDPOINT_NAME},
        {"ipc:///run/x", ENDPOINT_IPC},
        {"ipc://@x", ENDPOINT_IPC},
        {"ipc://*", ENDPOINT_BAD},
        {"ipc://", ENDPOINT_BAD},
        {"ipc:///", ENDPOINT_BAD},
        {"ipc://relative", ENDPOINT_BAD},
        {"tcp://*:5771", ENDPOINT_BAD},
        {"tcp://eth0;1.2.3.4:5771", ENDPOINT_BAD},
        {"tcp://1.2.3.4", ENDPOINT_BAD},
        {"tcp://1.2.3.4:", ENDPOINT_BAD},
        {"tcp://1.2.3.4:0", ENDPOINT_BAD},
        {"tcp://1.2.3.4:65536", ENDPOINT_BAD},
        {"tcp://1.2.3.4:123456", ENDPOINT_BAD},
        {"tcp://1.2.3.4:+7", ENDPOINT_BAD},
        {"tcp://1.2.3.400:7", ENDPOINT_BAD},
        {"tcp://::1:7", ENDPOINT_BAD},
        {"tcp://[1.2.3.4]:7", ENDPOINT_BAD},
        {"tcp://[::1:7", ENDPOINT_BAD},
        {"tcp://[]:7", ENDPOINT_BAD},
        {"tcp://[fe80::1%]:7", ENDPOINT_BAD},
        {"tcp://[fe80::1%a b]:7", ENDPOINT_BAD},
        {"tcp://a b:7", ENDPOINT_BAD},
        {"tcp://-x:7", ENDPOINT_BAD},
        {"tcp://:7", ENDPOINT_BAD},
        {"inproc://x", ENDPOINT_BAD},
        {"udp://1.2.3.4:7", ENDPOINT_BAD},
        {"1.2.3.4:7", ENDPOINT_BAD},
        {"", ENDPOINT_BAD},
        {NULL, ENDPOINT_BAD},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (tcp_endpoint_kind(all[i].endpoint) != all[i].kind) {
            fail_msg("%s", all[i].endpoint);
        }
    }
}

static void a_long_endpoint_is_bad(void **state)
{
    (void)state;
    char endpoint[4096];
    for (size_t size = 7; size < sizeof endpoint - 3; size++) {
        (void)memset(endpoint, 'a', sizeof endpoint);
        memcpy(endpoint, "tcp://", 6);
        (void)strcpy(endpoint + size, ":7");
        assert_int_equal(tcp_endpoint_kind(endpoint),
                         size + 2 <= WIRE_ENDPOINT_MAX ? ENDPOINT_NAME : ENDPOINT_BAD);
        memcpy(endpoint, "ipc:///", 7);
        assert_int_equal(tcp_endpoint_kind(endpoint),
                         size + 2 <= 113 ? ENDPOINT_IPC : ENDPOINT_BAD);
    }
}

static void a_name_becomes_a_number(void **state)
{
    (void)state;
    char numeric[TCP_ENDPOINT_SIZE];
    assert_int_equal(tcp_resolve("tcp://192.0.2.1:5771", numeric), 0);
    assert_string_equal(numeric, "tcp://192.0.2.1:5771");
    assert_int_equal(tcp_resolve("tcp://[::1]:5771", numeric), 0);
    assert_string_equal(numeric, "tcp://[::1]:5771");
    assert_int_equal(tcp_resolve("tcp://localhost:5771", numeric), 0);
    assert_true(strcmp(numeric, "tcp://127.0.0.1:5771") == 0 ||
                strcmp(numeric, "tcp://[::1]:5771") == 0);
    assert_int_equal(tcp_resolve("tcp://*:5771", numeric), LEASE_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_is_of_one_kind),
        cmocka_unit_test(a_long_endpoint_is_bad),
        cmocka_unit_test(a_name_becomes_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
