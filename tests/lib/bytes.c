#define _GNU_SOURCE
#include "tests/lib/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"

static struct probe_run run;
static struct provider_spec spec;
static uint64_t seed = 20260901;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static bool is_path(const char *asked, const char *path)
{
    size_t length = strlen(path);
    return strncmp(asked, path, length) == 0 && strchr("?", asked[length]) != NULL;
}

static struct http_answer answer_to(const struct bytes_place *place, const char *path,
                                    const struct http_answer *body)
{
    if (is_path(path, place->path))
        return *body;
    for (size_t i = 0; i < BYTES_OTHERS && place->other[i].path != NULL; i++)
        if (is_path(path, place->other[i].path))
            return (struct http_answer){.status = 200,
                                        .body = place->other[i].body,
                                        .size = strlen(place->other[i].body),
                                        .reason = ""};
    return (struct http_answer){.status = place->otherwise, .body = "{}", .size = 2, .reason = ""};
}

static void check(const struct bytes_place *place, const struct reading *reading)
{
    int busy = 0;
    assert_in_range(reading->health, HEALTH_UNKNOWN, HEALTH_DOWN);
    assert_in_range(reading->signal, SIGNAL_NONE, SIGNAL_EXACT);
    assert_true(reading->slots_total >= -1 && reading->slots_total <= BOOK_SLOTS_MAX);
    assert_true(reading->slots_total != 0);
    assert_true(reading->in_flight >= -1 && reading->queued >= -1);
    assert_true(reading->slot_count >= 0 && reading->slot_count <= BOOK_SLOTS_MAX);
    assert_true(reading->model_count >= 0 && reading->model_count <= READING_MODELS);
    assert_non_null(memchr(reading->detail, '\0', sizeof reading->detail));
    for (int i = 0; i < reading->slot_count; i++)
        busy += reading->slots[i].busy;
    if (reading->slot_count == BOOK_SLOTS_MAX) /* there may have been more */
        assert_true(busy <= reading->in_flight);
    else if (reading->slot_count > 0)
        assert_int_equal(busy, reading->in_flight);
    if (reading->health == HEALTH_OK && place->tells_slots)
        assert_true(reading->slots_total >= 1);
    if (reading->signal == SIGNAL_EXACT)
        assert_true(reading->in_flight >= 0 && health_admits((enum health)reading->health));
    if (reading->in_flight >= 0)
        assert_int_not_equal(reading->signal, SIGNAL_NONE);
}

static const struct reading *play(const struct bytes_place *place, const struct http_answer *body)
{
    struct engine_ask ask;
    memset(&run, 0, sizeof run);
    memset(&spec, 0, sizeof spec);
    snprintf(spec.model, sizeof spec.model, "%s", place->model != NULL ? place->model : "");
    spec.slots = place->slots > 0 ? place->slots : -1;
    run.spec = &spec;
    run.wants = place->wants;
    if (place->memory != NULL)
        run.memory = *place->memory;
    reading_clear(&run.last);
    reading_clear(&run.reading);
    place->engine->begin(&run, 1000);
    for (int i = 0; !run.decided && place->engine->next(&run, 1000 + i, &ask); i++) {
        struct http_answer answer = answer_to(place, ask.path, body);
        place->engine->take(&run, ask.kind, &answer);
        assert_true(i < ENGINE_ASKS_MAX);
    }
    place->engine->end(&run);
    check(place, &run.reading);
    return &run.reading;
}

const struct reading *bytes_play(const struct bytes_place *place, const char *body, size_t size)
{
    char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, body, size);
    copy[size] = '\0';
    struct http_answer answer = {
        .status = place->program ? 0 : 200, .body = copy, .size = size, .reason = ""};
    const struct reading *reading = play(place, &answer);
    free(copy);
    return reading;
}

/* A verify would say go: idle, or not told. */
static bool is_free(const struct reading *reading)
{
    return health_admits((enum health)reading->health) && reading->in_flight <= 0;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

void bytes_cut(const struct bytes_place *place, const struct recorded *one, bytes_whole *whole)
{
    for (size_t size = 0; size < one->size && !is_blank(one->body + size); size++) {
        const struct reading *reading = bytes_play(place, one->body, size);
        if (is_free(reading) && (whole == NULL || !whole(one->body, size)))
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

void bytes_change(const struct bytes_place *place, const struct recorded *one, long count)
{
    char *body = malloc(one->size + 1);
    assert_non_null(body);
    for (long i = 0; i < count && one->size > 0; i++) {
        memcpy(body, one->body, one->size + 1);
        for (uint64_t changes = 1 + draw() % 3; changes > 0; changes--)
            change(body, one->size);
        bytes_play(place, body, one->size);
    }
    free(body);
}

long bytes_seed(void)
{
    const char *text = getenv("PROBE_MUTATIONS");
    long count = text != NULL ? atol(text) : 10000;
    text = getenv("PROBE_SEED");
    seed = text != NULL ? strtoull(text, NULL, 10) : seed;
    print_message("seed %llu, %ld changes a body\n", (unsigned long long)seed, count);
    return count;
}

const struct bytes_place *bytes_place_of(const struct bytes_place *places, size_t count,
                                         const struct recorded *one, size_t index)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(one->name, places[i].name) != NULL)
            return &places[i];
    return &places[index % count];
}

bool bytes_seen(const struct recorded *all, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (all[i].size == all[index].size &&
            memcmp(all[i].body, all[index].body, all[i].size) == 0)
            return true;
    return false;
}
