/* The host tier's table: a book in a file that the processes of this host share.
 *
 * Thread rules: one table and its book belong to one thread at a time; the caller's mutex guards
 * both. Processes are kept apart by the lock. */
#ifndef BROKER_HOST_TABLE_H
#define BROKER_HOST_TABLE_H

#include "broker/host_layout.h"
#include "broker/host_lock.h"
#include "broker/table.h"

/* Private. Zeroed memory is a closed table. It must not move while open. */
struct host_table {
    struct table table;
    struct host_lock lock;
    struct host_file *file; /* mapped; NULL: closed */
    int guard;              /* of the mapping: host_guard.h */
    uint64_t writes;        /* of the file, when the book was last brought up to date; 0: never */
    uint64_t head_selector, sight_selector;
    uint64_t floor_selectors[FLOORS_MAX];
    uint64_t selectors[BOOK_CELLS];
    bool made;        /* the book was initialised when it was opened */
    bool cut_short;   /* and there had been one before, of which somebody left less or nothing */
    uint32_t damaged; /* cells that could not be read; they are passed over */
};

struct host_table_options {
    uint64_t instance; /* for a book that is initialised now: drawn by the caller, not 0 */
    uint64_t epoch;    /* the epoch of such a book: above every one that was ever seen */
    uint32_t mode;     /* of a new file: 0600, or 0660 in a group's directory */
    bool create;       /* make the file where there is none */
};

/* The file's name in the runtime directory; name has HOST_TABLE_NAME_SIZE bytes. */
#define HOST_TABLE_SUFFIX    ".v1.book"
#define HOST_TABLE_NAME_SIZE (NAME_SIZE + sizeof HOST_TABLE_SUFFIX)
void host_table_name(const char *provider, char *name);

/* Somebody has initialised this book, in whatever boot: who opens it need not draw an epoch for it.
 * A file that was left half made, or cut short, does not count. */
bool host_table_was_initialised(int dir_fd, const char *provider);

/* Opens the book of a provider in the directory and brings `book` (initialised, of no instance) up
 * to date. One that was cut short is begun anew, as an empty one is: what was in it is gone, and
 * whoever has it open finds so at the next lock. LEASE_EUNKNOWN no such file and not to be created,
 * LEASE_ENOSPC, LEASE_EDAMAGED (not a book of this provider), LEASE_ELAYOUT (a book of another
 * build), LEASE_ELOCKED (not initialised, and somebody sits on the lock), and what host_lock_open
 * says. On failure the table is closed and the file as it was. */
int host_table_open(struct host_table *table, int dir_fd, const char *provider, struct book *book,
                    const struct host_table_options *options);

void host_table_close(struct host_table *table);

/* As close, but what is mapped stays, for threads that may still look at its words: the caller's to
 * give to host_table_unmap. NULL where the table was closed. */
struct host_file *host_table_detach(struct host_table *table);
void host_table_unmap(struct host_file *file);

bool host_table_is_open(const struct host_table *table);

/* The file is as long as it should be and what is mapped is the file: what is read through the table
 * is what others write. Cheap, and true only for the moment. */
bool host_table_is_whole(const struct host_table *table);

/* Grows with every commit, by whatever process. */
uint64_t host_table_version(const struct host_table *table);

/* The live words; borrowed as long as the table is open. */
struct host_words *host_table_words(struct host_table *table);

/* The group that the book's provider was declared to be in: name has NAME_SIZE bytes, "" none; the
 * limit is answered, 0 none. Setting it takes the lock for a moment, and does nothing where it is
 * set so already or the lock is not to be had. */
uint32_t host_table_group(const struct host_table *table, char *name);
void host_table_set_group(struct host_table *table, const char *name, uint32_t limit);

/* Copies the entries of the log that are whole and have seq > after, oldest first; entries has room
 * for LOG_ENTRIES. Returns how many. No lock is taken. */
uint32_t host_table_log(const struct host_table *table, uint64_t after, struct log_entry *entries);

#endif
