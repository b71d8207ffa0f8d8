/* A book whose pages are write-protected one by one, so that its writer runs at full speed up to a
 * page that it is about to change. Where the n-th page is, depends on the scene alone. */
#ifndef TESTS_CRASH_FENCE_H
#define TESTS_CRASH_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/host_layout.h"

#define FENCE_PAGE   4096
#define FENCE_PAGES  ((sizeof(struct host_file) + FENCE_PAGE - 1) / FENCE_PAGE)
#define FENCE_FAULTS 4096

/* Shared with the tracer. */
struct fence {
    bool up;                      /* pages are to be protected */
    uintptr_t base;               /* of the writer's book */
    uint32_t target;              /* raise STEP_BEGIN at this fault; 0: at none */
    uint32_t faults;              /* so far */
    uint32_t pages[FENCE_FAULTS]; /* at each of them */
    bool dull[FENCE_PAGES];       /* zero before and after: nobody looks at them */
};
extern struct fence *fence;

void fence_make(void);

/* In the writer, once it has its book; protects all of it, anew. */
void fence_raise(void);

#endif
