#define _GNU_SOURCE
#include "tools/top_batch.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "agent/view_json.h"
#include "tools/top_text.h"

enum { CELLS = 9 };

static const char *const heads[CELLS] = {"PROVIDER", "SLOT", "STATE", "HOLDER", "PID",
                                         "LEFT",     "HELD", "READ",  "URL"};

struct cells {
    char text[CELLS][LEASE_URL_SIZE];
};

/* ---- text ------------------------------------------------------------------------------------ */

static void say_time(char *text, size_t size, int64_t ms)
{
    char span[TOP_SPAN_SIZE];
    top_text_span(span, ms);
    snprintf(text, size, "%s", ms == TOP_UNKNOWN_MS ? "?" : span);
}

static void fill(const struct top_row *row, struct cells *cells)
{
    const struct lease_view *view = row->provider->view;
    char age[TOP_SPAN_SIZE];
    const size_t size = sizeof cells->text[0];
    memset(cells, 0, sizeof *cells);
    snprintf(cells->text[0], size, "%s", row->provider->name);
    if (row->slot >= 0)
        snprintf(cells->text[1], size, "%d", row->slot);
    else
        snprintf(cells->text[1], size, row->units > 1 ? "x%u" : "-", row->units);
    snprintf(cells->text[2], size, "%c %s", top_state_glyph(row->state),
             top_state_word(row->state));
    snprintf(cells->text[3], size, "%s", row->who[0] ? row->who : "-");
    if (row->lease && row->lease->pid)
        snprintf(cells->text[4], size, "%u", row->lease->pid);
    else
        snprintf(cells->text[4], size, "-");
    say_time(cells->text[5], size, row->left_ms);
    say_time(cells->text[6], size, row->held_ms);
    top_text_span(age, row->age_ms);
    snprintf(cells->text[7], size, "%s %s", view->signal[0] ? view->signal : "none",
             row->age_ms < 0 ? "never" : age);
    top_text_clean(cells->text[8], size, view->url[0] ? view->url : "-");
}

static const char *escape_of(uint8_t style)
{
    static const char *const escapes[TOP_STYLES] = {
        [TOP_PLAIN] = "",           [TOP_BOLD] = "\033[1m",     [TOP_FAINT] = "\033[2m",
        [TOP_REVERSED] = "\033[7m", [TOP_ALARM] = "\033[1;31m", [TOP_DOUBT] = "\033[2;35m",
        [TOP_SOON] = "\033[33m"};
    return escapes[style];
}

/* One line, cut to the frame's width. */
static void print_line(const struct top_frame *frame, FILE *out, uint8_t style, const char *text)
{
    const char *at = text;
    int width = 0;
    while (*at) {
        const char *next = at;
        width += top_text_columns(top_text_next(&next));
        if (frame->width > 0 && width > frame->width)
            break;
        at = next;
    }
    bool colored = frame->color && style != TOP_PLAIN;
    fprintf(out, "%s%.*s%s\n", colored ? escape_of(style) : "", (int)(at - text), text,
            colored ? "\033[0m" : "");
}

static void print_cells(const struct top_frame *frame, FILE *out, uint8_t style,
                        const struct cells *cells, const int *widths)
{
    char line[2 * LEASE_URL_SIZE + 1024];
    size_t used = 0;
    for (int i = 0; i < CELLS; i++) {
        int pad = i + 1 < CELLS ? widths[i] - top_text_width(cells->text[i]) + 2 : 0;
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%*s", cells->text[i], pad, "");
        if (used >= sizeof line)
            break;
    }
    print_line(frame, out, style, line);
}

static void measure(const struct cells *cells, int *widths)
{
    for (int i = 0; i < CELLS; i++) {
        int width = top_text_width(cells->text[i]);
        if (width > widths[i])
            widths[i] = width;
    }
}

static void print_rows(const struct top_frame *frame, FILE *out)
{
    int widths[CELLS] = {0};
    struct cells cells;
    memset(&cells, 0, sizeof cells);
    for (int i = 0; i < CELLS; i++)
        snprintf(cells.text[i], sizeof cells.text[i], "%s", heads[i]);
    struct cells title = cells;
    measure(&title, widths);
    for (uint32_t i = 0; i < frame->rows->count; i++) {
        fill(&frame->rows->rows[i], &cells);
        measure(&cells, widths);
    }
    print_cells(frame, out, TOP_BOLD, &title, widths);
    for (uint32_t i = 0; i < frame->rows->count; i++) {
        fill(&frame->rows->rows[i], &cells);
        print_cells(frame, out, top_style_of(&frame->rows->rows[i]), &cells, widths);
    }
}

