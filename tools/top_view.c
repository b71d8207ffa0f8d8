#define _GNU_SOURCE
#include "tools/top_view.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/top_text.h"

#define LINE_SIZE 2048

/* ---- the grid -------------------------------------------------------------------------------- */

bool top_grid_resize(struct top_grid *grid, int width, int height)
{
    if (grid->cells && grid->width == width && grid->height == height)
        return true;
    struct top_cell *cells = calloc((size_t)width * (size_t)height, sizeof *cells);
    if (!cells)
        return false;
    free(grid->cells);
    *grid = (struct top_grid){width, height, cells};
    return true;
}

void top_grid_free(struct top_grid *grid)
{
    free(grid->cells);
    *grid = (struct top_grid){0};
}

static void clear(struct top_grid *grid)
{
    for (int i = 0; i < grid->width * grid->height; i++)
        grid->cells[i] = (struct top_cell){' ', TOP_PLAIN};
}

void top_grid_line(const struct top_grid *grid, int y, char *text)
{
    const struct top_cell *line = &grid->cells[y * grid->width];
    int width = grid->width;
    while (width > 0 && line[width - 1].character == ' ')
        width--;
    for (int x = 0; x < width; x++)
        if (line[x].character)
            text += top_text_put(text, line[x].character);
    *text = '\0';
}

/* What is written over half of a wide character takes the other half away. */
static void set_cells(struct top_cell *line, int width, int x, int columns, struct top_cell cell)
{
    if (x > 0 && line[x].character == 0)
        line[x - 1].character = ' ';
    if (x + columns < width && line[x + columns].character == 0)
        line[x + columns].character = ' ';
    line[x] = cell;
    if (columns == 2)
        line[x + 1] = (struct top_cell){0, cell.style};
}

int top_put(struct top_grid *grid, int y, int x, int end, uint8_t style, const char *text)
{
    int border = grid->width > 1 ? grid->width - 1 : grid->width;
    if (end > border)
        end = border;
    if (y < 0 || y >= grid->height || x < 0)
        return x;
    struct top_cell *line = &grid->cells[y * grid->width];
    for (uint32_t c; (c = top_text_next(&text)) != 0;) {
        int columns = top_text_columns(c);
        if (x + columns > end)
            break;
        set_cells(line, grid->width, x, columns, (struct top_cell){c, style});
        x += columns;
    }
    return x;
}

