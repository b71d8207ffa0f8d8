#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/record.h"
#include "tools/lease_cli.h"

bool cli_configure(struct cli *cli)
{
    if (cli->configured)
        return cli->config_error[0] == '\0';
    cli->configured = true;
    if (!config_find(cli->options.config, cli->config_path))
        return true;
    if (config_load(cli->config_path, &cli->config, cli->config_error) < 0)
        return false;
    for (size_t i = 0; i < cli->config.warnings.count && !cli->quiet; i++)
        say("warning: %s", cli->config.warnings.items[i]);
    return true;
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");
    return length == strcspn(b, "=") && strncmp(a, b, length) == 0;
}

/* Flags win over the file: what it declares under a name that a flag declares is left out. */
size_t cli_providers(const struct cli *cli, const char **merged)
{
    size_t count = 0;
    for (size_t i = 0; i < cli->options.provider_count; i++)
        merged[count++] = cli->options.providers[i];
    for (size_t i = 0; i < cli->config.providers.count; i++) {
        const char *declared = cli->config.providers.items[i];
        bool replaced = false;
        for (size_t k = 0; k < cli->options.provider_count && !replaced; k++)
            replaced = same_name(declared, cli->options.providers[k]);
        if (!replaced)
            merged[count++] = declared;
    }
    return count;
}

size_t cli_peers(const struct cli *cli, const char **peers)
{
    size_t count = 0;
    for (size_t i = 0; i < cli->options.peer_count; i++)
        peers[count++] = cli->options.peers[i];
    for (size_t i = 0; i < cli->config.peers.count && count < PEERS_MAX; i++)
        peers[count++] = cli->config.peers.items[i];
    return count;
}

bool cli_has_peers(const struct cli *cli)
{
    return cli->options.peer_count > 0 || cli->config.peers.count > 0;
}

/* A flag, then the environment (which the library reads), then the file. */
const char *cli_directory(const struct cli *cli)
{
    const char *environment = getenv("LEASE_DIR");
    if (cli->options.dir)
        return cli->options.dir;
    return environment && environment[0] ? NULL : cli->config.dir;
}

int cli_open_agent(struct cli *cli, const char *label, char *error, size_t size)
{
    const char *providers[DECLARED_MAX], *peers[PEERS_MAX];
    struct lease_options options = {
        .size = sizeof options,
        .directory = cli_directory(cli),
        .host = cli->config.name,
        .label = label,
        .providers = providers,
        .provider_count = cli_providers(cli, providers),
        .peers = peers,
        .peer_count = cli_peers(cli, peers),
        .flags = LEASE_OPEN_CLIENT | LEASE_OPEN_GUARD,
    };
    error[0] = '\0';
    int rc = lease_agent_open(&options, &cli->agent, error, size);
    if (rc < 0 && !error[0])
        snprintf(error, size, "%s", lease_strerror(rc));
    return rc;
}

int cli_open(struct cli *cli)
{
    char error[512];
    if (!cli_configure(cli)) {
        say("%s", cli->config_error);
        return EXIT_USAGE;
    }
    int rc = cli_open_agent(cli, "lease", error, sizeof error);
    if (rc < 0) {
        say("%s", error);
        return exit_code_of(cli, rc);
    }
    warn_of_agent(cli);
    return EXIT_DONE;
}

static int add_candidate(struct cli *cli, const char *name)
{
    for (size_t i = 0; i < cli->candidate_count; i++)
        if (strcmp(cli->names[i], name) == 0)
            return EXIT_DONE;
    if (cli->candidate_count >= CANDIDATES_MAX) {
        say("more than %d candidates", CANDIDATES_MAX);
        return EXIT_USAGE;
    }
    size_t at = cli->candidate_count++;
    text_copy(cli->names[at], NAME_SIZE, name);
    cli->candidates[at] = cli->names[at];
    return EXIT_DONE;
}

static int add_name_or_pool(struct cli *cli, const char *name)
{
    if (!name_is_valid(name)) {
        say("'%.80s' is no name of a provider: 1 to %d of A-Z a-z 0-9 . _ -", name, NAME_CHARS_MAX);
        return EXIT_USAGE;
    }
    const struct config_pool *pool = config_pool(&cli->config, name);
    if (!pool)
        return add_candidate(cli, name);
    int code = EXIT_DONE;
    for (size_t i = 0; i < pool->members.count && code == EXIT_DONE; i++)
        code = add_candidate(cli, pool->members.items[i]);
    return code;
}

int cli_candidates(struct cli *cli, const char *list)
{
    char *copy = strdup(list);
    int code = copy ? EXIT_DONE : EXIT_INTERNAL;
    char *rest = copy;
    for (char *name; code == EXIT_DONE && (name = strsep(&rest, ","));)
        code = add_name_or_pool(cli, name);
    free(copy);
    return code;
}

const char *cli_provider(const struct cli *cli)
{
    return cli->options.operand_count > 0 ? cli->options.operands[0] : "";
}

struct lease_request cli_request(const struct cli *cli)
{
    const struct lease_cli_options *options = &cli->options;
    return (struct lease_request){
        .size = sizeof(struct lease_request),
        .units = options->units,
        .slot_plus_1 = options->slot_plus_1,
        .ttl_ms = options->ttl_ms,
        .wait_ms = options->wait_ms,
        .timeout_ms = options->timeout_ms,
        .require = options->require,
        .label = options->label,
    };
}

void cli_close(struct cli *cli)
{
    lease_agent_close(&cli->agent);
    config_free(&cli->config);
}
