/* The terminal: a grid in, keys out. The only room that knows curses.
 *
 * Thread rules: one thread, one screen at a time. Between open and close nothing else may write to
 * the terminal. */
#ifndef TOOLS_TOP_SCREEN_H
#define TOOLS_TOP_SCREEN_H

#include <stdio.h>

#include "tools/top_view.h"

enum top_color { TOP_COLOR_AUTO = 0, TOP_COLOR_ALWAYS, TOP_COLOR_NEVER };

/* Colours are wanted: --color, else NO_COLOR (not empty: never). */
bool top_color_is_wanted(enum top_color color);

/* Takes the terminal over. term NULL: $TERM. False with one line in why: it is unknown, or cannot
 * place its cursor. */
bool top_screen_open(const char *term, FILE *out, FILE *in, bool color, char *why, size_t why_size);

/* Gives it back as it was. Does nothing where no screen is open. */
void top_screen_close(void);

/* From now on a fault that ends the program gives it back first. To be called before anybody else handles
 * such faults and passes on those that are not about him. */
void top_screen_survive(void);

/* How large it is now; after a change what is on it is drawn anew. */
void top_screen_size(int *width, int *height);

/* For tests: pretends that size, whatever the terminal says. */
void top_screen_pretend(int width, int height);

/* From now on clicks and the wheel are keys, and the terminal's own selecting is off. */
void top_screen_use_mouse(void);

/* Writes what differs from what is there. */
void top_screen_show(const struct top_grid *grid);

/* Everything is drawn anew by the next show. */
void top_screen_clear(void);

/* The next key, 0: none now. Never blocks. */
uint32_t top_screen_key(void);

/* Gives the terminal back for a while, and takes it again: around a stop (Ctrl-Z). */
void top_screen_leave(void);
void top_screen_return(void);

#endif
