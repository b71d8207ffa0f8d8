/* The lock. The tests named seed_N_* answer the state-loop-lock seed's test plan:
 *
 *   1 test_lock_serializes_concurrent_writes          threads, and processes
 *   2 test_lock_releases_on_clean_exit
 *   3 test_lock_releases_on_exception                 C has none: error paths, and sudden death
 *   4 test_lock_is_per_loop                           per book
 *   5 test_no_lock_on_create_loop                     the contrary, see host_lock.h, "Creation"
 *   6 test_pause_loop_serialized_with_concurrent_read a mutation waits for the holder
 *   7 test_runner_tick_holds_lock_across_state_write  from load to commit nobody gets between
 *
 * and requirement_* its R1, R4, R5, R7 and D-L1. D-L2 (the file stays) is in requirement_5, D-L3
 * (creation) in seed_5, D-L4 (standard library only) is what this links with, D-L5 is R7.
 */
#define _GNU_SOURCE
#include "broker/host_lock.h"

#include "tests/lib/lock_stage.h"

/* -- the seed's seven ------------------------------------------------------------------------- */

/* Read, dawdle, write: what the seed's ticks do. */
static int increment(struct host_lock *lock, int budget_ms)
{
    int rc = host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, budget_ms);
    if (rc) {
        return rc;
    }
    if (atomic_fetch_add(&stage->inside, 1) != 0) {
        atomic_fetch_add(&stage->overlaps, 1);
    }
    uint32_t read = stage->plain;
    struct timespec dawdle = {0, 20000};
    (void)nanosleep(&dawdle, NULL);
    stage->plain = read + 1;
    atomic_fetch_sub(&stage->inside, 1);
    return host_lock_release(lock);
}

#define INCREMENTS 40

static void *increment_often(void *lock)
{
    for (int i = 0; i < INCREMENTS; i++) {
        if (increment(lock, i % 2 ? -1 : PATIENT)) {
            return NULL;
        }
    }
    return lock;
}

static pid_t spawn_incrementer(void)
{
    pid_t child = fork();
    if (child == 0) {
        bool opened = host_lock_open(&l, dir_fd, "book", HOST_LOCK_CREATE, 0600) == 0;
        _exit(opened && increment_often(&l) && host_lock_close(&l) == 0 ? 0 : 1);
    }
    return child;
}

static void seed_1_lock_serializes_concurrent_writes(void **state)
{
    (void)state;
    pid_t child[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        child[i] = spawn_incrementer();
    }
    open_book(&l, "book");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, increment_often, &l), 0);
    }
    for (int i = 0; i < 3; i++) {
        void *well = NULL;
        assert_int_equal(pthread_join(thread[i], &well), 0);
        assert_non_null(well);
        assert_ended_well(child[i]);
    }
    assert_int_equal(stage->overlaps, 0);
    assert_int_equal(stage->plain, 6 * INCREMENTS);
    assert_int_equal(host_lock_close(&l), 0);
}

static void seed_2_lock_releases_on_clean_exit(void **state)
{
    (void)state;
    open_book(&l, "book");
    open_book(&other, "book");
    take_and_give(&l, 0);
    take_and_give(&other, 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), 0);
    assert_int_equal(host_lock_close(&l), 0); /* closing gives back too */
    take_and_give(&other, 0);
    assert_int_equal(host_lock_close(&other), 0);
}

static void seed_3_lock_releases_on_exception(void **state)
{
    (void)state;
    open_book(&l, "book");
    open_book(&other, "book");
    host_lock_expect(&l, 4096); /* the error after the lock was had */
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_EDAMAGED);
    assert_false(host_lock_held(&l));
    take_and_give(&other, 0);
    pid_t child = spawn_holder("book", HOST_LOCK_EXCLUSIVE);
    assert_int_equal(host_lock_acquire(&other, HOST_LOCK_EXCLUSIVE, 0), LEASE_ELOCKED);
    kill_and_reap(child); /* and sudden death */
    take_and_give(&other, 0);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(host_lock_close(&other), 0);
}

