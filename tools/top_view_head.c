/* The lines above the list: what is looked at, how fresh it is, the counts, the strips. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/top_text.h"
#include "tools/top_view.h"

#define NS_A_MS       INT64_C(1000000)
#define UNANSWERED_MS 3000 /* no snapshot for so long beyond the delay: what is shown is stale */
#define STRIP_LINES   3
#define STRIP_SIZE    (TOP_UNITS_MAX + 1)

static const enum top_state shown_order[TOP_STATES] = {
    TOP_FREE, TOP_LEASED, TOP_DISPATCHED, TOP_STRANGER, TOP_GHOST, TOP_ORPHAN, TOP_UNKNOWN};

/* Ghosts and orphans are rare: shown where there are some. */
static bool is_shown(const struct top_totals *totals, enum top_state state)
{
    return totals->counts[state] > 0 || (state != TOP_GHOST && state != TOP_ORPHAN);
}

/* ---- the banner ------------------------------------------------------------------------------ */

static uint8_t banner(const struct top_scene *scene, char *text, size_t size)
{
    const struct top_model *model = scene->model;
    int64_t age_ms = top_model_age_ms(model, scene->now_ns);
    char span[TOP_SPAN_SIZE];
    if (!model->fleet) {
        snprintf(text, size, "STARTING");
        return TOP_REVERSED;
    }
    if (scene->ui->paused_ns) {
        top_text_seconds(span, (scene->now_ns - scene->ui->paused_ns) / NS_A_MS);
        snprintf(text, size, "PAUSED %s", span);
        return TOP_REVERSED;
    }
    if (model->agent == TOP_AGENT_LOST) {
        top_text_seconds(span, model->silent_ms + age_ms);
        snprintf(text, size, "AGENT LOST %s, retrying", span);
        return TOP_ALARM | TOP_SELECTED;
    }
    if (age_ms > UNANSWERED_MS + scene->ui->delay_ms) {
        top_text_seconds(span, age_ms);
        snprintf(text, size, "STALE %s", span);
        return TOP_ALARM | TOP_SELECTED;
    }
    snprintf(text, size, "%s", model->agent == TOP_AGENT_LIVE ? "LIVE" : "NO AGENT");
    return TOP_BOLD;
}

/* ---- the title ------------------------------------------------------------------------------- */

struct piece {
    int order; /* the least is kept longest */
    char text[192];
};

/* Leaves out the least important pieces until the rest fits. */
static void put_pieces(struct top_grid *grid, const struct piece *pieces, int count, int end)
{
    int limit = 9;
    for (int width = end + 1; width > end && limit >= 0; limit--) {
        width = 0;
        for (int i = 0; i < count; i++)
            if (pieces[i].text[0] && pieces[i].order <= limit)
                width += top_text_width(pieces[i].text) + 2;
    }
    for (int i = 0, x = 0; i < count; i++)
        if (pieces[i].text[0] && pieces[i].order <= limit + 1)
            x = top_put(grid, 0, x, end, i == 0 ? TOP_BOLD : TOP_PLAIN, pieces[i].text) + 2;
}

static void say_filter(const struct top_scene *scene, char *text, size_t size)
{
    char clean[TOP_FILTER_TEXT_SIZE];
    top_text_clean(clean, sizeof clean, scene->ui->filter);
    if (clean[0])
        snprintf(text, size, "filter %s (%u hidden)", clean, scene->rows->hidden);
    else
        snprintf(text, size, "filter -");
}

static void say_hold(const struct top_scene *scene, char *text, size_t size)
{
    const struct top_ui *ui = scene->ui;
    text[0] = '\0';
    if (ui->wish.held && ui->hold_until_ns > scene->now_ns)
        snprintf(text, size, "order kept %llds",
                 (long long)((ui->hold_until_ns - scene->now_ns) / NS_A_MS + 999) / 1000);
    else
        snprintf(text, size, "sort %s%s", top_sort_name(ui->wish.sort),
                 ui->wish.reverse ? " reversed" : "");
}

