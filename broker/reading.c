#include "broker/reading.h"

#include <string.h>

#include "broker/planted.h"

void reading_clear(struct reading *reading)
{
    memset(reading, 0, sizeof *reading);
    reading->slots_total = -1;
    reading->in_flight = -1;
    reading->queued = -1;
}

static int32_t within(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Cut, printable, and nothing behind its end. */
static void clean_text(char *text, size_t size)
{
    char from[DETAIL_SIZE];
    memcpy(from, text, size);
    from[size - 1] = '\0';
    text_copy(text, size, from);
}

_Static_assert(NAME_SIZE <= DETAIL_SIZE && ENGINE_SIZE <= DETAIL_SIZE, "clean_text has the room");

void reading_sanitize(struct reading *reading)
{
    if (reading->health < HEALTH_UNKNOWN || reading->health > HEALTH_DOWN)
        reading->health = HEALTH_UNKNOWN;
    if (reading->signal < SIGNAL_NONE || reading->signal > SIGNAL_EXACT)
        reading->signal = SIGNAL_NONE;
    reading->slots_total = within(reading->slots_total, -1, BOOK_SLOTS_MAX);
    if (reading->slots_total == 0)
        reading->slots_total = -1;
    reading->in_flight = within(reading->in_flight, -1, WORK_MAX);
    reading->queued = within(reading->queued, -1, WORK_MAX);
    reading->slot_count = within(reading->slot_count, 0, BOOK_SLOTS_MAX);
    reading->model_count = within(reading->model_count, 0, READING_MODELS);
    if (reading->threads < THREADS_UNKNOWN || reading->threads > THREADS_MANY)
        reading->threads = THREADS_UNKNOWN;
    if (reading->hung_ns < 0 || reading->hung_ns > reading->answered_ns)
        reading->hung_ns = 0;
    reading->in_peace = reading->in_peace != 0;
    reading->queue_means_full = reading->queue_means_full != 0;
    reading->found_by = within(reading->found_by, 0, INT16_MAX);
    reading->named = reading->named != 0 && reading->slot_count > 0;
    clean_text(reading->engine, ENGINE_SIZE);
    clean_text(reading->detail, DETAIL_SIZE);
    for (int32_t i = 0; i < reading->model_count; i++) {
        clean_text(reading->models[i].name, NAME_SIZE);
        if (reading->models[i].state > MODEL_SLEEPING)
            reading->models[i].state = MODEL_UNKNOWN;
    }
    for (int32_t i = 0; i < reading->slot_count; i++) {
        struct reading_slot *slot = &reading->slots[i];
        slot->busy = slot->busy != 0;
        slot->task = slot->task < -1 ? -1 : slot->task;
    }
}

bool health_admits(enum health health)
{
    if (PLANTED(PLANT_UNKNOWN_IS_FREE) && health == HEALTH_BUSY)
        return true;
    return health == HEALTH_OK || health == HEALTH_SLEEPING || health == HEALTH_UNLOADED;
}

/* A tick at least, so that whoever looks all the time does not stop the clock. */
static uint16_t ticks_later(uint32_t ticks, ns_t then_ns, ns_t now)
{
    ns_t passed = now > then_ns && then_ns > 0 ? (now - then_ns) / READING_TICK_NS : 0;
    ns_t sum = (ns_t)ticks + (passed > 0 ? passed : 1);
    return (uint16_t)(sum < UINT16_MAX ? sum : UINT16_MAX);
}

void reading_rest(struct reading *reading, const struct reading *last)
{
    bool is_idle = reading->health == HEALTH_OK && (reading->in_peace || reading->in_flight == 0);
    bool was_idle = last->health == HEALTH_OK && (last->in_peace || last->in_flight == 0);
    reading->idle_ticks = reading->rest_ticks = 0;
    if (!is_idle || !was_idle)
        return;
    reading->idle_ticks = ticks_later(last->idle_ticks, last->sent_ns, reading->sent_ns);
    if (reading->in_peace)
        reading->rest_ticks = ticks_later(last->rest_ticks, last->sent_ns, reading->sent_ns);
}

bool reading_rest_is_over(const struct reading *last, ns_t now)
{
    uint32_t idle = ticks_later(last->idle_ticks, last->sent_ns, now);
    uint32_t rest = ticks_later(last->rest_ticks, last->sent_ns, now);
    return 2 * rest >= idle;
}

bool reading_is_trial(const struct reading *last, ns_t now)
{
    const uint32_t second = NS_PER_SEC / READING_TICK_NS;
    uint32_t idle = ticks_later(last->idle_ticks, last->sent_ns, now), piece = second;
    while (16 * piece <= idle && piece < READING_TRIAL_S * second)
        piece *= 2;
    return idle >= 8 * piece && idle < 9 * piece;
}

bool reading_counts(const struct reading *reading)
{
    return reading->signal == SIGNAL_EXACT && reading->in_flight >= 0 &&
           health_admits((enum health)reading->health);
}

const char *health_name(enum health health)
{
    switch (health) {
    case HEALTH_UNKNOWN: return "unknown";
    case HEALTH_OK: return "ok";
    case HEALTH_BUSY: return "busy";
    case HEALTH_LOADING: return "loading";
    case HEALTH_SLEEPING: return "sleeping";
    case HEALTH_UNLOADED: return "unloaded";
    case HEALTH_UNAUTHORIZED: return "unauthorized";
    case HEALTH_DOWN: return "down";
    }
    return "unknown";
}

const char *signal_name(enum signal_kind kind)
{
    return kind == SIGNAL_EXACT ? "exact" : kind == SIGNAL_INFERRED ? "inferred" : "none";
}

const char *model_state_name(enum model_state state)
{
    switch (state) {
    case MODEL_UNKNOWN: return "unknown";
    case MODEL_LOADED: return "loaded";
    case MODEL_LOADING: return "loading";
    case MODEL_UNLOADED: return "unloaded";
    case MODEL_SLEEPING: return "sleeping";
    }
    return "unknown";
}
