/* The queue of a book, and the clock. Strictly first come, first served: nobody passes the head,
 * whatever its units; only a waiter for one slot's index holds back nobody but that index. */
#include <assert.h>

#include "broker/attribution.h"
#include "broker/planted.h"
#include "broker/step.h"

/* ---- the clock ------------------------------------------------------------------------------- */

static ns_t orphan_end(const struct book *book, const struct record *record)
{
    ns_t most = record->ended_ns + (ns_t)TTL_MS_MAX * NS_PER_MS;
    if (book_is_copy(book) && (record->flags & RECORD_NAMED))
        return most; /* the owner says when; should it never again, this is for people to see only */
    /* where the owner's readings are all that is told, no reading will show what it knows nothing of: if
     * its work runs, it is among the strangers that the owner tells */
    if (book->sight.reading.signal != SIGNAL_EXACT || (book->sight.flags & SIGHT_TOLD))
        return record->ended_ns + (ns_t)book->settings.drain_ms * NS_PER_MS;
    /* a reading ends what one has shown, time what none did */
    ns_t end = record->arrived > 0 ? NS_NEVER : admission_settled_ns(book, record);
    return book_is_copy(book) && end > most ? most : end;
}

static ns_t end_of(const struct book *book, const struct record *record)
{
    return record->state == RECORD_ORPHAN ? orphan_end(book, record) : record->deadline_ns;
}

void queue_expire(struct step *step)
{
    struct book *book = step->book;
    for (uint32_t i = book->live_count; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        if (step->now < end_of(book, record))
            continue;
        if (record->state == RECORD_WAITING) {
            queue_call(step, record);
            step_end(step, record, END_GAVE_UP);
        } else {
            step_end(step, record, END_EXPIRED);
        }
    }
}

ns_t broker_deadline(const struct broker *broker)
{
    const struct book *book = broker->book;
    ns_t first = NS_NEVER;
    for (uint32_t i = 0; i < book->live_count; i++) {
        ns_t end = end_of(book, &book->records[book->live[i]]);
        if (end < first)
            first = end;
    }
    return first;
}

/* ---- the queue ------------------------------------------------------------------------------- */

void queue_call(struct step *step, const struct record *record)
{
    struct effects *effects = step->effects;
    uint32_t most = sizeof effects->called / sizeof effects->called[0];
    if (effects->called_count < most)
        effects->called[effects->called_count++] = (uint16_t)book_index(step->book, record);
}

/* The waiter with the smallest place above `after`; to be held only, or any. */
static struct record *next_waiter(struct book *book, uint64_t after, bool to_hold)
{
    struct record *found = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_WAITING && record->place > after &&
            !(to_hold && (record->flags & RECORD_TO_DISPATCH)) &&
            (!found || (record->place < found->place) != PLANTED(PLANT_QUEUE_BACKWARDS)))
            found = record;
    }
    return found;
}

void queue_dispatch(struct step *step, struct record *record, uint32_t ttl_ms)
{
    struct book *book = step->book;
    if (ttl_ms)
        record->ttl_ms = ttl_ms;
    uint32_t ttl = record->ttl_ms ? record->ttl_ms : TTL_DISPATCHED_MS_DEFAULT;
    /* the record lay in a file: what it says of its beginning may be anything */
    record->dispatched_ns = step->now > record->acquired_ns ? step->now : record->acquired_ns;
    record->deadline_ns = step->now + (ns_t)ttl * NS_PER_MS;
    record->settle_mark_ns = book_healthy_ns(book, step->now);
    record->arrived = 0;
    record->task = -1;
    record->flags &= (uint8_t) ~(RECORD_CALLED | RECORD_TO_DISPATCH | RECORD_GHOST |
                                 RECORD_SETTLED | RECORD_NAMED);
    if (record->token == 0)
        record->token = book_next_token(book, record);
    book_set_state(book, record, RECORD_DISPATCHED);
    step_note(step, NOTE_WENT, record, REASON_NONE, 0);
}

void queue_hold(struct step *step, struct record *record)
{
    struct book *book = step->book;
    uint32_t ttl = record->ttl_ms ? record->ttl_ms : TTL_HELD_MS_DEFAULT;
    uint32_t most = book->settings.held_ms_max;
    record->deadline_ns = step->now + (ns_t)(ttl < most ? ttl : most) * NS_PER_MS;
    record->hold_end_ns = step->now + (ns_t)most * NS_PER_MS;
    record->token = book_next_token(book, record);
    record->flags &= (uint8_t)~RECORD_CALLED;
    book_set_state(book, record, RECORD_HELD);
    step_note(step, NOTE_ACQUIRED, record, REASON_NONE, 0);
}

/* True where the waiter got what it waits for. One that needs only a fresh reading is called: the
 * process that waits has it made, not the one whose release made the room. */
static bool try_dispatch(struct step *step, struct record *record)
{
    struct book *book = step->book;
    struct tally tally;
    admission_tally(book, step->now, &tally);
    if (admission_verify(book, &tally, record->place, record->units, record->slot, false))
        return false;
    if (book_is_probed(book) && !admission_is_fresh(book, step->now, NS_NEVER)) {
        if (!(record->flags & RECORD_CALLED)) {
            record->flags |= RECORD_CALLED;
            book_touch(book, record);
            queue_call(step, record);
        }
        return false;
    }
    if (admission_verify(book, &tally, record->place, record->units, record->slot, true)) {
        if (record->flags & RECORD_CALLED) { /* else nothing changed: no reason to wake anybody */
            record->flags &= (uint8_t)~RECORD_CALLED;
            book_touch(book, record);
        }
        return false;
    }
    queue_dispatch(step, record, 0);
    queue_call(step, record);
    return true;
}

static bool try_hold(struct step *step, struct record *record)
{
    struct tally tally;
    admission_tally(step->book, step->now, &tally);
    if (admission_waiter(step->book, &tally, record->place, record->units, record->slot))
        return false;
    queue_hold(step, record);
    queue_call(step, record);
    return true;
}

/* Whoever waits for its go has its room kept, as a held lease has: it holds back the goes behind it,
 * not the intentions. Otherwise a newcomer would pass those who wait to be held. */
void queue_advance(struct step *step)
{
    uint64_t after = 0;
    bool to_hold = false;
    struct record *record;
    while (step->book->count[RECORD_WAITING] > 0 &&
           (record = next_waiter(step->book, after, to_hold))) {
        bool goes = record->flags & RECORD_TO_DISPATCH;
        bool granted = goes ? try_dispatch(step, record) : try_hold(step, record);
        after = record->place;
        if (granted || record->slot >= 0)
            continue;
        if (!goes)
            return;
        to_hold = true;
    }
}
