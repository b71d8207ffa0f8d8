#define _GNU_SOURCE
#include "tools/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/record.h"
#include "tools/top_text.h"

#define LAPSED_MS    2000 /* an ended lease is swept within half a second where somebody sweeps */
#define MEMORIES_MAX 8192 /* of providers that come and go; further ones are not remembered */

static const struct {
    const char *word;
    char glyph;
} states[TOP_STATES] = {
    [TOP_STRANGER] = {"stranger", '!'}, [TOP_ORPHAN] = {"orphan", 'o'},
    [TOP_GHOST] = {"ghost", 'g'},       [TOP_UNKNOWN] = {"unknown", '?'},
    [TOP_LEASED] = {"leased", 'l'},     [TOP_DISPATCHED] = {"dispatched", 'D'},
    [TOP_FREE] = {"free", '.'},
};

const char *top_state_word(enum top_state state)
{
    return states[state].word;
}

char top_state_glyph(enum top_state state)
{
    return states[state].glyph;
}

const char *top_standing_word(enum top_standing standing)
{
    static const char *const words[TOP_STANDINGS] = {"live",     "by the book", "unowned",
                                                     "conflict", "stale",       "lost"};
    return words[standing];
}

void top_model_init(struct top_model *model)
{
    *model = (struct top_model){.silent_ms = -1};
}

void top_model_free(struct top_model *model)
{
    for (uint32_t i = 0; i < model->memory_count; i++)
        free(model->memories[i]);
    free(model->memories);
    free(model->providers);
    lease_fleet_free(&model->fleet);
    top_model_init(model);
}

int64_t top_model_age_ms(const struct top_model *model, int64_t now_ns)
{
    return now_ns > model->taken_ns ? (now_ns - model->taken_ns) / NS_PER_MS : 0;
}

bool top_has_lapsed(const struct lease_entry *entry, const struct top_provider *provider)
{
    return provider->standing >= TOP_STALE || entry->left_ms < -LAPSED_MS;
}

bool top_is_unwell(const struct top_provider *provider)
{
    static const char *const well[] = {"", "ok", "busy", "unknown"};
    for (size_t i = 0; i < sizeof well / sizeof well[0]; i++)
        if (strcmp(provider->view->health, well[i]) == 0)
            return false;
    return true;
}

