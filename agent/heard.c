#define _GNU_SOURCE

#include "agent/heard.h"

#include <stdio.h>
#include <string.h>

#include "broker/limits.h"

bool heard_lease_of(const struct gossip_lease *told, const char *provider, const char *host,
                    struct heard_lease *lease)
{
    char named[NAME_SIZE];
    memset(lease, 0, sizeof *lease);
    if (!lease_id_parse(told->lease, named, &lease->id) || strcmp(named, provider) != 0)
        return false;
    lease->state = told->state == GOSSIP_DISPATCHED ? RECORD_DISPATCHED
                   : told->state == GOSSIP_ORPHAN   ? RECORD_ORPHAN
                                                    : RECORD_HELD;
    text_copy(lease->holder.host, sizeof lease->holder.host, told->host);
    text_copy(lease->holder.label, sizeof lease->holder.label, told->label);
    lease->holder.pid = told->pid;
    lease->holder.local = strcmp(told->host, host) == 0;
    lease->units = told->units ? told->units : 1;
    lease->arrived = told->arrived;
    lease->slot = told->slot;
    lease->ttl_ms = told->ttl_ms;
    lease->left_ms = told->left_ms < 0 ? 0 : told->left_ms;
    lease->age_ms = told->age_ms < 0 ? 0 : told->age_ms;
    lease->dispatched_ms = told->dispatched_ms;
    lease->idle_ms = told->idle_ms;
    lease->token = told->token;
    lease->place = told->place;
    lease->may_idle = told->may_idle;
    return true;
}

/* ---- the reading ----------------------------------------------------------------------------- */

static int32_t health_of(const char *word)
{
    for (int health = HEALTH_UNKNOWN; health <= HEALTH_DOWN; health++)
        if (strcmp(health_name((enum health)health), word) == 0)
            return health;
    return HEALTH_UNKNOWN;
}

static int32_t signal_of(const char *word)
{
    for (int kind = SIGNAL_NONE; kind <= SIGNAL_EXACT; kind++)
        if (strcmp(signal_name((enum signal_kind)kind), word) == 0)
            return kind;
    return SIGNAL_NONE;
}

static uint32_t model_state_of(const char *word)
{
    for (uint32_t state = MODEL_UNKNOWN; state <= MODEL_SLEEPING; state++)
        if (strcmp(model_state_name((enum model_state)state), word) == 0)
            return state;
    return MODEL_UNKNOWN;
}

static void reading_of(const struct gossip_state *told, ns_t now, struct reading *reading)
{
    reading_clear(reading);
    reading->slots_total = told->slots_total;
    reading->in_flight = told->in_flight;
    reading->queued = told->queued;
    reading->queue_means_full = told->queue_means_full;
    reading->health = health_of(told->health);
    reading->signal = signal_of(told->signal);
    text_copy(reading->engine, sizeof reading->engine, told->engine);
    text_copy(reading->detail, sizeof reading->detail, told->detail);
    for (uint32_t i = 0; i < told->model_count && i < READING_MODELS; i++) {
        struct reading_model *model = &reading->models[reading->model_count++];
        text_copy(model->name, sizeof model->name, told->models[i].name);
        model->state = model_state_of(told->models[i].state);
    }
    if (told->age_ms >= 0) {
        ns_t age_ns = (told->age_ms < TTL_MS_MAX ? told->age_ms : TTL_MS_MAX) * NS_PER_MS;
        reading->sent_ns = reading->answered_ns = now > age_ns ? now - age_ns : 1;
    }
    reading_sanitize(reading);
}

void heard_state_of(const struct gossip_state *told, ns_t now, struct heard_state *state)
{
    state->epoch = told->epoch;
    state->version = told->version;
    reading_of(told, now, &state->reading);
    state->strangers = told->strangers < 0 ? 0 : told->strangers;
    state->strangers_ms = told->strangers_ms;
    state->waiting = told->waiting < 0 ? 0 : told->waiting;
    state->is_static = !told->probed;
}
