#define _GNU_SOURCE
#include "agent/ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "broker/error.h"
#include "tests/lib/check.h"

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

/* The limit below which exactly `spare` descriptors are free. */
static rlim_t limit_for(int spare)
{
    int fd = 0;
    for (int n = 0; n < spare || fcntl(fd, F_GETFD) >= 0; fd++) {
        n += fcntl(fd, F_GETFD) < 0;
    }
    return (rlim_t)fd;
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
        few.rlim_cur = limit_for(spare);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        int error = ipc_open(ZMQ_ROUTER, &context, &socket);
        int bound = error == 0 ? ipc_bind(socket, endpoint) : -1;
        ipc_close(&context, &socket);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(error, spare < IPC_SPARE_FDS ? LEASE_EIO : 0);
        assert_int_equal(bound, spare < IPC_SPARE_FDS ? -1 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_fits_or_is_refused),
        cmocka_unit_test(nobody_listens_where_nothing_is),
        cmocka_unit_test(without_descriptors_it_fails_and_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
