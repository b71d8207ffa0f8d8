/* Requests: renew and release, and who answers which. */
#include <string.h>

#include "broker/planted.h"
#include "broker/step.h"

/* Only readings say that it has no work, the first and the last of them ghost_ms apart: where
 * nobody reads, or the server cannot tell now, it is renewed, and a reading is wanted. */
static bool is_forsaken(struct step *step, const struct record *record)
{
    const struct book *book = step->book;
    ns_t most = (ns_t)book->settings.ghost_ms * NS_PER_MS;
    if ((record->flags & RECORD_MAY_IDLE) || admission_idle_ns(book, record, step->now) < most)
        return false;
    if (!admission_trusts(book, step->now))
        step_want_reading(step);
    return reading_counts(&book->sight.reading) &&
           book->sight.healthy_ns - record->idle_mark_ns >= most;
}

static void extend(struct step *step, struct record *record, const struct request *request)
{
    if (request->ttl_ms)
        record->ttl_ms = request->ttl_ms;
    bool held = record->state == RECORD_HELD;
    uint32_t usual = held ? TTL_HELD_MS_DEFAULT : TTL_DISPATCHED_MS_DEFAULT;
    ns_t end = step->now + (ns_t)(record->ttl_ms ? record->ttl_ms : usual) * NS_PER_MS;
    if (held && end > record->hold_end_ns)
        end = record->hold_end_ns;
    if (end > record->deadline_ns)
        record->deadline_ns = end;
    step_stamp(step, record, request);
}

static void answer_renew(struct step *step, const struct request *request)
{
    struct record *record = book_find(step->book, request->lease, request->hint);
    if (PLANTED(PLANT_RENEWAL_REVIVES) && record && record->state >= RECORD_ORPHAN &&
        record->end == END_EXPIRED)
        book_set_state(step->book, record, RECORD_DISPATCHED);
    if (!record || !record_is_live(record) || record->state == RECORD_ORPHAN) {
        step_reply_gone(step, record);
        return;
    }
    if (!step_ttl_is_valid(request->ttl_ms)) {
        step_reply(step, ANSWER_NO, REASON_TTL);
        return;
    }
    bool again = request_id_equal(record->last_by, request->id) && record->verb == VERB_RENEW;
    if (!again && step_answer_again(step, request))
        return;
    if (!again && is_forsaken(step, record)) {
        step_note(step, NOTE_RENEWAL_REFUSED, record, REASON_GHOST, 0);
        step_reply_of(step, ANSWER_NO, REASON_GHOST, record);
        step_remember(step, request);
        return;
    }
    if (!again && record->state != RECORD_WAITING)
        extend(step, record, request);
    step_reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
}

/* Names tell hosts apart where both have one, else that one of the two is this host. */
static bool is_of_other_host(const struct holder *a, const struct holder *b)
{
    if (a->host[0] && b->host[0])
        return strcmp(a->host, b->host) != 0;
    return a->local != b->local && (a->local || a->host[0]) && (b->local || b->host[0]);
}

/* The lease of another process, of this host or another, which renews it and believes that it has
 * it. One that outlives whoever took it is anybody's who knows its id, and so is every one to whoever
 * does not say who asks. An agent (pid 0) speaks for the processes of its host, and only it can know
 * that one has died. */
static bool is_not_yours(const struct record *record, const struct request *request)
{
    const struct holder *holder = &record->holder, *asker = &request->holder;
    if ((request->flags & REQUEST_FORCE) || (record->flags & (RECORD_NO_HOLDER | RECORD_BY_PID)))
        return false;
    if (is_of_other_host(holder, asker))
        return true;
    return asker->pid != 0 && holder->pid != 0 && holder->pid != asker->pid &&
           !(request->flags & REQUEST_DIED) && (asker->local || asker->host[0]);
}

static enum record_end end_by(const struct request *request)
{
    return request->flags & REQUEST_FORCE     ? END_FORCED
           : request->flags & REQUEST_GIVE_UP ? END_GAVE_UP
           : request->flags & REQUEST_DIED    ? END_LAPSED
                                              : END_RELEASED;
}

static void answer_release(struct step *step, const struct request *request)
{
    struct record *record = book_find(step->book, request->lease, request->hint);
    if (!record) {
        book_forget(step->book, request->lease, step->now); /* a claim of it may yet come */
        step_reply_gone(step, NULL);
        return;
    }
    if (record_is_live(record) && is_not_yours(record, request)) {
        step_reply_of(step, ANSWER_NO, REASON_NOT_YOURS, record);
        return;
    }
    bool outlives = (request->flags & REQUEST_DIED) && (record->flags & RECORD_NO_HOLDER);
    /* An orphan's work is none the less for its lease being given back late. */
    if (record_is_live(record) && record->state != RECORD_ORPHAN && !outlives) {
        step_stamp(step, record, request);
        step_end(step, record, end_by(request));
    } else if (record->state == RECORD_ORPHAN && (request->flags & REQUEST_FORCE)) {
        step_stamp(step, record, request);
        step_end(step, record, END_FORCED);
    }
    step_reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
}

void requests_answer(struct step *step, const struct request *request)
{
    switch (request->verb) {
    case VERB_ACQUIRE: requests_acquire(step, request); break;
    case VERB_VERIFY: requests_verify(step, request); break;
    case VERB_RENEW: answer_renew(step, request); break;
    case VERB_RELEASE: answer_release(step, request); break;
    case VERB_NONE: step_reply(step, ANSWER_NO, REASON_UNKNOWN_ID); break;
    }
}
