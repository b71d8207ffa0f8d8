#define _GNU_SOURCE
#include "broker/host_process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

static void self_is_known_whole(void **state)
{
    (void)state;
    struct host_process self;
    host_process_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_true(self.start > 0);
    assert_true(self.pidns > 0);
    assert_true(host_boot_hash(self.boot_id) != 0);
    assert_int_equal(host_process_check(self.pid, self.start, self.pidns), HOST_PROCESS_ALIVE);
    assert_int_equal(host_process_glance(self.pid, self.pidns), HOST_PROCESS_ALIVE);
}

static void a_child_is_itself_not_its_parent(void **state)
{
    (void)state;
    struct host_process self;
    host_process_self(&self);
    pid_t child = fork();
    if (child == 0) {
        struct host_process mine;
        host_process_self(&mine);
        bool right = mine.pid == (uint32_t)getpid() && mine.pid != self.pid;
        _exit(right && mine.pidns == self.pidns ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static pid_t spawn_sleeper(void)
{
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)pause();
        }
    }
    return child;
}

static bool is_dead_in_full(void *pid)
{
    return host_process_check((uint32_t) * (pid_t *)pid, 0, 0) == HOST_PROCESS_DEAD;
}

static void a_zombie_is_dead_though_its_pid_answers(void **state)
{
    (void)state;
    pid_t child = spawn_sleeper();
    assert_int_equal(host_process_check((uint32_t)child, 0, 0), HOST_PROCESS_ALIVE);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_true(eventually(is_dead_in_full, &child));
    assert_int_equal(host_process_glance((uint32_t)child, 0), HOST_PROCESS_ALIVE);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(host_process_glance((uint32_t)child, 0), HOST_PROCESS_DEAD);
    assert_int_equal(host_process_check((uint32_t)child, 0, 0), HOST_PROCESS_DEAD);
}

static void a_stopped_process_is_alive(void **state)
{
    (void)state;
    pid_t child = spawn_sleeper();
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    assert_int_equal(host_process_check((uint32_t)child, 0, 0), HOST_PROCESS_ALIVE);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void another_start_time_is_another_process(void **state)
{
    (void)state;
    struct host_process self;
    host_process_self(&self);
    assert_int_equal(host_process_check(self.pid, self.start + 1, self.pidns), HOST_PROCESS_DEAD);
    assert_int_equal(host_process_check(self.pid, 0, 0), HOST_PROCESS_ALIVE);
}

static void another_namespace_cannot_be_told(void **state)
{
    (void)state;
    struct host_process self;
    host_process_self(&self);
    uint64_t other = self.pidns + 1;
    assert_int_equal(host_process_check(self.pid, self.start, other), HOST_PROCESS_UNKNOWN);
    assert_int_equal(host_process_glance(0x7ffffff0, other), HOST_PROCESS_UNKNOWN);
}

static void nonsense_is_not_a_process(void **state)
{
    (void)state;
    assert_int_equal(host_process_check(0, 0, 0), HOST_PROCESS_UNKNOWN);
    assert_int_equal(host_process_check(UINT32_MAX, 1, 0), HOST_PROCESS_UNKNOWN);
    assert_int_equal(host_process_check(0x7ffffff0, 1, 0), HOST_PROCESS_DEAD);
}

static void somebody_elses_process_is_alive(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        pid_t child = fork();
        if (child == 0) {
            if (setgid(65534) || setuid(65534)) {
                _exit(2);
            }
            _exit(host_process_check(1, 0, 0) == HOST_PROCESS_ALIVE ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        return;
    }
    assert_int_equal(host_process_check(1, 0, 0), HOST_PROCESS_ALIVE);
}

static void a_name_full_of_parentheses_is_read_right(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_NAME, ") Z 1 (a) Z");
        struct host_process self;
        host_process_self(&self);
        bool alive = host_process_check(self.pid, self.start, 0) == HOST_PROCESS_ALIVE;
        _exit(alive && self.start > 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *run_on(void *leader)
{
    (void)pthread_join(*(pthread_t *)leader, NULL);
    (void)raise(SIGSTOP); /* the leader has ended: the process is a "zombie" with a live thread */
    for (;;) {
        (void)pause();
    }
    return NULL;
}

static void a_process_whose_main_thread_ended_is_alive(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer forbids threads in a forked child */
#endif
    pid_t child = fork();
    if (child == 0) {
        static pthread_t leader, thread;
        leader = pthread_self();
        if (pthread_create(&thread, NULL, run_on, &leader)) {
            _exit(2);
        }
        pthread_exit(NULL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(host_process_check((uint32_t)child, 0, 0), HOST_PROCESS_ALIVE);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_process_is_told_by_its_start(void **state)
{
    (void)state;
    struct host_process self;
    host_process_self(&self);
    assert_int_equal(host_process_start((uint32_t)getpid()), self.start);
    assert_int_equal(host_process_start(0), 0); /* no such process */
}

static void an_unknown_boot_hashes_to_nothing(void **state)
{
    (void)state;
    uint8_t none[16] = {0};
    uint8_t one[16] = {1};
    uint8_t two[16] = {2};
    assert_true(host_boot_hash(none) == 0);
    assert_true(host_boot_hash(one) != host_boot_hash(two));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_is_known_whole),
        cmocka_unit_test(a_child_is_itself_not_its_parent),
        cmocka_unit_test(a_zombie_is_dead_though_its_pid_answers),
        cmocka_unit_test(a_stopped_process_is_alive),
        cmocka_unit_test(another_start_time_is_another_process),
        cmocka_unit_test(another_namespace_cannot_be_told),
        cmocka_unit_test(nonsense_is_not_a_process),
        cmocka_unit_test(somebody_elses_process_is_alive),
        cmocka_unit_test(a_name_full_of_parentheses_is_read_right),
        cmocka_unit_test(a_process_whose_main_thread_ended_is_alive),
        cmocka_unit_test(a_process_is_told_by_its_start),
        cmocka_unit_test(an_unknown_boot_hashes_to_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
