/* Requests: acquire, verify, renew, release, and the answers to their duplicates. */
#include <string.h>

#include "broker/attribution.h"
#include "broker/step.h"

/* ---- answers ------------------------------------------------------------------------------------
 */

static struct answer *reply(struct step *step, enum verdict verdict, enum reason reason)
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

static struct answer *reply_of(struct step *step, enum verdict verdict, enum reason reason,
                               const struct record *record)
{
    struct answer *answer = reply(step, verdict, reason);
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
static void tell_wait(struct step *step, const struct record *record)
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

static void explain(struct step *step, struct answer *answer, const struct tally *tally,
                    uint64_t place, int32_t slot)
{
    answer->slots = tally->slots;
    answer->busy = tally->busy;
    answer->strangers = tally->strangers;
    answer->available = tally->available;
    answer->ahead = admission_ahead(step->book, place, slot);
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
static void remember(struct step *step, const struct request *request)
{
    struct refusals *refusals = step->broker->refusals;
    if (!refusals || request_id_is_none(request->id))
        return;
    uint32_t at = refusals->next++ % REFUSALS_MAX;
    refusals->ring[at].id = request->id;
    refusals->ring[at].at = step->now;
    refusals->ring[at].answer = step->effects->reply;
}

/* The newest first, since they stand in the order of their time. */
static bool answer_again(struct step *step, const struct request *request)
{
    const struct refusals *refusals = step->broker->refusals;
    if (!refusals || (request->flags & REQUEST_FIRST))
        return false;
    uint32_t kept = refusals->next < REFUSALS_MAX ? refusals->next : REFUSALS_MAX;
    for (uint32_t i = 1; i <= kept; i++) {
        uint32_t at = (refusals->next - i) % REFUSALS_MAX;
        if (step->now - refusals->ring[at].at > REFUSAL_MS * NS_PER_MS)
            return false;
        if (!request_id_equal(refusals->ring[at].id, request->id))
            continue;
        step->effects->has_reply = true;
        step->effects->reply = refusals->ring[at].answer;
        return true;
    }
    return false;
}

static void refuse(struct step *step, const struct request *request, enum reason reason)
{
    reply(step, ANSWER_NO, reason);
    remember(step, request);
}

static void reply_gone(struct step *step, const struct record *record)
{
    if (record)
        reply_of(step, ANSWER_GONE, REASON_ENDED, record);
    else
        reply(step, ANSWER_GONE, REASON_UNKNOWN_ID);
}

static void stamp(struct step *step, struct record *record, const struct request *request)
{
    record->last_by = request->id;
    record->verb = (uint8_t)request->verb;
    book_touch(step->book, record);
}

/* The head is asked again when something changed, or after a while where nobody else probes. */
static void reply_wait(struct step *step, const struct record *record, enum reason reason)
{
    struct answer *answer = reply_of(step, ANSWER_WAIT, reason, record);
    tell_wait(step, record);
    ns_t pause = attribution_not_before(step->book);
    ns_t look = step->now + PROBE_ACTIVE_MS * NS_PER_MS;
    answer->retry_ns = pause > step->now && pause < look ? pause : look;
    if (answer->retry_ns > record->deadline_ns)
        answer->retry_ns = record->deadline_ns;
    struct tally tally;
    admission_tally(step->book, step->now, &tally);
    explain(step, answer, &tally, record->place, record->slot);
}

static void reply_unread(struct step *step, const struct record *record)
{
    struct answer *answer = record ? reply_of(step, ANSWER_UNREAD, REASON_NONE, record)
                                   : reply(step, ANSWER_UNREAD, REASON_NONE);
    answer->retry_ns = attribution_not_before(step->book);
    step_want_reading(step);
}

/* ---- acquire
 * -------------------------------------------------------------------------------------- */

static ns_t wait_end(const struct request *request)
{
    uint32_t wait_ms = request->wait_ms < WAIT_MS_MAX ? request->wait_ms : WAIT_MS_MAX;
    return request->asked_ns + (ns_t)wait_ms * NS_PER_MS;
}

static bool ttl_is_valid(uint32_t ttl_ms)
{
    return ttl_ms == 0 || (ttl_ms >= TTL_MS_MIN && ttl_ms <= TTL_MS_MAX);
}

/* How many slots there are has never been told: whatever is decided now would be a guess. */
static bool slots_are_unknown(const struct book *book)
{
    return book->settings.probed && book->settings.slots == 0 && book->sight.slots_last == 0;
}

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

static void reply_wait_over(struct step *step, const struct record *record)
{
    reply_of(step, ANSWER_NO, REASON_WAIT_OVER, record);
    tell_wait(step, record);
}

/* Living leases and intentions are as the book has them. But strangers, orphans and health are as
 * old as the reading, and where nobody reads in the background they would stand in the way for as
 * long as it is trusted, an orphan for ever. */
static bool reading_may_help(const struct step *step, const struct request *request,
                             const struct tally *tally, int32_t ahead, uint32_t units)
{
    const struct book *book = step->book;
    const struct reading *reading = &book->sight.reading;
    bool recent =
        reading->sent_ns != 0 && step->now - reading->answered_ns <= PROBE_ACTIVE_MS * NS_PER_MS;
    if (!book->settings.probed || recent || (request->flags & REQUEST_AS_KNOWN) ||
        step->now < attribution_not_before(book))
        return false;
    return tally->dispatched + ahead + (int32_t)units <= tally->slots;
}

static void wait_again(struct step *step, const struct request *request,
                       const struct record *record)
{
    struct tally tally;
    admission_tally(step->book, step->now, &tally);
    int32_t ahead = admission_ahead(step->book, record->place, record->slot);
    if (reading_may_help(step, request, &tally, ahead, record->units))
        reply_unread(step, record);
    else
        reply_wait(step, record, REASON_AHEAD);
}

static void acquire_again(struct step *step, const struct request *request,
                          const struct record *record)
{
    switch (record->state) {
    case RECORD_HELD:
        reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
        tell_wait(step, record);
        break;
    case RECORD_DISPATCHED: reply_of(step, ANSWER_GRANTED, REASON_NONE, record); break;
    case RECORD_WAITING: wait_again(step, request, record); break;
    default:
        if (record->end == END_GAVE_UP)
            reply_wait_over(step, record);
        else
            reply_gone(step, record);
    }
}

/* Work that runs already is counted even above the slots, which may not be known yet. */
static enum reason acquire_is_impossible(const struct step *step, const struct request *request)
{
    const struct book *book = step->book;
    bool running = request->flags & REQUEST_RUNNING;
    int32_t slots = running ? BOOK_SLOTS_MAX : book_slots(book);
    if (!ttl_is_valid(request->ttl_ms))
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
    stamp(step, record, request);
    return record;
}

static void enqueue(struct step *step, struct record *record, const struct request *request,
                    enum reason reason)
{
    record->deadline_ns = wait_end(request);
    record->waiting_since_ns = step->now;
    book_set_state(step->book, record, RECORD_WAITING);
    step_note(step, NOTE_QUEUED, record, reason, 0);
    reply_wait(step, record, reason);
}

static void acquire_or_wait(struct step *step, const struct request *request)
{
    struct book *book = step->book;
    struct tally tally;
    admission_tally(book, step->now, &tally);
    enum obstacle obstacle = admission_acquire(book, &tally, request->units, request->slot);
    int32_t ahead = admission_ahead(book, UINT64_MAX, request->slot);
    if (obstacle != OBSTACLE_NONE &&
        reading_may_help(step, request, &tally, ahead, request->units)) {
        reply_unread(step, NULL);
        return;
    }
    if (obstacle != OBSTACLE_NONE && (request->wait_ms == 0 || wait_end(request) <= step->now)) {
        struct answer *answer = reply(step, ANSWER_NO, step_reason(obstacle));
        explain(step, answer, &tally, UINT64_MAX, request->slot);
        remember(step, request);
        return;
    }
    if (obstacle != OBSTACLE_NONE && book->count[RECORD_WAITING] >= BOOK_WAITERS_MAX) {
        refuse(step, request, REASON_QUEUE_FULL);
        return;
    }
    struct record *record = write_record(step, request);
    if (!record) {
        refuse(step, request, REASON_BOOK_FULL);
    } else if (obstacle == OBSTACLE_NONE) {
        queue_hold(step, record);
        reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
    } else {
        enqueue(step, record, request, step_reason(obstacle));
    }
}

/* The work runs already, under a lease that ended: dispatched at once, counted even above the
 * slots, born seen; what the former lease left behind is now explained by this one. */
static void acquire_running(struct step *step, const struct request *request)
{
    struct record *record = write_record(step, request);
    if (!record) {
        refuse(step, request, REASON_BOOK_FULL);
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
    reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
}

static void answer_acquire(struct step *step, const struct request *request)
{
    const struct record *earlier = find_acquired_by(step, request);
    if (earlier) {
        acquire_again(step, request, earlier);
        return;
    }
    if (answer_again(step, request))
        return;
    bool running = request->flags & REQUEST_RUNNING;
    if (!running && slots_are_unknown(step->book) && step->book->sight.reading.sent_ns == 0) {
        reply_unread(step, NULL);
        return;
    }
    enum reason reason = acquire_is_impossible(step, request);
    if (reason != REASON_NONE)
        refuse(step, request, reason);
    else if (running)
        acquire_running(step, request);
    else
        acquire_or_wait(step, request);
}

/* ---- verify
 * --------------------------------------------------------------------------------------- */

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
    reply_of(step, ANSWER_GO, go_reason(step->book), record);
    tell_wait(step, record);
}

static void go(struct step *step, struct record *record, const struct request *request)
{
    if (record->state == RECORD_HELD)
        record->waiting_since_ns = 0; /* what it waited to be held is over and told */
    if (request->flags & REQUEST_MAY_IDLE)
        record->flags |= RECORD_MAY_IDLE;
    queue_dispatch(step, record, request->ttl_ms);
    stamp(step, record, request);
    reply_go(step, record);
}

/* Stays a waiter, becomes one, or ends: a no that was decided under the owner's lock leaves
 * nothing behind that could stand in somebody's way. */
static void no_or_wait(struct step *step, struct record *record, const struct request *request,
                       enum reason reason)
{
    struct book *book = step->book;
    bool waits = record->state == RECORD_WAITING;
    bool may_wait = wait_end(request) > step->now && request->wait_ms > 0;
    if (waits) {
        reply_wait(step, record, reason);
        return;
    }
    stamp(step, record, request);
    if (may_wait && book->count[RECORD_WAITING] < BOOK_WAITERS_MAX) {
        record->flags |= RECORD_TO_DISPATCH;
        if (request->flags & REQUEST_MAY_IDLE)
            record->flags |= RECORD_MAY_IDLE;
        if (request->ttl_ms)
            record->ttl_ms = request->ttl_ms;
        enqueue(step, record, request, reason);
        return;
    }
    step_end(step, record, END_REFUSED);
    struct tally tally;
    admission_tally(book, step->now, &tally);
    struct answer *answer =
        reply_of(step, ANSWER_NO, may_wait ? REASON_QUEUE_FULL : reason, record);
    explain(step, answer, &tally, record->place, record->slot);
    remember(step, request);
}

/* The server is left alone for a moment: what the last reading forbids stays forbidden, a go waits
 * for the next one. Without a wait that is a no which decides nothing. */
static void verify_in_pause(struct step *step, struct record *record, const struct request *request,
                            const struct tally *tally)
{
    enum obstacle obstacle =
        admission_verify(step->book, tally, record->place, record->units, record->slot, true);
    bool may_wait =
        record->state == RECORD_WAITING || (request->wait_ms > 0 && wait_end(request) > step->now);
    if (obstacle != OBSTACLE_NONE || may_wait) {
        no_or_wait(step, record, request,
                   obstacle == OBSTACLE_NONE ? REASON_PAUSE : step_reason(obstacle));
        return;
    }
    struct answer *answer = reply_of(step, ANSWER_NO, REASON_PAUSE, record);
    answer->undecided = true;
    answer->retry_ns = attribution_not_before(step->book);
    remember(step, request);
}

static void verify_live(struct step *step, struct record *record, const struct request *request)
{
    struct book *book = step->book;
    if (record->state == RECORD_WAITING && !is_head(book, record)) {
        reply_wait(step, record, REASON_AHEAD);
        return;
    }
    struct tally tally;
    admission_tally(book, step->now, &tally);
    enum obstacle obstacle = OBSTACLE_NONE;
    if (!slots_are_unknown(book))
        obstacle =
            admission_verify(book, &tally, record->place, record->units, record->slot, false);
    int32_t ahead = admission_ahead(book, record->place, record->slot);
    if (obstacle != OBSTACLE_NONE &&
        reading_may_help(step, request, &tally, ahead, record->units)) {
        reply_unread(step, record);
        return;
    }
    if (obstacle == OBSTACLE_NONE && book->settings.probed) {
        ns_t since = request->fresh_ns ? request->fresh_ns : request->asked_ns;
        if (!admission_is_fresh(book, step->now, since)) {
            if (step->now < attribution_not_before(book))
                verify_in_pause(step, record, request, &tally);
            else
                reply_unread(step, record);
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
        reply_wait_over(step, record);
    else if (!answer_again(step, request))
        reply_gone(step, record);
}

static void answer_verify(struct step *step, const struct request *request)
{
    struct record *record = book_find(step->book, request->lease, request->hint);
    if (!ttl_is_valid(request->ttl_ms)) {
        reply(step, ANSWER_NO, REASON_TTL)->undecided = true;
        return;
    }
    if (!record) {
        reply_gone(step, NULL);
        return;
    }
    switch (record->state) {
    case RECORD_DISPATCHED: reply_go(step, record); break;
    case RECORD_HELD:
        if (!answer_again(step, request))
            verify_live(step, record, request);
        break;
    case RECORD_WAITING:
        if (record->flags & RECORD_TO_DISPATCH)
            verify_live(step, record, request);
        else
            reply_wait(step, record, REASON_AHEAD); /* it is not even held yet */
        break;
    default: verify_ended(step, record, request); break;
    }
}

/* ---- renew, release
 * --------------------------------------------------------------------------------- */

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
    stamp(step, record, request);
}

static void answer_renew(struct step *step, const struct request *request)
{
    struct record *record = book_find(step->book, request->lease, request->hint);
    if (!record || !record_is_live(record) || record->state == RECORD_ORPHAN) {
        reply_gone(step, record);
        return;
    }
    if (!ttl_is_valid(request->ttl_ms)) {
        reply(step, ANSWER_NO, REASON_TTL);
        return;
    }
    bool again = request_id_equal(record->last_by, request->id) && record->verb == VERB_RENEW;
    if (!again && answer_again(step, request))
        return;
    if (!again && is_forsaken(step, record)) {
        step_note(step, NOTE_RENEWAL_REFUSED, record, REASON_GHOST, 0);
        reply_of(step, ANSWER_NO, REASON_GHOST, record);
        remember(step, request);
        return;
    }
    if (!again && record->state != RECORD_WAITING)
        extend(step, record, request);
    reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
}

/* The lease of another process of this host, which renews it and believes that it has it. One that
 * outlives whoever took it is anybody's who knows its id. */
static bool is_not_yours(const struct record *record, const struct request *request)
{
    const struct holder *holder = &record->holder, *asker = &request->holder;
    return asker->pid != 0 && holder->local && asker->local && holder->pid != asker->pid &&
           !(record->flags & (RECORD_NO_HOLDER | RECORD_BY_PID)) &&
           !(request->flags & REQUEST_FORCE);
}

static void answer_release(struct step *step, const struct request *request)
{
    struct record *record = book_find(step->book, request->lease, request->hint);
    if (!record) {
        reply_gone(step, NULL);
        return;
    }
    if (record_is_live(record) && is_not_yours(record, request)) {
        reply_of(step, ANSWER_NO, REASON_NOT_YOURS, record);
        return;
    }
    /* An orphan's work is none the less for its lease being given back late. */
    if (record_is_live(record) && record->state != RECORD_ORPHAN) {
        stamp(step, record, request);
        enum record_end end = request->flags & REQUEST_FORCE     ? END_FORCED
                              : request->flags & REQUEST_GIVE_UP ? END_GAVE_UP
                                                                 : END_RELEASED;
        step_end(step, record, end);
    } else if (record->state == RECORD_ORPHAN && (request->flags & REQUEST_FORCE)) {
        stamp(step, record, request);
        step_end(step, record, END_FORCED);
    }
    reply_of(step, ANSWER_GRANTED, REASON_NONE, record);
}

void requests_answer(struct step *step, const struct request *request)
{
    switch (request->verb) {
    case VERB_ACQUIRE: answer_acquire(step, request); break;
    case VERB_VERIFY: answer_verify(step, request); break;
    case VERB_RENEW: answer_renew(step, request); break;
    case VERB_RELEASE: answer_release(step, request); break;
    case VERB_NONE: reply(step, ANSWER_NO, REASON_UNKNOWN_ID); break;
    }
}
