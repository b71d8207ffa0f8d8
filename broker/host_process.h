/* Is the process that holds something still alive?
 *
 * A pid alone cannot say: it is reused, and means another process in another pid namespace. With it
 * go the start time, the boot and the namespace. Where they cannot be compared the answer is
 * HOST_PROCESS_UNKNOWN, and the TTL decides. All of it comes from files that anybody may have
 * written: no value here is trusted, any is allowed.
 *
 * Safe from any thread. macOS: proc_pidinfo and kern.bootsessionuuid belong here; until somebody
 * writes them, start time, boot and namespace are 0 there (not known).
 */
#ifndef LEASEHOLD_BROKER_HOST_PROCESS_H
#define LEASEHOLD_BROKER_HOST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct host_process {
    uint64_t start;      /* clock ticks since boot (/proc/PID/stat, field 22); 0: not known */
    uint64_t pidns;      /* inode of the pid namespace; 0: not known */
    uint8_t boot_id[16]; /* of this boot; zeroes: not known */
    uint32_t pid;
};

enum host_liveness {
    HOST_PROCESS_DEAD,
    HOST_PROCESS_ALIVE,
    HOST_PROCESS_UNKNOWN /* in another pid namespace, or hidden from us */
};

/* Who the calling process is. Read once a thread and again after a fork, then a copy of 40 bytes.
 * Cannot fail; what is not to be had is 0. */
void host_process_self(struct host_process *self);

/* The full check: existence, zombies (dead, though their pid still answers), reuse of the pid.
 * start 0: do not compare start times. pidns 0: assume our own namespace. Two system calls and a
 * read of /proc, about 7 us: for the speaker's tick. */
enum host_liveness host_process_check(uint32_t pid, uint64_t start, uint64_t pidns);

/* The cheap check, one kill(pid, 0), about 0.4 us: for admission. A zombie or a reused pid passes
 * as alive. */
enum host_liveness host_process_glance(uint32_t pid, uint64_t pidns);

/* The start time of a process of our own pid namespace; 0: not to be had. */
uint64_t host_process_start(uint32_t pid);

/* 64 bits that stand for a boot id; 0 only for one that is not known. */
uint64_t host_boot_hash(const uint8_t boot_id[16]);

#endif
