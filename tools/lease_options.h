/* The options of `lease`: one table drives parsing and help. */
#ifndef TOOLS_LEASE_OPTIONS_H
#define TOOLS_LEASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/lease.h"
#include "broker/limits.h"

#define OPERANDS_MAX       16
#define PEER_OPTIONS_MAX   64
#define OPTIONS_ERROR_SIZE 256
#define EXIT_NO_SLOT       75 /* what -E replaces */

enum on_lost { ON_LOST_WARN = 0, ON_LOST_TERM, ON_LOST_KILL, ON_LOST_IGNORE };
enum nested { NESTED_REFUSE = 0, NESTED_SHARE, NESTED_NEW };

/* One bit each; a command names the ones it takes. */
enum option_bit {
    OPTION_TTL = 1 << 0,
    OPTION_WAIT = 1 << 1,
    OPTION_TIMEOUT = 1 << 2,
    OPTION_UNITS = 1 << 3,
    OPTION_SLOT = 1 << 4,
    OPTION_LABEL = 1 << 5,
    OPTION_PID = 1 << 6,
    OPTION_REQUIRE = 1 << 7,
    OPTION_ON_LOST = 1 << 8,
    OPTION_ELSE = 1 << 9,
    OPTION_NESTED = 1 << 10,
    OPTION_CODE = 1 << 11,
    OPTION_JSON = 1 << 12,
    OPTION_DIR = 1 << 13,
    OPTION_CONFIG = 1 << 14,
    OPTION_PEER = 1 << 15,
    OPTION_KEY = 1 << 16,
    OPTION_PROVIDER = 1 << 17,
    OPTION_EXPORT = 1 << 18,
    OPTION_FORCE = 1 << 19,
    OPTION_SINCE = 1 << 20,
    OPTION_PRINT = 1 << 21,
    OPTION_HELP = 1 << 22,
};

/* Which host, which providers: every command that opens an agent takes these. */
#define OPTIONS_COMMON                                                                             \
    (OPTION_DIR | OPTION_CONFIG | OPTION_PROVIDER | OPTION_PEER | OPTION_KEY | OPTION_HELP)

/* Zero is the default of everything but busy_code. Text points into argv. */
struct lease_cli_options {
    uint32_t given; /* enum option_bit: which stood on the command line */
    uint32_t ttl_ms;
    uint32_t wait_ms;
    uint32_t timeout_ms;
    uint32_t units;
    int32_t slot_plus_1;
    uint32_t pid;
    enum lease_basis require;
    enum on_lost on_lost;
    enum nested nested;
    int busy_code;
    const char *label;
    const char *dir;
    const char *config;
    const char *since;
    const char *providers[PROVIDERS_MAX]; /* NAME=SPEC */
    size_t provider_count;
    const char *peers[PEER_OPTIONS_MAX]; /* ENDPOINT[,name=PEER] */
    size_t peer_count;
    const char *operands[OPERANDS_MAX];
    size_t operand_count;
    char **command; /* what follows `--`, ended by NULL; NULL where there is no `--` */
};

/* Reads argv[0..argc-1] (without the command's own name). `allowed` says which options may stand
 * there, `with_command` whether `--` begins a command to run or only ends the options. False with
 * one line in `error` (OPTIONS_ERROR_SIZE bytes) that names the option and what it wants. */
bool options_read(char **argv, int argc, uint32_t allowed, bool with_command,
                  struct lease_cli_options *options, char *error);

/* One line for each option in `allowed`. */
void options_help(FILE *out, uint32_t allowed);

/* "1.5", "10s", "200ms", "5m", "2h" in milliseconds, seconds where no unit stands. False where it
 * is none, or not within least and most. */
bool duration_read(const char *text, uint64_t least_ms, uint64_t most_ms, uint64_t *ms);

#endif
