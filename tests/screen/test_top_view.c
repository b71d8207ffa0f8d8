/* Grids: as they are meant to look (golden files), and right at every size.
 *
 * LEASE_UPDATE_GOLDEN=1 rewrites the golden files. LEASE_SEED=N repeats a sweep. */
#define _GNU_SOURCE
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"
#include "tests/screen/fleet.h"
#include "tools/top_text.h"
#include "tools/top_view.h"

#define TEXT_SIZE 65536

struct stage {
    struct top_model model;
    struct top_rows rows;
    struct top_ui ui;
    struct top_grid grid;
    int64_t now_ns;
};

static void begin(struct stage *stage)
{
    *stage = (struct stage){.now_ns = START};
    top_model_init(&stage->model);
    top_ui_init(&stage->ui);
}

static void end(struct stage *stage)
{
    top_grid_free(&stage->grid);
    top_rows_free(&stage->rows);
    top_ui_free(&stage->ui);
    top_model_free(&stage->model);
}

static void draw(struct stage *stage, int width, int height)
{
    assert_true(top_grid_resize(&stage->grid, width, height));
    top_ui_before_rows(&stage->ui, stage->now_ns);
    assert_true(top_rows_make(&stage->rows, &stage->model, &stage->ui.wish, stage->now_ns));
    top_ui_after_rows(&stage->ui, &stage->rows);
    struct top_scene scene = {&stage->model, &stage->rows, &stage->ui, stage->now_ns, "12:04:31"};
    top_view_draw(&scene, &stage->grid);
}

static void press(struct stage *stage, const char *keys)
{
    for (; *keys; keys++) {
        top_ui_key(&stage->ui, &stage->rows, (unsigned char)*keys, stage->now_ns);
        draw(stage, stage->grid.width, stage->grid.height);
    }
}

/* Every line with a bar behind its last column, so that a golden file shows how wide it is. */
static void print_grid(const struct top_grid *grid, char *text)
{
    for (int y = 0; y < grid->height; y++) {
        char line[1024];
        top_grid_line(grid, y, line);
        text += sprintf(text, "%s%*s|\n", line, grid->width - top_text_width(line), "");
    }
}

static void compare_golden(const struct top_grid *grid, const char *name)
{
    char path[512], wanted[TEXT_SIZE] = "";
    static char drawn[TEXT_SIZE];
    print_grid(grid, drawn);
    snprintf(path, sizeof path, "%s/%s.txt", GOLDEN_DIR, name);
    if (getenv("LEASE_UPDATE_GOLDEN")) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(drawn, file);
        assert_int_equal(fclose(file), 0);
        return;
    }
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("no %s; LEASE_UPDATE_GOLDEN=1 writes it", path);
    wanted[fread(wanted, 1, sizeof wanted - 1, file)] = '\0';
    fclose(file);
    if (strcmp(drawn, wanted) != 0)
        fail_msg("%s is not what was drawn:\n%s", path, drawn);
}

/* ---- golden ----------------------------------------------------------------------------- */

