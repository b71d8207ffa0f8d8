/* The speaker's sign of life: `agent.beat` in the runtime directory, 64 bytes, written anew each
 * second. By it clients find the directory whose speaker is alive, and notice one that was stopped,
 * whose lock on agent.lock says nothing.
 *
 * Little to trust: any byte of the file may be anything. A reader that meets a half-written beat
 * sees the checksum fail and reads again. Safe from any thread, one writer at a time.
 */
#ifndef LEASEHOLD_BROKER_HOST_BEAT_H
#define LEASEHOLD_BROKER_HOST_BEAT_H

#include <stdbool.h>
#include <stdint.h>

#define HOST_BEAT_NAME     "agent.beat"
#define HOST_BEAT_STALE_NS INT64_C(3000000000) /* older than this is not alive */

/* What kind of process speaks; other numbers are kept as they are. */
enum host_beat_kind { HOST_BEAT_DAEMON = 1, HOST_BEAT_EMBEDDED = 2 };

/* As it lies in the file, in the byte order of the host. */
struct host_beat {
    uint64_t magic;
    uint32_t pid;
    uint32_t kind;
    uint64_t pid_start; /* as in struct host_process */
    int64_t beat_ns;    /* host_now_ns() of the writing */
    uint64_t boot;      /* host_boot_hash(); 0: not known */
    uint64_t pidns;     /* 0: not known */
    uint64_t zero;      /* for later */
    uint64_t checksum;  /* of all before it */
};
_Static_assert(sizeof(struct host_beat) == 64, "the beat is 64 bytes in every build");

/* Opens the file: for writing, made with exactly `mode` where it is absent; or for reading. Answers
 * a descriptor that the caller closes, LEASE_EABSENT nobody has ever spoken here, LEASE_EVANISHED,
 * LEASE_EPERM, LEASE_EIO. */
int host_beat_open(int dir_fd, bool writing, unsigned mode);

/* Writes a beat of the calling process, now: one pwrite. 0 or LEASE_EIO. */
int host_beat_write(int fd, uint32_t kind);

/* Reads it: one pread. 0, or with *beat zeroed LEASE_EABSENT empty as just made, LEASE_ELAYOUT not
 * a beat of this layout, LEASE_EDAMAGED, LEASE_EIO. */
int host_beat_read(int fd, struct host_beat *beat);

/* True where the beat is fresh, of this boot, and its process has not died since (a process of
 * another pid namespace is believed by its freshness alone). now_ns: host_now_ns(). */
bool host_beat_alive(const struct host_beat *beat, int64_t now_ns);

#endif
