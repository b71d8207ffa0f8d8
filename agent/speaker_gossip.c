/* Leases and books in the words of the wire; heard.c is the way back. */
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
    if (record->place < PLACE_BY_ID) /* else it is drawn from the id, there as here */
        lease->place = record->place;
    lease->may_idle = record->flags & RECORD_MAY_IDLE;
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
