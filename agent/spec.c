#define _GNU_SOURCE
#include "agent/spec.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "broker/error.h"
#include "broker/record.h"

static const struct {
    const char *name;
    bool supported;
} engines[ENGINE_COUNT] = {
    [ENGINE_AUTO] = {"auto", true},
    [ENGINE_LLAMA_CPP] = {"llama.cpp", true},
    [ENGINE_LLAMA_SWAP] = {"llama-swap", true},
    [ENGINE_VLLM] = {"vllm", true},
    [ENGINE_SGLANG] = {"sglang", true},
    [ENGINE_TGI] = {"tgi", true},
    [ENGINE_OLLAMA] = {"ollama", true},
    [ENGINE_LMSTUDIO] = {"lmstudio", true},
    [ENGINE_EXEC] = {"exec", true},
    [ENGINE_STATIC] = {"static", true},
};

const char *engine_name(enum engine_kind kind)
{
    return kind >= 0 && kind < ENGINE_COUNT ? engines[kind].name : "auto";
}

/* The text while it is read: the spec so far, what was given already, where errors go. */
struct reader {
    struct provider_spec spec;
    bool has_source;
    unsigned seen; /* a bit for each entry of options[] */
    char *error;
};

static int refuse(struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(struct reader *reader, const char *format, ...)
{
    char line[SPEC_ERROR_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    text_copy(reader->error, SPEC_ERROR_SIZE, line);
    return LEASE_EINVAL;
}

/* "provider 'x': what" with what ending in the text at fault. */
#define REFUSE(reader, what, ...)                                                                  \
    refuse(reader, "provider '%s': " what, (reader)->spec.name, __VA_ARGS__)

static int keep(struct reader *reader, const char *what, const char *value, char *to, size_t size)
{
    size_t length = strlen(value);
    if (length == 0)
        return REFUSE(reader, "%s is empty", what);
    if (length >= size)
        return REFUSE(reader, "%s is longer than %zu bytes", what, size - 1);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return REFUSE(reader, "%s holds a control character", what);
    memcpy(to, value, length + 1);
    return 0;
}

/* A decimal number of digits only, within 1 and max. */
static bool number_parse(const char *text, long max, long *number)
{
    *number = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        *number = *number * 10 + (*text - '0');
        if (*number > max)
            return false;
    }
    return *number >= 1;
}

static int keep_slots(struct reader *reader, const char *what, const char *value)
{
    long slots;
    if (!number_parse(value, BOOK_SLOTS_MAX, &slots))
        return REFUSE(reader, "%s'%s' is no number from 1 to %d", what, value, BOOK_SLOTS_MAX);
    reader->spec.slots = (int32_t)slots;
    return 0;
}

/* ---- the URL --------------------------------------------------------------------------------- */

static const char *skip_scheme(const char *url, bool *tls)
{
    *tls = strncmp(url, "https://", 8) == 0;
    if (*tls)
        return url + 8;
    return strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
}

static int check_url_text(struct reader *reader, const char *url, const char *after)
{
    for (const char *c = after; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f || strchr("\"\\<>^`{|}", *c))
            return REFUSE(reader, "'%s' holds a character that no URL has", url);
    if (memchr(after, '@', strcspn(after, "/?#")) != NULL)
        return refuse(reader,
                      "provider '%s': a URL may not hold a user or password; "
                      "put a key into a file and say key-file=PATH",
                      reader->spec.name);
    if (strpbrk(after, "?#") != NULL)
        return REFUSE(reader, "'%s' has a query or fragment; only a path is allowed", url);
    return 0;
}

static int read_host_v6(struct reader *reader, const char *after, size_t *used)
{
    struct in6_addr address;
    const char *end = strchr(after, ']');
    size_t length = end == NULL ? 0 : (size_t)(end - after - 1);
    if (length == 0 || length >= sizeof reader->spec.host)
        return REFUSE(reader, "'%s' is no host", after);
    memcpy(reader->spec.host, after + 1, length);
    reader->spec.host[length] = '\0';
    if (inet_pton(AF_INET6, reader->spec.host, &address) != 1)
        return REFUSE(reader, "'%s' is no IPv6 address (one with a zone is not supported)",
                      reader->spec.host);
    *used = length + 2;
    return 0;
}

static int read_host_name(struct reader *reader, const char *after, size_t *used)
{
    size_t length = strcspn(after, ":/");
    if (length == 0)
        return REFUSE(reader, "no host before '%s'", after);
    if (length >= sizeof reader->spec.host)
        return REFUSE(reader, "host is longer than %zu bytes", sizeof reader->spec.host - 1);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)after[i]) && strchr(".-_", after[i]) == NULL)
            return REFUSE(reader, "'%.*s' is no host (an IPv6 address stands in brackets)",
                          (int)length, after);
    memcpy(reader->spec.host, after, length);
    reader->spec.host[length] = '\0';
    *used = length;
    return 0;
}

