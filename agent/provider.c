/* The providers that this process knows: declared to it, or found. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/remote.h"

/* ---- the list -------------------------------------------------------------------------------- */

static struct provider *listed(struct lease_agent *agent, const char *name)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(agent->providers[i]->name, name) == 0)
            return agent->providers[i];
    return NULL;
}

static struct provider *new_provider(struct lease_agent *agent, const char *name)
{
    struct provider *provider = calloc(1, sizeof *provider);
    if (!provider)
        return NULL;
    provider->agent = agent;
    text_copy(provider->name, sizeof provider->name, name);
    pthread_mutex_init(&provider->mutex, NULL);
    provider->words = &provider->own_words;
    return provider;
}

static struct provider *add(struct lease_agent *agent, const char *name, int *error)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_relaxed);
    struct provider *provider = count < KNOWN_MAX ? new_provider(agent, name) : NULL;
    if (!provider) {
        *error = count < KNOWN_MAX ? LEASE_ENOMEM : LEASE_EFULL;
        if (count == KNOWN_MAX)
            atomic_store(&agent->is_full, true);
        return NULL;
    }
    agent->providers[count] = provider;
    atomic_store_explicit(&agent->provider_count, count + 1, memory_order_release);
    return provider;
}

bool provider_is_here(const struct provider_spec *spec)
{
    if (spec->url[0] == '\0')
        return false;
    return spec_host_is_numeric(spec) || spec_url_is_loopback(spec) ? spec_url_is_local(spec)
                                                                    : false;
}

/* Whose the server is: the host whose address its URL names, or who says so. */
static bool is_owned(const struct provider_spec *spec)
{
    return spec->own != OWN_BY_URL ? spec->own == OWN_YES : provider_is_here(spec);
}

static void free_declared(struct declared *declared)
{
    while (declared) {
        struct declared *left = declared->left;
        free(declared);
        declared = left;
    }
}

static void forget_long_left(struct declared *declared)
{
    for (int i = 0; i < DECLARED_LEFT_MAX && declared; i++)
        declared = declared->left;
    if (!declared)
        return;
    free_declared(declared->left);
    declared->left = NULL;
}

/* The caller holds agent->providers_mutex. */
static int declare(struct provider *provider, const struct provider_spec *spec, const char *text,
                   bool inherited)
{
    struct declared *declared = malloc(sizeof *declared);
    if (!declared)
        return LEASE_ENOMEM;
    declared->spec = *spec;
    snprintf(declared->text, sizeof declared->text, "%s", text);
    declared->inherited = inherited;
    declared->left = atomic_load(&provider->declared);
    forget_long_left(declared);
    atomic_store_explicit(&provider->declared, declared, memory_order_release);
    provider->owned = is_owned(spec);
    return 0;
}

/* Those of other hosts do not count: how many there are is not for us to say. */
static uint32_t count_declared(const struct lease_agent *agent)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    uint32_t declared = 0;
    for (uint32_t i = 0; i < count; i++)
        declared += provider_spec(agent->providers[i]) != NULL;
    return declared;
}

/* The one to be declared: known, or new where there is room. */
static struct provider *to_declare(struct lease_agent *agent, const char *name, int *error)
{
    struct provider *provider = listed(agent, name);
    if ((!provider || !provider_spec(provider)) && count_declared(agent) >= PROVIDERS_MAX) {
        *error = LEASE_EFULL;
        return NULL;
    }
    return provider ? provider : add(agent, name, error);
}

int provider_declare(struct lease_agent *agent, const char *text, bool only_new, char *why)
{
    struct provider_spec spec;
    int error = spec_parse(text, &spec, why);
    if (error == 0 && strlen(text) >= EFFECTIVE_SPEC_SIZE) {
        snprintf(why, SPEC_ERROR_SIZE, "%s: longer than %d bytes", spec.name, EFFECTIVE_SPEC_SIZE);
        error = LEASE_EINVAL;
    }
    if (error < 0)
        return error;
    pthread_mutex_lock(&agent->providers_mutex);
    struct provider *provider = to_declare(agent, spec.name, &error);
    if (provider && !provider->table && !(only_new && provider_spec(provider)))
        error = declare(provider, &spec, text, only_new);
    pthread_mutex_unlock(&agent->providers_mutex);
    if (error == LEASE_EFULL)
        snprintf(why, SPEC_ERROR_SIZE, "more than %d providers", PROVIDERS_MAX);
    return error;
}

/* A group is joined for good: the lock that is held is that of the one that was joined. */
void provider_declare_again(struct provider *provider, const char *text)
{
    struct provider_spec spec;
    char why[SPEC_ERROR_SIZE];
    const struct declared *now = atomic_load(&provider->declared);
    if (!now || !now->inherited || strcmp(now->text, text) == 0 || spec_parse(text, &spec, why) < 0)
        return;
    memcpy(spec.group, now->spec.group, sizeof spec.group);
    spec.group_limit = now->spec.group_limit;
    if (declare(provider, &spec, text, true) == 0)
        provider_settle_settings(provider);
}

