/* The live view: a source, a screen and a keyboard.
 *
 * Signals become data before the first thread starts: top_live_block_signals, then the source is
 * opened, then top_live_run. */
#ifndef TOOLS_TOP_LIVE_H
#define TOOLS_TOP_LIVE_H

#include "tools/top_options.h"
#include "tools/top_source.h"

/* A descriptor from which top_live_run reads them, -1 with errno. */
int top_live_block_signals(void);

/* Until somebody quits, or the terminal goes. An exit code; where the terminal cannot be used, why
 * (256 bytes) has one line. Closes the source where its thread was started. */
int top_live_run(struct top_source **source, const struct top_options *options, int signal_fd,
                 char *why);

/* "12:04:31" */
void top_clock_text(char text[16]);

#endif
