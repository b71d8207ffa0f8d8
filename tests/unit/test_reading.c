#include "broker/reading.h"

#include <string.h>

#include "tests/lib/check.h"

static struct reading reading;

static int begin(void **state)
{
    (void)state;
    reading_clear(&reading);
    return 0;
}

static void unknown_is_never_zero(void **state)
{
    (void)state;
    assert_int_equal(reading.slots_total, -1);
    assert_int_equal(reading.in_flight, -1);
    assert_int_equal(reading.queued, -1);
    assert_int_equal(reading.health, HEALTH_UNKNOWN);
    assert_int_equal(reading.signal, SIGNAL_NONE);
    assert_false(reading_counts(&reading));
}

static void what_cannot_be_is_made_unknown(void **state)
{
    (void)state;
    reading.health = 99;
    reading.signal = -3;
    reading.slots_total = 0;
    reading.in_flight = INT32_MIN;
    reading.queued = -2;
    reading.slot_count = INT32_MAX;
    reading.model_count = INT32_MAX;
    memset(reading.engine, 'e', sizeof reading.engine);
    memset(reading.detail, 'd', sizeof reading.detail);
    memset(reading.models, 'm', sizeof reading.models);
    reading_sanitize(&reading);
    assert_int_equal(reading.health, HEALTH_UNKNOWN);
    assert_int_equal(reading.signal, SIGNAL_NONE);
    assert_int_equal(reading.slots_total, -1);
    assert_int_equal(reading.in_flight, -1);
    assert_int_equal(reading.queued, -1);
    assert_int_equal(reading.slot_count, BOOK_SLOTS_MAX);
    assert_int_equal(reading.model_count, READING_MODELS);
    assert_int_equal(strlen(reading.engine), ENGINE_SIZE - 1);
    assert_int_equal(strlen(reading.detail), DETAIL_SIZE - 1);
    assert_int_equal(strlen(reading.models[READING_MODELS - 1].name), NAME_SIZE - 1);
    assert_int_equal(reading.models[0].state, MODEL_UNKNOWN);
}

static void numbers_cannot_overflow_the_arithmetic(void **state)
{
    (void)state;
    reading.slots_total = INT32_MAX;
    reading.in_flight = INT32_MAX;
    reading.queued = INT32_MAX;
    reading_sanitize(&reading);
    assert_int_equal(reading.slots_total, BOOK_SLOTS_MAX);
    assert_true(reading.in_flight <= INT32_MAX - 4 * BOOK_CELLS * BOOK_SLOTS_MAX);
}

/* Work is attributed by name only where there are names: without slots a count is a count. */
static void names_without_slots_are_no_names(void **state)
{
    (void)state;
    reading.named = 1;
    reading.slot_count = 0;
    reading_sanitize(&reading);
    assert_int_equal(reading.named, 0);
    reading.named = 7;
    reading.slot_count = 2;
    reading.slots[0] = (struct reading_slot){-7, 5};
    reading_sanitize(&reading);
    assert_int_equal(reading.named, 1);
    assert_int_equal(reading.slots[0].task, -1);
    assert_int_equal(reading.slots[0].busy, 1);
}

static void a_clean_one_stays_as_it_is(void **state)
{
    (void)state;
    reading.health = HEALTH_OK;
    reading.signal = SIGNAL_EXACT;
    reading.slots_total = 2;
    reading.in_flight = 1;
    reading.queued = 0;
    reading.named = 1;
    reading.slot_count = 2;
    reading.slots[0] = (struct reading_slot){71, 1};
    reading.slots[1] = (struct reading_slot){-1, 0};
    struct reading before = reading;
    reading_sanitize(&reading);
    assert_memory_equal(&before, &reading, sizeof reading);
    assert_true(reading_counts(&reading));
}

static void only_an_exact_and_healthy_one_counts(void **state)
{
    (void)state;
    reading.signal = SIGNAL_EXACT;
    reading.in_flight = 0;
    static const bool counts[] = {
        [HEALTH_UNKNOWN] = false,      [HEALTH_OK] = true,       [HEALTH_BUSY] = false,
        [HEALTH_LOADING] = false,      [HEALTH_SLEEPING] = true, [HEALTH_UNLOADED] = true,
        [HEALTH_UNAUTHORIZED] = false, [HEALTH_DOWN] = false,
    };
    for (int health = HEALTH_UNKNOWN; health <= HEALTH_DOWN; health++) {
        reading.health = health;
        assert_int_equal(reading_counts(&reading), counts[health]);
        assert_int_equal(health_admits((enum health)health), counts[health]);
    }
    reading.health = HEALTH_OK;
    reading.signal = SIGNAL_INFERRED;
    assert_false(reading_counts(&reading));
    reading.signal = SIGNAL_EXACT;
    reading.in_flight = -1;
    assert_false(reading_counts(&reading));
}

