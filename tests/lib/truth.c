#include "tests/lib/truth.h"

#include <math.h>

#include "tests/lib/world.h"

#define JOBS    1024
#define CHANGES 4096
#define SLOTS   64

enum stage {
    NOBODY = 0,
    ASKS,     /* wants a lease */
    VERIFIES, /* has one that is held */
    ON_ITS_WAY,
    QUEUED,
    WORKS,
    OVER,  /* its work is, its lease not yet */
    IDLES, /* has a lease, sends nothing */
};

struct job {
    enum stage stage;
    bool stranger, lost; /* lost: its client died, the server works on */
    int32_t slot, task;
    uint64_t order;              /* of arrival at the server */
    ns_t at, dies, asked, shows; /* at, dies: when the next thing happens */
    struct lease_id lease;
    uint64_t request, place;
};

/* Something the gauges are still to show. */
struct change {
    ns_t at;
    int32_t slot, task; /* task -1: it is free */
};

static struct {
    const struct truth_run *run;
    struct truth_score *score;
    struct job jobs[JOBS];
    int top; /* no job from this one on was ever used */
    uint64_t random, orders;
    int32_t tasks;
    struct change changes[CHANGES];
    int change_count;
    int32_t shown[SLOTS]; /* what the gauges show: the task in each slot, -1 */
    struct {
        ns_t at;
        int32_t strangers;
    } past[CHANGES]; /* strangers in the server, a ring */
    uint64_t past_count;
    ns_t next_burst, next_stranger, next_blind, blind_from, blind_until, next_renewal;
    bool reading, snapped; /* a reading is on its way; what it will show is taken */
    ns_t sent, snap_at, answer_at, snap_of, known_of;
    struct reading read;
    bool wanted; /* somebody waits for a reading */
} sim;

/* ---- chance ------------------------------------------------------------------------------------ */

static double draw(void)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return (double)(sim.random >> 11) / 9007199254740992.0;
}

static ns_t up_to(double ms)
{
    return (ns_t)(draw() * ms * 1e6);
}

static ns_t wait_for(double rate)
{
    return rate > 0 ? world.now + (ns_t)(-log(1 - draw()) / rate * 1e9) : NS_NEVER;
}

/* More than `room` come where `mean` are expected. */
static double more_than(int32_t room, double mean)
{
    double none = exp(-mean), sum = 0;
    for (int32_t i = 0; i <= room; i++) {
        sum += none;
        none *= mean / (i + 1);
    }
    return sum < 1 ? 1 - sum : 0;
}

/* ---- jobs -------------------------------------------------------------------------------------- */

static struct job *new_job(enum stage stage, bool stranger)
{
    int i = 0;
    while (i < JOBS && sim.jobs[i].stage != NOBODY)
        i++;
    world_needs(i < JOBS);
    sim.jobs[i] = (struct job){.stage = stage, .stranger = stranger, .slot = -1};
    sim.jobs[i].at = sim.jobs[i].dies = NS_NEVER;
    sim.top = i >= sim.top ? i + 1 : sim.top;
    return &sim.jobs[i];
}

static void drop(struct job *job)
{
    job->stage = NOBODY;
    while (sim.top > 0 && sim.jobs[sim.top - 1].stage == NOBODY)
        sim.top--;
}

static bool has_lease(const struct job *job)
{
    return job->stage >= VERIFIES && !job->stranger && !job->lost;
}

/* Slots at work or promised, and those wanted from a smaller place; without `self`. */
static int32_t taken(const struct job *self, uint64_t place)
{
    int32_t number = 0;
    for (int i = 0; i < sim.top; i++) {
        const struct job *job = &sim.jobs[i];
        if (job == self || job->stage < VERIFIES)
            continue;
        number += job->stage != VERIFIES || job->place < place;
    }
    return number;
}

/* ---- the server -------------------------------------------------------------------------------- */

static void remember(void)
{
    int32_t strangers = 0;
    for (int i = 0; i < sim.top; i++)
        strangers += sim.jobs[i].stranger && sim.jobs[i].stage != NOBODY;
    uint64_t at = sim.past_count++ % CHANGES;
    sim.past[at].at = world.now;
    sim.past[at].strangers = strangers;
}

