/* The log of a book: what happened of late, in a ring of fixed entries. */
#ifndef BROKER_LOG_H
#define BROKER_LOG_H

#include "broker/broker.h"

#define LOG_ENTRIES    512
#define LOG_HOST_SIZE  40
#define LOG_LABEL_SIZE 64

/* One entry; no padding. seq 0: never written. It is in use where check matches. */
struct log_entry {
    uint64_t seq;
    ns_t at_ns;
    struct lease_id lease;
    uint32_t pid;
    int32_t value;
    uint16_t kind;   /* enum note_kind */
    uint16_t reason; /* enum reason */
    uint32_t spare;
    char host[LOG_HOST_SIZE];
    char label[LOG_LABEL_SIZE];
    uint64_t check; /* log_check of the rest, so that a torn entry shows */
};

_Static_assert(sizeof(struct log_entry) == 8 * 5 + 4 * 4 + LOG_HOST_SIZE + LOG_LABEL_SIZE,
               "no padding in an entry of the log");

void log_entry_fill(struct log_entry *entry, const struct note *note, uint64_t seq, ns_t at);
bool log_entry_is_valid(const struct log_entry *entry);

/* Copies the whole entries of a ring with seq > after, oldest first; `last` is the newest seq. */
uint32_t log_copy(const struct log_entry *ring, uint64_t last, uint64_t after,
                  struct log_entry *entries);

/* The checksum of the project: 64 bits over words, fast, not against malice. size is a multiple
 * of 8. */
uint64_t words_check(const void *data, size_t size);

#endif
