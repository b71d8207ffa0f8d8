/* The lock where POSIX has its say: fork, descriptors, and what may lie in a directory. What it
 * promises on every system is in test_host_lock.c. */
#define _GNU_SOURCE
#include "broker/host_lock.h"

#include "tests/lib/lock_stage.h"

/* -- descriptors ------------------------------------------------------------------------------ */

/* What a program prints that has closed its standard streams must not go into a book. */
static void a_closed_stream_is_not_taken_for_the_lock(void **state)
{
    (void)state;
    int input = dup(STDIN_FILENO);
    if (input >= 0)
        assert_int_equal(close(STDIN_FILENO), 0);
    int opened = host_lock_open(&l, dir_fd, "book", HOST_LOCK_CREATE, 0600);
    if (input >= 0) {
        (void)dup2(input, STDIN_FILENO);
        (void)close(input);
    }
    assert_int_equal(opened, 0);
    assert_true(host_lock_descriptor(&l) > STDERR_FILENO);
}

/* -- fork ------------------------------------------------------------------------------------- */

static int use_what_the_parent_holds(struct host_lock *lock)
{
    if (host_lock_held(lock) || host_lock_release(lock) != LEASE_EFORK ||
        host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, -1) != LEASE_EFORK || host_lock_close(lock)) {
        return 1;
    }
    if (host_lock_open(lock, dir_fd, "book", 0, 0)) {
        return 2;
    }
    /* A handle of its own, and the parent still sits on the lock. */
    return host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, 0) == LEASE_ELOCKED ? host_lock_close(lock)
                                                                            : 3;
}

static void a_forked_child_neither_holds_nor_unlocks(void **state)
{
    (void)state;
    open_book(&l, "book");
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(use_what_the_parent_holds(&l));
    }
    assert_ended_well(child);
    assert_true(host_lock_held(&l));
    int fd = openat(dir_fd, "book", O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1); /* still ours */
    assert_int_equal(close(fd), 0);
    assert_int_equal(host_lock_release(&l), 0);
    assert_int_equal(host_lock_close(&l), 0);
}

/* Takes the lock, forks a child that lives on, and dies of SIGKILL. */
static void die_leaving_a_child(void)
{
    if (host_lock_open(&l, dir_fd, "book", HOST_LOCK_CREATE, 0600) ||
        host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0)) {
        _exit(1);
    }
    if (fork() == 0) {
        uint32_t one = 1;
        atomic_store(&stage->step, 1);
        (void)eventually(go_reached, &one);
        _exit(0);
    }
    uint32_t one = 1;
    (void)eventually(step_reached, &one);
    (void)raise(SIGKILL);
}

static void a_childs_copy_does_not_outlive_a_killed_holder(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        die_leaving_a_child();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    open_book(&l, "book");
    take_and_give(&l, 0); /* though the grandchild, forked under the lock, is alive */
    atomic_store(&stage->go, 1);
    assert_int_equal(host_lock_close(&l), 0);
}

/* -- what may lie in the directory, or happen to us ------------------------------------------- */

static void planted_files_are_refused(void **state)
{
    (void)state;
    assert_int_equal(symlinkat("elsewhere", dir_fd, "link"), 0);
    assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
    assert_int_equal(mkdirat(dir_fd, "directory", 0700), 0);
    assert_int_equal(host_lock_open(&l, dir_fd, "link", HOST_LOCK_CREATE, 0600), LEASE_EPERM);
    assert_int_equal(host_lock_open(&l, dir_fd, "fifo", HOST_LOCK_CREATE, 0600), LEASE_EPERM);
    assert_int_equal(host_lock_open(&l, dir_fd, "directory", HOST_LOCK_CREATE, 0600), LEASE_EPERM);
    assert_int_equal(host_lock_open(&l, dir_fd, "absent", 0, 0600), LEASE_EABSENT);
    assert_int_equal(host_lock_open(&l, dir_fd, "", HOST_LOCK_CREATE, 0600), LEASE_EINVAL);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_SHARED, 0), LEASE_ECLOSED);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(faccessat(dir_fd, "elsewhere", F_OK, 0), -1); /* not made through the link */
}

