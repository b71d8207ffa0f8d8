#define _GNU_SOURCE

#include "agent/effective.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/error.h"

#define FILE_BYTES_MAX (1u << 20)

/* ---- reading --------------------------------------------------------------------------------- */

static void copy_string(json_t *object, const char *key, char *to, size_t size)
{
    const char *value = json_string_value(json_object_get(object, key));
    text_copy(to, size, value ? value : "");
}

static void read_id(json_t *object, uint8_t id[16])
{
    const char *hex = json_string_value(json_object_get(object, "id"));
    if (!hex || strlen(hex) != 32)
        return;
    for (int i = 0; i < 16; i++) {
        unsigned value = 0;
        if (sscanf(hex + 2 * i, "%2x", &value) != 1)
            return;
        id[i] = (uint8_t)value;
    }
}

static void read_object(json_t *object, struct effective *effective)
{
    memset(effective, 0, sizeof *effective);
    copy_string(object, "name", effective->name, sizeof effective->name);
    copy_string(object, "version", effective->version, sizeof effective->version);
    copy_string(object, "kind", effective->kind, sizeof effective->kind);
    json_int_t pid = json_integer_value(json_object_get(object, "pid"));
    effective->pid = pid > 0 && pid <= INT32_MAX ? (uint32_t)pid : 0;
    read_id(object, effective->id);
    json_t *providers = json_object_get(object, "providers"), *entry;
    size_t i;
    json_array_foreach(providers, i, entry)
    {
        const char *text = json_string_value(entry);
        if (!text || effective->provider_count == PROVIDERS_MAX)
            continue;
        char *to = effective->providers[effective->provider_count].text;
        if (strlen(text) < sizeof effective->providers[0].text) {
            text_copy(to, sizeof effective->providers[0].text, text);
            effective->provider_count++;
        }
    }
}

/* As much of it as there is now, in one go: jansson would ask the kernel for each byte. NULL without
 * memory, or where it cannot be read. */
static char *read_whole(int fd, size_t size, size_t *used)
{
    char *text = malloc(size + 1);
    ssize_t got = 1;
    for (*used = 0; text && *used < size && got > 0; *used += got > 0 ? (size_t)got : 0)
        got = read(fd, text + *used, size - *used);
    if (got >= 0)
        return text;
    free(text);
    return NULL;
}

static int load_file(const char *path, json_t **object)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? LEASE_EABSENT : errno == EACCES ? LEASE_EPERM : LEASE_EIO;
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size > FILE_BYTES_MAX) {
        close(fd);
        return LEASE_EDAMAGED;
    }
    json_error_t where;
    size_t size;
    char *text = read_whole(fd, (size_t)status.st_size, &size);
    close(fd);
    *object = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, &where) : NULL;
    free(text);
    return json_is_object(*object) ? 0 : LEASE_EDAMAGED;
}

int effective_read(const char *directory, struct effective *effective)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/" EFFECTIVE_FILE, directory) >= (int)sizeof path)
        return LEASE_EIO;
    json_t *object = NULL;
    int error = load_file(path, &object);
    if (error == 0)
        read_object(object, effective);
    json_decref(object);
    return error;
}

int effective_find(const char *directory, const char *name, char *text)
{
    struct effective *effective = malloc(sizeof *effective);
    if (!effective)
        return LEASE_ENOMEM;
    int error = effective_read(directory, effective) < 0 ? LEASE_EUNKNOWN : 0;
    size_t length = strlen(name);
    uint32_t i = 0;
    while (error == 0 && i < effective->provider_count &&
           (strncmp(effective->providers[i].text, name, length) != 0 ||
            effective->providers[i].text[length] != '='))
        i++;
    if (error == 0 && i == effective->provider_count)
        error = LEASE_EUNKNOWN;
    if (error == 0)
        memcpy(text, effective->providers[i].text, EFFECTIVE_SPEC_SIZE);
    free(effective);
    return error;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *to_object(const struct effective *effective)
{
    char hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", effective->id[i]);
    json_t *providers = json_array();
    for (uint32_t i = 0; providers && i < effective->provider_count; i++)
        json_array_append_new(providers, json_string(effective->providers[i].text));
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:s, s:o}", "schema", 1, "name", effective->name,
                     "version", effective->version, "kind", effective->kind, "pid",
                     (int)effective->pid, "id", hex, "providers", providers);
}

int effective_write(const char *directory, const struct effective *effective, unsigned mode)
{
    char path[512], fresh[560];
    if (snprintf(path, sizeof path, "%s/" EFFECTIVE_FILE, directory) >= (int)sizeof path)
        return LEASE_EIO;
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    json_t *object = to_object(effective);
    if (!object)
        return LEASE_ENOMEM;
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    bool full = fd < 0 && (errno == ENOSPC || errno == EDQUOT);
    int error = full ? LEASE_ENOSPC : fd < 0 ? LEASE_EIO : 0;
    if (error == 0 && (fchmod(fd, mode) < 0 || json_dumpfd(object, fd, JSON_INDENT(1)) < 0))
        error = errno == ENOSPC ? LEASE_ENOSPC : LEASE_EIO;
    if (fd >= 0 && close(fd) < 0)
        error = LEASE_EIO;
    if (error == 0 && rename(fresh, path) < 0)
        error = LEASE_EIO;
    if (error < 0)
        unlink(fresh);
    json_decref(object);
    return error;
}
