/* Who looks at a book after its writer was killed: whether each cell is the old or the new one, in
 * which order they became new, whether the lock is free, and whether things go on. */
#ifndef TESTS_CRASH_WITNESS_H
#define TESTS_CRASH_WITNESS_H

#include "tests/crash/scene.h"

enum verdict_of_kill {
    KILL_FINE = 0,
    KILL_TORN,      /* a cell that is neither old nor new, or an entry of the log that never was */
    KILL_STUCK,     /* the lock is not to be had at once */
    KILL_UNORDERED, /* newer cells than their order allows, or not all of them in the end */
    KILL_WEDGED,    /* acquire, verify, renew, release do not go on, or a number came twice */
    KILL_VERDICTS
};
extern const char *const kill_names[KILL_VERDICTS];

enum cell_kind { CELL_HEAD, CELL_SIGHT, CELL_FLOOR, CELL_RECORD };
struct order {
    uint32_t count;
    struct {
        enum cell_kind kind;
        uint32_t index;
    } cells[BOOK_CELLS + FLOORS_MAX + 2];
};

/* What stood in the book before the commit, or stands there after it. */
struct image {
    struct seat seat;
    uint32_t entry_count;
    struct log_entry entries[LOG_ENTRIES];
};

struct expected {
    const struct scene *scene;
    struct image before, after;
    const struct order *order; /* of the commit, as table.h promises it */
    int dir;
    bool loud; /* says on stderr what is wrong */
};

/* In the order in which a commit writes: head, sight, floors, records. */
void witness_order(const struct book *book, struct order *order);

/* Fills in an image from the book as it is now. */
void witness_image(const struct expected *expected, struct image *image);

/* Somebody who had the book open all the time: has seen the book before, and looks again. `all`: the
 * commit was done. */
enum verdict_of_kill witness_neighbour(const struct expected *expected, struct seat *seat,
                                       bool all);

/* Somebody who comes anew, and goes on. */
enum verdict_of_kill witness_newcomer(const struct expected *expected, bool all);

#endif
