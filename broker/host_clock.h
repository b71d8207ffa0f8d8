/* The clock of the host tier: nanoseconds that go on counting while the machine sleeps, so that a
 * suspended laptop's leases lapse. CLOCK_BOOTTIME on Linux; macOS: CLOCK_MONOTONIC_RAW, which
 * counts through sleep there (written to the manual, not yet compiled on one).
 *
 * Comparable between processes of one boot and one time namespace; never sent to another host.
 * Note that poll() and futex timeouts stop during suspend: read this clock anew after every wake.
 * Safe from any thread.
 */
#ifndef LEASEHOLD_BROKER_HOST_CLOCK_H
#define LEASEHOLD_BROKER_HOST_CLOCK_H

#include <stdint.h>

/* Nanoseconds since boot, suspend included. Always > 0. */
int64_t host_now_ns(void);

/* For tests: from now on host_now_ns() of this process answers with `ns` added, which is what a
 * suspend of that length looks like. 0 takes it back. */
void host_clock_offset(int64_t ns);

#endif
