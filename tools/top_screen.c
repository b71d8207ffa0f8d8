#define _GNU_SOURCE
#define _XOPEN_SOURCE_EXTENDED 1
#include "tools/top_screen.h"

#include <curses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#define PAIRS 3 /* red, magenta, yellow: no black, no white, no background of ours */

static struct {
    SCREEN *screen;
    int fd;
    bool color;
    bool clear;
    int width, height; /* pretended, 0: as the terminal says */
} self;

/* ---- a fault of ours ------------------------------------------------------------------------- */

/* What gives the terminal back, made while nothing is wrong: of curses nothing may be called in a handler. */
static struct {
    volatile sig_atomic_t is_taken; /* there is something to give back */
    bool is_terminal;
    struct termios before;
    size_t length;
    char bytes[256];
} back;

static int keep(int character)
{
    if (back.length < sizeof back.bytes)
        back.bytes[back.length++] = (char)character;
    return character;
}

static void keep_capability(const char *name)
{
    const char *text = tigetstr(name);
    if (text && text != (char *)-1)
        tputs(text, 1, keep);
}

static void keep_way_back(bool mouse)
{
    static const char *const names[] = {"op", "sgr0", "cnorm", "rmkx", "rmcup"};
    back.is_taken = 0;
    back.length = 0;
    for (const char *c = mouse ? "\033[?1006;1000l" : ""; *c; c++)
        keep(*c);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        keep_capability(names[i]);
    back.is_taken = 1;
}

static void give_back_and_die(int number)
{
    if (back.is_taken && write(self.fd, back.bytes, back.length) >= 0 && back.is_terminal)
        tcsetattr(self.fd, TCSANOW, &back.before);
    signal(number, SIG_DFL);
    raise(number);
}

/* Where nobody else looks at them, as sanitizers do. */
void top_screen_survive(void)
{
    static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = give_back_and_die}, found;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (sigaction(faults[i], NULL, &found) == 0 && !(found.sa_flags & SA_SIGINFO) &&
            found.sa_handler == SIG_DFL)
            sigaction(faults[i], &action, NULL);
}

/* ---- taking it and giving it back ------------------------------------------------------------ */

bool top_color_is_wanted(enum top_color color)
{
    const char *none = getenv("NO_COLOR");
    return color == TOP_COLOR_ALWAYS || (color == TOP_COLOR_AUTO && !(none && none[0]));
}

static void use_color(bool wanted)
{
    self.color = wanted && has_colors() && start_color() == OK && use_default_colors() == OK;
    if (!self.color)
        return;
    init_pair(1, COLOR_RED, -1);
    init_pair(2, COLOR_MAGENTA, -1);
    init_pair(3, COLOR_YELLOW, -1);
}

static void prepare(bool color)
{
    cbreak();
    noecho();
    nonl();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    set_escdelay(25);
    curs_set(0);
    intrflush(stdscr, FALSE);
    use_color(color);
}

bool top_screen_open(const char *term, FILE *out, FILE *in, bool color, char *why, size_t why_size)
{
    const char *name = term ? term : getenv("TERM");
    self.fd = fileno(out);
    back.is_terminal = tcgetattr(self.fd, &back.before) == 0;
    self.screen = newterm(term, out, in); /* initscr would end the program */
    if (!self.screen) {
        snprintf(why, why_size, "unknown terminal '%.40s'; try TERM=xterm or leasetop -b",
                 name && name[0] ? name : "");
        return false;
    }
    set_term(self.screen);
    const char *move = tigetstr("cup");
    if (!move || move == (char *)-1) {
        top_screen_close();
        snprintf(why, why_size, "terminal '%.40s' cannot place its cursor; try leasetop -b",
                 name ? name : "");
        return false;
    }
    self.clear = true;
    keep_way_back(false);
    prepare(color);
    return true;
}

void top_screen_close(void)
{
    if (!self.screen)
        return;
    endwin();
    back.is_taken = 0;
    delscreen(self.screen);
    self.screen = NULL;
}

void top_screen_pretend(int width, int height)
{
    self.width = width;
    self.height = height;
}

