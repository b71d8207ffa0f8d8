/* lease: leases on the serving slots of LLM servers, from the command line.
 *
 * One table of commands drives dispatch, help and which options are taken. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/lease_cli.h"
#include "tools/standard_streams.h"

#define ASKING (OPTION_WAIT | OPTION_TIMEOUT | OPTION_TTL)
#define TAKING (ASKING | OPTION_UNITS | OPTION_SLOT | OPTION_LABEL | OPTION_CODE)

#define EXIT_LINE_USAGE    "   64  wrong usage or configuration\n"
#define EXIT_LINE_UNKNOWN  "   69  provider in no configuration and no book\n"
#define EXIT_LINE_INTERNAL "   70  internal error\n"
#define EXITS_LOOKING      "    0  done\n" EXIT_LINE_USAGE EXIT_LINE_UNKNOWN EXIT_LINE_INTERNAL

static const struct lease_command commands[] = {
    {"run", "PROVIDER[,PROVIDER...] -- COMMAND [ARG...]",
     "hold a lease while COMMAND runs; the first provider that says go",
     "       COMMAND's own exit code, 128+n where signal n ended it, otherwise\n" EXIT_LINE_USAGE
     "   69  provider in no configuration and no book, or the demanded basis not to be "
     "had\n" EXIT_LINE_INTERNAL
     "   75  no slot free in time, or nested in a lease on the same provider (-E CODE)\n"
     "  124  COMMAND was ended because the lease was lost\n"
     "  126  COMMAND cannot be run\n"
     "  127  COMMAND not found\n"
     "128+n  signal n came while waiting for a lease\n",
     TAKING | OPTION_REQUIRE | OPTION_ON_LOST | OPTION_ELSE | OPTION_NESTED | OPTIONS_COMMON, 1, 1,
     true, command_run},
    {"acquire", "PROVIDER[,PROVIDER...]", "take a lease and print its id",
     "    0  granted\n" EXIT_LINE_USAGE "   69  provider in no configuration and no book, or --pid "
     "without an agent that renews\n" EXIT_LINE_INTERNAL "   75  no slot free in time (-E CODE)\n",
     TAKING | OPTION_PID | OPTION_EXPORT | OPTION_JSON | OPTIONS_COMMON, 1, 1, false,
     command_acquire},
    {"verify", "ID", "the question right before dispatch: go or no",
     "    0  go: the lease is dispatched\n" EXIT_LINE_USAGE
     "   69  go, but on less than --require: the lease is released\n" EXIT_LINE_INTERNAL
     "   74  the lease is gone\n   75  no (-E CODE)\n",
     ASKING | OPTION_REQUIRE | OPTION_CODE | OPTION_JSON | OPTIONS_COMMON, 1, 1, false,
     command_verify},
    {"renew", "ID", "give a lease one more time to live",
     "    0  renewed\n" EXIT_LINE_USAGE EXIT_LINE_UNKNOWN EXIT_LINE_INTERNAL
     "   74  the lease is gone\n   75  refused: no work shows for it, or the book is locked (-E "
     "CODE)\n",
     OPTION_TTL | OPTION_CODE | OPTION_JSON | OPTIONS_COMMON, 1, 1, false, command_renew},
    {"release", "[--force] ID", "end a lease",
     "    0  released, or gone already\n" EXIT_LINE_USAGE EXIT_LINE_UNKNOWN EXIT_LINE_INTERNAL
     "   75  it is somebody else's (--force), or the book is locked: the lease ends with its "
     "time\n",
     OPTION_FORCE | OPTIONS_COMMON, 1, 1, false, command_release},
    {"ls", "[PROVIDER]", "the leases there are", EXITS_LOOKING, OPTION_JSON | OPTIONS_COMMON, 0, 1,
     false, command_ls},
    {"fleet", "", "the providers, their slots and who has them", EXITS_LOOKING,
     OPTION_JSON | OPTIONS_COMMON, 0, 0, false, command_fleet},
    {"status", "", "where this host's processes meet, and who speaks for it", EXITS_LOOKING,
     OPTION_JSON | OPTIONS_COMMON, 0, 0, false, command_status},
    {"watch", "[PROVIDER]", "one JSON object a line as things change", EXITS_LOOKING,
     OPTION_JSON | OPTIONS_COMMON, 0, 1, false, command_watch},
    {"log", "[PROVIDER]", "grants, refusals, lapses and strangers of late", EXITS_LOOKING,
     OPTION_SINCE | OPTION_JSON | OPTIONS_COMMON, 0, 1, false, command_log},
    {"doctor", "", "find out what is wrong with this host's set-up, and say the mend",
     "    0  nothing is wrong\n    1  something is\n" EXIT_LINE_USAGE, OPTION_JSON | OPTIONS_COMMON,
     0, 0, false, command_doctor},
    {"init", "", "look for servers on the usual ports, write a first configuration",
     "    0  written, or printed\n" EXIT_LINE_USAGE
     "   69  there is a configuration already\n   70  it cannot be written\n",
     OPTION_PRINT | OPTION_CONFIG | OPTION_HELP, 0, 0, false, command_init},
    {"peers", "", "the agents of other hosts, and when they were heard",
     "    0  done\n" EXIT_LINE_USAGE EXIT_LINE_INTERNAL, OPTION_JSON | OPTIONS_COMMON, 0, 0, false,
     command_peers},
    {"forget", "PEER", "drop the agent of a host that is gone for good",
     "    0  dropped, until it is heard again\n" EXIT_LINE_USAGE
     "   69  no such peer, or no lease-agent runs here\n" EXIT_LINE_INTERNAL,
     OPTION_DIR | OPTION_CONFIG | OPTION_HELP, 1, 1, false, command_forget},
    {"keygen", "", "make this host's keys (not yet)", "   69  not in this version\n",
     OPTION_PRINT | OPTIONS_COMMON, 0, 0, false, command_not_yet},
    {"trust", "NAME KEY", "let another agent in (not yet)", "   69  not in this version\n",
     OPTIONS_COMMON, 2, 2, false, command_not_yet},
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

int command_not_yet(struct cli *cli)
{
    say("%s is not in this version: there are no keys yet", cli->command->name);
    return EXIT_UNAVAILABLE;
}

/* ---- help ------------------------------------------------------------------------------------ */

