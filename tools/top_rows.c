#define _GNU_SOURCE
#include "tools/top_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/top_text.h"

#define NS_A_MS  INT64_C(1000000)
#define ROWS_MAX 100000 /* further ones are counted as hidden */

static const char *const sorts[TOP_SORTS] = {"attn",   "provider", "slot", "state",
                                             "holder", "left",     "held", "read"};

const char *top_sort_name(enum top_sort sort)
{
    return sorts[sort];
}

/* `h` is HOLDER and `s` SLOT: HELD and STATE take another letter of theirs. */
char top_sort_letter(enum top_sort sort)
{
    return "apsthler"[sort];
}

bool top_sort_find(const char *name, enum top_sort *sort)
{
    for (int i = 0; i < TOP_SORTS; i++) {
        bool is_letter = name[0] == top_sort_letter((enum top_sort)i) && !name[1];
        if (is_letter || (name[0] && strcasecmp(name, sorts[i]) == 0)) {
            *sort = (enum top_sort)i;
            return true;
        }
    }
    return false;
}

/* ---- one row --------------------------------------------------------------------------------- */

struct maker {
    struct top_rows *rows;
    const struct top_model *model;
    const struct top_wish *wish;
    const struct top_provider *provider;
    int64_t now_ns;
    int64_t older_ms; /* than in the snapshot */
};

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}

static uint64_t identity_of(const struct top_provider *provider, const char *id, uint32_t number)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = mix(mix(mix(hash, provider->view->provider), provider->view->owner), id);
    return (hash ^ number) * UINT64_C(0x100000001b3);
}

static struct top_row *new_row(struct maker *maker)
{
    struct top_rows *rows = maker->rows;
    if (rows->count >= ROWS_MAX)
        return NULL;
    if (rows->count == rows->room) {
        uint32_t room = rows->room ? 2 * rows->room : 64;
        struct top_row *grown = realloc(rows->rows, room * sizeof *grown);
        if (!grown)
            return NULL;
        rows->rows = grown;
        rows->room = room;
    }
    struct top_row *row = &rows->rows[rows->count];
    memset(row, 0, sizeof *row);
    row->provider = maker->provider;
    row->slot = -1;
    row->left_ms = row->held_ms = -1;
    int64_t age_ms = maker->provider->view->age_ms;
    row->age_ms = age_ms < 0 ? -1 : age_ms + maker->older_ms;
    return row;
}

/* Whether the row stays. */
static void offer(struct maker *maker, const struct top_row *row)
{
    if (top_filter_passes(&maker->wish->filter, row))
        maker->rows->count++;
    else
        maker->rows->hidden++;
}

/* ---- the rows of a provider ------------------------------------------------------------------ */

/* Cleans a part of the text about who it is, and answers how long all of it is now. */
static uint16_t add_part(struct top_row *row, const char *part)
{
    size_t used = strlen(row->who);
    top_text_clean(row->who + used, sizeof row->who - used, part);
    return (uint16_t)strlen(row->who);
}

/* BEFORE LABEL@HOST AFTER, and where each part begins. */
static void say_parts(struct top_row *row, const char *before, const char *label, const char *host,
                      const char *after)
{
    char at_host[LEASE_NAME_SIZE + 2] = "";
    if (host[0])
        snprintf(at_host, sizeof at_host, "@%s", host);
    row->label_at = add_part(row, before);
    row->host_at = add_part(row, label[0] ? label : "-");
    row->after_at = add_part(row, at_host);
    add_part(row, after);
}

static void say_holder(struct top_row *row, const struct lease_entry *lease, int64_t older_ms)
{
    char before[16] = "", after[64] = "", idle[TOP_SPAN_SIZE];
    if (row->has_was)
        snprintf(before, sizeof before, "was %c ", top_state_glyph(row->was));
    if (row->has_was && lease->left_ms - older_ms < 0) {
        snprintf(after, sizeof after, " (lapsed?)");
    } else if (row->state == TOP_GHOST) {
        top_text_span(idle, lease->idle_ms + older_ms);
        snprintf(after, sizeof after, ", idle %s", idle);
    } else if (row->provider->standing == TOP_BY_BOOK) {
        snprintf(after, sizeof after, " (by the book)");
    } else if (top_is_unwell(row->provider) && row->provider->standing < TOP_STALE) {
        snprintf(after, sizeof after, " (%.20s)", row->provider->view->health);
    }
    say_parts(row, before, lease->label, lease->host, after);
}

