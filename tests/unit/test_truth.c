/* The arithmetic against a server that knows the truth: a seeded simulation in virtual time.
 *
 * False go: a request that was told to go and found every slot taken. False no: one that was
 * refused though leases and strangers left a slot. Where leases are all there is, both must be 0,
 * whatever the burst, however long the server hides a request and however old a reading may be.
 * Strangers come unannounced: what is left of false go then is the time on the way. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/virtual.h"

#define JOBS 256

struct run {
    int32_t slots;
    bool named;
    double leases, strangers; /* a second and slot */
    uint32_t settle_ms, max_age_ms;
    uint32_t blind_ms; /* a request shows after up to this */
    uint32_t read_ms;  /* a reading takes up to this */
    uint32_t burst;    /* requests that come at once, at most */
    uint32_t seconds;
};

enum job_state { JOB_NONE = 0, JOB_ASKING, JOB_ON_ITS_WAY, JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct job {
    enum job_state state;
    bool stranger;
    int32_t slot, task;
    uint64_t order;        /* of arrival */
    ns_t at, shows, asked; /* when the next thing happens; when a reading shows it */
    struct lease_id lease;
};

static struct {
    const struct run *run;
    struct job jobs[JOBS];
    uint64_t random, orders;
    int32_t tasks;
    int top;      /* no job from this one on was ever used */
    bool reading; /* one is on its way */
    struct reading read;
    ns_t snapshot;
    bool snapped;
    uint64_t gos, nos, false_go, false_no;
} sim;

static double draw(void)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return (double)(sim.random >> 11) / 9007199254740992.0;
}

static ns_t up_to(uint32_t ms)
{
    return (ns_t)(draw() * ms * 1e6);
}

static struct job *new_job(enum job_state state, bool stranger)
{
    for (int i = 0; i < JOBS; i++)
        if (sim.jobs[i].state == JOB_NONE) {
            sim.jobs[i] = (struct job){.state = state, .stranger = stranger, .slot = -1};
            sim.jobs[i].order = ++sim.orders;
            sim.top = i >= sim.top ? i + 1 : sim.top;
            return &sim.jobs[i];
        }
    fail_msg("more than %d jobs", JOBS);
    return NULL;
}

static int32_t count(enum job_state state, int stranger)
{
    int32_t number = 0;
    for (int i = 0; i < sim.top; i++)
        number += sim.jobs[i].state == state && (stranger < 0 || sim.jobs[i].stranger == stranger);
    return number;
}

/* ---- the server ------------------------------------------------------------------------------------ */

static void start(struct job *job)
{
    bool taken[64] = {false};
    for (int i = 0; i < sim.top; i++)
        if (sim.jobs[i].state == JOB_RUNNING)
            taken[sim.jobs[i].slot] = true;
    job->slot = 0;
    while (taken[job->slot])
        job->slot++;
    job->state = JOB_RUNNING;
    job->task = ++sim.tasks;
    job->shows = world.now + (job->stranger ? 0 : up_to(sim.run->blind_ms));
    job->at = job->shows + 1000 * NS_PER_MS + up_to(2000);
}

static void arrive(struct job *job)
{
    job->order = ++sim.orders;
    if (count(JOB_RUNNING, -1) < sim.run->slots) {
        start(job);
        return;
    }
    job->state = JOB_QUEUED;
    sim.false_go += !job->stranger;
}

static void finish(struct job *job)
{
    job->state = job->stranger ? JOB_NONE : JOB_DONE;
    job->at = world.now + up_to(3);
    struct job *next = NULL;
    for (int i = 0; i < sim.top; i++)
        if (sim.jobs[i].state == JOB_QUEUED && (!next || sim.jobs[i].order < next->order))
            next = &sim.jobs[i];
    if (next)
        start(next);
}

static void snap(void)
{
    sim.snapped = true;
    struct reading *reading = blank_reading();
    reading->sent_ns = sim.read.sent_ns;
    if (sim.run->named) {
        reading->named = 1;
        reading->slot_count = sim.run->slots;
    }
    for (int i = 0; i < sim.top; i++) {
        const struct job *job = &sim.jobs[i];
        if (job->state != JOB_RUNNING || job->shows > world.now)
            continue;
        reading->in_flight++;
        if (sim.run->named)
            reading->slots[job->slot] = (struct reading_slot){job->task, 1};
    }
    reading->answered_ns = sim.read.answered_ns;
    sim.read = *reading;
}

