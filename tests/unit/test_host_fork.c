#define _GNU_SOURCE
#include "broker/host_fork.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check.h"

static void a_child_is_of_a_later_generation(void **state)
{
    (void)state;
    host_fork_watch();
    host_fork_watch(); /* twice must not count twice */
    uint32_t here = host_fork_generation();
    assert_int_not_equal(here, 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(host_fork_generation() == here + 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(host_fork_generation(), here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_of_a_later_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
