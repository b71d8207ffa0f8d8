/* Random numbers for request ids, instances, jitter, and the entropy that events carry.
 *
 * Each thread has a generator of its own, seeded by the kernel once per thread and again in a
 * forked child, so that no two processes ever draw the same ids. Not for keys: CURVE makes its own.
 * Safe from any thread; not from a signal handler.
 */
#ifndef LEASEHOLD_BROKER_HOST_RANDOM_H
#define LEASEHOLD_BROKER_HOST_RANDOM_H

#include <stdint.h>

/* 64 random bits. Never fails: where the kernel gives no entropy, clock, pid and addresses seed. */
uint64_t host_random_u64(void);

#endif
