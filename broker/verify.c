/* Verify: the question right before dispatch. A transition, not a look. */
#include <string.h>

#include "broker/attribution.h"
#include "broker/planted.h"
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
    switch (book_is_probed(book) ? book->sight.reading.health : HEALTH_OK) {
    case HEALTH_SLEEPING: return REASON_WAKES;
    case HEALTH_UNLOADED: return REASON_LOADS;
    default: return REASON_NONE;
    }
}

/* The wait in the record is this request's, and not one that an earlier request stood: an asker adds
 * it to the time of its first sending, and would believe in its lease for longer than we do. */
static bool is_its_wait(const struct record *record, const struct request *request)
{
    return request_id_equal(record->acquired_by, request->id) ||
           (request_id_equal(record->last_by, request->id) && record->verb == VERB_VERIFY);
}

static void reply_go(struct step *step, const struct record *record, const struct request *request)
{
    step_reply_of(step, ANSWER_GO, go_reason(step->book), record);
    if (is_its_wait(record, request))
        step_tell_wait(step, record);
}

static void go(struct step *step, struct record *record, const struct request *request)
{
    if (record->state == RECORD_HELD || !is_its_wait(record, request))
        record->waiting_since_ns = 0; /* what it waited to be held is over and told */
    if (request->flags & REQUEST_MAY_IDLE)
        record->flags |= RECORD_MAY_IDLE;
    if (!PLANTED(PLANT_VERIFY_AS_A_READ))
        queue_dispatch(step, record, request->ttl_ms);
    step_stamp(step, record, request);
    reply_go(step, record, request);
}

/* Stays a waiter, becomes one, or ends: a no that was decided under the owner's lock leaves
 * nothing behind that could stand in somebody's way. */
