/* What random walks share: draws from a seed that is printed where something is not as it must be, and that
 * LEASEHOLD_SEED=n gives again. A walk defines walk_now_ms() first, in its own time. */
#ifndef TESTS_LIB_WALK_H
#define TESTS_LIB_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/lib/check.h"

static uint64_t seed, word;

static inline void walk_from(uint64_t from)
{
    seed = from;
    word = from * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static inline uint64_t walk_seed(uint64_t usual)
{
    const char *wanted = getenv("LEASEHOLD_SEED");
    return wanted ? strtoull(wanted, NULL, 10) : usual;
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

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("LEASEHOLD_SEED=%llu, at %lld ms: %s", (unsigned long long)seed,              \
                     (long long)walk_now_ms(), #condition);                                        \
    } while (0)

#endif
