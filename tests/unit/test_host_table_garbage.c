/* The host tier's table: what garbage in its file does. */
#define _GNU_SOURCE

#include "tests/unit/host_table_room.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "broker/host_guard.h"

static void write_file(struct room *room, const char *bytes, size_t size)
{
    int fd = openat(room->dir, "z4.v1.book", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

static void what_is_no_book_is_refused_and_left_alone(void **state)
{
    struct room *room = *state;
    write_file(room, "hello, I am somebody's notes", 28);
    assert_int_equal(open_seat(room, room->a, true), LEASE_EDAMAGED);
    struct stat status;
    assert_int_equal(fstatat(room->dir, "z4.v1.book", &status, 0), 0);
    assert_int_equal(status.st_size, 28);
}

static void a_book_of_another_build_is_refused(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct host_file *file = map(room, "z4.v1.book");
    file->header.layout++;
    assert_int_equal(open_seat(room, room->b, true), LEASE_ELAYOUT);
    file->header.layout--;
    file->header.version++;
    assert_int_equal(open_seat(room, room->b, true), LEASE_ELAYOUT);
    munmap(file, sizeof *file);
}

static void a_book_of_another_provider_is_refused(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct host_file *file = map(room, "z4.v1.book");
    memcpy(file->header.provider, "m5", 3);
    assert_int_equal(open_seat(room, room->b, true), LEASE_EDAMAGED);
    munmap(file, sizeof *file);
}

static void cut(struct room *room, off_t size)
{
    int fd = openat(room->dir, "z4.v1.book", O_RDWR | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

/* Refused at the next lock to who has it open; begun anew by whoever opens it, wherever it was cut. */
static void a_book_cut_short_is_begun_anew(void **state)
{
    struct room *room = *state;
    static const off_t sizes[] = {1,  7,   8,    12,   24,
                                  33, 100, 4095, 4096, sizeof(struct host_file) - 1};
    assert_int_equal(open_seat(room, room->a, true), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        acquire(room->a);
        cut(room, sizes[i]);
        assert_false(host_table_was_initialised(room->dir, "z4"));
        room->a->table.lock.looked_ns = 0; /* it looks at the file once in a tick of the clock */
        assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 100), LEASE_EDAMAGED);
        assert_int_equal(table_look(&room->a->table.table, &room->a->book), LEASE_EDAMAGED);
        assert_int_equal(open_seat(room, room->b, true), 0);
        assert_true(room->b->table.made && room->b->table.cut_short);
        assert_int_equal(room->b->book.live_count, 0);
        host_table_close(&room->a->table);
        assert_int_equal(open_seat(room, room->a, false), 0); /* and both meet in it */
        assert_false(room->a->table.made || room->a->table.cut_short);
        assert_int_equal(room->a->book.head.instance, room->b->book.head.instance);
        host_table_close(&room->b->table);
    }
}

static void one_of_others_cut_short_is_left_alone(void **state)
{
    struct room *room = *state;
    struct stat status;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct host_file *file = map(room, "z4.v1.book");
    memcpy(file->header.provider, "m5", 3);
    cut(room, 100);
    assert_int_equal(open_seat(room, room->b, true), LEASE_EDAMAGED);
    memcpy(file->header.provider, "z4", 3);
    file->header.layout++;
    assert_int_equal(open_seat(room, room->b, true), LEASE_EDAMAGED);
    munmap(file, sizeof *file);
    assert_int_equal(fstatat(room->dir, "z4.v1.book", &status, 0), 0);
    assert_int_equal(status.st_size, 100);
}

/* Cut behind the look at its size, which is once in a tick of the clock: what is read then is no book. */
static void a_book_cut_short_under_who_uses_it_is_damaged(void **state)
{
    struct room *room = *state;
    assert_int_equal(host_guard_install(), 0);
    assert_int_equal(open_seat(room, room->a, true), 0);
    acquire(room->a);
    assert_true(host_table_is_whole(&room->a->table));
    int fd = openat(room->dir, "z4.v1.book", O_RDWR | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(ftruncate(fd, sizeof(struct host_file)), 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(atomic_load(&host_table_words(&room->a->table)->change), 0); /* the touch */
    assert_int_equal(ftruncate(fd, sizeof(struct host_file)), 0);
    close(fd);
    /* the size is right again, and the file is not what is mapped */
    assert_false(host_table_is_whole(&room->a->table));
    assert_int_equal(table_look(&room->a->table.table, &room->a->book), LEASE_EDAMAGED);
    assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 100), LEASE_EDAMAGED);
    assert_false(host_lock_held(&room->a->table.lock));
}

/* Every word of a record's cell spoilt in turn: the record is passed over, or read from the copy
 * that is whole; what is read is valid. */
static void a_spoilt_record_is_never_believed(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct answer granted = acquire(room->a);
    struct host_file *file = map(room, "z4.v1.book");
    unsigned live = (unsigned)(atomic_load(&file->selectors[granted.cell]) & 1);
    unsigned char *copy = (unsigned char *)&file->records[granted.cell][live];
    for (size_t i = 0; i < sizeof file->records[0][0]; i++) {
        copy[i] ^= 0x41;
        assert_int_equal(open_seat(room, room->b, false), 0);
        assert_int_equal(room->b->book.live_count, 0);
        assert_int_equal(room->b->table.damaged, 1);
        host_table_close(&room->b->table);
        copy[i] ^= 0x41;
    }
    assert_int_equal(open_seat(room, room->b, false), 0);
    assert_int_equal(room->b->book.live_count, 1);
    munmap(file, sizeof *file);
}

/* A sealed record whose content cannot be is garbage that somebody took care to write. */
static void a_sealed_record_out_of_bounds_is_never_believed(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct answer granted = acquire(room->a);
    room->a->book.records[granted.cell].units = 0;
    room->a->book.records[granted.cell].state = RECORD_DISPATCHED;
    book_touch(&room->a->book, &room->a->book.records[granted.cell]);
    table_commit(&room->a->table.table, &room->a->book, &room->a->effects, 1);
    assert_int_equal(open_seat(room, room->b, false), 0);
    assert_int_equal(room->b->book.live_count, 0);
    assert_int_equal(room->b->table.damaged, 1);
}

/* Whose book it is cannot be read: nothing else in it is believed. */
static void a_spoilt_head_is_refused(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct host_file *file = map(room, "z4.v1.book");
    file->head[0].check ^= 1;
    file->head[1].check ^= 1;
    atomic_fetch_add(&file->head_selector, 2);
    atomic_fetch_add(&file->header.writes, 1);
    munmap(file, sizeof *file);
    assert_int_equal(open_seat(room, room->b, true), LEASE_EDAMAGED);
    assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 100), LEASE_EDAMAGED);
    assert_int_equal(table_look(&room->a->table.table, &room->a->book), LEASE_EDAMAGED);
}

