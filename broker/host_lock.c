/* The policy of the lock: nesting, patience, the look after the lock, fork. The system calls are in
 * host_lock_posix.c and host_lock_windows.c. */
#define _GNU_SOURCE
#include "broker/host_lock.h"

#include <string.h>
#include <time.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_fork.h"
#include "broker/host_lock_os.h"

#define NS_PER_MS    INT64_C(1000000)
#define LOOK_EVERY   NS_PER_MS
#define SIZE_EVERY   (NS_PER_MS / 20)
#define NAP_MIN_NS   INT64_C(50000)
#define NAP_MAX_NS   (2 * NS_PER_MS)
#define NEVER_LOOKED INT64_MIN
#define NOBODY_MAX   5 /* budgets more where nobody seems to sit on the lock */

/* Locks that this thread holds; its address also tells threads apart. */
static _Thread_local struct host_lock *held;

/* Descriptors of the locks that this process has open, for the forked child that must close them.
 * Not a list of handles: those are the caller's memory. -1 where free. */
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static host_lock_file open_files[HOST_LOCK_OPEN_MAX];

/* Not host_now_ns(): a suspend must not eat a budget, since the holder slept as well. */
static int64_t monotonic_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- fork ------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    (void)pthread_mutex_lock(&open_mutex);
}

static void after_fork_in_parent(void)
{
    (void)pthread_mutex_unlock(&open_mutex);
}

static void after_fork_in_child(void)
{
    for (unsigned i = 0; i < HOST_LOCK_OPEN_MAX; i++) {
        if (open_files[i] != -1) {
            host_lock_os_close(open_files[i]);
            open_files[i] = -1;
        }
    }
    for (; held; held = held->held_next) {
        (void)pthread_mutex_unlock(
            &held->mutex); /* the child's only thread is the one that took it */
    }
    (void)pthread_mutex_unlock(&open_mutex);
}

