/* What the random walks draw from, and how they say where they were when something was not as it must be. */
#ifndef TESTS_UNIT_WALK_DRAWS_H
#define TESTS_UNIT_WALK_DRAWS_H

#include <stdlib.h>

#include "tests/lib/check.h"

static uint64_t seed, word;

static inline void draw_from(uint64_t from)
{
    seed = from;
    word = from * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static inline uint32_t below(uint32_t limit)
{
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    return (uint32_t)((word >> 32) * limit >> 32);
}

static inline bool one_in(uint32_t chances)
{
    return below(chances) == 0;
}

static inline uint64_t first_seed(uint64_t usual)
{
    const char *wanted = getenv("LEASEHOLD_SEED");
    return wanted ? strtoull(wanted, NULL, 10) : usual;
}

#define MUST_AT(at_ms, condition)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("LEASEHOLD_SEED=%llu, at %lld ms: %s", (unsigned long long)seed,              \
                     (long long)(at_ms), #condition);                                              \
    } while (0)

#endif