static void make_lease(struct maker *maker, const struct lease_entry *lease)
{
    struct top_row *row = new_row(maker);
    if (!row)
        return;
    bool held = strcmp(lease->state, "held") == 0;
    row->lease = lease;
    row->state = held                                   ? TOP_LEASED
                 : top_is_ghost(lease, maker->provider) ? TOP_GHOST
                                                        : TOP_DISPATCHED;
    row->units = lease->units;
    row->slot = lease->slot;
    row->identity = identity_of(maker->provider, lease->id, 0);
    int64_t left_ms = lease->left_ms - maker->older_ms;
    row->left_ms = left_ms < 0 ? 0 : left_ms;
    row->held_ms = held ? lease->age_ms : lease->dispatched_ms;
    row->held_ms += row->held_ms < 0 ? 0 : maker->older_ms;
    if (top_has_lapsed(lease, maker->provider)) {
        row->was = row->state;
        row->has_was = true;
        row->state = TOP_UNKNOWN;
        row->left_ms = row->held_ms = TOP_UNKNOWN_MS;
    }
    say_holder(row, lease, maker->older_ms);
    offer(maker, row);
}

static void make_work(struct maker *maker, const struct lease_work *work)
{
    struct top_row *row = new_row(maker);
    if (!row)
        return;
    row->state = TOP_ORPHAN;
    row->units = work->units;
    row->slot = work->slot;
    row->held_ms = work->for_ms < 0 ? -1 : work->for_ms + maker->older_ms;
    char number[32];
    snprintf(number, sizeof number, "orphan of %u", work->was_pid);
    row->identity = identity_of(maker->provider, number, 0);
    say_parts(row, "was ", work->was_label, work->was_host, ", holder ended");
    offer(maker, row);
}

/* Units without a lease, folded into one row or one for each. */
static void make_units(struct maker *maker, enum top_state state, uint32_t units, int64_t held_ms)
{
    static const char *const ids[TOP_STATES] = {
        [TOP_STRANGER] = "stranger", [TOP_UNKNOWN] = "unknown", [TOP_FREE] = "free"};
    uint32_t rows = maker->wish->unfold ? units : units > 0;
    for (uint32_t i = 0; i < rows; i++) {
        struct top_row *row = new_row(maker);
        if (!row)
            return;
        row->state = state;
        row->units = maker->wish->unfold ? 1 : units;
        row->identity = identity_of(maker->provider, ids[state], i);
        row->held_ms = held_ms;
        if (state == TOP_STRANGER)
            snprintf(row->who, sizeof row->who, "without a lease");
        else if (state == TOP_UNKNOWN)
            snprintf(row->who, sizeof row->who, "%s", maker->provider->why);
        else if (maker->provider->view->waiting > 0)
            snprintf(row->who, sizeof row->who, "%lld waiting",
                     (long long)maker->provider->view->waiting);
        offer(maker, row);
    }
}

/* How long as many units are in this state, as far as it was seen. */
static int64_t since_ms(const struct maker *maker, enum top_state state)
{
    const struct top_memory *memory = maker->provider->memory;
    if (!memory || memory->since_ns[state] == 0)
        return -1;
    return (maker->now_ns - memory->since_ns[state]) / NS_A_MS;
}

static void make_provider(struct maker *maker)
{
    const struct top_provider *provider = maker->provider;
    const struct lease_view *view = provider->view;
    const struct lease_fleet *fleet = maker->model->fleet;
    uint32_t unknown = provider->counts[TOP_UNKNOWN];
    int64_t strangers_ms = -1;
    for (uint32_t i = 0; i < view->lease_count; i++) {
        const struct lease_entry *lease = &fleet->leases[view->first_lease + i];
        make_lease(maker, lease);
        if (top_has_lapsed(lease, provider))
            unknown -= lease->units < unknown ? lease->units : unknown; /* has a row already */
    }
    for (uint32_t i = 0; i < view->work_count && provider->standing < TOP_STALE; i++) {
        const struct lease_work *work = &fleet->work[view->first_work + i];
        if (strcmp(work->kind, "orphan") == 0)
            make_work(maker, work);
        else if (strcmp(work->kind, "stranger") == 0)
            strangers_ms = work->for_ms + maker->older_ms;
    }
    make_units(maker, TOP_STRANGER, provider->counts[TOP_STRANGER], strangers_ms);
    make_units(maker, TOP_UNKNOWN, unknown, TOP_UNKNOWN_MS);
    make_units(maker, TOP_FREE, provider->counts[TOP_FREE], since_ms(maker, TOP_FREE));
}

