#define _GNU_SOURCE
#include "tests/crash/witness.h"

#include <stdio.h>
#include <string.h>

#include "broker/error.h"

#define NEWCOMER_EPOCH                                                                             \
    (SCENE_EPOCH - 100) /* whoever comes next knows less: what is there decides */

const char *const kill_names[KILL_VERDICTS] = {"fine", "torn", "stuck", "unordered", "wedged"};

#define unless(condition, verdict)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (expected->loud)                                                                    \
                fprintf(stderr, "%s: %s: not so: %s\n", expected->scene->name,                     \
                        kill_names[verdict], #condition);                                          \
            return verdict;                                                                        \
        }                                                                                          \
    } while (0)

/* ---- cells ----------------------------------------------------------------------------------- */

void witness_order(const struct book *book, struct order *order)
{
    order->count = 0;
    if (book->head_dirty)
        order->cells[order->count++].kind = CELL_HEAD;
    if (book->sight_dirty)
        order->cells[order->count++].kind = CELL_SIGHT;
    for (uint32_t i = 0; i < book->dirty_floor_count; i++) {
        order->cells[order->count].kind = CELL_FLOOR;
        order->cells[order->count++].index = book->dirty_floors[i];
    }
    for (uint32_t i = 0; i < book->dirty_count; i++) {
        order->cells[order->count].kind = CELL_RECORD;
        order->cells[order->count++].index = book->dirty[i];
    }
}

static const void *cell(const struct book *book, enum cell_kind kind, uint32_t index, size_t *size)
{
    static const struct record never;
    switch (kind) {
    case CELL_HEAD: *size = sizeof book->head; return &book->head;
    case CELL_SIGHT: *size = sizeof book->sight; return &book->sight;
    case CELL_FLOOR: *size = sizeof book->floors.entries[0]; return &book->floors.entries[index];
    case CELL_RECORD: break;
    }
    *size = sizeof never;
    return index < book->used ? &book->records[index] : &never;
}

enum age { AGE_BOTH, AGE_OLD, AGE_NEW, AGE_NEITHER };

static enum age age_of(const struct expected *expected, const struct book *book,
                       enum cell_kind kind, uint32_t index)
{
    size_t size;
    const void *is = cell(book, kind, index, &size);
    bool old = memcmp(is, cell(&expected->before.seat.book, kind, index, &size), size) == 0;
    bool new = memcmp(is, cell(&expected->after.seat.book, kind, index, &size), size) == 0;
    return old && new ? AGE_BOTH : old ? AGE_OLD : new ? AGE_NEW : AGE_NEITHER;
}

static bool is_whole(const struct expected *expected, const struct book *book)
{
    bool whole = age_of(expected, book, CELL_HEAD, 0) != AGE_NEITHER &&
                 age_of(expected, book, CELL_SIGHT, 0) != AGE_NEITHER;
    for (uint32_t i = 0; i < FLOORS_MAX; i++)
        whole = whole && age_of(expected, book, CELL_FLOOR, i) != AGE_NEITHER;
    uint32_t used = expected->after.seat.book.used;
    for (uint32_t i = 0; i < used || i < book->used; i++)
        whole = whole && age_of(expected, book, CELL_RECORD, i) != AGE_NEITHER;
    return whole;
}

/* All that is new comes before all that is old; at the end nothing is old. */
static bool is_in_order(const struct expected *expected, const struct book *book, bool all)
{
    bool old = false;
    for (uint32_t i = 0; i < expected->order->count; i++) {
        enum age age =
            age_of(expected, book, expected->order->cells[i].kind, expected->order->cells[i].index);
        if (old && age == AGE_NEW)
            return false;
        old = old || age == AGE_OLD;
    }
    return !(all && old);
}

/* ---- the log --------------------------------------------------------------------------------- */

static bool was_written(const struct image *image, const struct log_entry *entry)
{
    for (uint32_t i = 0; i < image->entry_count; i++)
        if (memcmp(&image->entries[i], entry, sizeof *entry) == 0)
            return true;
    return false;
}

/* Every entry is one that was written; of the old ones at most those that had to make room are gone. */
static bool log_is_whole(const struct expected *expected, const struct host_table *table, bool all)
{
    static struct log_entry entries[LOG_ENTRIES];
    uint32_t count = host_table_log(table, 0, entries);
    uint32_t notes = 0;
    for (uint32_t i = 0; i < expected->after.entry_count; i++)
        notes += !was_written(&expected->before, &expected->after.entries[i]);
    bool full = expected->before.entry_count == LOG_ENTRIES;
    bool whole = count + (full ? notes : 0) >= expected->before.entry_count;
    for (uint32_t i = 0; i < count; i++)
        whole = whole && (was_written(&expected->before, &entries[i]) ||
                          was_written(&expected->after, &entries[i]));
    return whole && (!all || count == expected->after.entry_count);
}

