/* The host tier's table: who initialises, what is seen by others, and what garbage does. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_guard.h"
#include "broker/host_table.h"
#include "tests/lib/temp_dir.h"

/* One process's view of a book. */
struct seat {
    struct host_table table;
    struct book book;
    struct broker broker;
    struct effects effects;
};

struct room {
    char path[TEMP_DIR_MAX];
    int dir;
    struct seat *a, *b;
};

static int open_seat(struct room *room, struct seat *seat, bool create)
{
    struct book_settings settings;
    book_settings_default(&settings);
    settings.probed = 0;
    settings.slots = 2;
    book_init(&seat->book, "z4", &settings);
    broker_init(&seat->broker, &seat->book, NULL);
    struct host_table_options options = {.instance = (uint64_t)(uintptr_t)seat ^
                                                     (uint64_t)(seat == room->b) << 40,
                                         .epoch = 1000,
                                         .mode = 0600,
                                         .create = create};
    return host_table_open(&seat->table, room->dir, "z4", &seat->book, &options);
}

static int setup(void **state)
{
    struct room *room = calloc(1, sizeof *room);
    assert_true(temp_dir_make(room->path));
    room->dir = open(room->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    room->a = calloc(1, sizeof *room->a);
    room->b = calloc(1, sizeof *room->b);
    *state = room;
    return 0;
}

static int teardown(void **state)
{
    struct room *room = *state;
    host_table_close(&room->a->table);
    host_table_close(&room->b->table);
    free(room->a);
    free(room->b);
    close(room->dir);
    temp_dir_remove(room->path);
    free(room);
    return 0;
}

/* A whole change: lock, load, decide, commit, unlock. */
static struct answer ask(struct seat *seat, const struct request *request)
{
    struct event event = {.kind = EVENT_REQUEST, .request = request};
    assert_int_equal(table_begin(&seat->table.table, &seat->book, 1000), 0);
    event.now = host_now_ns();
    broker_step(&seat->broker, &event, &seat->effects);
    table_commit(&seat->table.table, &seat->book, &seat->effects, event.now);
    table_end(&seat->table.table);
    assert_true(seat->effects.has_reply);
    return seat->effects.reply;
}

static struct answer acquire(struct seat *seat)
{
    static uint64_t drawn;
    struct request request = {.verb = VERB_ACQUIRE,
                              .flags = REQUEST_FIRST,
                              .id = {7, ++drawn},
                              .hint = UINT32_MAX,
                              .units = 1,
                              .slot = -1,
                              .asked_ns = host_now_ns(),
                              .holder = {.host = "m5", .label = "test", .pid = 1}};
    return ask(seat, &request);
}

static struct answer release(struct seat *seat, struct lease_id id)
{
    struct request request = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST,
                              .id = {8, 1},
                              .lease = id,
                              .hint = UINT32_MAX};
    return ask(seat, &request);
}

static struct host_file *map(struct room *room, const char *name)
{
    int fd = openat(room->dir, name, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    void *at = mmap(NULL, sizeof(struct host_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(at != MAP_FAILED);
    return at;
}

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

/* ---- garbage -------------------------------------------------------------------------------------------- */

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

/* Epochs only grow, and nobody could go above the highest. */
static void a_head_that_cannot_be_is_damage(void **state)
{
    struct room *room = *state;
    assert_int_equal(open_seat(room, room->a, true), 0);
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_book_that_nobody_made_is_unknown),
        TEST(the_first_initialises_and_the_second_finds_it_so),
        TEST(who_initialises_knows_what_was_there),
        TEST(of_sixteen_at_once_one_initialises),
        TEST(another_boot_begins_afresh_above_the_old_epoch),
        TEST(a_book_left_half_made_keeps_its_epoch),
        TEST(one_that_is_begun_afresh_under_us_is_read_anew),
        TEST(what_one_commits_the_other_loads),
        TEST(a_look_takes_no_lock),
        TEST(the_log_keeps_what_happened_in_order),
        TEST(a_half_commit_is_loaded),
        TEST(forgotten_ids_of_others_are_kept),
        TEST(a_group_is_kept),
        TEST(what_is_no_book_is_refused_and_left_alone),
        TEST(a_book_of_another_build_is_refused),
        TEST(a_book_of_another_provider_is_refused),
        TEST(a_book_cut_short_is_begun_anew),
        TEST(one_of_others_cut_short_is_left_alone),
        TEST(a_book_cut_short_under_who_uses_it_is_damaged),
        TEST(a_spoilt_record_is_never_believed),
        TEST(a_sealed_record_out_of_bounds_is_never_believed),
        TEST(a_spoilt_head_is_refused),
        TEST(one_that_was_removed_is_noticed),
        TEST(sealed_maxima_are_not_counted_on_from),
        TEST(a_head_that_cannot_be_is_damage),
        TEST(a_link_in_the_place_of_a_book_is_refused),
        TEST(a_reader_without_the_lock_sees_whole_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
