/* Any bytes as a configuration: the answer is one line, or a struct within its limits that, written
 * anew, reads the same; and nothing is printed, whatever zconfig thinks of it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/config.h"
#include "broker/error.h"
#include "broker/record.h"
#include "tests/fuzz/fuzz.h"

static char again[4 * CONFIG_BYTES_MAX];
static size_t used;
static bool sayable; /* what was read can be written: no value holds both quotes */

static void write_line(const char *key, const char *name, const char *value)
{
    char quote = strchr(value, '"') ? '\'' : '"';
    sayable = sayable && !strchr(value, quote) &&
              strlen(key) + strlen(name) + strlen(value) + 8 < CONFIG_LINE_MAX;
    if (sayable)
        used += (size_t)snprintf(again + used, sizeof again - used, "%s%s%s = %c%s%c\n", key,
                                 name[0] ? " " : "", name, quote, value, quote);
}

static void write_provider(const char *item)
{
    char name[NAME_SIZE];
    const char *equals = strchr(item, '=');
    must(equals != NULL && equals - item < NAME_SIZE && equals[1]);
    memcpy(name, item, (size_t)(equals - item));
    name[equals - item] = '\0';
    must(name_is_valid(name));
    write_line("provider", name, equals + 1);
}

static void write_pool(const struct config_pool *pool)
{
    static char members[CONFIG_MEMBERS_MAX * NAME_SIZE + 1];
    size_t length = 0;
    must(name_is_valid(pool->name));
    must(pool->members.count >= 1 && pool->members.count <= CONFIG_MEMBERS_MAX);
    for (size_t i = 0; i < pool->members.count; i++) {
        must(name_is_valid(pool->members.items[i]));
        length += (size_t)snprintf(members + length, sizeof members - length, "%s%s",
                                   i > 0 ? "," : "", pool->members.items[i]);
    }
    write_line("pool", pool->name, members);
}

static void write_list(const char *key, const struct config_list *list)
{
    must(list->count <= CONFIG_ENDPOINTS_MAX);
    for (size_t i = 0; i < list->count; i++)
        write_line(key, "", list->items[i]);
}

static void write_config(const struct config *config)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"name", config->name},
                 {"dir", config->dir},
                 {"publish", config->publish},
                 {"advertise", config->advertise},
                 {"http", config->http},
                 {"beacon", config->beacon ? "yes" : NULL},
                 {"relay", config->relay ? "yes" : NULL},
                 {"insecure", config->insecure ? "yes" : NULL}};
    used = 0;
    again[0] = '\0';
    sayable = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].value)
            write_line(texts[i].key, "", texts[i].value);
    must(config->providers.count <= PROVIDERS_MAX && config->pool_count <= CONFIG_POOLS_MAX);
    for (size_t i = 0; i < config->providers.count; i++)
        write_provider(config->providers.items[i]);
    for (size_t i = 0; i < config->pool_count; i++)
        write_pool(&config->pools[i]);
    write_list("listen", &config->listen);
    write_list("peer", &config->peers);
}

static void must_be_one_name_each(const struct config *config)
{
    for (size_t i = 0; i < config->pool_count; i++)
        must(config_pool(config, config->pools[i].name) == &config->pools[i]);
    must(config->warnings.count <= CONFIG_WARNINGS_MAX);
    for (size_t i = 0; i < config->warnings.count; i++)
        must(fuzz_is_line(config->warnings.items[i], CONFIG_ERROR_SIZE));
}

static void must_read_the_same(const struct config *config)
{
    static char first[sizeof again];
    struct config back;
    char error[CONFIG_ERROR_SIZE];
    must_be_one_name_each(config);
    write_config(config);
    if (!sayable)
        return;
    memcpy(first, again, used + 1);
    must(config_parse("again", first, strlen(first), &back, error) == 0);
    must(back.warnings.count == 0);
    write_config(&back);
    must(sayable && strcmp(first, again) == 0);
    config_free(&back);
}

/* Standard output is a file in memory: what is printed shows. */
static void must_be_silent(void)
{
    static int seen = -1;
    if (seen < 0) {
        seen = memfd_create("stdout", MFD_CLOEXEC);
        must(seen >= 0 && dup2(seen, STDOUT_FILENO) >= 0);
    }
    must(fflush(stdout) == 0 && lseek(seen, 0, SEEK_END) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct config config;
    char error[CONFIG_ERROR_SIZE];
    char *text = malloc(size + (size == 0)); /* no NUL behind it: it is of `size` bytes */
    must(text != NULL);
    if (size > 0)
        memcpy(text, bytes, size);
    must_be_silent();
    int result = config_parse("fuzz.conf", text, size, &config, error);
    free(text);
    if (result == 0) {
        must_read_the_same(&config);
    } else {
        must(result == LEASE_EINVAL && error[0] && fuzz_is_line(error, sizeof error));
        must(config.path == NULL && config.providers.count == 0 && config.pool_count == 0);
    }
    config_free(&config);
    must_be_silent();
    return 0;
}