void witness_image(const struct expected *expected, struct image *image)
{
    scene_open(expected->scene, &image->seat, expected->dir, SCENE_EPOCH);
    image->entry_count = host_table_log(&image->seat.table, 0, image->entries);
    host_table_close(&image->seat.table);
}

/* ---- looking --------------------------------------------------------------------------------- */

static enum verdict_of_kill look_at(const struct expected *expected, struct seat *seat, bool all)
{
    int error = table_begin(&seat->table.table, &seat->book, 0);
    unless(error != LEASE_ELOCKED, KILL_STUCK);
    unless(error == 0, KILL_TORN);
    unless(seat->table.damaged == 0, KILL_TORN);
    unless(is_whole(expected, &seat->book), KILL_TORN);
    unless(is_in_order(expected, &seat->book, all), KILL_UNORDERED);
    unless(log_is_whole(expected, &seat->table, all), KILL_TORN);
    book_check(&seat->book);
    table_end(&seat->table.table);
    return KILL_FINE;
}

enum verdict_of_kill witness_neighbour(const struct expected *expected, struct seat *seat, bool all)
{
    unless(table_look(&seat->table.table, &seat->book) == 0, KILL_TORN);
    unless(seat->table.damaged == 0, KILL_TORN);
    unless(is_whole(expected, &seat->book), KILL_TORN);
    return look_at(expected, seat, all);
}

/* ---- going on -------------------------------------------------------------------------------- */

static const struct lease_id nobody;

static void clear_away(const struct expected *expected, struct seat *seat)
{
    seat->now = expected->after.seat.now + 7200 * NS_PER_SEC;
    seat->drawn = 1000000;
    scene_dead(seat);
    if (expected->scene->probed)
        scene_read(seat, 0, 0);
    scene_after(seat, 3600000);
}

static enum verdict_of_kill go_on(const struct expected *expected, struct seat *seat)
{
    uint64_t tokens = seat->book.token_max, counters = seat->book.counter_max;
    uint64_t epoch = seat->book.head.epoch;
    clear_away(expected, seat);
    unless(seat->book.live_count == 0, KILL_WEDGED);
    if (expected->scene->probed)
        scene_read(seat, 0, 0);
    struct answer held = scene_ask(seat, VERB_ACQUIRE, nobody, 0);
    unless(held.verdict == ANSWER_GRANTED, KILL_WEDGED);
    unless(held.token > tokens && held.lease.counter > counters, KILL_WEDGED);
    unless(seat->book.head.epoch >= epoch, KILL_WEDGED);
    if (expected->scene->probed)
        scene_read(seat, 0, 0);
    struct answer went = scene_ask(seat, VERB_VERIFY, held.lease, 0);
    unless(went.verdict == ANSWER_GO && went.token >= held.token, KILL_WEDGED);
    unless(scene_ask(seat, VERB_RENEW, held.lease, 0).verdict == ANSWER_GRANTED, KILL_WEDGED);
    unless(scene_ask(seat, VERB_RELEASE, held.lease, 0).verdict == ANSWER_GRANTED, KILL_WEDGED);
    struct answer next = scene_ask(seat, VERB_ACQUIRE, nobody, 0);
    unless(next.verdict == ANSWER_GRANTED, KILL_WEDGED);
    unless(next.token > went.token && next.lease.counter > held.lease.counter, KILL_WEDGED);
    return KILL_FINE;
}

/* A book that was being opened is empty, and above what was there before. */
static enum verdict_of_kill look_at_new(const struct expected *expected, struct seat *seat)
{
    const struct book *old = &expected->before.seat.book, *book = &seat->book;
    int error = table_begin(&seat->table.table, &seat->book, 0);
    unless(error != LEASE_ELOCKED, KILL_STUCK);
    unless(error == 0 && seat->table.damaged == 0, KILL_TORN);
    unless(book->used == 0 && book->live_count == 0 && book->head.instance != 0, KILL_TORN);
    unless(book->head.instance != old->head.instance, KILL_WEDGED);
    unless(book->head.epoch > old->head.epoch, KILL_WEDGED);
    unless((book->head.epoch + 1) << TOKEN_BITS > old->token_max, KILL_WEDGED);
    static struct log_entry entries[LOG_ENTRIES];
    unless(host_table_log(&seat->table, 0, entries) == 0, KILL_TORN);
    table_end(&seat->table.table);
    return KILL_FINE;
}

enum verdict_of_kill witness_newcomer(const struct expected *expected, bool all)
{
    static struct seat seat;
    int error = scene_open(expected->scene, &seat, expected->dir, NEWCOMER_EPOCH);
    unless(error != LEASE_ELOCKED, KILL_STUCK);
    unless(error == 0, KILL_TORN);
    enum verdict_of_kill verdict =
        expected->scene->step ? look_at(expected, &seat, all) : look_at_new(expected, &seat);
    if (verdict == KILL_FINE)
        verdict = go_on(expected, &seat);
    host_table_close(&seat.table);
    return verdict;
}
