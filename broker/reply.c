/* Answers: what they say, and what is said again to whoever asks again. */
#include <string.h>

#include "broker/attribution.h"
#include "broker/planted.h"
#include "broker/step.h"

struct answer *step_reply(struct step *step, enum verdict verdict, enum reason reason)
{
    struct effects *effects = step->effects;
    effects->has_reply = true;
    memset(&effects->reply, 0, sizeof effects->reply);
    effects->reply.verdict = verdict;
    effects->reply.reason = reason;
    effects->reply.cell = UINT32_MAX;
    effects->reply.health = (enum health)step->book->sight.reading.health;
    return &effects->reply;
}

struct answer *step_reply_of(struct step *step, enum verdict verdict, enum reason reason,
                             const struct record *record)
{
    struct answer *answer = step_reply(step, verdict, reason);
    answer->lease = record->id;
    answer->cell = book_index(step->book, record);
    answer->token = record->token;
    answer->place = record->place;
    answer->units = record->units;
    answer->slot = record->slot;
    answer->state = (enum record_state)record->state;
    answer->end_ns = record->deadline_ns;
    answer->end = (enum record_end)record->end;
    return answer;
}

/* The wait that ended with the state the record is in: what a holder adds to the time of its
 * asking. Never more than it was, or it would believe in its lease for longer than we do. */
void step_tell_wait(struct step *step, const struct record *record)
{
    ns_t until = step->now;
    if (record->state == RECORD_HELD)
        until = record->hold_end_ns - (ns_t)step->book->settings.held_ms_max * NS_PER_MS;
    else if (record->state == RECORD_DISPATCHED)
        until = record->dispatched_ns;
    else if (record->state != RECORD_WAITING)
        until = record->ended_ns;
    if (record->waiting_since_ns && until > record->waiting_since_ns)
        step->effects->reply.waited_ms = (uint32_t)((until - record->waiting_since_ns) / NS_PER_MS);
}

void step_explain(struct step *step, struct answer *answer, const struct tally *tally,
                  uint64_t place, int32_t slot)
{
    answer->slots = tally->slots;
    answer->busy = tally->busy;
    answer->strangers = tally->strangers;
    answer->available = tally->available;
    answer->ahead = admission_ahead(step->book, place, slot);
    if (place == UINT64_MAX) /* whoever comes now stands behind those in the owner's queue too */
        answer->ahead += tally->elsewhere;
    const struct neighbour *member = admission_neighbour(step->book, place);
    if (member)
        memcpy(answer->member, member->name, sizeof answer->member);
    memcpy(answer->group, step->book->group, sizeof answer->group);
    const struct record *other = admission_first_to_end(step->book, place);
    if (!other)
        return;
    memcpy(answer->other.host, other->holder.host, NAME_SIZE);
    memcpy(answer->other.label, other->holder.label, LABEL_SIZE);
    answer->other.pid = other->holder.pid;
    answer->other.state = other->state;
    answer->other.left_ms = (other->deadline_ns - step->now) / NS_PER_MS;
}

/* A refusal is remembered, so that whoever did not hear it hears the same again. */
void step_remember(struct step *step, const struct request *request)
{
    struct refusals *refusals = step->broker->refusals;
    if (!refusals || request_id_is_none(request->id))
        return;
    uint32_t at = refusals->next++ % REFUSALS_MAX;
    refusals->keys[at].id = request->id;
    refusals->keys[at].at = step->now;
    refusals->answers[at] = step->effects->reply;
}

/* The newest first, since they stand in the order of their time. */
bool step_answer_again(struct step *step, const struct request *request)
{
    const struct refusals *refusals = step->broker->refusals;
    if (!refusals || (request->flags & REQUEST_FIRST) || PLANTED(PLANT_NO_DUPLICATES))
        return false;
    uint32_t kept = refusals->next < REFUSALS_MAX ? refusals->next : REFUSALS_MAX;
    for (uint32_t i = 1; i <= kept; i++) {
        uint32_t at = (refusals->next - i) % REFUSALS_MAX;
        if (step->now - refusals->keys[at].at > REFUSAL_MS * NS_PER_MS)
            return false;
        if (!request_id_equal(refusals->keys[at].id, request->id))
            continue;
        step->effects->has_reply = true;
        step->effects->reply = refusals->answers[at];
        return true;
    }
    return false;
}

void broker_unsay(struct broker *broker, struct request_id id)
{
    static const struct request_id none;
    struct refusals *refusals = broker->refusals;
    for (uint32_t i = 0; refusals && i < REFUSALS_MAX; i++)
        if (request_id_equal(refusals->keys[i].id, id))
            refusals->keys[i].id = none;
}

