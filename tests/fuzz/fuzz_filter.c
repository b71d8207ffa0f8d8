/* Any text as leasetop's filter, against a row of which the rest of the bytes tells the words. */
#include <stdio.h>

#include "tests/fuzz/fuzz.h"
#include "tools/top_rows.h"

#define WHY_SIZE 128

static struct lease_view view;
static struct lease_entry lease;
static struct top_provider provider = {.view = &view};
static struct top_row row = {.provider = &provider};

/* The next line of what is left, cut to `size`. */
static void take_line(const char **rest, char *to, size_t size)
{
    size_t length = strcspn(*rest, "\n");
    (void)snprintf(to, size, "%.*s", (int)(length < size ? length : size - 1), *rest);
    *rest += length + ((*rest)[length] == '\n');
}

static void make_row(const char *rest)
{
    char numbers[4];
    take_line(&rest, numbers, sizeof numbers);
    row.state = (enum top_state)((unsigned char)numbers[0] % TOP_STATES);
    row.lease = numbers[0] && numbers[1] & 1 ? &lease : NULL;
    view.model_count = numbers[0] && numbers[1] & 2 ? 2 : 0;
    view.available = numbers[0] && numbers[1] & 4 ? 1 : 0;
    lease.reach = LEASE_REACH_HOST;
    lease.pid = (unsigned char)numbers[0];
    take_line(&rest, view.provider, sizeof view.provider);
    take_line(&rest, provider.name, sizeof provider.name);
    take_line(&rest, view.owner, sizeof view.owner);
    take_line(&rest, row.who, sizeof row.who);
    take_line(&rest, view.models[1].name, sizeof view.models[1].name);
    take_line(&rest, lease.label, sizeof lease.label);
    take_line(&rest, lease.id, sizeof lease.id);
}

/* A row passes where each word holds, and a negated word holds where the plain one does not. */
static void must_agree(const struct top_filter *filter)
{
    bool all = true;
    for (uint32_t i = 0; i < filter->count; i++) {
        struct top_filter one = {.count = 1};
        one.terms[0] = filter->terms[i];
        bool holds = top_filter_passes(&one, &row);
        one.terms[0].negated = !one.terms[0].negated;
        must(top_filter_passes(&one, &row) != holds);
        all = all && holds;
    }
    must(top_filter_passes(filter, &row) == all);
}

static void must_be_in_bounds(const struct top_filter *filter)
{
    must(filter->count <= TOP_FILTER_TERMS);
    for (uint32_t i = 0; i < filter->count; i++) {
        must(filter->terms[i].field < TOP_FIELDS);
        must(memchr(filter->terms[i].pattern, '\0', TOP_FILTER_TEXT_SIZE) != NULL);
        must(strpbrk(filter->terms[i].pattern, " \t") == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct top_filter filter, before;
    char why[WHY_SIZE] = "";
    char *text = fuzz_text(bytes, size);
    size_t length = strcspn(text, "\n");
    make_row(text[length] ? text + length + 1 : "");
    char *line = fuzz_text(bytes, length);
    memset(&filter, 0x5a, sizeof filter);
    before = filter;
    if (top_filter_read(line, &filter, why)) {
        must_be_in_bounds(&filter);
        must_agree(&filter);
    } else {
        must(why[0] && memchr(why, '\0', sizeof why) != NULL);
        must(memcmp(&filter, &before, sizeof filter) == 0);
    }
    free(line);
    free(text);
    return 0;
}
