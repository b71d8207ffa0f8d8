#include "agent/probe_metrics.h"

#include "tests/lib/check.h"

static void a_line_is_found_by_its_whole_name(void **state)
{
    (void)state;
    assert_int_equal(probe_metric("a 1\n", "a"), 1);
    assert_int_equal(probe_metric("# a 9\nab 2\na 1\n", "a"), 1);
    assert_int_equal(probe_metric("a{model=\"x y\"} 3.0\n", "a"), 3);
    assert_int_equal(probe_metric("a 4 1700000000\n", "a"), 4);
    assert_int_equal(probe_metric("a 5\r\n", "a"), 5);
}

static void anything_else_is_no_count(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",         "a",      "a\n",    "a 1",   "a \n1\n", "a -1\n", "a nan\n",   "a inf\n",
        "a 1e30\n", "a 1x\n", "a{ 1\n", "a{}\n", "a{}1\n",  "b 1\n",  "a \nb 3\n", "a{} \n2"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (probe_metric(texts[i], "a") != -1)
            fail_msg("'%s' counts", texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_found_by_its_whole_name),
        cmocka_unit_test(anything_else_is_no_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
