/* lease log: what happened of late, from the ring of each provider's book. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/log.h"
#include "tools/lease_cli.h"
#include "tools/lease_text.h"

#define SINCE_MS_MAX (UINT64_C(365) * 86400 * 1000)
#define DETAIL_SHOWN 256

struct line {
    struct lease_log_entry entry; /* its texts that are pointers stand below */
    char kind[32];
    char detail[DETAIL_SHOWN];
};

struct lines {
    struct line **items;
    size_t count;
    int64_t since_ms; /* older ones are left out */
};

static int64_t wall_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A time so long ago, or a time of day as people here tell it. */
static bool read_since(const char *text, int64_t *since_ms)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
                                          "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"};
    uint64_t ago;
    if (duration_read(text, 0, SINCE_MS_MAX, &ago)) {
        *since_ms = wall_now_ms() - (int64_t)ago;
        return true;
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tm parts = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &parts);
        if (!end || *end)
            continue;
        time_t at = mktime(&parts);
        *since_ms = (int64_t)at * 1000;
        return at != (time_t)-1;
    }
    return false;
}

static int keep(const struct lease_log_entry *entry, void *arg)
{
    struct lines *lines = arg;
    if (entry->wall_ms < lines->since_ms)
        return true;
    struct line **items = realloc(lines->items, (lines->count + 1) * sizeof *items);
    struct line *line = items ? malloc(sizeof *line) : NULL;
    if (items)
        lines->items = items;
    if (!line)
        return false;
    line->entry = *entry;
    snprintf(line->kind, sizeof line->kind, "%s", entry->kind);
    snprintf(line->detail, sizeof line->detail, "%s", entry->detail);
    lines->items[lines->count++] = line;
    return true;
}

static int by_time(const void *left, const void *right)
{
    const struct lease_log_entry *a = &(*(struct line *const *)left)->entry;
    const struct lease_log_entry *b = &(*(struct line *const *)right)->entry;
    if (a->wall_ms != b->wall_ms)
        return a->wall_ms < b->wall_ms ? -1 : 1;
    return (a->seq > b->seq) - (a->seq < b->seq);
}

/* Local time with milliseconds and zone. */
static void format_time(int64_t wall_ms, char *text, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    char date[32] = "", zone[8] = "";
    if (localtime_r(&seconds, &parts)) {
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
        strftime(zone, sizeof zone, "%z", &parts);
    }
    snprintf(text, size, "%s.%03d%s", date, (int)(wall_ms % 1000), zone);
}

static json_t *line_value(const struct line *line)
{
    const struct lease_log_entry *entry = &line->entry;
    char at[64];
    format_time(entry->wall_ms, at, sizeof at);
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o}", /**/
        "provider", entry->provider, "at", at, "at_ms", (json_int_t)entry->wall_ms, "seq",
        (json_int_t)entry->seq, "event", line->kind, "detail", text_or_null(line->detail), "id",
        text_or_null(entry->id), "host", text_or_null(entry->host), "pid",
        entry->pid ? json_integer(entry->pid) : json_null(), "label", text_or_null(entry->label));
}

static void print_table(const struct lines *lines)
{
    static const char *const heads[] = {"AT",  "PROVIDER", "EVENT", "HOST",
                                        "PID", "LABEL",    "LEASE", "DETAIL"};
    struct text_table table;
    text_table_begin(&table, heads, 8);
    for (size_t i = 0; i < lines->count; i++) {
        const struct lease_log_entry *entry = &lines->items[i]->entry;
        char at[64], pid[16];
        format_time(entry->wall_ms, at, sizeof at);
        snprintf(pid, sizeof pid, "%u", entry->pid);
        const char *cells[] = {at,
                               entry->provider,
                               lines->items[i]->kind,
                               entry->host[0] ? entry->host : "-",
                               entry->pid ? pid : "-",
                               entry->label[0] ? entry->label : "-",
                               entry->id[0] ? entry->id : "-",
                               lines->items[i]->detail};
        text_table_row(&table, cells);
    }
    text_table_print(&table, "nothing of late");
}

/* One provider, or every one that is known. */
static int collect(struct cli *cli, struct lines *lines)
{
    const char *wanted = cli_provider(cli);
    if (wanted[0])
        return lease_log_read(cli->agent, wanted, 0, keep, lines);
    struct lease_fleet *fleet = NULL;
    int rc = lease_fleet(cli->agent, &fleet);
    for (uint32_t i = 0; rc == 0 && i < fleet->provider_count; i++)
        lease_log_read(cli->agent, fleet->providers[i].provider, 0, keep, lines);
    lease_fleet_free(&fleet);
    return rc;
}

static int print_lines(const struct cli *cli, struct lines *lines)
{
    int code = EXIT_DONE;
    if (lines->count > 1)
        qsort(lines->items, lines->count, sizeof lines->items[0], by_time);
    if (!(cli->options.given & OPTION_JSON)) {
        print_table(lines);
        return code;
    }
    for (size_t i = 0; i < lines->count && code == EXIT_DONE; i++)
        code = print_json(line_value(lines->items[i]));
    return code;
}

int command_log(struct cli *cli)
{
    struct lines lines = {.since_ms = INT64_MIN};
    if (cli->options.since && !read_since(cli->options.since, &lines.since_ms)) {
        say("log: --since wants a time such as 10s, 5m, 2h or 2026-01-31T12:00:00, not '%.80s'",
            cli->options.since);
        return EXIT_USAGE;
    }
    int code = cli_open(cli);
    if (code != EXIT_DONE)
        return code;
    int rc = collect(cli, &lines);
    code = rc < 0 ? say_refusal(cli, cli_provider(cli), rc, NULL) : print_lines(cli, &lines);
    for (size_t i = 0; i < lines.count; i++)
        free(lines.items[i]);
    free(lines.items);
    return code;
}
