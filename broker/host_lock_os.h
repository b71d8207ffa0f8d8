/* What host_lock.c asks of the operating system: host_lock_posix.c, host_lock_windows.c. */
#ifndef LEASEHOLD_BROKER_HOST_LOCK_OS_H
#define LEASEHOLD_BROKER_HOST_LOCK_OS_H

#include "broker/host_lock.h"

struct host_lock_facts {
    uint64_t device, inode, size, links;
    bool regular;
};

/* Errors as host_lock_open(). */
int host_lock_os_open(host_lock_file *file, int dir_fd, const char *name, unsigned flags,
                      unsigned mode);
void host_lock_os_close(host_lock_file file);

/* One attempt: 0, LEASE_ELOCKED, LEASE_ECLOSED (no such descriptor any more), LEASE_EIO. With
 * `wait` it lasts until the lock is had, signals or not. */
int host_lock_os_take(host_lock_file file, enum host_lock_mode mode, bool wait);
void host_lock_os_give(host_lock_file file);

/* 0, LEASE_ECLOSED, LEASE_EIO. */
int host_lock_os_facts(host_lock_file file, struct host_lock_facts *facts);

/* The file's size, by the cheapest question there is: asked with every lock. 0 where it fails. */
uint64_t host_lock_os_size(host_lock_file file);

uint32_t host_lock_os_holder(uint64_t device, uint64_t inode);
/* A thread of that process runs, or waits for the processor or a disk. False where it cannot be
 * told. */
bool host_lock_os_is_at_work(uint32_t pid);
uint32_t host_lock_os_pid(void);

/* Arranges that before(), then in the parent and child of a fork the others, are called. */
void host_lock_os_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void));

#endif
