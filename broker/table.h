/* Where a book is kept: the interface through which it is loaded and what changed is committed.
 *
 * The way of every change is begin, step, commit, end: between begin and end nobody else changes
 * the book, and nothing is awaited. Plain memory (table_memory.h) is the process tier, a file
 * (host_table.h) the host tier. */
#ifndef BROKER_TABLE_H
#define BROKER_TABLE_H

#include "broker/broker.h"

struct table;

struct table_ops {
    /* Keeps others out and brings the book up to date. 0, or an error: then nothing is locked and
     * the book is as it was. budget_ms < 0: as long as it takes. */
    int (*begin)(struct table *table, struct book *book, int64_t budget_ms);
    /* Keeps what is dirty and writes the notes to the log; the book is clean afterwards. */
    void (*commit)(struct table *table, struct book *book, const struct effects *effects, ns_t now);
    void (*end)(struct table *table);
    /* Brings the book up to date without keeping anybody out: what a look needs. */
    int (*look)(struct table *table, struct book *book);
};

struct table {
    const struct table_ops *ops;
};

static inline int table_begin(struct table *table, struct book *book, int64_t budget_ms)
{
    return table->ops->begin(table, book, budget_ms);
}

static inline void table_commit(struct table *table, struct book *book,
                                const struct effects *effects, ns_t now)
{
    table->ops->commit(table, book, effects, now);
}

static inline void table_end(struct table *table)
{
    table->ops->end(table);
}

static inline int table_look(struct table *table, struct book *book)
{
    return table->ops->look(table, book);
}

#endif
