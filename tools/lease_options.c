#define _GNU_SOURCE
#include "tools/lease_options.h"

#include <stdlib.h>
#include <string.h>

struct option {
    uint32_t bit;
    const char *name;  /* without its dashes; one letter stands behind one dash */
    const char *value; /* how help calls it; NULL: a switch */
    const char *help;
    const char *wants; /* for the error: what a value must be */
    bool (*set)(struct lease_cli_options *options, const char *value);
};

/* ---- values ---------------------------------------------------------------------------------- */

static bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits])
        return false;
    *number = strtoull(text, NULL, 10);
    return *number >= least && *number <= most;
}

bool duration_read(const char *text, uint64_t least_ms, uint64_t most_ms, uint64_t *ms)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
    size_t length = strspn(text, "0123456789.");
    if (length == 0 || length > 18 || text[0] == '.')
        return false;
    char *end;
    double amount = strtod(text, &end);
    if (end != text + length)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        double exact = amount * units[i].ms;
        if (exact < (double)least_ms || exact > (double)most_ms)
            return false;
        *ms = (uint64_t)(exact + 0.5);
        return true;
    }
    return false;
}

static bool set_duration(uint32_t *field, const char *value, uint64_t least, uint64_t most)
{
    uint64_t ms;
    if (!duration_read(value, least, most, &ms))
        return false;
    *field = (uint32_t)ms;
    return true;
}

/* The index of value among count words, or -1. */
static int word_index(const char *value, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(value, words[i]) == 0)
            return i;
    return -1;
}

static bool set_ttl(struct lease_cli_options *options, const char *value)
{
    return set_duration(&options->ttl_ms, value, TTL_MS_MIN, TTL_MS_MAX);
}

static bool set_wait(struct lease_cli_options *options, const char *value)
{
    return set_duration(&options->wait_ms, value, 0, WAIT_MS_MAX);
}

static bool set_timeout(struct lease_cli_options *options, const char *value)
{
    return set_duration(&options->timeout_ms, value, 1, WAIT_MS_MAX);
}

static bool set_units(struct lease_cli_options *options, const char *value)
{
    uint64_t number;
    if (!number_read(value, 1, BOOK_SLOTS_MAX, &number))
        return false;
    options->units = (uint32_t)number;
    return true;
}

static bool set_slot(struct lease_cli_options *options, const char *value)
{
    uint64_t number;
    if (!number_read(value, 0, BOOK_SLOTS_MAX - 1, &number))
        return false;
    options->slot_plus_1 = (int32_t)number + 1;
    return true;
}

static bool set_label(struct lease_cli_options *options, const char *value)
{
    options->label = value;
    return strlen(value) <= LABEL_BYTES_MAX;
}

static bool set_pid(struct lease_cli_options *options, const char *value)
{
    uint64_t number;
    if (!number_read(value, 1, INT32_MAX, &number))
        return false;
    options->pid = (uint32_t)number;
    return true;
}

static bool set_require(struct lease_cli_options *options, const char *value)
{
    static const char *const words[] = {"any", "host", "reading", "owner"};
    _Static_assert(LEASE_BASIS_PROCESS == 0 && LEASE_BASIS_OWNER == 3, "as in words");
    int index = word_index(value, words, 4);
    if (index >= 0)
        options->require = (enum lease_basis)index;
    return index >= 0;
}

static bool set_on_lost(struct lease_cli_options *options, const char *value)
{
    static const char *const words[] = {"warn", "term", "kill", "ignore"};
    int index = word_index(value, words, 4);
    if (index >= 0)
        options->on_lost = (enum on_lost)index;
    return index >= 0;
}

static bool set_else(struct lease_cli_options *options, const char *value)
{
    (void)options; /* `given` says it */
    return strcmp(value, "run") == 0;
}

static bool set_nested(struct lease_cli_options *options, const char *value)
{
    static const char *const words[] = {"refuse", "share", "new"};
    int index = word_index(value, words, 3);
    if (index >= 0)
        options->nested = (enum nested)index;
    return index >= 0;
}

