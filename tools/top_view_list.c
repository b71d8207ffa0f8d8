/* The list: one row for each lease and kind of unit, or one for each provider. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/top_text.h"
#include "tools/top_view.h"

enum column {
    COLUMN_PROVIDER = 0,
    COLUMN_SLOT,
    COLUMN_STATE,
    COLUMN_HOLDER,
    COLUMN_PID,
    COLUMN_LEFT,
    COLUMN_HELD,
    COLUMN_READ,
    COLUMN_REACH,
    COLUMN_EPOCH,
    COLUMNS
};

static const struct {
    const char *title;
    bool right;
    int width;
    int from; /* the narrowest grid that has it */
} columns[COLUMNS] = {
    [COLUMN_PROVIDER] = {"PROVIDER", false, 0, 0}, [COLUMN_SLOT] = {"SLOT", true, 4, 0},
    [COLUMN_STATE] = {"STATE", false, 12, 0},      [COLUMN_HOLDER] = {"HOLDER", false, 0, 0},
    [COLUMN_PID] = {"PID", true, 7, 100},          [COLUMN_LEFT] = {"LEFT", true, 5, 0},
    [COLUMN_HELD] = {"HELD", true, 5, 72},         [COLUMN_READ] = {"READ", false, 12, 80},
    [COLUMN_REACH] = {"REACH", false, 7, 116},     [COLUMN_EPOCH] = {"EPOCH", true, 10, 132},
};

#define NARROW      64 /* below it names are what there is room for */
#define VERY_NARROW 52 /* below it states are said in four letters too */