static int32_t strangers_at(ns_t then)
{
    for (uint64_t i = sim.past_count; i-- > 0 && i + CHANGES > sim.past_count;)
        if (sim.past[i % CHANGES].at <= then)
            return sim.past[i % CHANGES].strangers;
    return 0;
}

static void will_show(ns_t when, int32_t slot, int32_t task)
{
    if (sim.run->signal >= TRUTH_INFERRED)
        return;
    world_needs(sim.change_count < CHANGES);
    sim.changes[sim.change_count++] = (struct change){when, slot, task};
}

static void start(struct job *job)
{
    bool busy[SLOTS] = {false};
    for (int i = 0; i < sim.top; i++)
        if (sim.jobs[i].stage == WORKS)
            busy[sim.jobs[i].slot] = true;
    job->slot = 0;
    while (busy[job->slot])
        job->slot++;
    job->stage = WORKS;
    job->task = ++sim.tasks;
    job->shows = world.now + (job->stranger ? 0 : up_to(sim.run->hidden_ms));
    job->at = job->shows + (draw() < sim.run->early ? up_to(30) : 1000 * NS_PER_MS + up_to(2000));
    will_show(job->shows, job->slot, job->task);
}

static void arrive(struct job *job)
{
    int32_t working = 0;
    for (int i = 0; i < sim.top; i++)
        working += sim.jobs[i].stage == WORKS;
    job->order = ++sim.orders;
    job->at = NS_NEVER;
    if (working < sim.run->slots) {
        start(job);
        return;
    }
    job->stage = QUEUED;
    sim.score->false_go += !job->stranger;
}

static void finish(struct job *job)
{
    will_show(world.now, job->slot, -1);
    job->stage = OVER;
    job->at = world.now + up_to(3);
    if (job->stranger || job->lost)
        drop(job);
    struct job *next = NULL;
    for (int i = 0; i < sim.top; i++)
        if (sim.jobs[i].stage == QUEUED && (!next || sim.jobs[i].order < next->order))
            next = &sim.jobs[i];
    if (next)
        start(next);
    remember();
}

/* ---- readings ---------------------------------------------------------------------------------- */

static void show_until(ns_t when)
{
    int kept = 0;
    for (int i = 0; i < sim.change_count; i++) {
        if (sim.changes[i].at <= when)
            sim.shown[sim.changes[i].slot] = sim.changes[i].task;
        else
            sim.changes[kept++] = sim.changes[i];
    }
    sim.change_count = kept;
}

static void snap(void)
{
    sim.snapped = true;
    sim.snap_of = world.now < sim.blind_until ? sim.blind_from : world.now;
    sim.snap_of -= (ns_t)sim.run->lag_ms * NS_PER_MS;
    show_until(sim.snap_of);
    struct reading *reading = blank_reading();
    if (sim.run->signal == TRUTH_NAMES) {
        reading->named = 1;
        reading->slot_count = sim.run->slots;
    }
    for (int32_t i = 0; i < sim.run->slots; i++) {
        bool busy = sim.shown[i] >= 0;
        reading->in_flight += busy;
        if (reading->named)
            reading->slots[i] = (struct reading_slot){busy ? sim.shown[i] : -1, busy};
    }
    for (int i = 0; i < sim.top; i++)
        reading->queued += sim.jobs[i].stage == QUEUED;
    if (sim.run->hides_queue)
        reading->queued = -1;
    if (sim.run->signal == TRUTH_INFERRED) {
        reading->signal = SIGNAL_INFERRED;
        reading->in_flight = reading->queued = -1;
    }
    sim.read = *reading;
}

static void answer_reading(void)
{
    sim.reading = sim.wanted = false;
    sim.known_of = sim.snap_of;
    sim.read.sent_ns = sim.sent;
    sim.read.answered_ns = world.now + 1;
    take(&sim.read);
    if (!sim.run->pauses)
        world.book.sight.pause_until_ns = 0;
    for (int i = 0; i < sim.top; i++)
        if (sim.jobs[i].stage == ASKS || sim.jobs[i].stage == VERIFIES)
            sim.jobs[i].at = world.now;
}