static void looks_as_meant(void **state)
{
    static const int sizes[][2] = {{80, 24}, {120, 30}, {60, 15}, {40, 10}, {20, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct stage stage;
        char name[64];
        begin(&stage);
        fleet_show(&stage.model, fleet_demo(), START, true);
        draw(&stage, sizes[i][0], sizes[i][1]);
        snprintf(name, sizeof name, "demo-%dx%d", sizes[i][0], sizes[i][1]);
        compare_golden(&stage.grid, name);
        end(&stage);
    }
}

/* Two providers of two other hosts, one of which was not heard of late. */
static struct lease_fleet *two_hosts(int64_t silent_ms)
{
    struct lease_fleet *fleet = fleet_new();
    struct lease_view *view = fleet_provider(fleet, "m5", 2, 1);
    strcpy(view->owner, "m5");
    view->reach = LEASE_REACH_FLEET;
    fleet_lease(fleet, "dispatched", "alice/train-7", 28000)->reach = LEASE_REACH_FLEET;
    view = fleet_provider(fleet, "z4", 2, 0);
    strcpy(view->owner, "z4");
    strcpy(view->state, silent_ms > 3000 ? "stale" : "live");
    view->heard_ms = silent_ms;
    view->age_ms = silent_ms + 100;
    fleet_lease(fleet, "held", "ci@build-2", 9000 - silent_ms);
    fleet_peer(fleet, "m5", "live", 200);
    fleet_peer(fleet, "z4", silent_ms > 3000 ? "silent" : "live", silent_ms);
    fleet_settle(fleet);
    return fleet;
}

static void looks_as_meant_with_other_hosts(void **state)
{
    struct stage stage;
    char line[512];
    (void)state;
    begin(&stage);
    fleet_show(&stage.model, two_hosts(200), START - 5 * SECOND, true);
    stage.now_ns = START - 5 * SECOND;
    draw(&stage, 80, 24);
    top_grid_line(&stage.grid, 1, line);
    assert_non_null(strstr(line, "hosts 3"));
    assert_null(strstr(line, "silent"));
    fleet_show(&stage.model, two_hosts(5200), START, true);
    stage.now_ns = START;
    draw(&stage, 80, 24);
    compare_golden(&stage.grid, "hosts-80x24");
    draw(&stage, 60, 15);
    compare_golden(&stage.grid, "hosts-60x15");
    end(&stage);
}

static void looks_as_meant_when_the_agent_is_lost(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage);
    fleet_show(&stage.model, fleet_demo(), START, true);
    fleet_show(&stage.model, fleet_demo(), START + 5 * SECOND, false);
    stage.now_ns = START + 8 * SECOND;
    draw(&stage, 80, 24);
    compare_golden(&stage.grid, "lost-80x24");
    fleet_show(&stage.model, fleet_demo(), START + 9 * SECOND, true);
    stage.now_ns = START + 9 * SECOND;
    draw(&stage, 80, 24);
    char line[512];
    top_grid_line(&stage.grid, 0, line);
    assert_non_null(strstr(line, "LIVE"));
    end(&stage);
}

static void looks_as_meant_after_keys(void **state)
{
    static const struct {
        const char *keys, *name;
    } pages[] = {{"h", "providers-80x24"}, {"?", "help-80x24"},   {"/state:free\n", "filter-80x24"},
                 {"jjj", "cursor-80x24"},  {"z", "unfold-80x24"}, {"sp", "sorted-80x24"}};
    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        struct stage stage;
        begin(&stage);
        fleet_show(&stage.model, fleet_demo(), START, true);
        draw(&stage, 80, 24);
        press(&stage, pages[i].keys);
        compare_golden(&stage.grid, pages[i].name);
        end(&stage);
    }
}

static void looks_as_meant_without_anything(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage);
    draw(&stage, 80, 10);
    compare_golden(&stage.grid, "starting-80x10");
    fleet_show(&stage.model, fleet_new(), START, false);
    draw(&stage, 80, 10);
    compare_golden(&stage.grid, "empty-80x10");
    end(&stage);
}

/* ---- every size ------------------------------------------------------------------------- */

static void check_line(const struct top_grid *grid, int y)
{
    int columns = 0;
    for (int x = 0; x < grid->width; x++) {
        uint32_t c = grid->cells[y * grid->width + x].character;
        if (c == 0) {
            assert_true(x > 0 &&
                        top_text_columns(grid->cells[y * grid->width + x - 1].character) == 2);
            continue;
        }
        assert_true(c >= 0x20 && (c < 0x7f || c >= 0xa0));
        assert_false(c == 0x202e || c == 0x9b);
        columns += top_text_columns(c);
    }
    assert_int_equal(columns, grid->width);
    if (grid->width > 1)
        assert_int_equal(grid->cells[(y + 1) * grid->width - 1].character, ' ');
}

static void check_sums(const struct top_model *model)
{
    uint32_t sum = 0, strips = 0;
    for (int i = 0; i < TOP_STATES; i++)
        sum += model->totals.counts[i];
    assert_int_equal(sum, model->totals.slots + model->totals.over);
    for (uint32_t i = 0; i < model->provider_count; i++) {
        char strip[64];
        strips += top_strip(&model->providers[i], strip, sizeof strip);
    }
    assert_int_equal(strips, sum);
}

/* Each unit has a row, and no unit has two. */
static void check_rows(const struct stage *stage)
{
    uint32_t units[TOP_STATES] = {0};
    for (uint32_t i = 0; i < stage->rows.count; i++)
        units[stage->rows.rows[i].state] += stage->rows.rows[i].units;
    for (int i = 0; i < TOP_STATES; i++)
        assert_int_equal(units[i], stage->model.totals.counts[i]);
}

