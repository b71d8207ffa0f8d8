/* Every recorded body, cut at every byte and changed at random ones, as the answer to each question:
 * no crash, no reading out of bounds, and nothing free in what was cut off.
 *
 * PROBE_MUTATIONS and PROBE_SEED in the environment say how many changes a body and which. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine.h"
#include "tests/lib/check.h"
#include "tests/lib/recorded.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;
static struct probe_run run;
static struct provider_spec spec;
static uint64_t seed = 20260901;

static const char router[] = "{\"role\":\"router\"}";
static const char props_all[] =
    "{\"total_slots\":2,\"endpoint_slots\":true,\"endpoint_metrics\":true,\"is_sleeping\":false}";
static const char props_metrics[] =
    "{\"total_slots\":2,\"endpoint_slots\":false,\"endpoint_metrics\":true}";
static const char props_old[] = "{\"total_slots\":2}";

/* Where a body is put: what is answered before it by path; everything else is "off" (501). */
static const struct place {
    const char *path;
    const char *props;
    enum probe_wants wants;
} places[] = {
    {"/props", NULL, PROBE_FULL},
    {"/slots", props_all, PROBE_QUICK},
    {"/metrics", props_metrics, PROBE_FULL},
    {"/v1/models", router, PROBE_FULL},
    {"/health", props_old, PROBE_QUICK},
};
#define PLACES (sizeof places / sizeof *places)

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static struct http_answer answer_to(const struct place *place, const char *path,
                                    const struct http_answer *body)
{
    size_t length = strlen(place->path);
    if (strncmp(path, place->path, length) == 0 && strchr("?", path[length]) != NULL)
        return *body;
    if (strcmp(path, "/props") == 0 && place->props != NULL)
        return (struct http_answer){
            .status = 200, .body = place->props, .size = strlen(place->props), .reason = ""};
    return (struct http_answer){.status = 501, .body = "{}", .size = 2, .reason = ""};
}

static const struct reading *play(const struct place *place, const struct http_answer *body)
{
    struct engine_ask ask;
    memset(&run, 0, sizeof run);
    run.spec = &spec;
    run.wants = place->wants;
    reading_clear(&run.last);
    reading_clear(&run.reading);
    engine_llama.begin(&run, 1000);
    for (int i = 0; !run.decided && engine_llama.next(&run, 1000 + i, &ask); i++) {
        struct http_answer answer = answer_to(place, ask.path, body);
        engine_llama.take(&run, ask.kind, &answer);
        assert_true(i < ENGINE_ASKS_MAX);
    }
    engine_llama.end(&run);
    return &run.reading;
}

static void check(const struct reading *reading)
{
    int busy = 0;
    assert_in_range(reading->health, HEALTH_UNKNOWN, HEALTH_DOWN);
    assert_true(reading->slots_total >= -1 && reading->slots_total <= BOOK_SLOTS_MAX);
    assert_true(reading->slots_total != 0);
    assert_true(reading->in_flight >= -1 && reading->queued >= -1);
    assert_true(reading->slot_count >= 0 && reading->slot_count <= BOOK_SLOTS_MAX);
    assert_true(reading->model_count >= 0 && reading->model_count <= READING_MODELS);
    assert_non_null(memchr(reading->detail, '\0', sizeof reading->detail));
    for (int i = 0; i < reading->slot_count; i++)
        busy += reading->slots[i].busy;
    if (reading->slot_count > 0)
        assert_int_equal(busy, reading->in_flight);
    if (reading->health == HEALTH_OK)
        assert_true(reading->slots_total >= 1);
    if (reading->in_flight >= 0)
        assert_true(health_admits((enum health)reading->health));
}

static bool is_free(const struct reading *reading)
{
    return reading->health == HEALTH_OK && reading->in_flight == 0;
}

/* The body as it comes from HTTP: in a buffer of its own size, so that a reader past its end is
 * found, with a NUL after it. */
static struct http_answer copy_of(const char *body, size_t size)
{
    char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, body, size);
    copy[size] = '\0';
    return (struct http_answer){.status = 200, .body = copy, .size = size, .reason = ""};
}

static const struct reading *play_copy(const struct place *place, const char *body, size_t size)
{
    struct http_answer answer = copy_of(body, size);
    const struct reading *reading = play(place, &answer);
    check(reading);
    free((char *)answer.body);
    return reading;
}

