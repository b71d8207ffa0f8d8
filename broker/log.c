#include "broker/log.h"

#include <string.h>

/* The constant is odd and has bits everywhere. */
#define CHECK_FACTOR UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t check_word(uint64_t sum, const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    sum = (sum ^ word) * CHECK_FACTOR;
    return sum ^ sum >> 29;
}

/* Four lanes keep the multiplier busy: word i goes into lane i % 4. */
uint64_t words_check(const void *data, size_t size)
{
    const uint64_t k = CHECK_FACTOR;
    uint64_t lane[4] = {k, k << 1 | 1, k ^ size, ~k};
    const unsigned char *at = data;
    size_t words = size / 8;
    for (; words >= 4; words -= 4, at += 32) {
        lane[0] = check_word(lane[0], at);
        lane[1] = check_word(lane[1], at + 8);
        lane[2] = check_word(lane[2], at + 16);
        lane[3] = check_word(lane[3], at + 24);
    }
    for (size_t i = 0; i < words; i++)
        lane[i] = check_word(lane[i], at + 8 * i);
    uint64_t all = lane[0];
    for (int i = 1; i < 4; i++)
        all = ((all ^ lane[i]) * k) ^ (all >> 31);
    return all ? all : 1; /* 0 is what a file full of nothing shows */
}

void log_entry_fill(struct log_entry *entry, const struct note *note, uint64_t seq, ns_t at)
{
    entry->seq = seq;
    entry->at_ns = at;
    entry->lease = note->lease;
    entry->pid = note->pid;
    entry->value = note->value;
    entry->kind = (uint16_t)note->kind;
    entry->reason = (uint16_t)note->reason;
    entry->spare = 0;
    text_copy(entry->host, sizeof entry->host, note->host);
    text_copy(entry->label, sizeof entry->label, note->label);
    entry->check = words_check(entry, offsetof(struct log_entry, check));
}

bool log_entry_is_valid(const struct log_entry *entry)
{
    return entry->seq != 0 && entry->kind < NOTE_KINDS && ns_is_near(entry->at_ns) &&
           entry->check == words_check(entry, offsetof(struct log_entry, check)) &&
           memchr(entry->host, 0, sizeof entry->host) &&
           memchr(entry->label, 0, sizeof entry->label);
}

uint32_t log_copy(const struct log_entry *ring, uint64_t last, uint64_t after,
                  struct log_entry *entries)
{
    uint64_t oldest = last >= LOG_ENTRIES ? last - LOG_ENTRIES + 1 : 1;
    uint64_t first = after < oldest ? oldest : after + 1;
    uint32_t count = 0;
    if (after >= last)
        return 0;
    for (uint64_t k = 0; k <= last - first; k++) { /* at most LOG_ENTRIES, whatever `last` is */
        entries[count] = ring[(first + k) % LOG_ENTRIES];
        if (log_entry_is_valid(&entries[count]) && entries[count].seq == first + k)
            count++;
    }
    return count;
}