static void is_right_at_every_size(void **state)
{
    const char *given = getenv("LEASE_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20240607, first = seed;
    static const char keys[] = "jkhzrp?fsg/G+-\033l";
    (void)state;
    printf("LEASE_SEED=%llu\n", (unsigned long long)first);
    for (int height = 1; height <= 60; height++) {
        struct stage stage;
        begin(&stage);
        for (int width = 1; width <= 200; width++) {
            if (width % 16 == 1) {
                bool beats = fleet_draw(&seed) % 4 != 0;
                stage.now_ns += (int64_t)(fleet_draw(&seed) % 20) * SECOND;
                fleet_show(&stage.model, fleet_random(&seed, 24), stage.now_ns, beats);
                check_sums(&stage.model);
                stage.ui.wish.filter.count = 0;
                stage.ui.mode = TOP_MODE_LIST;
                draw(&stage, width, height);
                check_rows(&stage);
            }
            draw(&stage, width, height);
            top_ui_key(&stage.ui, &stage.rows,
                       (unsigned char)keys[fleet_draw(&seed) % (sizeof keys - 1)], stage.now_ns);
            draw(&stage, width, height);
            for (int y = 0; y < height; y++)
                check_line(&stage.grid, y);
        }
        end(&stage);
    }
}

/* ---- names ------------------------------------------------------------------------------ */

static void tells_long_names_apart(void **state)
{
    struct stage stage;
    struct lease_fleet *fleet = fleet_new();
    char first[256] = "", second[256] = "";
    (void)state;
    begin(&stage);
    fleet_provider(fleet, "a-name-of-63-characters-that-has-the-same-beginning-as-others-1", 1, 0);
    fleet_provider(fleet, "a-name-of-63-characters-that-has-the-same-beginning-as-others-2", 1, 0);
    fleet_settle(fleet);
    fleet_show(&stage.model, fleet, START, true);
    draw(&stage, 80, 10);
    top_grid_line(&stage.grid, 5, first);
    top_grid_line(&stage.grid, 6, second);
    assert_non_null(strstr(first, "others-1") ? first : strstr(first, "rs-1"));
    assert_string_not_equal(first, second);
    end(&stage);
}

/* Lines that show a holder, which must all differ. */
static void check_holders(const struct stage *stage, uint32_t wanted)
{
    static char lines[64][1024];
    uint32_t found = 0;
    for (int y = 0; y < stage->grid.height && found < 64; y++) {
        top_grid_line(&stage->grid, y, lines[found]);
        if (strncmp(lines[found], " one   ", 7) == 0 && strstr(lines[found], "aa"))
            found++;
    }
    if (found != wanted)
        fail_msg("%u holders at width %d", found, stage->grid.width);
    for (uint32_t i = 0; i < found; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(lines[i], lines[k]) == 0)
                fail_msg("twice at width %d: %s", stage->grid.width, lines[i]);
}

static struct lease_fleet *alike_but_for_their_ends(const char *state, bool idle, int64_t left_ms)
{
    struct lease_fleet *fleet = fleet_new();
    fleet_provider(fleet, "one", 3, idle ? 0 : 3);
    for (int i = 1; i <= 3; i++) {
        char label[LEASE_LABEL_SIZE];
        memset(label, 'a', 60);
        snprintf(label + 60, sizeof label - 60, "%03d", i);
        struct lease_entry *lease = fleet_lease(fleet, state, label, left_ms);
        lease->idle_ms = idle ? 194000 : -1;
        lease->pid = 77; /* not what tells them apart */
    }
    fleet_settle(fleet);
    return fleet;
}

static void tells_holders_apart_at_every_width(void **state)
{
    static const struct {
        const char *state;
        bool idle, beats;
        int64_t left_ms;
    } cases[] = {{"held", false, true, 5000},
                 {"held", false, false, 5000},
                 {"dispatched", true, true, 5000},
                 {"held", false, true, -9000}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stage stage;
        begin(&stage);
        fleet_show(&stage.model, fleet_new(), START - SECOND, true);
        fleet_show(&stage.model,
                   alike_but_for_their_ends(cases[i].state, cases[i].idle, cases[i].left_ms), START,
                   cases[i].beats);
        for (int width = 40; width <= 200; width++) {
            draw(&stage, width, 13);
            check_holders(&stage, 3);
        }
        end(&stage);
    }
}

static void check_has_line(const struct stage *stage, const char *wanted)
{
    char line[1024];
    for (int y = 0; y < stage->grid.height; y++) {
        top_grid_line(&stage->grid, y, line);
        if (strstr(line, wanted))
            return;
    }
    fail_msg("no '%s'", wanted);
}

static void says_how_much_is_beyond_both_ends(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage);
    fleet_show(&stage.model, fleet_large(20, 4), START, true);
    draw(&stage, 80, 24);
    check_has_line(&stage, " more below");
    press(&stage, "Gkkkkkkkkkkkkkkkkkkkkkkkkk");
    check_has_line(&stage, " more above, ");
    press(&stage, "G");
    check_has_line(&stage, " more above");
    end(&stage);
}

