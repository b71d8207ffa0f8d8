/* Bodies cut at every byte and changed at random ones, as answers to an engine's questions: no crash,
 * no reading out of bounds, and nothing free in what was cut off.
 *
 * PROBE_MUTATIONS and PROBE_SEED in the environment say how many changes a body and which. */
#ifndef TESTS_LIB_BYTES_H
#define TESTS_LIB_BYTES_H

#include "agent/engine.h"
#include "tests/lib/recorded.h"

#define BYTES_OTHERS 4

/* Where a body is put: the question that it answers, what is answered to others by path, and to
 * everything else. */
struct bytes_place {
    const struct engine *engine;
    const char *name; /* part of the names of the bodies that were made for it, ".props." */
    const char *path; /* without the query */
    struct {
        const char *path, *body;
    } other[BYTES_OTHERS];
    int otherwise; /* the status of every other path */
    enum probe_wants wants;
    const char *model; /* NULL: none */
    int slots;         /* 0: not told */
    bool program;      /* what is asked is a program: its bodies come with exit code 0 */
    bool tells_slots;  /* healthy means that the slots are known */
    const struct engine_memory *memory; /* what is remembered of the server; NULL: nothing */
};

/* What was cut after `size` bytes says as much as the whole. NULL: never. */
typedef bool bytes_whole(const char *body, size_t size);

/* The place for a body by its name; others take turns. */
const struct bytes_place *bytes_place_of(const struct bytes_place *places, size_t count,
                                         const struct recorded *one, size_t index);

/* Plays a copy in a buffer of its own size, so that a reader past its end is found, and checks what
 * no reading may break. */
const struct reading *bytes_play(const struct bytes_place *place, const char *body, size_t size);

void bytes_cut(const struct bytes_place *place, const struct recorded *one, bytes_whole *whole);

/* How many, and from which seed; says both. */
long bytes_seed(void);
void bytes_change(const struct bytes_place *place, const struct recorded *one, long count);

/* The same body stood earlier in the list. */
bool bytes_seen(const struct recorded *all, size_t index);

#endif
