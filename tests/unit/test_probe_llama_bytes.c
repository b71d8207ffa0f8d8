/* Every recorded body of llama.cpp, cut and changed (tests/lib/bytes.h), as the answer to each
 * question. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tests/lib/bytes.h"
#include "tests/lib/check.h"
#include "tests/lib/recorded.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;

static const char router[] = "{\"role\":\"router\"}";
static const char props_all[] =
    "{\"total_slots\":2,\"endpoint_slots\":true,\"endpoint_metrics\":true,\"is_sleeping\":false}";
static const char props_metrics[] =
    "{\"total_slots\":2,\"endpoint_slots\":false,\"endpoint_metrics\":true}";
static const char props_old[] = "{\"total_slots\":2}";

#define PLACE(question, at, props, how)                                                            \
    {                                                                                              \
        .engine = &engine_llama, .name = question, .path = at, .other = {{"/props", props}},       \
        .otherwise = 501, .wants = how, .model = "tiny", .tells_slots = true,                      \
    }

static const struct bytes_place places[] = {
    PLACE(".props", "/props", "", PROBE_FULL),
    PLACE(".slots", "/slots", props_all, PROBE_QUICK),
    PLACE(".metrics", "/metrics", props_metrics, PROBE_FULL),
    PLACE(".v1models", "/v1/models", router, PROBE_FULL),
    PLACE(".health", "/health", props_old, PROBE_QUICK),
};
#define PLACES (sizeof places / sizeof *places)

/* Metrics are lines: cut after the last line that is used they still say the truth. */
static bool still_counts(const char *body, size_t size)
{
    static const char line[] = "\nllamacpp:requests_deferred ";
    const char *found = memmem(body, size, line, sizeof line - 1);
    return found != NULL && memchr(found + 1, '\n', size - (size_t)(found + 1 - body)) != NULL;
}

static void whole_bodies_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < all_count; i++)
        for (size_t k = 0; k < PLACES; k++)
            bytes_play(&places[k], all[i].body, all[i].size);
}

static void no_cut_body_is_free(void **state)
{
    (void)state;
    for (size_t i = 0; i < all_count; i++) {
        const struct bytes_place *place = bytes_place_of(places, PLACES, &all[i], i);
        bool lines = strcmp(place->path, "/metrics") == 0;
        if (!bytes_seen(all, i))
            bytes_cut(place, &all[i], lines ? still_counts : NULL);
    }
}

static void changed_bodies_do_no_harm(void **state)
{
    (void)state;
    long count = bytes_seed();
    for (size_t i = 0; i < all_count; i++)
        if (!bytes_seen(all, i))
            bytes_change(bytes_place_of(places, PLACES, &all[i], i), &all[i], count);
}

static void monsters_are_refused_early(void **state)
{
    (void)state;
    char *body = malloc(HTTP_BODY_MAX);
    assert_non_null(body);
    static const char *const fills[] = {"[", "0,", "{\"a\":", "\"", "\\", "[],"};
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        size_t length = strlen(fills[i]);
        for (size_t at = 0; at < HTTP_BODY_MAX; at++)
            body[at] = at == 0 ? '[' : fills[i][at % length];
        assert_int_equal(bytes_play(&places[0], body, HTTP_BODY_MAX)->health, HEALTH_UNKNOWN);
        assert_int_equal(bytes_play(&places[1], body, HTTP_BODY_MAX)->health, HEALTH_UNKNOWN);
    }
    free(body);
}

/* 2,000 slots are said to be 1,024, and all that is in flight is counted. */
static void too_many_slots_are_cut(void **state)
{
    (void)state;
    static const char slot[] = "{\"is_processing\":true,\"id_task\":5},";
    size_t length = sizeof slot - 1;
    char *body = malloc(2000 * length + 2);
    assert_non_null(body);
    body[0] = '[';
    for (size_t i = 0; i < 2000; i++)
        memcpy(body + 1 + i * length, slot, length);
    body[2000 * length] = ']';
    const struct reading *reading = bytes_play(&places[1], body, 2000 * length + 1);
    assert_int_equal(reading->health, HEALTH_OK);
    assert_int_equal(reading->slots_total, BOOK_SLOTS_MAX);
    assert_int_equal(reading->slot_count, BOOK_SLOTS_MAX);
    assert_int_equal(reading->in_flight, 2000);
    free(body);
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("llama.cpp", all);
    return all_count > 300 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_bodies_anywhere),     cmocka_unit_test(no_cut_body_is_free),
        cmocka_unit_test(changed_bodies_do_no_harm), cmocka_unit_test(monsters_are_refused_early),
        cmocka_unit_test(too_many_slots_are_cut),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
