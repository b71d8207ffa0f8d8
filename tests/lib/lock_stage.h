/* The stage on which tests of the lock play: a directory, two handles, a page shared with children
 * who say how far they are, and a child that sits on a lock until it is told to give it back. */
#ifndef LEASEHOLD_TESTS_LOCK_STAGE_H
#define LEASEHOLD_TESTS_LOCK_STAGE_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_lock.h"
#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

#define MS      INT64_C(1000000)
#define PATIENT 20000 /* ms: a budget that no test may use up */

/* What the processes of one test share; lies in a page of its own. */
struct stage {
    _Atomic uint32_t step; /* the children say how far they are */
    _Atomic uint32_t go;
    _Atomic uint32_t inside;
    _Atomic uint32_t overlaps;
    _Atomic uint32_t change;
    uint32_t plain; /* written only under the lock, hence not atomic */
};

static char dir[TEMP_DIR_MAX];
static int dir_fd;
static struct stage *stage;
static struct host_lock l, other; /* closed by tear_down, also where a test has failed */

static inline int set_up(void **state)
{
    (void)state;
    stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED || !temp_dir_make(dir)) {
        return -1;
    }
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    (void)host_lock_close(&l);
    (void)host_lock_close(&other);
    (void)munmap(stage, sizeof *stage);
    (void)close(dir_fd);
    temp_dir_remove(dir);
    return 0;
}

static inline void open_book(struct host_lock *lock, const char *name)
{
    assert_int_equal(host_lock_open(lock, dir_fd, name, HOST_LOCK_CREATE, 0600), 0);
}

static inline void take_and_give(struct host_lock *lock, int budget_ms)
{
    assert_int_equal(host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, budget_ms), 0);
    assert_int_equal(host_lock_release(lock), 0);
}

static inline bool step_reached(void *wanted)
{
    return atomic_load(&stage->step) >= *(uint32_t *)wanted;
}

static inline void await_step(uint32_t wanted)
{
    assert_true(eventually(step_reached, &wanted));
}

static inline bool go_reached(void *wanted)
{
    return atomic_load(&stage->go) >= *(uint32_t *)wanted;
}

static inline void assert_ended_well(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A child that takes the lock, says so (step 1), and gives it back when told to (go 1). */
static inline pid_t spawn_holder(const char *name, enum host_lock_mode mode)
{
    pid_t child = fork();
    if (child == 0) {
        uint32_t one = 1;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (host_lock_open(&l, dir_fd, name, HOST_LOCK_CREATE, 0600) ||
            host_lock_acquire(&l, mode, PATIENT)) {
            _exit(1);
        }
        atomic_store(&stage->step, 1);
        _exit(eventually(go_reached, &one) && host_lock_release(&l) == 0 ? 0 : 2);
    }
    await_step(1);
    return child;
}

static inline void kill_and_reap(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#define fresh(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
