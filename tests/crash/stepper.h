/* A process that is stopped before each of its instructions, and killed at one of them.
 *
 * What is traced says so itself: it raises STEP_BEGIN where the steps begin and STEP_END behind the
 * last one. Between the two, step_once runs one instruction at a time. */
#ifndef TESTS_CRASH_STEPPER_H
#define TESTS_CRASH_STEPPER_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STEP_BEGIN SIGUSR1
#define STEP_END   SIGUSR2

enum step_event {
    STEP_STEPPED, /* one instruction on, or at the border of a system call */
    STEP_MARK,    /* it has raised STEP_BEGIN */
    STEP_OVER,    /* it has raised STEP_END */
    STEP_FAULT,   /* SIGSEGV is on its way to it: its own handler's affair */
    STEP_GONE     /* it has ended */
};

/* libc copies and clears long runs with one string instruction, which is interrupted after each byte:
 * thousands of steps that say nothing new. Starts the program again with loops in its place. */
void step_without_strings(char **argv);

/* Starts part(context) in a traced child, and answers when it stands still at its very beginning. */
pid_t step_start(void (*part)(void *context), void *context);

/* One instruction; or everything up to the next event; or up to the border of the next system call. */
enum step_event step_once(pid_t pid);
enum step_event step_run(pid_t pid);
enum step_event step_to_call(pid_t pid);

/* Where it was about to write, after STEP_FAULT. */
uintptr_t step_fault(pid_t pid);

/* SIGKILL, here and now. Answers when the kernel has closed what it had open. */
void step_kill(pid_t pid);

#endif
