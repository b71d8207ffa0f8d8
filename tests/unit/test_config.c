#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/config.h"
#include "agent/spec.h"
#include "broker/error.h"

static struct config config;
static char error[CONFIG_ERROR_SIZE];

static int parse(const char *text)
{
    return config_parse("t.conf", text, strlen(text), &config, error);
}

/* Parses what must be refused, with this text somewhere in the line of error. */
static void refuses(const char *text, const char *why)
{
    assert_int_equal(parse(text), LEASE_EINVAL);
    if (!strstr(error, why))
        fail_msg("'%s' is not in: %s", why, error);
    assert_null(config.path);
    assert_int_equal(config.providers.count, 0);
}

static void empty_text_is_an_empty_configuration(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(config.providers.count, 0);
    assert_string_equal(config.path, "t.conf");
    config_free(&config);
    assert_null(config.path);
}

static void both_forms_of_providers_and_pools(void **state)
{
    (void)state;
    assert_int_equal(parse("provider z4 = http://h:1,slots=2   # mine\r\n"
                           "provider\n"
                           "    m5 = 'http://h/#a'\n"
                           "\n"
                           "pool coder = m5, z4\n"
                           "pool\n"
                           "    all = z4"),
                     0);
    assert_int_equal(config.providers.count, 2);
    assert_string_equal(config.providers.items[0], "z4=http://h:1,slots=2");
    assert_string_equal(config.providers.items[1], "m5=http://h/#a");
    assert_null(config.providers.items[2]);
    const struct config_pool *pool = config_pool(&config, "coder");
    assert_non_null(pool);
    assert_int_equal(pool->members.count, 2);
    assert_string_equal(pool->members.items[0], "m5");
    assert_string_equal(pool->members.items[1], "z4");
    assert_non_null(config_pool(&config, "all"));
    assert_null(config_pool(&config, "z4"));
    config_free(&config);
}

static void every_plain_key(void **state)
{
    (void)state;
    assert_int_equal(parse("name = h\ndir = /d\npublish = p\nadvertise = a\nhttp = b\n"
                           "listen = l1\nlisten = l2\npeer = tcp://x:1,name=y\n"
                           "beacon = yes\nrelay = no\ninsecure = 1\n"),
                     0);
    assert_string_equal(config.name, "h");
    assert_string_equal(config.dir, "/d");
    assert_string_equal(config.publish, "p");
    assert_string_equal(config.advertise, "a");
    assert_string_equal(config.http, "b");
    assert_int_equal(config.listen.count, 2);
    assert_string_equal(config.listen.items[1], "l2");
    assert_string_equal(config.peers.items[0], "tcp://x:1,name=y");
    assert_true(config.beacon && !config.relay && config.insecure);
    assert_int_equal(config.warnings.count, 0);
    config_free(&config);
}

static void unknown_keys_are_warnings_with_their_line(void **state)
{
    (void)state;
    assert_int_equal(parse("# x\nlisten = a\n    below = 1\nprovidr\n    z4 = static:1\n"
                           "provider z4 = static:1\nname = a\nname = b\n"),
                     0);
    assert_int_equal(config.warnings.count, 3);
    assert_string_equal(config.warnings.items[0],
                        "t.conf:2: what stands below 'listen' is ignored");
    assert_string_equal(config.warnings.items[1], "t.conf:4: unknown key 'providr', ignored");
    assert_string_equal(config.warnings.items[2],
                        "t.conf:8: name is set above already, this line counts");
    assert_string_equal(config.name, "b");
    assert_int_equal(config.providers.count, 1);
    config_free(&config);
}

static void errors_name_file_and_line(void **state)
{
    (void)state;
    refuses("\n\n  name = x\n", "t.conf:3: indent by four spaces");
    refuses("a\n\tb = 1\n", "t.conf:2: indent with spaces");
    refuses("a\n        b = 1\n", "t.conf:2: indented deeper");
    refuses("    a = 1\n", "t.conf:1: indented deeper");
    refuses("name = 'x\n", "t.conf:1: the closing quote");
    refuses("name = 'x' y\n", "t.conf:1: something follows");
    refuses("name =\n", "t.conf:1: no value");
    refuses("name = # x\n", "t.conf:1: no value");
    refuses("name x\n", "t.conf:1: a line is");
    refuses("= x\n", "t.conf:1: a line is");
    refuses("a/b = x\n", "t.conf:1: a line is");
    refuses("pool/b = x\n", "t.conf:1: a line is");
    refuses("name\n", "t.conf:1: name has no value");
    refuses("beacon = maybe\n", "t.conf:1: beacon is yes or no");
    refuses("#\nprovider z4 = static:1\nprovider z4 = static:2\n", "t.conf:3: provider 'z4'");
    refuses("provider\n    z4 = static:1\n    a b = static:1\n", "t.conf:3: a line is");
    refuses("provider\n    z4 = static:1\n    a@b = static:1\n", "t.conf:3: 'a@b' is no name");
    refuses("provider\n    z4 = static:1\n        x = 1\n", "t.conf:3: nothing can stand below");
    refuses("provider z4\n", "t.conf:1: provider 'z4' has no address");
    refuses("provider = http://h\n", "t.conf:1: 'provider' wants a name");
    refuses("pool a = ','\n", "t.conf:1: pool 'a' is empty");
    refuses("pool a = b,c:d\n", "t.conf:1: pool 'a': 'c:d' is no name");
    refuses("provider a = static:1\npool a = a\n", "t.conf:2: pool 'a': a provider of that name");
}

