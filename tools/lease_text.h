/* Tables and times for people. */
#ifndef TOOLS_LEASE_TEXT_H
#define TOOLS_LEASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_COLUMNS_MAX 12

/* Rows are kept until all are there, so that columns fit. Without memory rows are missing, and
 * `missing` says how many. */
struct text_table {
    const char *const *heads;
    size_t columns;
    size_t rows;
    size_t missing;
    char **cells; /* rows * columns, ours */
};

void text_table_begin(struct text_table *table, const char *const *heads, size_t columns);

/* Copies the cells, made printable. */
void text_table_row(struct text_table *table, const char *const *cells);

/* Prints to stdout and frees; `none` where there is no row. */
void text_table_print(struct text_table *table, const char *none);

/* "1.2s", "3m 5s", "2h 4m", "-" for a negative one. */
void text_span(char *text, size_t size, int64_t ms);

/* The number, "-" for a negative one. */
void text_number(char *text, size_t size, int64_t number);

#endif