int top_putf(struct top_grid *grid, int y, int x, int end, uint8_t style, const char *format, ...)
{
    char text[LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return top_put(grid, y, x, end, style, text);
}

void top_put_right(struct top_grid *grid, int y, int x, int end, uint8_t style, const char *text)
{
    int width = top_text_width(text);
    top_put(grid, y, width < end - x ? end - width : x, end, style, text);
}

void top_style_line(struct top_grid *grid, int y, uint8_t bits)
{
    for (int x = 0; x + 1 < grid->width; x++)
        grid->cells[y * grid->width + x].style |= bits;
}

uint8_t top_style_of(const struct top_row *row)
{
    switch (row->state) {
    case TOP_STRANGER: return TOP_ALARM;
    case TOP_ORPHAN:
    case TOP_GHOST: return TOP_SOON;
    case TOP_UNKNOWN: return TOP_DOUBT;
    case TOP_LEASED: return row->left_ms >= 0 && row->left_ms < 10000 ? TOP_SOON : TOP_PLAIN;
    case TOP_DISPATCHED: return TOP_BOLD;
    default: return TOP_FAINT;
    }
}

/* ---- the lines below the list ---------------------------------------------------------------- */

static const struct top_row *row_at_cursor(const struct top_scene *scene)
{
    const struct top_ui *ui = scene->ui;
    if (scene->rows->count == 0 || ui->is_gone)
        return NULL;
    uint32_t at = ui->has_selection && ui->cursor < scene->rows->count ? ui->cursor : 0;
    return &scene->rows->rows[at];
}

static void detail_of_lease(struct top_grid *grid, int y, const struct top_row *row,
                            int64_t older_ms)
{
    char ill[LEASE_LABEL_SIZE + 32] = "", raw[LEASE_LABEL_SIZE + 32];
    const struct lease_view *view = row->provider->view;
    const struct lease_entry *lease = row->lease;
    char id[LEASE_ID_SIZE], left[TOP_SPAN_SIZE], taken[TOP_SPAN_SIZE];
    top_text_clean(id, sizeof id, lease->id);
    top_text_span(left, row->left_ms);
    top_text_span(taken, lease->age_ms + older_ms);
    snprintf(raw, sizeof raw, "%s%s%s  ", view->health, view->detail[0] ? ": " : "", view->detail);
    if (top_is_unwell(row->provider))
        top_text_clean(ill, sizeof ill, raw);
    top_putf(grid, y, 1, grid->width, TOP_PLAIN, "%s %c  %s  %spid %u  taken %s ago  %s %s  %s  %s",
             row->provider->name, top_state_glyph(row->state), row->who, ill, lease->pid, taken,
             row->left_ms < 0 ? "end" : "ends in", row->left_ms < 0 ? "unknown" : left, id,
             lease_reach_name(lease->reach));
}

static void detail_of_provider(struct top_grid *grid, int y, const struct top_row *row)
{
    char url[LEASE_URL_SIZE], model[LEASE_NAME_SIZE] = "", engine[32], detail[LEASE_LABEL_SIZE];
    const struct lease_view *view = row->provider->view;
    top_text_clean(url, sizeof url, view->url);
    top_text_clean(engine, sizeof engine, view->engine);
    top_text_clean(detail, sizeof detail, view->detail);
    if (view->model_count > 0)
        top_text_clean(model, sizeof model, view->models[0].name);
    top_putf(grid, y, 1, grid->width, TOP_PLAIN, "%s %c  %s%s%s  %s%s%s%s  %s%s%s",
             row->provider->name, top_state_glyph(row->state), row->who, row->who[0] ? "  " : "",
             view->health, engine, engine[0] ? "  " : "", model, model[0] ? "  " : "", url,
             detail[0] ? "  " : "", detail);
}

static void draw_detail(const struct top_scene *scene, struct top_grid *grid, int y)
{
    const struct top_row *row = row_at_cursor(scene);
    if (scene->ui->is_gone)
        top_put(grid, y, 1, grid->width, TOP_BOLD, "what was followed has ended (Esc lets go)");
    else if (row && row->lease)
        detail_of_lease(grid, y, row, top_model_age_ms(scene->model, scene->now_ns));
    else if (row)
        detail_of_provider(grid, y, row);
}

static void draw_history(const struct top_scene *scene, struct top_grid *grid, int y)
{
    const struct top_row *row = row_at_cursor(scene);
    if (!row || !row->provider->memory)
        return;
    int x = top_putf(grid, y, 1, grid->width, TOP_FAINT, "%s  last %d min of %u slot%s [",
                     row->provider->name, TOP_HISTORY * TOP_HISTORY_MS / 60000,
                     row->provider->slots, row->provider->slots == 1 ? "" : "s");
    const char *history = row->provider->memory->history;
    int length = (int)strlen(history), room = grid->width - x - 3;
    if (length > room)
        history += length - (room > 0 ? room : 0);
    x = top_put(grid, y, x, grid->width, TOP_BOLD, history);
    top_put(grid, y, x, grid->width, TOP_FAINT, "] now");
}

static void draw_keys(const struct top_scene *scene, struct top_grid *grid, int y)
{
    const struct top_ui *ui = scene->ui;
    int x = 0, end = grid->width;
    if (ui->notice[0]) {
        top_put(grid, y, 0, end, TOP_ALARM, ui->notice);
    } else if (ui->mode == TOP_MODE_FILTER) {
        char typed[TOP_FILTER_TEXT_SIZE];
        top_text_clean(typed, sizeof typed, ui->typed);
        x = top_putf(grid, y, 0, end, TOP_BOLD, "filter: %s", typed);
        x = top_put(grid, y, x, end, TOP_REVERSED, " ");
        top_put(grid, y, x, end, TOP_FAINT, "  state:free provider:z* !holder:ci  Enter, Esc");
    } else if (ui->mode == TOP_MODE_SORT) {
        x = top_put(grid, y, 0, end, TOP_BOLD, "sort by:");
        for (int i = 0; i < TOP_SORTS; i++)
            x = top_putf(grid, y, x, end, TOP_BOLD, " %c %s ", top_sort_letter((enum top_sort)i),
                         top_sort_name((enum top_sort)i));
    } else {
        const struct top_key_help *help;
        for (uint32_t i = 0; (help = top_key_help(i)); i++)
            if (help->brief)
                x = top_putf(grid, y, x, end, TOP_FAINT, "%s %s  ", help->name, help->brief);
    }
}

/* ---- help ------------------------------------------------------------------------------------ */

static void draw_help(struct top_grid *grid)
{
    const struct top_key_help *help;
    int y = 0, column = 0, end = grid->width;
    top_put(grid, y++, 0, end, TOP_BOLD,
            "leasetop: who holds which slot. No key changes anything.");
    for (uint32_t i = 0; (help = top_key_help(i)); i++, y++) {
        if (y >= grid->height - 4 && column == 0 && grid->width >= 100) {
            column = grid->width / 2;
            y = 1;
        }
        top_putf(grid, y, column, end, TOP_PLAIN, "%-7s %s", help->name, help->help);
    }
    int x = 0;
    y = y < grid->height - 3 && column == 0 ? y + 1 : grid->height - 3;
    for (int i = 0; i < TOP_STATES; i++)
        x = top_putf(grid, y, x, end, TOP_PLAIN, "%c %s  ", top_state_glyph((enum top_state)i),
                     top_state_word((enum top_state)i));
    top_put(grid, y + 1, 0, end, TOP_FAINT,
            "unknown is never free; stranger: work without a lease; ghost: a lease, no work");
    top_put(grid, y + 2, 0, end, TOP_FAINT,
            "history: . none in flight, a digit how many, # all slots, ? unknown; 5 s each");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void draw_full(const struct top_scene *scene, struct top_grid *grid)
{
    int y = top_view_head(scene, grid), end = grid->height;
    bool typing = scene->ui->mode != TOP_MODE_LIST || scene->ui->notice[0];
    if (grid->height >= 8 || typing)
        draw_keys(scene, grid, --end);
    if (grid->height >= 16 && !scene->ui->by_provider)
        draw_history(scene, grid, --end);
    if (grid->height >= 10 && !scene->ui->by_provider)
        draw_detail(scene, grid, --end);
    top_view_list(scene, grid, y, end);
}

void top_view_draw(const struct top_scene *scene, struct top_grid *grid)
{
    clear(grid);
    if (scene->ui->mode == TOP_MODE_HELP)
        draw_help(grid);
    else if (grid->width < 40 || grid->height < 6)
        top_view_small(scene, grid);
    else
        draw_full(scene, grid);
}