bool top_is_ghost(const struct lease_entry *entry, const struct top_provider *provider)
{
    return entry->idle_ms >= 0 && provider->view->in_flight >= 0 &&
           strcmp(entry->state, "held") != 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct top_memory *remember(struct top_model *model, const struct lease_view *view)
{
    for (uint32_t i = 0; i < model->memory_count; i++) {
        /* snapshots are sorted, so that the next one is nearly always the right one */
        uint32_t at = (model->provider_count + i) % model->memory_count;
        struct top_memory *memory = model->memories[at];
        if (strcmp(memory->provider, view->provider) == 0 &&
            strcmp(memory->owner, view->owner) == 0)
            return memory;
    }
    if (model->memory_count >= MEMORIES_MAX)
        return NULL;
    struct top_memory **room =
        realloc(model->memories, (model->memory_count + 1) * sizeof(struct top_memory *));
    if (!room)
        return NULL;
    model->memories = room;
    struct top_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    snprintf(memory->provider, sizeof memory->provider, "%s", view->provider);
    snprintf(memory->owner, sizeof memory->owner, "%s", view->owner);
    model->memories[model->memory_count++] = memory;
    return memory;
}

/* What is in flight against the slots: '.' none, a digit, '+' more than nine, '#' all of them. */
static char sample_of(const struct lease_view *view)
{
    if (view->in_flight < 0)
        return '?';
    if (view->in_flight == 0)
        return '.';
    if (view->slots_total > 0 && view->in_flight >= view->slots_total)
        return '#';
    return view->in_flight > 9 ? '+' : (char)('0' + view->in_flight);
}

static void sample(struct top_memory *memory, const struct lease_view *view, int64_t now_ns)
{
    const int64_t step = TOP_HISTORY_MS * NS_PER_MS;
    if (memory->samples > 0 && now_ns - memory->sampled_ns < step)
        return;
    int64_t missed = memory->samples > 0 ? (now_ns - memory->sampled_ns) / step - 1 : 0;
    if (missed > TOP_HISTORY)
        missed = TOP_HISTORY;
    for (int64_t i = 0; i <= missed; i++) {
        if (memory->samples == TOP_HISTORY)
            memmove(memory->history, memory->history + 1, TOP_HISTORY - 1);
        else
            memory->samples++;
        memory->history[memory->samples - 1] = i < missed ? '?' : sample_of(view);
    }
    memory->sampled_ns = now_ns;
}

/* Since when as many units are in a state is known only where the change was seen. */
static void note_changes(struct top_memory *memory, const struct top_provider *provider,
                         uint64_t taken, int64_t now_ns)
{
    bool is_next = memory->seen > 0 && memory->seen + 1 == taken;
    for (int i = 0; i < TOP_STATES; i++) {
        if (!is_next)
            memory->since_ns[i] = 0;
        else if (memory->before[i] != provider->counts[i])
            memory->since_ns[i] = now_ns;
        memory->before[i] = provider->counts[i];
    }
    memory->seen = taken;
    if (provider->standing >= TOP_CONFLICT || provider->counts[TOP_UNKNOWN] > 0 ||
        provider->standing == TOP_BY_BOOK)
        return;
    memcpy(memory->known, provider->counts, sizeof memory->known);
    memory->known_ns = now_ns;
}

/* ---- honesty --------------------------------------------------------------------------------- */

static enum top_standing told_standing(const struct lease_view *view)
{
    for (int i = TOP_UNOWNED; i < TOP_STANDINGS; i++)
        if (strcmp(view->state, top_standing_word((enum top_standing)i)) == 0)
            return (enum top_standing)i;
    return TOP_LIVE;
}

/* What the loss of our own agent makes of it. Other hosts are heard of through the agent alone. A
 * reading that somebody else made after the loss is as good as any, and what leases alone decide
 * needs no agent. */
static enum top_standing standing_of(const struct top_model *model, const struct lease_view *view,
                                     bool remote, int64_t since_lost_ms)
{
    enum top_standing told = told_standing(view);
    bool is_fixed = strcmp(view->engine, "static") == 0;
    bool is_newer = view->age_ms >= 0 && view->age_ms < since_lost_ms;
    if (model->agent != TOP_AGENT_LOST || told >= TOP_STALE)
        return told;
    if (remote)
        return TOP_STALE;
    return is_fixed || is_newer ? told : TOP_BY_BOOK;
}

/* So that JSON and the screen say the same. Of work without a lease only what the book itself knows
 * is left. */
static void make_unknown(const struct lease_fleet *fleet, struct lease_view *view)
{
    uint32_t kept = 0;
    view->in_flight = view->queued = view->free = view->available = -1;
    view->strangers = -1;
    view->ghosts = 0;
    snprintf(view->health, sizeof view->health, "unknown");
    for (uint32_t i = 0; i < view->lease_count; i++)
        fleet->leases[view->first_lease + i].idle_ms = -1;
    for (uint32_t i = 0; i < view->work_count; i++) {
        const struct lease_work work = fleet->work[view->first_work + i];
        if (strcmp(work.kind, "orphan") == 0)
            fleet->work[view->first_work + kept++] = work;
    }
    view->work_count = kept;
}

/* What stands by the book is not said twice. */
static void say_was(const struct top_memory *memory, bool by_book, char *text, size_t size)
{
    static const enum top_state told[] = {TOP_DISPATCHED, TOP_GHOST,    TOP_ORPHAN,
                                          TOP_LEASED,     TOP_STRANGER, TOP_FREE};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = by_book ? 4 : 0; i < sizeof told / sizeof told[0] && used < size; i++)
        if (memory->known_ns && memory->known[told[i]] > 0)
            used += (size_t)snprintf(text + used, size - used, "%s%u %c %s", used ? ", " : "was ",
                                     memory->known[told[i]], top_state_glyph(told[i]),
                                     top_state_word(told[i]));
}

static void say_why(struct top_provider *provider)
{
    const struct lease_view *view = provider->view;
    char was[TOP_WHY_SIZE / 2] = "", raw[TOP_WHY_SIZE];
    if (provider->memory)
        say_was(provider->memory, provider->standing == TOP_BY_BOOK, was, sizeof was);
    bool is_told = strcmp(view->signal, "exact") == 0;
    if (provider->standing == TOP_BY_BOOK || provider->standing >= TOP_STALE)
        snprintf(raw, sizeof raw, "%s", was[0] ? was : "not heard of since we look");
    else if (provider->standing == TOP_CONFLICT)
        snprintf(raw, sizeof raw, "two hosts say that it is theirs");
    else if (top_is_unwell(provider))
        snprintf(raw, sizeof raw, "%s%s%s", view->health, view->detail[0] ? ": " : "",
                 view->detail);
    else if (view->available >= 0 && !is_told)
        snprintf(raw, sizeof raw, "%lld by leases alone", (long long)view->available);
    else if (view->in_flight >= 0)
        snprintf(raw, sizeof raw, "work comes or goes");
    else
        snprintf(raw, sizeof raw, "%s",
                 was[0]             ? was
                 : view->age_ms < 0 ? "never read"
                                    : "no reading of late");
    top_text_clean(provider->why, sizeof provider->why, raw);
}

