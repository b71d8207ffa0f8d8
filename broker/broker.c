#include "broker/broker.h"

#include <assert.h>
#include <string.h>

#include "broker/attribution.h"
#include "broker/planted.h"
#include "broker/step.h"

void broker_init(struct broker *broker, struct book *book, struct refusals *refusals)
{
    *broker = (struct broker){.book = book, .refusals = refusals};
    if (refusals)
        memset(refusals, 0, sizeof *refusals);
}

/* ---- what the parts share -------------------------------------------------------------------- */

void step_note(struct step *step, enum note_kind kind, const struct record *record,
               enum reason reason, int32_t value)
{
    struct effects *effects = step->effects;
    if (effects->note_count == NOTES_MAX) {
        effects->notes_lost++;
        return;
    }
    struct note *note = &effects->notes[effects->note_count++];
    note->kind = kind;
    note->reason = reason;
    note->value = value;
    note->lease = record ? record->id : (struct lease_id){0, 0};
    note->pid = record ? record->holder.pid : 0;
    memcpy(note->host, record ? record->holder.host : "", record ? NAME_SIZE : 1);
    memcpy(note->label, record ? record->holder.label : "", record ? LABEL_SIZE : 1);
}

/* Contenders are refused thousands of times a second: the log is for people. */
void step_note_refusal(struct step *step, const struct request *request, enum reason reason)
{
    struct broker *broker = step->broker;
    bool lately =
        broker->refusal_noted_ns != 0 && step->now - broker->refusal_noted_ns < NS_PER_SEC;
    if (lately || step->effects->note_count == NOTES_MAX)
        return;
    broker->refusal_noted_ns = step->now;
    step_note(step, NOTE_REFUSED, NULL, reason, 0);
    struct note *note = &step->effects->notes[step->effects->note_count - 1];
    note->pid = request->holder.pid;
    memcpy(note->host, request->holder.host, sizeof note->host);
    memcpy(note->label, request->holder.label, sizeof note->label);
}

static enum note_kind note_of(enum record_end end)
{
    switch (end) {
    case END_EXPIRED: return NOTE_EXPIRED;
    case END_LAPSED: return NOTE_LAPSED;
    case END_REFUSED: return NOTE_REFUSED;
    case END_GAVE_UP: return NOTE_GAVE_UP;
    case END_FORCED: return NOTE_FORCED;
    case END_REPLACED: return NOTE_REPLACED;
    default: return NOTE_RELEASED;
    }
}

void step_note_end(struct step *step, const struct record *record)
{
    step_note(step, note_of((enum record_end)record->end), record, REASON_NONE, 0);
}

void step_end(struct step *step, struct record *record, enum record_end end)
{
    bool was_orphan = record->state == RECORD_ORPHAN;
    book_end(step->book, record, end, step->now);
    step_note(step, was_orphan ? NOTE_ORPHAN_GONE : note_of(end), record, REASON_NONE, 0);
    if (record->state == RECORD_ORPHAN)
        step_note(step, NOTE_ORPHAN, record, REASON_NONE, 0);
}

void step_want_reading(struct step *step)
{
    step->effects->probe = true;
    step->effects->probe_not_before_ns = attribution_not_before(step->book);
}

enum reason step_reason(enum obstacle obstacle)
{
    switch (obstacle) {
    case OBSTACLE_NONE: return REASON_NONE;
    case OBSTACLE_HEALTH: return REASON_HEALTH;
    case OBSTACLE_LEASES: return REASON_LEASES;
    case OBSTACLE_STRANGERS: return REASON_STRANGERS;
    case OBSTACLE_QUEUE: return REASON_QUEUE;
    case OBSTACLE_AHEAD: return REASON_AHEAD;
    case OBSTACLE_SLOT: return REASON_SLOT;
    case OBSTACLE_GROUP: return REASON_GROUP;
    }
    return REASON_NONE;
}

/* ---- the step -------------------------------------------------------------------------------- */

