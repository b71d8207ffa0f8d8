#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/record.h"
#include "tools/lease_cli.h"
#include "tools/lease_host.h"

#define LINE_SIZE 2048

void say(const char *format, ...)
{
    char raw[LINE_SIZE], line[LINE_SIZE];
    va_list arguments;
    int length = snprintf(raw, sizeof raw, "lease: ");
    va_start(arguments, format);
    vsnprintf(raw + length, sizeof raw - (size_t)length, format, arguments);
    va_end(arguments);
    text_copy(line, sizeof line - 1, raw); /* reasons and labels may be anybody's */
    strcat(line, "\n");
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written; /* nowhere else to say it */
}

int exit_code_of(const struct cli *cli, int error)
{
    switch (error) {
    case LEASE_EBUSY:
    case LEASE_EFULL:
    case LEASE_ELOCKED:
    case LEASE_ETIMEOUT:
    case LEASE_ENOSPC: /* a book that cannot be used, with an agent that could decide */
    case LEASE_ELAYOUT:
    case LEASE_EDAMAGED:
    case LEASE_EPERM: return cli->options.busy_code;
    case LEASE_EGONE: return EXIT_GONE;
    case LEASE_EUNKNOWN:
    case LEASE_EBASIS: return EXIT_UNAVAILABLE;
    case LEASE_EINVAL: return EXIT_USAGE;
    default: return error < 0 ? EXIT_INTERNAL : EXIT_DONE;
    }
}

static int say_unknown(const struct cli *cli, const char *what)
{
    char path[CONFIG_PATH_SIZE];
    if (cli_has_peers(cli)) {
        say("%s: neither declared here nor told by a peer that answers, see `lease doctor`", what);
        return EXIT_UNAVAILABLE;
    }
    if (cli->config_path[0])
        snprintf(path, sizeof path, "%s", cli->config_path);
    else if (!config_user_path(path))
        snprintf(path, sizeof path, "the configuration");
    say("%s: nobody has declared this provider, add 'provider NAME = http://HOST:PORT' to %s "
        "(`lease init` writes a first one) or pass --provider NAME=SPEC",
        what, path);
    return EXIT_UNAVAILABLE;
}

/* Whether waiting can help: the server of a candidate is well, so a slot of it gets free some day.
 * What a wrong key or a dead server refuses, no wait mends. */
static bool wait_may_help(const struct cli *cli)
{
    struct lease_fleet *fleet = NULL;
    bool helps = false;
    if (!(cli->command->options & OPTION_WAIT) || cli->options.wait_ms > 0 || !cli->agent ||
        lease_fleet(cli->agent, &fleet) < 0)
        return false;
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        for (size_t k = 0; k < cli->candidate_count; k++)
            if (strcmp(fleet->providers[i].provider, cli->candidates[k]) == 0 &&
                strcmp(fleet->providers[i].health, "ok") == 0)
                helps = true;
    lease_fleet_free(&fleet);
    return helps;
}

/* Who is in the way, where the library has not said so; 0 unknown. `what` is a provider or a lease of
 * one. */
static uint32_t locked_by(const struct cli *cli, const char *what)
{
    char provider[NAME_SIZE] = "";
    size_t length = strcspn(what, ":");
    if (length < sizeof provider)
        memcpy(provider, what, length);
    return name_is_valid(provider) && cli->agent
               ? host_book_locked_by(lease_agent_directory(cli->agent), provider)
               : 0;
}

static int say_locked(const struct cli *cli, const char *what)
{
    uint32_t pid = locked_by(cli, what);
    if (pid)
        say("%s: book locked by pid %u, continue or end that process", what, pid);
    else
        say("%s: book locked by another process, try again", what);
    return exit_code_of(cli, LEASE_ELOCKED);
}

int say_refusal(const struct cli *cli, const char *what, int error,
                const struct lease_verdict *verdict)
{
    if (error == LEASE_EUNKNOWN)
        return say_unknown(cli, what);
    if (error == LEASE_ELOCKED && !(verdict && verdict->reason[0]))
        return say_locked(cli, what);
    const char *reason = verdict && verdict->reason[0] ? verdict->reason : lease_strerror(error);
    const char *mend = "";
    if (error == LEASE_EBUSY && wait_may_help(cli))
        mend = " (--wait SEC waits for one)";
    else if (error == LEASE_EBASIS)
        mend = " (--require any takes less)";
    else if (error == LEASE_EPERM && (cli->command->options & OPTION_FORCE))
        mend = " (--force ends it all the same)";
    else if (error == LEASE_ELAYOUT || error == LEASE_EDAMAGED || error == LEASE_ENOSPC)
        mend = " (`lease doctor` says what to do)";
    say("%s: %s%s", what, reason, mend);
    return exit_code_of(cli, error);
}

/* Its holder is about to end, which ends it too as soon as somebody can look. */
void warn_of_kept(const struct cli *cli, const char *id, int error)
{
    uint32_t pid = error == LEASE_ELOCKED ? locked_by(cli, id) : 0;
    if (pid)
        say("warning: not given back yet: %s: book locked by pid %u, continue or end that process",
            id, pid);
    else
        say("warning: not given back yet: %s: %s; it ends with this process", id,
            lease_strerror(error));
}

void warn_of_agent(struct cli *cli)
{
    const char *warning = lease_agent_warning(cli->agent);
    if (warning[0] && !cli->warned)
        say("warning: %s", warning);
    cli->warned = cli->warned || warning[0];
}

void warn_of_basis(struct cli *cli, const char *provider, enum lease_basis basis)
{
    warn_of_agent(cli);
    if (basis < LEASE_BASIS_OWNER && !cli->warned)
        say("warning: go for %s stands on %s only, no owner was asked%s", provider,
            lease_basis_name(basis),
            basis == LEASE_BASIS_HOST ? " (own=yes in its SPEC makes this host the owner)" : "");
}
