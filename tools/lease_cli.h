/* What the files of `lease` share: the table of commands, an opened agent, what is printed. */
#ifndef TOOLS_LEASE_CLI_H
#define TOOLS_LEASE_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/config.h"
#include "agent/lease.h"
#include "tools/lease_options.h"

enum lease_exit {
    EXIT_DONE = 0,
    EXIT_USAGE = 64,
    EXIT_UNAVAILABLE = 69,
    EXIT_INTERNAL = 70,
    EXIT_GONE = 74,
    /* EXIT_NO_SLOT   = 75, see lease_options.h */
    EXIT_LOST = 124,
    EXIT_NOT_RUNNABLE = 126,
    EXIT_NOT_FOUND = 127,
};

#define CANDIDATES_MAX PROVIDERS_MAX
#define DECLARED_MAX   (2 * PROVIDERS_MAX)
#define PEERS_MAX      (PEER_OPTIONS_MAX + CONFIG_ENDPOINTS_MAX)

struct cli;

struct lease_command {
    const char *name;
    const char *arguments; /* for help */
    const char *summary;   /* one line */
    const char *exits;     /* lines of the table of exit codes, each "  CODE  meaning\n" */
    uint32_t options;      /* enum option_bit */
    size_t operands_min;
    size_t operands_max;
    bool with_command; /* `-- COMMAND` follows */
    int (*run)(struct cli *cli);
};

struct cli {
    const struct lease_command *command;
    struct lease_cli_options options;
    struct config config;
    lease_agent_t *agent;
    char config_path[CONFIG_PATH_SIZE];   /* "" where there is none */
    char config_error[CONFIG_ERROR_SIZE]; /* why it could not be read */
    bool quiet;                           /* warnings of the configuration are not printed */
    bool configured;                      /* cli_configure was here */
    bool warned;                          /* the agent's warning was printed */
    char names[CANDIDATES_MAX][NAME_SIZE];
    const char *candidates[CANDIDATES_MAX]; /* into names: the operand with its pools resolved */
    size_t candidate_count;
};

/* ---- lease_say.c: lines for people ------------------------------------------------------ */

/* One line on stderr, begun with "lease: " and made printable. In one write, so that lines of
 * several processes do not mix. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* The exit code for an error of the library. */
int exit_code_of(const struct cli *cli, int error);

/* Says why asking for `what` failed and what to do, and returns the exit code. verdict may be
 * NULL. */
int say_refusal(const struct cli *cli, const char *what, int error,
                const struct lease_verdict *verdict);

/* One line where a go stands on less than the owner's word, and nothing was said of that yet. */
/* Says once what the agent has to warn of: also of a book that was opened since. */
void warn_of_agent(struct cli *cli);
void warn_of_kept(const struct cli *cli, const char *id, int error);
void warn_of_basis(struct cli *cli, const char *provider, enum lease_basis basis);

/* ---- lease_open.c: from options to an agent --------------------------------------------- */

/* Reads the configuration. False where one exists and cannot be read: config_error says why. */
bool cli_configure(struct cli *cli);

/* Reads the configuration where that was not done yet and opens the agent. 0, or an exit code
 * after one line. */
int cli_open(struct cli *cli);

/* The library's handle alone, with what the configuration and the flags say: 0, or a LEASE_E... and its
 * line. */
int cli_open_agent(struct cli *cli, const char *label, char *error, size_t size);

/* The runtime directory that was asked for, NULL: the usual ones. */
const char *cli_directory(const struct cli *cli);

/* Fills in NAME=SPEC of the providers of the command line and of the file, DECLARED_MAX at most. */
size_t cli_providers(const struct cli *cli, const char **providers);

/* The same of peers, PEERS_MAX at most. */
size_t cli_peers(const struct cli *cli, const char **peers);
bool cli_has_peers(const struct cli *cli);

/* Fills candidates from `list` (names of providers and pools, after commas). 0, or EXIT_USAGE
 * after one line. Wants the configuration read. */
int cli_candidates(struct cli *cli, const char *list);

/* The provider that the first operand names, "" where there is none; pools have no place here. */
const char *cli_provider(const struct cli *cli);

/* Zero but for what the options say. */
struct lease_request cli_request(const struct cli *cli);

void cli_close(struct cli *cli);

/* ---- lease_json.c: the one encoder ------------------------------------------------------ */

/* Takes `value` (may be NULL), prints it on one line. EXIT_DONE, or EXIT_INTERNAL. */
int print_json(json_t *value);

/* The snapshot of lease_fleet_json as a value; with `provider` not "" only that one of its
 * providers. NULL without memory. The caller's. */
json_t *fleet_value(const struct lease_fleet *fleet, const char *provider);
json_t *lease_value(const struct lease *lease);

/* NULL for a negative number or an empty text: unknown is null. */
json_t *number_or_null(int64_t number);
json_t *text_or_null(const char *text);

/* ---- the commands ----------------------------------------------------------------------- */

int command_run(struct cli *cli);
int command_acquire(struct cli *cli);
int command_verify(struct cli *cli);
int command_renew(struct cli *cli);
int command_release(struct cli *cli);
int command_ls(struct cli *cli);
int command_fleet(struct cli *cli);
int command_status(struct cli *cli);
int command_watch(struct cli *cli);
int command_log(struct cli *cli);
int command_init(struct cli *cli);
int command_doctor(struct cli *cli);
int command_peers(struct cli *cli);
int command_forget(struct cli *cli);

/* lease_peers.c: the id of this host's agent ("" where none speaks), and whether another live agent, or
 * that one, bears the name of this peer. */
void own_agent_id(const struct cli *cli, char id[33]);
bool peer_has_twin(const struct lease_fleet *fleet, const struct lease_peer *peer,
                   const char *own_id);

int command_not_yet(struct cli *cli);

#endif