static int help_all(void)
{
    printf("lease %s: short leases on the serving slots of LLM servers\n\n", LEASEHOLD_VERSION);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  lease %-8s %s\n", commands[i].name, commands[i].summary);
    printf("\n`lease COMMAND --help` has options and exit codes. PROVIDER is a name from the\n"
           "configuration, the name of a pool there, or one that --provider NAME=SPEC declares.\n");
    return EXIT_DONE;
}

static int help_one(const struct lease_command *command)
{
    printf("usage: lease %s [options]%s%s\n\n%s\n\noptions:\n", command->name,
           command->arguments[0] ? " " : "", command->arguments, command->summary);
    options_help(stdout, command->options);
    printf("\nexit codes:\n%s", command->exits);
    return EXIT_DONE;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static const struct lease_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int usage(const struct lease_command *command, const char *what)
{
    say("%s: %s, see `lease %s --help`", command->name, what, command->name);
    return EXIT_USAGE;
}

/* What is wrong with the operands, NULL where nothing is. */
static const char *check_operands(const struct cli *cli)
{
    const struct lease_command *command = cli->command;
    const struct lease_cli_options *options = &cli->options;
    if (options->operand_count < command->operands_min)
        return command->arguments[0] == 'P' ? "a provider is missing" : "an argument is missing";
    if (command->with_command && !options->command)
        return "put -- and the command to run after the provider";
    if (command->with_command && !options->command[0])
        return "the command to run after -- is missing";
    if (options->operand_count > command->operands_max)
        return "too many arguments";
    if ((options->given & OPTION_SLOT) && options->units > 1)
        return "--slot takes one slot, --units several: only one of them";
    return NULL;
}

static int dispatch(const struct lease_command *command, char **argv, int argc)
{
    struct cli cli = {.command = command};
    char error[OPTIONS_ERROR_SIZE];
    if (!options_read(argv, argc, command->options, command->with_command, &cli.options, error))
        return usage(command, error);
    if (cli.options.given & OPTION_HELP)
        return help_one(command);
    const char *wrong = check_operands(&cli);
    if (wrong)
        return usage(command, wrong);
    if (cli.options.given & OPTION_KEY) {
        say("--key is not in this version: there are no keys yet");
        return EXIT_UNAVAILABLE;
    }
    int code = command->run(&cli);
    cli_close(&cli);
    return code;
}

/* Output that could not be written is no success. A pipe that nobody reads is the reader's wish. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    say("the output cannot be written: %m");
    return code == EXIT_DONE ? EXIT_INTERNAL : code;
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    if (argc < 2) {
        say("a command is missing, see `lease --help`");
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("lease %s\n", LEASEHOLD_VERSION);
        return finish(EXIT_DONE);
    }
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (help && argc == 2)
        return finish(help_all());
    const struct lease_command *command = find_command(help ? argv[2] : name);
    if (!command) {
        say("'%.80s' is no command, see `lease --help`", help ? argv[2] : name);
        return EXIT_USAGE;
    }
    return finish(help ? help_one(command) : dispatch(command, argv + 2, argc - 2));
}
