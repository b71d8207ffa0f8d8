#define _GNU_SOURCE
#include "agent/ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "broker/error.h"
#include "tests/lib/check.h"
#include "tests/lib/descriptors.h"

static void an_endpoint_fits_or_is_refused(void **state)
{
    (void)state;
    char longest[256], endpoint[IPC_ENDPOINT_SIZE];
    memset(longest, 'd', sizeof longest);
    longest[0] = '/';
    longest[IPC_DIRECTORY_MAX] = '\0';
    assert_int_equal(ipc_endpoint(longest, endpoint), 0);
    assert_int_equal(strlen(endpoint), strlen("ipc://") + 107);
    assert_int_equal(ipc_probe(endpoint), LEASE_EABSENT);
    longest[IPC_DIRECTORY_MAX] = 'd';
    longest[IPC_DIRECTORY_MAX + 1] = '\0';
    assert_int_equal(ipc_endpoint(longest, endpoint), LEASE_EDIR);
    assert_int_equal(ipc_endpoint("relative", endpoint), LEASE_EINVAL);
    assert_int_equal(ipc_endpoint("@abstract", endpoint), LEASE_EINVAL);
    assert_int_equal(ipc_endpoint("", endpoint), LEASE_EINVAL);
    assert_int_equal(ipc_endpoint(NULL, endpoint), LEASE_EINVAL);
    assert_int_equal(strlen(endpoint), strlen("ipc://") + 107); /* unchanged */
}

static void nobody_listens_where_nothing_is(void **state)
{
    (void)state;
    assert_int_equal(ipc_probe("ipc:///nowhere/at/all"), LEASE_EABSENT);
    assert_int_equal(ipc_probe("ipc:///dev/null"), LEASE_EABSENT); /* no socket */
    assert_int_equal(ipc_probe("ipc:///dev/null/below"), LEASE_EABSENT);
}

/* libzmq would abort; with just enough of them it must not. */
static void without_descriptors_it_fails_and_lives(void **state)
{
    (void)state;
    struct rlimit before, few;
    char endpoint[64];
    (void)snprintf(endpoint, sizeof endpoint, "ipc://@leasehold-test-%ld", (long)getpid());
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int spare = 0; spare <= IPC_SPARE_FDS; spare++) {
        void *context = NULL, *socket = NULL;
        few = before;
        few.rlim_cur = descriptors_limit(spare);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        int error = ipc_open(ZMQ_ROUTER, &context, &socket);
        int bound = error == 0 ? ipc_bind(socket, endpoint) : -1;
        ipc_close(&context, &socket);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(error, spare < IPC_SPARE_FDS ? LEASE_EIO : 0);
        assert_int_equal(bound, spare < IPC_SPARE_FDS ? -1 : 0);
    }
}

/* The ROUTER takes random numbers from where the host's come from. */
static void the_hosts_random_numbers_go_on(void **state)
{
    (void)state;
    int numbers[2][4];
    for (int with = 0; with < 2; with++) {
        srand(7);
        for (int i = 0; i < 4; i++) {
            void *context, *socket;
            if (with) {
                assert_int_equal(ipc_open(ZMQ_ROUTER, &context, &socket), 0);
                ipc_close(&context, &socket);
            }
            numbers[with][i] = rand();
        }
    }
    assert_memory_equal(numbers[0], numbers[1], sizeof numbers[0]);
}

static void sockets_share_a_context(void **state)
{
    (void)state;
    void *context, *sockets[8];
    assert_int_equal(ipc_context(8, &context), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ipc_socket(context, ZMQ_DEALER, &sockets[i]), 0);
    }
    for (int i = 1; i < 8; i++) {
        assert_int_equal(zmq_close(sockets[i]), 0);
    }
    ipc_close(&context, &sockets[0]);
    assert_int_equal(ipc_context(1, &context), 0); /* and one that never had any */
    ipc_close(&context, &sockets[0]);
    assert_null(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_fits_or_is_refused),
        cmocka_unit_test(nobody_listens_where_nothing_is),
        cmocka_unit_test(the_hosts_random_numbers_go_on),
        cmocka_unit_test(sockets_share_a_context),
        cmocka_unit_test(without_descriptors_it_fails_and_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
