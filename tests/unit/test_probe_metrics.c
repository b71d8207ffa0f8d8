#include "agent/probe_metrics.h"

#include <locale.h>
#include <string.h>

#include "tests/lib/check.h"

static void a_line_is_found_by_its_whole_name(void **state)
{
    (void)state;
    assert_int_equal(probe_metric("a 1\n", "a"), 1);
    assert_int_equal(probe_metric("# a 9\nab 2\na 1\n", "a"), 1);
    assert_int_equal(probe_metric("a{model=\"x y\"} 3.0\nb 1\n", "a"), 3);
    assert_int_equal(probe_metric("a 4 1700000000\n", "a"), 4);
    assert_int_equal(probe_metric("a 5\r\n", "a"), 5);
    assert_int_equal(probe_metric("a\t6\n", "a"), 6);
    assert_int_equal(probe_metric("a_by{x=\"1\"} 7\r\na{x=\"1\"} 8\r\n# EOF\r\n", "a"), 8);
}

static void anything_else_is_no_count(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "a",
                                        "a\n",
                                        "a 1",
                                        "a \n1\n",
                                        "a -1\n",
                                        "a nan\n",
                                        "a inf\n",
                                        "a 1e30\n",
                                        "a 1x\n",
                                        "a{ 1\n",
                                        "a{}\n",
                                        "a{}1x\nb\n",
                                        "b 1\n",
                                        "a \nb 3\n",
                                        "a{} \n2",
                                        "a NaN\n",
                                        "a +Inf\n",
                                        "a -Inf\n",
                                        "a 0x10\n",
                                        "a .\n",
                                        "a e1\n",
                                        "a 1e\n",
                                        "a 1e999\n",
                                        "a 1\na x\n",
                                        "a 1\na NaN\n",
                                        "a 3\na -1\n",
                                        "a{x=\"} 1\nb\n",
                                        "a{x} 1\nb\n",
                                        "a{x=y} 1\nb\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (probe_metric(texts[i], "a") != -1)
            fail_msg("'%s' counts", texts[i]);
}

static void numbers_may_be_written_in_any_way(void **state)
{
    (void)state;
    assert_int_equal(probe_metric("a 1.5e1\n", "a"), 15);
    assert_int_equal(probe_metric("a 1.8E+01\n", "a"), 18);
    assert_int_equal(probe_metric("a 1900e-2\n", "a"), 19);
    assert_int_equal(probe_metric("a +2\n", "a"), 2);
    assert_int_equal(probe_metric("a 0.97\n", "a"), 1);
    assert_int_equal(probe_metric("a{x=\"1\"} 0.5\na{x=\"2\"} 0.25\nb 0\n", "a"), 1);
    assert_int_equal(probe_metric("a 2.01\n", "a"), 3);
    assert_int_equal(probe_metric("a -0.0\n", "a"), 0);
    assert_int_equal(probe_metric("a 1e-400\n", "a"), 0);
}

static void a_locale_changes_nothing(void **state)
{
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
        skip();
    assert_int_equal(probe_metric("a 3.0\n", "a"), 3);
    setlocale(LC_NUMERIC, "C");
}

static void series_are_summed(void **state)
{
    (void)state;
    static const char text[] = "a{engine=\"0\"} 2.0\na{engine=\"1\"} 3.0\n# HELP b\n";
    struct metric metric;
    assert_true(probe_metric_read(text, "a", NULL, &metric));
    assert_int_equal(metric.series, 2);
    assert_true(metric.sum == 5 && metric.smallest == 2 && metric.largest == 3);
    assert_int_equal(probe_metric(text, "a"), 5);
}

static void labels_are_read_as_they_are_quoted(void **state)
{
    (void)state;
    assert_int_equal(probe_metric("a{x=\"}\",y=\"\\\"\\\\\"} 4\nb\n", "a"), 4);
    assert_int_equal(probe_metric("a{ x = \"1\" , } 4\nb\n", "a"), 4);
    assert_int_equal(probe_metric("a{x=\"1\"}4\nb\n", "a"), 4);
    assert_int_equal(probe_metric("a {x=\"1\"} 4\nb\n", "a"), 4);
}

static void what_parts_another_series_again_is_left_out(void **state)
{
    (void)state;
    static const char text[] = "a{priority=\"\"} 5\na{priority=\"0\"} 2\na{priority=\"1\"} 3\nb\n";
    struct metric metric;
    assert_true(probe_metric_read(text, "a", "priority", &metric));
    assert_true(metric.series == 1 && metric.sum == 5);
    assert_true(probe_metric_read(text, "a", "prior", &metric));
    assert_true(metric.series == 3 && metric.sum == 10);
    assert_false(probe_metric_read("a{p=\"1\"} 2\nb\n", "a", "p", &metric));
}

/* Cut anywhere, it never says less than the whole. */
static void what_is_cut_off_is_not_trusted(void **state)
{
    (void)state;
    static const char text[] =
        "# TYPE a gauge\na{e=\"0\"} 0.0\na{e=\"1\"} 13.0\n# TYPE b gauge\nb 1\n";
    char cut[sizeof text];
    size_t whole = (size_t)(strstr(text, "# TYPE b gauge\n") - text) + strlen("# TYPE b gauge\n");
    for (size_t size = 0; size < sizeof text; size++) {
        memcpy(cut, text, size);
        cut[size] = '\0';
        assert_int_equal(probe_metric(cut, "a"), size >= whole ? 13 : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_found_by_its_whole_name),
        cmocka_unit_test(anything_else_is_no_count),
        cmocka_unit_test(numbers_may_be_written_in_any_way),
        cmocka_unit_test(a_locale_changes_nothing),
        cmocka_unit_test(series_are_summed),
        cmocka_unit_test(labels_are_read_as_they_are_quoted),
        cmocka_unit_test(what_parts_another_series_again_is_left_out),
        cmocka_unit_test(what_is_cut_off_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
