#include "broker/table_memory.h"

static int begin(struct table *table, struct book *book, int64_t budget_ms)
{
    (void)table;
    (void)book;
    (void)budget_ms;
    return 0;
}

static void commit(struct table *table, struct book *book, const struct effects *effects, ns_t now)
{
    struct table_memory *memory = (struct table_memory *)table;
    for (uint32_t i = 0; i < effects->note_count; i++) {
        uint64_t seq = ++memory->log_seq;
        log_entry_fill(&memory->log[seq % LOG_ENTRIES], &effects->notes[i], seq, now);
    }
    book_clean(book);
}

static void end(struct table *table)
{
    (void)table;
}

static int look(struct table *table, struct book *book)
{
    (void)table;
    (void)book;
    return 0;
}

void table_memory_init(struct table_memory *memory)
{
    static const struct table_ops ops = {begin, commit, end, look};
    *memory = (struct table_memory){.table = {&ops}};
}

uint32_t table_memory_log(const struct table_memory *memory, uint64_t after,
                          struct log_entry *entries)
{
    return log_copy(memory->log, memory->log_seq, after, entries);
}