static bool set_code(struct lease_cli_options *options, const char *value)
{
    uint64_t number;
    if (!number_read(value, 0, 255, &number))
        return false;
    options->busy_code = (int)number;
    return true;
}

static bool set_dir(struct lease_cli_options *options, const char *value)
{
    options->dir = value;
    return value[0] != '\0';
}

static bool set_config(struct lease_cli_options *options, const char *value)
{
    options->config = value;
    return value[0] != '\0';
}

static bool set_since(struct lease_cli_options *options, const char *value)
{
    options->since = value;
    return value[0] != '\0';
}

static bool set_provider(struct lease_cli_options *options, const char *value)
{
    const char *sign = strchr(value, '=');
    if (!sign || sign == value || !sign[1] || options->provider_count >= PROVIDERS_MAX)
        return false;
    options->providers[options->provider_count++] = value;
    return true;
}

/* What may stand there is for the library to say. */
static bool set_peer(struct lease_cli_options *options, const char *value)
{
    if (strncmp(value, "tcp://", 6) != 0 || !value[6] || options->peer_count >= PEER_OPTIONS_MAX)
        return false;
    options->peers[options->peer_count++] = value;
    return true;
}

static bool set_nothing(struct lease_cli_options *options, const char *value)
{
    (void)options;
    (void)value;
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct option table[] = {
    {OPTION_TTL, "ttl", "SEC", "time to live; renewed while in use (10 held, 30 dispatched)",
     "seconds from 1 to 86400", set_ttl},
    {OPTION_WAIT, "wait", "SEC", "wait in the queue for so long (0: not at all)",
     "seconds from 0 to 86400", set_wait},
    {OPTION_TIMEOUT, "timeout", "SEC", "for the asking itself, without the wait (1.5)",
     "seconds, more than 0", set_timeout},
    {OPTION_UNITS, "units", "N", "slots to take (1)", "a number from 1 to 1024", set_units},
    {OPTION_SLOT, "slot", "N", "this slot and no other, counted from 0", "a number from 0 to 1023",
     set_slot},
    {OPTION_LABEL, "label", "TEXT", "who, for people", "at most 127 bytes of text", set_label},
    {OPTION_PID, "pid", "PID", "tie the lease to the life of this process", "a process id",
     set_pid},
    {OPTION_REQUIRE, "require", "BASIS", "the least basis of a go: owner, reading, host, any",
     "one of owner, reading, host, any", set_require},
    {OPTION_ON_LOST, "on-lost", "WHAT", "the lease is lost: warn, term, kill, ignore",
     "one of warn, term, kill, ignore", set_on_lost},
    {OPTION_ELSE, "else", "run", "run without a lease where Leasehold itself fails", "the word run",
     set_else},
    {OPTION_NESTED, "nested", "HOW", "below another lease run: refuse, share its lease, new",
     "one of refuse, share, new", set_nested},
    {OPTION_CODE, "E", "CODE", "exit with this instead of 75", "a number from 0 to 255", set_code},
    {OPTION_EXPORT, "export", NULL, "print assignments for a shell to eval", NULL, set_nothing},
    {OPTION_FORCE, "force", NULL, "also a lease of somebody else", NULL, set_nothing},
    {OPTION_SINCE, "since", "TIME", "10s, 5m, 2h ago, or 2026-01-31T12:00:00",
     "a time such as 10s, 5m, 2h or 2026-01-31T12:00:00", set_since},
    {OPTION_PRINT, "print", NULL, "print it, write nothing", NULL, set_nothing},
    {OPTION_JSON, "json", NULL, "print JSON", NULL, set_nothing},
    {OPTION_PROVIDER, "provider", "NAME=SPEC", "declare a provider, as in the configuration",
     "NAME=SPEC, such as z4=http://127.0.0.1:8080 (at most 64)", set_provider},
    {OPTION_DIR, "dir", "DIR", "the runtime directory", "a directory", set_dir},
    {OPTION_CONFIG, "config", "FILE", "the configuration file", "a file", set_config},
    {OPTION_PEER, "peer", "ENDPOINT", "an agent of another host, tcp://HOST[:PORT], to ask",
     "tcp://HOST[:PORT] (at most 64)", set_peer},
    {OPTION_KEY, "key", "FILE", "with this key (not yet)", "a file", set_nothing},
    {OPTION_HELP, "help", NULL, "this text", NULL, set_nothing},
};

#define TABLE_SIZE (sizeof table / sizeof table[0])

void options_help(FILE *out, uint32_t allowed)
{
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const struct option *option = &table[i];
        if (!(option->bit & allowed))
            continue;
        char left[32];
        snprintf(left, sizeof left, "%s%s%s%s", option->name[1] ? "--" : "-", option->name,
                 option->value ? " " : "", option->value ? option->value : "");
        fprintf(out, "  %-20s %s\n", left, option->help);
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Finds the option that `argument` names, and in *value what follows a '=' (or the letter), NULL
 * where nothing does. */
static const struct option *find(const char *argument, const char **value)
{
    *value = NULL;
    if (strcmp(argument, "-h") == 0)
        argument = "--help";
    bool is_long = argument[1] == '-';
    const char *name = argument + (is_long ? 2 : 1);
    size_t length = is_long ? strcspn(name, "=") : 1;
    if (is_long && name[length])
        *value = name + length + 1;
    else if (!is_long && name[0] && name[1])
        *value = name + 1;
    for (size_t i = 0; i < TABLE_SIZE; i++)
        if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0 &&
            (length > 1) == is_long)
            return &table[i];
    return NULL;
}

struct reading {
    char **argv;
    int argc;
    int at;
    uint32_t allowed;
    struct lease_cli_options *options;
    char *error;
};

static bool take_option(struct reading *reading)
{
    const char *argument = reading->argv[reading->at];
    const char *value;
    const struct option *option = find(argument, &value);
    if (!option || !(option->bit & reading->allowed)) {
        snprintf(reading->error, OPTIONS_ERROR_SIZE, "%s option '%.80s'",
                 option ? "this command takes no" : "unknown", argument);
        return false;
    }
    const char *dashes = option->name[1] ? "--" : "-";
    if (!option->value && value) {
        snprintf(reading->error, OPTIONS_ERROR_SIZE, "%s%s takes no value", dashes, option->name);
        return false;
    }
    if (option->value && !value && reading->at + 1 < reading->argc)
        value = reading->argv[++reading->at];
    if (option->value && (!value || !option->set(reading->options, value))) {
        snprintf(reading->error, OPTIONS_ERROR_SIZE, "%s%s wants %s%s%.80s%s", dashes, option->name,
                 option->wants, value ? ", not '" : "", value ? value : "", value ? "'" : "");
        return false;
    }
    reading->options->given |= option->bit;
    return true;
}

static bool take_operand(struct reading *reading)
{
    struct lease_cli_options *options = reading->options;
    if (options->operand_count >= OPERANDS_MAX) {
        snprintf(reading->error, OPTIONS_ERROR_SIZE, "too many arguments");
        return false;
    }
    options->operands[options->operand_count++] = reading->argv[reading->at];
    return true;
}

bool options_read(char **argv, int argc, uint32_t allowed, bool with_command,
                  struct lease_cli_options *options, char *error)
{
    *options = (struct lease_cli_options){.busy_code = EXIT_NO_SLOT};
    struct reading reading = {argv, argc, 0, allowed, options, error};
    bool options_ended = false;
    for (; reading.at < argc; reading.at++) {
        const char *argument = argv[reading.at];
        if (!options_ended && strcmp(argument, "--") == 0) {
            if (with_command) {
                options->command = argv + reading.at + 1;
                return true;
            }
            options_ended = true;
            continue;
        }
        bool is_option = !options_ended && argument[0] == '-' && argument[1];
        if (!(is_option ? take_option(&reading) : take_operand(&reading)))
            return false;
        if (options->given & OPTION_HELP)
            return true;
    }
    return true;
}
