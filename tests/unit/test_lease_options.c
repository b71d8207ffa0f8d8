#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/lease_options.h"

#define ALL 0xffffffffu

static struct lease_cli_options options;
static char error[OPTIONS_ERROR_SIZE];

/* Reads a command line of words parted by blanks. */
static bool read_line(const char *line, uint32_t allowed, bool with_command)
{
    static char text[1024];
    static char *words[64];
    int count = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        words[count++] = word;
    words[count] = NULL;
    error[0] = '\0';
    return options_read(words, count, allowed, with_command, &options, error);
}

static void refuses(const char *line, const char *why)
{
    assert_false(read_line(line, ALL & ~(uint32_t)OPTION_PRINT, false));
    if (!strstr(error, why))
        fail_msg("'%s' is not in: %s", why, error);
}

static void nothing_gives_the_defaults(void **state)
{
    (void)state;
    assert_true(read_line("", ALL, false));
    assert_int_equal(options.busy_code, 75);
    assert_int_equal(options.given, 0);
    assert_int_equal(options.slot_plus_1, 0);
    assert_null(options.command);
}

static void every_option_reaches_its_field(void **state)
{
    (void)state;
    assert_true(read_line("--ttl 1.5 --wait=2m --timeout 200ms --units 3 --slot 0 --label a/b "
                          "--pid 77 --require reading --on-lost term --else run --nested share "
                          "-E 9 --json --dir /d --config /c --provider z4=static:1 z4 --since 5m "
                          "--peer tcp://z4 --peer=tcp://m5:1,name=m5",
                          ALL, false));
    assert_int_equal(options.ttl_ms, 1500);
    assert_int_equal(options.wait_ms, 120000);
    assert_int_equal(options.timeout_ms, 200);
    assert_int_equal(options.units, 3);
    assert_int_equal(options.slot_plus_1, 1);
    assert_string_equal(options.label, "a/b");
    assert_int_equal(options.pid, 77);
    assert_int_equal(options.require, LEASE_BASIS_READING);
    assert_int_equal(options.on_lost, ON_LOST_TERM);
    assert_int_equal(options.nested, NESTED_SHARE);
    assert_int_equal(options.busy_code, 9);
    assert_true(options.given & OPTION_JSON);
    assert_true(options.given & OPTION_ELSE);
    assert_string_equal(options.dir, "/d");
    assert_string_equal(options.config, "/c");
    assert_int_equal(options.provider_count, 1);
    assert_int_equal(options.peer_count, 2);
    assert_string_equal(options.peers[0], "tcp://z4");
    assert_string_equal(options.peers[1], "tcp://m5:1,name=m5");
    assert_string_equal(options.providers[0], "z4=static:1");
    assert_int_equal(options.operand_count, 1);
    assert_string_equal(options.operands[0], "z4");
    assert_string_equal(options.since, "5m");
}

static void two_dashes_begin_the_command(void **state)
{
    (void)state;
    assert_true(read_line("z4 --wait 1 -- cmd --wait x -- y", ALL, true));
    assert_int_equal(options.operand_count, 1);
    assert_int_equal(options.wait_ms, 1000);
    assert_string_equal(options.command[0], "cmd");
    assert_string_equal(options.command[1], "--wait");
    assert_string_equal(options.command[3], "--");
    assert_string_equal(options.command[4], "y");
    assert_null(options.command[5]);
    assert_true(read_line("z4 --", ALL, true));
    assert_null(options.command[0]);
}

static void two_dashes_end_the_options_elsewhere(void **state)
{
    (void)state;
    assert_true(read_line("-- --json", ALL, false));
    assert_null(options.command);
    assert_string_equal(options.operands[0], "--json");
    assert_false(options.given & OPTION_JSON);
}

static void letters_take_their_value_either_way(void **state)
{
    (void)state;
    assert_true(read_line("-E5", ALL, false));
    assert_int_equal(options.busy_code, 5);
    assert_true(read_line("-E 0", ALL, false));
    assert_int_equal(options.busy_code, 0);
    assert_true(read_line("-h --nonsense", ALL, false));
    assert_true(options.given & OPTION_HELP);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuses("--nonsense", "unknown option '--nonsense'");
    refuses("--tt 1", "unknown option '--tt'");
    refuses("-x", "unknown option '-x'");
    refuses("-json", "unknown option '-json'");
    refuses("--print", "takes no option '--print'");
    refuses("--json=yes", "--json takes no value");
    refuses("--peer", "--peer wants tcp://HOST[:PORT]");
    refuses("--peer m5", "--peer wants tcp://HOST[:PORT] (at most 64), not 'm5'");
    refuses("--ttl", "--ttl wants seconds from 1 to 86400");
    refuses("--ttl 0.5", "--ttl wants seconds from 1 to 86400, not '0.5'");
    refuses("--ttl 86401", "--ttl wants");
    refuses("--ttl 1x", "--ttl wants");
    refuses("--ttl nan", "--ttl wants");
    refuses("--ttl 1e3", "--ttl wants");
    refuses("--wait -1", "--wait wants");
    refuses("--timeout 0", "--timeout wants");
    refuses("--units 0", "--units wants");
    refuses("--units 99999999999999999999", "--units wants");
    refuses("--slot 1024", "--slot wants");
    refuses("--pid 0", "--pid wants");
    refuses("--require sure", "--require wants one of");
    refuses("--on-lost cry", "--on-lost wants one of");
    refuses("--else fail", "--else wants the word run");
    refuses("--nested deep", "--nested wants one of");
    refuses("-E 600", "-E wants a number from 0 to 255, not '600'");
    refuses("--provider z4", "--provider wants NAME=SPEC");
    refuses("--provider =x", "--provider wants NAME=SPEC");
    refuses("a b c d e f g h i j k l m n o p q", "too many arguments");
}

static void durations(void **state)
{
    (void)state;
    uint64_t ms = 0;
    assert_true(duration_read("10", 0, UINT32_MAX, &ms) && ms == 10000);
    assert_true(duration_read("0.001", 0, UINT32_MAX, &ms) && ms == 1);
    assert_true(duration_read("2h", 0, UINT32_MAX, &ms) && ms == 7200000);
    assert_true(duration_read("7ms", 0, UINT32_MAX, &ms) && ms == 7);
    assert_false(duration_read("", 0, UINT32_MAX, &ms));
    assert_false(duration_read(".5", 0, UINT32_MAX, &ms));
    assert_false(duration_read("1.2.3", 0, UINT32_MAX, &ms));
    assert_false(duration_read("0x10", 0, UINT32_MAX, &ms));
    assert_false(duration_read("5d", 0, UINT32_MAX, &ms));
    assert_int_equal(ms, 7);
}

static void help_shows_what_is_allowed_only(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    options_help(out, OPTION_WAIT | OPTION_CODE);
    fclose(out);
    assert_non_null(strstr(text, "--wait SEC"));
    assert_non_null(strstr(text, "-E CODE"));
    assert_null(strstr(text, "--json"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_gives_the_defaults),
        cmocka_unit_test(every_option_reaches_its_field),
        cmocka_unit_test(two_dashes_begin_the_command),
        cmocka_unit_test(two_dashes_end_the_options_elsewhere),
        cmocka_unit_test(letters_take_their_value_either_way),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(durations),
        cmocka_unit_test(help_shows_what_is_allowed_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
