/* lease watch: one JSON object a line, first every provider as it is, then each that changes. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/lease_cli.h"

#define LOOK_MS 100 /* the book is looked at without a lock: ten times a second costs nothing */

/* What a line said last, without what changes by time alone. */
struct seen {
    char provider[NAME_SIZE];
    char *text;
    uint64_t look; /* the last one that found it, 0: none */
};

struct watch {
    struct cli *cli;
    struct seen seen[2 * PROVIDERS_MAX];
    size_t count;
    uint64_t look; /* counted from 1 */
    bool closed;   /* nobody reads any more */
    int code;      /* to end with then */
};

/* Ages and remaining times differ at every look: they are printed, not compared. */
static void drop_times(json_t *value)
{
    static const char *const times[] = {"heard_ms", "age_ms", "age_secs", "dispatched_secs",
                                        "left_ms",  "for_ms", "version",  "idle_secs"};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        json_object_del(value, times[i]);
    size_t index;
    json_t *each;
    const char *key;
    if (json_is_array(value)) {
        json_array_foreach(value, index, each) drop_times(each);
    } else if (json_is_object(value)) {
        json_object_foreach(value, key, each) drop_times(each);
    }
}

static char *essence(const json_t *provider)
{
    json_t *copy = json_deep_copy(provider);
    drop_times(copy);
    char *text = copy ? json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(copy);
    return text;
}

static void print_line(struct watch *watch, const char *event, json_t *provider)
{
    json_t *line = json_pack("{s:i, s:s, s:O}", "schema", 1, "event", event, "provider", provider);
    print_json(line);
    if (fflush(stdout) == 0)
        return;
    watch->closed = true;
    if (errno != EPIPE) { /* a full disk is no reader that left */
        say("the output cannot be written: %m");
        watch->code = EXIT_INTERNAL;
    }
}

static struct seen *find_seen(struct watch *watch, const char *name)
{
    for (size_t i = 0; i < watch->count; i++)
        if (strcmp(watch->seen[i].provider, name) == 0)
            return &watch->seen[i];
    if (watch->count >= sizeof watch->seen / sizeof watch->seen[0])
        return NULL;
    struct seen *seen = &watch->seen[watch->count++];
    snprintf(seen->provider, sizeof seen->provider, "%s", name);
    return seen;
}

static void look_at_provider(struct watch *watch, json_t *provider)
{
    const char *name = json_string_value(json_object_get(provider, "provider"));
    struct seen *seen = name ? find_seen(watch, name) : NULL;
    char *text = seen ? essence(provider) : NULL;
    if (!text)
        return;
    bool is_new = !seen->text || seen->look + 1 != watch->look;
    if (is_new || strcmp(seen->text, text) != 0)
        print_line(watch, is_new ? "snapshot" : "change", provider);
    free(seen->text);
    seen->text = text;
    seen->look = watch->look;
}

/* Those that the look before this one found. */
static void look_for_gone(struct watch *watch)
{
    for (size_t i = 0; i < watch->count; i++) {
        if (!watch->seen[i].text || watch->seen[i].look + 1 != watch->look)
            continue;
        json_t *name = json_pack("{s:s}", "provider", watch->seen[i].provider);
        print_line(watch, "gone", name);
        json_decref(name);
    }
}

static int look_once(struct watch *watch)
{
    struct lease_fleet *fleet = NULL;
    int rc = lease_read(watch->cli->agent, 0);
    if (rc == 0)
        rc = lease_fleet(watch->cli->agent, &fleet);
    if (rc < 0)
        return say_refusal(watch->cli, "the providers cannot be read", rc, NULL);
    const char *wanted = cli_provider(watch->cli);
    json_t *value = fleet_value(fleet, wanted);
    lease_fleet_free(&fleet);
    watch->look++;
    size_t index;
    json_t *provider;
    json_array_foreach(json_object_get(value, "providers"), index, provider)
    {
        look_at_provider(watch, provider);
    }
    look_for_gone(watch);
    bool unknown = watch->look == 1 && watch->count == 0 && wanted[0];
    json_decref(value);
    return unknown ? say_refusal(watch->cli, wanted, LEASE_EUNKNOWN, NULL) : EXIT_DONE;
}

/* Waits for the next look, or until nobody reads any more, which a pipe tells without a write. */
static void pause_or_close(struct watch *watch)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    if (poll(&out, 1, LOOK_MS) > 0 && out.revents & (POLLERR | POLLHUP | POLLNVAL))
        watch->closed = true;
}

int command_watch(struct cli *cli)
{
    struct watch watch = {.cli = cli};
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is no error, and the agent wants closing */
    int code = cli_open(cli);
    while (code == EXIT_DONE && !watch.closed) {
        code = look_once(&watch);
        if (code == EXIT_DONE)
            pause_or_close(&watch);
    }
    for (size_t i = 0; i < watch.count; i++)
        free(watch.seen[i].text);
    if (watch.closed)
        _exit(watch.code); /* what is left in stdout has no reader */
    return code;
}
