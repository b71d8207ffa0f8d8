/*
 * The decoding loop of one model. It follows the real one step by step, so that the odd things
 * follow by themselves: what arrives while a decode runs is not looked at before that decode ends,
 * a request pinned to a busy slot waits while others are free, a release calls one deferred task.
 */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <stdlib.h>

void task_unref(struct task *task)
{
    if (--task->refs == 0)
        free(task);
}

unsigned engine_busy(const struct engine *engine)
{
    unsigned busy = 0;
    for (unsigned i = 0; i < engine->server->options.slots; i++)
        busy += engine->slots[i].task != NULL;
    return busy;
}

void engine_told(struct engine *engine)
{
    engine->last_result = now_us();
}

void engine_restart(struct engine *engine)
{
    for (unsigned i = 0; i < engine->server->options.slots; i++)
        engine->slots[i] = (struct slot){.last_used = -1};
}

/* The real one takes the least recently used slot, and of equals the last. */
static struct slot *find_slot(struct engine *engine, const struct task *task)
{
    unsigned n = engine->server->options.slots;
    if (task->pin >= 0)
        return (unsigned)task->pin < n && !engine->slots[task->pin].task ? &engine->slots[task->pin]
                                                                         : NULL;
    struct slot *best = NULL;
    for (unsigned i = 0; i < n; i++) {
        struct slot *slot = &engine->slots[i];
        if (!slot->task && (!best || slot->last_used <= best->last_used))
            best = slot;
    }
    return best;
}

static void count_wait(struct slotserver_stats *stats, const struct task *task)
{
    long long waited = (task->begun_at - task->arrived) / 1000;
    stats->queue_wait_ms += waited;
    if (waited > stats->queue_wait_longest_ms)
        stats->queue_wait_longest_ms = waited;
}

static void begin(struct engine *engine, struct slot *slot, struct task *task)
{
    struct slotserver *server = engine->server;
    slot->task = task;
    slot->used = true;
    task->slot = (int)(slot - engine->slots);
    task->begun = true;
    task->begun_at = now_us();
    if (task->queued)
        count_wait(&server->stats, task);
    if (++server->stats.in_slots > server->stats.max_in_slots)
        server->stats.max_in_slots = server->stats.in_slots;
    /* The new version tells a stream that it begins, which is when its headers go out. */
    if (task->stream && server->version == SLOTSERVER_NEW)
        engine_told(engine);
    pthread_cond_broadcast(&server->results);
}

static void mark_queued(struct engine *engine, struct task *task)
{
    if (!task->queued)
        engine->server->stats.queued++;
    task->queued = true;
}

static void place_or_defer(struct engine *engine, struct task *task)
{
    struct slot *slot = find_slot(engine, task);
    if (slot) {
        begin(engine, slot, task);
        return;
    }
    mark_queued(engine, task);
    TAILQ_INSERT_TAIL(&engine->deferred, task, link);
    engine->n_deferred++;
}

/* The old version calls the first in line even if that one waits for another slot. */
static void call_deferred(struct engine *engine, int slot)
{
    struct task *called = TAILQ_FIRST(&engine->deferred);
    if (!called)
        return;
    struct task *task;
    if (engine->server->version == SLOTSERVER_NEW) {
        TAILQ_FOREACH(task, &engine->deferred, link)
        {
            if (task->pin == slot) {
                called = task;
                break;
            }
        }
    }
    TAILQ_REMOVE(&engine->deferred, called, link);
    engine->n_deferred--;
    TAILQ_INSERT_HEAD(&engine->incoming, called, link);
}

static void forget(struct engine *engine, struct task *task)
{
    engine->in_system--;
    pthread_cond_broadcast(&engine->server->results);
    task_unref(task);
}

static void release(struct engine *engine, struct slot *slot)
{
    struct task *task = slot->task;
    int64_t now = now_us();
    task->ended_at = now;
    slot->last = *task;
    slot->task = NULL;
    slot->last_used = now;
    engine->idle_since = now;
    engine->server->stats.in_slots--;
    call_deferred(engine, task->slot);
    forget(engine, task);
}

