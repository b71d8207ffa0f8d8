/* The host tier's table: who initialises, and what is seen by others. */
#define _GNU_SOURCE

#include "tests/unit/host_table_room.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "broker/mirror.h"

/* ---- creation ------------------------------------------------------------------------------------------- */

static void a_book_that_nobody_made_is_unknown(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, false), LEASE_EUNKNOWN);
    assert_false(host_table_is_open(&room->a->table));
    assert_int_equal(faccessat(room->dir, "z4.v1.book", F_OK, 0), -1);
}

static void the_first_initialises_and_the_second_finds_it_so(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_true(room->a->book.head.instance == (uint64_t)(uintptr_t)room->a);
    assert_true(room->b->book.head.instance == room->a->book.head.instance);
    assert_int_equal(room->b->book.head.epoch, 1000);
}

/* An empty file is one that was just made, unless somebody has written it before. */
static void who_initialises_knows_what_was_there(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_true(room->a->table.made);
    assert_false(room->a->table.cut_short);
    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_false(room->b->table.made);
    host_table_close(&room->b->table);
    host_table_close(&room->a->table);
    int fd = openat(room->dir, "z4.v1.book", O_RDWR | O_TRUNC | O_CLOEXEC);
    struct statx facts = {0};
    bool tells = statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &facts) == 0 &&
                 (facts.stx_mask & STATX_BTIME) != 0;
    struct timespec later[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = facts.stx_btime.tv_sec + 1}};
    assert_int_equal(futimens(fd, later), 0); /* the clock of files is a coarse one */
    close(fd);
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_true(room->a->table.made);
    assert_int_equal(room->a->table.cut_short, tells);
}

static void of_sixteen_at_once_one_initialises(void **state)
{
    struct room *room = *state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    for (int i = 0; i < 16; i++) {
        if (fork() != 0)
            continue;
        struct seat *seat = calloc(1, sizeof *seat + (size_t)i * 64);
        uint64_t instance = open_seat(room, seat, true) == 0 ? seat->book.head.instance : 0;
        ssize_t written = write(pipes[1], &instance, sizeof instance);
        _exit(written != sizeof instance);
    }
    uint64_t first = 0;
    for (int i = 0; i < 16; i++) {
        uint64_t instance = 0;
        assert_int_equal(read(pipes[0], &instance, sizeof instance), sizeof instance);
        assert_true(instance != 0);
        first = i == 0 ? instance : first;
        assert_true(instance == first);
        int status;
        wait(&status);
    }
    close(pipes[0]);
    close(pipes[1]);
}

static void another_boot_begins_afresh_above_the_old_epoch(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    struct answer granted = acquire(room->a);
    assert_int_equal(granted.verdict, ANSWER_GRANTED);
    host_table_close(&room->a->table);
    struct host_file *file = map(room, "z4.v1.book");
    file->header.boot ^= 1;
    munmap(file, sizeof *file);

    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_int_equal(room->b->book.live_count, 0);
    assert_int_equal(room->b->book.head.epoch, 1001);
    struct answer next = acquire(room->b);
    assert_true(next.token > granted.token);
    assert_false(lease_id_equal(next.lease, granted.lease));
}

/* Who begins it afresh may die after the mark is gone: the next one still goes above. */
static void a_book_left_half_made_keeps_its_epoch(void **state)
{
    struct room *room = *state;
    assert_false(host_table_was_initialised(room->dir, "z4"));
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_true(host_table_was_initialised(room->dir, "z4"));
    host_table_close(&room->a->table);
    struct host_file *file = map(room, "z4.v1.book");
    atomic_store(&file->header.magic, 0);
    munmap(file, sizeof *file);
    assert_false(host_table_was_initialised(room->dir, "z4"));
    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_int_equal(room->b->book.head.epoch, 1001);
}

/* Somebody who had it open loads the new one whole. */
static void one_that_is_begun_afresh_under_us_is_read_anew(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(acquire(room->a).verdict, ANSWER_GRANTED);
    struct host_file *file = map(room, "z4.v1.book");
    file->header.boot ^= 1;
    munmap(file, sizeof *file);
    assert_int_equal(open_seat(room, room->b, true), 0);
    struct answer granted = acquire(room->b);
    assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 100), 0);
    table_end(&room->a->table.table);
    assert_true(room->a->book.head.instance == room->b->book.head.instance);
    assert_int_equal(room->a->book.live_count, 1);
    assert_true(room->a->book.token_max == granted.token);
}

/* ---- sharing -------------------------------------------------------------------------------------------- */

static void what_one_commits_the_other_loads(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    struct answer first = acquire(room->a), second = acquire(room->b);
    assert_int_equal(first.verdict, ANSWER_GRANTED);
    assert_int_equal(second.verdict, ANSWER_GRANTED);
    assert_true(second.token > first.token);
    assert_int_equal(acquire(room->a).verdict, ANSWER_NO);
    assert_int_equal(release(room->b, first.lease).verdict, ANSWER_GRANTED);
    assert_int_equal(acquire(room->a).verdict, ANSWER_GRANTED);
}

