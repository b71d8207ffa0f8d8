/* The rows of leasetop: one for each lease, and for each kind of unit without one, of a provider;
 * filtered and put in order.
 *
 * Thread rules: pure. Rows point into the model, and live until it takes the next snapshot. */
#ifndef TOOLS_TOP_ROWS_H
#define TOOLS_TOP_ROWS_H

#include "tools/top_model.h"

#define TOP_WHO_SIZE         256
#define TOP_UNKNOWN_MS       INT64_C(-2) /* a time that is there but not known; -1: there is none */
#define TOP_FILTER_TERMS     8
#define TOP_FILTER_TEXT_SIZE 128

struct top_row {
    const struct top_provider *provider;
    const struct lease_entry *lease; /* NULL: none */
    enum top_state state;
    bool has_was; /* state is TOP_UNKNOWN, and it was: */
    enum top_state was;
    uint32_t units;
    int32_t slot; /* -1: none named */
    uint64_t identity;
    int64_t left_ms, held_ms, age_ms;
    char who[TOP_WHO_SIZE]; /* clean */
    /* where in it a holder's label, its @host, and what is said of it begin; 0s: it names none */
    uint16_t label_at, host_at, after_at;
};

struct top_rows {
    struct top_row *rows;
    uint32_t count, room;
    uint32_t hidden; /* by the filter */
};

/* ---- columns to sort by ----------------------------------------------------------------- */

enum top_sort {
    TOP_BY_ATTENTION = 0,
    TOP_BY_PROVIDER,
    TOP_BY_SLOT,
    TOP_BY_STATE,
    TOP_BY_HOLDER,
    TOP_BY_LEFT,
    TOP_BY_HELD,
    TOP_BY_READ,
    TOP_SORTS
};

/* "attn", and 'a': what -s and the keyboard take. */
const char *top_sort_name(enum top_sort sort);
char top_sort_letter(enum top_sort sort);

/* By its name (or how it begins); false where it is none. */
bool top_sort_find(const char *name, enum top_sort *sort);

/* ---- filter ----------------------------------------------------------------------------- */

enum top_field {
    TOP_FIELD_ANY = 0,
    TOP_FIELD_STATE,
    TOP_FIELD_PROVIDER,
    TOP_FIELD_OWNER,
    TOP_FIELD_HOLDER,
    TOP_FIELD_HOST,
    TOP_FIELD_LABEL,
    TOP_FIELD_PID,
    TOP_FIELD_GROUP,
    TOP_FIELD_ENGINE,
    TOP_FIELD_MODEL,
    TOP_FIELD_HEALTH,
    TOP_FIELD_SIGNAL,
    TOP_FIELD_REACH,
    TOP_FIELD_ID,
    TOP_FIELDS
};

struct top_filter {
    struct {
        enum top_field field;
        bool negated;
        char pattern[TOP_FILTER_TEXT_SIZE];
    } terms[TOP_FILTER_TERMS];
    uint32_t count; /* 0: everything passes */
};

/* Words, all of which must be true: [!][FIELD:]PATTERN. A pattern with * or ? is matched as a whole,
 * another one of `any`, `holder` and `label` anywhere. False with one line in why (128 bytes). */
bool top_filter_read(const char *text, struct top_filter *filter, char *why);

bool top_filter_passes(const struct top_filter *filter, const struct top_row *row);

/* ---- making them ------------------------------------------------------------------------ */

/* The order of an earlier making, to which later ones keep. */
struct top_order {
    struct top_place {
        uint64_t identity;
        uint32_t place;
    } * places; /* by identity */
    uint32_t count;
};

struct top_wish {
    enum top_sort sort;
    bool reverse;
    bool unfold; /* each free, unknown and stranger unit a row of its own */
    struct top_filter filter;
    const struct top_order *held; /* NULL: sort anew */
};

/* Makes the rows anew, in the memory that `rows` has. False without memory. */
bool top_rows_make(struct top_rows *rows, const struct top_model *model,
                   const struct top_wish *wish, int64_t now_ns);
void top_rows_free(struct top_rows *rows);

bool top_order_keep(struct top_order *order, const struct top_rows *rows);
void top_order_free(struct top_order *order);

#endif