void engine_submit(struct engine *engine, struct task *task)
{
    struct slotserver *server = engine->server;
    task->refs++;
    task->id = server->next_task++;
    task->arrived = now_us();
    server->stats.tasks++;
    if (engine->in_system >= server->options.slots)
        mark_queued(engine, task);
    engine->in_system++;
    TAILQ_INSERT_TAIL(&engine->incoming, task, link);
    pthread_cond_signal(&engine->work);
}

static bool drop_from(struct task_list *list, struct task *task)
{
    struct task *at;
    TAILQ_FOREACH(at, list, link)
    {
        if (at == task) {
            TAILQ_REMOVE(list, task, link);
            return true;
        }
    }
    return false;
}

/* A waiting task goes at once, a running one when the current decode ends. */
void engine_cancel(struct engine *engine, struct task *task)
{
    if (task->done || task->cancelled)
        return;
    task->cancelled = true;
    engine->server->next_task++;
    engine->server->stats.abandoned++;
    if (task->begun) {
        pthread_cond_signal(&engine->work);
        return;
    }
    if (drop_from(&engine->deferred, task))
        engine->n_deferred--;
    else
        drop_from(&engine->incoming, task);
    forget(engine, task);
}

static void free_cancelled(struct engine *engine)
{
    for (unsigned i = 0; i < engine->server->options.slots; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->task && slot->task->cancelled)
            release(engine, slot);
    }
}

static void take_incoming(struct engine *engine)
{
    struct task *task;
    while ((task = TAILQ_FIRST(&engine->incoming)) != NULL) {
        TAILQ_REMOVE(&engine->incoming, task, link);
        place_or_defer(engine, task);
    }
}

/* One decode takes a token of each slot that generates and fills up with prompts. */
static int64_t plan_decode(struct engine *engine)
{
    const struct slotserver_options *options = &engine->server->options;
    long room = (long)options->batch;
    bool generates = false;
    for (unsigned i = 0; i < options->slots; i++) {
        struct slot *slot = &engine->slots[i];
        slot->step = 0;
        if (!slot->task)
            continue;
        long left = slot->task->n_prompt - slot->task->n_prefilled;
        if (left == 0)
            generates = true;
        slot->step = left < room ? left : room;
        room -= slot->step;
    }
    double us = 1e6 * (double)((long)options->batch - room) / options->prefill_tps;
    if (generates)
        us += 1e6 / options->tps;
    int64_t least = (int64_t)options->blind_ms * 1000;
    return (int64_t)us > least ? (int64_t)us : least;
}

static bool finished(const struct slotserver *server, struct task *task)
{
    if (task->fail_after >= 0 && task->n_decoded >= task->fail_after)
        return task->failed = true;
    if (task->n_predict >= 0 && task->n_decoded >= task->n_predict)
        return true;
    long context = (long)(server->options.ctx / server->options.slots);
    if (task->n_prompt + task->n_decoded >= context)
        return task->truncated = true;
    return false;
}

/* The totals of /metrics move only when a task ends. */
static void count_end(struct engine *engine, const struct task *task)
{
    int64_t now = now_us();
    engine->prompt_tokens += task->n_prompt;
    engine->prompt_us += task->generating_at - task->begun_at;
    engine->predicted_tokens += task->n_decoded;
    engine->predicted_us += now - task->generating_at;
    engine->server->stats.completed++;
}

static void advance(struct engine *engine, struct slot *slot)
{
    struct task *task = slot->task;
    bool prefilling = task->n_prefilled < task->n_prompt;
    task->n_prefilled += slot->step;
    if (prefilling && task->n_prefilled == task->n_prompt)
        task->generating_at = now_us();
    if (!prefilling)
        task->n_decoded++;
    long length = task->n_prefilled + task->n_decoded;
    engine->longest = length > engine->longest ? length : engine->longest;
    bool ends = task->n_prefilled == task->n_prompt && finished(engine->server, task);
    if (ends || (!prefilling && task->stream)) {
        engine_told(engine);
        pthread_cond_broadcast(&engine->server->results);
    }
    if (ends) {
        task->done = true;
        count_end(engine, task);
        release(engine, slot);
    }
}

