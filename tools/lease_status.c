/* lease status: where this host's processes meet, and who speaks for it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/effective.h"
#include "agent/routes.h"
#include "broker/host_clock.h"
#include "broker/host_dir.h"
#include "broker/record.h"
#include "tools/lease_cli.h"
#include "tools/lease_host.h"
#include "tools/lease_text.h"

static const char *describe(const struct host_dir_candidate *candidate, bool chosen)
{
    if (chosen)
        return candidate->alive ? "in use, its speaker is alive" : "in use";
    if (candidate->why[0])
        return candidate->why;
    if (candidate->alive)
        return "not in use, though a speaker is alive in it";
    return candidate->exists ? "would serve" : "would serve, absent";
}

static bool is_chosen(const struct cli *cli, const struct host_dir_candidate *candidate)
{
    return strcmp(candidate->path, lease_agent_directory(cli->agent)) == 0;
}

static json_t *candidate_value(const struct cli *cli, const struct host_dir_candidate *candidate)
{
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:s}", /**/
                     "path", candidate->path, "kind", host_dir_kind_name(candidate->kind), "chosen",
                     is_chosen(cli, candidate), "exists", candidate->exists, "serves",
                     candidate->error == 0, "alive", candidate->alive, "why", candidate->why);
}

static json_t *speaker_value(const struct host_speaker *speaker)
{
    if (speaker->pid == 0)
        return json_null();
    return json_pack("{s:I, s:s, s:b, s:b}", "pid", (json_int_t)speaker->pid, "kind", speaker->kind,
                     "alive", speaker->alive, "stopped", speaker->stopped);
}

/* ---- the fleet ------------------------------------------------------------------------------- */

/* What the speaker left about it; zero where there is none, or it takes no part. */
struct joined {
    bool on;
    char listen[FLEET_ENDPOINT_SIZE], publish[FLEET_ENDPOINT_SIZE];
    char warning[ROUTES_WARNING_SIZE];
    uint32_t peers, live, conflicts;
};

/* Who publishes through a relay publishes nowhere itself. */
static void look_for_relay(const char *directory, struct joined *joined)
{
    struct effective *effective = malloc(sizeof *effective);
    if (effective && effective_read(directory, effective) == 0)
        memcpy(joined->publish, effective->fleet.relay, sizeof joined->publish);
    free(effective);
}

static void look_at_fleet(const char *directory, const struct host_speaker *speaker,
                          struct joined *joined)
{
    struct routes *routes = NULL;
    ns_t now = host_now_ns();
    *joined = (struct joined){.on = false};
    if (!speaker->alive || routes_read(directory, &routes) < 0)
        return;
    joined->on = true;
    memcpy(joined->listen, routes->endpoint, sizeof joined->listen);
    memcpy(joined->publish, routes->publish, sizeof joined->publish);
    if (!joined->publish[0])
        look_for_relay(directory, joined);
    memcpy(joined->warning, routes->warning, sizeof joined->warning);
    joined->peers = routes->peer_count;
    for (uint32_t i = 0; i < routes->peer_count; i++)
        joined->live += strcmp(route_peer_state_name(&routes->peers[i], now), "live") == 0;
    for (uint32_t i = 0; i < routes->route_count; i++)
        joined->conflicts += routes->routes[i].conflicts > 0;
    routes_free(&routes);
}

static bool only_asks(const struct joined *joined)
{
    return joined->on && !joined->listen[0];
}

static json_t *fleet_object(const struct joined *joined)
{
    if (!joined->on)
        return json_null();
    return json_pack("{s:o, s:o, s:i, s:i, s:i, s:b, s:o}", "listen", text_or_null(joined->listen),
                     "publish", text_or_null(joined->publish), "peers", (int)joined->peers, "live",
                     (int)joined->live, "conflicts", (int)joined->conflicts, "outbound_only",
                     only_asks(joined), "warning", text_or_null(joined->warning));
}

