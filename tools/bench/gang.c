/* A gang: processes that begin together, repeat one operation, and measure each. */
#define _GNU_SOURCE

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench.h"

#define WARM_UP   500 /* operations */
#define OPEN_MS   10000
#define WRITER_NS 1000000

int64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- latencies ------------------------------------------------------------------------------ */

/* 128 classes for each power of two. */
static uint32_t class_of(uint64_t ns)
{
    if (ns < 128)
        return (uint32_t)ns;
    uint32_t power = 63u - (uint32_t)__builtin_clzll(ns);
    uint32_t at = (power - 6) * 128 + ((uint32_t)(ns >> (power - 7)) & 127);
    return at < HISTOGRAM_SIZE ? at : HISTOGRAM_SIZE - 1;
}

static double middle_of(uint32_t at)
{
    if (at < 128)
        return at;
    uint32_t power = at / 128 + 6;
    double width = (double)(UINT64_C(1) << (power - 7));
    return (128 + at % 128 + 0.5) * width;
}

void histogram_add(struct histogram *histogram, int64_t ns)
{
    histogram->counts[class_of(ns > 0 ? (uint64_t)ns : 0)]++;
}

double histogram_quantile(const struct histogram *gang, uint32_t count, double quantile)
{
    uint64_t all = 0, sum = 0;
    for (uint32_t at = 0; at < HISTOGRAM_SIZE; at++)
        for (uint32_t i = 0; i < count; i++)
            all += gang[i].counts[at];
    for (uint32_t at = 0; at < HISTOGRAM_SIZE; at++) {
        for (uint32_t i = 0; i < count; i++)
            sum += gang[i].counts[at];
        if (sum > 0 && (double)sum >= quantile * (double)all)
            return middle_of(at);
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *values, uint32_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* ---- the processes -------------------------------------------------------------------------- */

struct member {
    uint64_t count, failed;
    int64_t took_ns;
};

/* Shared by the members and their parent. */
struct gang {
    _Atomic uint32_t ready, broken;
    _Atomic bool go, stop;
    struct member members[BENCH_PROCESSES_MAX];
    struct histogram histograms[BENCH_PROCESSES_MAX];
};

static void pause_ns(int64_t ns)
{
    struct timespec t = {0, (long)ns};
    nanosleep(&t, NULL);
}

static void *begin(const struct subject *subject, const struct bench_place *place,
                   struct gang *gang)
{
    void *state = subject->open(place);
    if (state)
        for (uint32_t i = 0; i < WARM_UP; i++)
            subject->once(state);
    atomic_fetch_add(state ? &gang->ready : &gang->broken, 1);
    while (state && !atomic_load(&gang->go))
        pause_ns(20000);
    return state;
}

/* One clock reading an operation: the end of one is the beginning of the next. */
static void measure(const struct subject *subject, const struct bench_place *place,
                    struct gang *gang, uint32_t index, uint32_t ms)
{
    void *state = begin(subject, place, gang);
    if (!state)
        return;
    struct member *member = &gang->members[index];
    struct histogram *histogram = &gang->histograms[index];
    int64_t start = bench_now_ns(), last = start, end = start + (int64_t)ms * 1000000;
    while (last < end) {
        bool done = subject->once(state);
        int64_t now = bench_now_ns();
        if (done) {
            histogram_add(histogram, now - last);
            member->count++;
        } else {
            member->failed++;
        }
        last = now;
    }
    member->took_ns = last - start;
    subject->close(state);
}

static void keep_writing(const struct bench_place *place, struct gang *gang)
{
    void *state = begin(&subject_pair, place, gang);
    while (state && !atomic_load(&gang->stop)) {
        subject_pair.once(state);
        pause_ns(WRITER_NS);
    }
    if (state)
        subject_pair.close(state);
}

static void wait_until_ready(struct gang *gang, uint32_t count)
{
    int64_t end = bench_now_ns() + (int64_t)OPEN_MS * 1000000;
    while (atomic_load(&gang->ready) + atomic_load(&gang->broken) < count && bench_now_ns() < end)
        pause_ns(100000);
}

static void sum_up(const struct gang *gang, uint32_t processes, struct measured *measured)
{
    int64_t longest = 1;
    memset(measured, 0, sizeof *measured);
    for (uint32_t i = 0; i < processes; i++) {
        measured->count += gang->members[i].count;
        measured->failed += gang->members[i].failed;
        if (gang->members[i].took_ns > longest)
            longest = gang->members[i].took_ns;
    }
    measured->ops = (double)measured->count * 1e9 / (double)longest;
    measured->p50_ns = histogram_quantile(gang->histograms, processes, 0.50);
    measured->p99_ns = histogram_quantile(gang->histograms, processes, 0.99);
}

bool gang_run(const struct subject *subject, const struct bench_place *place, uint32_t processes,
              uint32_t ms, struct measured *measured)
{
    struct gang *gang = mmap(NULL, sizeof *gang, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (gang == MAP_FAILED)
        return false;
    pid_t pids[BENCH_PROCESSES_MAX + 1];
    uint32_t all = processes + subject->with_writer, begun = 0;
    fflush(NULL);
    for (; begun < all; begun++) {
        pids[begun] = fork();
        if (pids[begun] < 0)
            break;
        if (pids[begun] == 0) {
            if (begun < processes)
                measure(subject, place, gang, begun, ms);
            else
                keep_writing(place, gang);
            _exit(0);
        }
    }
    wait_until_ready(gang, begun);
    atomic_store(&gang->go, true);
    bool ok = begun == all;
    for (uint32_t i = 0; i < begun; i++) {
        int status = 0;
        if (i == processes)
            atomic_store(&gang->stop, true);
        ok = waitpid(pids[i], &status, 0) == pids[i] && status == 0 && ok;
    }
    ok = ok && atomic_load(&gang->broken) == 0;
    sum_up(gang, processes, measured);
    munmap(gang, sizeof *gang);
    return ok && measured->count > 0;
}
