/* What the person at the keyboard has chosen, and the table of keys.
 *
 * Thread rules: pure; no clock, no terminal. */
#ifndef TOOLS_TOP_UI_H
#define TOOLS_TOP_UI_H

#include "tools/top_rows.h"

/* Keys beyond characters, as the screen translates them. */
enum top_key {
    TOP_KEY_ESCAPE = 27,
    TOP_KEY_UP = 0x110000, /* beyond Unicode */
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_HOME,
    TOP_KEY_END,
    TOP_KEY_ERASE,
    TOP_KEY_ENTER,
    TOP_KEY_CLICK = 0x120000, /* and the line's number added to it */
    TOP_KEY_OTHER = 0x200000, /* pressed, and none of these: nothing comes of it */
};

enum top_mode { TOP_MODE_LIST = 0, TOP_MODE_FILTER, TOP_MODE_SORT, TOP_MODE_HELP };

enum top_answer { TOP_GO_ON = 0, TOP_QUIT, TOP_CLEAR };

#define TOP_DELAY_MS_MIN 200
#define TOP_DELAY_MS_MAX 60000
#define TOP_HOLD_NS      INT64_C(5000000000) /* the order keeps still after the cursor moved */

struct top_ui {
    struct top_wish wish;
    enum top_mode mode;
    bool by_provider; /* one row a provider */
    bool follow;
    int64_t paused_ns; /* since when, 0: not paused */
    int64_t hold_until_ns;
    int64_t delay_ms;
    bool has_selection;
    uint64_t selected; /* a row's identity: the cursor is bound to it, not to a line */
    uint32_t cursor;   /* where it was last */
    bool is_gone;      /* the followed one is not there any more */
    uint32_t offset;   /* the first row on the screen */
    uint32_t page;     /* rows on the screen, set by drawing */
    uint32_t line;     /* where the first of them is, the same */
    struct top_order order;
    char filter[TOP_FILTER_TEXT_SIZE]; /* as it was typed */
    char typed[TOP_FILTER_TEXT_SIZE];
    char notice[128]; /* until the next key */
};

void top_ui_init(struct top_ui *ui);
void top_ui_free(struct top_ui *ui);

/* Before rows are made: an order that was held long enough is let go. */
void top_ui_before_rows(struct top_ui *ui, int64_t now_ns);

/* After they were made: finds the cursor's row again. */
void top_ui_after_rows(struct top_ui *ui, const struct top_rows *rows);

/* A key was pressed while these rows were on the screen. */
enum top_answer top_ui_key(struct top_ui *ui, const struct top_rows *rows, uint32_t key,
                           int64_t now_ns);

/* One entry of the table of keys, NULL beyond its end: for help and for the bottom line. */
struct top_key_help {
    const char *name;  /* "f" */
    const char *brief; /* "follow", NULL: not in the bottom line */
    const char *help;  /* one line */
};
const struct top_key_help *top_key_help(uint32_t index);

#endif
