#define _GNU_SOURCE
#include "tools/top_ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/top_text.h"

#define NS_A_MS INT64_C(1000000)

struct press {
    struct top_ui *ui;
    const struct top_rows *rows;
    int64_t now_ns;
};

void top_ui_init(struct top_ui *ui)
{
    *ui = (struct top_ui){.delay_ms = 1000, .page = 1};
}

void top_ui_free(struct top_ui *ui)
{
    top_order_free(&ui->order);
}

/* ---- the cursor ------------------------------------------------------------------------------ */

void top_ui_before_rows(struct top_ui *ui, int64_t now_ns)
{
    if (ui->wish.held && now_ns >= ui->hold_until_ns)
        ui->wish.held = NULL;
}

void top_ui_after_rows(struct top_ui *ui, const struct top_rows *rows)
{
    bool found = false;
    ui->is_gone = false;
    if (!ui->has_selection || rows->count == 0)
        return;
    for (uint32_t i = 0; i < rows->count && !found; i++) {
        found = rows->rows[i].identity == ui->selected;
        if (found)
            ui->cursor = i;
    }
    if (found)
        return;
    ui->is_gone = ui->follow; /* told, and the cursor stays with what was followed */
    if (ui->cursor >= rows->count)
        ui->cursor = rows->count - 1;
    if (!ui->follow)
        ui->selected = rows->rows[ui->cursor].identity;
}

/* Whoever moves the cursor reads: the order keeps still for a while, and says so. */
static void move_to(struct press *press, int64_t row)
{
    struct top_ui *ui = press->ui;
    uint32_t count = press->rows->count;
    if (ui->by_provider) {
        ui->offset = row < 0 ? 0 : (uint32_t)row; /* drawing brings it within bounds */
        return;
    }
    if (count == 0)
        return;
    row = row < 0 ? 0 : row >= (int64_t)count ? (int64_t)count - 1 : row;
    ui->cursor = (uint32_t)row;
    ui->selected = press->rows->rows[row].identity;
    ui->has_selection = true;
    ui->follow = false;
    if (top_order_keep(&ui->order, press->rows)) {
        ui->wish.held = &ui->order;
        ui->hold_until_ns = press->now_ns + TOP_HOLD_NS;
    }
}

static void move_by(struct press *press, int64_t rows)
{
    const struct top_ui *ui = press->ui;
    int64_t from = ui->by_provider ? (int64_t)ui->offset : ui->cursor;
    if (!ui->by_provider && !ui->has_selection)
        rows = 0; /* the first touch shows the cursor */
    move_to(press, from + rows);
}

static enum top_answer do_up(struct press *press)
{
    move_by(press, -1);
    return TOP_GO_ON;
}

static enum top_answer do_down(struct press *press)
{
    move_by(press, 1);
    return TOP_GO_ON;
}

static enum top_answer do_page_up(struct press *press)
{
    move_by(press, -(int64_t)press->ui->page);
    return TOP_GO_ON;
}

static enum top_answer do_page_down(struct press *press)
{
    move_by(press, press->ui->page);
    return TOP_GO_ON;
}

static enum top_answer do_home(struct press *press)
{
    move_to(press, 0);
    return TOP_GO_ON;
}

static enum top_answer do_end(struct press *press)
{
    move_to(press, INT32_MAX);
    return TOP_GO_ON;
}

/* ---- choices --------------------------------------------------------------------------------- */

static enum top_answer do_filter(struct press *press)
{
    press->ui->mode = TOP_MODE_FILTER;
    memcpy(press->ui->typed, press->ui->filter, sizeof press->ui->typed);
    return TOP_GO_ON;
}

static enum top_answer do_sort(struct press *press)
{
    press->ui->mode = TOP_MODE_SORT;
    return TOP_GO_ON;
}

static void sort_anew(struct top_ui *ui)
{
    ui->wish.held = NULL;
}

static enum top_answer do_reverse(struct press *press)
{
    press->ui->wish.reverse = !press->ui->wish.reverse;
    sort_anew(press->ui);
    return TOP_GO_ON;
}

