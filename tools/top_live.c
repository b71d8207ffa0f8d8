#define _GNU_SOURCE
#include "tools/top_live.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "broker/host_clock.h"
#include "tools/lease_cli.h"
#include "tools/top_text.h"

#define NS_A_MS    INT64_C(1000000)
#define SPACING_NS (200 * NS_A_MS) /* between two drawings for news; keys are answered at once */
#define LATE_NS    (100 * NS_A_MS) /* news that come with the delay spare a drawing without */

struct live {
    struct top_source *source;
    struct top_model model;
    struct top_rows rows;
    struct top_ui ui;
    struct top_grid grid;
    _Atomic int64_t delay_ms; /* read by the source's thread */
    int64_t drawn_ns;
    struct top_snapshot waiting; /* the newest that came during a pause; no fleet: none */
    bool news, pressed, over;
};

int top_live_block_signals(void)
{
    static const int handled[] = {SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
        sigaddset(&set, handled[i]);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void top_clock_text(char text[16])
{
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(text, 16, "%H:%M:%S", &parts);
}

static void draw(struct live *live)
{
    int width, height;
    char clock[16];
    int64_t now_ns = host_now_ns();
    top_clock_text(clock);
    top_screen_size(&width, &height);
    if (!top_grid_resize(&live->grid, width, height))
        return;
    top_ui_before_rows(&live->ui, now_ns);
    if (!top_rows_make(&live->rows, &live->model, &live->ui.wish, now_ns))
        return;
    top_ui_after_rows(&live->ui, &live->rows);
    struct top_scene scene = {&live->model, &live->rows, &live->ui, now_ns, clock};
    top_view_draw(&scene, &live->grid);
    top_screen_show(&live->grid);
    live->drawn_ns = now_ns;
    live->news = live->pressed = false;
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void stop(void)
{
    top_screen_leave();
    kill(getpid(), SIGSTOP); /* the shell is told; we go on when it says so */
    top_screen_return();
}

static void take_signals(struct live *live, int signal_fd)
{
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stop();
        else if (info.ssi_signo == SIGCONT) /* whoever stopped us may have changed the terminal */
            top_screen_return();
        else if (info.ssi_signo != SIGWINCH)
            live->over = true;
        live->pressed = true;
    }
}

static void take(struct live *live, struct top_snapshot *snapshot)
{
    /* the first word on an agent that comes back is drawn at once, as is any other change of it */
    live->news = top_model_take(&live->model, snapshot) || live->news;
    top_ui_before_rows(&live->ui, host_now_ns());
    if (!top_rows_make(&live->rows, &live->model, &live->ui.wish, host_now_ns()))
        live->rows.count = 0; /* rows point into the model */
}

/* The newest news of a pause are kept: what was shown meanwhile is old when it ends. */
static void take_news(struct live *live)
{
    struct top_snapshot snapshot;
    if (!top_source_next(live->source, &snapshot))
        return;
    if (!live->ui.paused_ns) {
        take(live, &snapshot);
        return;
    }
    lease_fleet_free(&live->waiting.fleet);
    live->waiting = snapshot;
}

/* Readable without a key is the end of the input: without this, a terminal that closed would keep
 * us spinning. */
static void take_keys(struct live *live)
{
    bool any = false;
    for (uint32_t key; !live->over && (key = top_screen_key()) != 0;) {
        any = true;
        enum top_answer answer = top_ui_key(&live->ui, &live->rows, key, host_now_ns());
        if (answer == TOP_CLEAR)
            top_screen_clear();
        live->over = live->over || answer == TOP_QUIT;
        live->pressed = true;
    }
    int waiting = 0;
    if (!any && (ioctl(STDIN_FILENO, FIONREAD, &waiting) < 0 || waiting == 0))
        live->over = true;
    if (!live->ui.paused_ns && live->waiting.fleet)
        take(live, &live->waiting);
    atomic_store(&live->delay_ms, live->ui.delay_ms);
}

static bool is_due(const struct live *live, int64_t now_ns)
{
    int64_t since_ns = now_ns - live->drawn_ns;
    return live->pressed || (live->news && since_ns >= SPACING_NS) ||
           since_ns >= live->ui.delay_ms * NS_A_MS + LATE_NS;
}

static int until_due_ms(const struct live *live, int64_t now_ns)
{
    int64_t due_ns =
        live->drawn_ns + (live->news ? SPACING_NS : live->ui.delay_ms * NS_A_MS + LATE_NS);
    return due_ns <= now_ns ? 0 : (int)((due_ns - now_ns) / NS_A_MS) + 1;
}

static void loop(struct live *live, int event_fd, int signal_fd)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = signal_fd, .events = POLLIN},
                           {.fd = event_fd, .events = POLLIN}};
    while (!live->over) {
        int64_t now_ns = host_now_ns();
        if (is_due(live, now_ns))
            draw(live);
        if (poll(fds, 3, until_due_ms(live, host_now_ns())) <= 0)
            continue;
        if (fds[1].revents)
            take_signals(live, signal_fd);
        if (fds[2].revents)
            take_news(live);
        if (fds[0].revents & POLLIN)
            take_keys(live);
        else if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
            live->over = true;
    }
}

/* The first frame shows what is there, instead of nothing first. */
static void look_once(struct live *live)
{
    struct top_snapshot snapshot;
    if (top_source_take(live->source, &snapshot) == 0)
        top_model_take(&live->model, &snapshot);
}

static void choose(struct top_ui *ui, const struct top_options *options)
{
    char why[128];
    top_ui_init(ui);
    ui->delay_ms = options->delay_ms;
    ui->wish.sort = options->sort;
    ui->wish.reverse = options->reverse;
    if (options->filter[0] && top_filter_read(options->filter, &ui->wish.filter, why))
        snprintf(ui->filter, sizeof ui->filter, "%s", options->filter);
}

int top_live_run(struct top_source **source, const struct top_options *options, int signal_fd,
                 char *why)
{
    struct live live = {.source = *source, .delay_ms = options->delay_ms};
    if (!top_screen_open(NULL, stdout, stdin, top_color_is_wanted(options->color), why, 256))
        return EXIT_UNAVAILABLE;
    if (options->mouse)
        top_screen_use_mouse();
    top_model_init(&live.model);
    choose(&live.ui, options);
    look_once(&live);
    draw(&live);
    int event_fd = top_source_follow(*source, &live.delay_ms);
    if (event_fd >= 0)
        loop(&live, event_fd, signal_fd);
    top_screen_close();
    top_source_close(source); /* before live, which its thread reads */
    lease_fleet_free(&live.waiting.fleet);
    top_rows_free(&live.rows);
    top_ui_free(&live.ui);
    top_grid_free(&live.grid);
    top_model_free(&live.model);
    if (event_fd < 0)
        snprintf(why, 256, "no thread is to be had");
    return event_fd < 0 ? EXIT_INTERNAL : EXIT_DONE;
}
