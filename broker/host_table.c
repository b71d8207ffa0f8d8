#define _GNU_SOURCE
#include "broker/host_table.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_guard.h"
#include "broker/host_process.h"

#define OPEN_BUDGET_MS 100 /* for the initialising of a new book by somebody else */
#define READ_TRIES     8   /* of a cell that changes under us, without the lock */

/* ---- cells ----------------------------------------------------------------------------------- */

/* The seal covers the version too: a copy that is read while it is written does not pass. */
static uint64_t seal(const void *payload, size_t size, uint64_t version)
{
    return words_check(payload, size) + version * UINT64_C(0xd6e8feb86659fd93);
}

static unsigned char *copy_of(void *copies, size_t size, uint64_t version)
{
    return (unsigned char *)copies + (version & 1) * (size + sizeof(uint64_t));
}

/* Publish order: copy, seal, then the selector with release. The copy that is written is the one
 * that no selector names, so that a reader of the old one is not disturbed. */
static uint64_t cell_write(_Atomic uint64_t *selector, void *copies, const void *payload,
                           size_t size)
{
    uint64_t version = atomic_load_explicit(selector, memory_order_relaxed) + 1;
    version += version == 0; /* 0 means never written */
    unsigned char *to = copy_of(copies, size, version);
    uint64_t check = seal(payload, size, version);
    memcpy(to, payload, size);
    memcpy(to + size, &check, sizeof check);
    atomic_store_explicit(selector, version, memory_order_release);
    return version;
}

static bool copy_read(void *copies, void *payload, size_t size, uint64_t version)
{
    const unsigned char *from = copy_of(copies, size, version);
    uint64_t check;
    memcpy(payload, from, size);
    memcpy(&check, from + size, sizeof check);
    return check == seal(payload, size, version);
}

enum cell_state { CELL_SAME, CELL_NEW, CELL_BAD };

/* Reads a cell that is not the version `known`. Without the lock a writer may be at it: then the
 * version has moved on, and it is read again. */
static enum cell_state cell_read(_Atomic uint64_t *selector, void *copies, void *payload,
                                 size_t size, uint64_t *known)
{
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t version = atomic_load_explicit(selector, memory_order_acquire);
        if (version == *known)
            return CELL_SAME;
        if (copy_read(copies, payload, size, version)) {
            *known = version;
            return CELL_NEW;
        }
        atomic_thread_fence(memory_order_acquire);
    }
    return CELL_BAD;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void load_floors(struct host_table *table, struct book *book)
{
    struct host_file *file = table->file;
    uint32_t used = atomic_load_explicit(&file->header.floors_used, memory_order_acquire);
    for (uint32_t i = 0; i < used && i < FLOORS_MAX; i++) {
        struct floor floor;
        if (cell_read(&file->floor_selectors[i], file->floors[i], &floor, sizeof floor,
                      &table->floor_selectors[i]) == CELL_NEW &&
            ns_is_near(floor.used_ns))
            book->floors.entries[i] = floor;
    }
}

/* What counts on from it must not come round to 0. */
static bool leaves_room(const struct record *record)
{
    return record->counter_max <= COUNTER_MAX && record->place_max <= PLACE_HEARD_MAX;
}

static void load_records(struct host_table *table, struct book *book)
{
    struct host_file *file = table->file;
    uint32_t used = atomic_load_explicit(&file->header.used, memory_order_acquire);
    for (uint32_t i = 0; i < used && i < BOOK_CELLS; i++) {
        struct record record;
        enum cell_state state = cell_read(&file->selectors[i], file->records[i], &record,
                                          sizeof record, &table->selectors[i]);
        if (state == CELL_SAME)
            continue;
        if (state == CELL_NEW && book_record_fits(book, &record) && leaves_room(&record)) {
            book_adopt(book, i, &record);
            continue;
        }
        table->damaged++;
        table->selectors[i] = 0; /* a look may know an older head: it is read again */
    }
}

/* The file was initialised anew in its place: nothing of what was read before is in it. */
static void forget_book(struct host_table *table, struct book *book)
{
    struct book_settings settings = book->settings;
    char provider[NAME_SIZE];
    memcpy(provider, book->provider, sizeof provider);
    book_init(book, provider, &settings);
    table->sight_selector = 0;
    memset(table->floor_selectors, 0, sizeof table->floor_selectors);
    memset(table->selectors, 0, sizeof table->selectors);
}