static void seed_4_lock_is_per_book(void **state)
{
    (void)state;
    pid_t child = spawn_holder("theirs", HOST_LOCK_EXCLUSIVE);
    open_book(&l, "ours");
    open_book(&other, "theirs");
    take_and_give(&l, 0);
    assert_int_equal(host_lock_acquire(&other, HOST_LOCK_EXCLUSIVE, 0), LEASE_ELOCKED);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), 0);
    atomic_store(&stage->go, 1);
    assert_ended_well(child);
    take_and_give(&other, 0); /* one thread may hold several books, of different files */
    assert_int_equal(host_lock_release(&l), 0);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(host_lock_close(&other), 0);
}

/* Opens the book as soon as all are there; whoever finds it empty under the lock initialises it. */
static int open_in_a_race(uint32_t racers)
{
    struct stat st;
    atomic_fetch_add(&stage->step, 1);
    if (!eventually(step_reached, &racers) ||
        host_lock_open(&l, dir_fd, "new book", HOST_LOCK_CREATE, 0600) ||
        host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, -1)) {
        return 1;
    }
    int fd = (int)host_lock_descriptor(&l);
    if (fstat(fd, &st)) {
        return 2;
    }
    if (st.st_size == 0) {
        atomic_fetch_add(&stage->inside, 1);
        if (pwrite(fd, "book", 4, 0) != 4) {
            return 3;
        }
    }
    return host_lock_close(&l);
}

static void seed_5_exclusive_lock_decides_who_creates(void **state)
{
    (void)state;
    enum { RACERS = 12 };
    pid_t child[RACERS];
    for (int i = 0; i < RACERS; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            _exit(open_in_a_race(RACERS));
        }
    }
    for (int i = 0; i < RACERS; i++) {
        assert_ended_well(child[i]);
    }
    assert_int_equal(stage->inside, 1);
    assert_int_equal(faccessat(dir_fd, "new book", F_OK, 0), 0); /* left behind */
}

static void *mutate(void *lock)
{
    int rc = host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, -1);
    atomic_fetch_add(&stage->step, 1);
    return rc == 0 && host_lock_release(lock) == 0 ? lock : NULL;
}

static void seed_6_mutation_waits_for_the_holder(void **state)
{
    (void)state;
    pthread_t thread;
    void *well = NULL;
    open_book(&other, "book");
    open_book(&l, "book");
    assert_int_equal(host_lock_acquire(&other, HOST_LOCK_EXCLUSIVE, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, mutate, &l), 0);
    struct timespec a_while = {0, 20000000}; /* however long: it must not get on before */
    (void)nanosleep(&a_while, NULL);
    assert_int_equal(stage->step, 0);
    assert_int_equal(host_lock_release(&other), 0);
    assert_int_equal(pthread_join(thread, &well), 0);
    assert_non_null(well);
    assert_int_equal(host_lock_close(&other), 0);
    assert_int_equal(host_lock_close(&l), 0);
}

/* One tick: load, decide (slowly), commit, all under one lock. */
static int tick(void)
{
    if (host_lock_open(&l, dir_fd, "book", HOST_LOCK_CREATE, 0600) ||
        host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, -1)) {
        return 1;
    }
    uint32_t loaded = stage->plain;
    uint32_t one = 1;
    atomic_store(&stage->step, 1);
    if (!eventually(go_reached, &one)) {
        return 2;
    }
    stage->plain = loaded + 1;
    return host_lock_close(&l);
}

static void seed_7_lock_is_held_from_load_to_commit(void **state)
{
    (void)state;
    open_book(&l, "book");
    pid_t child = fork();
    if (child == 0) {
        _exit(tick());
    }
    await_step(1);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 5), LEASE_ELOCKED);
    atomic_store(&stage->go, 1);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, PATIENT), 0);
    assert_int_equal(stage->plain, 1); /* approve comes after the tick, and loses nothing of it */
    stage->plain += 10;
    assert_int_equal(host_lock_release(&l), 0);
    assert_ended_well(child);
    assert_int_equal(stage->plain, 11);
    assert_int_equal(host_lock_close(&l), 0);
}

/* -- its requirements ------------------------------------------------------------------------- */