static void begin_reading(void)
{
    ns_t takes = up_to(sim.run->read_ms);
    sim.reading = true;
    sim.snapped = false;
    sim.sent = world.now + 1;
    sim.answer_at = world.now + takes;
    sim.snap_at = world.now + (ns_t)(draw() * (double)takes);
}

static ns_t reading_due(void)
{
    if (sim.run->signal == TRUTH_NONE)
        return NS_NEVER;
    if (sim.reading)
        return sim.snapped ? sim.answer_at : sim.snap_at;
    ns_t due =
        sim.wanted ? attribution_not_before(&world.book) : attribution_next_due(&world.book, true);
    return due > world.now ? due : world.now;
}

static void read_on(void)
{
    if (!sim.reading)
        begin_reading();
    else if (!sim.snapped)
        snap();
    else
        answer_reading();
}

/* ---- the placements ---------------------------------------------------------------------------- */

static void judge_go(struct job *job)
{
    const struct truth_run *run = sim.run;
    int32_t own = 0;
    for (int i = 0; i < sim.top; i++)
        own += sim.jobs[i].stage > VERIFIES && !sim.jobs[i].stranger;
    int32_t room = run->slots - own - strangers_at(sim.known_of);
    double window = (double)(job->at - sim.known_of) / 1e9;
    double chance = room < 0 ? 0 : more_than(room, run->strangers * run->slots * window);
    sim.score->gos++;
    sim.score->explained += chance;
    sim.score->variance += chance * (1 - chance);
}

static void judge_no(bool was_free)
{
    sim.score->nos++;
    sim.score->false_no += was_free;
}

/* True where a reading is wanted first: answer_reading wakes it. */
static bool stands_still(struct answer answer, struct job *job)
{
    if (answer.verdict != ANSWER_UNREAD)
        return false;
    sim.wanted = true;
    job->at = NS_NEVER;
    return true;
}

static void went(struct job *job)
{
    const struct truth_run *run = sim.run;
    job->stage = ON_ITS_WAY;
    job->at = world.now + (ns_t)run->arrival_ms * NS_PER_MS;
    judge_go(job);
    if (draw() < run->idle) {
        job->stage = IDLES;
        job->at = world.now + up_to(5000);
    }
    if (draw() < run->dies)
        job->dies = world.now + up_to(1500);
}

/* As liblease does: a pause that ends within the caller's 1.5 s is waited for. */
static bool outlasts_pause(struct answer answer, struct job *job)
{
    if (answer.verdict != ANSWER_NO || answer.retry_ns <= world.now ||
        answer.retry_ns + 250 * NS_PER_MS > job->asked + 1500 * NS_PER_MS)
        return false;
    job->at = answer.retry_ns;
    job->request = ++world.requests;
    return true;
}

static void verify_it(struct job *job)
{
    bool was_free = taken(job, job->place) + 1 <= sim.run->slots;
    struct answer answer = verify(job->lease, .same = job->request, .asked_ns = job->asked);
    if (stands_still(answer, job) || outlasts_pause(answer, job))
        return;
    if (answer.undecided) {
        sim.score->undecided++;
        release(job->lease);
        drop(job);
        return;
    }
    sim.score->found += was_free;
    if (answer.verdict == ANSWER_GO) {
        went(job);
        return;
    }
    world_needs(answer.verdict == ANSWER_NO);
    judge_no(was_free);
    drop(job);
}

static void acquire_it(struct job *job)
{
    bool was_free = taken(job, UINT64_MAX) + 1 <= sim.run->slots;
    struct answer answer = acquire(.same = job->request, .asked_ns = job->asked);
    if (stands_still(answer, job) || outlasts_pause(answer, job))
        return;
    if (answer.verdict == ANSWER_NO) {
        sim.score->found += was_free;
        judge_no(was_free);
        drop(job);
        return;
    }
    world_needs(answer.verdict == ANSWER_GRANTED);
    job->lease = answer.lease;
    job->place = answer.place;
    job->stage = VERIFIES;
    job->request = ++world.requests;
    verify_it(job);
}

static void come(void)
{
    const struct truth_run *run = sim.run;
    uint32_t most = 2 * run->burst - 1;
    for (uint32_t i = 1 + (uint32_t)(draw() * most); i > 0; i--) {
        struct job *job = new_job(ASKS, false);
        job->at = job->asked = world.now;
        job->request = ++world.requests;
    }
    sim.next_burst = wait_for(run->leases * run->slots / run->burst);
}

