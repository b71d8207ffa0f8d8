/* Honesty: what is known, how it ages, and what becomes of it when the word stops; and the choices
 * of whoever looks. */
#define _GNU_SOURCE
#include <string.h>

#include "tests/lib/check.h"
#include "tests/screen/fleet.h"
#include "tools/top_text.h"
#include "tools/top_ui.h"

struct stage {
    struct top_model model;
    struct top_rows rows;
    struct top_ui ui;
};

static int set_up(void **state)
{
    static struct stage stage;
    memset(&stage, 0, sizeof stage);
    top_model_init(&stage.model);
    top_ui_init(&stage.ui);
    *state = &stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    top_rows_free(&stage->rows);
    top_ui_free(&stage->ui);
    top_model_free(&stage->model);
    return 0;
}

/* One provider of 4 slots: one dispatched, one leased, one stranger, one free. */
static struct lease_fleet *one_of_each(void)
{
    struct lease_fleet *fleet = fleet_new();
    fleet_provider(fleet, "z4", 4, 2);
    fleet_lease(fleet, "dispatched", "alice", 20000);
    fleet_lease(fleet, "held", "bob", 5000);
    fleet_work(fleet, "stranger", 1);
    fleet_settle(fleet);
    return fleet;
}

static void make_rows(struct stage *stage, int64_t now_ns)
{
    top_ui_before_rows(&stage->ui, now_ns);
    assert_true(top_rows_make(&stage->rows, &stage->model, &stage->ui.wish, now_ns));
    top_ui_after_rows(&stage->ui, &stage->rows);
}

static void press(struct stage *stage, const char *keys, int64_t now_ns)
{
    for (; *keys; keys++) {
        top_ui_key(&stage->ui, &stage->rows, (unsigned char)*keys, now_ns);
        make_rows(stage, now_ns);
    }
}

static void check_strip(const struct stage *stage, const char *wanted)
{
    char strip[64];
    top_strip(&stage->model.providers[0], strip, sizeof strip);
    assert_string_equal(strip, wanted);
}

static void counts_each_unit_once(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    check_strip(stage, "Dl!.");
    make_rows(stage, START);
    assert_int_equal(stage->rows.count, 4);
    assert_int_equal(stage->rows.rows[0].state, TOP_STRANGER);
    assert_int_equal(stage->rows.rows[1].state, TOP_LEASED);
    assert_int_equal(stage->rows.rows[2].state, TOP_DISPATCHED);
    assert_int_equal(stage->rows.rows[3].state, TOP_FREE);
}

static void unknown_is_never_free(void **state)
{
    struct stage *stage = *state;
    struct lease_fleet *fleet = one_of_each();
    fleet->providers[0].in_flight = fleet->providers[0].free = fleet->providers[0].available = -1;
    fleet->providers[0].work_count = 0;
    fleet_show(&stage->model, fleet, START, true);
    check_strip(stage, "Dl??");
    fleet = one_of_each();
    strcpy(fleet->providers[0].health, "down");
    fleet->providers[0].available = 0;
    fleet_show(&stage->model, fleet, START, true);
    check_strip(stage, "Dl!?");
    assert_non_null(strstr(stage->model.providers[0].why, "down"));
}

static void a_server_that_is_down_has_no_ghosts(void **state)
{
    struct stage *stage = *state;
    struct lease_fleet *fleet = one_of_each();
    fleet->leases[0].idle_ms = 3000;
    fleet->providers[0].in_flight = fleet->providers[0].free = -1;
    fleet->providers[0].work_count = 0;
    strcpy(fleet->providers[0].health, "down");
    strcpy(fleet->providers[0].detail, "refused");
    fleet->providers[0].available = 0;
    fleet_show(&stage->model, fleet, START, true);
    check_strip(stage, "Dl??");
    assert_int_equal(stage->model.totals.down, 1);
    make_rows(stage, START);
    for (uint32_t i = 0; i < stage->rows.count; i++)
        assert_non_null(strstr(stage->rows.rows[i].who, "down"));
}

static void losing_the_agent_leaves_the_book(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    fleet_show(&stage->model, one_of_each(), START + SECOND, false);
    assert_int_equal(stage->model.agent, TOP_AGENT_LOST);
    check_strip(stage, "Dl??");
    assert_string_equal(stage->model.providers[0].why, "was 1 ! stranger, 1 . free");
    assert_int_equal(stage->model.fleet->providers[0].free, -1);
    fleet_show(&stage->model, one_of_each(), START + 9 * SECOND, true);
    assert_int_equal(stage->model.agent, TOP_AGENT_LIVE);
    check_strip(stage, "Dl!.");
}

static void a_reading_made_after_the_loss_counts(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    fleet_show(&stage->model, one_of_each(), START + SECOND, false);
    struct lease_fleet *fleet = one_of_each();
    fleet->providers[0].age_ms = 50;
    fleet_show(&stage->model, fleet, START + 2 * SECOND, false);
    check_strip(stage, "Dl!.");
}

