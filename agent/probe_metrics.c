#include "agent/probe_metrics.h"

#include <math.h>
#include <string.h>

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* A name ends where a value, labels or the line begin; another metric's may begin with it. */
static bool has_name(const char *line, const char *name, size_t length)
{
    return strncmp(line, name, length) == 0 && strchr(" \t{", line[length]) != NULL &&
           line[length] != '\0';
}

/* Behind the value that starts after '"'; NULL where it does not end in this line. */
static const char *skip_quoted(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return NULL;
}

/* From '{' to behind '}'. Says whether the label `without` has a value. NULL: malformed. */
static const char *skip_labels(const char *at, const char *end, const char *without, bool *has)
{
    at = skip_blanks(at + 1);
    while (at < end && *at != '}') {
        size_t length = strcspn(at, "=\" \t,}\n");
        const char *label = at;
        at = skip_blanks(at + length);
        if (length == 0 || at >= end || *at != '=')
            return NULL;
        at = skip_blanks(at + 1);
        if (at >= end || *at != '"')
            return NULL;
        bool empty = at[1] == '"';
        if (without != NULL && strlen(without) == length && memcmp(label, without, length) == 0)
            *has = *has || !empty;
        at = skip_quoted(at + 1, end);
        if (at == NULL)
            return NULL;
        at = skip_blanks(at);
        if (at < end && *at == ',')
            at = skip_blanks(at + 1);
    }
    return at < end ? at + 1 : NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 1e-400 is 0 and 1e400 infinite, whatever else the exponent says. */
static const char *read_exponent(const char *at, int *exponent)
{
    bool negative = *at == '-';
    if (*at == '-' || *at == '+')
        at++;
    if (!is_digit(*at))
        return NULL;
    for (*exponent = 0; is_digit(*at); at++)
        *exponent = *exponent < 1000 ? *exponent * 10 + (*at - '0') : *exponent;
    *exponent = negative ? -*exponent : *exponent;
    return at;
}

/* Behind the number, NULL where there is none. Not strtod, which asks the embedding process's
 * locale what a decimal point is. */
static const char *read_number(const char *at, double *value)
{
    bool negative = *at == '-', any = false;
    int exponent = 0, shift = 0;
    *value = 0;
    if (*at == '-' || *at == '+')
        at++;
    for (; is_digit(*at); at++, any = true)
        *value = *value * 10 + (*at - '0');
    if (*at == '.')
        for (at++; is_digit(*at); at++, any = true, shift++)
            *value = *value * 10 + (*at - '0');
    if (any && (*at == 'e' || *at == 'E'))
        at = read_exponent(at + 1, &exponent);
    if (!any || at == NULL)
        return NULL;
    *value = *value * pow(10, exponent - shift) * (negative ? -1 : 1);
    return at;
}

/* NaN and infinities are no decimal numbers: refused with the rest. */
static bool read_value(const char *at, double *value)
{
    at = read_number(skip_blanks(at), value);
    return at != NULL && *at != '\0' && strchr(" \t\r\n", *at) != NULL && isfinite(*value);
}

struct scan {
    const char *name;
    const char *without;
    size_t length;
    struct metric metric;
    bool labelled;
    bool broken;   /* a series that cannot be understood */
    bool followed; /* by a line of something else */
};

static void take_line(struct scan *scan, const char *line, const char *end)
{
    bool left_out = false;
    double value;
    const char *at = line + scan->length;
    if (!has_name(line, scan->name, scan->length)) {
        scan->followed = true;
        return;
    }
    scan->followed = false;
    at = skip_blanks(at);
    if (*at == '{') {
        scan->labelled = true;
        at = skip_labels(at, end, scan->without, &left_out);
    }
    if (at == NULL || !read_value(at, &value)) {
        scan->broken = true;
        return;
    }
    if (left_out)
        return;
    if (scan->metric.series == 0 || value > scan->metric.largest)
        scan->metric.largest = value;
    if (scan->metric.series == 0 || value < scan->metric.smallest)
        scan->metric.smallest = value;
    scan->metric.sum += value;
    scan->metric.series++;
}

bool probe_metric_read(const char *text, const char *name, const char *without,
                       struct metric *metric)
{
    struct scan scan = {.name = name, .without = without, .length = strlen(name)};
    const char *line = text;
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        take_line(&scan, line, end);
    if (scan.metric.series == 0 || scan.broken || (scan.labelled && !scan.followed) ||
        !isfinite(scan.metric.sum))
        return false;
    if (*line != '\0' && has_name(line, name, scan.length)) /* a series without its end */
        return false;
    *metric = scan.metric;
    return true;
}

int probe_metric_count(const struct metric *metric)
{
    return metric->smallest >= 0 && metric->sum < 1e9 ? (int)ceil(metric->sum) : -1;
}

int probe_metric(const char *text, const char *name)
{
    struct metric metric;
    return probe_metric_read(text, name, NULL, &metric) ? probe_metric_count(&metric) : -1;
}

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (!first && is_digit(c));
}

/* NaN and infinities are numbers in this format, if none to count with. */
static bool is_series(const char *line, const char *end)
{
    static const char *const odd[] = {"NaN", "nan", "+Inf", "-Inf", "Inf", "inf"};
    bool has = false;
    double value;
    const char *at = line;
    while (is_name_char(*at, at == line))
        at++;
    if (at == line)
        return false;
    at = skip_blanks(at);
    if (*at == '{')
        at = skip_labels(at, end, NULL, &has);
    if (at == NULL)
        return false;
    at = skip_blanks(at);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if (strncmp(at, odd[i], strlen(odd[i])) == 0)
            return true;
    return read_number(at, &value) != NULL;
}

int probe_metric_series(const char *text, const char *prefix)
{
    int count = 0;
    const char *line = text;
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        size_t length = strspn(line, " \t\r");
        if (line[length] == '#' || line[length] == '\n')
            continue;
        if (!is_series(line, end))
            return -1;
        count += strncmp(line, prefix, strlen(prefix)) == 0;
    }
    return *line == '\0' ? count : -1;
}
