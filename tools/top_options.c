#define _GNU_SOURCE
#include "tools/top_options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/lease_options.h"

#define WHY_SIZE   256
#define FRAMES_MAX 1000000000

enum {
    LONG_COLOR = 1,
    LONG_DIR,
    LONG_CONFIG,
    LONG_PROVIDER,
    LONG_PEER
}; /* flags without a letter */

static const struct flag {
    char letter;      /* below ' ': of the enum above, there is none */
    const char *name; /* NULL: none */
    const char *value;
    const char *help;
    const char *wants;
} flags[] = {
    {'b', "batch", NULL, "text for a pipe, nothing is cut; implied where stdout is no terminal",
     NULL},
    {'n', NULL, "N", "end after N frames (batch; 1 where -b is implied)", "a number of frames"},
    {'d', "delay", "SEC", "between two looks (1); changes show at once all the same",
     "seconds from 0.2 to 60"},
    {'j', "json", NULL, "one JSON object a line a frame (batch)", NULL},
    {'s', "sort", "COL", "attn, provider, slot, state, holder, left, held, read; -COL reverses",
     "a column: attn, provider, slot, state, holder, left, held or read"},
    {'F', "filter", "WORDS", "only rows with these: state:free, provider:z*, !holder:ci", NULL},
    {'w', "width", "COLS", "cut batch lines there", "a width from 1 to 10000"},
    {'m', "mouse", NULL, "clicks and the wheel move the cursor", NULL},
    {LONG_COLOR, "color", "WHEN", "auto, always or never; NO_COLOR means never",
     "one of auto, always, never"},
    {LONG_DIR, "dir", "DIR", "the runtime directory", NULL},
    {LONG_CONFIG, "config", "FILE", "the configuration file", NULL},
    {LONG_PROVIDER, "provider", "NAME=SPEC", "declare a provider, as in the configuration",
     "NAME=SPEC"},
    {LONG_PEER, "peer", "ENDPOINT", "an agent of another host, where none runs here",
     "tcp://HOST[:PORT] (at most 16)"},
    {'h', "help", NULL, "this text", NULL},
    {'V', "version", NULL, "print the version", NULL},
};
enum { FLAGS = sizeof flags / sizeof flags[0], FIRST_LONG = 256 };

void top_options_help(FILE *out)
{
    fputs("usage: leasetop [options]\n\nWho holds which slot, for how long, and which are free. "
          "It only looks.\n\noptions:\n",
          out);
    for (int i = 0; i < FLAGS; i++) {
        char left[32], letter[4] = "";
        const struct flag *flag = &flags[i];
        bool has_letter = flag->letter > ' ';
        if (has_letter)
            snprintf(letter, sizeof letter, "-%c", flag->letter);
        snprintf(left, sizeof left, "%s%s%s%s%s%s", letter, has_letter && flag->name ? " " : "",
                 flag->name ? "--" : "", flag->name ? flag->name : "", flag->value ? " " : "",
                 flag->value ? flag->value : "");
        fprintf(out, "  %-22s %s\n", left, flag->help);
    }
    fputs("\nkeys:\n", out);
    const struct top_key_help *help;
    for (uint32_t i = 0; (help = top_key_help(i)); i++)
        fprintf(out, "  %-8s %s\n", help->name, help->help);
    fputs("\nexit codes:\n    0  done; with -F: a row of the last frame passed\n"
          "   64  the command line or the configuration is wrong\n"
          "   69  the terminal cannot be used\n   70  something else failed\n"
          "   75  with -F: no row passed\n"
          "\n`leasetop -b -n 1 -F state:free` finds a free slot; state:available counts in what\n"
          "leases alone say.\n",
          out);
}

static bool read_number(const char *text, long most, long *number)
{
    char *end;
    *number = strtol(text, &end, 10);
    return end != text && *end == '\0' && *number >= 1 && *number <= most;
}

static bool read_delay(const char *text, struct top_options *options)
{
    uint64_t ms;
    if (!duration_read(text, TOP_DELAY_MS_MIN, TOP_DELAY_MS_MAX, &ms))
        return false;
    options->delay_ms = (int64_t)ms;
    return true;
}