/* An id that was brought is dead with its refusal: no later message may acquire by it. */
void step_refuse_new(struct step *step, const struct request *request)
{
    if (request->flags & REQUEST_BRINGS_ID) {
        step->effects->reply.lease = request->lease;
        book_forget(step->book, request->lease, step->now);
    }
    step_remember(step, request);
}

void step_refuse(struct step *step, const struct request *request, enum reason reason)
{
    step_reply(step, ANSWER_NO, reason);
    step_refuse_new(step, request);
}

void step_reply_gone(struct step *step, const struct record *record)
{
    if (record)
        step_reply_of(step, ANSWER_GONE, REASON_ENDED, record);
    else
        step_reply(step, ANSWER_GONE, REASON_UNKNOWN_ID);
}

void step_stamp(struct step *step, struct record *record, const struct request *request)
{
    record->last_by = request->id;
    record->verb = (uint8_t)request->verb;
    book_touch(step->book, record);
}

/* The head is asked again when something changed, or after a while where nobody else probes. */
void step_reply_wait(struct step *step, const struct record *record, enum reason reason)
{
    struct answer *answer = step_reply_of(step, ANSWER_WAIT, reason, record);
    step_tell_wait(step, record);
    ns_t pause = attribution_not_before(step->book);
    ns_t look = step->now + PROBE_ACTIVE_MS * NS_PER_MS;
    answer->retry_ns = pause > step->now && pause < look ? pause : look;
    if (answer->retry_ns > record->deadline_ns)
        answer->retry_ns = record->deadline_ns;
    struct tally tally;
    admission_tally(step->book, step->now, &tally);
    step_explain(step, answer, &tally, record->place, record->slot);
}

void step_reply_unread(struct step *step, const struct record *record)
{
    struct answer *answer = record ? step_reply_of(step, ANSWER_UNREAD, REASON_NONE, record)
                                   : step_reply(step, ANSWER_UNREAD, REASON_NONE);
    answer->retry_ns = attribution_not_before(step->book);
    step_want_reading(step);
}

static ns_t wait_end(const struct request *request)
{
    uint32_t wait_ms = request->wait_ms < WAIT_MS_MAX ? request->wait_ms : WAIT_MS_MAX;
    return request->asked_ns + (ns_t)wait_ms * NS_PER_MS;
}

bool step_may_wait(const struct step *step, const struct request *request)
{
    return request->wait_ms > 0 && wait_end(request) > step->now;
}

bool step_ttl_is_valid(uint32_t ttl_ms)
{
    return ttl_ms == 0 || (ttl_ms >= TTL_MS_MIN && ttl_ms <= TTL_MS_MAX);
}

/* How many slots there are has never been told: whatever is decided now would be a guess. */
bool step_slots_are_unknown(const struct book *book)
{
    return book_is_probed(book) && book->settings.slots == 0 && book->sight.slots_last == 0;
}

void step_reply_wait_over(struct step *step, const struct record *record)
{
    step_reply_of(step, ANSWER_NO, REASON_WAIT_OVER, record);
    step_tell_wait(step, record);
}

void step_enqueue(struct step *step, struct record *record, const struct request *request,
                  enum reason reason)
{
    record->deadline_ns = wait_end(request);
    record->waiting_since_ns = step->now;
    book_set_state(step->book, record, RECORD_WAITING);
    step_note(step, NOTE_QUEUED, record, reason, 0);
    step_reply_wait(step, record, reason);
}

/* Living leases and intentions are as the book has them. But strangers, orphans and health are as
 * old as the reading, and where nobody reads in the background they would stand in the way for as
 * long as it is trusted, an orphan for ever. Work comes and goes quickly; a server that tells of none
 * is asked no more often than in the background. */
bool step_reading_may_help(const struct step *step, const struct request *request,
                           const struct tally *tally, int32_t ahead, uint32_t units)
{
    const struct book *book = step->book;
    const struct reading *reading = &book->sight.reading;
    ns_t since = step_since(request);
    bool recent =
        reading->sent_ns != 0 && step->now - reading->answered_ns <= PROBE_ACTIVE_MS * NS_PER_MS;
    bool fresh = tally->counts ? admission_is_fresh(book, step->now, since) : recent;
    if (!book_is_probed(book) || fresh || (request->flags & REQUEST_AS_KNOWN) ||
        step->now < attribution_not_before(book))
        return false;
    return tally->dispatched + ahead + (int32_t)units <= tally->slots;
}

bool step_group_may_help(const struct step *step, const struct request *request, uint64_t place)
{
    ns_t since = step_since(request);
    uint32_t as_known = REQUEST_GROUP_AS_KNOWN;
    if (request->verb == VERB_ACQUIRE)
        as_known |= REQUEST_AS_KNOWN;
    return !(request->flags & as_known) &&
           admission_group_is_unread(step->book, place, step->now, since);
}