static void requirement_1_shared_holders_stand_side_by_side(void **state)
{
    (void)state;
    pid_t child = spawn_holder("book", HOST_LOCK_SHARED);
    open_book(&l, "book");
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_SHARED, 0), 0);
    assert_int_equal(host_lock_release(&l), 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_ELOCKED);
    atomic_store(&stage->go, 1);
    assert_ended_well(child);
    take_and_give(&l, 0);
    assert_int_equal(host_lock_close(&l), 0);
}

static void requirement_1_vanished_directory_is_a_clear_error(void **state)
{
    (void)state;
    open_book(&l, "book");
    assert_int_equal(unlinkat(dir_fd, "book", 0), 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), LEASE_EVANISHED);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, -1), LEASE_EVANISHED);
    assert_false(host_lock_held(&l));
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(host_lock_open(&l, dir_fd, "book", HOST_LOCK_CREATE, 0600), LEASE_EVANISHED);
    assert_string_equal(lease_error_text(LEASE_EVANISHED), "runtime directory vanished mid-lock");
}

static void requirement_4_nothing_to_do_still_releases(void **state)
{
    (void)state;
    open_book(&l, "book");
    for (int i = 0; i < 3; i++) {
        take_and_give(&l, 0);
    }
    assert_int_equal(host_lock_release(&l), LEASE_EINVAL); /* once only */
    take_and_give(&l, 0);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(host_lock_close(&l), 0);
}

static void requirement_5_the_file_lies_in_its_directory_and_stays(void **state)
{
    (void)state;
    struct stat st;
    mode_t before = umask(077);
    assert_int_equal(host_lock_open(&l, dir_fd, "book", HOST_LOCK_CREATE, 0660), 0);
    (void)umask(before);
    take_and_give(&l, 0);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(fstatat(dir_fd, "book", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode & 07777, 0660); /* whatever the umask */
    assert_int_equal(st.st_size, 0);
}

static void requirement_7_the_lock_leaves_the_content_alone(void **state)
{
    (void)state;
    char read_back[8] = {0};
    open_book(&l, "book");
    assert_int_equal(pwrite((int)host_lock_descriptor(&l), "content", 7, 0), 7);
    take_and_give(&l, 0);
    assert_int_equal(host_lock_close(&l), 0);
    open_book(&l, "book");
    take_and_give(&l, 0);
    assert_int_equal(pread((int)host_lock_descriptor(&l), read_back, 7, 0), 7);
    assert_string_equal(read_back, "content");
    assert_int_equal(host_lock_close(&l), 0);
}

static void requirement_d_l1_waiting_has_an_end_where_asked_for(void **state)
{
    (void)state;
    pid_t child = spawn_holder("book", HOST_LOCK_EXCLUSIVE);
    assert_int_equal(kill(child, SIGSTOP), 0); /* a stopped holder must not block everyone */
    open_book(&l, "book");
    int64_t begin = test_now_ns();
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 20), LEASE_ELOCKED);
    assert_true(test_now_ns() - begin >= 20 * MS);
    assert_int_equal(host_lock_holder(&l), child);
    kill_and_reap(child);
    assert_int_equal(host_lock_holder(&l), 0);
    assert_int_equal(host_lock_close(&l), 0);
}

/* -- patience --------------------------------------------------------------------------------- */

static void *change_for_a_while(void *unused)
{
    struct timespec ms = {0, MS};
    for (int i = 0; i < 150; i++) {
        atomic_fetch_add(&stage->change, 1);
        (void)nanosleep(&ms, NULL);
    }
    atomic_store(&stage->go, 1); /* only now the holder gives back: after several budgets */
    return unused;
}

static void budget_starts_anew_while_others_get_on(void **state)
{
    (void)state;
    pthread_t thread;
    pid_t child = spawn_holder("book", HOST_LOCK_EXCLUSIVE);
    open_book(&l, "book");
    host_lock_watch(&l, &stage->change);
    assert_int_equal(pthread_create(&thread, NULL, change_for_a_while, NULL), 0);
    /* 150 ms at least: three budgets of 50 ms */
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 50), 0);
    assert_int_equal(stage->go, 1);
    assert_int_equal(host_lock_release(&l), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ended_well(child);
    assert_int_equal(host_lock_close(&l), 0);
}

