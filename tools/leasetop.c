/* leasetop: the slots of the fleet, who holds them and which are free. It only looks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/host_clock.h"
#include "broker/record.h"
#include "tools/lease_cli.h"
#include "tools/standard_streams.h"
#include "tools/top_batch.h"
#include "tools/top_live.h"
#include "tools/top_text.h"

#define WHY_SIZE 512

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
    char raw[WHY_SIZE + 64], line[WHY_SIZE + 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    text_copy(line, sizeof line, raw);
    fprintf(stderr, "leasetop: %s\n", line);
}

/* ---- batch ----------------------------------------------------------------------------------- */

struct batch {
    const struct top_options *options;
    struct top_model model;
    struct top_rows rows;
    struct top_wish wish;
    uint64_t frames; /* printed so far */
    bool closed;     /* nobody reads any more */
};

/* What could not be written is no success, but where a pipe's reader has left. */
static int flush(struct batch *batch)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) /* a long frame fails before the flush */
        return EXIT_DONE;
    batch->closed = errno == EPIPE;
    if (!batch->closed)
        complain("the output cannot be written: %m");
    return batch->closed ? EXIT_DONE : EXIT_INTERNAL;
}

static int print_frame(struct batch *batch)
{
    char clock[16];
    const struct top_options *options = batch->options;
    bool last = options->frames > 0 && batch->frames + 1 == options->frames;
    top_clock_text(clock);
    struct top_frame frame = {.model = &batch->model,
                              .rows = &batch->rows,
                              .wish = &batch->wish,
                              .filter = options->filter,
                              .clock = clock,
                              .now_ns = host_now_ns(),
                              .number = options->json || !last ? batch->frames + 1 : 0,
                              .width = options->width,
                              .color = options->color == TOP_COLOR_ALWAYS};
    batch->frames++;
    if (options->json) {
        char *text = top_batch_json(&frame);
        if (!text) {
            complain("out of memory");
            return EXIT_INTERNAL;
        }
        fprintf(stdout, "%s\n", text);
        free(text);
    } else {
        top_batch_text(&frame, stdout);
    }
    return flush(batch);
}

static bool look(struct batch *batch, struct top_source *source)
{
    struct top_snapshot snapshot;
    int rc = top_source_take(source, &snapshot);
    if (rc < 0)
        complain("the books cannot be read: %s", lease_strerror(rc));
    return rc == 0 && top_model_take(&batch->model, &snapshot) &&
           top_rows_make(&batch->rows, &batch->model, &batch->wish, host_now_ns());
}

/* False where nobody reads any more, which a pipe tells without a write. */
static bool rest(int64_t delay_ms)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, (int)delay_ms) <= 0;
}

static int run_batch(struct top_source *source, const struct top_options *options)
{
    struct batch batch = {.options = options};
    char why[128];
    int code = EXIT_DONE;
    top_model_init(&batch.model);
    batch.wish.sort = options->sort;
    batch.wish.reverse = options->reverse;
    top_filter_read(options->filter, &batch.wish.filter, why);
    bool goes_on = true;
    while (goes_on) {
        code = look(&batch, source) ? print_frame(&batch) : EXIT_INTERNAL;
        goes_on = code == EXIT_DONE && !batch.closed &&
                  (options->frames == 0 || batch.frames < options->frames) &&
                  rest(options->delay_ms);
    }
    if (code == EXIT_DONE && options->filter[0] && batch.rows.count == 0)
        code = EXIT_NO_SLOT;
    top_rows_free(&batch.rows);
    top_model_free(&batch.model);
    return code;
}

/* ---- the way in ------------------------------------------------------------------------------ */

static int open_source(const struct top_options *options, struct top_source **source)
{
    char error[WHY_SIZE];
    struct top_source_options wanted = {options->dir,       options->config,
                                        options->providers, options->provider_count,
                                        options->peers,     options->peer_count};
    int code = top_source_open(&wanted, source, error, sizeof error);
    if (code != EXIT_DONE)
        complain("%s", error);
    return code;
}

static int once(struct top_source *source, const struct top_options *options)
{
    struct top_options single = *options;
    if (!single.batch && single.frames == 0)
        single.frames = 1;
    return run_batch(source, &single);
}

static int run_live(const struct top_options *options)
{
    char why[WHY_SIZE] = "";
    struct top_source *source = NULL;
    int signal_fd = top_live_block_signals();
    if (signal_fd < 0) {
        complain("signals cannot be had: %m");
        return EXIT_INTERNAL;
    }
    top_screen_survive(); /* before the books are guarded */
    int code = open_source(options, &source);
    if (code != EXIT_DONE)
        return code;
    code = top_live_run(&source, options, signal_fd, why);
    top_source_close(&source);
    if (why[0])
        complain("%s", why);
    return code;
}

static int run(const struct top_options *options)
{
    bool no_keys = !isatty(STDIN_FILENO);
    bool is_live = !options->batch && isatty(STDOUT_FILENO);
    if (is_live && !no_keys)
        return run_live(options);
    if (is_live)
        complain("no keys can be read from this input: once, as with -b");
    struct top_source *source = NULL;
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is no error */
    int code = open_source(options, &source);
    if (code == EXIT_DONE)
        code = once(source, options);
    top_source_close(&source);
    return code;
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    struct top_options options;
    struct top_filter filter;
    char why[256];
    setlocale(LC_CTYPE, "");
    top_text_use_utf8(strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
    if (!top_options_read(argc, argv, &options, why)) {
        complain("%s", why);
        return EXIT_USAGE;
    }
    if (options.help || options.version) {
        if (options.help)
            top_options_help(stdout);
        else
            printf("leasetop %s\n", LEASEHOLD_VERSION);
        return fflush(stdout) == 0 ? EXIT_DONE : EXIT_INTERNAL;
    }
    if (!top_filter_read(options.filter, &filter, why)) {
        complain("-F: %s", why);
        return EXIT_USAGE;
    }
    return run(&options);
}
