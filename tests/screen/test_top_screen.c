/* What goes over the wire to a terminal: drawn through newterm into a file, and counted. */
#define _GNU_SOURCE
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/check.h"
#include "tests/screen/fleet.h"
#include "tools/top_screen.h"
#include "tools/top_text.h"

#define BUDGET 40 /* bytes for one digit that changed */

/* newterm keeps what it allocated for a terminal that it does not know. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libtinfo";
}

struct stage {
    FILE *out, *in;
    int keys; /* what is written here is typed */
    struct top_model model;
    struct top_rows rows;
    struct top_ui ui;
    struct top_grid grid;
    long written;
};

static int set_up(void **state)
{
    static struct stage stage;
    char why[256] = "";
    memset(&stage, 0, sizeof stage);
    stage.out = tmpfile();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    stage.in = fdopen(ends[0], "r");
    stage.keys = ends[1];
    assert_non_null(stage.out);
    assert_non_null(stage.in);
    if (!top_screen_open("xterm-256color", stage.out, stage.in, true, why, sizeof why))
        fail_msg("%s", why);
    top_screen_pretend(80, 24);
    top_model_init(&stage.model);
    top_ui_init(&stage.ui);
    *state = &stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    top_screen_close();
    top_screen_pretend(0, 0);
    top_grid_free(&stage->grid);
    top_rows_free(&stage->rows);
    top_ui_free(&stage->ui);
    top_model_free(&stage->model);
    fclose(stage->out);
    fclose(stage->in);
    close(stage->keys);
    return 0;
}

/* Bytes that this frame took. */
static long show(struct stage *stage, const char *clock)
{
    int width, height;
    struct stat status;
    top_screen_size(&width, &height);
    assert_true(top_grid_resize(&stage->grid, width, height));
    assert_true(top_rows_make(&stage->rows, &stage->model, &stage->ui.wish, START));
    struct top_scene scene = {&stage->model, &stage->rows, &stage->ui, START, clock};
    top_view_draw(&scene, &stage->grid);
    top_screen_show(&stage->grid);
    fflush(stage->out);
    assert_int_equal(fstat(fileno(stage->out), &status), 0);
    long before = stage->written;
    stage->written = (long)status.st_size;
    return stage->written - before;
}

static void an_unchanged_frame_is_free(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, fleet_demo(), START, true);
    long first = show(stage, "12:04:31"), again = show(stage, "12:04:31");
    printf("first frame %ld bytes, unchanged %ld\n", first, again);
    assert_true(first > 500);
    assert_int_equal(again, 0);
}

static void one_digit_is_cheap(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, fleet_demo(), START, true);
    show(stage, "12:04:31");
    long bytes = show(stage, "12:04:32");
    printf("one digit %ld bytes\n", bytes);
    assert_in_range(bytes, 1, BUDGET - 1);
    struct lease_fleet *fleet = fleet_demo();
    for (uint32_t i = 0; i < fleet->lease_count; i++) /* one lease's remaining time, by a second */
        if (strcmp(fleet->leases[i].label, "nightly") == 0)
            fleet->leases[i].left_ms += 1000;
    fleet_show(&stage->model, fleet, START, true);
    bytes = show(stage, "12:04:32");
    printf("one time %ld bytes\n", bytes);
    assert_in_range(bytes, 1, BUDGET - 1);
}

static void a_frame_without_colour_says_the_same(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, fleet_demo(), START, true);
    show(stage, "12:04:31");
    char text[1024];
    bool said = false;
    for (int y = 0; y < stage->grid.height; y++) {
        top_grid_line(&stage->grid, y, text);
        said = said || strstr(text, "! stranger   without a lease");
    }
    assert_true(said);
}

static void survives_every_resize(void **state)
{
    struct stage *stage = *state;
    static const int sizes[][2] = {{1, 1},  {40, 6},  {300, 100}, {20, 3},
                                   {2, 50}, {200, 1}, {80, 24}};
    fleet_show(&stage->model, fleet_demo(), START, true);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        top_screen_pretend(sizes[i][0], sizes[i][1]);
        assert_true(show(stage, "12:04:31") > 0);
        assert_int_equal(stage->grid.width, sizes[i][0]);
        assert_int_equal(stage->grid.height, sizes[i][1]);
        assert_int_equal(show(stage, "12:04:31"), 0);
    }
}

static void type(const struct stage *stage, const char *keys)
{
    assert_int_equal(write(stage->keys, keys, strlen(keys)), strlen(keys));
}

static void a_resize_is_no_key(void **state)
{
    struct stage *stage = *state;
    show(stage, "12:04:31");
    top_screen_pretend(100, 30);
    show(stage, "12:04:31");
    assert_int_equal(top_screen_key(), 0);
    top_screen_pretend(90, 20);
    show(stage, "12:04:31");
    type(stage, "q");
    assert_int_equal(top_screen_key(), 'q');
    assert_int_equal(top_screen_key(), 0);
}

static void a_special_key_is_one_key(void **state)
{
    struct stage *stage = *state;
    type(stage, "\033OA\033OD\033[15~x"); /* Up, Left, F5 */
    assert_int_equal(top_screen_key(), TOP_KEY_UP);
    assert_int_equal(top_screen_key(), TOP_KEY_OTHER);
    assert_int_equal(top_screen_key(), TOP_KEY_OTHER);
    assert_int_equal(top_screen_key(), 'x');
}

static void names_what_it_cannot_use(void **state)
{
    char why[256] = "";
    (void)state;
    FILE *out = tmpfile(), *in = fopen("/dev/null", "r");
    assert_non_null(out);
    assert_non_null(in);
    assert_false(top_screen_open("no-such-terminal", out, in, true, why, sizeof why));
    assert_string_equal(why, "unknown terminal 'no-such-terminal'; try TERM=xterm or leasetop -b");
    assert_false(top_screen_open("dumb", out, in, true, why, sizeof why));
    assert_string_equal(why, "terminal 'dumb' cannot place its cursor; try leasetop -b");
    fclose(out);
    fclose(in);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    top_text_use_utf8(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_unchanged_frame_is_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_digit_is_cheap, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_frame_without_colour_says_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survives_every_resize, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resize_is_no_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_special_key_is_one_key, set_up, tear_down),
        cmocka_unit_test(names_what_it_cannot_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