static bool read_color(const char *text, struct top_options *options)
{
    static const char *const words[] = {"auto", "always", "never"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i]) != 0)
            continue;
        options->color = (enum top_color)i;
        return true;
    }
    return false;
}

static bool read_sort(const char *text, struct top_options *options)
{
    options->reverse = text[0] == '-';
    return top_sort_find(text + options->reverse, &options->sort);
}

static bool read_provider(const char *text, struct top_options *options)
{
    const char *sign = strchr(text, '=');
    if (!sign || sign == text || options->provider_count >= PROVIDERS_MAX)
        return false;
    options->providers[options->provider_count++] = text;
    return true;
}

static bool read_peer(const char *text, struct top_options *options)
{
    if (strncmp(text, "tcp://", 6) != 0 || !text[6] || options->peer_count >= TOP_PEERS_MAX)
        return false;
    options->peers[options->peer_count++] = text;
    return true;
}

static bool set(const struct flag *flag, const char *value, struct top_options *options)
{
    long number = 0;
    switch (flag->letter) {
    case 'b': options->batch = true; return true;
    case 'j': options->json = options->batch = true; return true;
    case 'm': options->mouse = true; return true;
    case 'h': options->help = true; return true;
    case 'V': options->version = true; return true;
    case 'F': options->filter = value; return true;
    case 'd': return read_delay(value, options);
    case 's': return read_sort(value, options);
    case 'n':
        if (!read_number(value, FRAMES_MAX, &number))
            return false;
        options->frames = (uint64_t)number;
        return true;
    case 'w':
        if (!read_number(value, 10000, &number))
            return false;
        options->width = (int)number;
        return true;
    case LONG_COLOR: return read_color(value, options);
    case LONG_DIR: options->dir = value; return true;
    case LONG_CONFIG: options->config = value; return true;
    case LONG_PROVIDER: return read_provider(value, options);
    case LONG_PEER: return read_peer(value, options);
    default: return false;
    }
}

static void list_flags(struct option *longs, char *letters)
{
    int count = 0;
    *letters++ = ':';
    for (int i = 0; i < FLAGS; i++) {
        int takes = flags[i].value ? required_argument : no_argument;
        if (flags[i].name)
            longs[count++] = (struct option){flags[i].name, takes, NULL, FIRST_LONG + i};
        if (flags[i].letter < ' ')
            continue;
        *letters++ = flags[i].letter;
        if (flags[i].value)
            *letters++ = ':';
    }
    *letters = '\0';
    longs[count] = (struct option){0};
}

static const struct flag *flag_of(int got)
{
    if (got >= FIRST_LONG)
        return &flags[got - FIRST_LONG];
    for (int i = 0; i < FLAGS; i++)
        if (flags[i].letter == got)
            return &flags[i];
    return NULL;
}

bool top_options_read(int argc, char **argv, struct top_options *options, char *why)
{
    struct option longs[FLAGS + 1];
    char letters[2 * FLAGS + 2];
    *options = (struct top_options){.delay_ms = 1000, .filter = ""};
    list_flags(longs, letters);
    opterr = 0;
    optind = 1;
    for (int got; (got = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        const struct flag *flag = got == '?' || got == ':' ? NULL : flag_of(got);
        const char *given = optind > 0 && optind <= argc ? argv[optind - 1] : "";
        if (!flag) {
            snprintf(why, WHY_SIZE, "%s '%.80s', see leasetop --help",
                     got == ':' ? "a value is missing after" : "unknown option", given);
            return false;
        }
        if (set(flag, optarg, options))
            continue;
        snprintf(why, WHY_SIZE, "%s%.1s%s wants %s, not '%.80s'", flag->name ? "--" : "-",
                 flag->name ? "" : &flag->letter, flag->name ? flag->name : "", flag->wants,
                 optarg);
        return false;
    }
    if (optind < argc)
        snprintf(why, WHY_SIZE, "'%.80s' is no option, see leasetop --help", argv[optind]);
    return optind >= argc;
}