static void take_dead(struct step *step, const struct event *event)
{
    for (uint32_t i = 0; i < event->dead_count; i++) {
        struct record *record = &step->book->records[event->dead[i]];
        assert(event->dead[i] < step->book->used);
        if (record_is_live(record) && record->state != RECORD_ORPHAN && record->holder.local &&
            !(record->flags & RECORD_NO_HOLDER))
            step_end(step, record, END_LAPSED);
    }
}

void step_note_sight(struct step *step, int32_t strangers, int32_t health)
{
    const struct sight *sight = &step->book->sight;
    if (sight->strangers > strangers)
        step_note(step, NOTE_STRANGERS, NULL, REASON_NONE, sight->strangers);
    if (strangers > 0 && sight->strangers == 0)
        step_note(step, NOTE_STRANGERS_GONE, NULL, REASON_NONE, strangers);
    if (sight->reading.health != health)
        step_note(step, NOTE_HEALTH, NULL, REASON_NONE, sight->reading.health);
}

/* What records were before a reading, to tell what it changed. */
struct before {
    uint32_t count;
    uint16_t cells[BOOK_CELLS];
    uint8_t states[BOOK_CELLS];
    uint8_t flags[BOOK_CELLS];
};

static void remember_records(const struct book *book, struct before *before)
{
    before->count = book->live_count;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        before->cells[i] = book->live[i];
        before->states[i] = record->state;
        before->flags[i] = record->flags;
    }
}

static void note_records(struct step *step, const struct before *before)
{
    for (uint32_t i = 0; i < before->count; i++) {
        const struct record *record = &step->book->records[before->cells[i]];
        if (record->flags & ~before->flags[i] & RECORD_GHOST)
            step_note(step, NOTE_GHOST, record, REASON_NONE, 0);
        if (before->states[i] == RECORD_ORPHAN && record->state == RECORD_GONE)
            step_note(step, NOTE_ORPHAN_GONE, record, REASON_NONE, 0);
    }
}

static void take_reading(struct step *step, const struct event *event)
{
    struct book *book = step->book;
    int32_t strangers = book->sight.strangers, health = book->sight.reading.health;
    struct before before;
    remember_records(book, &before);
    if (!attribution_take(book, event->reading, step->now))
        return;
    step_note_sight(step, strangers, health);
    note_records(step, &before);
}

static void effects_clear(struct effects *effects)
{
    effects->has_reply = effects->probe = false;
    effects->probe_not_before_ns = 0;
    effects->called_count = effects->note_count = effects->notes_lost = 0;
}

void broker_step(struct broker *broker, const struct event *event, struct effects *effects)
{
    effects_clear(effects);
    if (event->now > broker->now)
        broker->now = event->now;
    struct step step = {broker, broker->book, broker->now, effects};
    if (event->kind == EVENT_DEAD)
        take_dead(&step, event);
    if (event->kind == EVENT_STATE) /* before the clock: the owner says what still lives */
        mirror_take_state(&step, event->state);
    if (event->kind == EVENT_NAMED)
        mirror_take_named(&step, event->named);
    if (!PLANTED(PLANT_EXPIRY_WHEN_IDLE) || event->kind == EVENT_TICK)
        queue_expire(&step);
    if (event->kind == EVENT_READING)
        take_reading(&step, event);
    if (event->kind == EVENT_CLAIM)
        mirror_take_claim(&step, event->claim);
    queue_advance(&step);
    if (event->kind == EVENT_REQUEST) {
        requests_answer(&step, event->request);
        queue_advance(&step);
    }
    book_check(broker->book);
}

int broker_choose(const int32_t *available, uint32_t count, uint64_t entropy)
{
    int64_t best = INT64_MIN;
    uint32_t equals = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t worth = available[i] < 0 ? 1 : 2 * (int64_t)available[i];
        equals = worth > best ? 1 : worth == best ? equals + 1 : equals;
        best = worth > best ? worth : best;
    }
    if (equals == 0)
        return -1;
    uint32_t nth = PLANTED(PLANT_LOWEST_INDEX) ? 0 : (uint32_t)(entropy % equals);
    for (uint32_t i = 0; i < count; i++) {
        int64_t worth = available[i] < 0 ? 1 : 2 * (int64_t)available[i];
        if (worth == best && nth-- == 0)
            return (int)i;
    }
    return -1;
}
