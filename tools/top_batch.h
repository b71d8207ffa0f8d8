/* Frames for pipes and scripts: text, or one JSON object a line.
 *
 * Thread rules: pure but for the stream. */
#ifndef TOOLS_TOP_BATCH_H
#define TOOLS_TOP_BATCH_H

#include <stdio.h>

#include "tools/top_view.h"

struct top_frame {
    const struct top_model *model;
    const struct top_rows *rows;
    const struct top_wish *wish;
    const char *filter; /* "" none */
    const char *clock;
    int64_t now_ns;
    uint64_t number; /* counted from 1 */
    int width;       /* lines are cut there, 0: nowhere */
    bool color;
};

void top_batch_text(const struct top_frame *frame, FILE *out);

/* The schema of lease_fleet_json with keys added; with a filter only providers of which a row
 * passes. The caller's (free), NULL without memory. */
char *top_batch_json(const struct top_frame *frame);

#endif