static void *change_until_told(void *unused)
{
    while (atomic_load(&stage->go) == 0) {
        atomic_fetch_add(&stage->change, 1);
        struct timespec t = {0, 20000};
        (void)nanosleep(&t, NULL);
    }
    return unused;
}

static void patience_ends_however_much_changes(void **state)
{
    (void)state;
    pthread_t thread;
    pid_t child = spawn_holder("book", HOST_LOCK_EXCLUSIVE);
    open_book(&l, "book");
    host_lock_watch(&l, &stage->change);
    assert_int_equal(pthread_create(&thread, NULL, change_until_told, NULL), 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 1), LEASE_ELOCKED);
    atomic_store(&stage->go, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ended_well(child);
    assert_int_equal(host_lock_close(&l), 0);
}

/* -- nesting ---------------------------------------------------------------------------------- */

static void nesting_is_refused_on_every_handle_of_the_file(void **state)
{
    (void)state;
    open_book(&l, "book");
    open_book(&other, "book");
    assert_int_equal(linkat(dir_fd, "book", dir_fd, "alias", 0), 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), 0);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, -1), LEASE_ENESTED);
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_SHARED, 0), LEASE_ENESTED);
    assert_int_equal(host_lock_acquire(&other, HOST_LOCK_EXCLUSIVE, -1), LEASE_ENESTED);
    assert_true(host_lock_held(&l));
    assert_int_equal(host_lock_release(&other), LEASE_EINVAL);
    assert_int_equal(host_lock_release(&l), 0);
    take_and_give(&other, 0);
    assert_int_equal(host_lock_close(&l), 0);
    assert_int_equal(host_lock_close(&other), 0);
}

static void *try_as_another(void *arg)
{
    struct host_lock *lock = arg;
    bool right = !host_lock_held(lock) &&
                 host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, 5) == LEASE_ELOCKED &&
                 host_lock_release(lock) == LEASE_EINVAL && host_lock_close(lock) == LEASE_EBUSY;
    return right ? lock : NULL;
}

static void another_thread_waits_and_cannot_give_back(void **state)
{
    (void)state;
    pthread_t thread;
    void *well = NULL;
    open_book(&l, "book");
    assert_int_equal(host_lock_acquire(&l, HOST_LOCK_SHARED, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, try_as_another, &l), 0);
    assert_int_equal(pthread_join(thread, &well), 0);
    assert_non_null(well);
    assert_int_equal(host_lock_release(&l), 0);
    assert_int_equal(host_lock_close(&l), 0);
}

static void several_locks_may_be_given_back_in_any_order(void **state)
{
    (void)state;
    open_book(&l, "a");
    open_book(&other, "b");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(host_lock_acquire(&l, HOST_LOCK_EXCLUSIVE, 0), 0);
        assert_int_equal(host_lock_acquire(&other, HOST_LOCK_EXCLUSIVE, 0), 0);
        assert_int_equal(host_lock_release(i ? &l : &other), 0);
        assert_int_equal(host_lock_release(i ? &other : &l), 0);
    }
    take_and_give(&l, 0);
    take_and_give(&other, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fresh(seed_1_lock_serializes_concurrent_writes),
        fresh(seed_2_lock_releases_on_clean_exit),
        fresh(seed_3_lock_releases_on_exception),
        fresh(seed_4_lock_is_per_book),
        fresh(seed_5_exclusive_lock_decides_who_creates),
        fresh(seed_6_mutation_waits_for_the_holder),
        fresh(seed_7_lock_is_held_from_load_to_commit),
        fresh(requirement_1_shared_holders_stand_side_by_side),
        fresh(requirement_1_vanished_directory_is_a_clear_error),
        fresh(requirement_4_nothing_to_do_still_releases),
        fresh(requirement_5_the_file_lies_in_its_directory_and_stays),
        fresh(requirement_7_the_lock_leaves_the_content_alone),
        fresh(requirement_d_l1_waiting_has_an_end_where_asked_for),
        fresh(budget_starts_anew_while_others_get_on),
        fresh(patience_ends_however_much_changes),
        fresh(nesting_is_refused_on_every_handle_of_the_file),
        fresh(another_thread_waits_and_cannot_give_back),
        fresh(several_locks_may_be_given_back_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