static const char *agent_word(const struct top_model *model)
{
    return model->agent == TOP_AGENT_LIVE   ? "live"
           : model->agent == TOP_AGENT_LOST ? "lost"
                                            : "none";
}

void top_batch_text(const struct top_frame *frame, FILE *out)
{
    char line[512], counts[128];
    const struct top_model *model = frame->model;
    top_counts_text(&model->totals, counts, sizeof counts);
    snprintf(line, sizeof line, "leasetop  view from %s  %s  agent %s", model->host, frame->clock,
             agent_word(model));
    print_line(frame, out, TOP_BOLD, line);
    snprintf(line, sizeof line, "providers %u  slots %u : %s", model->totals.providers,
             model->totals.slots, counts);
    if (frame->filter[0]) {
        char filter[TOP_FILTER_TEXT_SIZE];
        top_text_clean(filter, sizeof filter, frame->filter);
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "  filter %s (%u hidden)", filter,
                 frame->rows->hidden);
    }
    print_line(frame, out, TOP_PLAIN, line);
    if (frame->rows->count > 0)
        print_rows(frame, out);
    else
        print_line(frame, out, TOP_PLAIN,
                   model->provider_count == 0
                       ? "no providers: add one to the configuration, or let `lease init` "
                         "write a first one"
                       : "nothing passes the filter");
    if (frame->number > 0)
        fputc('\n', out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *number_or_null_of(int64_t number)
{
    return number < 0 ? json_null() : json_integer(number);
}

static json_t *totals_object(const struct top_totals *totals)
{
    json_t *object = json_pack("{s:I, s:I, s:I, s:I}", "providers", (json_int_t)totals->providers,
                               "slots", (json_int_t)totals->slots, "over", (json_int_t)totals->over,
                               "waiting", (json_int_t)totals->waiting);
    for (int i = 0; i < TOP_STATES; i++)
        json_object_set_new(object, top_state_word((enum top_state)i),
                            json_integer(totals->counts[i]));
    return object;
}

static bool has_row(const struct top_rows *rows, const struct top_provider *provider)
{
    for (uint32_t i = 0; i < rows->count; i++)
        if (rows->rows[i].provider == provider)
            return true;
    return false;
}

/* The providers of which a row passes; where nothing is filtered, all of them. */
static json_t *providers_array(const struct top_frame *frame)
{
    const struct top_model *model = frame->model;
    json_t *array = json_array();
    for (uint32_t i = 0; i < model->provider_count; i++) {
        const struct top_provider *provider = &model->providers[i];
        if (frame->filter[0] && !has_row(frame->rows, provider))
            continue;
        char strip[TOP_UNITS_MAX + 1];
        top_strip(provider, strip, sizeof strip);
        json_t *object = view_json_provider(model->fleet, provider->view);
        json_object_set_new(object, "standing", json_string(top_standing_word(provider->standing)));
        json_object_set_new(object, "strip", json_string(strip));
        json_object_set_new(object, "history",
                            json_string(provider->memory ? provider->memory->history : ""));
        json_array_append_new(array, object);
    }
    return array;
}

/* view_json_fleet without its providers, which are added one by one. */
static json_t *frame_object(const struct top_frame *frame)
{
    struct lease_fleet bare = *frame->model->fleet;
    bare.provider_count = 0;
    return view_json_fleet(&bare);
}

char *top_batch_json(const struct top_frame *frame)
{
    const struct top_model *model = frame->model;
    json_t *object = frame_object(frame);
    json_object_set_new(object, "providers", providers_array(frame));
    json_object_set_new(object, "frame", json_integer((json_int_t)frame->number));
    json_object_set_new(object, "agent",
                        json_pack("{s:s, s:o, s:o}", "state", agent_word(model), "pid",
                                  model->agent_pid ? json_integer(model->agent_pid) : json_null(),
                                  "silent_ms", number_or_null_of(model->silent_ms)));
    json_object_set_new(object, "totals", totals_object(&model->totals));
    json_object_set_new(object, "matched", json_integer(frame->rows->count));
    json_object_set_new(object, "hidden", json_integer(frame->rows->hidden));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}
