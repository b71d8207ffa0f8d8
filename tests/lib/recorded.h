/* The bodies that servers answer, as they lie in tests/recorded, for tests of the probes: recorded from
 * real ones, or written from documentation where a README.md beside them says so. */
#ifndef TESTS_LIB_RECORDED_H
#define TESTS_LIB_RECORDED_H

#include <stdbool.h>
#include <stddef.h>

struct recorded {
    char name[128]; /* below the folder of the engine: "b6845/np1_idle.slots.json" */
    char *body;     /* without white space at its end, a NUL after it */
    size_t size;
    int status; /* of a name like NAME.503.txt, the "code" of an error, else 200 */
};

#define RECORDED_MAX 512

/* Reads all bodies below tests/recorded/ENGINE in the order of their names; fails the test where it
 * cannot. Lives until the process ends. */
size_t recorded_load(const char *engine, struct recorded *all);

/* By name, NULL where there is none. */
const struct recorded *recorded_find(const struct recorded *all, size_t count, const char *name);

#endif
