#define _GNU_SOURCE
#include "agent/spec.h"

#include <ctype.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/error.h"

static struct provider_spec parse(const char *text)
{
    struct provider_spec spec;
    char error[SPEC_ERROR_SIZE] = "";
    if (spec_parse(text, &spec, error) != 0)
        fail_msg("'%s' is refused: %s", text, error);
    return spec;
}

/* Refused with one clean line that holds `part`, and nothing changed. */
static void refuses(const char *text, const char *part)
{
    struct provider_spec spec, before;
    char error[SPEC_ERROR_SIZE] = "";
    memset(&spec, 0x5a, sizeof spec);
    before = spec;
    assert_int_equal(spec_parse(text, &spec, error), LEASE_EINVAL);
    assert_memory_equal(&spec, &before, sizeof spec);
    if (strstr(error, part) == NULL)
        fail_msg("'%s': '%s' does not say '%s'", text, error, part);
    assert_true(islower((unsigned char)error[0]));
    assert_null(strpbrk(error, "\r\n"));
    assert_int_not_equal(error[strlen(error) - 1], '.');
}

static void a_url_is_taken_apart(void **state)
{
    (void)state;
    struct provider_spec spec = parse("z4=http://127.0.0.1:8080");
    assert_string_equal(spec.name, "z4");
    assert_int_equal(spec.engine, ENGINE_AUTO);
    assert_string_equal(spec.host, "127.0.0.1");
    assert_int_equal(spec.port, 8080);
    assert_string_equal(spec.url, "http://127.0.0.1:8080");
    assert_string_equal(spec.probe_url, "http://127.0.0.1:8080");
    assert_int_equal(spec.slots, -1);
    assert_int_equal(spec.own, OWN_BY_URL);
    assert_int_equal(spec.group_limit, 1);
}

static void a_missing_port_is_the_scheme_s(void **state)
{
    (void)state;
    assert_int_equal(parse("a=http://host").port, 80);
    assert_int_equal(parse("a=https://host/").port, 443);
    assert_int_equal(parse("a=https://host:65535/").port, 65535);
}

static void an_ipv6_literal_loses_its_brackets(void **state)
{
    (void)state;
    struct provider_spec spec = parse("a=http://[fd00::1]:81/x");
    assert_string_equal(spec.host, "fd00::1");
    assert_int_equal(spec.port, 81);
    assert_string_equal(spec.probe_url, "http://[fd00::1]:81/x");
}

static void a_path_stands_before_what_is_asked_but_not_v1(void **state)
{
    (void)state;
    assert_string_equal(parse("a=http://h:1/v1").probe_url, "http://h:1");
    assert_string_equal(parse("a=http://h:1/v1/").probe_url, "http://h:1");
    assert_string_equal(parse("a=http://h:1/llm/v1").probe_url, "http://h:1/llm");
    assert_string_equal(parse("a=http://h:1/llm//").probe_url, "http://h:1/llm");
    assert_string_equal(parse("a=http://h:1/llmv1").probe_url, "http://h:1/llmv1");
    assert_string_equal(parse("a=http://v1").probe_url, "http://v1");
    assert_string_equal(parse("a=http://h:1/v1").url, "http://h:1/v1");
}

static void an_engine_may_be_named(void **state)
{
    (void)state;
    assert_int_equal(parse("a=llama.cpp+http://h").engine, ENGINE_LLAMA_CPP);
    assert_string_equal(parse("a=llama.cpp+https://h/x").url, "https://h/x");
    assert_int_equal(parse("a=vllm+http://h,slots=8").engine, ENGINE_VLLM);
    assert_int_equal(parse("a=sglang+http://h").engine, ENGINE_SGLANG);
    assert_int_equal(parse("a=tgi+http://h").engine, ENGINE_TGI);
    assert_int_equal(parse("a=llama-swap+http://h,model=m").engine, ENGINE_LLAMA_SWAP);
    assert_int_equal(parse("a=ollama+http://h").engine, ENGINE_OLLAMA);
    assert_int_equal(parse("a=lmstudio+http://h").engine, ENGINE_LMSTUDIO);
    refuses("a=nonsense+http://h", "no engine is named 'nonsense'");
    refuses("a=static+http://h", "no engine is named 'static'");
    refuses("a=+http://h", "no engine is named ''");
}

static void static_has_slots_and_no_url(void **state)
{
    (void)state;
    struct provider_spec spec = parse("a=static:3,group=gpu:2");
    assert_int_equal(spec.engine, ENGINE_STATIC);
    assert_int_equal(spec.slots, 3);
    assert_string_equal(spec.url, "");
    assert_string_equal(spec.group, "gpu");
    assert_int_equal(spec.group_limit, 2);
    refuses("a=static:0", "'0' is no number");
    refuses("a=static:", "'' is no number");
    refuses("a=static:1025", "'1025' is no number");
    refuses("a=static:99999999999999999999", "is no number");
    refuses("a=static:-1", "'-1' is no number");
    refuses("a=static:1,slots=2", "exclude each other");
    refuses("a=slots=2,static:1", "exclude each other");
}

