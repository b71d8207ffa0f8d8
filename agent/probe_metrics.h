/* Metrics in Prometheus' text format, as far as probes need it: what a gauge says now.
 *
 *   NAME VALUE [TIME]           one series of the metric NAME; CRLF or LF ends the line
 *   NAME{LABEL="TEXT",...} ...  one of several, told apart by labels
 *   # ...                       HELP, TYPE, comments: skipped
 *
 * A body that was cut off must not say less than the whole one would have: a line without an end is
 * not trusted (it may lack digits), nor is a metric with labels that no line of something else
 * follows (it may lack series). Any series that is no finite number makes the whole metric unknown.
 *
 * Thread-safe, allocates nothing, heeds no locale. */
#ifndef AGENT_PROBE_METRICS_H
#define AGENT_PROBE_METRICS_H

#include <stdbool.h>

struct metric {
    int series;
    double sum;
    double smallest, largest;
};

/* All series of `name`, but for those in which the label `without` (NULL: none) has a value: they
 * part again what another series counts already. False: there is none, or it cannot be trusted;
 * *metric is then unchanged. Values may be negative. */
bool probe_metric_read(const char *text, const char *name, const char *without,
                       struct metric *metric);

/* The sum over all series, rounded up: half a request is none too few. -1: not known, one is negative,
 * or above 1e9. */
int probe_metric(const char *text, const char *name);

/* The same of one that was read. */
int probe_metric_count(const struct metric *metric);

/* How many series there are whose names begin with `prefix`. -1: a line is cut off or malformed, so
 * that the text as a whole cannot be trusted. A text of comments alone has none. */
int probe_metric_series(const char *text, const char *prefix);

#endif