void provider_free(struct provider *provider)
{
    if (host_table_is_open(&provider->host))
        host_table_close(&provider->host);
    for (uint32_t i = 0; i < provider->retired_count; i++)
        host_table_unmap(provider->retired[i]);
    pthread_mutex_destroy(&provider->mutex);
    free(provider->memory);
    free(provider->book);
    free_declared(atomic_load(&provider->declared));
    free(atomic_load(&provider->told));
    free(provider);
}

const char *provider_url(const struct provider *provider)
{
    const struct provider_spec *spec = provider_spec(provider);
    if (!spec)
        return "";
    return spec->client_url[0] ? spec->client_url : spec->url;
}

/* ---- where the server is --------------------------------------------------------------------- */

const struct provider_spec *provider_source(const struct provider *provider)
{
    const struct provider_spec *spec = provider_spec(provider);
    return spec ? spec : atomic_load(&provider->told);
}

/* Its engine is named where the owner's state tells it, since finding it out costs questions. */
void provider_told(struct provider *provider, const char *url)
{
    if (provider_spec(provider) || !url[0] || atomic_load(&provider->told))
        return;
    char text[EFFECTIVE_SPEC_SIZE], why[SPEC_ERROR_SIZE], engine[ENGINE_SIZE];
    pthread_mutex_lock(&provider->mutex);
    memcpy(engine, provider->book->sight.reading.engine, sizeof engine);
    pthread_mutex_unlock(&provider->mutex);
    if (strcmp(engine, engine_name(ENGINE_STATIC)) == 0)
        return;
    struct provider_spec *spec = malloc(sizeof *spec), *none = NULL;
    if (!spec)
        return;
    snprintf(text, sizeof text, "%s=%s+%s", provider->name, engine, url);
    int error = engine[0] ? spec_parse(text, spec, why) : LEASE_EINVAL;
    if (error < 0) {
        snprintf(text, sizeof text, "%s=%s", provider->name, url);
        error = spec_parse(text, spec, why);
    }
    if (error < 0 || !atomic_compare_exchange_strong(&provider->told, &none, spec))
        free(spec);
}

/* ---- finding them ---------------------------------------------------------------------------- */

/* Not declared to us: the speaker may have left it in its effective configuration, or there is a
 * book of it, or the fleet knows who owns it. */
static int discover(struct lease_agent *agent, const char *name)
{
    char text[EFFECTIVE_SPEC_SIZE], why[SPEC_ERROR_SIZE];
    if (agent->has_directory && effective_find(agent->directory.path, name, text) == 0 &&
        provider_declare(agent, text, true, why) == 0)
        return 0;
    struct route route;
    char file[HOST_TABLE_NAME_SIZE];
    host_table_name(name, file);
    bool has_book = agent->has_directory && faccessat(agent->directory.fd, file, F_OK, 0) == 0;
    if (!has_book && !(remote_route(agent, name, true, &route) && route.owner[0]))
        return LEASE_EUNKNOWN;
    int error = 0;
    pthread_mutex_lock(&agent->providers_mutex);
    if (!listed(agent, name))
        add(agent, name, &error);
    pthread_mutex_unlock(&agent->providers_mutex);
    return error;
}

struct provider *provider_find(struct lease_agent *agent, const char *name, int *error)
{
    if (!name || !name_is_valid(name)) {
        *error = LEASE_EINVAL;
        return NULL;
    }
    agent_follow_configuration(agent, false);
    struct provider *provider = listed(agent, name);
    if (!provider) {
        *error = discover(agent, name);
        if (*error < 0)
            return NULL;
        provider = listed(agent, name);
    }
    *error = provider_open(provider);
    return *error < 0 ? NULL : provider;
}

/* Without asking who knows it. */
static struct provider *list(struct lease_agent *agent, const char *name, int *error)
{
    *error = 0;
    pthread_mutex_lock(&agent->providers_mutex);
    struct provider *provider = listed(agent, name);
    if (!provider && name_is_valid(name))
        provider = add(agent, name, error);
    pthread_mutex_unlock(&agent->providers_mutex);
    return provider;
}

void provider_seen(struct lease_agent *agent, const char *name)
{
    int error;
    struct provider *provider = list(agent, name, &error);
    if (provider)
        provider_open(provider);
}

void provider_served(struct lease_agent *agent, const char *text)
{
    char name[NAME_SIZE] = "", why[SPEC_ERROR_SIZE];
    size_t length = strcspn(text, "=");
    if (length > NAME_CHARS_MAX)
        return;
    memcpy(name, text, length);
    if (!listed(agent, name))
        provider_declare(agent, text, true, why);
    provider_seen(agent, name);
}

struct provider *provider_mirror(struct lease_agent *agent, const char *name, int *error)
{
    struct provider *provider = list(agent, name, error);
    if (!provider)
        return NULL;
    *error = provider_open_copy(provider);
    return *error < 0 ? NULL : provider;
}