static void one_that_was_removed_is_noticed(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(unlinkat(room->dir, "z4.v1.book", 0), 0);
    assert_int_equal(table_look(&room->a->table.table, &room->a->book), LEASE_EVANISHED);
}

/* Sealed, valid each by itself, and not to be: what would be counted on from, or never come. */
static void sealed_maxima_are_not_counted_on_from(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct answer granted = acquire(room->a);
    struct record *record = &room->a->book.records[granted.cell];
    const struct record good = *record;
    for (int i = 0; i < 5; i++) {
        *record = good;
        record->counter_max = i == 0 ? UINT64_MAX : record->counter_max;
        record->place_max = i == 1 ? UINT64_MAX : record->place_max;
        record->token_max = i == 2 ? UINT64_MAX : record->token_max;
        record->id.counter += i == 3;
        record->deadline_ns = i == 4 ? NS_NEVER : record->deadline_ns;
        record->hold_end_ns = i == 4 ? NS_NEVER : record->hold_end_ns;
        book_touch(&room->a->book, record);
        table_commit(&room->a->table.table, &room->a->book, &room->a->effects, 1);
        assert_int_equal(open_seat(room, room->b, false), 0);
        assert_int_equal(room->b->book.live_count, 0);
        assert_int_equal(room->b->table.damaged, 1);
        assert_int_equal(acquire(room->b).verdict, ANSWER_GRANTED);
        host_table_close(&room->b->table);
    }
}

static int load_with_head(struct room *room, struct book_head head)
{
    room->a->book.head = head;
    room->a->book.head_dirty = true;
    table_commit(&room->a->table.table, &room->a->book, &room->a->effects, 1);
    return table_look(&room->b->table.table, &room->b->book);
}

/* No epoch is lower than that of a token that was granted, and nobody could go above the highest. */
static void a_head_that_cannot_be_is_damage(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(acquire(room->a).verdict, ANSWER_GRANTED);
    assert_int_equal(open_seat(room, room->b, false), 0);
    const struct book_head good = room->a->book.head;
    struct book_head bad = good;
    bad.epoch--;
    assert_int_equal(load_with_head(room, bad), LEASE_EDAMAGED);
    assert_int_equal(table_look(&room->b->table.table, &room->b->book), LEASE_EDAMAGED);
    bad.epoch = EPOCH_MAX + 1;
    assert_int_equal(load_with_head(room, bad), LEASE_EDAMAGED);
    bad = good;
    bad.instance = 0;
    assert_int_equal(load_with_head(room, bad), LEASE_EDAMAGED);
    assert_int_equal(room->b->book.head.instance, good.instance);
    assert_int_equal(load_with_head(room, good), 0);
}

static void a_link_in_the_place_of_a_book_is_refused(void **state)
{
    struct room *room = *state;
    assert_int_equal(symlinkat("/etc/passwd", room->dir, "z4.v1.book"), 0);
    assert_int_equal(open_seat(room, room->a, true), LEASE_EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(what_is_no_book_is_refused_and_left_alone),
        ROOM_TEST(a_book_of_another_build_is_refused),
        ROOM_TEST(a_book_of_another_provider_is_refused),
        ROOM_TEST(a_book_cut_short_is_begun_anew),
        ROOM_TEST(one_of_others_cut_short_is_left_alone),
        ROOM_TEST(a_book_cut_short_under_who_uses_it_is_damaged),
        ROOM_TEST(a_spoilt_record_is_never_believed),
        ROOM_TEST(a_sealed_record_out_of_bounds_is_never_believed),
        ROOM_TEST(a_spoilt_head_is_refused),
        ROOM_TEST(one_that_was_removed_is_noticed),
        ROOM_TEST(sealed_maxima_are_not_counted_on_from),
        ROOM_TEST(a_head_that_cannot_be_is_damage),
        ROOM_TEST(a_link_in_the_place_of_a_book_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
