/* Acquire: a lease that is held, a place in the queue, or work that runs already. */
#include <string.h>

#include "broker/attribution.h"
#include "broker/step.h"

static struct record *find_acquired_by(struct step *step, const struct request *request)
{
    struct book *book = step->book;
    if (request->flags & REQUEST_FIRST)
        return NULL;
    if (request->hint < book->used &&
        request_id_equal(book->records[request->hint].acquired_by, request->id))
        return &book->records[request->hint];
    for (uint32_t i = 0; i < book->used; i++)
        if (request_id_equal(book->records[i].acquired_by, request->id))
            return &book->records[i];
    return NULL;
}

static void wait_again(struct step *step, const struct request *request,
                       const struct record *record)
{
    struct tally tally;
    admission_tally(step->book, step->now, &tally);
    int32_t ahead = admission_ahead(step->book, record->place, record->slot);
    bool group = admission_neighbour(step->book, record->place) &&
                 step_group_may_help(step, request, record->place);
    if (group || step_reading_may_help(step, request, &tally, ahead, record->units))
        step_reply_unread(step, record);
    else
        step_reply_wait(step, record, REASON_AHEAD);
}

static void acquire_again(struct step *step, const struct request *request,
                          const struct record *record)
{
    switch (record->state) {
    case RECORD_HELD:
        step_reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
        step_tell_wait(step, record);
        break;
    case RECORD_DISPATCHED: step_reply_of(step, ANSWER_GRANTED, REASON_NONE, record); break;
    case RECORD_WAITING: wait_again(step, request, record); break;
    default:
        if (record->end == END_GAVE_UP)
            step_reply_wait_over(step, record);
        else
            step_reply_gone(step, record);
    }
}

/* Work that runs already is counted even above the slots, which may not be known yet. */
static enum reason acquire_is_impossible(const struct step *step, const struct request *request)
{
    const struct book *book = step->book;
    bool running = request->flags & REQUEST_RUNNING;
    int32_t slots = running ? BOOK_SLOTS_MAX : book_slots(book);
    if (!step_ttl_is_valid(request->ttl_ms))
        return REASON_TTL;
    if (request->units < 1 || (int64_t)request->units > slots ||
        (request->slot >= 0 && request->units != 1))
        return REASON_UNITS;
    if (request->slot >= slots || request->slot < -1)
        return REASON_SLOT_RANGE;
    uint32_t leases =
        book->count[RECORD_HELD] + book->count[RECORD_DISPATCHED] + book->count[RECORD_ORPHAN];
    uint32_t most = 2 * (uint32_t)slots > BOOK_LEASES_MIN ? 2 * (uint32_t)slots : BOOK_LEASES_MIN;
    return leases >= most ? REASON_BOOK_FULL : REASON_NONE;
}

/* A new record with an id and a place, in the state that the caller gives it next. */
static struct record *write_record(struct step *step, const struct request *request)
{
    struct book *book = step->book;
    struct record *record = book_take(book, step->now);
    if (!record)
        return NULL;
    record->id.instance = book->head.instance;
    record->id.counter = book_next_counter(book, record);
    record->place = book_next_place(book, record);
    record->acquired_by = request->id;
    record->acquired_ns = step->now;
    record->units = (uint16_t)request->units;
    record->slot = (int16_t)request->slot;
    record->ttl_ms = request->ttl_ms;
    record->holder = request->holder;
    record->flags = (uint8_t)((request->flags & REQUEST_MAY_IDLE ? RECORD_MAY_IDLE : 0) |
                              (request->flags & REQUEST_BY_PID ? RECORD_BY_PID : 0) |
                              (request->flags & REQUEST_NO_HOLDER ? RECORD_NO_HOLDER : 0));
    step_stamp(step, record, request);
    return record;
}

static void acquire_or_wait(struct step *step, const struct request *request)
{
    struct book *book = step->book;
    struct tally tally;
    admission_tally(book, step->now, &tally);
    enum obstacle obstacle = admission_acquire(book, &tally, request->units, request->slot);
    int32_t ahead = admission_ahead(book, UINT64_MAX, request->slot);
    bool unread = obstacle == OBSTACLE_GROUP
                      ? step_group_may_help(step, request, UINT64_MAX)
                      : step_reading_may_help(step, request, &tally, ahead, request->units);
    if (obstacle != OBSTACLE_NONE && unread) {
        step_reply_unread(step, NULL);
        return;
    }
    if (obstacle != OBSTACLE_NONE &&
        (request->wait_ms == 0 || step_wait_end(request) <= step->now)) {
        struct answer *answer = step_reply(step, ANSWER_NO, step_reason(obstacle));
        step_explain(step, answer, &tally, UINT64_MAX, request->slot);
        bool by_leases = tally.dispatched + ahead + (int32_t)request->units > tally.slots;
        if (book->settings.probed && !by_leases && obstacle != OBSTACLE_GROUP)
            answer->retry_ns = attribution_not_before(book);
        step_remember(step, request);
        step_note_refusal(step, request, step_reason(obstacle));
        return;
    }
    if (obstacle != OBSTACLE_NONE && book->count[RECORD_WAITING] >= BOOK_WAITERS_MAX) {
        step_refuse(step, request, REASON_QUEUE_FULL);
        return;
    }
    struct record *record = write_record(step, request);
    if (!record) {
        step_refuse(step, request, REASON_BOOK_FULL);
    } else if (obstacle == OBSTACLE_NONE) {
        queue_hold(step, record);
        step_reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
    } else {
        step_enqueue(step, record, request, step_reason(obstacle));
    }
}

/* The work runs already, under a lease that ended: dispatched at once, counted even above the
 * slots, born seen; what the former lease left behind is now explained by this one. */
static void acquire_running(struct step *step, const struct request *request)
{
    struct record *record = write_record(step, request);
    if (!record) {
        step_refuse(step, request, REASON_BOOK_FULL);
        return;
    }
    queue_dispatch(step, record, request->ttl_ms);
    record->arrived = record->units;
    struct record *former = book_find(step->book, request->former, UINT32_MAX);
    if (former && former != record) {
        record->task = former->task;
        if (record_is_live(former))
            step_end(step, former, END_REPLACED);
    }
    step_reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
}

void requests_acquire(struct step *step, const struct request *request)
{
    const struct record *earlier = find_acquired_by(step, request);
    if (earlier) {
        acquire_again(step, request, earlier);
        return;
    }
    if (step_answer_again(step, request))
        return;
    bool running = request->flags & REQUEST_RUNNING;
    if (!running && step_slots_are_unknown(step->book) && step->book->sight.reading.sent_ns == 0) {
        step_reply_unread(step, NULL);
        return;
    }
    enum reason reason = acquire_is_impossible(step, request);
    if (reason != REASON_NONE)
        step_refuse(step, request, reason);
    else if (running)
        acquire_running(step, request);
    else
        acquire_or_wait(step, request);
}
