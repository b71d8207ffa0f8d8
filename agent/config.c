#define _GNU_SOURCE
#include "agent/config.h"

#include <czmq.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config_lines.h"
#include "broker/error.h"
#include "broker/record.h"

/* ---- where it lies --------------------------------------------------------------------------- */

bool config_user_path(char *path)
{
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *below = "";
    if (!base || base[0] != '/') { /* a relative one is to be ignored, says the specification */
        base = getenv("HOME");
        below = "/.config";
    }
    path[0] = '\0';
    if (!base || !base[0])
        return false;
    int length = snprintf(path, CONFIG_PATH_SIZE, "%s%s/leasehold/leasehold.conf", base, below);
    if (length > 0 && length < CONFIG_PATH_SIZE)
        return true;
    path[0] = '\0';
    return false;
}

bool config_find(const char *given, char *path)
{
    path[0] = '\0';
    if (given) {
        int length = snprintf(path, CONFIG_PATH_SIZE, "%s", given);
        return length > 0 && length < CONFIG_PATH_SIZE;
    }
    if (config_user_path(path) && access(path, F_OK) == 0)
        return true;
    snprintf(path, CONFIG_PATH_SIZE, "/etc/leasehold/leasehold.conf");
    if (access(path, F_OK) == 0)
        return true;
    path[0] = '\0';
    return false;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Takes `text`, which may be NULL (then, as on any failure, false and text is freed). */
static bool list_take(struct config_list *list, char *text)
{
    char **items = text ? realloc(list->items, (list->count + 2) * sizeof *items) : NULL;
    if (!items) {
        free(text);
        return false;
    }
    list->items = items;
    items[list->count++] = text;
    items[list->count] = NULL;
    return true;
}

static void list_free(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){0};
}

void config_free(struct config *config)
{
    char *texts[] = {config->path,    config->name,      config->dir,
                     config->publish, config->advertise, config->http};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    list_free(&config->providers);
    list_free(&config->listen);
    list_free(&config->peers);
    list_free(&config->warnings);
    for (size_t i = 0; i < config->pool_count; i++)
        list_free(&config->pools[i].members);
    free(config->pools);
    *config = (struct config){0};
}

const struct config_pool *config_pool(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->pool_count; i++)
        if (strcmp(config->pools[i].name, name) == 0)
            return &config->pools[i];
    return NULL;
}

/* ---- from the tree into the struct ----------------------------------------------------------- */

struct reader {
    struct config *config;
    const struct config_lines *lines;
    const char *path;
    char *error;
    size_t item; /* of lines->numbers: which line the item at hand came from */
};

