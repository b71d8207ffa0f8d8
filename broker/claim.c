/* Claims: what the agents of other hosts say of their leases. Hints, at the owner as in a copy. */
#include <string.h>

#include "broker/heard.h"
#include "broker/planted.h"
#include "broker/step.h"

static void bound_hold(const struct book *book, ns_t now, struct record *after)
{
    after->hold_end_ns = now + (ns_t)book->settings.held_ms_max * NS_PER_MS;
    if (after->deadline_ns > after->hold_end_ns)
        after->deadline_ns = after->hold_end_ns;
}

/* The owner gives it a place and a token, in the order in which it hears of claims. */
static void claim_anew(struct step *step, struct record *draft)
{
    struct book *book = step->book;
    draft->place = book_place_by_id(draft->id);
    draft->token = 0;
    draft->arrived = 0;
    draft->flags &= (uint8_t)~RECORD_GHOST;
    if (draft->state == RECORD_HELD)
        bound_hold(book, step->now, draft);
    if (book_is_copy(book)) {
        heard_take_cell(step, draft);
        return;
    }
    struct record *record = book_take(book, step->now);
    if (!record)
        return;
    struct record after = *draft;
    after.counter_max = record->counter_max;
    after.place_max = record->place_max;
    after.token_max = record->token_max;
    after.heard_s = after.end = 0;
    after.ended_ns = 0;
    after.place = book_next_place(book, &after);
    after.token = book_next_token(book, &after);
    heard_become(step, record, &after);
}

static void claim_again(struct step *step, struct record *record, const struct record *draft)
{
    struct book *book = step->book;
    bool goes = draft->state == RECORD_DISPATCHED && record->state != RECORD_DISPATCHED;
    struct record after = *record;
    if (goes) {
        bool waited = record->state == RECORD_WAITING;
        queue_dispatch(step, record, draft->ttl_ms);
        record->deadline_ns = draft->deadline_ns;
        if (waited)
            queue_call(step, record);
    } else if (((book_is_copy(book) && !(record->flags & RECORD_NAMED)) ||
                PLANTED(PLANT_CLAIM_EXTENDS)) &&
               record->state == draft->state && draft->deadline_ns > record->deadline_ns) {
        bool held = record->state == RECORD_HELD;
        bool late = held && draft->deadline_ns > record->hold_end_ns;
        after.deadline_ns = late ? record->hold_end_ns : draft->deadline_ns;
        after.heard_s = draft->heard_s;
        heard_become(step, record, &after);
    }
}

/* What this host holds or was asked for here is known better than by a claim. */
static bool is_ours(const struct book *book, const struct record *record)
{
    return record->holder.local || (book_is_copy(book) && record->heard_s == 0);
}

void mirror_take_claim(struct step *step, const struct heard_claim *claim)
{
    struct book *book = step->book;
    struct record draft;
    if (!heard_draft(step, &claim->lease, 0, &draft) || draft.state > RECORD_DISPATCHED)
        return;
    struct record *record = book_find(book, draft.id, UINT32_MAX);
    if (!claim->withdrawn && draft.deadline_ns <= step->now)
        return; /* it has run out meanwhile */
    if (!record) {
        bool old = claim->epoch != 0 && claim->epoch < mirror_epoch(book);
        if (claim->withdrawn && PLANTED(PLANT_WITHDRAWAL_FORGOTTEN))
            return;
        if (claim->withdrawn)
            book_forget(book, draft.id, step->now); /* though the claim itself may yet come */
        else if (!old && !book_is_dead(book, draft.id) && book_has_room(book, book_slots(book)) &&
                 (step_slots_are_unknown(book) || draft.units <= book_slots(book)))
            claim_anew(step, &draft);
        return;
    }
    bool same_host = memcmp(record->holder.host, draft.holder.host, NAME_SIZE) == 0;
    if (!heard_lives(record) || is_ours(book, record) || !same_host)
        return;
    if (claim->withdrawn) {
        if (record->state == RECORD_WAITING)
            queue_call(step, record);
        step_end(step, record, END_RELEASED);
    } else {
        claim_again(step, record, &draft);
    }
}