static void exec_is_last_and_keeps_its_commas(void **state)
{
    (void)state;
    assert_string_equal(parse("a=exec:/bin/true,slots=x,y").program, "/bin/true,slots=x,y");
    assert_int_equal(parse("a=slots=2,exec:/bin/true").slots, 2);
    assert_int_equal(parse("a=slots=2,exec:/bin/true").engine, ENGINE_EXEC);
    refuses("a=exec:", "exec: is empty");
    refuses("a=http://h,exec:/bin/true", "after another source");
}

static void options_stand_in_any_order(void **state)
{
    (void)state;
    struct provider_spec spec = parse("a=slots=4,http://h:1,model=org/m:Q4,group=g,"
                                      "url=https://proxy/x,own=no,key-file=/etc/key");
    assert_int_equal(spec.slots, 4);
    assert_string_equal(spec.model, "org/m:Q4");
    assert_string_equal(spec.group, "g");
    assert_int_equal(spec.group_limit, 1);
    assert_string_equal(spec.client_url, "https://proxy/x");
    assert_int_equal(spec.own, OWN_NO);
    assert_string_equal(spec.key_file, "/etc/key");
    assert_int_equal(parse("a=http://h,own=yes").own, OWN_YES);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    refuses("a=http://h,slots=0", "slots='0' is no number");
    refuses("a=http://h,slots=4x", "slots='4x' is no number");
    refuses("a=http://h,slots=1,slots=2", "given twice");
    refuses("a=http://h,model=", "model= is empty");
    refuses("a=http://h,group=", "group name ''");
    refuses("a=http://h,group=a b", "group name 'a b'");
    refuses("a=http://h,group=g:0", "'0' is no number");
    refuses("a=http://h,group=g:", "'' is no number");
    refuses("a=http://h,url=ftp://x", "no http:// or https:// URL");
    refuses("a=http://h,url=http://u:p@x", "user or password");
    refuses("a=http://h,own=maybe", "neither yes nor no");
    refuses("a=http://h,key-file=", "key-file= is empty");
    refuses("a=http://h,key-file=a\nb", "control character");
    refuses("a=http://h,", "'' is no option");
    refuses("a=http://h,colour=red", "'colour=red' is no option");
    refuses("a=http://h,http://i", "'http://i' is no option");
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    refuses("z4", "say NAME=SPEC");
    refuses("", "say NAME=SPEC");
    refuses("=http://h", "provider name ''");
    refuses("a b=http://h", "provider name 'a b'");
    refuses("a123456789012345678901234567890123456789012345678901234567890123=http://h", "1 to 63");
    assert_string_equal(
        parse("a12345678901234567890123456789012345678901234567890123456789012=http://h").host,
        "h");
    refuses("a=", "none of http://host:port");
    refuses("a=slots=2", "no URL, static:N or exec:PROGRAM");
}

static void bad_urls_are_refused(void **state)
{
    (void)state;
    refuses("a=http://", "no host");
    refuses("a=http://:80", "no host");
    refuses("a=http:///x", "no host");
    refuses("a=ftp://h", "none of http://host:port");
    refuses("a=h:8080", "none of http://host:port");
    refuses("a=http://h:0", "no port");
    refuses("a=http://h:65536", "no port");
    refuses("a=http://h:", "no port");
    refuses("a=http://h:80x", "no port");
    refuses("a=http://h:123456789", "no port");
    refuses("a=http://user:secret@h:80/", "user or password");
    refuses("a=http://user@h", "user or password");
    refuses("a=http://h/x?y=1", "query or fragment");
    refuses("a=http://h#x", "query or fragment");
    refuses("a=http://h /", "a character that no URL has");
    refuses("a=http://h\x01/", "control character");
    refuses("a=http://h\xc3\xa4/", "a character that no URL has");
    refuses("a=http://fd00::1:80", "no port");
    refuses("a=http://[fd00::1", "no host");
    refuses("a=http://[]:80", "no host");
    refuses("a=http://[nonsense]:80", "no IPv6 address");
    refuses("a=http://[fe80::1%eth0]:80", "no IPv6 address");
    refuses("a=http://[::1]x", "neither a port nor a path");
    refuses("a=http://h%41/", "is no host");
}

