/* How a book lies in its file. Internal to the host tier.
 *
 * The file has a fixed size, is allocated before it is mapped, and is never grown, truncated or
 * unlinked. Whatever must be right lies in cells: two copies and one selector word. A writer fills
 * the copy that is not selected, seals it, then stores the selector once: a process may die between
 * any two instructions and nothing is torn. The selector is the version of the cell; its lowest
 * bit names the copy; 0 means never written. No counters, no free list, no pointers: what is in use
 * is found by looking. */
#ifndef BROKER_HOST_LAYOUT_H
#define BROKER_HOST_LAYOUT_H

#include "broker/book.h"
#include "broker/host_words.h"
#include "broker/log.h"

#define HOST_LAYOUT_VERSION 1
#define HOST_LAYOUT_MAGIC   UINT64_C(0x4c454153454b4f42) /* "BOKESAEL" read backwards */

#define HOST_COPY(type)                                                                            \
    struct {                                                                                       \
        type payload;                                                                              \
        uint64_t check;                                                                            \
    }

/* The group that the provider was declared to be in. */
struct host_group {
    char name[NAME_SIZE]; /* "" none */
    uint32_t limit;
    uint32_t spare;
};

struct host_header {
    _Atomic uint64_t magic; /* stored last: a file without it is not initialised */
    uint32_t version;
    uint32_t spare;
    uint64_t layout; /* host_layout_word(): sizes and limits, so that builds that differ refuse */
    uint64_t boot;   /* host_boot_hash of the boot that initialised it */
    char provider[NAME_SIZE];
    _Atomic uint64_t group_selector;
    HOST_COPY(struct host_group) group[2];
    /* Grows before the first store of every commit, also of one that is then cut off: whoever finds
     * it as it was knows that no cell changed. */
    _Atomic uint64_t writes;
    _Atomic uint32_t used;        /* no record cell from this one on was ever written */
    _Atomic uint32_t floors_used; /* the same of the floors */
    _Atomic uint64_t log_seq;
    struct host_words words;
};

struct host_file {
    union {
        struct host_header header;
        unsigned char page[4096];
    };
    _Atomic uint64_t head_selector;
    HOST_COPY(struct book_head) head[2];
    _Atomic uint64_t sight_selector;
    HOST_COPY(struct sight) sight[2];
    _Atomic uint64_t floor_selectors[FLOORS_MAX];
    HOST_COPY(struct floor) floors[FLOORS_MAX][2];
    _Atomic uint64_t selectors[BOOK_CELLS];
    HOST_COPY(struct record) records[BOOK_CELLS][2];
    struct log_entry log[LOG_ENTRIES];
};

_Static_assert(sizeof(struct host_header) <= 4096, "the header fits its page");
_Static_assert(sizeof(struct sight) % 8 == 0 && sizeof(struct floor) % 8 == 0 &&
                   sizeof(struct record) % 8 == 0 && sizeof(struct book_head) % 8 == 0 &&
                   sizeof(struct host_group) % 8 == 0,
               "payloads are sealed in words");

static inline uint64_t host_layout_word(void)
{
    const uint64_t facts[] = {sizeof(struct host_file),
                              sizeof(struct host_header),
                              sizeof(struct record),
                              sizeof(struct sight),
                              sizeof(struct floor),
                              BOOK_CELLS,
                              LOG_ENTRIES,
                              READING_MODELS,
                              RECORD_GONE,
                              1 /* byte order */};
    return words_check(facts, sizeof facts);
}

#endif
