#include "broker/log.h"

#include <string.h>

/* Four lanes keep the multiplier busy; the constants are odd and have bits everywhere. */
uint64_t words_check(const void *data, size_t size)
{
    const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t lane[4] = {k, k << 1 | 1, k ^ size, ~k};
    const unsigned char *at = data;
    for (size_t i = 0; i < size / 8; i++) {
        uint64_t word;
        memcpy(&word, at + 8 * i, 8);
        uint64_t *sum = &lane[i % 4];
        *sum = (*sum ^ word) * k;
        *sum ^= *sum >> 29;
    }
    uint64_t all = lane[0];
    for (int i = 1; i < 4; i++)
        all = ((all ^ lane[i]) * k) ^ (all >> 31);
    return all ? all : 1; /* 0 is what a file full of nothing shows */
}

void log_entry_fill(struct log_entry *entry, const struct note *note, uint64_t seq, ns_t at)
{
    memset(entry, 0, sizeof *entry);
    entry->seq = seq;
    entry->at_ns = at;
    entry->lease = note->lease;
    entry->pid = note->pid;
    entry->value = note->value;
    entry->kind = (uint16_t)note->kind;
    entry->reason = (uint16_t)note->reason;
    text_copy(entry->host, sizeof entry->host, note->host);
    text_copy(entry->label, sizeof entry->label, note->label);
    entry->check = words_check(entry, offsetof(struct log_entry, check));
}

bool log_entry_is_valid(const struct log_entry *entry)
{
    return entry->seq != 0 && entry->kind < NOTE_KINDS &&
           entry->check == words_check(entry, offsetof(struct log_entry, check)) &&
           memchr(entry->host, 0, sizeof entry->host) &&
           memchr(entry->label, 0, sizeof entry->label);
}

uint32_t log_copy(const struct log_entry *ring, uint64_t last, uint64_t after,
                  struct log_entry *entries)
{
    uint64_t first = last >= LOG_ENTRIES ? last - LOG_ENTRIES + 1 : 1;
    uint32_t count = 0;
    for (uint64_t seq = first > after ? first : after + 1; seq <= last && count < LOG_ENTRIES;
         seq++) {
        entries[count] = ring[seq % LOG_ENTRIES];
        if (log_entry_is_valid(&entries[count]) && entries[count].seq == seq)
            count++;
    }
    return count;
}