static void decode(struct engine *engine)
{
    struct slotserver *server = engine->server;
    int64_t now = now_us();
    /* Without a rest between them decodes follow each other exactly, however late we run. */
    if (engine->decoded_until == 0 || now - engine->decoded_until > 50000)
        engine->decoded_until = now;
    engine->decoded_until += plan_decode(engine);
    engine->decoding = true;
    while (!server->stopping && now_us() < engine->decoded_until)
        wait_until(&engine->work, &server->lock, engine->decoded_until);
    engine->decoding = false;
    engine->turns++;
    engine->decodes++;
    engine->busy_in_decodes += engine_busy(engine);
    for (unsigned i = 0; i < server->options.slots; i++) {
        if (engine->slots[i].task && !engine->slots[i].task->cancelled && !server->stopping)
            advance(engine, &engine->slots[i]);
    }
    pthread_cond_broadcast(&server->results);
}

static void rest(struct engine *engine)
{
    struct slotserver *server = engine->server;
    double idle = server->options.sleep_idle_seconds;
    engine->decoded_until = 0;
    if (idle <= 0 || server->version == SLOTSERVER_OLD || engine->sleeping || engine->in_system) {
        pthread_cond_wait(&engine->work, &server->lock);
        return;
    }
    int64_t bedtime = engine->idle_since + (int64_t)(idle * 1e6);
    if (now_us() < bedtime) {
        wait_until(&engine->work, &server->lock, bedtime);
        return;
    }
    engine->sleeping = true;
    engine_restart(engine);
}

/* Waking loads the model anew: it takes its time, and the slots come back fresh. */
static void get_up(struct engine *engine)
{
    struct slotserver *server = engine->server;
    int64_t awake = now_us() + (int64_t)server->options.wake_ms * 1000;
    while (!server->stopping && now_us() < awake)
        wait_until(&engine->work, &server->lock, awake);
    engine->sleeping = false;
    engine->wake_wanted = false;
    engine->idle_since = now_us();
    server->stats.wakes++;
    pthread_cond_broadcast(&server->results);
}

/* Called by a connection: returns when the model is awake. */
void engine_wake(struct engine *engine)
{
    struct slotserver *server = engine->server;
    engine->wake_wanted = engine->sleeping;
    pthread_cond_signal(&engine->work);
    while (engine->sleeping && !server->stopping)
        pthread_cond_wait(&server->results, &server->lock);
}

static void *run(void *argument)
{
    struct engine *engine = argument;
    struct slotserver *server = engine->server;
    pthread_mutex_lock(&server->lock);
    while (!server->stopping) {
        if (engine->sleeping && (engine->wake_wanted || engine->in_system))
            get_up(engine);
        if (server->terminated) {
            pthread_cond_wait(&engine->work, &server->lock);
            continue;
        }
        free_cancelled(engine);
        take_incoming(engine);
        if (engine_busy(engine))
            decode(engine);
        else
            rest(engine);
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* A stand-in that cannot even start its threads is of no use to a test: it ends. */
void engine_start(struct engine *engine)
{
    TAILQ_INIT(&engine->incoming);
    TAILQ_INIT(&engine->deferred);
    condition_init(&engine->work);
    engine->idle_since = now_us();
    engine->slots = calloc(engine->server->options.slots, sizeof(*engine->slots));
    if (!engine->slots)
        abort();
    engine_restart(engine);
    if (pthread_create(&engine->thread, NULL, run, engine) != 0)
        abort();
}

void engine_join(struct engine *engine)
{
    pthread_join(engine->thread, NULL);
}

static void drop_all(struct task_list *list)
{
    struct task *task;
    while ((task = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, task, link);
        task_unref(task);
    }
}

void engine_free(struct engine *engine)
{
    for (unsigned i = 0; i < engine->server->options.slots; i++) {
        if (engine->slots[i].task)
            task_unref(engine->slots[i].task);
    }
    drop_all(&engine->incoming);
    drop_all(&engine->deferred);
    free(engine->slots);
    pthread_cond_destroy(&engine->work);
}