/* Ends the reading with an error in the line at hand. */
__attribute__((format(printf, 2, 3))) static int fail(struct reader *reader, const char *format,
                                                      ...)
{
    char what[CONFIG_ERROR_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    config_error(reader->error, reader->path, reader->lines->numbers[reader->item], what);
    return LEASE_EINVAL;
}

/* A warning more or less is no reason to fail: one without memory is dropped. */
__attribute__((format(printf, 2, 3))) static void warn(struct reader *reader, const char *format,
                                                       ...)
{
    if (reader->config->warnings.count >= CONFIG_WARNINGS_MAX)
        return;
    char what[CONFIG_ERROR_SIZE], line[CONFIG_ERROR_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    config_error(line, reader->path, reader->lines->numbers[reader->item], what);
    list_take(&reader->config->warnings, strdup(line));
}

static bool provider_declared(const struct config *config, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < config->providers.count; i++)
        if (strncmp(config->providers.items[i], name, length) == 0 &&
            config->providers.items[i][length] == '=')
            return true;
    return false;
}

static int check_new_name(struct reader *reader, const char *kind, const char *name)
{
    if (!name_is_valid(name))
        return fail(reader, "'%.80s' is no name for a %s: use 1 to %d of A-Z a-z 0-9 . _ -", name,
                    kind, NAME_CHARS_MAX);
    if (provider_declared(reader->config, name))
        return fail(reader, "%s '%s': a provider of that name is declared above", kind, name);
    if (config_pool(reader->config, name))
        return fail(reader, "%s '%s': a pool of that name is declared above", kind, name);
    return 0;
}

static int add_provider(struct reader *reader, const char *name, const char *spec)
{
    int rc = check_new_name(reader, "provider", name);
    if (rc < 0)
        return rc;
    if (!spec[0])
        return fail(reader, "provider '%s' has no address, write: provider %s = http://host:port",
                    name, name);
    if (reader->config->providers.count >= PROVIDERS_MAX)
        return fail(reader, "more than %d providers", PROVIDERS_MAX);
    size_t size = strlen(name) + strlen(spec) + 2;
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%s=%s", name, spec);
    return list_take(&reader->config->providers, text) ? 0 : LEASE_ENOMEM;
}

/* Splits `value` at commas and white space into the names of `pool`. */
static int add_members(struct reader *reader, struct config_pool *pool, const char *value)
{
    static const char between[] = ", \t";
    for (const char *at = value + strspn(value, between); *at; at += strspn(at, between)) {
        size_t length = strcspn(at, between);
        char *name = strndup(at, length);
        if (name && !name_is_valid(name)) {
            int rc = fail(reader, "pool '%s': '%.80s' is no name of a provider", pool->name, name);
            free(name);
            return rc;
        }
        if (pool->members.count >= CONFIG_MEMBERS_MAX) {
            free(name);
            return fail(reader, "pool '%s' has more than %d members", pool->name,
                        CONFIG_MEMBERS_MAX);
        }
        if (!list_take(&pool->members, name))
            return LEASE_ENOMEM;
        at += length;
    }
    return 0;
}

static int add_pool(struct reader *reader, const char *name, const char *value)
{
    struct config *config = reader->config;
    int rc = check_new_name(reader, "pool", name);
    if (rc < 0)
        return rc;
    if (config->pool_count >= CONFIG_POOLS_MAX)
        return fail(reader, "more than %d pools", CONFIG_POOLS_MAX);
    struct config_pool *pools =
        realloc(config->pools, (config->pool_count + 1) * sizeof *config->pools);
    if (!pools)
        return LEASE_ENOMEM;
    config->pools = pools;
    struct config_pool *pool = &pools[config->pool_count++];
    *pool = (struct config_pool){0};
    text_copy(pool->name, sizeof pool->name, name);
    rc = add_members(reader, pool, value);
    if (rc == 0 && pool->members.count == 0)
        return fail(reader, "pool '%s' is empty, write: pool %s = PROVIDER,PROVIDER", name, name);
    return rc;
}

static int add_endpoint(struct reader *reader, struct config_list *list, const char *key,
                        const char *value)
{
    if (!value[0])
        return fail(reader, "%s has no value", key);
    if (list->count >= CONFIG_ENDPOINTS_MAX)
        return fail(reader, "more than %d lines of %s", CONFIG_ENDPOINTS_MAX, key);
    return list_take(list, strdup(value)) ? 0 : LEASE_ENOMEM;
}

static int set_text(struct reader *reader, char **text, const char *key, const char *value)
{
    if (!value[0])
        return fail(reader, "%s has no value", key);
    if (*text)
        warn(reader, "%s is set above already, this line counts", key);
    free(*text);
    *text = strdup(value);
    return *text ? 0 : LEASE_ENOMEM;
}

static int set_switch(struct reader *reader, bool *on, const char *key, const char *value)
{
    static const char *const yes[] = {"yes", "on", "true", "1"};
    static const char *const no[] = {"no", "off", "false", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *on = strcmp(value, yes[i]) == 0;
            return 0;
        }
    }
    return fail(reader, "%s is yes or no, not '%.80s'", key, value);
}

/* The items below `section`, each given to `add` with its name. */
static int read_section(struct reader *reader, zconfig_t *section,
                        int (*add)(struct reader *, const char *, const char *))
{
    if (zconfig_value(section)[0])
        return fail(reader, "'%s' wants a name, write: %s NAME = ...", zconfig_name(section),
                    zconfig_name(section));
    for (zconfig_t *item = zconfig_child(section); item; item = zconfig_next(item)) {
        reader->item++;
        int rc = add(reader, zconfig_name(item), zconfig_value(item));
        if (rc < 0)
            return rc;
        if (zconfig_child(item)) {
            reader->item++;
            return fail(reader,
                        "nothing can stand below '%s': options follow the address after "
                        "commas",
                        zconfig_name(item));
        }
    }
    return 0;
}