static void long_texts_are_refused(void **state)
{
    (void)state;
    char text[4096];
    static const char *const starts[] = {
        "a=http://h/",       "a=http://", "a=http://h,model=",      "a=http://h,key-file=",
        "a=http://h,group=", "a=exec:",   "a=http://h,url=http://", "a=http://[",
        "a=static:",         ""};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        memset(text, '1', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        memcpy(text, starts[i], strlen(starts[i]));
        refuses(text, "");
    }
}

/* Every prefix and every changed byte of a full one: refused or read, never more. */
static void anything_may_come(void **state)
{
    (void)state;
    static const char full[] = "a=slots=4,llama.cpp+https://[::1]:8080/v1,model=m,group=g:2,own=no";
    static const char bytes[] = "=,:/[]@%?#. \t\n\x7f\xff"
                                "0a";
    struct provider_spec spec;
    char text[sizeof full], error[SPEC_ERROR_SIZE];
    for (size_t at = 0; at < sizeof full; at++) {
        memcpy(text, full, sizeof full);
        text[at] = '\0';
        spec_parse(text, &spec, error);
        for (size_t i = 0; at < sizeof full - 1 && i < sizeof bytes; i++) {
            memcpy(text, full, sizeof full);
            text[at] = bytes[i];
            spec_parse(text, &spec, error);
        }
    }
}

static void local(const char *host, bool is_local, bool is_loopback)
{
    char text[300];
    snprintf(text, sizeof text, "a=http://%s:1", host);
    struct provider_spec spec = parse(text);
    if (spec_url_is_local(&spec) != is_local || spec_url_is_loopback(&spec) != is_loopback)
        fail_msg("%s: local %d, loopback %d", host, spec_url_is_local(&spec),
                 spec_url_is_loopback(&spec));
}

static void loopback_is_local(void **state)
{
    (void)state;
    local("127.0.0.1", true, true);
    local("127.9.8.7", true, true);
    local("0.0.0.0", true, true);
    local("[::1]", true, true);
    local("[::]", true, true);
    local("[::ffff:127.0.0.1]", true, true);
    local("localhost", true, true);
    local("LocalHost", true, true);
    local("a.localhost", true, true);
    local("192.0.2.1", false, false); /* for documentation: nobody's */
    local("[2001:db8::1]", false, false);
    local("[::ffff:192.0.2.1]", false, false);
}

static void own_addresses_are_local(void **state)
{
    (void)state;
    struct ifaddrs *list;
    char host[NI_MAXHOST + 2], numeric[NI_MAXHOST];
    assert_int_equal(getifaddrs(&list), 0);
    for (struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        int family = entry->ifa_addr == NULL ? AF_UNSPEC : entry->ifa_addr->sa_family;
        socklen_t size =
            family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (family != AF_INET && family != AF_INET6)
            continue;
        assert_int_equal(
            getnameinfo(entry->ifa_addr, size, numeric, sizeof numeric, NULL, 0, NI_NUMERICHOST),
            0);
        if (strchr(numeric, '%') != NULL)
            continue;
        snprintf(host, sizeof host, family == AF_INET ? "%s" : "[%s]", numeric);
        bool loop = strcmp(numeric, "::1") == 0 || strncmp(numeric, "127.", 4) == 0;
        local(host, true, loop);
    }
    freeifaddrs(list);
}

static void own_name_is_local_without_a_resolver(void **state)
{
    (void)state;
    char own[200];
    assert_int_equal(gethostname(own, sizeof own), 0);
    local(own, true, strcmp(own, "localhost") == 0);
    struct provider_spec spec = parse("a=http://localhost");
    assert_false(spec_host_is_numeric(&spec));
    spec = parse("a=http://[::1]");
    assert_true(spec_host_is_numeric(&spec));
    spec = parse("a=static:1");
    assert_false(spec_host_is_numeric(&spec));
    assert_false(spec_url_is_local(&spec));
    assert_false(spec_url_is_loopback(&spec));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_taken_apart),
        cmocka_unit_test(a_missing_port_is_the_scheme_s),
        cmocka_unit_test(an_ipv6_literal_loses_its_brackets),
        cmocka_unit_test(a_path_stands_before_what_is_asked_but_not_v1),
        cmocka_unit_test(an_engine_may_be_named),
        cmocka_unit_test(static_has_slots_and_no_url),
        cmocka_unit_test(exec_is_last_and_keeps_its_commas),
        cmocka_unit_test(options_stand_in_any_order),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(bad_urls_are_refused),
        cmocka_unit_test(long_texts_are_refused),
        cmocka_unit_test(anything_may_come),
        cmocka_unit_test(loopback_is_local),
        cmocka_unit_test(own_addresses_are_local),
        cmocka_unit_test(own_name_is_local_without_a_resolver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
