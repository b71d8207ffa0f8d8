#define _GNU_SOURCE
#include "broker/host_beat.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_lock_os.h"
#include "broker/host_process.h"

#define MAGIC UINT64_C(0x316165426573614c) /* "LaseBea1" */
#define TRIES 4                            /* reads of a beat that was just being written */

static uint64_t checksum_of(const struct host_beat *beat)
{
    unsigned char bytes[offsetof(struct host_beat, checksum)];
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: against tearing, not against malice */
    memcpy(bytes, beat, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

int host_beat_open(int dir_fd, bool writing, unsigned mode)
{
    host_lock_file file;
    struct host_lock_facts facts;
    unsigned flags = writing ? HOST_LOCK_CREATE : HOST_LOCK_READ;
    int rc = host_lock_os_open(&file, dir_fd, HOST_BEAT_NAME, flags, mode);
    if (rc) {
        return rc;
    }
    rc = host_lock_os_facts(file, &facts);
    if (rc || !facts.regular) {
        host_lock_os_close(file);
        return rc ? rc : LEASE_EPERM;
    }
    return (int)file;
}

int host_beat_write(int fd, uint32_t kind)
{
    struct host_process self;
    host_process_self(&self);
    struct host_beat beat = {
        .magic = MAGIC,
        .pid = self.pid,
        .kind = kind,
        .pid_start = self.start,
        .beat_ns = host_now_ns(),
        .boot = host_boot_hash(self.boot_id),
        .pidns = self.pidns,
    };
    beat.checksum = checksum_of(&beat);
    return pwrite(fd, &beat, sizeof beat, 0) == (ssize_t)sizeof beat ? 0 : LEASE_EIO;
}

static int read_once(int fd, struct host_beat *beat)
{
    ssize_t n = pread(fd, beat, sizeof *beat, 0);
    if (n < 0) {
        return LEASE_EIO;
    }
    if (n == 0) {
        return LEASE_EABSENT;
    }
    if (n != (ssize_t)sizeof *beat) {
        return LEASE_EDAMAGED;
    }
    if (beat->magic != MAGIC) {
        return LEASE_ELAYOUT;
    }
    return beat->checksum == checksum_of(beat) ? 0 : LEASE_EDAMAGED;
}

int host_beat_read(int fd, struct host_beat *beat)
{
    int rc = LEASE_EDAMAGED;
    for (int i = 0; i < TRIES && rc == LEASE_EDAMAGED; i++) {
        rc = read_once(fd, beat);
    }
    if (rc) {
        memset(beat, 0, sizeof *beat);
    }
    return rc;
}

bool host_beat_alive(const struct host_beat *beat, int64_t now_ns)
{
    struct host_process self;
    host_process_self(&self);
    uint64_t boot = host_boot_hash(self.boot_id);
    if (beat->magic != MAGIC || (beat->boot && boot && beat->boot != boot)) {
        return false;
    }
    /* Unsigned, so that no value in the file overflows; one from the future is of another clock. */
    uint64_t age = beat->beat_ns < now_ns ? (uint64_t)now_ns - (uint64_t)beat->beat_ns
                                          : (uint64_t)beat->beat_ns - (uint64_t)now_ns;
    return age <= (uint64_t)HOST_BEAT_STALE_NS &&
           host_process_glance(beat->pid, beat->pidns) != HOST_PROCESS_DEAD;
}