static void ages_go_on_growing_during_a_pause(void **state)
{
    struct stage stage;
    (void)state;
    begin(&stage);
    fleet_show(&stage.model, alike_but_for_their_ends("held", false, 60000), START, true);
    draw(&stage, 120, 24);
    press(&stage, "p");
    check_has_line(&stage, "taken 22s ago");
    stage.now_ns += 8 * SECOND;
    draw(&stage, 120, 24);
    check_has_line(&stage, "taken 30s ago");
    end(&stage);
}

static void says_of_a_lease_that_its_server_is_down(void **state)
{
    struct stage stage;
    struct lease_fleet *fleet = fleet_new();
    (void)state;
    begin(&stage);
    struct lease_view *view = fleet_provider(fleet, "z4", 2, -1);
    strcpy(view->health, "down");
    strcpy(view->detail, "refused");
    fleet_lease(fleet, "dispatched", "alice", 20000)->idle_ms = 4000;
    fleet_settle(fleet);
    fleet_show(&stage.model, fleet, START, true);
    stage.ui.wish.sort = TOP_BY_STATE; /* the lease comes first */
    draw(&stage, 120, 24);
    check_has_line(&stage, "providers 1 : 1 live (1 down)");
    check_has_line(&stage, "D dispatched alice@ws-11 (down)");
    check_has_line(&stage, "alice@ws-11 (down)  down: refused  pid");
    end(&stage);
}

static void aligns_wide_names(void **state)
{
    struct stage stage;
    struct lease_fleet *fleet = fleet_new();
    (void)state;
    begin(&stage);
    fleet_provider(fleet, "z4", 2, 0);
    fleet_lease(fleet, "held", "\xe6\x97\xa5\xe6\x9c\xac", 5000);
    fleet_lease(fleet, "held", "nihon", 6000);
    fleet_settle(fleet);
    fleet_show(&stage.model, fleet, START, true);
    draw(&stage, 80, 10);
    char wide[256], narrow[256];
    top_grid_line(&stage.grid, 5, wide);
    top_grid_line(&stage.grid, 6, narrow);
    assert_non_null(strstr(wide, "\xe6\x97\xa5\xe6\x9c\xac@ws-11"));
    assert_int_equal(top_text_width(wide), top_text_width(narrow));
    end(&stage);
}

static int use_utf8(void **state)
{
    (void)state;
    setlocale(LC_CTYPE, "C.UTF-8");
    top_text_use_utf8(true);
    return 0;
}

static int use_ascii(void **state)
{
    (void)state;
    setlocale(LC_CTYPE, "C");
    top_text_use_utf8(false);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_as_meant),
        cmocka_unit_test(looks_as_meant_with_other_hosts),
        cmocka_unit_test(looks_as_meant_when_the_agent_is_lost),
        cmocka_unit_test(looks_as_meant_after_keys),
        cmocka_unit_test(looks_as_meant_without_anything),
        cmocka_unit_test_setup(is_right_at_every_size, use_ascii),
        cmocka_unit_test_setup(is_right_at_every_size, use_utf8),
        cmocka_unit_test(tells_long_names_apart),
        cmocka_unit_test(tells_holders_apart_at_every_width),
        cmocka_unit_test(says_how_much_is_beyond_both_ends),
        cmocka_unit_test(ages_go_on_growing_during_a_pause),
        cmocka_unit_test(says_of_a_lease_that_its_server_is_down),
        cmocka_unit_test_setup(aligns_wide_names, use_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
