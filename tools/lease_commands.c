/* One question each: acquire, verify, renew, release. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/record.h"
#include "tools/lease_cli.h"
#include "tools/lease_host.h"

/* ---- acquire --------------------------------------------------------------------------------- */

/* Between two looks at a list of providers, drawn so that several who wait do not keep step. */
#define LOOK_MS_MIN    40
#define LOOK_MS_SPREAD 40

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sleep_a_little(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long ms = LOOK_MS_MIN + (now.tv_nsec / 1000) % LOOK_MS_SPREAD;
    struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

/* Each candidate once, without a wait. The error of one that is merely busy counts for more than
 * that of one that nobody knows. */
static int acquire_any(struct cli *cli, const struct lease_request *request, struct lease *lease,
                       struct lease_verdict *verdict)
{
    int worst = LEASE_EUNKNOWN;
    for (size_t i = 0; i < cli->candidate_count; i++) {
        struct lease_verdict why = {0};
        int rc = lease_acquire(cli->agent, cli->candidates[i], request, lease, &why);
        if (rc == 0)
            return 0;
        if (rc != LEASE_EUNKNOWN) {
            worst = rc;
            *verdict = why;
        }
    }
    return worst;
}

/* A wait for one provider stands in its queue. A held lease cannot stand in several at once, so a
 * list is looked at again and again. */
static int acquire(struct cli *cli, struct lease_request *request, struct lease *lease,
                   struct lease_verdict *verdict)
{
    if (cli->candidate_count == 1)
        return lease_acquire(cli->agent, cli->candidates[0], request, lease, verdict);
    int64_t end = now_ms() + request->wait_ms;
    request->wait_ms = 0;
    int rc = acquire_any(cli, request, lease, verdict);
    while (rc == LEASE_EBUSY && now_ms() < end) {
        sleep_a_little();
        rc = acquire_any(cli, request, lease, verdict);
    }
    return rc;
}

/* 'text', with each ' in it as '\'': safe for eval in any shell. */
static void print_assignment(const char *name, const char *text)
{
    printf("%s='", name);
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    puts("'");
}

static void print_assignments(const struct cli *cli, const struct lease *lease)
{
    char number[32];
    print_assignment("LEASE_ID", lease->id);
    print_assignment("LEASE_PROVIDER", lease->provider);
    print_assignment("LEASE_URL", lease->url);
    snprintf(number, sizeof number, "%llu", (unsigned long long)lease->token);
    print_assignment("LEASE_TOKEN", lease->token ? number : "");
    print_assignment("LEASE_REACH", lease_reach_name(lease->reach));
    print_assignment("LEASE_DIR", lease_agent_directory(cli->agent));
    snprintf(number, sizeof number, "%d", lease->slot);
    print_assignment("LEASE_SLOT", lease->slot >= 0 ? number : "");
    puts("export LEASE_ID LEASE_PROVIDER LEASE_URL LEASE_TOKEN LEASE_REACH LEASE_DIR LEASE_SLOT");
}

static int print_lease(const struct cli *cli, const struct lease *lease)
{
    if (cli->options.given & OPTION_JSON)
        return print_json(lease_value(lease));
    if (cli->options.given & OPTION_EXPORT)
        print_assignments(cli, lease);
    else
        puts(lease->id);
    return EXIT_DONE;
}

/* An id that nobody has read is given back at once: nobody else could. */
static int hand_over(struct cli *cli, const struct lease *lease)
{
    signal(SIGPIPE, SIG_IGN);
    int code = print_lease(cli, lease);
    if (fflush(stdout) == 0 && code == EXIT_DONE)
        return code;
    say("the output cannot be written: %s; the lease is given back", strerror(errno));
    __fpurge(stdout);
    clearerr(stdout);
    lease_release(cli->agent, lease->id, cli->options.given & OPTION_PID ? LEASE_FORCE : 0);
    return EXIT_INTERNAL;
}

int command_acquire(struct cli *cli)
{
    int code = cli_open(cli);
    if (code == EXIT_DONE)
        code = cli_candidates(cli, cli->options.operands[0]);
    if (code != EXIT_DONE)
        return code;
    struct lease_request request = cli_request(cli);
    bool by_pid = cli->options.given & OPTION_PID;
    request.flags = by_pid ? LEASE_BY_PID : LEASE_NO_HOLDER;
    request.pid = cli->options.pid;
    if (by_pid && !host_speaker_lives(lease_agent_directory(cli->agent))) {
        say("--pid needs an agent that renews the lease, and none runs here: start lease-agent, or "
            "use `lease run`");
        return EXIT_UNAVAILABLE;
    }
    struct lease lease;
    struct lease_verdict verdict = {0};
    int rc = acquire(cli, &request, &lease, &verdict);
    if (rc < 0)
        return say_refusal(cli, cli->options.operands[0], rc, &verdict);
    warn_of_agent(cli);
    if (request.ttl_ms > HELD_MS_MAX)
        say("warning: it is held for %d s at most; --ttl counts from lease verify on",
            HELD_MS_MAX / 1000);
    return hand_over(cli, &lease);
}

/* ---- verify ---------------------------------------------------------------------------------- */

/* The id that the operand names: false after one line where it is none. */
static bool id_is_valid(const char *text)
{
    char provider[NAME_SIZE];
    struct lease_id id;
    if (lease_id_parse(text, provider, &id))
        return true;
    say("'%.120s' is no lease id, `lease ls` shows those there are", text);
    return false;
}

static json_t *provider_value(struct cli *cli, const char *name)
{
    struct lease_fleet *fleet = NULL;
    if (lease_fleet(cli->agent, &fleet) < 0)
        return json_null();
    json_t *all = fleet_value(fleet, name);
    lease_fleet_free(&fleet);
    json_t *one = json_incref(json_array_get(json_object_get(all, "providers"), 0));
    json_decref(all);
    return one ? one : json_null();
}

static int print_verdict(struct cli *cli, int rc, const struct lease_verdict *verdict)
{
    char provider[NAME_SIZE];
    struct lease_id id;
    lease_id_parse(cli->options.operands[0], provider, &id);
    const char *reason = verdict->reason[0] || rc == 0 ? verdict->reason : lease_strerror(rc);
    return print_json(json_pack(
        "{s:s, s:b, s:s, s:s, s:o, s:i, s:o}", /**/
        "verdict", rc == 0 ? "go" : "no", "undecided", rc != 0 && verdict->undecided, "basis",
        lease_basis_name(verdict->basis), "reason", reason, "token",
        rc == 0 && verdict->token ? json_integer((json_int_t)verdict->token) : json_null(),
        "waited_ms", (int)verdict->waited_ms, "provider", provider_value(cli, provider)));
}

int command_verify(struct cli *cli)
{
    const char *id = cli->options.operands[0];
    int code = id_is_valid(id) ? cli_open(cli) : EXIT_USAGE;
    if (code != EXIT_DONE)
        return code;
    struct lease_request request = cli_request(cli);
    struct lease lease;
    struct lease_verdict verdict = {0};
    int rc = lease_verify(cli->agent, id, &request, &lease, &verdict);
    /* Nobody decided; left alone it would keep its place. Where the book is locked, a release would
     * stand before the same lock once more. */
    if (rc != 0 && verdict.undecided && rc != LEASE_ELOCKED)
        lease_release(cli->agent, id, 0);
    if (cli->options.given & OPTION_JSON)
        print_verdict(cli, rc, &verdict);
    if (rc < 0)
        return say_refusal(cli, id, rc, &verdict);
    warn_of_basis(cli, lease.provider, verdict.basis);
    return EXIT_DONE;
}

/* ---- renew, release -------------------------------------------------------------------------- */

int command_renew(struct cli *cli)
{
    const char *id = cli->options.operands[0];
    int code = id_is_valid(id) ? cli_open(cli) : EXIT_USAGE;
    if (code != EXIT_DONE)
        return code;
    struct lease lease;
    int rc = lease_renew(cli->agent, id, cli->options.ttl_ms, &lease);
    if (rc < 0)
        return say_refusal(cli, id, rc, NULL);
    return cli->options.given & OPTION_JSON ? print_json(lease_value(&lease)) : EXIT_DONE;
}

int command_release(struct cli *cli)
{
    const char *id = cli->options.operands[0];
    int code = id_is_valid(id) ? cli_open(cli) : EXIT_USAGE;
    if (code != EXIT_DONE)
        return code;
    unsigned flags = cli->options.given & OPTION_FORCE ? LEASE_FORCE : 0;
    int rc = lease_release(cli->agent, id, flags);
    if (rc < 0 && rc != LEASE_EGONE)
        return say_refusal(cli, id, rc, NULL);
    return EXIT_DONE;
}
