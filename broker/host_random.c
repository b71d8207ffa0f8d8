#define _GNU_SOURCE
#include "broker/host_random.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "broker/host_fork.h"

/* xoshiro256** by Blackman and Vigna: public domain algorithm, written anew. */
struct generator {
    uint64_t s[4];
    uint32_t generation; /* 0: never seeded */
};

static _Thread_local struct generator mine;

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void seed_without_kernel(struct generator *g)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t state = (uint64_t)t.tv_sec * UINT64_C(1000000007) + (uint64_t)t.tv_nsec;
    state ^= (uint64_t)getpid() << 40;
    state ^= (uint64_t)(uintptr_t)g;
    for (unsigned i = 0; i < 4; i++) {
        g->s[i] = splitmix(&state);
    }
}

static void seed(struct generator *g)
{
    host_fork_watch();
    if (getentropy(g->s, sizeof g->s)) {
        seed_without_kernel(g);
    }
    g->s[0] |= 1; /* all zero would stay zero for ever */
    g->generation = host_fork_generation();
}

static inline uint64_t rotate(uint64_t x, unsigned by)
{
    return (x << by) | (x >> (64 - by));
}

uint64_t host_random_u64(void)
{
    struct generator *g = &mine;
    if (g->generation != host_fork_generation()) {
        seed(g);
    }
    uint64_t result = rotate(g->s[1] * 5, 7) * 9;
    uint64_t t = g->s[1] << 17;
    g->s[2] ^= g->s[0];
    g->s[3] ^= g->s[1];
    g->s[1] ^= g->s[2];
    g->s[0] ^= g->s[3];
    g->s[2] ^= t;
    g->s[3] = rotate(g->s[3], 45);
    return result;
}