void top_screen_size(int *width, int *height)
{
    struct winsize size = {0};
    if (self.width)
        size = (struct winsize){.ws_col = (unsigned short)self.width,
                                .ws_row = (unsigned short)self.height};
    else if (ioctl(self.fd, TIOCGWINSZ, &size) < 0)
        size.ws_col = 0;
    if (size.ws_col > 0 && size.ws_row > 0 && (size.ws_col != COLS || size.ws_row != LINES)) {
        resizeterm(size.ws_row, size.ws_col);
        self.clear = true;
    }
    *width = COLS > 0 ? COLS : 1;
    *height = LINES > 0 ? LINES : 1;
}

void top_screen_clear(void)
{
    self.clear = true;
}

/* Weight says without colour what colour says with it. */
static void style_of(uint8_t style, attr_t *attributes, short *pair)
{
    static const struct {
        attr_t attributes;
        short pair;
    } looks[TOP_STYLES] = {
        [TOP_BOLD] = {A_BOLD, 0},  [TOP_FAINT] = {A_DIM, 0}, [TOP_REVERSED] = {A_REVERSE, 0},
        [TOP_ALARM] = {A_BOLD, 1}, [TOP_DOUBT] = {A_DIM, 2}, [TOP_SOON] = {A_UNDERLINE, 3},
    };
    uint8_t plain = style & (TOP_SELECTED - 1);
    *attributes = looks[plain].attributes | (style & TOP_SELECTED ? A_REVERSE : 0);
    *pair = self.color ? looks[plain].pair : 0;
    if (self.color && plain == TOP_SOON)
        *attributes &= ~A_UNDERLINE;
}

static void show_line(const struct top_grid *grid, int y, cchar_t *line)
{
    int used = 0;
    for (int x = 0; x < grid->width; x++) {
        const struct top_cell *cell = &grid->cells[y * grid->width + x];
        wchar_t text[2] = {(wchar_t)cell->character, L'\0'};
        attr_t attributes;
        short pair;
        if (cell->character == 0)
            continue; /* the wide one before it fills this column */
        style_of(cell->style, &attributes, &pair);
        setcchar(&line[used++], text, attributes, pair, NULL);
    }
    mvadd_wchnstr(y, 0, line, used);
}

void top_screen_show(const struct top_grid *grid)
{
    cchar_t *line = calloc((size_t)grid->width + 1, sizeof *line);
    if (!line)
        return;
    if (self.clear)
        clear();
    self.clear = false;
    for (int y = 0; y < grid->height && y < LINES; y++)
        show_line(grid, y, line);
    free(line);
    wnoutrefresh(stdscr);
    doupdate();
}

void top_screen_use_mouse(void)
{
    mousemask(BUTTON1_PRESSED | BUTTON1_CLICKED | BUTTON4_PRESSED | BUTTON5_PRESSED, NULL);
    mouseinterval(0);
    keep_way_back(true);
}

static uint32_t translate_mouse(void)
{
    MEVENT event;
    if (getmouse(&event) != OK || event.y < 0)
        return TOP_KEY_OTHER;
    if (event.bstate & BUTTON4_PRESSED)
        return TOP_KEY_UP;
    if (event.bstate & BUTTON5_PRESSED)
        return TOP_KEY_DOWN;
    return TOP_KEY_CLICK + (uint32_t)event.y;
}

static uint32_t translate(wint_t key)
{
    switch (key) {
    case KEY_MOUSE: return translate_mouse();
    case KEY_UP: return TOP_KEY_UP;
    case KEY_DOWN: return TOP_KEY_DOWN;
    case KEY_PPAGE: return TOP_KEY_PAGE_UP;
    case KEY_NPAGE: return TOP_KEY_PAGE_DOWN;
    case KEY_HOME: return TOP_KEY_HOME;
    case KEY_END: return TOP_KEY_END;
    case KEY_BACKSPACE:
    case KEY_DC: return TOP_KEY_ERASE;
    case KEY_ENTER: return TOP_KEY_ENTER;
    default: return TOP_KEY_OTHER;
    }
}

uint32_t top_screen_key(void)
{
    wint_t key;
    int kind = get_wch(&key);
    while (kind == KEY_CODE_YES && key == KEY_RESIZE) /* resizeterm queued it: nobody pressed it */
        kind = get_wch(&key);
    if (kind == ERR)
        return 0;
    return kind == KEY_CODE_YES ? translate(key) : (uint32_t)key;
}

void top_screen_leave(void)
{
    def_prog_mode();
    endwin();
    back.is_taken = 0;
}

void top_screen_return(void)
{
    back.is_taken = 1;
    reset_prog_mode();
    self.clear = true;
}