/* 1 where the key is unknown. */
static int read_plain(struct reader *reader, const char *key, const char *value)
{
    struct config *config = reader->config;
    const struct {
        const char *key;
        char **text;
        bool *on;
        struct config_list *list;
    } keys[] = {
        {"name", &config->name, NULL, NULL},       {"dir", &config->dir, NULL, NULL},
        {"publish", &config->publish, NULL, NULL}, {"advertise", &config->advertise, NULL, NULL},
        {"http", &config->http, NULL, NULL},       {"beacon", NULL, &config->beacon, NULL},
        {"relay", NULL, &config->relay, NULL},     {"insecure", NULL, &config->insecure, NULL},
        {"listen", NULL, NULL, &config->listen},   {"peer", NULL, NULL, &config->peers},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].key, key) != 0)
            continue;
        if (keys[i].text)
            return set_text(reader, keys[i].text, key, value);
        if (keys[i].on)
            return set_switch(reader, keys[i].on, key, value);
        return add_endpoint(reader, keys[i].list, key, value);
    }
    warn(reader, "unknown key '%.80s', ignored", key);
    return 1;
}

static size_t count_below(zconfig_t *item)
{
    size_t count = 0;
    for (zconfig_t *child = zconfig_child(item); child; child = zconfig_next(child))
        count += 1 + count_below(child);
    return count;
}

static int read_item(struct reader *reader, zconfig_t *item)
{
    const char *key = zconfig_name(item);
    if (strcmp(key, "provider") == 0)
        return read_section(reader, item, add_provider);
    if (strcmp(key, "pool") == 0)
        return read_section(reader, item, add_pool);
    int rc;
    if (strncmp(key, "provider/", 9) == 0)
        rc = add_provider(reader, key + 9, zconfig_value(item));
    else if (strncmp(key, "pool/", 5) == 0)
        rc = add_pool(reader, key + 5, zconfig_value(item));
    else
        rc = read_plain(reader, key, zconfig_value(item));
    size_t below = count_below(item);
    if (rc == 0 && below > 0)
        warn(reader, "what stands below '%.80s' is ignored", key);
    reader->item += below;
    return rc < 0 ? rc : 0;
}

static int read_tree(struct reader *reader, zconfig_t *root)
{
    for (zconfig_t *item = zconfig_child(root); item; item = zconfig_next(item)) {
        int rc = read_item(reader, item);
        if (rc < 0)
            return rc;
        reader->item++;
    }
    return 0;
}

/* ---- from bytes to the tree ------------------------------------------------------------------ */

static int out_of_memory(char *error)
{
    snprintf(error, CONFIG_ERROR_SIZE, "out of memory");
    return LEASE_ENOMEM;
}

int config_parse(const char *path, const char *text, size_t size, struct config *config,
                 char *error)
{
    struct config_lines lines;
    *config = (struct config){0};
    error[0] = '\0';
    zsys_handler_set(NULL); /* czmq takes SIGINT and SIGTERM at its first use otherwise */
    int rc = config_lines_read(path, text, size, &lines, error);
    if (rc < 0)
        return rc;
    struct reader reader = {.config = config, .lines = &lines, .path = path, .error = error};
    zconfig_t *root = zconfig_str_load(lines.text);
    config->path = strdup(path);
    rc = root && config->path ? read_tree(&reader, root) : LEASE_ENOMEM;
    zconfig_destroy(&root);
    config_lines_free(&lines);
    if (rc < 0)
        config_free(config);
    return rc == LEASE_ENOMEM ? out_of_memory(error) : rc;
}

/* Reads all of `fd` and, so that too much is noticed, one byte more than is allowed. */
static ssize_t read_all(int fd, char *text)
{
    size_t used = 0;
    while (used <= CONFIG_BYTES_MAX) {
        ssize_t got = read(fd, text + used, CONFIG_BYTES_MAX + 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

static int load_failed(const char *path, const char *what, char *error)
{
    config_error(error, path, 0, what);
    return errno == EACCES || errno == EPERM ? LEASE_EPERM : LEASE_EIO;
}

int config_load(const char *path, struct config *config, char *error)
{
    *config = (struct config){0};
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would hang otherwise */
    if (fd < 0)
        return load_failed(path, strerror(errno), error);
    if (fstat(fd, &facts) == 0 && !S_ISREG(facts.st_mode)) {
        close(fd);
        errno = 0;
        return load_failed(path, "not a regular file", error);
    }
    char *text = malloc(CONFIG_BYTES_MAX + 1);
    ssize_t size = text ? read_all(fd, text) : 0;
    int failed = errno;
    close(fd);
    errno = failed;
    int rc = !text      ? out_of_memory(error)
             : size < 0 ? load_failed(path, strerror(failed), error)
                        : config_parse(path, text, (size_t)size, config, error);
    free(text);
    return rc;
}
