#include "broker/reading.h"

#include <string.h>

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

void reading_sanitize(struct reading *reading)
{
    if (reading->health < HEALTH_UNKNOWN || reading->health > HEALTH_DOWN)
        reading->health = HEALTH_UNKNOWN;
    if (reading->signal < SIGNAL_NONE || reading->signal > SIGNAL_EXACT)
        reading->signal = SIGNAL_NONE;
    reading->slots_total = within(reading->slots_total, -1, BOOK_SLOTS_MAX);
    if (reading->slots_total == 0)
        reading->slots_total = -1;
    reading->in_flight = within(reading->in_flight, -1, INT32_MAX / 4);
    reading->queued = within(reading->queued, -1, INT32_MAX / 4);
    reading->slot_count = within(reading->slot_count, 0, BOOK_SLOTS_MAX);
    reading->model_count = within(reading->model_count, 0, READING_MODELS);
    reading->engine[ENGINE_SIZE - 1] = '\0';
    reading->detail[DETAIL_SIZE - 1] = '\0';
    for (int32_t i = 0; i < reading->model_count; i++)
        reading->models[i].name[NAME_SIZE - 1] = '\0';
}

bool health_admits(enum health health)
{
    return health == HEALTH_OK || health == HEALTH_SLEEPING || health == HEALTH_UNLOADED;
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
