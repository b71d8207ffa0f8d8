#define _GNU_SOURCE
#include "tests/crash/sins.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "broker/error.h"
#include "tests/crash/scene.h"

static struct table_ops sinful;
static const struct table_ops *honest;
static unsigned sinned;
static int lock_dir;

/* As host_table.c seals its copies. */
static uint64_t seal(const void *payload, size_t size, uint64_t version)
{
    return words_check(payload, size) + version * UINT64_C(0xd6e8feb86659fd93);
}

/* The copy that readers are sent to is the one that is written. */
static void write_in_place(struct host_table *table, const struct book *book, uint32_t index)
{
    struct host_file *file = table->file;
    uint64_t version = atomic_load(&file->selectors[index]) + 2;
    if (atomic_load(&file->header.used) < index + 1)
        atomic_store(&file->header.used, index + 1);
    file->records[index][version & 1].payload = book->records[index];
    file->records[index][version & 1].check =
        seal(&book->records[index], sizeof book->records[index], version);
    atomic_store(&file->selectors[index], version);
    table->selectors[index] = version;
}

static void commit(struct table *base, struct book *book, const struct effects *effects, ns_t now)
{
    struct host_table *table = (struct host_table *)base;
    if (sinned & SIN_IN_PLACE) {
        atomic_fetch_add(&table->file->header.writes, 1);
        for (uint32_t i = 0; i < book->dirty_count; i++)
            write_in_place(table, book, book->dirty[i]);
        book->dirty_count = 0;
        memset(book->is_dirty, 0, sizeof book->is_dirty);
    }
    if (sinned & SIN_RECORDS_FIRST) {
        static const struct effects none;
        bool sight = book->sight_dirty, head = book->head_dirty;
        book->sight_dirty = book->head_dirty = false;
        honest->commit(base, book, &none, now);
        book->sight_dirty = sight;
        book->head_dirty = head;
    }
    honest->commit(base, book, effects, now);
}

static int begin(struct table *base, struct book *book, int64_t budget_ms)
{
    if (sinned & SIN_LOCK_FILE) {
        int fd = openat(lock_dir, "z4.lock", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0)
            return LEASE_ELOCKED;
        close(fd);
    }
    return honest->begin(base, book, budget_ms);
}

static void end(struct table *base)
{
    honest->end(base);
    if (sinned & SIN_LOCK_FILE)
        unlinkat(lock_dir, "z4.lock", 0);
}

void sins_commit(struct host_table *table, unsigned sins, int dir)
{
    if (sins == 0)
        return;
    if (table->table.ops != &sinful)
        honest = table->table.ops;
    sinned = sins;
    lock_dir = dir;
    sinful = *honest;
    sinful.begin = begin;
    sinful.end = end;
    sinful.commit = commit;
    table->table.ops = &sinful;
}