/* ---- the placements -------------------------------------------------------------------------------- */

static void refused(void)
{
    int32_t taken = count(JOB_ON_ITS_WAY, 0) + count(JOB_QUEUED, -1) + count(JOB_RUNNING, -1) +
                    count(JOB_DONE, -1) + tally_now().held;
    sim.nos++;
    sim.false_no += taken + 1 <= sim.run->slots;
}

/* What is in the reading is so at some moment between question and answer. */
static void read_on(void)
{
    if (!sim.snapped && world.now >= sim.snapshot)
        snap();
    if (world.now < sim.read.answered_ns)
        return;
    sim.read.answered_ns = world.now + 1;
    sim.reading = false;
    take(&sim.read);
}

static void begin_reading(void)
{
    ns_t takes = up_to(sim.run->read_ms);
    sim.reading = true;
    sim.snapped = false;
    sim.read.sent_ns = world.now;
    sim.read.answered_ns = world.now + takes;
    sim.snapshot = world.now + (ns_t)(draw() * (double)takes);
    read_on();
}

static void ask_for(struct job *job)
{
    ns_t age = world.now + 10 - world.book.sight.reading.answered_ns;
    if (age >= (ns_t)sim.run->max_age_ms * NS_PER_MS && sim.read.sent_ns < job->asked &&
        !sim.reading)
        begin_reading();
    if (age >= (ns_t)sim.run->max_age_ms * NS_PER_MS && sim.read.sent_ns < job->asked)
        return;
    if (sim.reading && sim.read.sent_ns >= job->asked)
        return;
    struct answer answer = acquire();
    job->lease = answer.lease;
    if (answer.verdict == ANSWER_GRANTED)
        answer = verify(job->lease, .asked_ns = job->asked);
    if (answer.verdict == ANSWER_GO) {
        sim.gos++;
        job->state = JOB_ON_ITS_WAY;
        job->at = world.now + 10 * NS_PER_MS;
        return;
    }
    assert_int_equal(answer.verdict, ANSWER_NO);
    assert_false(answer.undecided);
    refused();
    job->state = JOB_NONE;
}

static void come(void)
{
    const struct run *run = sim.run;
    if (draw() < run->leases / run->burst * run->slots / 1000)
        for (uint32_t i = 1 + (uint32_t)(draw() * (2 * run->burst - 1)); i > 0; i--)
            new_job(JOB_ASKING, false)->asked = world.now;
    if (draw() < run->strangers * run->slots / 1000)
        arrive(new_job(JOB_QUEUED, true));
}

static void move(struct job *job)
{
    if (job->state == JOB_ASKING) {
        ask_for(job);
    } else if (job->state == JOB_NONE || job->state == JOB_QUEUED || world.now < job->at) {
        return;
    } else if (job->state == JOB_ON_ITS_WAY) {
        arrive(job);
    } else if (job->state == JOB_RUNNING) {
        finish(job);
    } else {
        granted(release(job->lease));
        job->state = JOB_NONE;
    }
}

static void one_ms(void)
{
    come();
    if (sim.reading)
        read_on();
    int top = sim.top, first = (int)(draw() * top); /* no order among what happens at once */
    for (int i = 0; i < top; i++)
        move(&sim.jobs[(first + i) % top]);
}

static void renew_all(void)
{
    for (int i = 0; i < sim.top; i++)
        if (sim.jobs[i].state > JOB_ASKING && !sim.jobs[i].stranger)
            granted(renew(sim.jobs[i].lease));
}

static void simulate(const struct run *run, uint64_t seed)
{
    if (run->named)
        on_server(run->slots);
    else
        on_counting_server(run->slots);
    world.lazy = true;
    world.book.settings.max_age_ms = run->max_age_ms;
    world.book.settings.settle_names_ms = world.book.settings.settle_counts_ms = run->settle_ms;
    memset(&sim, 0, sizeof sim);
    sim.run = run;
    sim.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint32_t ms = 0; ms < run->seconds * 1000; ms++) {
        at(ms + 1);
        one_ms();
        if (ms % 9000 == 0)
            renew_all();
    }
}

