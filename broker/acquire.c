/* Acquire: a lease that is held, a place in the queue, or work that runs already. */
#include <string.h>

#include "broker/attribution.h"
#include "broker/planted.h"
#include "broker/step.h"

/* The record that this very request made, or that bears the id which it brings. */
struct record *acquire_find(struct step *step, const struct request *request)
{
    struct book *book = step->book;
    if ((request->flags & REQUEST_FIRST) || PLANTED(PLANT_NO_DUPLICATES))
        return NULL;
    struct record *made = book_find_made(book, request->id, request->hint);
    if (made)
        return made;
    return request->flags & REQUEST_BRINGS_ID ? book_find(book, request->lease, request->hint)
                                              : NULL;
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
        if (request_id_equal(record->acquired_by, request->id))
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
enum reason acquire_is_impossible(const struct step *step, const struct request *request)
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
    return book_has_room(book, slots) ? REASON_NONE : REASON_BOOK_FULL;
}

bool acquire_is_dead(const struct step *step, const struct request *request)
{
    return (request->flags & REQUEST_BRINGS_ID) &&
           (book_is_dead(step->book, request->lease) ||
            (request->epoch != 0 && request->epoch < step->book->head.epoch));
}

struct record *acquire_write(struct step *step, const struct request *request)
{
    struct book *book = step->book;
    struct record *record = book_take(book, step->now);
    if (!record)
        return NULL;
    if (request->flags & REQUEST_BRINGS_ID)
        record->id = request->lease;
    else
        record->id = (struct lease_id){book->head.instance, book_next_counter(book, record)};
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
    int32_t ahead = admission_ahead(book, UINT64_MAX, request->slot) + tally.elsewhere;
    bool unread = obstacle == OBSTACLE_GROUP
                      ? step_group_may_help(step, request, UINT64_MAX)
                      : step_reading_may_help(step, request, &tally, ahead, request->units);
    if (obstacle != OBSTACLE_NONE && unread) {
        step_reply_unread(step, NULL);
        return;
    }
    if (obstacle != OBSTACLE_NONE && !step_may_wait(step, request)) {
        struct answer *answer = step_reply(step, ANSWER_NO, step_reason(obstacle));
        step_explain(step, answer, &tally, UINT64_MAX, request->slot);
        bool by_leases = tally.dispatched + ahead + (int32_t)request->units > tally.slots;
        if (obstacle == OBSTACLE_GROUP)
            answer->retry_ns = admission_group_retry_ns(book, UINT64_MAX, step->now);
        else if (book_is_probed(book) && !by_leases)
            answer->retry_ns = attribution_not_before(book);
        step_refuse_new(step, request);
        step_note_refusal(step, request, step_reason(obstacle));
        return;
    }
    if (obstacle != OBSTACLE_NONE && book->count[RECORD_WAITING] >= BOOK_WAITERS_MAX) {
        step_refuse(step, request, REASON_QUEUE_FULL);
        return;
    }
    struct record *record = acquire_write(step, request);
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
static void acquire_running(struct step *step, const struct request *request, struct record *record)
{
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

static void acquire_anew(struct step *step, const struct request *request)
{
    if (step_answer_again(step, request))
        return;
    if (acquire_is_dead(step, request)) {
        step_reply_gone(step, NULL);
        return;
    }
    bool running = request->flags & REQUEST_RUNNING;
    if (!running && step_slots_are_unknown(step->book) && step->book->sight.reading.sent_ns == 0) {
        step_reply_unread(step, NULL);
        return;
    }
    enum reason reason = acquire_is_impossible(step, request);
    struct record *record = NULL;
    if (reason == REASON_NONE && running && !(record = acquire_write(step, request)))
        reason = REASON_BOOK_FULL;
    if (reason != REASON_NONE)
        step_refuse(step, request, reason);
    else if (running)
        acquire_running(step, request, record);
    else
        acquire_or_wait(step, request);
}

/* A lease that its holder dispatched while nobody could ask here, and that is known as held. */
static bool runs_meanwhile(const struct request *request, const struct record *record)
{
    const uint32_t both = REQUEST_RUNNING | REQUEST_BRINGS_ID;
    return (request->flags & both) == both && lease_id_equal(record->id, request->lease) &&
           (record->state == RECORD_HELD || record->state == RECORD_WAITING);
}

void requests_acquire(struct step *step, const struct request *request)
{
    struct record *earlier = acquire_find(step, request);
    if (!earlier) {
        acquire_anew(step, request);
    } else if (runs_meanwhile(request, earlier)) {
        step_stamp(step, earlier, request);
        acquire_running(step, request, earlier);
    } else {
        acquire_again(step, request, earlier);
    }
}