static void start(void)
{
    for (unsigned i = 0; i < HOST_LOCK_OPEN_MAX; i++) {
        open_files[i] = -1;
    }
    host_fork_watch();
    host_lock_os_at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* -- opening and closing ---------------------------------------------------------------------- */

static int list_file(struct host_lock *l, host_lock_file file)
{
    int rc = LEASE_EFULL;
    (void)pthread_mutex_lock(&open_mutex);
    for (uint32_t i = 0; i < HOST_LOCK_OPEN_MAX && rc; i++) {
        if (open_files[i] == -1) {
            open_files[i] = l->file = file;
            l->slot = i;
            rc = 0;
        }
    }
    (void)pthread_mutex_unlock(&open_mutex);
    return rc;
}

/* Closes it too where it is still ours. */
static void forget_file(struct host_lock *l, bool ours)
{
    if (l->file == -1) {
        return;
    }
    /* Closed under the mutex, so that no fork sees a listed number that is closed already. */
    (void)pthread_mutex_lock(&open_mutex);
    open_files[l->slot] = -1;
    if (ours) {
        host_lock_os_close(l->file);
    }
    (void)pthread_mutex_unlock(&open_mutex);
    l->file = -1;
}

static void set_closed(struct host_lock *l)
{
    memset(l, 0, sizeof *l);
    l->file = -1;
}

int host_lock_adopt(struct host_lock *l, host_lock_file file, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct host_lock_facts facts;
    set_closed(l);
    (void)pthread_once(&once, start);
    int rc = host_lock_os_facts(file, &facts);
    if (rc) {
        return rc;
    }
    if (!facts.regular) {
        return LEASE_EPERM;
    }
    if (pthread_mutex_init(&l->mutex, NULL)) {
        return LEASE_ENOMEM;
    }
    rc = list_file(l, file);
    if (rc) {
        (void)pthread_mutex_destroy(&l->mutex);
        return rc;
    }
    l->device = facts.device;
    l->inode = facts.inode;
    l->looked_ns = NEVER_LOOKED;
    l->generation = host_fork_generation();
    l->pid = host_lock_os_pid();
    strncpy(l->name, name, sizeof l->name - 1);
    return 0;
}

int host_lock_open(struct host_lock *l, int dir_fd, const char *name, unsigned flags, unsigned mode)
{
    host_lock_file file = -1;
    set_closed(l);
    if (!name || !*name || ((flags & HOST_LOCK_CREATE) && (flags & HOST_LOCK_READ))) {
        return LEASE_EINVAL;
    }
    int rc = host_lock_os_open(&file, dir_fd, name, flags, mode);
    if (rc) {
        return rc;
    }
    rc = host_lock_adopt(l, file, name);
    if (rc) {
        host_lock_os_close(file);
        return rc;
    }
    l->read_only = (flags & HOST_LOCK_READ) != 0;
    return 0;
}

int host_lock_close(struct host_lock *l)
{
    if (l->generation == 0) {
        return 0;
    }
    if (l->generation != host_fork_generation()) {
        set_closed(l); /* the child's handler has closed the file and forgotten the handle */
        return 0;
    }
    if (host_lock_held(l)) {
        (void)host_lock_release(l);
    }
    if (pthread_mutex_trylock(&l->mutex)) {
        return LEASE_EBUSY;
    }
    forget_file(l, true);
    (void)pthread_mutex_unlock(&l->mutex);
    (void)pthread_mutex_destroy(&l->mutex);
    set_closed(l);
    return 0;
}

void host_lock_expect(struct host_lock *l, uint64_t size)
{
    l->size_min = size;
    l->looked_ns = NEVER_LOOKED;
}

void host_lock_watch(struct host_lock *l, const _Atomic uint32_t *change)
{
    l->change = change;
}

/* -- taking ----------------------------------------------------------------------------------- */

bool host_lock_held(const struct host_lock *l)
{
    return atomic_load_explicit(&l->holder, memory_order_relaxed) == &held &&
           l->generation == host_fork_generation();
}

static int usable(const struct host_lock *l, enum host_lock_mode mode)
{
    if (l->generation != host_fork_generation()) {
        return l->generation == 0 ? LEASE_ECLOSED : LEASE_EFORK;
    }
    if (mode == HOST_LOCK_EXCLUSIVE && l->read_only) {
        return LEASE_EPERM;
    }
    for (const struct host_lock *h = held; h; h = h->held_next) {
        if (h->inode == l->inode && h->device == l->device) {
            return LEASE_ENESTED;
        }
    }
    return 0;
}

/* Whoever touches a mapped page that its file no longer has is ended by a signal: this is asked before
 * every touch, a file that was removed does no such harm and is noticed a moment later. */
bool host_lock_is_whole(const struct host_lock *l)
{
    return l->size_min == 0 || host_lock_os_size(l->file) >= l->size_min;
}

/* The size is asked again when a moment has passed since it was: a process that locks the same book
 * thousands of times in a row pays for it once in a while, everybody else each time. */
static int64_t since_sized(const struct host_lock *l, int64_t now)
{
    return now < l->sized_ns ? SIZE_EVERY : now - l->sized_ns;
}

static bool is_whole_at(struct host_lock *l, int64_t now)
{
    l->sized_ns = now;
    return host_lock_is_whole(l);
}

/* Is the file that we have locked still the one in the directory, and whole? */
static int look(struct host_lock *l)
{
    /* One reading of the clock a lock: whoever has it takes it for the time of his decision. */
    int64_t now = l->taken_ns = host_now_ns();
    int64_t since = l->looked_ns == NEVER_LOOKED ? LOOK_EVERY : now - l->looked_ns;
    if (since >= 0 && since < LOOK_EVERY)
        return since_sized(l, now) < SIZE_EVERY || is_whole_at(l, now) ? 0 : LEASE_EDAMAGED;
    l->looked_ns = NEVER_LOOKED;
    if (l->pid != host_lock_os_pid()) {
        return LEASE_EFORK; /* by a bare clone(), which runs no handlers */
    }
    struct host_lock_facts facts;
    int rc = host_lock_os_facts(l->file, &facts);
    if (rc) {
        return rc;
    }
    if (facts.inode != l->inode || facts.device != l->device) {
        return LEASE_ECLOSED; /* somebody closed our descriptor, and its number was given out anew
                               */
    }
    if (facts.links == 0) {
        return LEASE_EVANISHED;
    }
    if (facts.size < l->size_min) {
        return LEASE_EDAMAGED;
    }
    l->looked_ns = l->sized_ns = now;
    return 0;
}

/* After the lock is had: keeps it, or gives it back with the reason. */
static int settle(struct host_lock *l)
{
    int rc = look(l);
    if (rc) {
        if (rc == LEASE_EFORK) {
            forget_file(l, true); /* unlocking would take the parent's lock away */
        } else if (rc == LEASE_ECLOSED) {
            forget_file(l, false);
        } else {
            host_lock_os_give(l->file);
        }
        (void)pthread_mutex_unlock(&l->mutex);
        return rc;
    }
    atomic_store_explicit(&l->holder, &held, memory_order_relaxed);
    l->held_next = held;
    held = l;
    return 0;
}

/* The mutex is ours: the file lock too, or neither. */
static int take_file(struct host_lock *l, enum host_lock_mode mode, bool wait)
{
    int rc = l->file == -1 ? LEASE_ECLOSED : host_lock_os_take(l->file, mode, wait);
    if (rc) {
        (void)pthread_mutex_unlock(&l->mutex);
        return rc;
    }
    return settle(l);
}

static int take_once(struct host_lock *l, enum host_lock_mode mode)
{
    if (pthread_mutex_trylock(&l->mutex)) {
        return LEASE_ELOCKED;
    }
    return take_file(l, mode, false);
}

/* -- patience --------------------------------------------------------------------------------- */

struct patience {
    int64_t budget_ns;
    int64_t until_ns;
    int64_t nap_ns;
    uint64_t dice;
    int64_t end_ns;
    uint32_t seen;
    uint32_t holder; /* who sat on the lock when patience was at its end before; 0: not yet so */
    uint32_t nobody; /* times that nobody did, or that it could not be told */
};

static uint32_t change_of(const struct host_lock *l)
{
    bool whole = l->change && host_lock_is_whole(l);
    return whole ? atomic_load_explicit(l->change, memory_order_relaxed) : 0;
}

static void be_patient(struct patience *p, const struct host_lock *l, int budget_ms)
{
    int64_t now = monotonic_ns();
    p->budget_ns = budget_ms * NS_PER_MS;
    p->until_ns = now + p->budget_ns;
    p->nap_ns = NAP_MIN_NS;
    p->dice = (uint64_t)now ^ (uint64_t)(uintptr_t)&held ^ ((uint64_t)l->pid << 32);
    p->seen = change_of(l);
    p->end_ns = now + p->budget_ns * HOST_LOCK_BUDGETS_MAX;
    p->holder = p->nobody = 0;
}

/* Nanoseconds left, at most 0 when patience is at its end. */
static int64_t patience_left(struct patience *p, const struct host_lock *l)
{
    int64_t now = monotonic_ns();
    uint32_t seen = change_of(l);
    if (seen != p->seen) {
        p->seen = seen;
        p->until_ns = now + p->budget_ns < p->end_ns ? now + p->budget_ns : p->end_ns;
    }
    return p->until_ns - now;
}

/* Does the one that sits on the lock get on, only not yet? On a busy machine it may wait for the
 * processor for longer than a budget; a stopped one does not. What is seen of it may be over at the
 * next glance: whoever is not at work may have given the lock back before we looked at it. */
static bool gets_on(struct patience *p, const struct host_lock *l)
{
    uint32_t before = p->holder;
    p->holder = host_lock_holder(l);
    if (p->holder == 0) {
        return p->nobody++ < NOBODY_MAX;
    }
    return (before != 0 && p->holder != before) || host_lock_os_is_at_work(p->holder) ||
           host_lock_holder(l) != p->holder;
}

static bool deserves_more(struct patience *p, const struct host_lock *l)
{
    if (monotonic_ns() >= p->end_ns || !gets_on(p, l)) {
        return false;
    }
    p->until_ns = monotonic_ns() + p->budget_ns;
    return true;
}

/* Between half and all of a nap that doubles, so that those who wait do not wait in step. */
static void nap(struct patience *p, int64_t left_ns)
{
    p->dice = p->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    int64_t half = p->nap_ns / 2;
    int64_t ns = half + (int64_t)((p->dice >> 33) % (uint64_t)half);
    ns = ns < left_ns ? ns : left_ns;
    struct timespec t = {0, (long)ns};
    (void)nanosleep(&t, NULL); /* a signal only shortens it */
    p->nap_ns = p->nap_ns * 2 < NAP_MAX_NS ? p->nap_ns * 2 : NAP_MAX_NS;
}

static int take_within(struct host_lock *l, enum host_lock_mode mode, int budget_ms)
{
    struct patience p;
    be_patient(&p, l, budget_ms);
    for (;;) {
        int64_t left_ns = patience_left(&p, l);
        if (left_ns <= 0 && !deserves_more(&p, l)) {
            return take_once(l, mode);
        }
        nap(&p, left_ns > 0 ? left_ns : p.budget_ns);
        int rc = take_once(l, mode);
        if (rc != LEASE_ELOCKED) {
            return rc;
        }
    }
}

/* -- the two calls ---------------------------------------------------------------------------- */

int host_lock_acquire(struct host_lock *l, enum host_lock_mode mode, int budget_ms)
{
    int rc = usable(l, mode);
    if (rc) {
        return rc;
    }
    if (budget_ms < 0) {
        (void)pthread_mutex_lock(&l->mutex);
        return take_file(l, mode, true);
    }
    rc = take_once(l, mode);
    if (rc != LEASE_ELOCKED || budget_ms == 0) {
        return rc;
    }
    return take_within(l, mode, budget_ms);
}

int host_lock_release(struct host_lock *l)
{
    if (!host_lock_held(l)) {
        bool forked = l->generation != 0 && l->generation != host_fork_generation();
        return forked ? LEASE_EFORK : LEASE_EINVAL;
    }
    struct host_lock **at = &held;
    while (*at != l) {
        at = &(*at)->held_next;
    }
    *at = l->held_next;
    atomic_store_explicit(&l->holder, NULL, memory_order_relaxed);
    host_lock_os_give(l->file);
    (void)pthread_mutex_unlock(&l->mutex);
    return 0;
}

uint32_t host_lock_holder(const struct host_lock *l)
{
    return l->generation ? host_lock_os_holder(l->device, l->inode) : 0;
}

host_lock_file host_lock_descriptor(const struct host_lock *l)
{
    return l->generation == host_fork_generation() ? l->file : -1;
}
