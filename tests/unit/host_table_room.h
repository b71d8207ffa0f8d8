/* The room in which tests of the host tier's table sit: a directory, and two processes' views of the one
 * book in it. */
#ifndef TESTS_UNIT_HOST_TABLE_ROOM_H
#define TESTS_UNIT_HOST_TABLE_ROOM_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include "tests/lib/check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
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

static inline int open_seat(struct room *room, struct seat *seat, bool create)
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

static inline int setup(void **state)
{
    struct room *room = calloc(1, sizeof *room);
    assert_true(temp_dir_make(room->path));
    room->dir = open(room->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    room->a = calloc(1, sizeof *room->a);
    room->b = calloc(1, sizeof *room->b);
    *state = room;
    return 0;
}

static inline int teardown(void **state)
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
static inline struct answer ask(struct seat *seat, const struct request *request)
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

static inline struct answer acquire(struct seat *seat)
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

static inline struct answer release(struct seat *seat, struct lease_id id)
{
    struct request request = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST,
                              .id = {8, 1},
                              .lease = id,
                              .hint = UINT32_MAX};
    return ask(seat, &request);
}

static inline struct host_file *map(struct room *room, const char *name)
{
    int fd = openat(room->dir, name, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    void *at = mmap(NULL, sizeof(struct host_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(at != MAP_FAILED);
    return at;
}

#define ROOM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
