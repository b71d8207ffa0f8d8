/* What scripts read: JSON is parsed back, text is harmless and cut only where asked. */
#define _GNU_SOURCE
#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"
#include "tests/screen/fleet.h"
#include "tools/top_batch.h"
#include "tools/top_text.h"

struct stage {
    struct top_model model;
    struct top_rows rows;
    struct top_frame frame;
    struct top_wish wish;
};

static void begin(struct stage *stage, struct lease_fleet *fleet, const char *filter)
{
    char why[128];
    memset(stage, 0, sizeof *stage);
    top_model_init(&stage->model);
    assert_true(top_filter_read(filter, &stage->wish.filter, why));
    fleet_show(&stage->model, fleet, START, true);
    assert_true(top_rows_make(&stage->rows, &stage->model, &stage->wish, START));
    stage->frame = (struct top_frame){.model = &stage->model,
                                      .rows = &stage->rows,
                                      .wish = &stage->wish,
                                      .filter = filter,
                                      .clock = "12:04:31",
                                      .now_ns = START,
                                      .number = 1};
}

static void end(struct stage *stage)
{
    top_rows_free(&stage->rows);
    top_model_free(&stage->model);
}

static json_t *parsed(const struct stage *stage)
{
    json_error_t error;
    char *text = top_batch_json(&stage->frame);
    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        fail_msg("%s: %s", error.text, text);
    free(text);
    return object;
}

static json_t *provider(json_t *object, const char *name)
{
    size_t index;
    json_t *each;
    json_array_foreach(json_object_get(object, "providers"), index, each)
    {
        if (strcmp(json_string_value(json_object_get(each, "provider")), name) == 0)
            return each;
    }
    return NULL;
}

static void json_says_what_the_screen_says(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage, fleet_demo(), "");
    json_t *object = parsed(&stage), *totals = json_object_get(object, "totals");
    assert_int_equal(json_integer_value(json_object_get(object, "schema")), 1);
    assert_int_equal(json_array_size(json_object_get(object, "providers")), 10);
    for (int i = 0; i < TOP_STATES; i++)
        assert_int_equal(
            json_integer_value(json_object_get(totals, top_state_word((enum top_state)i))),
            stage.model.totals.counts[i]);
    json_t *lost = provider(object, "far-lost");
    assert_true(json_is_null(json_object_get(lost, "free")));
    assert_true(json_is_null(json_object_get(lost, "available")));
    assert_true(json_is_null(json_object_get(json_object_get(lost, "capacity"), "in_flight")));
    assert_string_equal(json_string_value(json_object_get(lost, "strip")), "????");
    json_decref(object);
    end(&stage);
}

static void json_has_only_providers_that_pass(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage, fleet_demo(), "state:stranger");
    json_t *object = parsed(&stage);
    assert_int_equal(json_array_size(json_object_get(object, "providers")), 1);
    assert_non_null(provider(object, "m5"));
    assert_int_equal(json_integer_value(json_object_get(object, "matched")), 1);
    json_decref(object);
    end(&stage);
}

static void json_of_any_fleet_can_be_read(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct stage stage;
        begin(&stage, fleet_random(&seed, 10), "");
        json_t *object = parsed(&stage);
        assert_int_equal(json_array_size(json_object_get(object, "providers")),
                         stage.model.provider_count);
        json_decref(object);
        end(&stage);
    }
}

static void check_text(const char *text, int width)
{
    const char *line = text;
    for (const char *at = text; *at;) {
        uint32_t c = top_text_next(&at);
        assert_true(c == '\n' || (c >= 0x20 && (c < 0x7f || c >= 0xa0)));
        if (c != '\n')
            continue;
        char copy[4096];
        snprintf(copy, sizeof copy, "%.*s", (int)(at - 1 - line), line);
        assert_true(width == 0 || top_text_width(copy) <= width);
        line = at;
    }
}

static void text_is_harmless_and_as_wide_as_asked(void **state)
{
    static const int widths[] = {0, 1, 20, 80, 300};
    uint64_t seed = 11;
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct stage stage;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        begin(&stage, fleet_random(&seed, 10), "");
        stage.frame.width = widths[i % 5];
        top_batch_text(&stage.frame, out);
        fclose(out);
        check_text(text, stage.frame.width);
        free(text);
        end(&stage);
    }
}

static void text_cuts_nothing_unless_asked(void **state)
{
    struct stage stage;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    (void)state;
    assert_non_null(out);
    begin(&stage, fleet_demo(), "");
    top_batch_text(&stage.frame, out);
    fclose(out);
    assert_non_null(strstr(text, "down: refused, or not reached"));
    assert_non_null(strstr(text, "was l ci@build-2@ws-11 (lapsed?)"));
    assert_null(strchr(text, '~'));
    free(text);
    end(&stage);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    top_text_use_utf8(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_says_what_the_screen_says),
        cmocka_unit_test(json_has_only_providers_that_pass),
        cmocka_unit_test(json_of_any_fleet_can_be_read),
        cmocka_unit_test(text_is_harmless_and_as_wide_as_asked),
        cmocka_unit_test(text_cuts_nothing_unless_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