/* One that could have been written, by whoever wrote the one that is known. Epochs only grow, but that of
 * a book that becomes a copy falls to its owner's; below that of a token that was granted none falls. */
static bool head_is_valid(const struct book_head *head, const struct book *known)
{
    return head->instance != 0 && head->epoch <= EPOCH_MAX &&
           (head->instance != known->head.instance ||
            head->epoch >= known->token_max >> TOKEN_BITS);
}

/* LEASE_EDAMAGED: whose book it is cannot be read, so nothing else in it may be believed. */
static int load(struct host_table *table, struct book *book)
{
    struct host_file *file = table->file;
    struct book_head head;
    enum cell_state state =
        cell_read(&file->head_selector, file->head, &head, sizeof head, &table->head_selector);
    if (state == CELL_BAD || (state == CELL_NEW && !head_is_valid(&head, book))) {
        table->head_selector = 0;
        return LEASE_EDAMAGED;
    }
    if (state == CELL_NEW) {
        if (book->head.instance != 0 && book->head.instance != head.instance)
            forget_book(table, book);
        book->head = head;
    }
    struct sight sight;
    state =
        cell_read(&file->sight_selector, file->sight, &sight, sizeof sight, &table->sight_selector);
    if (state == CELL_NEW && book_sight_is_valid(&sight))
        book->sight = sight;
    load_floors(table, book);
    load_records(table, book);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int begin(struct table *base, struct book *book, int64_t budget_ms)
{
    struct host_table *table = (struct host_table *)base;
    int error = host_lock_acquire(&table->lock, HOST_LOCK_EXCLUSIVE, (int)budget_ms);
    if (error < 0)
        return error;
    atomic_fetch_add_explicit(&table->file->header.words.turns, 1, memory_order_relaxed);
    uint64_t writes = atomic_load_explicit(&table->file->header.writes, memory_order_acquire);
    if (writes != table->writes) {
        error = load(table, book);
        table->writes = error < 0 ? 0 : writes;
    }
    if (host_guard_was_hit(table->guard))
        error = LEASE_EDAMAGED; /* what was read may be zeros, and what is written nobody sees */
    if (error < 0)
        host_lock_release(&table->lock);
    return error;
}

/* A look may see half of a commit, which is as good as any moment; what it does not see it has not
 * remembered as seen, so that the next begin looks at every cell again. */
static int look(struct table *base, struct book *book)
{
    struct host_table *table = (struct host_table *)base;
    struct stat status;
    if (fstat((int)host_lock_descriptor(&table->lock), &status) < 0 || status.st_nlink == 0)
        return LEASE_EVANISHED;
    if ((uint64_t)status.st_size < sizeof(struct host_file))
        return LEASE_EDAMAGED;
    if (atomic_load_explicit(&table->file->header.writes, memory_order_acquire) == table->writes)
        return host_guard_was_hit(table->guard) ? LEASE_EDAMAGED : 0;
    table->writes = 0;
    int error = load(table, book);
    return host_guard_was_hit(table->guard) ? LEASE_EDAMAGED : error;
}

static void write_log(struct host_file *file, const struct effects *effects, ns_t now)
{
    uint64_t seq = atomic_load_explicit(&file->header.log_seq, memory_order_relaxed);
    for (uint32_t i = 0; i < effects->note_count; i++) {
        seq++;
        log_entry_fill(&file->log[seq % LOG_ENTRIES], &effects->notes[i], seq, now);
    }
    atomic_store_explicit(&file->header.log_seq, seq, memory_order_release);
}

static void raise_to(_Atomic uint32_t *word, uint32_t value)
{
    if (atomic_load_explicit(word, memory_order_relaxed) < value)
        atomic_store_explicit(word, value, memory_order_release);
}

static void write_record(struct host_table *table, const struct book *book, uint32_t index)
{
    struct host_file *file = table->file;
    raise_to(&file->header.used, index + 1);
    table->selectors[index] = cell_write(&file->selectors[index], file->records[index],
                                         &book->records[index], sizeof(struct record));
}

static void write_floor(struct host_table *table, const struct book *book, uint32_t index)
{
    struct host_file *file = table->file;
    raise_to(&file->header.floors_used, index + 1);
    table->floor_selectors[index] = cell_write(&file->floor_selectors[index], file->floors[index],
                                               &book->floors.entries[index], sizeof(struct floor));
}

static void write_sight(struct host_table *table, const struct book *book)
{
    struct host_file *file = table->file;
    table->sight_selector =
        cell_write(&file->sight_selector, file->sight, &book->sight, sizeof book->sight);
}

static void commit(struct table *base, struct book *book, const struct effects *effects, ns_t now)
{
    struct host_table *table = (struct host_table *)base;
    struct host_file *file = table->file;
    if (book_is_dirty(book))
        table->writes =
            atomic_fetch_add_explicit(&file->header.writes, 1, memory_order_acq_rel) + 1;
    if (book->head_dirty)
        table->head_selector =
            cell_write(&file->head_selector, file->head, &book->head, sizeof book->head);
    if (book->sight_dirty && !book->sight_last)
        write_sight(table, book);
    for (uint32_t i = 0; i < book->dirty_floor_count; i++)
        write_floor(table, book, book->dirty_floors[i]);
    for (uint32_t i = 0; i < book->dirty_count; i++)
        write_record(table, book, book->dirty[i]);
    if (book->sight_dirty && book->sight_last)
        write_sight(table, book);
    write_log(file, effects, now);
    book_clean(book);
}

static void end(struct table *base)
{
    struct host_table *table = (struct host_table *)base;
    host_lock_release(&table->lock);
}

/* ---- opening --------------------------------------------------------------------------------- */

void host_table_name(const char *provider, char *name)
{
    assert(name_is_valid(provider));
    snprintf(name, HOST_TABLE_NAME_SIZE, "%s%s", provider, HOST_TABLE_SUFFIX);
}

bool host_table_was_initialised(int dir_fd, const char *provider)
{
    char name[HOST_TABLE_NAME_SIZE];
    uint64_t magic = 0;
    struct stat status;
    host_table_name(provider, name);
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool was = fd >= 0 && pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic != 0 &&
               fstat(fd, &status) == 0 && (uint64_t)status.st_size == sizeof(struct host_file);
    if (fd >= 0)
        close(fd);
    return was;
}

/* Mapped through a descriptor of its own: a mapping keeps its open file alive in a forked child,
 * and with it a lock that was taken through the same one. */
static int map_file(struct host_table *table, int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat ours, locks;
    if (fd < 0)
        return errno == EACCES ? LEASE_EPERM : LEASE_EVANISHED;
    int error = 0;
    if (fstat(fd, &ours) < 0 || fstat((int)host_lock_descriptor(&table->lock), &locks) < 0)
        error = LEASE_EIO;
    else if (ours.st_ino != locks.st_ino || ours.st_dev != locks.st_dev)
        error = LEASE_EVANISHED;
    else if ((uint64_t)ours.st_size != sizeof(struct host_file))
        error = LEASE_EDAMAGED;
    void *at = MAP_FAILED;
    if (error == 0)
        at = mmap(NULL, sizeof(struct host_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (error < 0)
        return error;
    if (at == MAP_FAILED)
        return LEASE_ENOMEM;
    table->file = at;
    table->guard = host_guard_add(at, sizeof(struct host_file));
    return 0;
}

static uint64_t this_boot(void)
{
    struct host_process self;
    host_process_self(&self);
    return host_boot_hash(self.boot_id);
}

/* 1: initialised in this boot, 0: to be initialised, or an error. */
static int is_ready(const struct host_table *table, const char *provider)
{
    const struct host_header *header = &table->file->header;
    uint64_t magic = atomic_load_explicit(&header->magic, memory_order_acquire);
    if (magic == 0)
        return 0;
    if (magic != HOST_LAYOUT_MAGIC)
        return LEASE_EDAMAGED;
    if (header->version != HOST_LAYOUT_VERSION || header->layout != host_layout_word())
        return LEASE_ELAYOUT;
    if (strncmp(header->provider, provider, NAME_SIZE) != 0)
        return LEASE_EDAMAGED;
    return header->boot == this_boot();
}

/* Deadlines of another boot mean nothing: the book begins afresh, above its old epoch. The head is not
 * cleared but written as ever, one copy beside the other: whoever dies here leaves an epoch behind
 * that the next one goes above. */
static void initialise(struct host_table *table, struct book *book, const char *provider,
                       const struct host_table_options *options)
{
    struct host_file *file = table->file;
    struct book_head old = {0, 0};
    uint64_t none = 0, epoch = options->epoch;
    bool known = cell_read(&file->head_selector, file->head, &old, sizeof old, &none) == CELL_NEW;
    if (known && old.epoch >= epoch && old.epoch < EPOCH_MAX)
        epoch = old.epoch + 1;
    atomic_store_explicit(&file->header.magic, 0, memory_order_release);
    memset(file->page, 0, sizeof file->page);
    size_t behind = offsetof(struct host_file, sight_selector);
    memset((unsigned char *)file + behind, 0, sizeof *file - behind);
    file->header.version = HOST_LAYOUT_VERSION;
    file->header.layout = host_layout_word();
    file->header.boot = this_boot();
    text_copy(file->header.provider, sizeof file->header.provider, provider);
    /* Versions go on from a drawn number: whoever had read the book that was here before must not take
     * the first of this one for what it knows. */
    atomic_store_explicit(&file->header.writes, options->instance >> 32, memory_order_relaxed);
    if (!known)
        atomic_store_explicit(&file->head_selector, options->instance, memory_order_relaxed);
    book_found(book, options->instance, epoch);
    static const struct effects none_happened;
    commit(&table->table, book, &none_happened, 0);
    atomic_store_explicit(&file->header.magic, HOST_LAYOUT_MAGIC, memory_order_release);
}

/* An empty file is one that was just made, or one that somebody cut short: that was written since
 * it was made. False where the file system does not tell. */
static bool was_written(int fd)
{
#ifdef STATX_BTIME
    struct statx facts;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME | STATX_MTIME, &facts) == 0 &&
        (facts.stx_mask & STATX_BTIME))
        return facts.stx_btime.tv_sec != facts.stx_mtime.tv_sec ||
               facts.stx_btime.tv_nsec != facts.stx_mtime.tv_nsec;
#endif
    (void)fd;
    return false;
}

/* The bytes of a file that is too short, as far as they go, begin a book of this provider and build. */
static bool begins_our_book(const struct host_header *found, size_t size, const char *provider)
{
    struct host_header ours;
    const size_t facts = offsetof(struct host_header, boot);
    const size_t name = offsetof(struct host_header, provider);
    memset(&ours, 0, sizeof ours);
    ours.magic = HOST_LAYOUT_MAGIC;
    ours.version = HOST_LAYOUT_VERSION;
    ours.layout = host_layout_word();
    text_copy(ours.provider, sizeof ours.provider, provider);
    size_t named = size > name ? size - name : 0;
    return memcmp(found, &ours, size < facts ? size : facts) == 0 &&
           memcmp(found->provider, ours.provider, named < NAME_SIZE ? named : NAME_SIZE) == 0;
}

/* What there is of a file that is shorter than a book: nothing, the beginnings of one that was never
 * initialised, or what somebody left of one; that is initialised like the others, for nobody would
 * meet in it any more. Anything else is not ours to mend. */
static int take_short_file(struct host_table *table, int fd, const char *provider)
{
    struct host_header found;
    static const uint64_t none = 0;
    memset(&found, 0, sizeof found);
    ssize_t size = pread(fd, &found, sizeof found, 0);
    if (size < 0)
        return LEASE_EIO;
    if (size == 0)
        table->cut_short = was_written(fd);
    if (found.magic == 0)
        return 0;
    if (!begins_our_book(&found, (size_t)size, provider))
        return LEASE_EDAMAGED;
    table->cut_short = true;
    return pwrite(fd, &none, sizeof none, 0) == sizeof none ? 0 : LEASE_EIO;
}

/* Allocated before it is mapped: a full disk is an error here and not a signal later. */
static int allocate(struct host_table *table, const char *provider)
{
    int fd = (int)host_lock_descriptor(&table->lock);
    struct stat status;
    if (fstat(fd, &status) < 0)
        return LEASE_EIO;
    if ((uint64_t)status.st_size == sizeof(struct host_file))
        return 0;
    int error = (uint64_t)status.st_size < sizeof(struct host_file)
                    ? take_short_file(table, fd, provider)
                    : LEASE_EDAMAGED;
    if (error < 0)
        return error;
    error = posix_fallocate(fd, 0, sizeof(struct host_file));
    if (error == ENOSPC || error == EFBIG || error == EDQUOT)
        return LEASE_ENOSPC;
    return error == 0 ? 0 : LEASE_EIO;
}

/* Whoever finds the book empty under the exclusive lock initialises it, everyone else checks it. */
static int map_and_check(struct host_table *table, int dir_fd, const char *name, struct book *book,
                         const struct host_table_options *options)
{
    const char *provider = book->provider;
    int error = map_file(table, dir_fd, name);
    int ready = error < 0 ? 0 : is_ready(table, provider);
    if (ready != 0)
        return ready < 0 ? ready : 0;
    if (error < 0 && error != LEASE_EDAMAGED)
        return error;

    error = host_lock_acquire(&table->lock, HOST_LOCK_EXCLUSIVE, OPEN_BUDGET_MS);
    if (error < 0)
        return error;
    error = allocate(table, provider);
    if (error == 0 && !table->file)
        error = map_file(table, dir_fd, name);
    if (error == 0)
        error = is_ready(table, provider);
    if (error == 0) {
        initialise(table, book, provider, options);
        table->made = true;
    }
    host_lock_release(&table->lock);
    return error < 0 ? error : 0;
}

int host_table_open(struct host_table *table, int dir_fd, const char *provider, struct book *book,
                    const struct host_table_options *options)
{
    static const struct table_ops ops = {begin, commit, end, look};
    assert(options->instance != 0 && book->head.instance == 0);
    memset(table, 0, sizeof *table);
    table->table.ops = &ops;
    char name[HOST_TABLE_NAME_SIZE];
    host_table_name(provider, name);
    int error = host_lock_open(&table->lock, dir_fd, name, options->create ? HOST_LOCK_CREATE : 0,
                               options->mode);
    if (error == LEASE_EABSENT)
        return LEASE_EUNKNOWN;
    if (error < 0)
        return error;
    error = map_and_check(table, dir_fd, name, book, options);
    if (error < 0) {
        host_table_close(table);
        return error;
    }
    host_lock_expect(&table->lock, sizeof(struct host_file));
    host_lock_watch(&table->lock, &table->file->header.words.turns);
    table->writes = 0;
    error = load(table, book);
    if (error < 0)
        host_table_close(table);
    return error;
}

struct host_file *host_table_detach(struct host_table *table)
{
    struct host_file *file = table->file;
    host_lock_close(&table->lock);
    table->file = NULL;
    return file;
}

void host_table_unmap(struct host_file *file)
{
    if (!file)
        return;
    host_guard_drop(file);
    munmap(file, sizeof *file);
}

void host_table_close(struct host_table *table)
{
    host_table_unmap(host_table_detach(table));
}

bool host_table_is_whole(const struct host_table *table)
{
    return host_lock_is_whole(&table->lock) && !host_guard_was_hit(table->guard);
}

bool host_table_is_open(const struct host_table *table)
{
    return table->file != NULL;
}

uint64_t host_table_version(const struct host_table *table)
{
    if (!host_table_is_whole(table))
        return table->writes;
    return atomic_load_explicit(&table->file->header.writes, memory_order_relaxed);
}

uint32_t host_table_group(const struct host_table *table, char *name)
{
    struct host_header *header = &table->file->header;
    struct host_group group;
    uint64_t none = 0;
    bool told = cell_read(&header->group_selector, header->group, &group, sizeof group, &none) ==
                    CELL_NEW &&
                memchr(group.name, 0, NAME_SIZE) && name_is_valid(group.name);
    text_copy(name, NAME_SIZE, told ? group.name : "");
    return told ? group.limit : 0;
}

void host_table_set_group(struct host_table *table, const char *name, uint32_t limit)
{
    struct host_header *header = &table->file->header;
    struct host_group group = {.limit = limit};
    char known[NAME_SIZE];
    if (host_table_group(table, known) == limit && strcmp(known, name) == 0)
        return;
    text_copy(group.name, sizeof group.name, name);
    if (host_lock_acquire(&table->lock, HOST_LOCK_EXCLUSIVE, OPEN_BUDGET_MS) < 0)
        return;
    cell_write(&header->group_selector, header->group, &group, sizeof group);
    host_lock_release(&table->lock);
}

struct host_words *host_table_words(struct host_table *table)
{
    return &table->file->header.words;
}

uint32_t host_table_log(const struct host_table *table, uint64_t after, struct log_entry *entries)
{
    const struct host_file *file = table->file;
    if (!host_table_is_whole(table))
        return 0;
    uint64_t last = atomic_load_explicit(&file->header.log_seq, memory_order_acquire);
    return log_copy(file->log, last, after, entries);
}
