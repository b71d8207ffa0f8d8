/* The scenes of the crash test: a book as it stands before a commit, and the commit. Both run in
 * virtual time and draw nothing, so that each run of a scene writes the same bytes. */
#ifndef TESTS_CRASH_SCENE_H
#define TESTS_CRASH_SCENE_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include "broker/host_table.h"

#define SCENE_BEGINS (1000 * NS_PER_SEC)

/* One process's view of the book. */
struct seat {
    struct host_table table;
    struct book book;
    struct broker broker;
    struct effects effects;
    ns_t now;
    uint64_t drawn; /* request ids */
};

struct scene {
    const char *name;
    uint32_t slots;
    bool probed;
    /* What the book went through before; NULL: nothing. Its leases are noted in the seat's book. */
    void (*before)(struct seat *seat);
    /* Between lock and commit. NULL: the commit is the opening of the book. */
    void (*step)(struct seat *seat);
    /* Of a book that is opened: what the file was before. */
    enum { FILE_NONE, FILE_EMPTY, FILE_ALLOCATED, FILE_OF_ANOTHER_BOOT } file;
    unsigned sins; /* enum scene_sin: what must be found */
};

/* Test-only: what a writer would do who has not thought of dying. */
enum scene_sin {
    SIN_IN_PLACE = 1,     /* records are written where they lie */
    SIN_LOCK_FILE = 2,    /* the lock is a file that is there or not */
    SIN_RECORDS_FIRST = 4 /* records before what they stand on */
};

extern const struct scene scenes[];
extern const uint32_t scene_count;

#define SCENE_EPOCH 1000
/* Opens the book of a scene; epoch of a book that is new. */
int scene_open(const struct scene *scene, struct seat *seat, int dir, uint64_t epoch);

/* The commit, up to the unlocking. `aside` is called between decision and commit. */
int scene_play(const struct scene *scene, struct seat *seat, void (*aside)(struct seat *seat));

/* What any process does: answers as the broker did. */
struct answer scene_ask(struct seat *seat, enum verb verb, struct lease_id lease, uint32_t wait_ms);
void scene_dead(struct seat *seat); /* everybody has died */
void scene_read(struct seat *seat, int32_t busy, int32_t first_task);
void scene_after(struct seat *seat, int64_t ms); /* and a tick */

#endif