static void garbage_is_refused_and_made_printable(void **state)
{
    (void)state;
    static const char nul[] = "name = a\0b\n";
    assert_int_equal(config_parse("t.conf", nul, sizeof nul - 1, &config, error), LEASE_EINVAL);
    refuses("\x1b[2J = 1\n", "control character");
    assert_int_equal(config_parse("\x1b[2J", "a", 1, &config, error), 0);
    assert_null(strchr(config.warnings.items[0], '\x1b'));
    config_free(&config);
    refuses("provider \xff\xfe = static:1\n", "t.conf:1:");
}

/* A fixed generator, so that a failure comes again: what is random is the text, not the test. */
static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Whatever config_lines lets pass, zconfig must be able to read, without a word on stdout. */
static void random_text_never_reaches_stdout(void **state)
{
    (void)state;
    static const char *const parts[] = {"provider", "pool", " ",  "    ", "=",   "\n",
                                        "#",        "'",    "\"", "name", "z4",  "/",
                                        ",",        "\t",   "\r", "a",    "\xc3"};
    char path[] = "/tmp/config-stdout-XXXXXX";
    int file = mkstemp(path), saved = dup(STDOUT_FILENO);
    assert_true(file >= 0 && saved >= 0);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    uint32_t seed = 20260101;
    for (int round = 0; round < 20000; round++) {
        char text[512] = "";
        for (int i = 0; i < 40; i++)
            strcat(text, parts[next_random(&seed) % (sizeof parts / sizeof parts[0])]);
        if (parse(text) == 0)
            config_free(&config);
        else if (!error[0])
            break;
    }
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(lseek(file, 0, SEEK_END), 0);
    assert_string_not_equal(error, "");
    close(file);
    unlink(path);
}

static void what_is_too_much_is_refused(void **state)
{
    (void)state;
    size_t size = CONFIG_BYTES_MAX + 1;
    char *text = malloc(size + 1);
    assert_non_null(text);
    memset(text, 'a', size);
    assert_int_equal(config_parse("t.conf", text, size, &config, error), LEASE_EINVAL);
    assert_non_null(strstr(error, "too long"));
    assert_int_equal(config_parse("t.conf", text, 5000, &config, error), LEASE_EINVAL);
    assert_string_equal(error, "t.conf:1: the line is too long");
    for (size_t i = 0; i < size; i++)
        text[i] = i % 2 ? '\n' : 'a';
    assert_int_equal(config_parse("t.conf", text, size - 1, &config, error), LEASE_EINVAL);
    assert_non_null(strstr(error, "too many lines"));
    char *at = text;
    for (int i = 0; i <= PROVIDERS_MAX; i++)
        at += sprintf(at, "provider p%d = static:1\n", i);
    assert_int_equal(config_parse("t.conf", text, (size_t)(at - text), &config, error),
                     LEASE_EINVAL);
    assert_non_null(strstr(error, "t.conf:65: more than 64 providers"));
    free(text);
}

static void no_signal_handler_is_installed(void **state)
{
    (void)state;
    assert_int_equal(parse("provider z4 = static:1\n"), 0);
    config_free(&config);
    struct sigaction action;
    assert_int_equal(sigaction(SIGINT, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
    assert_int_equal(sigaction(SIGTERM, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
}

static void the_sample_is_valid(void **state)
{
    (void)state;
    assert_int_equal(config_load(SAMPLE_PATH, &config, error), 0);
    assert_int_equal(config.warnings.count, 0);
    assert_int_equal(config.providers.count, 5);
    assert_int_equal(config.pool_count, 2);
    assert_string_equal(config.providers.items[0], "z4=llama.cpp+http://127.0.0.1:8080");
    for (size_t i = 0; i < config.providers.count; i++) {
        struct provider_spec spec;
        char why[SPEC_ERROR_SIZE];
        if (spec_parse(config.providers.items[i], &spec, why) < 0)
            fail_msg("%s: %s", config.providers.items[i], why);
    }
    config_free(&config);
}

static void files_that_are_none(void **state)
{
    (void)state;
    assert_int_equal(config_load("/nonexistent/x", &config, error), LEASE_EIO);
    assert_string_equal(error, "/nonexistent/x: No such file or directory");
    assert_int_equal(config_load("/tmp", &config, error), LEASE_EIO);
    assert_string_equal(error, "/tmp: not a regular file");
    assert_int_equal(config_load("/dev/zero", &config, error), LEASE_EIO);
}

static void the_file_is_found_in_order(void **state)
{
    (void)state;
    char home[] = "/tmp/config-home-XXXXXX", path[CONFIG_PATH_SIZE], want[CONFIG_PATH_SIZE];
    assert_non_null(mkdtemp(home));
    assert_true(config_find("given", path));
    assert_string_equal(path, "given");
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    assert_true(config_user_path(path));
    snprintf(want, sizeof want, "%s/.config/leasehold/leasehold.conf", home);
    assert_string_equal(path, want);
    setenv("XDG_CONFIG_HOME", home, 1);
    assert_true(config_user_path(path));
    char folder[256];
    snprintf(folder, sizeof folder, "%s/leasehold", home);
    assert_int_equal(mkdir(folder, 0700), 0);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    strcpy(want, path);
    assert_true(config_find(NULL, path));
    assert_string_equal(path, want);
    unlink(path);
    rmdir(folder);
    rmdir(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_text_is_an_empty_configuration),
        cmocka_unit_test(both_forms_of_providers_and_pools),
        cmocka_unit_test(every_plain_key),
        cmocka_unit_test(unknown_keys_are_warnings_with_their_line),
        cmocka_unit_test(errors_name_file_and_line),
        cmocka_unit_test(garbage_is_refused_and_made_printable),
        cmocka_unit_test(random_text_never_reaches_stdout),
        cmocka_unit_test(what_is_too_much_is_refused),
        cmocka_unit_test(no_signal_handler_is_installed),
        cmocka_unit_test(the_sample_is_valid),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(the_file_is_found_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