static void a_file_that_shrank_is_damaged(void **state)
{
    (void)state;
    open_book(&l, "book");
    assert_int_equal(ftruncate((int)host_lock_descriptor(&l), 8192), 0);
    host_lock_expect(&l, 8192);
    take_and_give(&l, 0);
    assert_int_equal(ftruncate((int)host_lock_descriptor(&l), 8191), 0);
    host_lock_expect(&l, 8192); /* also makes the next look be now, not in a millisecond */
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_EDAMAGED);
    assert_int_equal(host_lock_close(&l), 0);
}

static bool damage_is_noticed(void *arg)
{
    struct host_lock *lock = arg;
    int rc = host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, 0);
    if (rc == 0) {
        (void)host_lock_release(lock);
    }
    return rc == LEASE_EVANISHED;
}

static void the_look_after_the_lock_comes_again_by_itself(void **state)
{
    (void)state;
    open_book(&l, "book");
    take_and_give(&l, 0);
    assert_int_equal(unlinkat(dir_fd, "book", 0), 0);
    assert_true(eventually(damage_is_noticed, &l));
    assert_int_equal(host_lock_close(&l), 0);
}

static void a_descriptor_closed_under_us_is_noticed(void **state)
{
    (void)state;
    open_book(&l, "book");
    int number = (int)host_lock_descriptor(&l);
    assert_int_equal(close(number), 0); /* as daemons do that close everything */
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_ECLOSED);
    int stranger = openat(dir_fd, "stranger", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(stranger, number);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_ECLOSED);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(fcntl(stranger, F_GETFD), FD_CLOEXEC); /* not closed by us */
    assert_int_equal(close(stranger), 0);
}

static void readers_lock_shared_without_write_permission(void **state)
{
    (void)state;
    open_book(&l, "book");
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(host_lock_open(&l, dir_fd, "book", HOST_LOCK_READ, 0), 0);
    assert_int_equal(fcntl((int)host_lock_descriptor(&l), F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_EPERM);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_SHARED, 0), 0);
    assert_int_equal(host_lock_close(&l), 0);
}

static void an_open_descriptor_can_be_adopted(void **state)
{
    (void)state;
    int fd = openat(dir_fd, "book", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(host_lock_adopt(&l, fd, "book"), 0);
    take_and_give(&l, 0);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(host_lock_adopt(&l, fd, "book"), LEASE_ECLOSED);
    assert_int_equal(host_lock_close(&l), 0);
}

static void zeroed_memory_is_a_closed_handle(void **state)
{
    (void)state;
    memset(&l, 0, sizeof l);
    assert_false(host_lock_held(&l));
    assert_int_equal(host_lock_descriptor(&l), -1);
    assert_int_equal(host_lock_holder(&l), 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_SHARED, -1), LEASE_ECLOSED);
    assert_int_equal(host_lock_release(&l), LEASE_EINVAL);
    assert_int_equal(host_lock_close(&l), 0);
}

static void more_locks_than_the_maximum_are_refused(void **state)
{
    (void)state;
    static struct host_lock many[HOST_LOCK_OPEN_MAX];
    for (int i = 0; i < HOST_LOCK_OPEN_MAX; i++) {
        open_book(&many[i], "book");
    }
    assert_int_equal(host_lock_open(&l, dir_fd, "book", 0, 0), LEASE_EFULL);
    for (int i = 0; i < HOST_LOCK_OPEN_MAX; i++) {
        assert_int_equal(host_lock_close(&many[i]), 0);
    }
    open_book(&l, "book");
    take_and_give(&l, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fresh(a_closed_stream_is_not_taken_for_the_lock),
        fresh(a_forked_child_neither_holds_nor_unlocks),
        fresh(a_childs_copy_does_not_outlive_a_killed_holder),
        fresh(planted_files_are_refused),
        fresh(a_file_that_shrank_is_damaged),
        fresh(the_look_after_the_lock_comes_again_by_itself),
        fresh(a_descriptor_closed_under_us_is_noticed),
        fresh(readers_lock_shared_without_write_permission),
        fresh(an_open_descriptor_can_be_adopted),
        fresh(more_locks_than_the_maximum_are_refused),
        fresh(zeroed_memory_is_a_closed_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
