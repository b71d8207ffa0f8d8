/* The view of leasetop: from model, rows and choices to a grid of cells. No terminal.
 *
 * Whatever the size from 1x1 up, every cell of the grid is written, and the last column is left
 * empty where there are two or more, so that no terminal wraps.
 *
 * Thread rules: pure. */
#ifndef TOOLS_TOP_VIEW_H
#define TOOLS_TOP_VIEW_H

#include "tools/top_ui.h"

enum top_style {
    TOP_PLAIN = 0,
    TOP_BOLD,
    TOP_FAINT,
    TOP_REVERSED,
    TOP_ALARM, /* a stranger; the loss of an agent */
    TOP_DOUBT, /* unknown */
    TOP_SOON,  /* a lease that ends within 10 s, ghosts, orphans */
    TOP_STYLES,
    TOP_SELECTED = 0x40 /* a bit beside the style */
};

struct top_cell {
    uint32_t character; /* 0: the second half of a wide one */
    uint8_t style;
};

struct top_grid {
    int width, height;
    struct top_cell *cells;
};

/* False without memory: the grid is unchanged. */
bool top_grid_resize(struct top_grid *grid, int width, int height);
void top_grid_free(struct top_grid *grid);

/* A line of the grid as UTF-8 without its blanks at the end; text has 4 * width + 1 bytes. */
void top_grid_line(const struct top_grid *grid, int y, char *text);

struct top_scene {
    const struct top_model *model;
    const struct top_rows *rows;
    struct top_ui *ui; /* its offset and page are set by drawing */
    int64_t now_ns;
    const char *clock; /* "12:04:31" */
};

void top_view_draw(const struct top_scene *scene, struct top_grid *grid);

/* ---- inside the view -------------------------------------------------------------------- */

/* Writes a clean text from column x on, within [x, end); answers the column behind it. */
int top_put(struct top_grid *grid, int y, int x, int end, uint8_t style, const char *text);
int top_putf(struct top_grid *grid, int y, int x, int end, uint8_t style, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
void top_put_right(struct top_grid *grid, int y, int x, int end, uint8_t style, const char *text);
void top_style_line(struct top_grid *grid, int y, uint8_t bits);
uint8_t top_style_of(const struct top_row *row);

/* top_view_head.c: the lines above the list; answers how many there are. */
int top_view_head(const struct top_scene *scene, struct top_grid *grid);
/* Only counts and strips: for what is too small for a list. */
void top_view_small(const struct top_scene *scene, struct top_grid *grid);
void top_counts_text(const struct top_totals *totals, char *text, size_t size);

/* top_view_list.c: heading and rows in the lines [y, end). */
void top_view_list(const struct top_scene *scene, struct top_grid *grid, int y, int end);

#endif