static void draw_title(const struct top_scene *scene, struct top_grid *grid)
{
    char text[64];
    uint8_t style = banner(scene, text, sizeof text);
    int end = grid->width - 1, width = top_text_width(text);
    struct piece pieces[7] = {{0, "leasetop"}, {3, ""}, {6, ""}, {5, ""},
                              {4, ""},         {2, ""}, {1, ""}};
    const struct top_ui *ui = scene->ui;
    snprintf(pieces[1].text, sizeof pieces[1].text, "view from %s", scene->model->host);
    snprintf(pieces[2].text, sizeof pieces[2].text, "%s", scene->clock);
    snprintf(pieces[3].text, sizeof pieces[3].text, "every %gs", (double)ui->delay_ms / 1000);
    say_hold(scene, pieces[4].text, sizeof pieces[4].text);
    if (ui->follow)
        snprintf(pieces[5].text, sizeof pieces[5].text, "following");
    say_filter(scene, pieces[6].text, sizeof pieces[6].text);
    pieces[6].order = ui->filter[0] ? 1 : 7;
    put_pieces(grid, pieces, 7, end - width - 1);
    top_put_right(grid, 0, end - width < 0 ? 0 : end - width, end, style, text);
}

/* ---- counts ---------------------------------------------------------------------------------- */

void top_counts_text(const struct top_totals *totals, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < TOP_STATES && used < size; i++)
        if (is_shown(totals, shown_order[i]))
            used +=
                (size_t)snprintf(text + used, size - used, "%s%u%c", used ? " " : "",
                                 totals->counts[shown_order[i]], top_state_glyph(shown_order[i]));
}

/* Of those that do not stand well, the first by name, and how long nothing was heard of it. */
static int put_first(const struct top_scene *scene, struct top_grid *grid, int y, int x,
                     enum top_standing standing)
{
    const struct top_model *model = scene->model;
    char heard[TOP_SPAN_SIZE], text[TOP_PROVIDER_SIZE + 64];
    uint32_t i = 0;
    while (model->providers[i].standing != standing)
        i++;
    const struct top_provider *first = &model->providers[i];
    top_text_seconds(heard, first->view->heard_ms + top_model_age_ms(model, scene->now_ns));
    bool silent = standing >= TOP_STALE;
    snprintf(text, sizeof text, " (%s: %s%s%s%s)", top_standing_word(standing), first->name,
             model->totals.standing[standing] > 1 ? "..." : "", silent ? ", silent " : "",
             silent ? heard : "");
    if (x + top_text_width(text) >= grid->width) /* half a name is none, and the list has it */
        return grid->width;
    return top_put(grid, y, x, grid->width, TOP_DOUBT, text);
}

static const enum top_standing standing_order[] = {TOP_LIVE,     TOP_BY_BOOK, TOP_LOST,
                                                   TOP_CONFLICT, TOP_STALE,   TOP_UNOWNED};
#define ORDERED (sizeof standing_order / sizeof standing_order[0])

/* Counts that add up come before everything else: where they would be cut, what is not live is one
 * count. */
static int put_standings(const struct top_totals *totals, struct top_grid *grid, int y, int x)
{
    char text[256], down[32] = "";
    size_t used = 0;
    int end = grid->width;
    uint32_t live = totals->standing[TOP_LIVE];
    if (totals->down)
        snprintf(down, sizeof down, " (%u down)", totals->down);
    for (size_t i = 1; i < ORDERED; i++)
        if (totals->standing[standing_order[i]] && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "  %u %s",
                                     totals->standing[standing_order[i]],
                                     top_standing_word(standing_order[i]));
    x = top_putf(grid, y, x, end, TOP_PLAIN, " %u live", live);
    x = top_put(grid, y, x, end, TOP_DOUBT, down);
    if (used > 0 && x + (int)used < end)
        x = top_put(grid, y, x, end, TOP_DOUBT, text);
    else if (used > 0)
        x = top_putf(grid, y, x, end, TOP_DOUBT, "  %u not", totals->providers - live);
    return x;
}