static void without_an_agent_nothing_is_lost(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, false);
    assert_int_equal(stage->model.agent, TOP_AGENT_NONE);
    check_strip(stage, "Dl!.");
}

static void a_silent_owner_makes_everything_unknown(void **state)
{
    static const char *const states[] = {"stale", "lost"};
    struct stage *stage = *state;
    for (int i = 0; i < 2; i++) {
        struct lease_fleet *fleet = one_of_each();
        strcpy(fleet->providers[0].owner, "far");
        strcpy(fleet->providers[0].state, states[i]);
        fleet_show(&stage->model, fleet, START, true);
        assert_string_equal(stage->model.providers[0].name, "z4@far");
        check_strip(stage, "????");
        make_rows(stage, START);
        for (uint32_t k = 0; k < stage->rows.count; k++)
            assert_int_equal(stage->rows.rows[k].state, TOP_UNKNOWN);
        assert_int_equal(stage->rows.rows[0].left_ms,
                         stage->rows.rows[0].lease ? TOP_UNKNOWN_MS : -1);
    }
}

static void ages_grow_and_leases_lapse_between_snapshots(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    make_rows(stage, START + 3 * SECOND);
    assert_int_equal(stage->rows.rows[1].left_ms, 2000);
    assert_int_equal(stage->rows.rows[0].age_ms, 3100);
    struct lease_fleet *fleet = one_of_each();
    fleet->leases[1].left_ms = -5000; /* nobody swept it */
    fleet_show(&stage->model, fleet, START, true);
    check_strip(stage, "D!.?");
}

static void history_keeps_a_sample_each_step(void **state)
{
    struct stage *stage = *state;
    for (int i = 0; i < 100; i++) {
        struct lease_fleet *fleet = one_of_each();
        fleet->providers[0].in_flight = i % 6 - 1;
        fleet_show(&stage->model, fleet, START + i * TOP_HISTORY_MS * INT64_C(1000000), true);
    }
    const char *history = stage->model.providers[0].memory->history;
    assert_int_equal(strlen(history), TOP_HISTORY);
    assert_string_equal(history + TOP_HISTORY - 6, "3#?.12");
}

/* ---- whoever looks ---------------------------------------------------------------------- */

static void the_cursor_stays_with_its_row(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    make_rows(stage, START);
    press(stage, "jjj", START);
    assert_int_equal(stage->ui.cursor, 2);
    uint64_t alice = stage->ui.selected;
    assert_non_null(stage->ui.wish.held);
    press(stage, "r", START); /* sorts anew: another line, the same row */
    assert_int_equal(stage->ui.selected, alice);
    assert_int_equal(stage->ui.cursor, 1);
}

static void a_click_moves_the_cursor(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    make_rows(stage, START);
    stage->ui.line = 6; /* as drawing left it */
    stage->ui.page = 10;
    top_ui_key(&stage->ui, &stage->rows, TOP_KEY_CLICK + 8, START);
    assert_int_equal(stage->ui.cursor, 2);
    top_ui_key(&stage->ui, &stage->rows, TOP_KEY_CLICK + 2, START); /* above the list */
    assert_int_equal(stage->ui.cursor, 2);
}

static void the_order_is_held_after_a_move_only(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    make_rows(stage, START);
    press(stage, "j", START);
    struct lease_fleet *fleet = one_of_each();
    fleet_lease(fleet, "held", "first to end", 1000);
    fleet_show(&stage->model, fleet, START + SECOND, true);
    make_rows(stage, START + SECOND);
    assert_string_equal(stage->rows.rows[1].who, "bob@ws-11");
    make_rows(stage, START + 6 * SECOND);
    assert_string_equal(stage->rows.rows[1].who, "first to end@ws-11");
}

static void what_was_followed_and_ended_is_said(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    make_rows(stage, START);
    press(stage, "jjf", START);
    assert_true(stage->ui.follow);
    struct lease_fleet *fleet = fleet_new();
    fleet_provider(fleet, "z4", 4, 0);
    fleet_settle(fleet);
    fleet_show(&stage->model, fleet, START + SECOND, true);
    make_rows(stage, START + SECOND);
    assert_true(stage->ui.is_gone);
    press(stage, "\033", START + SECOND);
    assert_false(stage->ui.is_gone);
}

static uint32_t passing(struct stage *stage, const char *filter)
{
    char why[128];
    if (!top_filter_read(filter, &stage->ui.wish.filter, why))
        fail_msg("%s: %s", filter, why);
    make_rows(stage, START);
    return stage->rows.count;
}

