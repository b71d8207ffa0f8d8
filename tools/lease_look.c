/* For people: the leases there are, the providers, their slots and who has them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "broker/record.h"
#include "tools/lease_cli.h"
#include "tools/lease_text.h"

/* Opens, has the servers read where nobody else does it, and takes a snapshot, in which the
 * provider of the command line must be if it names one. 0, or an exit code after one line. */
static int snapshot(struct cli *cli, struct lease_fleet **fleet)
{
    int code = cli_open(cli);
    if (code != EXIT_DONE)
        return code;
    int rc = lease_read(cli->agent, cli->options.timeout_ms);
    if (rc == 0)
        rc = lease_fleet(cli->agent, fleet);
    if (rc < 0)
        return say_refusal(cli, "the providers cannot be read", rc, NULL);
    warn_of_agent(cli);
    const char *wanted = cli_provider(cli);
    bool found = !wanted[0];
    for (uint32_t i = 0; i < (*fleet)->provider_count && !found; i++)
        found = strcmp((*fleet)->providers[i].provider, wanted) == 0;
    if (found)
        return EXIT_DONE;
    lease_fleet_free(fleet);
    return say_refusal(cli, wanted, LEASE_EUNKNOWN, NULL);
}

static int look(struct cli *cli, void (*print)(const struct cli *, const struct lease_fleet *))
{
    struct lease_fleet *fleet = NULL;
    int code = snapshot(cli, &fleet);
    if (code != EXIT_DONE)
        return code;
    if (cli->options.given & OPTION_JSON)
        code = print_json(fleet_value(fleet, cli_provider(cli)));
    else
        print(cli, fleet);
    lease_fleet_free(&fleet);
    return code;
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* "live", or with the age of what is shown: "stale 4s". */
static void describe_state(const struct lease_view *view, char *text, size_t size)
{
    char heard[16];
    bool old = strcmp(view->state, "stale") == 0 || strcmp(view->state, "lost") == 0;
    text_span(heard, sizeof heard, view->heard_ms);
    snprintf(text, size, "%s%s%s", view->state[0] ? view->state : "-", old ? " " : "",
             old ? heard : "");
}

static void describe_reach(const struct lease_view *view, const struct lease_entry *lease,
                           char *text, size_t size)
{
    char state[48];
    describe_state(view, state, sizeof state);
    bool old = strcmp(view->state, "stale") == 0 || strcmp(view->state, "lost") == 0;
    snprintf(text, size, "%s%s%s", lease_reach_name(lease->reach), old ? ", " : "",
             old ? state : "");
}

static void add_lease(struct text_table *table, const struct lease_view *view,
                      const struct lease_entry *lease)
{
    char reach[64], units[16], slot[16], pid[16], age[16], left[16], state[48], idle[16];
    text_number(slot, sizeof slot, lease->slot);
    text_span(age, sizeof age, lease->age_ms);
    text_span(left, sizeof left, lease->left_ms);
    text_span(idle, sizeof idle, lease->idle_ms);
    snprintf(units, sizeof units, "%u", lease->units);
    snprintf(pid, sizeof pid, "%u", lease->pid);
    describe_reach(view, lease, reach, sizeof reach);
    bool held = strcmp(lease->state, "held") == 0;
    snprintf(state, sizeof state, "%s%s%s", held ? "leased" : lease->state,
             lease->idle_ms >= 0 ? ", idle " : "", lease->idle_ms >= 0 ? idle : "");
    const char *cells[] = {lease->id,
                           state,
                           units,
                           slot,
                           lease->host[0] ? lease->host : "-",
                           lease->pid ? pid : "-",
                           lease->label[0] ? lease->label : "-",
                           age,
                           left,
                           reach};
    text_table_row(table, cells);
}

static void print_leases(const struct cli *cli, const struct lease_fleet *fleet)
{
    const char *provider = cli_provider(cli);
    static const char *const heads[] = {"LEASE", "STATE", "UNITS", "SLOT", "HOST",
                                        "PID",   "LABEL", "AGE",   "LEFT", "REACH"};
    struct text_table table;
    text_table_begin(&table, heads, 10);
    for (uint32_t i = 0; i < fleet->provider_count; i++) {
        const struct lease_view *view = &fleet->providers[i];
        if (provider[0] && strcmp(view->provider, provider) != 0)
            continue;
        for (uint32_t k = 0; k < view->lease_count; k++)
            add_lease(&table, view, &fleet->leases[view->first_lease + k]);
    }
    text_table_print(&table, "no leases");
}

int command_ls(struct cli *cli)
{
    return look(cli, print_leases);
}

/* ---- providers ------------------------------------------------------------------------------- */

/* "2 dispatched, 1 leased, 1 stranger", or "-". */
static void describe_use(const struct lease_view *view, char *text, size_t size)
{
    const struct {
        int64_t count;
        const char *what;
    } uses[] = {{view->dispatched, "dispatched"}, {view->leased, "leased"},
                {view->waiting, "waiting"},       {view->strangers, "stranger"},
                {view->ghosts, "ghost"},          {view->orphans, "orphan"}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof uses / sizeof uses[0] && used < size; i++)
        if (uses[i].count > 0)
            used += (size_t)snprintf(text + used, size - used, "%s%lld %s", used ? ", " : "",
                                     (long long)uses[i].count, uses[i].what);
    if (used == 0)
        snprintf(text, size, "-");
}

static void add_view(struct text_table *table, const struct lease_view *view)
{
    char slots[16], available[16], free_slots[16], age[16], use[128], state[48];
    text_number(slots, sizeof slots, view->slots_total);
    text_number(available, sizeof available, view->available);
    text_number(free_slots, sizeof free_slots, view->free);
    text_span(age, sizeof age, view->age_ms);
    describe_use(view, use, sizeof use);
    describe_state(view, state, sizeof state);
    const char *cells[] = {view->provider,
                           view->health[0] ? view->health : "unknown",
                           slots,
                           available,
                           free_slots,
                           use,
                           age,
                           lease_reach_name(view->reach),
                           view->owner[0] ? view->owner : "-",
                           state,
                           view->url[0] ? view->url : "-",
                           view->detail};
    text_table_row(table, cells);
}

static void print_views(const struct cli *cli, const struct lease_fleet *fleet)
{
    static const char *const heads[] = {"PROVIDER", "HEALTH", "SLOTS", "AVAILABLE", "FREE", "USE",
                                        "READ",     "REACH",  "OWNER", "STATE",     "URL",  ""};
    struct text_table table;
    text_table_begin(&table, heads, 12);
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        add_view(&table, &fleet->providers[i]);
    text_table_print(&table,
                     cli_has_peers(cli)
                         ? "no providers: none of this host, and no peer told of one, see "
                           "`lease doctor`"
                         : "no providers: add one to the configuration, or let `lease init` "
                           "write a first one");
}

int command_fleet(struct cli *cli)
{
    return look(cli, print_views);
}