static int read_port(struct reader *reader, const char *text, bool tls, size_t *used)
{
    char digits[8];
    long port;
    *used = 0;
    reader->spec.port = tls ? 443 : 80;
    if (*text != ':')
        return 0;
    size_t length = strcspn(text + 1, "/");
    if (length >= sizeof digits)
        return REFUSE(reader, "'%s' is no port from 1 to 65535", text + 1);
    memcpy(digits, text + 1, length);
    digits[length] = '\0';
    if (!number_parse(digits, 65535, &port))
        return REFUSE(reader, "'%s' is no port from 1 to 65535", digits);
    reader->spec.port = (uint16_t)port;
    *used = length + 1;
    return 0;
}

/* What probed paths are appended to: without the slashes and the /v1 at the end. */
static void cut_probe_url(struct provider_spec *spec, size_t path_at)
{
    char *url = spec->probe_url;
    size_t length = strlen(url);
    while (length > path_at && url[length - 1] == '/')
        length--;
    if (length >= path_at + 3 && memcmp(url + length - 3, "/v1", 3) == 0)
        length -= 3;
    while (length > path_at && url[length - 1] == '/')
        length--;
    url[length] = '\0';
}

static int read_url(struct reader *reader, const char *url)
{
    struct provider_spec *spec = &reader->spec;
    bool tls;
    size_t host = 0, port = 0;
    const char *after = skip_scheme(url, &tls);
    int error = keep(reader, "URL", url, spec->url, sizeof spec->url);
    if (error == 0)
        error = check_url_text(reader, url, after);
    if (error == 0)
        error = *after == '[' ? read_host_v6(reader, after, &host)
                              : read_host_name(reader, after, &host);
    if (error == 0)
        error = read_port(reader, after + host, tls, &port);
    if (error != 0)
        return error;
    if (after[host + port] != '/' && after[host + port] != '\0')
        return REFUSE(reader, "'%s' is neither a port nor a path", after + host + port);
    memcpy(spec->probe_url, spec->url, sizeof spec->probe_url);
    cut_probe_url(spec, (size_t)(after - url) + host + port);
    return 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

static int read_engine(struct reader *reader, const char *text, size_t length)
{
    for (int kind = ENGINE_AUTO + 1; kind < ENGINE_COUNT; kind++)
        if (kind != ENGINE_EXEC && kind != ENGINE_STATIC && strlen(engines[kind].name) == length &&
            memcmp(engines[kind].name, text, length) == 0) {
            reader->spec.engine = (enum engine_kind)kind;
            return 0;
        }
    return REFUSE(reader, "no engine is named '%.*s'; llama.cpp is one", (int)length, text);
}

static int read_source(struct reader *reader, const char *text)
{
    bool tls;
    const char *url = strstr(text, "+http");
    if (reader->has_source)
        return REFUSE(reader, "'%s' is no option (slots, model, group, url, own, key-file)", text);
    reader->has_source = true;
    if (strncmp(text, "static:", 7) == 0) {
        reader->spec.engine = ENGINE_STATIC;
        if (reader->spec.slots != -1)
            return REFUSE(reader, "static:N and %s exclude each other", "slots=N");
        return keep_slots(reader, "static:N: ", text + 7);
    }
    if (skip_scheme(text, &tls) != NULL)
        return read_url(reader, text);
    if (url != NULL && skip_scheme(url + 1, &tls) != NULL) {
        int error = read_engine(reader, text, (size_t)(url - text));
        return error != 0 ? error : read_url(reader, url + 1);
    }
    return REFUSE(reader,
                  "'%s' is none of http://host:port, ENGINE+http://host:port, static:N, "
                  "exec:PROGRAM",
                  text);
}

/* ---- options --------------------------------------------------------------------------------- */

static int option_slots(struct reader *reader, const char *value)
{
    if (reader->spec.engine == ENGINE_STATIC)
        return REFUSE(reader, "static:N and %s exclude each other", "slots=N");
    return keep_slots(reader, "slots=", value);
}

static int option_model(struct reader *reader, const char *value)
{
    return keep(reader, "model=", value, reader->spec.model, sizeof reader->spec.model);
}

static int option_group(struct reader *reader, const char *value)
{
    const char *colon = strchr(value, ':');
    size_t length = colon == NULL ? strlen(value) : (size_t)(colon - value);
    long limit = 1;
    if (length < sizeof reader->spec.group) {
        memcpy(reader->spec.group, value, length);
        reader->spec.group[length] = '\0';
    }
    if (length >= sizeof reader->spec.group || !name_is_valid(reader->spec.group))
        return REFUSE(reader, "group name '%.*s' is not 1 to 63 of [A-Za-z0-9._-]", (int)length,
                      value);
    if (colon != NULL && !number_parse(colon + 1, PROVIDERS_MAX, &limit))
        return REFUSE(reader, "group=%s: '%s' is no number from 1 to %d", reader->spec.group,
                      colon + 1, PROVIDERS_MAX);
    reader->spec.group_limit = (int32_t)limit;
    return 0;
}

static int option_url(struct reader *reader, const char *value)
{
    bool tls;
    const char *after = skip_scheme(value, &tls);
    if (after == NULL || *after == '\0')
        return REFUSE(reader, "url='%s' is no http:// or https:// URL", value);
    int error =
        keep(reader, "url=", value, reader->spec.client_url, sizeof reader->spec.client_url);
    return error != 0 ? error : check_url_text(reader, value, after);
}

static int option_own(struct reader *reader, const char *value)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return REFUSE(reader, "own='%s' is neither yes nor no", value);
    reader->spec.own = *value == 'y' ? OWN_YES : OWN_NO;
    return 0;
}