static void no_or_wait(struct step *step, struct record *record, const struct request *request,
                       enum reason reason)
{
    struct book *book = step->book;
    bool waits = record->state == RECORD_WAITING;
    bool may_wait = step_may_wait(step, request);
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

enum choice { CHOICE_GO, CHOICE_NO, CHOICE_UNREAD, CHOICE_PAUSE };

struct wish {
    uint64_t place;
    uint32_t units;
    int32_t slot;
};

/* What a verify that wants this is to be told by what is known now; with CHOICE_NO and CHOICE_PAUSE,
 * *reason. In a pause the server is left alone for a moment: what leases forbid stays forbidden, all
 * else waits for the next reading. */
static enum choice choose(struct step *step, const struct request *request, struct wish wish,
                          enum reason *reason)
{
    const struct book *book = step->book;
    struct tally tally;
    admission_tally(book, step->now, &tally);
    enum obstacle obstacle = OBSTACLE_NONE;
    if (!step_slots_are_unknown(book))
        obstacle = admission_verify(book, &tally, wish.place, wish.units, wish.slot, false);
    *reason = step_reason(obstacle);
    bool group = obstacle == OBSTACLE_NONE || obstacle == OBSTACLE_GROUP;
    if (group && step_group_may_help(step, request, wish.place))
        return CHOICE_UNREAD;
    if (obstacle == OBSTACLE_GROUP && admission_group_retry_ns(book, wish.place, step->now) != 0)
        return CHOICE_PAUSE;
    if (obstacle != OBSTACLE_NONE) /* leases alone say no, which no reading changes */
        return CHOICE_NO;
    if (!book_is_probed(book))
        return CHOICE_GO;
    ns_t since = step_since(request);
    bool fresh = admission_is_fresh(book, step->now, since);
    if (!fresh && step->now >= attribution_not_before(book))
        return CHOICE_UNREAD;
    obstacle = admission_verify(book, &tally, wish.place, wish.units, wish.slot, true);
    *reason = obstacle == OBSTACLE_NONE && !fresh ? REASON_PAUSE : step_reason(obstacle);
    if (!fresh)
        return CHOICE_PAUSE;
    return obstacle == OBSTACLE_NONE ? CHOICE_GO : CHOICE_NO;
}

static void explain(struct step *step, uint64_t place, int32_t slot)
{
    struct tally tally;
    admission_tally(step->book, step->now, &tally);
    step_explain(step, &step->effects->reply, &tally, place, slot);
}

/* The answer is a no that decides nothing: a server is to be left alone, and the asker does not wait.
 * It says when to ask again. */
static void reply_pause(struct step *step, const struct request *request, uint64_t place)
{
    struct answer *answer = &step->effects->reply;
    answer->undecided = true;
    answer->retry_ns = answer->reason == REASON_GROUP
                           ? admission_group_retry_ns(step->book, place, step->now)
                           : attribution_not_before(step->book);
    step_remember(step, request);
}

static void verify_live(struct step *step, struct record *record, const struct request *request)
{
    bool waits = record->state == RECORD_WAITING;
    if (waits && !is_head(step->book, record)) {
        step_reply_wait(step, record, REASON_AHEAD);
        return;
    }
    enum reason reason;
    struct wish wish = {record->place, record->units, record->slot};
    enum choice choice = choose(step, request, wish, &reason);
    if (choice == CHOICE_GO) {
        go(step, record, request);
    } else if (choice == CHOICE_UNREAD) {
        step_reply_unread(step, record);
    } else if (choice == CHOICE_NO || waits || step_may_wait(step, request)) {
        no_or_wait(step, record, request, reason);
    } else {
        step_reply_of(step, ANSWER_NO, reason, record);
        explain(step, record->place, record->slot);
        reply_pause(step, request, record->place);
    }
}

/* ---- acquire and verify in one step ---------------------------------------------------------- */

/* Nothing is written: there is nothing to be forgotten, and a book under siege stays as it is. */
static void refuse_anew(struct step *step, const struct request *request, enum choice choice,
                        enum reason reason)
{
    struct answer *answer = step_reply(step, ANSWER_NO, reason);
    explain(step, UINT64_MAX, request->slot);
    if (choice == CHOICE_PAUSE) {
        if (request->flags & REQUEST_BRINGS_ID)
            answer->lease = request->lease;
        reply_pause(step, request, UINT64_MAX);
        return;
    }
    step_refuse_new(step, request);
    step_note_refusal(step, request, reason);
}

/* Held until the reading is there, and no longer than an asker could take to ask again. */
static void hold_until_read(struct step *step, struct record *record)
{
    queue_hold(step, record);
    ns_t most = step->now + TTL_HELD_MS_DEFAULT * NS_PER_MS;
    if (record->deadline_ns > most)
        record->deadline_ns = most;
    step_reply_unread(step, record);
}

/* The place is drawn now, and everybody who is here already has a smaller one. */
static void acquire_and_verify(struct step *step, const struct request *request)
{
    enum reason reason = acquire_is_impossible(step, request);
    if (reason != REASON_NONE) {
        step_refuse(step, request, reason);
        return;
    }
    struct wish wish = {UINT64_MAX, request->units, request->slot};
    enum choice choice = choose(step, request, wish, &reason);
    bool stays = choice == CHOICE_GO || choice == CHOICE_UNREAD;
    if (!stays && !step_may_wait(step, request)) {
        refuse_anew(step, request, choice, reason);
        return;
    }
    if (!stays && step->book->count[RECORD_WAITING] >= BOOK_WAITERS_MAX) {
        step_refuse(step, request, REASON_QUEUE_FULL);
        return;
    }
    struct record *record = acquire_write(step, request);
    if (!record) {
        step_refuse(step, request, REASON_BOOK_FULL);
    } else if (choice == CHOICE_GO) {
        go(step, record, request);
    } else if (choice == CHOICE_UNREAD) {
        hold_until_read(step, record);
    } else {
        record->flags |= RECORD_TO_DISPATCH;
        step_enqueue(step, record, request, reason);
    }
}

static void verify_anew(struct step *step, const struct request *request)
{
    bool acquires = request->lease.counter == 0 ? request->units > 0
                                                : (request->flags & REQUEST_BRINGS_ID) != 0;
    if (acquires && step_answer_again(step, request))
        return;
    if (!acquires || acquire_is_dead(step, request))
        step_reply_gone(step, NULL);
    else if (step_slots_are_unknown(step->book))
        step_reply_unread(step, NULL);
    else
        acquire_and_verify(step, request);
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
    if (!record && (request->lease.counter == 0 || (request->flags & REQUEST_BRINGS_ID)))
        record = acquire_find(step, request);
    if (!step_ttl_is_valid(request->ttl_ms)) {
        step_reply(step, ANSWER_NO, REASON_TTL)->undecided = true;
        return;
    }
    if (!record) {
        verify_anew(step, request);
        return;
    }
    switch (record->state) {
    case RECORD_DISPATCHED: reply_go(step, record, request); break;
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