static void die(struct job *job)
{
    job->dies = NS_NEVER;
    if (!has_lease(job))
        return;
    dies(job->lease);
    job->lost = true;
    if (job->stage != QUEUED && job->stage != WORKS)
        drop(job);
}

static void move(struct job *job)
{
    if (world.now >= job->dies)
        die(job);
    if (world.now < job->at)
        return;
    switch (job->stage) {
    case NOBODY:
    case QUEUED: break;
    case ASKS: acquire_it(job); break;
    case VERIFIES: verify_it(job); break;
    case ON_ITS_WAY: arrive(job); break;
    case WORKS: finish(job); break;
    case OVER:
    case IDLES:
        release(job->lease);
        drop(job);
        break;
    }
}

/* ---- the run ----------------------------------------------------------------------------------- */

static void renew_all(void)
{
    for (int i = 0; i < sim.top; i++)
        if (has_lease(&sim.jobs[i]))
            renew(sim.jobs[i].lease);
    sim.next_renewal = world.now + 9 * NS_PER_SEC;
}

static void goes_blind(void)
{
    sim.blind_from = world.now;
    sim.blind_until = world.now + up_to(sim.run->blind_ms);
    sim.next_blind = wait_for(sim.run->blind);
    if (sim.next_blind < sim.blind_until)
        sim.next_blind = sim.blind_until;
}

static ns_t next_event(void)
{
    const ns_t others[] = {sim.next_burst, sim.next_stranger, sim.next_blind, sim.next_renewal,
                           reading_due()};
    ns_t next = NS_NEVER;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        next = others[i] < next ? others[i] : next;
    for (int i = 0; i < sim.top; i++) {
        const struct job *job = &sim.jobs[i];
        ns_t at = job->at < job->dies ? job->at : job->dies;
        next = job->stage != NOBODY && at < next ? at : next;
    }
    return next;
}

static void one_moment(void)
{
    if (world.now >= sim.next_blind)
        goes_blind();
    if (world.now >= sim.next_renewal)
        renew_all();
    if (world.now >= sim.next_burst)
        come();
    if (world.now >= sim.next_stranger) {
        arrive(new_job(QUEUED, true));
        remember();
        sim.next_stranger = wait_for(sim.run->strangers * sim.run->slots);
    }
    if (world.now >= reading_due())
        read_on();
    int top = sim.top, first = (int)(draw() * top); /* no order among what happens at once */
    for (int i = 0; i < top; i++)
        if (sim.jobs[(first + i) % top].stage != NOBODY)
            move(&sim.jobs[(first + i) % top]);
}

static void begin(const struct truth_run *run, uint64_t seed)
{
    memset(&sim, 0, sizeof sim);
    world_needs(run->slots <= SLOTS && run->burst > 0);
    if (run->signal == TRUTH_NAMES)
        on_server(run->slots);
    else if (run->signal == TRUTH_NONE)
        on_static(run->slots);
    else
        on_counting_server(run->slots);
    world.lazy = true;
    struct book_settings *settings = &world.book.settings;
    settings->max_age_ms = run->max_age_ms;
    settings->settle_names_ms = settings->settle_counts_ms = run->settle_ms;
    for (int i = 0; i < SLOTS; i++)
        sim.shown[i] = -1;
    sim.run = run;
    sim.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 8; i++)
        draw(); /* neighbouring seeds begin alike */
    sim.known_of = world.now;
    sim.next_burst = wait_for(run->leases * run->slots / run->burst);
    sim.next_stranger = wait_for(run->strangers * run->slots);
    sim.next_blind = wait_for(run->blind);
}

void truth_simulate(const struct truth_run *run, uint64_t seed, struct truth_score *score)
{
    begin(run, seed);
    memset(score, 0, sizeof *score);
    sim.score = score;
    ns_t end = world.now + (ns_t)(run->seconds * 1e9), next;
    while ((next = next_event()) < end) {
        world.now = next > world.now ? next : world.now;
        one_moment();
    }
    if (run->signal >= TRUTH_INFERRED)
        score->explained = -1;
}
