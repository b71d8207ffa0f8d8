/* clang-format off */
/* The one file lock of the project: flock on a file of its own or on the book itself, with a mutex
 * above it because threads share a descriptor.
 *
 * The way of every mutation is lock, load, decide, commit, unlock: the lock covers the read that
 * seeds the write. It is never held while anything is awaited. What the state-loop-lock seed asks
 * for, and where it is here:
 *
 *   seed                              here
 *   ----                              ----
 *   R1    exclusive or shared         enum host_lock_mode
 *   R1    a second acquirer waits     budget_ms < 0 blocks; a hot path gives a budget
 *   R1    released on exit, closed    host_lock_release(), host_lock_close(); by the kernel at death
 *   R1    POSIX and Windows           host_lock_posix.c (flock), host_lock_windows.c (LockFileEx)
 *   R1    "loop dir vanished"         LEASE_EVANISHED, by fstat after the lock is had
 *   R2    read, mutate, write         the callers: begin() and end() of host_table.c, with load()
 *   R3      in both programs            and commit() between them, in every program
 *   R4    always released             acquire leaves nothing locked unless it returns 0; release
 *                                       takes no arguments that could be wrong
 *   R5    one file a loop             one file a provider, in the runtime directory
 *   R6    no new dependencies         libc and pthread
 *   R7    atomic write stays          records are committed by one store of a selector, so that
 *                                       readers need no lock and a killed writer tears nothing
 *   D-L1  blocking, no timeout        still to be had; but a stopped holder would block everyone, so
 *                                       there is a budget, which counts only while nobody gets on
 *   D-L2  one a loop, never collected R5; never unlinked by us: an unlinked lock has two holders
 *   D-L3  creation is not locked      it is: see "Creation"
 *   D-L4  standard library only       R6
 *   D-L5  atomic write retained       R7
 *   risk  nesting                     refused with LEASE_ENESTED, on any handle of the same file
 *   risk  network file systems        host_dir.c refuses them
 *
 *   the seed's tests                                      tests/unit/test_host_lock.c
 *   ----------------                                      ---------------------------
 *   1  test_lock_serializes_concurrent_writes             seed_1_lock_serializes_concurrent_writes
 *   2  test_lock_releases_on_clean_exit                   seed_2_lock_releases_on_clean_exit
 *   3  test_lock_releases_on_exception                    seed_3_lock_releases_on_exception
 *   4  test_lock_is_per_loop                              seed_4_lock_is_per_book
 *   5  test_no_lock_on_create_loop                        seed_5_exclusive_lock_decides_who_creates
 *   6  test_pause_loop_serialized_with_concurrent_read    seed_6_mutation_waits_for_the_holder
 *   7  test_runner_tick_holds_lock_across_state_write     seed_7_lock_is_held_from_load_to_commit
 *
 * Creation. In the seed it takes no lock, because nothing can race it: a loop is created by one
 * person's command, and a second one is refused by name. Here any number of processes open a book
 * that is not there yet at the same moment. So opening only makes an empty file, and whoever finds
 * it empty *under the exclusive lock* initialises it.
 *
 * Fork. A child shares its parent's open file: were it to unlock, the parent's lock would be gone,
 * and were it to keep the descriptor, the lock would outlive a killed parent. So in a forked child
 * every lock's descriptor is closed before fork() returns, never unlocked, and the handle answers
 * LEASE_EFORK until it is closed and opened anew. A *mapping* keeps an open file alive as a
 * descriptor does: map books through another descriptor, or with MADV_DONTFORK.
 *
 * Threads. Different threads may use one handle; it is held by one of them at a time, in shared
 * mode too. The thread that took it releases it. Not usable in signal handlers.
 */
/* clang-format on */
#ifndef LEASEHOLD_BROKER_HOST_LOCK_H
#define LEASEHOLD_BROKER_HOST_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HOST_LOCK_NAME_MAX    80  /* bytes of a file's name that are kept for messages */
#define HOST_LOCK_OPEN_MAX    256 /* locks that a process has open; one more is LEASE_EFULL */
#define HOST_LOCK_BUDGETS_MAX 50  /* budgets that an acquire lasts at most, however much changes */

enum host_lock_mode { HOST_LOCK_SHARED, HOST_LOCK_EXCLUSIVE };

enum host_lock_flag {
    HOST_LOCK_CREATE = 1, /* make the file, empty, where it is absent */
    HOST_LOCK_READ = 2    /* for readers without write permission: only HOST_LOCK_SHARED then */
};

