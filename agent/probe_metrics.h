/* Metrics in Prometheus' text format, as far as probes need it: one number by its name.
 *
 * Thread-safe, allocates nothing. */
#ifndef AGENT_PROBE_METRICS_H
#define AGENT_PROBE_METRICS_H

/* The value of the first line `NAME VALUE` or `NAME{...} VALUE`, rounded down. -1: there is none, it is
 * no count (negative, above 1e9, not a number), or its line has no end: that may lack digits. */
int probe_metric(const char *text, const char *name);

#endif
