/* Leases, readings and states in the words of the wire and of the core. */
#define _GNU_SOURCE

#include <stdio.h>
#include <string.h>

#include "agent/speaker_fleet.h"
#include "broker/admission.h"

static int64_t ms_since(ns_t then, ns_t now)
{
    return then == 0 ? -1 : now <= then ? 0 : (now - then) / NS_PER_MS;
}

static int64_t within(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

void gossip_of_record(const struct book *book, const struct record *record, ns_t now,
                      struct gossip_lease *lease)
{
    memset(lease, 0, sizeof *lease);
    lease_id_format(book->provider, record->id, lease->lease);
    lease->state = record->state == RECORD_HELD         ? GOSSIP_HELD
                   : record->state == RECORD_DISPATCHED ? GOSSIP_DISPATCHED
                                                        : GOSSIP_ORPHAN;
    snprintf(lease->host, sizeof lease->host, "%s", record->holder.host);
    wire_copy_text(lease->label, sizeof lease->label, record->holder.label);
    lease->pid = record->holder.pid <= INT32_MAX ? record->holder.pid : 0;
    lease->units = record->units;
    lease->arrived = record->arrived;
    lease->ttl_ms = record->ttl_ms;
    lease->slot = record->slot;
    lease->left_ms = within((record->deadline_ns - now) / NS_PER_MS, WIRE_TIME_MS_MAX);
    lease->age_ms = within(ms_since(record->acquired_ns, now), WIRE_TIME_MS_MAX);
    lease->dispatched_ms = ms_since(record->dispatched_ns, now);
    ns_t idle = admission_idle_ns(book, record, now);
    lease->idle_ms = idle < 0 ? -1 : idle / NS_PER_MS;
    lease->token = record->token;
    lease->place = record->place;
    lease->may_idle = record->flags & RECORD_MAY_IDLE;
}

bool gossip_to_heard(const struct gossip_lease *lease, const char *provider,
                     struct heard_lease *heard)
{
    char name[NAME_SIZE];
    memset(heard, 0, sizeof *heard);
    if (!lease_id_parse(lease->lease, name, &heard->id) || strcmp(name, provider) != 0)
        return false;
    heard->state = lease->state == GOSSIP_HELD         ? RECORD_HELD
                   : lease->state == GOSSIP_DISPATCHED ? RECORD_DISPATCHED
                                                       : RECORD_ORPHAN;
    text_copy(heard->holder.host, sizeof heard->holder.host, lease->host);
    text_copy(heard->holder.label, sizeof heard->holder.label, lease->label);
    heard->holder.pid = lease->pid;
    heard->units = lease->units ? lease->units : 1;
    heard->arrived = lease->arrived <= heard->units ? lease->arrived : heard->units;
    heard->slot = lease->slot;
    heard->ttl_ms = lease->ttl_ms;
    heard->left_ms = lease->left_ms;
    heard->age_ms = lease->age_ms;
    heard->dispatched_ms = lease->dispatched_ms;
    heard->idle_ms = lease->idle_ms;
    heard->token = lease->token;
    heard->place = lease->place;
    heard->may_idle = lease->may_idle;
    return heard->units <= BOOK_SLOTS_MAX && heard->slot >= -1 && heard->slot < BOOK_SLOTS_MAX;
}

/* ---- readings -------------------------------------------------------------------------------- */

static void models_of(const struct reading *reading, struct gossip_state *state)
{
    for (int32_t i = 0; i < reading->model_count && i < WIRE_MODELS_MAX; i++) {
        struct gossip_model *model = &state->models[state->model_count++];
        snprintf(model->name, sizeof model->name, "%s", reading->models[i].name);
        snprintf(model->state, sizeof model->state, "%s",
                 model_state_name((enum model_state)reading->models[i].state));
    }
}

void gossip_of_book(const struct book *book, ns_t now, struct gossip_state *state)
{
    const struct reading *reading = &book->sight.reading;
    int32_t slots =
        book->sight.slots_last > 0 ? book->sight.slots_last : (int32_t)book->settings.slots;
    state->age_ms = ms_since(reading->sent_ns ? reading->answered_ns : 0, now);
    state->slots_total = slots > 0 ? slots : -1;
    state->in_flight = reading->in_flight;
    state->queued = reading->queued;
    state->queue_means_full = reading->queue_means_full;
    state->probed = book->settings.probed;
    snprintf(state->health, sizeof state->health, "%s", health_name((enum health)reading->health));
    snprintf(state->signal, sizeof state->signal, "%s",
             signal_name((enum signal_kind)reading->signal));
    snprintf(state->engine, sizeof state->engine, "%s",
             book->settings.probed ? reading->engine : "static");
    wire_copy_text(state->detail, sizeof state->detail, reading->detail);
    models_of(reading, state);
    state->strangers = book->sight.strangers;
    state->strangers_ms = ms_since(book->sight.strangers_since_ns, now);
    state->waiting = 0;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        state->waiting += record->state == RECORD_WAITING ? record->units : 0;
    }
}

static int health_of(const char *name)
{
    for (int i = HEALTH_UNKNOWN; i <= HEALTH_DOWN; i++)
        if (strcmp(health_name((enum health)i), name) == 0)
            return i;
    return HEALTH_UNKNOWN;
}

static int signal_of(const char *name)
{
    for (int i = SIGNAL_NONE; i <= SIGNAL_EXACT; i++)
        if (strcmp(signal_name((enum signal_kind)i), name) == 0)
            return i;
    return SIGNAL_NONE;
}

static uint32_t model_state_of(const char *name)
{
    for (uint32_t i = MODEL_UNKNOWN; i <= MODEL_SLEEPING; i++)
        if (strcmp(model_state_name((enum model_state)i), name) == 0)
            return i;
    return MODEL_UNKNOWN;
}

void gossip_to_reading(const struct gossip_state *state, ns_t now, struct reading *reading)
{
    memset(reading, 0, sizeof *reading);
    reading_clear(reading);
    if (state->age_ms >= 0) {
        ns_t then = now - within(state->age_ms, WIRE_TIME_MS_MAX) * NS_PER_MS;
        reading->sent_ns = reading->answered_ns = then > 0 ? then : 1;
    }
    reading->health = health_of(state->health);
    reading->signal = signal_of(state->signal);
    reading->slots_total = state->slots_total;
    reading->in_flight = state->in_flight;
    reading->queued = state->queued;
    reading->queue_means_full = state->queue_means_full;
    text_copy(reading->engine, sizeof reading->engine, state->engine);
    text_copy(reading->detail, sizeof reading->detail, state->detail);
    for (uint32_t i = 0; i < state->model_count && i < READING_MODELS; i++) {
        struct reading_model *model = &reading->models[reading->model_count++];
        text_copy(model->name, sizeof model->name, state->models[i].name);
        model->state = model_state_of(state->models[i].state);
    }
    reading_sanitize(reading);
}
