/* What other hosts say, brought into bounds, and written into records. */
#include "broker/heard.h"

#include <string.h>

#include "broker/step.h"

#define AGE_MS_MAX (INT64_C(366) * 86400000)

/* ---- words in bounds ------------------------------------------------------------------------- */

int64_t heard_within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* So long ago; never before this host's clock began. */
ns_t heard_past(ns_t now, int64_t ago_ms)
{
    ns_t then = now - heard_within(ago_ms, 0, AGE_MS_MAX) * NS_PER_MS;
    return then < 1 ? 1 : then;
}

/* A claim that stays a while is told apart by this; 0 is none. */
uint32_t heard_second(ns_t now)
{
    return (uint32_t)heard_within(now / NS_PER_SEC, 1, UINT32_MAX);
}

static void copy_text(char *to, size_t size, const char *from)
{
    char whole[LABEL_SIZE];
    memcpy(whole, from, size);
    whole[size - 1] = '\0';
    text_copy(to, size, whole);
}

static void copy_holder(struct holder *to, const struct holder *from)
{
    copy_text(to->host, sizeof to->host, from->host);
    copy_text(to->label, sizeof to->label, from->label);
    to->local = from->local != 0;
    to->pid = from->pid;
    to->pid_start = to->local ? from->pid_start : 0;
    to->pid_space = to->local ? from->pid_space : 0;
}

/* What a lease is by this word, as a record of ours; its state may be GONE. False: it is none, or bears
 * an id which this book would have issued, and has not. */
bool heard_draft(const struct step *step, const struct heard_lease *lease, uint64_t epoch,
                 struct record *draft)
{
    int state = (int)lease->state;
    const struct book *book = step->book;
    bool forged =
        lease->id.instance == book->head.instance && lease->id.counter > book->counter_max;
    if (lease->id.counter == 0 || forged || state < RECORD_HELD || state > RECORD_GONE)
        return false;
    memset(draft, 0, sizeof *draft);
    draft->id = lease->id;
    draft->state = (uint8_t)state;
    draft->units = (uint16_t)heard_within(lease->units, 1, BOOK_SLOTS_MAX);
    draft->arrived = (uint16_t)heard_within(lease->arrived, 0, draft->units);
    bool pins = draft->units == 1 && lease->slot >= 0 && lease->slot < BOOK_SLOTS_MAX;
    draft->slot = pins ? (int16_t)lease->slot : -1;
    draft->task = -1;
    draft->ttl_ms = step_ttl_is_valid(lease->ttl_ms) ? lease->ttl_ms : 0;
    draft->acquired_ns = heard_past(step->now, lease->age_ms);
    if (state != RECORD_HELD) {
        draft->dispatched_ns = heard_past(step->now, lease->dispatched_ms);
        if (draft->acquired_ns > draft->dispatched_ns)
            draft->acquired_ns = draft->dispatched_ns;
    }
    ns_t left_ns = heard_within(lease->left_ms, 0, TTL_MS_MAX) * NS_PER_MS;
    draft->deadline_ns = step->now + left_ns;
    draft->settle_mark_ns = book_healthy_ns(step->book, step->now);
    if (state == RECORD_DISPATCHED && lease->idle_ms >= 0) {
        draft->flags |= RECORD_GHOST;
        draft->idle_mark_ns =
            draft->settle_mark_ns - heard_within(lease->idle_ms, 0, AGE_MS_MAX) * NS_PER_MS;
    }
    if (lease->may_idle)
        draft->flags |= RECORD_MAY_IDLE;
    if (lease->no_holder)
        draft->flags |= RECORD_NO_HOLDER;
    if (lease->by_pid)
        draft->flags |= RECORD_BY_PID;
    int end = (int)lease->end;
    draft->end = (uint8_t)(end > END_NONE && end <= END_REPLACED ? end : END_EXPIRED);
    draft->ended_ns = step->now;
    bool placed = lease->place > 0 && lease->place <= PLACE_HEARD_MAX;
    draft->place = placed ? lease->place : book_place_by_id(lease->id);
    draft->token = lease->token >> TOKEN_BITS <= epoch ? lease->token : 0;
    draft->heard_s = heard_second(step->now);
    copy_holder(&draft->holder, &lease->holder);
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */

/* What a change of state means to people. An end is noted as what ended, before it is an orphan. */
static void note_change(struct step *step, const struct record *record, enum record_state before)
{
    bool lived = before >= RECORD_WAITING && before <= RECORD_DISPATCHED;
    bool ends = record->state == RECORD_ORPHAN || record->state == RECORD_GONE;
    if (ends && lived)
        step_note_end(step, record);
    if (record->state == RECORD_HELD)
        step_note(step, NOTE_ACQUIRED, record, REASON_NONE, 0);
    else if (record->state == RECORD_DISPATCHED)
        step_note(step, NOTE_WENT, record, REASON_NONE, 0);
    else if (record->state == RECORD_ORPHAN)
        step_note(step, NOTE_ORPHAN, record, REASON_NONE, 0);
    else if (before == RECORD_ORPHAN)
        step_note(step, NOTE_ORPHAN_GONE, record, REASON_NONE, 0);
}

/* The record becomes what `after` says; one that says nothing new is not written again. */
void heard_become(struct step *step, struct record *record, struct record *after)
{
    enum record_state before = (enum record_state)record->state;
    if (after->place < PLACE_BY_ID && after->place > after->place_max)
        after->place_max = after->place;
    if (after->token > after->token_max)
        after->token_max = after->token;
    if (after->state == RECORD_HELD && after->hold_end_ns < after->deadline_ns)
        after->hold_end_ns = after->deadline_ns;
    if (memcmp(record, after, sizeof *record) == 0)
        return;
    enum record_state state = (enum record_state)after->state;
    *record = *after;
    record->state = (uint8_t)before;
    if (state == RECORD_GONE && before == RECORD_GONE)
        book_touch(step->book, record);
    else
        book_set_state(step->book, record, state);
    if (state == before)
        return;
    if (before == RECORD_WAITING)
        queue_call(step, record);
    note_change(step, record, before);
}

/* A new record of what was heard, or NULL where the book is full. */
struct record *heard_take_cell(struct step *step, const struct record *draft)
{
    struct record *record = book_take(step->book, step->now);
    if (!record)
        return NULL;
    struct record after = *draft;
    bool ours = draft->id.instance == step->book->head.instance;
    bool raises = ours && draft->id.counter > record->counter_max;
    after.counter_max = raises ? draft->id.counter : record->counter_max;
    after.place_max = record->place_max;
    after.token_max = record->token_max;
    if (draft->state != RECORD_ORPHAN) {
        after.end = END_NONE;
        after.ended_ns = 0;
    }
    heard_become(step, record, &after);
    return record;
}

bool heard_lives(const struct record *record)
{
    return record_is_live(record) && record->state != RECORD_ORPHAN;
}