static void becomes_copy(struct seat *seat)
{
    static const struct effects none_happened;
    assert_int_equal(table_begin(&seat->table.table, &seat->book, 1000), 0);
    mirror_begin(&seat->book);
    table_commit(&seat->table.table, &seat->book, &none_happened, host_now_ns());
    table_end(&seat->table.table);
}

/* Its epoch is the owner's from then on, which may be a lower one than that which was drawn for it here. */
static void a_book_that_becomes_a_copy_is_no_damage_to_others(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_int_equal(room->b->book.head.epoch, 1000);
    becomes_copy(room->a);
    assert_int_equal(room->a->book.head.epoch, 0);
    assert_int_equal(table_look(&room->b->table.table, &room->b->book), 0);
    assert_true(book_is_copy(&room->b->book));
    assert_int_equal(room->b->book.head.epoch, 0);
    assert_int_equal(table_begin(&room->b->table.table, &room->b->book, 1000), 0);
    table_end(&room->b->table.table);
}

static void a_copy_keeps_the_epoch_of_tokens_that_were_granted(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_int_equal(acquire(room->b).verdict, ANSWER_GRANTED);
    becomes_copy(room->a);
    assert_int_equal(table_look(&room->b->table.table, &room->b->book), 0);
    assert_true(book_is_copy(&room->b->book));
    assert_int_equal(room->b->book.head.epoch, 1000);
}

static void a_look_takes_no_lock(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    acquire(room->a);
    assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 0), 0);
    assert_int_equal(table_look(&room->b->table.table, &room->b->book), 0);
    assert_int_equal(room->b->book.count[RECORD_HELD], 1);
    table_end(&room->a->table.table);
}

static void the_log_keeps_what_happened_in_order(void **state)
{
    struct room *room = *state;
    struct log_entry *entries = calloc(LOG_ENTRIES, sizeof *entries);
    assert_int_equal(open_seat(room, room->a, true), 0);
    for (int i = 0; i < LOG_ENTRIES; i++)
        release(room->a, acquire(room->a).lease);
    uint32_t count = host_table_log(&room->a->table, 0, entries);
    assert_int_equal(count, LOG_ENTRIES);
    for (uint32_t i = 1; i < count; i++)
        assert_int_equal(entries[i].seq, entries[i - 1].seq + 1);
    assert_int_equal(entries[count - 1].kind, NOTE_RELEASED);
    assert_int_equal(host_table_log(&room->a->table, entries[count - 3].seq, entries), 2);
    free(entries);
}

static void forgotten_ids_of_others_are_kept(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    for (int i = 0; i < 40; i++)
        release(room->a, acquire(room->a).lease);
    const struct lease_id foreign = {0xf0, 1};
    assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 100), 0);
    for (uint32_t i = 0; i < room->a->book.used; i++) {
        room->a->book.records[i].id = foreign;
        book_touch(&room->a->book, &room->a->book.records[i]);
    }
    table_end(&room->a->table.table);
    acquire(room->a); /* takes a cell, and forgets who lay there */
    assert_int_equal(table_look(&room->b->table.table, &room->b->book), 0);
    assert_true(book_is_dead(&room->b->book, foreign));
    assert_false(book_is_dead(&room->b->book, (struct lease_id){0xf0, 2}));
}

/* The group that the provider was declared to be in. */
static void a_group_is_kept(void **state)
{
    struct room *room = *state;
    char name[NAME_SIZE];
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    assert_int_equal(host_table_group(&room->b->table, name), 0);
    host_table_set_group(&room->a->table, "gpu0", 2);
    assert_int_equal(host_table_group(&room->b->table, name), 2);
    assert_string_equal(name, "gpu0");
    assert_int_equal(table_begin(&room->a->table.table, &room->a->book, 0), 0);
    host_table_set_group(&room->b->table, "gpu1", 1); /* while somebody sits on the lock */
    table_end(&room->a->table.table);
    assert_int_equal(host_table_group(&room->b->table, name), 2);
    struct host_file *file = map(room, "z4.v1.book");
    memset(file->header.group, 'x', sizeof file->header.group);
    assert_int_equal(host_table_group(&room->b->table, name), 0);
    assert_string_equal(name, "");
    host_table_set_group(&room->a->table, "gpu1", 1);
    assert_int_equal(host_table_group(&room->b->table, name), 1);
    assert_string_equal(name, "gpu1");
    munmap(file, sizeof *file);
}

/* A process that dies after it raised `writes` and wrote some of its cells leaves a book that the
 * next one loads as it is: a half commit is seen, never half a record. */
