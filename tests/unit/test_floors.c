#include "broker/floors.h"

#include <string.h>

#include "tests/lib/check.h"

static struct floors floors;

static struct lease_id id(uint64_t counter)
{
    return (struct lease_id){77, counter};
}

static bool dead(uint64_t counter)
{
    return floors_is_dead(&floors, id(counter));
}

static int begin(void **state)
{
    (void)state;
    memset(&floors, 0, sizeof floors);
    return 0;
}

static void an_unknown_instance_has_no_dead(void **state)
{
    (void)state;
    assert_false(dead(1));
    assert_false(dead(UINT64_MAX));
    assert_true(dead(0)); /* no lease at all */
}

static void only_what_was_forgotten_is_dead(void **state)
{
    (void)state;
    assert_int_equal(floors_forget(&floors, id(5000), 1), 0);
    assert_true(dead(5000));
    assert_false(dead(5001));
    assert_false(dead(4999));
    assert_false(dead(5000 - 1024));
    assert_true(dead(5000 - 1025)); /* below the window everything is */
    assert_int_equal(floors_forget(&floors, id(4999), 1), 0);
    assert_int_equal(floors_forget(&floors, id(4990), 1), 0);
    assert_true(dead(4999));
    assert_true(dead(4990));
    assert_false(dead(4991));
    assert_int_equal(floors_forget(&floors, id(4990), 1), -1);
    assert_int_equal(floors_forget(&floors, id(3), 1), -1);
}

/* The window moves up by `by`: 10000 with marks at some distances below, which must stand where
 * they stood, or be below the window. */
static void window_moves_by(uint64_t by)
{
    memset(&floors, 0, sizeof floors);
    static const uint64_t marks[] = {1, 2, 63, 64, 65, 127, 128, 500, 1000, 1023, 1024};
    const size_t count = sizeof marks / sizeof marks[0];
    floors_forget(&floors, id(10000), 1);
    for (size_t i = 0; i < count; i++)
        floors_forget(&floors, id(10000 - marks[i]), 1);
    floors_forget(&floors, id(10000 + by), 2);
    for (uint64_t counter = 8000; counter <= 10000 + by + 2; counter++) {
        bool forgotten = counter == 10000 || counter == 10000 + by;
        for (size_t i = 0; i < count; i++)
            forgotten = forgotten || counter == 10000 - marks[i];
        bool below = counter + FLOOR_WINDOW < 10000 + by;
        if (dead(counter) != (forgotten || below))
            fail_msg("moved by %u: counter %u is %s", (unsigned)by, (unsigned)counter,
                     dead(counter) ? "dead" : "not dead");
    }
}

static void the_window_keeps_its_bits_when_it_moves(void **state)
{
    (void)state;
    static const uint64_t steps[] = {1, 2, 63, 64, 65, 127, 128, 1000, 1023, 1024, 1025, 5000};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        window_moves_by(steps[i]);
}

static void the_largest_counters_do_not_overflow(void **state)
{
    (void)state;
    floors_forget(&floors, id(1), 1);
    floors_forget(&floors, id(UINT64_MAX), 1);
    assert_true(dead(UINT64_MAX));
    assert_true(dead(1));
    assert_false(dead(UINT64_MAX - 1));
}

static void the_one_idle_longest_makes_room(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < FLOORS_MAX; i++)
        floors_forget(&floors, (struct lease_id){i + 1, 9}, (ns_t)(100 + i));
    floors_forget(&floors, (struct lease_id){1, 10}, 9000); /* the first is used again */
    floors_forget(&floors, (struct lease_id){99999, 4}, 9001);
    assert_true(floors_is_dead(&floors, (struct lease_id){1, 10}));
    assert_true(floors_is_dead(&floors, (struct lease_id){99999, 4}));
    assert_false(floors_is_dead(&floors, (struct lease_id){99999, 3})); /* nothing of its past */
    assert_false(floors_is_dead(&floors, (struct lease_id){2, 9}));     /* it made room */
    assert_true(floors_is_dead(&floors, (struct lease_id){3, 9}));
}

static void idle_ones_are_dropped(void **state)
{
    (void)state;
    floors_forget(&floors, (struct lease_id){1, 9}, 1000);
    floors_forget(&floors, (struct lease_id){2, 9}, 2000);
    assert_int_equal(floors_drop_idle(&floors, 2000, 1000), 0);
    assert_int_equal(floors_drop_idle(&floors, 2001, 1000), 1);
    assert_false(floors_is_dead(&floors, (struct lease_id){1, 9}));
    assert_true(floors_is_dead(&floors, (struct lease_id){2, 9}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_unknown_instance_has_no_dead, begin),
        cmocka_unit_test_setup(only_what_was_forgotten_is_dead, begin),
        cmocka_unit_test_setup(the_window_keeps_its_bits_when_it_moves, begin),
        cmocka_unit_test_setup(the_largest_counters_do_not_overflow, begin),
        cmocka_unit_test_setup(the_one_idle_longest_makes_room, begin),
        cmocka_unit_test_setup(idle_ones_are_dropped, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
