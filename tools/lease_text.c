#define _GNU_SOURCE
#include "tools/lease_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/record.h"

#define CELL_SIZE 512

void text_table_begin(struct text_table *table, const char *const *heads, size_t columns)
{
    *table = (struct text_table){.heads = heads, .columns = columns};
}

static void free_cells(char **cells, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(cells[i]);
}

void text_table_row(struct text_table *table, const char *const *cells)
{
    size_t used = table->rows * table->columns;
    char **grown = realloc(table->cells, (used + table->columns) * sizeof *grown);
    if (!grown) {
        table->missing++;
        return;
    }
    table->cells = grown;
    for (size_t i = 0; i < table->columns; i++) {
        char cell[CELL_SIZE];
        text_copy(cell, sizeof cell, cells[i]);
        grown[used + i] = strdup(cell);
        if (!grown[used + i]) {
            free_cells(grown + used, i);
            table->missing++;
            return;
        }
    }
    table->rows++;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static size_t width(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        if (((unsigned char)*text & 0xc0) != 0x80)
            count++;
    return count;
}

static void print_row(const char *const *cells, const size_t *widths, size_t columns)
{
    size_t last = columns; /* no blanks at a line's end */
    while (last > 0 && !cells[last - 1][0])
        last--;
    for (size_t i = 0; i < last; i++) {
        fputs(cells[i], stdout);
        for (size_t k = width(cells[i]); i + 1 < last && k < widths[i] + 2; k++)
            putchar(' ');
    }
    putchar('\n');
}

void text_table_print(struct text_table *table, const char *none)
{
    size_t widths[TEXT_COLUMNS_MAX] = {0};
    if (table->rows == 0)
        puts(none);
    for (size_t i = 0; i < table->columns; i++) {
        widths[i] = width(table->heads[i]);
        for (size_t row = 0; row < table->rows; row++) {
            size_t needed = width(table->cells[row * table->columns + i]);
            if (needed > widths[i])
                widths[i] = needed;
        }
    }
    if (table->rows > 0)
        print_row(table->heads, widths, table->columns);
    for (size_t row = 0; row < table->rows; row++)
        print_row((const char *const *)table->cells + row * table->columns, widths, table->columns);
    if (table->missing > 0)
        printf("and %zu more, for which there is no memory\n", table->missing);
    free_cells(table->cells, table->rows * table->columns);
    free(table->cells);
}

void text_span(char *text, size_t size, int64_t ms)
{
    long long seconds = ms / 1000;
    if (ms < 0)
        snprintf(text, size, "-");
    else if (seconds < 60)
        snprintf(text, size, "%.1fs", (double)ms / 1000);
    else if (seconds < 3600)
        snprintf(text, size, "%lldm %llds", seconds / 60, seconds % 60);
    else
        snprintf(text, size, "%lldh %lldm", seconds / 3600, seconds / 60 % 60);
}

void text_number(char *text, size_t size, int64_t number)
{
    if (number < 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%lld", (long long)number);
}