/* In as many words as there is room for. Readings that others made after the loss are good. */
static int put_loss(const struct top_scene *scene, struct top_grid *grid, int y, int x)
{
    static const char *const shorter[] = {"  only fresh readings count", "  fresh readings only"};
    const struct top_model *model = scene->model;
    char silent[TOP_SPAN_SIZE], text[80];
    top_text_seconds(silent, model->silent_ms + top_model_age_ms(model, scene->now_ns));
    snprintf(text, sizeof text, "  agent lost %s:%s", silent, shorter[0] + 1);
    for (size_t i = 0; i < 2 && x + top_text_width(text) >= grid->width; i++)
        snprintf(text, sizeof text, "%s", shorter[i]);
    return top_put(grid, y, x, grid->width, TOP_ALARM, text);
}

/* Of a fleet: how many hosts, this one counted, and who is silent. */
static int put_hosts(const struct top_scene *scene, struct top_grid *grid, int y, int x)
{
    const struct top_hosts *hosts = &scene->model->hosts;
    char text[LEASE_NAME_SIZE + 64], silent[LEASE_NAME_SIZE + 32] = "", heard[TOP_SPAN_SIZE];
    if (hosts->live + hosts->silent == 0)
        return x;
    if (hosts->silent == 1 && hosts->first[0] && hosts->first_ms >= 0) {
        top_text_seconds(heard, hosts->first_ms + top_model_age_ms(scene->model, scene->now_ns));
        snprintf(silent, sizeof silent, " (%s silent %s)", hosts->first, heard);
    } else if (hosts->silent > 0) {
        snprintf(silent, sizeof silent, " (%u silent)", hosts->silent);
    }
    snprintf(text, sizeof text, "  hosts %u", hosts->live + hosts->silent + 1);
    if (x + top_text_width(text) + top_text_width(silent) >= grid->width)
        return x;
    x = top_put(grid, y, x, grid->width, TOP_PLAIN, text);
    return top_put(grid, y, x, grid->width, TOP_DOUBT, silent);
}

static void draw_providers(const struct top_scene *scene, struct top_grid *grid, int y)
{
    const struct top_model *model = scene->model;
    const struct top_totals *totals = &model->totals;
    int end = grid->width;
    int x = top_putf(grid, y, 0, end, TOP_PLAIN, "providers %u :", totals->providers);
    x = put_standings(totals, grid, y, x);
    if (model->agent == TOP_AGENT_LOST)
        x = put_loss(scene, grid, y, x);
    x = put_hosts(scene, grid, y, x);
    for (size_t i = 0; i < ORDERED && x < end; i++)
        if (standing_order[i] > TOP_BY_BOOK && totals->standing[standing_order[i]] > 0)
            x = put_first(scene, grid, y, x, standing_order[i]);
}

static int words_width(const struct top_totals *totals)
{
    char text[256];
    int width = 0;
    for (int i = 0; i < TOP_STATES; i++)
        if (is_shown(totals, (enum top_state)i))
            width += snprintf(text, sizeof text, " %u %c %s ", totals->counts[i], '.',
                              top_state_word((enum top_state)i));
    return width;
}

static void draw_slots(const struct top_scene *scene, struct top_grid *grid, int y)
{
    static const uint8_t styles[TOP_STATES] = {
        [TOP_STRANGER] = TOP_ALARM, [TOP_UNKNOWN] = TOP_DOUBT, [TOP_DISPATCHED] = TOP_BOLD};
    const struct top_totals *totals = &scene->model->totals;
    int end = grid->width, x = top_putf(grid, y, 0, end, TOP_PLAIN, "slots %u :", totals->slots);
    char text[128];
    bool in_words = x + words_width(totals) <= end;
    if (!in_words) { /* they would be cut: glyphs say the same */
        top_counts_text(totals, text, sizeof text);
        x = top_putf(grid, y, x, end, TOP_BOLD, " %s", text);
    }
    for (int i = 0; i < TOP_STATES && in_words; i++) {
        enum top_state state = shown_order[i];
        if (is_shown(totals, state))
            x = top_putf(grid, y, x, end, totals->counts[state] ? styles[state] : TOP_PLAIN,
                         " %u %c %s ", totals->counts[state], top_state_glyph(state),
                         top_state_word(state));
    }
    if (totals->over)
        x = top_putf(grid, y, x, end, TOP_SOON, " %u over", totals->over);
    if (totals->waiting)
        top_putf(grid, y, x, end, TOP_PLAIN, " %u waiting", totals->waiting);
}