/* Metrics are lines: cut after the last line that is used they still say the truth. */
static bool still_counts(const char *body, size_t size)
{
    static const char line[] = "\nllamacpp:requests_deferred ";
    const char *found = memmem(body, size, line, sizeof line - 1);
    return found != NULL && memchr(found + 1, '\n', size - (size_t)(found + 1 - body)) != NULL;
}

static void cut_everywhere(const struct recorded *one, const struct place *place)
{
    bool lines = strcmp(place->path, "/metrics") == 0;
    for (size_t size = 0; size < one->size; size++) {
        const struct reading *reading = play_copy(place, one->body, size);
        if (is_free(reading) && !(lines && still_counts(one->body, size)))
            fail_msg("%s cut at %zu as %s is free", one->name, size, place->path);
    }
}

static void change(char *body, size_t size)
{
    static const char interesting[] = "{}[]\",:\\0123456789-+.eEtfn \n\x7f\xff";
    size_t at = draw() % size, to = draw() % size;
    switch (draw() % 5) {
    case 0: body[at] = (char)draw(); break;
    case 1: body[at] = interesting[draw() % (sizeof interesting - 1)]; break;
    case 2: body[at] = (char)(body[at] ^ (1 << draw() % 8)); break;
    case 3: memmove(body + at, body + to, size - (at > to ? at : to)); break;
    default: memset(body + at, body[at], (size - at) < 9 ? size - at : 9); break;
    }
}

static void change_at_random(const struct recorded *one, const struct place *place, long count)
{
    char *body = malloc(one->size + 1);
    assert_non_null(body);
    for (long i = 0; i < count; i++) {
        memcpy(body, one->body, one->size + 1);
        for (uint64_t changes = 1 + draw() % 3; changes > 0; changes--)
            change(body, one->size);
        play_copy(place, body, one->size);
    }
    free(body);
}

/* The place that a body was recorded for, by its name; others take turns. */
static const struct place *place_of(const struct recorded *one, size_t index)
{
    static const char *const parts[PLACES] = {".props", ".slots", ".metrics", ".v1models",
                                              ".health"};
    for (size_t i = 0; i < PLACES; i++)
        if (strstr(one->name, parts[i]) != NULL)
            return &places[i];
    return &places[index % PLACES];
}

static bool seen_before(size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (all[i].size == all[index].size &&
            memcmp(all[i].body, all[index].body, all[i].size) == 0)
            return true;
    return false;
}

static void whole_bodies_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < all_count; i++)
        for (size_t k = 0; k < PLACES; k++)
            play_copy(&places[k], all[i].body, all[i].size);
}

static void no_cut_body_is_free(void **state)
{
    (void)state;
    for (size_t i = 0; i < all_count; i++)
        if (!seen_before(i))
            cut_everywhere(&all[i], place_of(&all[i], i));
}

static void changed_bodies_do_no_harm(void **state)
{
    (void)state;
    const char *text = getenv("PROBE_MUTATIONS");
    long count = text != NULL ? atol(text) : 10000;
    text = getenv("PROBE_SEED");
    seed = text != NULL ? strtoull(text, NULL, 10) : seed;
    print_message("seed %llu, %ld changes a body\n", (unsigned long long)seed, count);
    for (size_t i = 0; i < all_count; i++)
        if (!seen_before(i) && all[i].size > 0)
            change_at_random(&all[i], place_of(&all[i], i), count);
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
        assert_int_equal(play_copy(&places[0], body, HTTP_BODY_MAX)->health, HEALTH_UNKNOWN);
        assert_int_equal(play_copy(&places[1], body, HTTP_BODY_MAX)->health, HEALTH_UNKNOWN);
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
    struct http_answer answer = copy_of(body, 2000 * length + 1);
    const struct reading *reading = play(&places[1], &answer);
    assert_int_equal(reading->health, HEALTH_OK);
    assert_int_equal(reading->slots_total, BOOK_SLOTS_MAX);
    assert_int_equal(reading->slot_count, BOOK_SLOTS_MAX);
    assert_int_equal(reading->in_flight, 2000);
    free((char *)answer.body);
    free(body);
}

static int load(void **state)
{
    (void)state;
    all_count = recorded_load("llama.cpp", all);
    snprintf(spec.model, sizeof spec.model, "tiny");
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