static void print_fleet(const struct joined *joined, const struct host_speaker *speaker)
{
    if (!joined->on) {
        printf("fleet      %s\n", speaker->pid == 0 || !speaker->alive
                                      ? "no lease-agent runs, this host is on its own"
                                      : "off: lease-agent --listen and --peer join one");
        return;
    }
    printf("listen     %s\n",
           joined->listen[0] ? joined->listen : "nowhere: this host only asks others");
    printf("publish    %s\n", joined->publish[0] ? joined->publish : "nowhere");
    printf("peers      %u, %u of them live\n", joined->peers, joined->live);
    if (joined->conflicts > 0)
        printf("conflicts  %u provider%s owned by several hosts, see `lease doctor`\n",
               joined->conflicts, joined->conflicts == 1 ? "" : "s");
    if (joined->warning[0])
        printf("warning    %s\n", joined->warning);
}

/* ---- printing -------------------------------------------------------------------------------- */

static int print_status_json(const struct cli *cli, const struct host_speaker *speaker,
                             const struct joined *joined,
                             const struct host_dir_candidate *candidates, unsigned count)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(array, candidate_value(cli, &candidates[i]));
    return print_json(json_pack(
        "{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", /**/
        "schema", 1, "version", LEASEHOLD_VERSION, "reach",
        lease_reach_name(lease_agent_reach(cli->agent)), "directory",
        text_or_null(lease_agent_directory(cli->agent)), "speaker", speaker_value(speaker),
        "warning", text_or_null(lease_agent_warning(cli->agent)), "config",
        text_or_null(cli->config_path), "candidates", array, "fleet", fleet_object(joined)));
}

static void describe_speaker(const struct host_speaker *speaker, char *text, size_t size)
{
    if (speaker->pid == 0)
        snprintf(text, size, "none, and none is needed");
    else
        snprintf(text, size, "%s, pid %u, %s", speaker->kind[0] ? speaker->kind : "unknown",
                 speaker->pid,
                 speaker->stopped ? "stopped"
                 : speaker->alive ? "alive"
                                  : "gone");
}

static void print_status(const struct cli *cli, const struct host_speaker *speaker,
                         const struct joined *joined, const struct host_dir_candidate *candidates,
                         unsigned count)
{
    static const char *const heads[] = {"CANDIDATE", "KIND", "STATE"};
    char text[128];
    char directory[HOST_DIR_PATH_MAX + 1], config[CONFIG_PATH_SIZE];
    text_copy(directory, sizeof directory, lease_agent_directory(cli->agent));
    text_copy(config, sizeof config, cli->config_path);
    describe_speaker(speaker, text, sizeof text);
    printf("version    %s\n", LEASEHOLD_VERSION);
    printf("reach      %s\n", lease_reach_name(lease_agent_reach(cli->agent)));
    printf("directory  %s\n", directory[0] ? directory : "none");
    printf("speaker    %s\n", text);
    print_fleet(joined, speaker);
    printf("config     %s\n\n", config[0] ? config : "none");
    struct text_table table;
    text_table_begin(&table, heads, 3);
    for (unsigned i = 0; i < count; i++) {
        const char *cells[] = {candidates[i].path, host_dir_kind_name(candidates[i].kind),
                               describe(&candidates[i], is_chosen(cli, &candidates[i]))};
        text_table_row(&table, cells);
    }
    text_table_print(&table, "no runtime directory can be used");
}

int command_status(struct cli *cli)
{
    int code = cli_open(cli);
    if (code != EXIT_DONE)
        return code;
    struct host_dir_candidate candidates[HOST_DIR_CANDIDATES_MAX];
    unsigned count = host_dir_candidates(cli_directory(cli), candidates);
    struct host_speaker speaker;
    host_speaker(lease_agent_directory(cli->agent), &speaker);
    struct joined joined;
    look_at_fleet(lease_agent_directory(cli->agent), &speaker, &joined);
    if (cli->options.given & OPTION_JSON)
        return print_status_json(cli, &speaker, &joined, candidates, count);
    print_status(cli, &speaker, &joined, candidates, count);
    return EXIT_DONE;
}