static double percent(uint64_t of)
{
    uint64_t all = sim.gos + sim.nos;
    return all ? 100.0 * (double)of / (double)all : 0;
}

/* ---- what must hold -------------------------------------------------------------------------------- */

static void leases_alone_are_never_wrong(void **state)
{
    (void)state;
    const char *wanted = getenv("LEASEHOLD_SEED");
    uint64_t first = wanted ? strtoull(wanted, NULL, 10) : 1;
    static const int32_t slots[] = {1, 2, 4, 16};
    static const uint32_t blind[] = {0, 200, 4000}, ages[] = {0, 20}, latency[] = {0, 8};
    for (uint64_t seed = first; seed < first + 96; seed++) {
        struct run run = {.slots = slots[seed % 4],
                          .named = seed / 4 % 2,
                          .leases = 0.5,
                          .blind_ms = blind[seed / 8 % 3],
                          .max_age_ms = ages[seed / 24 % 2],
                          .read_ms = latency[seed / 48 % 2],
                          .burst = 1 + (uint32_t)(seed % 5),
                          .seconds = 60};
        run.settle_ms = run.named ? SETTLE_NAMES_MS : SETTLE_COUNTS_MS;
        simulate(&run, seed);
        assert_true(sim.gos > 0 && sim.nos > 0);
        if (sim.false_go || sim.false_no)
            fail_msg(
                "LEASEHOLD_SEED=%u: %u false go, %u false no of %u (%d slots, %s, blind %u ms, "
                "readings up to %u ms old)",
                (unsigned)seed, (unsigned)sim.false_go, (unsigned)sim.false_no,
                (unsigned)(sim.gos + sim.nos), (int)run.slots, run.named ? "names" : "counts",
                (unsigned)run.blind_ms, (unsigned)run.max_age_ms);
    }
}

/* In percent of all verdicts; the bounds leave room for the seed and none for a mistake. */
static void strangers_cost_the_time_on_the_way(void **state)
{
    (void)state;
    static const struct {
        int32_t slots;
        bool named;
        uint32_t max_age_ms, read_ms;
        double go_max, no_max;
    } rows[] = {
        {1, true, 0, 0, 0.3, 0.05},  {4, true, 0, 0, 0.9, 0.05},  {16, true, 0, 0, 2.0, 0.05},
        {1, true, 20, 4, 0.6, 0.3},  {4, true, 20, 4, 1.5, 0.5},  {16, true, 20, 4, 3.0, 0.7},
        {1, false, 0, 0, 0.3, 0.1},  {4, false, 0, 0, 0.9, 0.4},  {16, false, 0, 0, 2.0, 1.2},
        {1, false, 20, 4, 0.6, 0.3}, {4, false, 20, 4, 1.5, 1.0}, {16, false, 20, 4, 3.2, 2.5},
    };
    printf("slots  strangers/s  readings        verdicts  false go  false no\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run run = {.slots = rows[i].slots,
                          .named = rows[i].named,
                          .leases = 0.4,
                          .strangers = 0.2,
                          .settle_ms = rows[i].named ? SETTLE_NAMES_MS : 50,
                          .max_age_ms = rows[i].max_age_ms,
                          .read_ms = rows[i].read_ms,
                          .burst = 1,
                          .seconds = (uint32_t)(6000 / (1 + rows[i].slots / 4))};
        simulate(&run, 7);
        printf("%5d  %11.1f  %s <=%2u ms  %8u  %7.2f%%  %7.2f%%\n", (int)run.slots,
               run.strangers * run.slots, run.named ? "names " : "counts", (unsigned)run.max_age_ms,
               (unsigned)(sim.gos + sim.nos), percent(sim.false_go), percent(sim.false_no));
        if (percent(sim.false_go) > rows[i].go_max || percent(sim.false_no) > rows[i].no_max)
            fail_msg("row %u is above %.2f%% / %.2f%%", (unsigned)i, rows[i].go_max,
                     rows[i].no_max);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_alone_are_never_wrong),
        cmocka_unit_test(strangers_cost_the_time_on_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