static int option_key_file(struct reader *reader, const char *value)
{
    return keep(reader, "key-file=", value, reader->spec.key_file, sizeof reader->spec.key_file);
}

static const struct {
    const char *name; /* with its '=' */
    int (*read)(struct reader *, const char *value);
} options[] = {
    {"slots=", option_slots}, {"model=", option_model}, {"group=", option_group},
    {"url=", option_url},     {"own=", option_own},     {"key-file=", option_key_file},
};

static int read_item(struct reader *reader, const char *item)
{
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        size_t length = strlen(options[i].name);
        if (strncmp(item, options[i].name, length) != 0)
            continue;
        if (reader->seen & 1u << i)
            return REFUSE(reader, "option %s is given twice", options[i].name);
        reader->seen |= 1u << i;
        return options[i].read(reader, item + length);
    }
    return read_source(reader, item);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int read_exec(struct reader *reader, const char *program)
{
    if (reader->has_source)
        return REFUSE(reader, "exec:%s after another source", program);
    reader->has_source = true;
    reader->spec.engine = ENGINE_EXEC;
    return keep(reader, "exec:", program, reader->spec.program, sizeof reader->spec.program);
}

static int read_items(struct reader *reader, const char *text)
{
    char item[SPEC_URL_SIZE + 64]; /* longer than the longest value with its name */
    for (;;) {
        size_t length = strcspn(text, ",");
        int error;
        if (strncmp(text, "exec:", 5) == 0)
            return read_exec(reader, text + 5);
        if (length >= sizeof item)
            return REFUSE(reader, "'%.40s...' is too long", text);
        memcpy(item, text, length);
        item[length] = '\0';
        error = read_item(reader, item);
        if (error != 0 || text[length] == '\0')
            return error;
        text += length + 1;
    }
}

static int read_name(struct reader *reader, const char *text, const char **rest)
{
    const char *equals = strchr(text, '=');
    size_t length = equals == NULL ? 0 : (size_t)(equals - text);
    if (equals == NULL)
        return refuse(reader, "provider '%s': say NAME=SPEC, such as z4=http://127.0.0.1:8080",
                      text);
    if (length < sizeof reader->spec.name) {
        memcpy(reader->spec.name, text, length);
        reader->spec.name[length] = '\0';
    }
    if (length >= sizeof reader->spec.name || !name_is_valid(reader->spec.name))
        return refuse(reader, "provider name '%.*s' is not 1 to 63 of [A-Za-z0-9._-]", (int)length,
                      text);
    *rest = equals + 1;
    return 0;
}

int spec_parse(const char *text, struct provider_spec *spec, char *error)
{
    struct reader reader = {.spec = {.slots = -1, .group_limit = 1}, .error = error};
    const char *rest = text;
    int result = read_name(&reader, text, &rest);
    if (result == 0)
        result = read_items(&reader, rest);
    if (result != 0)
        return result;
    if (!reader.has_source)
        return refuse(&reader, "provider '%s': no URL, static:N or exec:PROGRAM is given",
                      reader.spec.name);
    if (reader.spec.engine == ENGINE_STATIC && reader.spec.key_file[0] != '\0')
        return REFUSE(&reader, "static:N and %s exclude each other: nobody is asked", "key-file=");
    if (!engines[reader.spec.engine].supported)
        return REFUSE(&reader,
                      "engine %s is not supported by this version; static:N counts leases "
                      "alone",
                      engines[reader.spec.engine].name);
    *spec = reader.spec;
    return 0;
}