/* Descriptor, or HANDLE; -1 where closed. */
typedef intptr_t host_lock_file;

/* Private but for its size. Zeroed memory is a closed handle. It must not move while open. */
struct host_lock {
    host_lock_file file;
    uint64_t device, inode;
    uint64_t size_min;
    const _Atomic uint32_t *change;
    int64_t looked_ns; /* when fstat last found all well */
    int64_t sized_ns;  /* when the size was last asked */
    int64_t taken_ns;  /* host_now_ns() of the last taking */
    _Atomic(const void *) holder;
    struct host_lock *held_next; /* of this thread's held locks */
    pthread_mutex_t mutex;
    uint32_t generation; /* host_fork_generation() of the opening; 0: closed */
    uint32_t pid;
    uint32_t slot; /* in the list of open descriptors */
    bool read_only;
    char name[HOST_LOCK_NAME_MAX];
};

/* Opens `name` relative to the directory dir_fd (AT_FDCWD: the current one). Follows no link; a
 * new file gets exactly `mode`, whatever the umask. The file is left as it is, and never unlinked.
 * LEASE_EABSENT no such file (nor asked to create), LEASE_EVANISHED the directory is gone,
 * LEASE_EPERM no permission, a link, not a regular file, LEASE_EFULL, LEASE_ENOMEM, LEASE_EIO.
 * On failure *l is closed. */
int host_lock_open(struct host_lock *l, int dir_fd, const char *name, unsigned flags,
                   unsigned mode);

/* As host_lock_open() for a descriptor (HANDLE) that is open already; it is taken, and closed by
 * host_lock_close(), or on failure left to the caller. It must not be a duplicate of one in use. */
int host_lock_adopt(struct host_lock *l, host_lock_file file, const char *name);

/* Closes; releases first where this thread holds it. LEASE_EBUSY, nothing changed, while another
 * thread does. Closing twice is 0. In a forked child it only forgets. */
int host_lock_close(struct host_lock *l);

/* From now on a file smaller than this is LEASE_EDAMAGED (0: any size will do, as before a book is
 * initialised). Set it before threads share the handle, or while holding it. */
void host_lock_expect(struct host_lock *l, uint64_t size);

/* The file has at least the size that is expected: what is mapped of it may be touched. Cheap, and
 * true only for the moment. */
bool host_lock_is_whole(const struct host_lock *l);

/* A word that every mutator changes, borrowed as long as the lock is open (NULL: none). While it
 * changes others get on with their work, and a budget starts anew. Set as host_lock_expect(). */
void host_lock_watch(struct host_lock *l, const _Atomic uint32_t *change);

/* Takes the lock. budget_ms < 0 waits as long as it takes, 0 tries once, more tries with jittered
 * back-off (50 us to 2 ms) until nothing has changed for that long; under contention, and while the
 * holder waits for a busy processor, at most HOST_LOCK_BUDGETS_MAX times that. Then looks whether
 * the file is there and whole: at most once a millisecond, at least once a tick of the system (4 ms
 * as Debian has it).
 *
 * 0, or with nothing held: LEASE_ELOCKED out of budget, LEASE_ENESTED this thread holds it already
 * (by this or another handle), LEASE_EFORK, LEASE_ECLOSED never opened, or closed under us,
 * LEASE_EVANISHED, LEASE_EDAMAGED, LEASE_EPERM exclusive on a HOST_LOCK_READ handle, LEASE_EIO.
 * After LEASE_EVANISHED, LEASE_EFORK or LEASE_ECLOSED: close, and open anew. */
int host_lock_acquire(struct host_lock *l, enum host_lock_mode mode, int budget_ms);

/* Gives it back. LEASE_EINVAL, nothing changed, where this thread does not hold it; LEASE_EFORK in
 * a forked child, which holds nothing whatever its parent did. */
int host_lock_release(struct host_lock *l);

/* True while the calling thread holds it. */
bool host_lock_held(const struct host_lock *l);

/* The process that sits on the lock (the one that took it last, of any handle), 0 where nobody does
 * or it cannot be told (in another pid namespace; on another system than Linux). Reads /proc/locks,
 * so for messages only; what it says may be over when it is read. */
uint32_t host_lock_holder(const struct host_lock *l);

/* For pread, fstat and the like: still owned by the lock; -1 where closed. See "Fork" before
 * mapping it. */
host_lock_file host_lock_descriptor(const struct host_lock *l);

#endif
