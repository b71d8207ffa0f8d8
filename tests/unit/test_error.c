#include "broker/error.h"

#include <string.h>

#include "tests/lib/check.h"

struct pair {
    int code;
    const char *text;
};

static const struct pair pairs[] = {
#define PAIR(name, value, text) {name, text},
    LEASE_ERRORS(PAIR)
#undef PAIR
};

#define PAIRS (sizeof pairs / sizeof pairs[0])

static void every_code_is_negative_distinct_and_has_its_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS; i++) {
        assert_true(pairs[i].code < 0);
        assert_string_equal(lease_error_text(pairs[i].code), pairs[i].text);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(pairs[i].code, pairs[j].code);
            assert_string_not_equal(pairs[i].text, pairs[j].text);
        }
    }
}

static void other_numbers_have_a_text_too(void **state)
{
    (void)state;
    assert_string_equal(lease_error_text(0), "ok");
    assert_string_equal(lease_error_text(1), "unknown error");
    assert_string_equal(lease_error_text(-100000), "unknown error");
}

static void numbers_on_the_wire_stay_what_they_are(void **state)
{
    (void)state;
    assert_int_equal(LEASE_EINVAL, -1);
    assert_int_equal(LEASE_EBUSY, -3);
    assert_int_equal(LEASE_EGONE, -4);
    assert_int_equal(LEASE_ELOCKED, -7);
    assert_int_equal(LEASE_EINTERNAL, -21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_is_negative_distinct_and_has_its_text),
        cmocka_unit_test(other_numbers_have_a_text_too),
        cmocka_unit_test(numbers_on_the_wire_stay_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
