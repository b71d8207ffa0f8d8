#define _GNU_SOURCE
#include "tests/crash/fence.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/crash/stepper.h"

struct fence *fence;

static unsigned char *base; /* the book, as it was mapped last */
static uint32_t open_pages[2];
#define NO_PAGE UINT32_MAX

void *__real_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);

void fence_make(void)
{
    void *at =
        __real_mmap(NULL, sizeof *fence, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    fence = at;
}

static void set_rights(uint32_t page, uint32_t count, int rights)
{
    if (mprotect(base + (size_t)page * FENCE_PAGE, (size_t)count * FENCE_PAGE, rights) < 0)
        _exit(97);
}

static void close_pages(void)
{
    for (int i = 0; i < 2; i++) {
        if (open_pages[i] != NO_PAGE)
            set_rights(open_pages[i], 1, PROT_READ);
        open_pages[i] = NO_PAGE;
    }
}

/* Two pages are open at a time, as one store may touch two; dull ones stay so, all in a row. */
static void open_page(uint32_t page)
{
    if (fence->dull[page]) {
        close_pages();
        uint32_t count = 1;
        while (page + count < FENCE_PAGES && fence->dull[page + count])
            count++;
        set_rights(page, count, PROT_READ | PROT_WRITE);
        return;
    }
    if (open_pages[1] != NO_PAGE)
        set_rights(open_pages[1], 1, PROT_READ);
    open_pages[1] = open_pages[0];
    open_pages[0] = page;
    set_rights(page, 1, PROT_READ | PROT_WRITE);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    size_t offset = (size_t)((unsigned char *)info->si_addr - base);
    if (!base || offset >= sizeof(struct host_file)) {
        signal(number, SIG_DFL); /* a real one: it happens again */
        return;
    }
    open_page((uint32_t)(offset / FENCE_PAGE));
    if (fence->faults < FENCE_FAULTS)
        fence->pages[fence->faults] = (uint32_t)(offset / FENCE_PAGE);
    if (++fence->faults == fence->target)
        raise(STEP_BEGIN);
}

void fence_raise(void)
{
    if (!fence->up || !base)
        return;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    open_pages[0] = open_pages[1] = NO_PAGE;
    set_rights(0, (uint32_t)FENCE_PAGES, PROT_READ);
}

/* So that a book is fenced in before whoever opens it has touched it. */
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
    void *got = __real_mmap(at, size, rights, flags, fd, offset);
    if (got != MAP_FAILED && size == sizeof(struct host_file) && (flags & MAP_TYPE) == MAP_SHARED) {
        base = got;
        if (fence)
            fence->base = (uintptr_t)got;
        if (fence && fence->up)
            fence_raise();
    }
    return got;
}