/* ---- order ----------------------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* A provider that two hosts speak for comes before everything else. */
static int attention(const struct top_row *row)
{
    return (int)row->state - (row->provider->standing == TOP_CONFLICT ? TOP_STATES : 0);
}

static int by_attention(const struct top_row *a, const struct top_row *b)
{
    int order = compare(attention(a), attention(b));
    return order || a->state != TOP_LEASED ? order : compare(a->left_ms, b->left_ms);
}

static int by_wish(const struct top_row *a, const struct top_row *b, enum top_sort sort)
{
    switch (sort) {
    case TOP_BY_PROVIDER: return 0;
    case TOP_BY_SLOT: return compare(a->slot, b->slot);
    case TOP_BY_STATE: return strcmp(top_state_word(a->state), top_state_word(b->state));
    case TOP_BY_HOLDER: return strcasecmp(a->who, b->who);
    case TOP_BY_LEFT: return compare(a->left_ms, b->left_ms);
    case TOP_BY_HELD: return compare(a->held_ms, b->held_ms);
    case TOP_BY_READ: return compare(a->age_ms, b->age_ms);
    default: return by_attention(a, b);
    }
}

/* Whichever way round: what has no such time comes last. */
static int by_having(const struct top_row *a, const struct top_row *b, enum top_sort sort)
{
    if (sort == TOP_BY_LEFT)
        return compare(a->left_ms < 0, b->left_ms < 0);
    return sort == TOP_BY_HELD ? compare(a->held_ms < 0, b->held_ms < 0) : 0;
}

static int in_order(const void *left, const void *right, void *arg)
{
    const struct top_row *a = left, *b = right;
    const struct top_wish *wish = arg;
    int order = by_having(a, b, wish->sort);
    if (order != 0)
        return order;
    order = by_wish(a, b, wish->sort);
    if (order == 0)
        order = strcasecmp(a->provider->name, b->provider->name);
    if (order == 0)
        order = compare(attention(a), attention(b));
    if (order == 0)
        order = compare(a->slot, b->slot);
    if (order == 0)
        order = (a->identity > b->identity) - (a->identity < b->identity);
    return wish->reverse ? -order : order;
}

static int by_identity(const void *a, const void *b)
{
    uint64_t left = ((const struct top_place *)a)->identity;
    uint64_t right = ((const struct top_place *)b)->identity;
    return (left > right) - (left < right);
}

static uint32_t place_of(const struct top_order *order, uint64_t identity)
{
    struct top_place wanted = {.identity = identity};
    const struct top_place *found =
        bsearch(&wanted, order->places, order->count, sizeof order->places[0], by_identity);
    return found ? found->place : UINT32_MAX;
}

/* What was not there then comes last. */
static int as_before(const void *left, const void *right, void *arg)
{
    const struct top_row *a = left, *b = right;
    const struct top_wish *wish = arg;
    int order = compare(place_of(wish->held, a->identity), place_of(wish->held, b->identity));
    return order ? order : in_order(left, right, arg);
}

bool top_order_keep(struct top_order *order, const struct top_rows *rows)
{
    struct top_place *places = realloc(order->places, (rows->count + 1) * sizeof *places);
    if (!places)
        return false;
    for (uint32_t i = 0; i < rows->count; i++)
        places[i] = (struct top_place){.identity = rows->rows[i].identity, .place = i};
    qsort(places, rows->count, sizeof *places, by_identity);
    order->places = places;
    order->count = rows->count;
    return true;
}

void top_order_free(struct top_order *order)
{
    free(order->places);
    *order = (struct top_order){0};
}

bool top_rows_make(struct top_rows *rows, const struct top_model *model,
                   const struct top_wish *wish, int64_t now_ns)
{
    struct maker maker = {.rows = rows,
                          .model = model,
                          .wish = wish,
                          .now_ns = now_ns,
                          .older_ms = top_model_age_ms(model, now_ns)};
    rows->count = rows->hidden = 0;
    for (uint32_t i = 0; i < model->provider_count; i++) {
        maker.provider = &model->providers[i];
        make_provider(&maker);
    }
    union {
        const struct top_wish *wish;
        void *arg;
    } passed = {.wish = wish}; /* qsort_r takes no const */
    if (rows->count > 1)
        qsort_r(rows->rows, rows->count, sizeof *rows->rows, wish->held ? as_before : in_order,
                passed.arg);
    return rows->count == 0 || rows->rows != NULL;
}

void top_rows_free(struct top_rows *rows)
{
    free(rows->rows);
    *rows = (struct top_rows){0};
}
