/* The process tier: a book that only this process knows. */
#ifndef BROKER_TABLE_MEMORY_H
#define BROKER_TABLE_MEMORY_H

#include "broker/log.h"
#include "broker/table.h"

struct table_memory {
    struct table table;
    uint64_t log_seq;
    struct log_entry log[LOG_ENTRIES];
};

/* The book itself is the memory: begin and end keep nobody out, the caller does. */
void table_memory_init(struct table_memory *memory);

/* As host_table_log. */
uint32_t table_memory_log(const struct table_memory *memory, uint64_t after,
                          struct log_entry *entries);

#endif