static enum top_answer do_follow(struct press *press)
{
    struct top_ui *ui = press->ui;
    if (!ui->follow && !ui->has_selection)
        move_to(press, 0);
    ui->follow = !ui->follow && ui->has_selection;
    sort_anew(ui);
    return TOP_GO_ON;
}

static enum top_answer do_fold(struct press *press)
{
    press->ui->wish.unfold = !press->ui->wish.unfold;
    sort_anew(press->ui);
    return TOP_GO_ON;
}

static enum top_answer do_providers(struct press *press)
{
    press->ui->by_provider = !press->ui->by_provider;
    press->ui->offset = 0;
    return TOP_GO_ON;
}

static enum top_answer do_pause(struct press *press)
{
    press->ui->paused_ns = press->ui->paused_ns ? 0 : press->now_ns;
    return TOP_GO_ON;
}

static void delay_by(struct top_ui *ui, bool longer)
{
    static const int64_t steps[] = {200, 500, 1000, 2000, 5000, 10000, 30000, 60000};
    const int count = (int)(sizeof steps / sizeof steps[0]);
    int at = 0;
    while (at < count - 1 && steps[at] < ui->delay_ms)
        at++;
    at += longer ? 1 : -1;
    ui->delay_ms = steps[at < 0 ? 0 : at >= count ? count - 1 : at];
}

static enum top_answer do_slower(struct press *press)
{
    delay_by(press->ui, true);
    return TOP_GO_ON;
}

static enum top_answer do_faster(struct press *press)
{
    delay_by(press->ui, false);
    return TOP_GO_ON;
}

static enum top_answer do_escape(struct press *press)
{
    struct top_ui *ui = press->ui;
    ui->wish.filter.count = 0;
    ui->filter[0] = '\0';
    ui->follow = ui->has_selection = false;
    ui->cursor = ui->offset = 0;
    sort_anew(ui);
    return TOP_GO_ON;
}

static enum top_answer do_clear(struct press *press)
{
    (void)press;
    return TOP_CLEAR;
}

static enum top_answer do_help(struct press *press)
{
    press->ui->mode = TOP_MODE_HELP;
    return TOP_GO_ON;
}

