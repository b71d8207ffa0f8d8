#define _GNU_SOURCE
#include "broker/host_random.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check.h"

static void draws_differ(void **state)
{
    (void)state;
    uint64_t drawn[512];
    uint64_t ones = 0;
    uint64_t zeros = 0;
    for (size_t i = 0; i < 512; i++) {
        drawn[i] = host_random_u64();
        ones |= drawn[i];
        zeros |= ~drawn[i];
        for (size_t j = 0; j < i; j++) {
            assert_true(drawn[i] != drawn[j]);
        }
    }
    assert_true(ones == UINT64_MAX && zeros == UINT64_MAX); /* every bit was seen both ways */
}

static void a_forked_child_draws_others_than_its_parent(void **state)
{
    (void)state;
    (void)host_random_u64(); /* seeded before the fork: the child inherits the state */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t theirs = host_random_u64();
        _exit(write(ends[1], &theirs, sizeof theirs) == sizeof theirs ? 0 : 1);
    }
    uint64_t theirs = 0;
    assert_int_equal(read(ends[0], &theirs, sizeof theirs), sizeof theirs);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(host_random_u64() != theirs);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void *draw(void *out)
{
    *(uint64_t *)out = host_random_u64();
    return NULL;
}

static void threads_have_generators_of_their_own(void **state)
{
    (void)state;
    uint64_t drawn[8] = {0};
    pthread_t thread[8];
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, draw, &drawn[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        for (size_t j = 0; j < i; j++) {
            assert_true(drawn[i] != drawn[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_differ),
        cmocka_unit_test(a_forked_child_draws_others_than_its_parent),
        cmocka_unit_test(threads_have_generators_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
