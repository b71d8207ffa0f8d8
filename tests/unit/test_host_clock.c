#define _GNU_SOURCE
#include "broker/host_clock.h"

#include "tests/lib/check.h"

#define HOUR_NS INT64_C(3600000000000)

static void it_never_goes_back(void **state)
{
    (void)state;
    int64_t last = host_now_ns();
    assert_true(last > 0);
    for (int i = 0; i < 10000; i++) {
        int64_t now = host_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void an_offset_looks_like_a_suspend(void **state)
{
    (void)state;
    int64_t before = host_now_ns();
    host_clock_offset(HOUR_NS);
    int64_t after = host_now_ns();
    host_clock_offset(0);
    assert_true(after - before >= HOUR_NS);
    assert_true(after - before < 2 * HOUR_NS);
    assert_true(host_now_ns() < before + HOUR_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_never_goes_back),
        cmocka_unit_test(an_offset_looks_like_a_suspend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