static void a_half_commit_is_loaded(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    assert_int_equal(open_seat(room, room->b, true), 0);
    struct answer granted = acquire(room->a);
    struct host_file *file = map(room, "z4.v1.book");
    uint64_t selector = atomic_load(&file->selectors[granted.cell]);
    release(room->a, granted.lease);
    assert_int_equal(table_look(&room->b->table.table, &room->b->book), 0);
    assert_int_equal(room->b->book.count[RECORD_GONE], 1);

    /* as if the release had died before it stored the selector */
    atomic_store(&file->selectors[granted.cell], selector);
    atomic_fetch_add(&file->header.writes, 1);
    assert_int_equal(table_begin(&room->b->table.table, &room->b->book, 100), 0);
    table_end(&room->b->table.table);
    assert_int_equal(room->b->book.count[RECORD_HELD], 1);
    assert_int_equal(room->b->table.damaged, 0);
    munmap(file, sizeof *file);
}

/* ---- readers against a writer --------------------------------------------------------------------------- */

/* The label names the counter: half a record would show two different ones. */
static void churn(struct room *room)
{
    struct seat *seat = calloc(1, sizeof *seat);
    if (open_seat(room, seat, true) < 0)
        _exit(1);
    for (uint64_t n = 1;; n++) {
        struct request request = {.verb = VERB_ACQUIRE,
                                  .flags = REQUEST_FIRST,
                                  .id = {n, n},
                                  .hint = UINT32_MAX,
                                  .units = 1,
                                  .slot = -1};
        snprintf(request.holder.label, sizeof request.holder.label, "%llu",
                 (unsigned long long)(seat->book.counter_max + 1));
        memcpy(request.holder.host, request.holder.label, NAME_SIZE);
        release(seat, ask(seat, &request).lease);
    }
}

static void a_reader_without_the_lock_sees_whole_records(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    pid_t writer = fork();
    if (writer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        churn(room);
    }
    int64_t end = test_now_ns() + INT64_C(500000000);
    uint64_t seen = 0, last = 0;
    while (test_now_ns() < end) {
        assert_int_equal(table_look(&room->a->table.table, &room->a->book), 0);
        for (uint32_t i = 0; i < room->a->book.used; i++) {
            const struct record *record = &room->a->book.records[i];
            if (record->state == RECORD_FREE)
                continue;
            assert_int_equal(strtoull(record->holder.label, NULL, 10), record->id.counter);
            assert_string_equal(record->holder.label, record->holder.host);
        }
        seen += room->a->book.counter_max != last;
        last = room->a->book.counter_max;
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_true(seen > 10);
}

/* Two names by turns, as long as names can be. */
static void regroup(struct room *room)
{
    struct seat *seat = calloc(1, sizeof *seat);
    if (open_seat(room, seat, true) < 0)
        _exit(1);
    for (uint32_t n = 1;; n++) {
        char name[NAME_SIZE] = {0};
        memset(name, n % 2 ? 'a' : 'b', NAME_CHARS_MAX);
        host_table_set_group(&seat->table, name, n % 2 ? 1 : 2);
    }
}

static void a_reader_sees_whole_groups(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
    pid_t writer = fork();
    if (writer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        regroup(room);
    }
    int64_t end = test_now_ns() + INT64_C(20000000000);
    uint32_t changes = 0, last = 0;
    while (changes < 50 && test_now_ns() < end) {
        char name[NAME_SIZE];
        uint32_t limit = host_table_group(&room->a->table, name);
        changes += limit != last;
        last = limit;
        if (limit == 0)
            continue; /* none was set yet, or the writer was quicker */
        assert_int_equal(strspn(name, limit == 1 ? "a" : "b"), NAME_CHARS_MAX);
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_int_equal(changes, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(a_book_that_nobody_made_is_unknown),
        ROOM_TEST(the_first_initialises_and_the_second_finds_it_so),
        ROOM_TEST(who_initialises_knows_what_was_there),
        ROOM_TEST(of_sixteen_at_once_one_initialises),
        ROOM_TEST(another_boot_begins_afresh_above_the_old_epoch),
        ROOM_TEST(a_book_left_half_made_keeps_its_epoch),
        ROOM_TEST(one_that_is_begun_afresh_under_us_is_read_anew),
        ROOM_TEST(what_one_commits_the_other_loads),
        ROOM_TEST(a_book_that_becomes_a_copy_is_no_damage_to_others),
        ROOM_TEST(a_copy_keeps_the_epoch_of_tokens_that_were_granted),
        ROOM_TEST(a_look_takes_no_lock),
        ROOM_TEST(the_log_keeps_what_happened_in_order),
        ROOM_TEST(forgotten_ids_of_others_are_kept),
        ROOM_TEST(a_group_is_kept),
        ROOM_TEST(a_half_commit_is_loaded),
        ROOM_TEST(a_reader_without_the_lock_sees_whole_records),
        ROOM_TEST(a_reader_sees_whole_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
