#define _GNU_SOURCE
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "tools/top_rows.h"

#define WHY_SIZE 128

static const char *const fields[TOP_FIELDS] = {
    "any",   "state",  "provider", "owner",  "holder", "host",  "label", "pid",
    "group", "engine", "model",    "health", "signal", "reach", "id",
};

static bool read_field(const char **text, enum top_field *field, char *why)
{
    const char *colon = strchr(*text, ':');
    *field = TOP_FIELD_ANY;
    if (!colon)
        return true;
    size_t length = (size_t)(colon - *text);
    for (int i = 0; i < TOP_FIELDS; i++) {
        if (length != strlen(fields[i]) || strncasecmp(fields[i], *text, length) != 0)
            continue;
        *field = (enum top_field)i;
        *text = colon + 1;
        return true;
    }
    int used =
        snprintf(why, WHY_SIZE, "no field '%.*s', one of", length > 16 ? 16 : (int)length, *text);
    for (int i = 1; i < TOP_FIELDS && used < WHY_SIZE; i++)
        used += snprintf(why + used, (size_t)(WHY_SIZE - used), " %s", fields[i]);
    return false;
}

/* A word that no row can have would hide everything and look like an answer. */
static bool is_state(const char *pattern, char *why)
{
    static const char *const others[] = {"held", "available"};
    bool found = strpbrk(pattern, "*?") != NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        found = found || strcasecmp(pattern, others[i]) == 0;
    for (int i = 0; i < TOP_STATES; i++)
        found = found || strcasecmp(pattern, top_state_word((enum top_state)i)) == 0;
    if (found)
        return true;
    int used = snprintf(why, WHY_SIZE, "no state '%.16s', one of", pattern);
    for (int i = 0; i < TOP_STATES && used < WHY_SIZE; i++)
        used += snprintf(why + used, (size_t)(WHY_SIZE - used), " %s",
                         top_state_word((enum top_state)i));
    if (used < WHY_SIZE)
        snprintf(why + used, (size_t)(WHY_SIZE - used), " held available");
    return false;
}

bool top_filter_read(const char *text, struct top_filter *filter, char *why)
{
    char copy[TOP_FILTER_TEXT_SIZE];
    struct top_filter read = {.count = 0};
    if (strlen(text) >= sizeof copy) {
        snprintf(why, WHY_SIZE, "longer than %zu bytes", sizeof copy - 1);
        return false;
    }
    memcpy(copy, text, strlen(text) + 1);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        if (read.count >= TOP_FILTER_TERMS) {
            snprintf(why, WHY_SIZE, "more than %d words", TOP_FILTER_TERMS);
            return false;
        }
        const char *at = word;
        bool negated = at[0] == '!' && at[1];
        at += negated;
        if (!read_field(&at, &read.terms[read.count].field, why))
            return false;
        if (read.terms[read.count].field == TOP_FIELD_STATE && !is_state(at, why))
            return false;
        read.terms[read.count].negated = negated;
        snprintf(read.terms[read.count++].pattern, TOP_FILTER_TEXT_SIZE, "%s", at);
    }
    *filter = read;
    return true;
}

static bool matches(const char *pattern, const char *value, bool anywhere)
{
    if (strpbrk(pattern, "*?"))
        return fnmatch(pattern, value, FNM_CASEFOLD | FNM_NOESCAPE) == 0;
    return anywhere ? strcasestr(value, pattern) != NULL : strcasecmp(value, pattern) == 0;
}

/* "held" is what JSON calls a leased one; "available" is where verify would say go. */
static bool state_matches(const char *pattern, const struct top_row *row)
{
    if (strcasecmp(pattern, "held") == 0)
        return row->state == TOP_LEASED;
    if (strcasecmp(pattern, "available") == 0)
        return (row->state == TOP_FREE || row->state == TOP_UNKNOWN) && !row->lease &&
               row->provider->view->available > 0;
    return matches(pattern, top_state_word(row->state), false);
}

static bool model_matches(const char *pattern, const struct lease_view *view)
{
    for (uint32_t i = 0; i < view->model_count; i++)
        if (matches(pattern, view->models[i].name, true))
            return true;
    return false;
}

static bool lease_matches(enum top_field field, const char *pattern,
                          const struct lease_entry *lease)
{
    char pid[16];
    if (!lease)
        return false;
    snprintf(pid, sizeof pid, "%u", lease->pid);
    switch (field) {
    case TOP_FIELD_HOST: return matches(pattern, lease->host, false);
    case TOP_FIELD_LABEL: return matches(pattern, lease->label, true);
    case TOP_FIELD_PID: return matches(pattern, pid, false);
    case TOP_FIELD_ID: return matches(pattern, lease->id, false);
    case TOP_FIELD_REACH: return matches(pattern, lease_reach_name(lease->reach), false);
    default: return false;
    }
}

static bool any_matches(const char *pattern, const struct top_row *row)
{
    return matches(pattern, row->provider->name, true) || matches(pattern, row->who, true) ||
           matches(pattern, top_state_word(row->state), true);
}

static bool term_matches(enum top_field field, const char *pattern, const struct top_row *row)
{
    const struct lease_view *view = row->provider->view;
    switch (field) {
    case TOP_FIELD_STATE: return state_matches(pattern, row);
    case TOP_FIELD_PROVIDER: return matches(pattern, view->provider, false);
    case TOP_FIELD_OWNER: return matches(pattern, view->owner, false);
    case TOP_FIELD_HOLDER: return matches(pattern, row->who, true);
    case TOP_FIELD_GROUP: return matches(pattern, view->group, false);
    case TOP_FIELD_ENGINE: return matches(pattern, view->engine, false);
    case TOP_FIELD_MODEL: return model_matches(pattern, view);
    case TOP_FIELD_HEALTH: return matches(pattern, view->health, false);
    case TOP_FIELD_SIGNAL: return matches(pattern, view->signal, false);
    case TOP_FIELD_HOST:
    case TOP_FIELD_LABEL:
    case TOP_FIELD_PID:
    case TOP_FIELD_REACH:
    case TOP_FIELD_ID: return lease_matches(field, pattern, row->lease);
    default: return any_matches(pattern, row);
    }
}

bool top_filter_passes(const struct top_filter *filter, const struct top_row *row)
{
    for (uint32_t i = 0; i < filter->count; i++)
        if (term_matches(filter->terms[i].field, filter->terms[i].pattern, row) ==
            filter->terms[i].negated)
            return false;
    return true;
}