/* By the width alone, so that no column grows or moves while it runs. */
static void lay_out(int width, int *widths)
{
    int used = 1; /* the cursor */
    for (int i = 0; i < COLUMNS; i++) {
        widths[i] = width >= columns[i].from ? columns[i].width : -1;
        used += widths[i] >= 0 ? widths[i] + 1 : 0;
    }
    int spared = width < VERY_NARROW ? 6 : width < NARROW ? 2 : 0;
    widths[COLUMN_STATE] -= spared;
    used -= spared;
    int room = width - 1 - used; /* for the provider and the holder */
    int provider = width < NARROW ? 8 : width < 100 ? 14 : width < 160 ? 20 : 28;
    widths[COLUMN_PROVIDER] = provider;
    widths[COLUMN_HOLDER] = room - provider > 1 ? room - provider : 1;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void say_time(char text[TOP_SPAN_SIZE], int64_t ms)
{
    if (ms == TOP_UNKNOWN_MS)
        snprintf(text, TOP_SPAN_SIZE, "?");
    else
        top_text_seconds(text, ms);
}

/* "exact 0.1s": the signal and the age of the provider's reading. */
static void say_read(const struct top_row *row, char *text, size_t size)
{
    char age[TOP_SPAN_SIZE];
    const char *signal = row->provider->view->signal;
    top_text_span(age, row->age_ms);
    if (strcmp(row->provider->view->engine, "static") == 0)
        snprintf(text, size, "static");
    else if (row->age_ms < 0)
        snprintf(text, size, "never");
    else if (top_is_unwell(row->provider))
        snprintf(text, size, "%.8s %s", row->provider->view->health, age);
    else
        snprintf(text, size, "%.8s %s", signal[0] ? signal : "none", age);
}

static void say_cell(const struct top_row *row, enum column column, char *text, size_t size)
{
    char span[TOP_SPAN_SIZE] = "";
    switch (column) {
    case COLUMN_PROVIDER: snprintf(text, size, "%s", row->provider->name); return;
    case COLUMN_SLOT:
        if (row->slot >= 0)
            snprintf(text, size, "%d", row->slot);
        else if (row->units > 1)
            snprintf(text, size, "x%u", row->units);
        else
            snprintf(text, size, "-");
        return;
    case COLUMN_STATE:
        snprintf(text, size, "%c %s", top_state_glyph(row->state), top_state_word(row->state));
        return;
    case COLUMN_HOLDER: snprintf(text, size, "%s", row->who); return;
    case COLUMN_PID:
        if (row->lease && row->lease->pid)
            snprintf(text, size, "%u", row->lease->pid);
        return;
    case COLUMN_LEFT: say_time(span, row->left_ms); break;
    case COLUMN_HELD: say_time(span, row->held_ms); break;
    case COLUMN_READ: say_read(row, text, size); return;
    case COLUMN_REACH:
        snprintf(text, size, "%s", lease_reach_name(row->provider->view->reach));
        return;
    default: snprintf(text, size, "%llu", (unsigned long long)row->provider->view->epoch); return;
    }
    snprintf(text, size, "%s", span);
}

static void draw_heading(struct top_grid *grid, int y, const int *widths)
{
    int x = 1;
    for (int i = 0; i < COLUMNS; i++) {
        if (widths[i] < 0)
            continue;
        if (columns[i].right)
            top_put_right(grid, y, x, x + widths[i], TOP_BOLD, columns[i].title);
        else
            top_put(grid, y, x, x + widths[i], TOP_BOLD, columns[i].title);
        x += widths[i] + 1;
    }
}

static void copy_part(char *to, size_t size, const char *from, size_t length)
{
    snprintf(to, size, "%.*s", (int)(length < size ? length : size - 1), from);
}

static void append_part(char *to, size_t size, const char *from)
{
    size_t used = strlen(to);
    copy_part(to + used, size - used, from, strlen(from));
}

/* Holders are told apart by the ends of their labels, then by those of their hosts. What is said of
 * them gives way first, then what is said before them, then the host but for a third. */
static void fit_holder(const struct top_row *row, char *to, size_t size, int width)
{
    char label[TOP_WHO_SIZE], host[TOP_WHO_SIZE], cut_host[TOP_WHO_SIZE], cut[TOP_WHO_SIZE];
    copy_part(to, size, row->who, strlen(row->who));
    if (top_text_width(to) <= width)
        return;
    copy_part(to, size, row->who, row->after_at);
    if (top_text_width(to) <= width)
        return;
    int before = width >= 16 ? (int)row->label_at : 0; /* ours, and ASCII */
    copy_part(label, sizeof label, row->who + row->label_at,
              (size_t)(row->host_at - row->label_at));
    copy_part(host, sizeof host, row->who + row->host_at, (size_t)(row->after_at - row->host_at));
    int room = width - before, spare = room - top_text_width(label);
    top_text_cut(cut_host, sizeof cut_host, host, spare > room / 3 ? spare : room / 3);
    top_text_cut(cut, sizeof cut, label, room - top_text_width(cut_host));
    copy_part(to, size, row->who, (size_t)before);
    append_part(to, size, cut);
    append_part(to, size, cut_host);
}

static void draw_row(struct top_grid *grid, int y, const int *widths, const struct top_row *row)
{
    uint8_t style = top_style_of(row);
    int x = 1;
    for (int i = 0; i < COLUMNS; i++) {
        char text[TOP_WHO_SIZE + 8] = "", cut[TOP_WHO_SIZE + 8];
        if (widths[i] < 0)
            continue;
        say_cell(row, (enum column)i, text, sizeof text);
        if (i == COLUMN_STATE ||
            (i == COLUMN_HOLDER && !row->after_at)) /* known by its beginning */
            snprintf(cut, sizeof cut, "%s", text);
        else if (i == COLUMN_HOLDER)
            fit_holder(row, cut, sizeof cut, widths[i]);
        else
            top_text_cut(cut, sizeof cut, text, widths[i]);
        if (columns[i].right)
            top_put_right(grid, y, x, x + widths[i], style, cut);
        else
            top_put(grid, y, x, x + widths[i], style, cut);
        x += widths[i] + 1;
    }
}

/* ---- scrolling ------------------------------------------------------------------------------- */

static void scroll(struct top_ui *ui, uint32_t count, uint32_t page)
{
    ui->page = page > 0 ? page : 1;
    if (!ui->by_provider && ui->has_selection && ui->cursor < ui->offset)
        ui->offset = ui->cursor;
    if (!ui->by_provider && ui->has_selection && ui->cursor >= ui->offset + ui->page)
        ui->offset = ui->cursor - ui->page + 1;
    if (ui->offset + ui->page > count)
        ui->offset = count > ui->page ? count - ui->page : 0;
}

static void draw_more(const struct top_scene *scene, struct top_grid *grid, int y, uint32_t count)
{
    uint32_t above = scene->ui->offset, seen = above + scene->ui->page;
    uint32_t below = count > seen ? count - seen : 0;
    char text[64];
    if (above > 0 && below > 0)
        snprintf(text, sizeof text, " %u more above, %u below", above, below);
    else
        snprintf(text, sizeof text, " %u more %s", above + below, above > 0 ? "above" : "below");
    int end = grid->width - 1, width = top_text_width(text);
    if (above + below > 0)
        top_put_right(grid, y, end - width, end, TOP_REVERSED, text);
}

static void draw_empty(const struct top_scene *scene, struct top_grid *grid, int y)
{
    const char *text = !scene->model->fleet ? "reading the books of this host"
                       : scene->rows->hidden
                           ? "nothing passes the filter (Esc clears it)"
                           : "no providers: add one to the configuration, or let `lease init` "
                             "write a first one";
    top_put(grid, y, 1, grid->width, TOP_PLAIN, text);
}

static void draw_rows(const struct top_scene *scene, struct top_grid *grid, int y, int end)
{
    int widths[COLUMNS];
    struct top_ui *ui = scene->ui;
    lay_out(grid->width, widths);
    draw_heading(grid, y++, widths);
    ui->line = (uint32_t)y;
    scroll(ui, scene->rows->count, end > y ? (uint32_t)(end - y) : 0);
    if (scene->rows->count == 0 && y < end)
        draw_empty(scene, grid, y);
    for (int line = y; line < end; line++) {
        uint32_t at = ui->offset + (uint32_t)(line - y);
        if (at >= scene->rows->count)
            break;
        draw_row(grid, line, widths, &scene->rows->rows[at]);
        if (ui->has_selection && !ui->is_gone && at == ui->cursor) {
            top_put(grid, line, 0, 1, TOP_BOLD, ">");
            top_style_line(grid, line, TOP_SELECTED);
        }
    }
    draw_more(scene, grid, y - 1, scene->rows->count);
}

/* ---- one row a provider ---------------------------------------------------------------------- */

static int name_width(const struct top_grid *grid)
{
    return grid->width < 58 ? 10 : grid->width < 100 ? 14 : 28;
}

/* The newest samples that there is room for. */
static void draw_history(struct top_grid *grid, int y, int x, const struct top_memory *memory)
{
    int length = memory ? (int)strlen(memory->history) : 0, room = grid->width - 1 - x;
    if (memory && room > 0)
        top_put(grid, y, x, grid->width, TOP_BOLD,
                memory->history + (length > room ? length - room : 0));
}

static void draw_provider(struct top_grid *grid, int y, const struct top_provider *provider,
                          int64_t older_ms)
{
    const struct lease_view *view = provider->view;
    const struct top_row row = {.provider = provider,
                                .age_ms = view->age_ms < 0 ? -1 : view->age_ms + older_ms};
    char name[TOP_PROVIDER_SIZE], read[32], units[TOP_UNITS_MAX + 1], strip[64];
    const uint32_t *counts = provider->counts;
    uint8_t style = counts[TOP_STRANGER] ? TOP_ALARM : counts[TOP_UNKNOWN] ? TOP_DOUBT : TOP_PLAIN;
    int end = grid->width;
    top_text_cut(name, sizeof name, provider->name, name_width(grid));
    say_read(&row, read, sizeof read);
    top_strip(provider, units, sizeof units);
    top_text_cut(strip, sizeof strip, units, 12);
    top_put(grid, y, 1, end, style, name);
    int x = name_width(grid) + 2;
    x = top_putf(grid, y, x, end, style, "%4u %4u ", provider->slots, counts[TOP_FREE]);
    if (end >= 100) /* the strip tells them too */
        x = top_putf(grid, y, x, end, style, "%4u %4u %4u %4u ", counts[TOP_LEASED],
                     counts[TOP_DISPATCHED] + counts[TOP_GHOST] + counts[TOP_ORPHAN],
                     counts[TOP_STRANGER], counts[TOP_UNKNOWN]);
    top_put(grid, y, x, end, style, strip);
    if (end >= 58)
        top_put(grid, y, x + 13, end, style, read);
    draw_history(grid, y, x + (end >= 58 ? 26 : 13), provider->memory);
}

static void draw_by_provider(const struct top_scene *scene, struct top_grid *grid, int y, int end)
{
    const struct top_model *model = scene->model;
    int x = name_width(grid) + 2, width = grid->width;
    top_put(grid, y, 1, width, TOP_BOLD, "PROVIDER");
    x = top_put(grid, y, x, width, TOP_BOLD, "SLOT FREE ");
    if (width >= 100)
        x = top_put(grid, y, x, width, TOP_BOLD, "LEAS DISP STRA UNKN ");
    x = top_put(grid, y, x, width, TOP_BOLD, "NOW          ");
    if (width >= 58)
        x = top_put(grid, y, x, width, TOP_BOLD, "READ         ");
    top_put(grid, y++, x, width, TOP_BOLD, "LAST MINUTES");
    scroll(scene->ui, model->provider_count, end > y ? (uint32_t)(end - y) : 0);
    if (model->provider_count == 0 && y < end)
        draw_empty(scene, grid, y);
    for (int line = y; line < end; line++) {
        uint32_t at = scene->ui->offset + (uint32_t)(line - y);
        if (at >= model->provider_count)
            break;
        draw_provider(grid, line, &model->providers[at], top_model_age_ms(model, scene->now_ns));
    }
    draw_more(scene, grid, y - 1, model->provider_count);
}

void top_view_list(const struct top_scene *scene, struct top_grid *grid, int y, int end)
{
    if (y >= end)
        return;
    if (scene->ui->by_provider)
        draw_by_provider(scene, grid, y, end);
    else
        draw_rows(scene, grid, y, end);
}
