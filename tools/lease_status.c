/* lease status: where this host's processes meet, and who speaks for it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

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

static int print_status_json(const struct cli *cli, const struct host_speaker *speaker,
                             const struct host_dir_candidate *candidates, unsigned count)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(array, candidate_value(cli, &candidates[i]));
    return print_json(json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", /**/
                                "schema", 1, "version", LEASEHOLD_VERSION, "reach",
                                lease_reach_name(lease_agent_reach(cli->agent)), "directory",
                                text_or_null(lease_agent_directory(cli->agent)), "speaker",
                                speaker_value(speaker), "warning",
                                text_or_null(lease_agent_warning(cli->agent)), "config",
                                text_or_null(cli->config_path), "candidates", array));
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
                         const struct host_dir_candidate *candidates, unsigned count)
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
    if (cli->options.given & OPTION_JSON)
        return print_status_json(cli, &speaker, candidates, count);
    print_status(cli, &speaker, candidates, count);
    return EXIT_DONE;
}