/* The answer to the question with which most people come. */
static void draw_free(const struct top_scene *scene, struct top_grid *grid, int y)
{
    const struct top_model *model = scene->model;
    int end = grid->width, x = top_put(grid, y, 0, end, TOP_PLAIN, "free now :");
    if (model->totals.counts[TOP_FREE] == 0)
        top_put(grid, y, x, end, TOP_PLAIN, " none");
    for (uint32_t i = 0; i < model->provider_count && x < end; i++) {
        const struct top_provider *provider = &model->providers[i];
        char text[TOP_PROVIDER_SIZE + 32];
        if (provider->counts[TOP_FREE] == 0)
            continue;
        snprintf(text, sizeof text, " %s %u of %u ", provider->name, provider->counts[TOP_FREE],
                 provider->slots);
        if (x + top_text_width(text) > end - 4) {
            top_put(grid, y, x, end, TOP_PLAIN, " ...");
            return;
        }
        x = top_put(grid, y, x, end, TOP_BOLD, text);
    }
}

/* ---- strips ---------------------------------------------------------------------------------- */

/* Fills lines from y on with NAME and its units, as many as fit. Answers the lines used; *left is
 * how many providers did not fit. */
static int draw_strips(const struct top_scene *scene, struct top_grid *grid, int y, int lines,
                       uint32_t *left)
{
    const struct top_model *model = scene->model;
    int x = 0, line = 0, end = grid->width - 1;
    for (uint32_t i = 0; i < model->provider_count; i++) {
        const struct top_provider *provider = &model->providers[i];
        char units[STRIP_SIZE], name[TOP_PROVIDER_SIZE];
        uint32_t count = top_strip(provider, units, sizeof units);
        int name_room = end / 2 > 24 ? 24 : end / 2 > 3 ? end / 2 : 3;
        top_text_cut(name, sizeof name, provider->name, name_room);
        int width = top_text_width(name) + 1 + (int)(count < 1024 ? count : 1024);
        if (x > 0 && x + width > end) {
            x = 0;
            line++;
        }
        *left = model->provider_count - i;
        if (line >= lines)
            return lines;
        x = top_putf(grid, y + line, x, end, TOP_PLAIN, "%s ", name);
        x = top_put(grid, y + line, x, end, TOP_BOLD, units) + 2;
    }
    *left = 0;
    return line + (model->provider_count > 0);
}

static int draw_strip_block(const struct top_scene *scene, struct top_grid *grid, int y)
{
    uint32_t left = 0;
    int lines = draw_strips(scene, grid, y, STRIP_LINES, &left);
    if (left > 0) {
        char text[48];
        int end = grid->width - 1;
        snprintf(text, sizeof text, "  %u more: h", left);
        top_put_right(grid, y + lines - 1, end - top_text_width(text), end, TOP_FAINT, text);
    }
    return lines;
}

int top_view_head(const struct top_scene *scene, struct top_grid *grid)
{
    int y = 0;
    draw_title(scene, grid);
    y++;
    if (grid->height >= 9)
        draw_providers(scene, grid, y++);
    draw_slots(scene, grid, y++);
    if (grid->height >= 10)
        draw_free(scene, grid, y++);
    if (grid->height >= 14 && !scene->ui->by_provider)
        y += draw_strip_block(scene, grid, y);
    return y;
}

void top_view_small(const struct top_scene *scene, struct top_grid *grid)
{
    char text[128], word[64];
    uint32_t left = 0;
    top_counts_text(&scene->model->totals, text, sizeof text);
    uint8_t style = banner(scene, word, sizeof word);
    top_put(grid, 0, 0, grid->width, TOP_BOLD, scene->model->fleet ? text : word);
    if (grid->height < 2)
        return;
    int lines = grid->height - 2 > 0 && grid->width >= 8 ? grid->height - 2 : 0;
    if (lines > 0)
        draw_strips(scene, grid, 1, lines, &left);
    top_put(grid, grid->height - 1, 0, grid->width, style, word);
}
