/* Any text as NAME=SPEC: what is refused says why in one line and changes nothing, what is taken is
 * within its bounds and, written anew from what was taken, means the same. */
#include <stdio.h>

#include "agent/spec.h"
#include "broker/error.h"
#include "broker/record.h"
#include "tests/fuzz/fuzz.h"

#define TEXT_SIZE 8192

static void add(char *text, const char *name, const char *value)
{
    size_t used = strlen(text);
    if (value[0])
        must(snprintf(text + used, TEXT_SIZE - used, ",%s%s", name, value) <
             (int)(TEXT_SIZE - used));
}

static void write_source(const struct provider_spec *spec, char *text)
{
    char source[SPEC_URL_SIZE + 64];
    if (spec->engine == ENGINE_EXEC)
        return add(text, "exec:", spec->program);
    if (spec->engine == ENGINE_STATIC)
        (void)snprintf(source, sizeof source, "static:%d", (int)spec->slots);
    else if (spec->engine == ENGINE_AUTO)
        (void)snprintf(source, sizeof source, "%s", spec->url);
    else
        (void)snprintf(source, sizeof source, "%s+%s", engine_name(spec->engine), spec->url);
    add(text, "", source);
}

/* NAME=OPTION,...,SOURCE: exec: takes all that follows it. */
static void write_spec(const struct provider_spec *spec, char *text)
{
    char number[16] = "", group[NAME_SIZE + 16] = "";
    text[0] = '\0';
    if (spec->slots != -1 && spec->engine != ENGINE_STATIC)
        (void)snprintf(number, sizeof number, "%d", (int)spec->slots);
    if (spec->group[0])
        (void)snprintf(group, sizeof group, "%s:%d", spec->group, (int)spec->group_limit);
    add(text, "slots=", number);
    add(text, "model=", spec->model);
    add(text, "group=", group);
    add(text, "url=", spec->client_url);
    add(text, "own=", spec->own == OWN_YES ? "yes" : spec->own == OWN_NO ? "no" : "");
    add(text, "key-file=", spec->key_file);
    write_source(spec, text);
}

static void must_be_the_same(const struct provider_spec *a, const struct provider_spec *b)
{
    must(strcmp(a->name, b->name) == 0 && a->engine == b->engine && a->own == b->own);
    must(strcmp(a->url, b->url) == 0 && strcmp(a->probe_url, b->probe_url) == 0);
    must(strcmp(a->host, b->host) == 0 && a->port == b->port && a->slots == b->slots);
    must(strcmp(a->model, b->model) == 0 && strcmp(a->group, b->group) == 0);
    must(a->group_limit == b->group_limit && strcmp(a->client_url, b->client_url) == 0);
    must(strcmp(a->key_file, b->key_file) == 0 && strcmp(a->program, b->program) == 0);
}

static void must_be_in_bounds(const struct provider_spec *spec)
{
    must(name_is_valid(spec->name) && spec->engine < ENGINE_COUNT && spec->own <= OWN_NO);
    must(spec->slots == -1 || (spec->slots >= 1 && spec->slots <= BOOK_SLOTS_MAX));
    must(spec->group_limit >= 1 && spec->group_limit <= PROVIDERS_MAX);
    must(!spec->group[0] || name_is_valid(spec->group));
    must(fuzz_is_line(spec->url, sizeof spec->url) && fuzz_is_line(spec->host, sizeof spec->host));
    must(fuzz_is_line(spec->model, sizeof spec->model));
    must(fuzz_is_line(spec->client_url, sizeof spec->client_url));
    must(fuzz_is_line(spec->key_file, sizeof spec->key_file));
    must(fuzz_is_line(spec->program, sizeof spec->program));
    bool asked = spec->engine != ENGINE_STATIC && spec->engine != ENGINE_EXEC;
    must(asked == (spec->url[0] != '\0') && asked == (spec->host[0] != '\0'));
    must(asked == (spec->port != 0) && (spec->engine == ENGINE_EXEC) == (spec->program[0] != '\0'));
    must(spec->engine != ENGINE_STATIC || spec->slots >= 1);
    size_t probed = strlen(spec->probe_url);
    must(strncmp(spec->url, spec->probe_url, probed) == 0);
    must(probed == 0 || spec->probe_url[probed - 1] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct provider_spec spec, before, back;
    static char again[TEXT_SIZE], whole[TEXT_SIZE + NAME_SIZE];
    char error[SPEC_ERROR_SIZE] = "";
    char *text = fuzz_text(bytes, size);
    memset(&spec, 0x5a, sizeof spec);
    before = spec;
    int result = spec_parse(text, &spec, error);
    if (result != 0) {
        must(result == LEASE_EINVAL && error[0] && fuzz_is_line(error, sizeof error));
        must(memcmp(&spec, &before, sizeof spec) == 0);
    } else {
        must_be_in_bounds(&spec);
        (void)spec_host_is_numeric(&spec);
        (void)spec_url_is_loopback(&spec);
        write_spec(&spec, again);
        (void)snprintf(whole, sizeof whole, "%s=%s", spec.name, again + 1);
        must(spec_parse(whole, &back, error) == 0);
        must_be_the_same(&spec, &back);
    }
    free(text);
    return 0;
}