/* ---- counting -------------------------------------------------------------------------------- */

static uint32_t clamp_units(int64_t units)
{
    return units < 0 ? 0 : units > TOP_UNITS_MAX ? TOP_UNITS_MAX : (uint32_t)units;
}

static void count_leases(struct top_provider *provider, const struct lease_fleet *fleet)
{
    const struct lease_view *view = provider->view;
    uint32_t *counts = provider->counts;
    for (uint32_t i = 0; i < view->lease_count; i++) {
        const struct lease_entry *entry = &fleet->leases[view->first_lease + i];
        enum top_state state = strcmp(entry->state, "held") == 0 ? TOP_LEASED : TOP_DISPATCHED;
        if (top_is_ghost(entry, provider))
            state = TOP_GHOST;
        counts[top_has_lapsed(entry, provider) ? TOP_UNKNOWN : state] += clamp_units(entry->units);
    }
    for (uint32_t i = 0; i < view->work_count && provider->standing < TOP_STALE; i++) {
        const struct lease_work *work = &fleet->work[view->first_work + i];
        if (strcmp(work->kind, "orphan") == 0)
            counts[TOP_ORPHAN] += clamp_units(work->units);
        else if (strcmp(work->kind, "stranger") == 0)
            counts[TOP_STRANGER] += clamp_units(work->units);
    }
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A slot is free where the reading shows no work in it, no lease is on it, and the server would be
 * given work. What is left then is unknown. */
static void count_rest(struct top_provider *provider)
{
    const struct lease_view *view = provider->view;
    int64_t taken = 0;
    for (int i = 0; i < TOP_STATES; i++)
        taken += provider->counts[i];
    int64_t slots = view->slots_total >= 0 ? clamp_units(view->slots_total) : taken + 1;
    int64_t rest = slots > taken ? slots - taken : 0, free_units = 0;
    if (view->in_flight >= 0 && view->available >= 0 && provider->standing < TOP_CONFLICT)
        free_units = smaller(rest, smaller(view->free, view->available + view->waiting));
    if (free_units < 0)
        free_units = 0;
    provider->slots = (uint32_t)slots;
    provider->over = (uint32_t)(taken > slots ? taken - slots : 0);
    provider->counts[TOP_FREE] = (uint32_t)free_units;
    provider->counts[TOP_UNKNOWN] += (uint32_t)(rest - free_units);
}

static void add_totals(struct top_totals *totals, const struct top_provider *provider)
{
    for (int i = 0; i < TOP_STATES; i++)
        totals->counts[i] += provider->counts[i];
    totals->slots += provider->slots;
    totals->over += provider->over;
    totals->waiting += clamp_units(provider->view->waiting);
    totals->providers++;
    totals->standing[provider->standing]++;
    if (provider->standing == TOP_LIVE && strcmp(provider->view->health, "down") == 0)
        totals->down++;
    if (provider->view->available > 0)
        totals->available += provider->view->available;
}

static void name_it(struct top_provider *provider)
{
    char raw[TOP_PROVIDER_SIZE];
    const struct lease_view *view = provider->view;
    snprintf(raw, sizeof raw, "%s%s%s", view->provider, provider->remote ? "@" : "",
             provider->remote ? view->owner : "");
    top_text_clean(provider->name, sizeof provider->name, raw);
}

static void mend(char *text, size_t size)
{
    char copy[LEASE_URL_SIZE];
    snprintf(copy, sizeof copy, "%.*s", (int)size - 1, text);
    text_copy(text, size, copy);
}

/* Of any origin: JSON takes only UTF-8, and what it prints may reach a terminal. */
static void mend_texts(const struct lease_fleet *fleet, struct lease_view *view)
{
    mend(view->provider, sizeof view->provider);
    mend(view->owner, sizeof view->owner);
    mend(view->url, sizeof view->url);
    mend(view->group, sizeof view->group);
    mend(view->engine, sizeof view->engine);
    mend(view->detail, sizeof view->detail);
    for (uint32_t i = 0; i < view->model_count; i++)
        mend(view->models[i].name, sizeof view->models[i].name);
    for (uint32_t i = 0; i < view->lease_count; i++) {
        struct lease_entry *entry = &fleet->leases[view->first_lease + i];
        mend(entry->id, sizeof entry->id);
        mend(entry->host, sizeof entry->host);
        mend(entry->label, sizeof entry->label);
    }
    for (uint32_t i = 0; i < view->work_count; i++) {
        struct lease_work *work = &fleet->work[view->first_work + i];
        mend(work->was_host, sizeof work->was_host);
        mend(work->was_label, sizeof work->was_label);
    }
}

static void take_provider(struct top_model *model, struct lease_view *view, int64_t now_ns)
{
    mend_texts(model->fleet, view);
    struct top_memory *memory = remember(model, view);
    struct top_provider *provider = &model->providers[model->provider_count++];
    *provider = (struct top_provider){.view = view, .memory = memory};
    provider->remote = view->owner[0] && strcmp(view->owner, model->fleet->view_from) != 0;
    int64_t since_lost_ms = model->lost_ns ? (now_ns - model->lost_ns) / NS_PER_MS : 0;
    provider->standing = standing_of(model, view, provider->remote, since_lost_ms);
    if (provider->standing == TOP_BY_BOOK || provider->standing >= TOP_STALE)
        make_unknown(model->fleet, view);
    count_leases(provider, model->fleet);
    count_rest(provider);
    name_it(provider);
    if (memory) {
        sample(memory, view, now_ns);
        note_changes(memory, provider, model->taken, now_ns);
    }
    say_why(provider);
    add_totals(&model->totals, provider);
}

/* Of the silent ones that is named which was heard last: the news. */
static void take_hosts(struct top_model *model)
{
    const struct lease_fleet *fleet = model->fleet;
    struct top_hosts *hosts = &model->hosts;
    *hosts = (struct top_hosts){.first_ms = -1};
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        struct lease_peer *peer = &fleet->peers[i];
        mend(peer->name, sizeof peer->name);
        mend(peer->version, sizeof peer->version);
        mend(peer->endpoint, sizeof peer->endpoint);
        if (strcmp(peer->state, "live") == 0) {
            hosts->live++;
            continue;
        }
        bool is_news =
            peer->heard_ms >= 0 && (hosts->first_ms < 0 || peer->heard_ms < hosts->first_ms);
        if (hosts->silent++ == 0 || is_news) {
            top_text_clean(hosts->first, sizeof hosts->first, peer->name);
            hosts->first_ms = peer->heard_ms;
        }
    }
}