static void all_has_names(void **state)
{
    (void)state;
    assert_string_equal(health_name(HEALTH_UNAUTHORIZED), "unauthorized");
    assert_string_equal(health_name((enum health)99), "unknown");
    assert_string_equal(signal_name(SIGNAL_EXACT), "exact");
    assert_string_equal(signal_name(SIGNAL_INFERRED), "inferred");
    assert_string_equal(signal_name(SIGNAL_NONE), "none");
    static const char *const models[] = {"unknown", "loaded", "loading", "unloaded", "sleeping"};
    for (int i = 0; i <= MODEL_SLEEPING; i++)
        assert_string_equal(model_state_name((enum model_state)i), models[i]);
    assert_string_equal(model_state_name((enum model_state)99), "unknown");
}

/* How long after it became idle a server that is looked at each 1.2 s has not been asked for `ns`. */
static ns_t rests_for(ns_t ns)
{
    struct reading last, next;
    reading_clear(&last);
    ns_t begun = NS_PER_SEC, asked = begun;
    for (ns_t now = begun; now < begun + 4 * ns + 10 * NS_PER_SEC; now += 1200 * NS_PER_MS) {
        if (now - asked >= ns)
            return now - begun;
        reading_clear(&next);
        next.sent_ns = next.answered_ns = now;
        next.health = HEALTH_OK;
        next.in_peace = last.sent_ns != 0 && !reading_rest_is_over(&last, now);
        next.in_flight = next.in_peace ? -1 : 0;
        asked = next.in_peace ? asked : now;
        reading_rest(&next, &last);
        last = next;
    }
    return NS_NEVER;
}

static void who_is_looked_at_has_any_rest_in_the_end(void **state)
{
    (void)state;
    for (ns_t s = 1; s <= 7200; s = 2 * s + 1)
        assert_true(rests_for(s * NS_PER_SEC) <= (3 * s + 4) * NS_PER_SEC);
}

/* Less than a quarter of its time. */
static void one_that_never_slept_is_left_in_peace_seldom(void **state)
{
    (void)state;
    struct reading last;
    reading_clear(&last);
    uint32_t trials = 0, longest = 0, run = 0;
    for (uint32_t ticks = 1; ticks < UINT16_MAX; ticks++) {
        last.sent_ns = NS_PER_SEC;
        last.idle_ticks = (uint16_t)ticks;
        bool trial = reading_is_trial(&last, last.sent_ns);
        run = trial ? run + 1 : 0;
        longest = run > longest ? run : longest;
        trials += trial;
        assert_true(trials * 4 <= ticks);
    }
    assert_int_equal(longest, READING_TRIAL_S * (NS_PER_SEC / READING_TICK_NS));
    last.idle_ticks = UINT16_MAX;
    assert_false(reading_is_trial(&last, INT64_MAX / 2));
}

static void work_ends_a_rest(void **state)
{
    (void)state;
    struct reading last;
    reading_clear(&last);
    last.sent_ns = NS_PER_SEC;
    last.health = HEALTH_OK;
    last.in_flight = 0;
    last.idle_ticks = UINT16_MAX;
    assert_false(reading_rest_is_over(&last, 2 * NS_PER_SEC));
    reading.sent_ns = 2 * NS_PER_SEC;
    reading.health = HEALTH_OK;
    reading.in_flight = 0;
    reading_rest(&reading, &last);
    assert_int_equal(reading.idle_ticks, UINT16_MAX); /* it does not wrap */
    reading.in_flight = 1;
    reading_rest(&reading, &last);
    assert_int_equal(reading.idle_ticks, 0);
    assert_true(reading_rest_is_over(&reading, 3 * NS_PER_SEC));
    reading.in_flight = 0;
    reading.health = HEALTH_SLEEPING;
    reading_rest(&reading, &last);
    assert_int_equal(reading.idle_ticks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(unknown_is_never_zero, begin),
        cmocka_unit_test_setup(what_cannot_be_is_made_unknown, begin),
        cmocka_unit_test_setup(numbers_cannot_overflow_the_arithmetic, begin),
        cmocka_unit_test_setup(names_without_slots_are_no_names, begin),
        cmocka_unit_test_setup(a_clean_one_stays_as_it_is, begin),
        cmocka_unit_test_setup(only_an_exact_and_healthy_one_counts, begin),
        cmocka_unit_test_setup(all_has_names, begin),
        cmocka_unit_test_setup(who_is_looked_at_has_any_rest_in_the_end, begin),
        cmocka_unit_test_setup(one_that_never_slept_is_left_in_peace_seldom, begin),
        cmocka_unit_test_setup(work_ends_a_rest, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