static enum top_answer do_quit(struct press *press)
{
    (void)press;
    return TOP_QUIT;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define CONTROL(letter) ((letter)&0x1f)

static const struct key {
    struct top_key_help help;
    uint32_t keys[3];
    enum top_answer (*act)(struct press *press);
} table[] = {
    {{"?", "help", "this page; any key leaves it"}, {'?', 'H'}, do_help},
    {{"/", "filter", "show only rows with these words; Enter keeps, Esc clears"}, {'/'}, do_filter},
    {{"s", "sort", "sort by a column: its letter follows"}, {'s'}, do_sort},
    {{"r", "reverse", "the other way round"}, {'r'}, do_reverse},
    {{"f", "follow", "keep the cursor on this lease wherever it goes"}, {'f'}, do_follow},
    {{"z", "fold", "each free slot on a line of its own, or together"}, {'z'}, do_fold},
    {{"h", "hosts", "one line a provider, with its last minutes"}, {'h'}, do_providers},
    {{"p", "pause", "stop taking news; ages go on growing"}, {'p', ' '}, do_pause},
    {{"q", "quit", "leave (Ctrl-C too)"}, {'q', CONTROL('c'), CONTROL('d')}, do_quit},
    {{"k Up", NULL, "one row up"}, {'k', TOP_KEY_UP}, do_up},
    {{"j Down", NULL, "one row down"}, {'j', TOP_KEY_DOWN}, do_down},
    {{"PgUp", NULL, "one page up (Ctrl-B)"}, {TOP_KEY_PAGE_UP, CONTROL('b')}, do_page_up},
    {{"PgDn", NULL, "one page down (Ctrl-F)"}, {TOP_KEY_PAGE_DOWN, CONTROL('f')}, do_page_down},
    {{"g Home", NULL, "to the first row"}, {'g', TOP_KEY_HOME}, do_home},
    {{"G End", NULL, "to the last row"}, {'G', TOP_KEY_END}, do_end},
    {{"+ -", NULL, "look less often, more often"}, {'+'}, do_slower},
    {{NULL, NULL, NULL}, {'-'}, do_faster},
    {{"Esc", NULL, "no filter, no cursor"}, {TOP_KEY_ESCAPE}, do_escape},
    {{"Ctrl-L", NULL, "draw everything anew"}, {CONTROL('l')}, do_clear},
};

#define TABLE_SIZE (sizeof table / sizeof table[0])

const struct top_key_help *top_key_help(uint32_t index)
{
    for (uint32_t i = 0; i < TABLE_SIZE; i++)
        if (table[i].help.name && index-- == 0)
            return &table[i].help;
    return NULL;
}

static void click(struct press *press, uint32_t line)
{
    const struct top_ui *ui = press->ui;
    if (!ui->by_provider && line >= ui->line && line < ui->line + ui->page)
        move_to(press, (int64_t)ui->offset + line - ui->line);
}

static enum top_answer press_in_list(struct press *press, uint32_t key)
{
    if (key >= TOP_KEY_CLICK)
        click(press, key - TOP_KEY_CLICK);
    for (size_t i = 0; i < TABLE_SIZE; i++)
        for (size_t k = 0; k < sizeof table[i].keys / sizeof table[i].keys[0]; k++)
            if (table[i].keys[k] == key && key != 0)
                return table[i].act(press);
    return TOP_GO_ON;
}

/* ---- typing ---------------------------------------------------------------------------------- */

static void keep_filter(struct top_ui *ui)
{
    if (top_filter_read(ui->typed, &ui->wish.filter, ui->notice))
        memcpy(ui->filter, ui->typed, sizeof ui->filter);
    sort_anew(ui);
}

static void erase_last(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && ((unsigned char)text[length - 1] & 0xc0) == 0x80)
        length--; /* the bytes that follow a character's first */
    text[length ? length - 1 : 0] = '\0';
}

static void press_in_filter(struct top_ui *ui, uint32_t key)
{
    size_t length = strlen(ui->typed);
    if (key == TOP_KEY_ENTER || key == '\n' || key == '\r') {
        ui->mode = TOP_MODE_LIST;
        keep_filter(ui);
    } else if (key == TOP_KEY_ESCAPE) {
        ui->mode = TOP_MODE_LIST;
        ui->typed[0] = '\0';
        keep_filter(ui);
    } else if (key == TOP_KEY_ERASE || key == 8 || key == 127) {
        erase_last(ui->typed);
    } else if (key == CONTROL('u')) {
        ui->typed[0] = '\0';
    } else if (key >= ' ' && key < TOP_KEY_UP && length + 5 < sizeof ui->typed) {
        ui->typed[length + top_text_put(ui->typed + length, key)] = '\0';
    }
}

static void press_in_sort(struct top_ui *ui, uint32_t key)
{
    char letter[2] = {key < 128 ? (char)key : '\0', '\0'};
    ui->mode = TOP_MODE_LIST;
    sort_anew(ui);
    if (!top_sort_find(letter, &ui->wish.sort) && key != TOP_KEY_ESCAPE)
        snprintf(ui->notice, sizeof ui->notice, "no column has that letter");
}

enum top_answer top_ui_key(struct top_ui *ui, const struct top_rows *rows, uint32_t key,
                           int64_t now_ns)
{
    struct press press = {ui, rows, now_ns};
    if (key >= TOP_KEY_OTHER)
        return TOP_GO_ON;
    ui->notice[0] = '\0';
    if (key == CONTROL('c'))
        return TOP_QUIT;
    if (key == CONTROL('l'))
        return TOP_CLEAR;
    switch (ui->mode) {
    case TOP_MODE_FILTER: press_in_filter(ui, key); return TOP_GO_ON;
    case TOP_MODE_SORT: press_in_sort(ui, key); return TOP_GO_ON;
    case TOP_MODE_HELP: ui->mode = TOP_MODE_LIST; return TOP_GO_ON;
    default: return press_in_list(&press, key);
    }
}
