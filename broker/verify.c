/* Verify: the question right before dispatch. A transition, not a look. */
#include <string.h>

#include "broker/attribution.h"
#include "broker/step.h"

static bool is_head(const struct book *book, const struct record *record)
{
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *other = &book->records[book->live[i]];
        if (other->state == RECORD_WAITING && other->place < record->place &&
            (other->slot < 0 || other->slot == record->slot))
            return false;
    }
    return true;
}

static enum reason go_reason(const struct book *book)
{
    switch (book->settings.probed ? book->sight.reading.health : HEALTH_OK) {
    case HEALTH_SLEEPING: return REASON_WAKES;
    case HEALTH_UNLOADED: return REASON_LOADS;
    default: return REASON_NONE;
    }
}

static void reply_go(struct step *step, const struct record *record)
{
    step_reply_of(step, ANSWER_GO, go_reason(step->book), record);
    step_tell_wait(step, record);
}

static void go(struct step *step, struct record *record, const struct request *request)
{
    if (record->state == RECORD_HELD)
        record->waiting_since_ns = 0; /* what it waited to be held is over and told */
    if (request->flags & REQUEST_MAY_IDLE)
        record->flags |= RECORD_MAY_IDLE;
    queue_dispatch(step, record, request->ttl_ms);
    step_stamp(step, record, request);
    reply_go(step, record);
}

/* Stays a waiter, becomes one, or ends: a no that was decided under the owner's lock leaves
 * nothing behind that could stand in somebody's way. */
static void no_or_wait(struct step *step, struct record *record, const struct request *request,
                       enum reason reason)
{
    struct book *book = step->book;
    bool waits = record->state == RECORD_WAITING;
    bool may_wait = step_wait_end(request) > step->now && request->wait_ms > 0;
    if (waits) {
        step_reply_wait(step, record, reason);
        return;
    }
    step_stamp(step, record, request);
    if (may_wait && book->count[RECORD_WAITING] < BOOK_WAITERS_MAX) {
        record->flags |= RECORD_TO_DISPATCH;
        if (request->flags & REQUEST_MAY_IDLE)
            record->flags |= RECORD_MAY_IDLE;
        if (request->ttl_ms)
            record->ttl_ms = request->ttl_ms;
        step_enqueue(step, record, request, reason);
        return;
    }
    step_end(step, record, END_REFUSED);
    struct tally tally;
    admission_tally(book, step->now, &tally);
    struct answer *answer =
        step_reply_of(step, ANSWER_NO, may_wait ? REASON_QUEUE_FULL : reason, record);
    step_explain(step, answer, &tally, record->place, record->slot);
    step_remember(step, request);
}

/* The server is left alone for a moment: what leases forbid stays forbidden, all else waits for the
 * next reading. Without a wait that is a no which decides nothing, and says when to ask again. */
static void verify_in_pause(struct step *step, struct record *record, const struct request *request,
                            const struct tally *tally)
{
    enum obstacle obstacle =
        admission_verify(step->book, tally, record->place, record->units, record->slot, true);
    bool may_wait = record->state == RECORD_WAITING ||
                    (request->wait_ms > 0 && step_wait_end(request) > step->now);
    enum reason reason = obstacle == OBSTACLE_NONE ? REASON_PAUSE : step_reason(obstacle);
    if (may_wait) {
        no_or_wait(step, record, request, reason);
        return;
    }
    struct answer *answer = step_reply_of(step, ANSWER_NO, reason, record);
    step_explain(step, answer, tally, record->place, record->slot);
    answer->undecided = true;
    answer->retry_ns = attribution_not_before(step->book);
    step_remember(step, request);
}

static void verify_live(struct step *step, struct record *record, const struct request *request)
{
    struct book *book = step->book;
    if (record->state == RECORD_WAITING && !is_head(book, record)) {
        step_reply_wait(step, record, REASON_AHEAD);
        return;
    }
    struct tally tally;
    admission_tally(book, step->now, &tally);
    enum obstacle obstacle = OBSTACLE_NONE;
    if (!step_slots_are_unknown(book))
        obstacle =
            admission_verify(book, &tally, record->place, record->units, record->slot, false);
    int32_t ahead = admission_ahead(book, record->place, record->slot);
    if ((obstacle == OBSTACLE_NONE || obstacle == OBSTACLE_GROUP) &&
        step_group_may_help(step, request, record->place)) {
        step_reply_unread(step, record);
        return;
    }
    if (obstacle != OBSTACLE_NONE && obstacle != OBSTACLE_GROUP &&
        step_reading_may_help(step, request, &tally, ahead, record->units)) {
        step_reply_unread(step, record);
        return;
    }
    if (obstacle == OBSTACLE_NONE && book->settings.probed) {
        ns_t since = request->fresh_ns ? request->fresh_ns : request->asked_ns;
        if (!admission_is_fresh(book, step->now, since)) {
            if (step->now < attribution_not_before(book))
                verify_in_pause(step, record, request, &tally);
            else
                step_reply_unread(step, record);
            return;
        }
        obstacle = admission_verify(book, &tally, record->place, record->units, record->slot, true);
    }
    if (obstacle == OBSTACLE_NONE)
        go(step, record, request);
    else
        no_or_wait(step, record, request, step_reason(obstacle));
}

static void verify_ended(struct step *step, const struct record *record,
                         const struct request *request)
{
    bool same = request_id_equal(record->last_by, request->id) && record->verb == VERB_VERIFY;
    if (same && record->end == END_GAVE_UP)
        step_reply_wait_over(step, record);
    else if (!step_answer_again(step, request))
        step_reply_gone(step, record);
}

void requests_verify(struct step *step, const struct request *request)
{
    struct record *record = book_find(step->book, request->lease, request->hint);
    if (!step_ttl_is_valid(request->ttl_ms)) {
        step_reply(step, ANSWER_NO, REASON_TTL)->undecided = true;
        return;
    }
    if (!record) {
        step_reply_gone(step, NULL);
        return;
    }
    switch (record->state) {
    case RECORD_DISPATCHED: reply_go(step, record); break;
    case RECORD_HELD:
        if (!step_answer_again(step, request))
            verify_live(step, record, request);
        break;
    case RECORD_WAITING:
        if (record->flags & RECORD_TO_DISPATCH)
            verify_live(step, record, request);
        else
            step_reply_wait(step, record, REASON_AHEAD); /* it is not even held yet */
        break;
    default: verify_ended(step, record, request); break;
    }
}