static void take_agent(struct top_model *model, const struct top_snapshot *snapshot)
{
    bool was_here = model->agent != TOP_AGENT_NONE;
    model->agent = snapshot->beats ? TOP_AGENT_LIVE : was_here ? TOP_AGENT_LOST : TOP_AGENT_NONE;
    if (model->agent != TOP_AGENT_LOST)
        model->lost_ns = 0;
    else if (model->lost_ns == 0)
        model->lost_ns = snapshot->taken_ns;
    model->silent_ms = snapshot->silent_ms;
    model->agent_pid = snapshot->agent_pid;
}

bool top_model_take(struct top_model *model, struct top_snapshot *snapshot)
{
    struct lease_fleet *fleet = snapshot->fleet;
    snapshot->fleet = NULL;
    struct top_provider *room = calloc(fleet->provider_count + 1, sizeof *room);
    if (!room) {
        lease_fleet_free(&fleet);
        return false;
    }
    free(model->providers);
    lease_fleet_free(&model->fleet);
    model->providers = room;
    model->fleet = fleet;
    model->provider_count = 0;
    model->taken_ns = snapshot->taken_ns;
    model->taken++;
    model->totals = (struct top_totals){0};
    take_hosts(model);
    top_text_clean(model->host, sizeof model->host, fleet->view_from);
    take_agent(model, snapshot);
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        take_provider(model, &fleet->providers[i], snapshot->taken_ns);
    return true;
}

uint32_t top_strip(const struct top_provider *provider, char *text, size_t size)
{
    static const enum top_state order[] = {TOP_DISPATCHED, TOP_GHOST, TOP_ORPHAN, TOP_LEASED,
                                           TOP_STRANGER,   TOP_FREE,  TOP_UNKNOWN};
    uint32_t count = 0;
    size_t used = 0;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        count += provider->counts[order[i]];
        for (uint32_t k = 0; k < provider->counts[order[i]] && used + 1 < size; k++)
            text[used++] = top_state_glyph(order[i]);
    }
    if (size > 0)
        text[used] = '\0';
    return count;
}
