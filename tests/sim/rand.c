/* Chance from a seed (xoshiro256**), and the hash of what happened. */
#include "tests/sim/sim.h"

static uint64_t state[4], hash;

static uint64_t rotate(uint64_t word, int by)
{
    return word << by | word >> (64 - by);
}

void rand_seed(uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t word = seed += UINT64_C(0x9e3779b97f4a7c15);
        word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
        state[i] = word ^ word >> 31;
    }
    hash = UINT64_C(0xcbf29ce484222325);
}

uint64_t rand_word(void)
{
    uint64_t result = rotate(state[1] * 5, 7) * 9, shifted = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate(state[3], 45);
    return result;
}

uint32_t rand_below(uint32_t limit)
{
    return (uint32_t)((rand_word() >> 32) * limit >> 32);
}

uint32_t rand_from(uint32_t low, uint32_t high)
{
    return low + rand_below(high - low + 1);
}

bool rand_one_in(uint32_t chances)
{
    return rand_below(chances) == 0;
}

bool rand_permille(uint32_t permille)
{
    return permille > 0 && rand_below(1000) < permille;
}

void trace_word(uint64_t word)
{
    for (int i = 0; i < 64; i += 8)
        hash = (hash ^ (word >> i & 255)) * UINT64_C(0x100000001b3);
}

uint64_t trace_hash(void)
{
    return hash;
}
