#define _GNU_SOURCE
#include "tests/crash/stepper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define TUNABLES                                                                                   \
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:"                                                \
    "glibc.cpu.x86_rep_stosb_threshold=1073741824"

void step_without_strings(char **argv)
{
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (tunables && strcmp(tunables, TUNABLES) == 0)
        return;
    setenv("GLIBC_TUNABLES", TUNABLES, 1);
    execv("/proc/self/exe", argv);
}

static void fail(const char *what)
{
    fprintf(stderr, "stepper: %s: %s\n", what, strerror(errno));
    exit(errno == EPERM ? 77 : 99); /* where nobody may trace */
}

/* What a stop means; `signal` is to be given to the process when it goes on. */
static enum step_event meaning(pid_t pid, int *signal)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid");
    *signal = 0;
    if (!WIFSTOPPED(status)) {
        if (WIFSIGNALED(status))
            fprintf(stderr, "stepper: ended by signal %d\n", WTERMSIG(status));
        return STEP_GONE;
    }
    switch (WSTOPSIG(status)) {
    case SIGTRAP:
    case SIGTRAP | 0x80: return STEP_STEPPED;
    case STEP_BEGIN: return STEP_MARK;
    case STEP_END: return STEP_OVER;
    case SIGSEGV: *signal = SIGSEGV; return STEP_FAULT;
    default: *signal = WSTOPSIG(status); return STEP_STEPPED;
    }
}

static int pending; /* of the one process that is traced at a time */

static enum step_event go_on(pid_t pid, enum __ptrace_request how)
{
    if (ptrace(how, pid, NULL, (void *)(intptr_t)pending) < 0)
        fail("ptrace");
    return meaning(pid, &pending);
}

pid_t step_start(void (*part)(void *context), void *context)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(98);
        raise(STEP_BEGIN);
        part(context);
        _exit(0);
    }
    if (pid < 0)
        fail("fork");
    if (meaning(pid, &pending) != STEP_MARK) {
        errno = EPERM;
        fail("nobody may trace here");
    }
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(intptr_t)PTRACE_O_TRACESYSGOOD);
    return pid;
}

enum step_event step_once(pid_t pid)
{
    return go_on(pid, PTRACE_SINGLESTEP);
}

enum step_event step_run(pid_t pid)
{
    return go_on(pid, PTRACE_CONT);
}

enum step_event step_to_call(pid_t pid)
{
    return go_on(pid, PTRACE_SYSCALL);
}

uintptr_t step_fault(pid_t pid)
{
    siginfo_t info;
    if (ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) < 0)
        fail("ptrace");
    return (uintptr_t)info.si_addr;
}

void step_kill(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
        continue;
    pending = 0;
}