static void filters_by_field_and_by_state(void **state)
{
    struct stage *stage = *state;
    char why[128];
    struct top_filter filter;
    fleet_show(&stage->model, one_of_each(), START, true);
    assert_int_equal(passing(stage, ""), 4);
    assert_int_equal(passing(stage, "state:free"), 1);
    assert_int_equal(passing(stage, "state:available"), 1);
    assert_int_equal(passing(stage, "state:held"), 1);
    assert_int_equal(passing(stage, "!state:free"), 3);
    assert_int_equal(passing(stage, "provider:z"), 0);
    assert_int_equal(passing(stage, "provider:z*"), 4);
    assert_int_equal(passing(stage, "holder:ali state:dispatched"), 1);
    assert_int_equal(passing(stage, "ALICE"), 1);
    assert_int_equal(passing(stage, "pid:4001"), 1);
    assert_int_equal(passing(stage, "nobody"), 0);
    assert_int_equal(stage->rows.hidden, 4);
    assert_false(top_filter_read("colour:red", &filter, why));
    assert_non_null(strstr(why, "no field 'colour'"));
    assert_false(top_filter_read("!state:bogus", &filter, why));
    assert_string_equal(why, "no state 'bogus', one of stranger orphan ghost unknown leased "
                             "dispatched free held available");
    assert_true(top_filter_read("state:d*", &filter, why));
    assert_false(top_filter_read("1 2 3 4 5 6 7 8 9", &filter, why));
}

static void keys_make_filters(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    make_rows(stage, START);
    press(stage, "/state:freeX\177\n", START);
    assert_string_equal(stage->ui.filter, "state:free");
    assert_int_equal(stage->rows.count, 1);
    press(stage, "/\025no:field\n", START);
    assert_true(stage->ui.notice[0] != '\0');
    press(stage, "/\025state:bogus\n", START);
    assert_non_null(strstr(stage->ui.notice, "no state 'bogus'"));
    assert_string_equal(stage->ui.filter, "state:free");
    press(stage, "\033", START);
    assert_int_equal(stage->rows.count, 4);
    assert_int_equal(top_ui_key(&stage->ui, &stage->rows, 'q', START), TOP_QUIT);
}

static void other_keys_do_nothing(void **state)
{
    static const char *const modes[] = {"", "?", "s", "/stat"};
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        top_ui_init(&stage->ui);
        make_rows(stage, START);
        press(stage, modes[i], START);
        struct top_ui before = stage->ui;
        assert_int_equal(top_ui_key(&stage->ui, &stage->rows, TOP_KEY_OTHER, START), TOP_GO_ON);
        assert_memory_equal(&stage->ui, &before, sizeof before);
    }
}

static void what_has_no_time_comes_last(void **state)
{
    struct stage *stage = *state;
    fleet_show(&stage->model, one_of_each(), START, true);
    stage->ui.wish.sort = TOP_BY_LEFT;
    for (int i = 0; i < 2; i++) {
        stage->ui.wish.reverse = i == 1;
        make_rows(stage, START);
        assert_int_equal(stage->rows.rows[0].left_ms, i == 0 ? 5000 : 20000);
        assert_int_equal(stage->rows.rows[1].left_ms, i == 0 ? 20000 : 5000);
        assert_int_equal(stage->rows.rows[2].left_ms, -1);
        assert_int_equal(stage->rows.rows[3].left_ms, -1);
    }
}

/* ---- text ------------------------------------------------------------------------------- */

static void text_is_cut_in_its_middle(void **state)
{
    char text[64];
    (void)state;
    top_text_cut(text, sizeof text, "abcdefghij", 10);
    assert_string_equal(text, "abcdefghij");
    top_text_cut(text, sizeof text, "abcdefghij", 5);
    assert_string_equal(text, "ab~ij");
    top_text_cut(text, sizeof text, "abcdefghij", 1);
    assert_string_equal(text, "~");
    top_text_cut(text, sizeof text, "abcdefghij", 0);
    assert_string_equal(text, "");
}

static void spans_are_five_wide(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } spans[] = {{-1, "-"},           {0, "0.0s"},        {9949, "9.9s"},
                 {9950, "9s"},        {59999, "59s"},     {110000, "1m50"},
                 {7980000, "2h13"},   {93600000, "1d02"}, {86400000 * INT64_C(120), "120d"},
                 {INT64_MAX, "9999d"}};
    (void)state;
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        char text[TOP_SPAN_SIZE];
        top_text_span(text, spans[i].ms);
        assert_string_equal(text, spans[i].text);
        assert_true(strlen(text) <= 5);
    }
}

int main(void)
{
#define staged(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        staged(counts_each_unit_once),
        staged(unknown_is_never_free),
        staged(a_server_that_is_down_has_no_ghosts),
        staged(losing_the_agent_leaves_the_book),
        staged(a_reading_made_after_the_loss_counts),
        staged(without_an_agent_nothing_is_lost),
        staged(a_silent_owner_makes_everything_unknown),
        staged(ages_grow_and_leases_lapse_between_snapshots),
        staged(history_keeps_a_sample_each_step),
        staged(the_cursor_stays_with_its_row),
        staged(a_click_moves_the_cursor),
        staged(the_order_is_held_after_a_move_only),
        staged(what_was_followed_and_ended_is_said),
        staged(filters_by_field_and_by_state),
        staged(keys_make_filters),
        staged(what_has_no_time_comes_last),
        staged(other_keys_do_nothing),
        cmocka_unit_test(text_is_cut_in_its_middle),
        cmocka_unit_test(spans_are_five_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
