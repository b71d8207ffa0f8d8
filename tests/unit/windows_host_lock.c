/* The lock on Windows: several processes of several threads count in one file. Plain C, since
 * cmocka is not there; tools/mingw.sh builds it and runs it under Wine where that is installed.
 * Prints what a lock and unlock costs. Exit 0: every promise was kept. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "broker/error.h"
#include "broker/host_lock.h"

#define FILE_NAME "host_lock_windows.tmp"
#define PROCESSES 4
#define THREADS   2
#define ROUNDS    500
#define TIMED     20000

static struct host_lock lock;
static int failures;

static void expect(int is, int wanted, const char *what)
{
    if (is != wanted) {
        printf("FAILED %s: %d, not %d\n", what, is, wanted);
        failures++;
    }
}

static unsigned transfer(unsigned value, BOOL out)
{
    OVERLAPPED start;
    DWORD done = 0;
    HANDLE h = (HANDLE)host_lock_descriptor(&lock);
    memset(&start, 0, sizeof start);
    BOOL well = out ? WriteFile(h, &value, sizeof value, &done, &start)
                    : ReadFile(h, &value, sizeof value, &done, &start);
    if (!well && GetLastError() != ERROR_HANDLE_EOF) {
        failures++;
    }
    return done == sizeof value ? value : 0;
}

static void *count(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        expect(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, i % 2 ? -1 : 20000), 0, "acquire");
        (void)transfer(transfer(0, FALSE) + 1, TRUE);
        expect(host_lock_release(&lock), 0, "release");
    }
    return NULL;
}

static int child(void)
{
    pthread_t thread[THREADS];
    expect(host_lock_open(&lock, 0, FILE_NAME, HOST_LOCK_CREATE, 0), 0, "open in child");
    for (int i = 0; i < THREADS; i++) {
        expect(pthread_create(&thread[i], NULL, count, NULL), 0, "thread");
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    expect(host_lock_close(&lock), 0, "close in child");
    return failures ? 1 : 0;
}

static void count_in_processes(const char *self)
{
    STARTUPINFOA startup;
    PROCESS_INFORMATION process[PROCESSES];
    char command[MAX_PATH + 16];
    (void)snprintf(command, sizeof command, "\"%s\" child", self);
    for (int i = 0; i < PROCESSES; i++) {
        memset(&startup, 0, sizeof startup);
        startup.cb = sizeof startup;
        expect(
            CreateProcessA(NULL, command, NULL, NULL, FALSE, 0, NULL, NULL, &startup, &process[i]),
            TRUE, "child process");
    }
    for (int i = 0; i < PROCESSES; i++) {
        DWORD code = 99;
        (void)WaitForSingleObject(process[i].hProcess, INFINITE);
        (void)GetExitCodeProcess(process[i].hProcess, &code);
        expect((int)code, 0, "child's exit code");
    }
    expect((int)transfer(0, FALSE), PROCESSES * THREADS * ROUNDS, "counted under the lock");
}

static void refuse(void)
{
    struct host_lock other;
    expect(host_lock_open(&other, 0, FILE_NAME, 0, 0), 0, "open again");
    expect(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, 20), 0, "first");
    expect(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, 20), LEASE_ENESTED, "nested");
    expect(host_lock_acquire(&other, HOST_LOCK_SHARED, 20), LEASE_ENESTED, "nested by another");
    expect(host_lock_release(&lock), 0, "release");
    expect(host_lock_release(&lock), LEASE_EINVAL, "release of nothing");
    host_lock_expect(&lock, 1u << 20);
    expect(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, 20), LEASE_EDAMAGED, "short file");
    host_lock_expect(&lock, 0);
    expect(host_lock_close(&other), 0, "close");
    expect(host_lock_open(&other, 0, "no\\such\\file", HOST_LOCK_CREATE, 0), LEASE_EVANISHED,
           "no directory");
    expect(host_lock_open(&other, 0, "no_such_file", 0, 0), LEASE_EABSENT, "no file");
}

static void *hold(void *ready)
{
    struct host_lock other;
    expect(host_lock_open(&other, 0, FILE_NAME, 0, 0), 0, "open in holder");
    expect(host_lock_acquire(&other, HOST_LOCK_EXCLUSIVE, -1), 0, "hold");
    (void)SetEvent(((HANDLE *)ready)[0]);
    (void)WaitForSingleObject(((HANDLE *)ready)[1], INFINITE);
    expect(host_lock_close(&other), 0, "closing releases");
    return NULL;
}

static void run_out_of_budget(void)
{
    HANDLE event[2] = {CreateEventA(NULL, TRUE, FALSE, NULL),
                       CreateEventA(NULL, TRUE, FALSE, NULL)};
    pthread_t thread;
    expect(pthread_create(&thread, NULL, hold, event), 0, "thread");
    (void)WaitForSingleObject(event[0], INFINITE);
    expect(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, 0), LEASE_ELOCKED, "no budget");
    expect(host_lock_acquire(&lock, HOST_LOCK_SHARED, 20), LEASE_ELOCKED, "out of budget");
    (void)SetEvent(event[1]);
    (void)pthread_join(thread, NULL);
    expect(host_lock_acquire(&lock, HOST_LOCK_SHARED, 0), 0, "shared");
    expect(host_lock_release(&lock), 0, "release");
}

static void measure(void)
{
    LARGE_INTEGER hertz, begin, end;
    (void)QueryPerformanceFrequency(&hertz);
    (void)QueryPerformanceCounter(&begin);
    for (int i = 0; i < TIMED; i++) {
        expect(host_lock_acquire(&lock, HOST_LOCK_EXCLUSIVE, 20), 0, "acquire");
        expect(host_lock_release(&lock), 0, "release");
    }
    (void)QueryPerformanceCounter(&end);
    printf("lock and unlock: %.2f us\n",
           (double)(end.QuadPart - begin.QuadPart) * 1e6 / (double)hertz.QuadPart / TIMED);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        return child();
    }
    (void)DeleteFileA(FILE_NAME);
    expect(host_lock_open(&lock, 0, FILE_NAME, HOST_LOCK_CREATE, 0), 0, "open");
    count_in_processes(argv[0]);
    refuse();
    run_out_of_budget();
    measure();
    expect(host_lock_close(&lock), 0, "close");
    (void)DeleteFileA(FILE_NAME);
    printf("%s\n", failures ? "FAILED" : "all well");
    return failures ? 1 : 0;
}
