/* What other hosts say: their words brought into bounds, and what becomes of the records. */
#include "broker/mirror.h"

#include <string.h>

#include "broker/attribution.h"
#include "broker/step.h"

#define AGE_MS_MAX    (INT64_C(366) * 86400000)
#define JITTER_NS     (100 * NS_PER_MS) /* of the way of a state: no reason to write a record again */
#define STRANGERS_MAX 1000000

/* ---- words in bounds ------------------------------------------------------------------------- */

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* So long ago; never before this host's clock began. */
static ns_t past(ns_t now, int64_t ago_ms)
{
    ns_t then = now - within(ago_ms, 0, AGE_MS_MAX) * NS_PER_MS;
    return then < 1 ? 1 : then;
}

/* A claim that stays a while is told apart by this; 0 is none. */
static uint32_t second_of(ns_t now)
{
    return (uint32_t)within(now / NS_PER_SEC, 1, UINT32_MAX);
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

/* What a lease is by this word, as a record of ours; its state may be GONE. False: it is none. */
static bool draft_of(const struct step *step, const struct heard_lease *lease, uint64_t epoch,
                     struct record *draft)
{
    int state = (int)lease->state;
    if (lease->id.counter == 0 || state < RECORD_HELD || state > RECORD_GONE)
        return false;
    memset(draft, 0, sizeof *draft);
    draft->id = lease->id;
    draft->state = (uint8_t)state;
    draft->units = (uint16_t)within(lease->units, 1, BOOK_SLOTS_MAX);
    draft->arrived = (uint16_t)within(lease->arrived, 0, draft->units);
    bool pins = draft->units == 1 && lease->slot >= 0 && lease->slot < BOOK_SLOTS_MAX;
    draft->slot = pins ? (int16_t)lease->slot : -1;
    draft->task = -1;
    draft->ttl_ms = step_ttl_is_valid(lease->ttl_ms) ? lease->ttl_ms : 0;
    draft->acquired_ns = past(step->now, lease->age_ms);
    if (state != RECORD_HELD) {
        draft->dispatched_ns = past(step->now, lease->dispatched_ms);
        if (draft->acquired_ns > draft->dispatched_ns)
            draft->acquired_ns = draft->dispatched_ns;
    }
    ns_t left_ns = within(lease->left_ms, 0, TTL_MS_MAX) * NS_PER_MS;
    draft->deadline_ns = step->now + left_ns;
    draft->settle_mark_ns = book_healthy_ns(step->book, step->now);
    if (state == RECORD_DISPATCHED && lease->idle_ms >= 0) {
        draft->flags |= RECORD_GHOST;
        draft->idle_mark_ns =
            draft->settle_mark_ns - within(lease->idle_ms, 0, AGE_MS_MAX) * NS_PER_MS;
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
    draft->heard_s = second_of(step->now);
    copy_holder(&draft->holder, &lease->holder);
    return true;
}

/* ---- whose book it is ------------------------------------------------------------------------ */

uint64_t mirror_epoch(const struct book *book)
{
    return book_is_copy(book) ? book->sight.heard_epoch : book->head.epoch;
}

/* Versions count within an epoch: what was named under another one is older than all of this. */
static void follow_epoch(struct book *book, uint64_t epoch)
{
    uint64_t least = book->token_max >> TOKEN_BITS;
    book->sight.heard_epoch = epoch;
    book->sight.heard_version = 0;
    book->head.epoch = epoch > least ? epoch : least;
    book->sight_dirty = book->head_dirty = true;
    for (uint32_t i = 0; i < book->used; i++) {
        struct record *record = &book->records[i];
        if (record->named_version == 0)
            continue;
        record->named_version = 0;
        book_touch(book, record);
    }
}

/* What was granted here to others goes with the first state of the new owner, unless it is in it. */
static void become_copy(struct book *book, uint32_t second)
{
    book->sight.flags |= SIGHT_COPY;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if (record->holder.local)
            continue;
        record->heard_s = second;
        record->flags |= RECORD_NAMED;
        book_touch(book, record);
    }
    follow_epoch(book, 0);
}

void mirror_begin(struct book *book)
{
    if (!book_is_copy(book))
        become_copy(book, 1);
}

/* The epoch of a word from the owner: false where it is older than what was heard, or no epoch. */
static bool take_epoch(struct step *step, uint64_t epoch)
{
    struct book *book = step->book;
    if (epoch == 0 || epoch > EPOCH_HEARD_MAX || epoch < mirror_epoch(book))
        return false;
    if (!book_is_copy(book)) {
        if (epoch == book->head.epoch)
            return false;
        become_copy(book, second_of(step->now));
    }
    if (epoch > book->sight.heard_epoch)
        follow_epoch(book, epoch);
    return true;
}

static struct record *first_without_place(struct book *book)
{
    struct record *first = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if (record->place >= PLACE_BY_ID && (!first || record->place < first->place))
            first = record;
    }
    return first;
}

static void forget_owner(struct book *book)
{
    struct sight *sight = &book->sight;
    sight->flags = 0;
    sight->waiting = 0;
    sight->heard_epoch = sight->heard_version = 0;
    sight->heard_ns = 0;
    book->sight_dirty = true;
    for (uint32_t i = 0; i < book->used; i++) {
        struct record *record = &book->records[i];
        if (record->state == RECORD_FREE)
            continue;
        record->flags &= (uint8_t)~RECORD_NAMED;
        record->named_version = 0;
        record->heard_s = record->end_heard = 0;
        book_touch(book, record);
    }
}

void mirror_becomes_owner(struct book *book, uint64_t epoch)
{
    if (!book_is_copy(book))
        return;
    forget_owner(book);
    uint64_t least = book->head.epoch + 1;
    book_raise_epoch(book, epoch > least ? epoch : least);
    struct record *record;
    while ((record = first_without_place(book))) {
        bool granted = record->state == RECORD_HELD || record->state == RECORD_DISPATCHED;
        record->place = book_next_place(book, record);
        if (granted && record->token == 0)
            record->token = book_next_token(book, record);
    }
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
static void become(struct step *step, struct record *record, struct record *after)
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
static struct record *take_cell(struct step *step, const struct record *draft)
{
    struct record *record = book_take(step->book, step->now);
    if (!record)
        return NULL;
    struct record after = *draft;
    after.counter_max = record->counter_max;
    after.place_max = record->place_max;
    after.token_max = record->token_max;
    if (draft->state != RECORD_ORPHAN) {
        after.end = END_NONE;
        after.ended_ns = 0;
    }
    become(step, record, &after);
    return record;
}

static void end_as_told(struct step *step, struct record *record, enum record_end end,
                        enum record_state state, uint64_t version)
{
    struct record after = *record;
    if (record->state != RECORD_ORPHAN) {
        after.end = (uint8_t)end;
        after.ended_ns = step->now;
        after.end_heard = 1;
    }
    after.state = (uint8_t)state;
    after.named_version = version;
    after.flags &= (uint8_t)~RECORD_CALLED;
    become(step, record, &after);
}

static bool lives(const struct record *record)
{
    return record_is_live(record) && record->state != RECORD_ORPHAN;
}

/* What the owner says of a lease whatever else is known of it. */
static void take_facts(struct record *after, const struct record *draft, uint64_t version)
{
    const uint8_t facts = RECORD_GHOST | RECORD_MAY_IDLE;
    after->units = draft->units;
    after->arrived = draft->arrived;
    after->slot = draft->slot;
    after->place = draft->place;
    after->token = draft->token ? draft->token : after->token;
    after->flags &= (uint8_t) ~(facts | RECORD_SETTLED);
    after->flags |= (draft->flags & (facts | RECORD_NO_HOLDER | RECORD_BY_PID)) | RECORD_NAMED;
    if (!(after->flags & RECORD_GHOST) || after->idle_mark_ns == 0)
        after->idle_mark_ns = draft->idle_mark_ns;
    after->named_version = version;
}

static void go_on(struct record *after, const struct record *draft)
{
    after->state = draft->state;
    after->end = END_NONE;
    after->ended_ns = 0;
    after->end_heard = 0;
    after->waiting_since_ns = 0;
    after->flags &= (uint8_t) ~(RECORD_TO_DISPATCH | RECORD_CALLED);
    if (draft->state == RECORD_DISPATCHED && after->dispatched_ns == 0) {
        after->dispatched_ns = draft->dispatched_ns;
        after->settle_mark_ns = draft->settle_mark_ns;
        if (after->acquired_ns > after->dispatched_ns)
            after->dispatched_ns = after->acquired_ns;
    }
}

/* ---- a state --------------------------------------------------------------------------------- */

/* A state may bring thousands: found by id in a table that stands for this step alone. A cell that
 * was taken again stands in it under both ids, and is asked which it has. */
#define INDEX_SIZE 8192
_Static_assert(INDEX_SIZE > BOOK_CELLS + BOOK_LEASES_MAX, "there is always a free entry");

struct index {
    uint16_t cell_plus_1[INDEX_SIZE];
};

static uint32_t index_start(struct lease_id id)
{
    return (uint32_t)(book_place_by_id(id) % INDEX_SIZE);
}

static void index_add(struct index *index, struct lease_id id, uint32_t cell)
{
    uint32_t at = index_start(id);
    while (index->cell_plus_1[at])
        at = (at + 1) % INDEX_SIZE;
    index->cell_plus_1[at] = (uint16_t)(cell + 1);
}

static void index_fill(struct index *index, const struct book *book)
{
    memset(index, 0, sizeof *index);
    for (uint32_t i = 0; i < book->used; i++)
        if (book->records[i].id.counter)
            index_add(index, book->records[i].id, i);
}

static struct record *index_find(const struct index *index, struct book *book, struct lease_id id)
{
    for (uint32_t at = index_start(id); index->cell_plus_1[at]; at = (at + 1) % INDEX_SIZE) {
        struct record *record = &book->records[index->cell_plus_1[at] - 1];
        if (lease_id_equal(record->id, id))
            return record;
    }
    return NULL;
}

/* The end of a lease of another host: never before the owner's, and not written again for the
 * different ways that two states took. */
static ns_t heard_end(const struct record *record, const struct record *draft)
{
    bool same = record->state == draft->state && record->deadline_ns > draft->deadline_ns &&
                record->deadline_ns - draft->deadline_ns < JITTER_NS;
    return same ? record->deadline_ns : draft->deadline_ns;
}

/* A lease of another host is what the owner says, but for one that was dispatched without it. */
static void state_of_other(struct step *step, struct record *record, const struct record *draft,
                           uint64_t version)
{
    struct record after = *record;
    bool ran_ahead = record->state == RECORD_DISPATCHED && draft->state == RECORD_HELD;
    take_facts(&after, draft, version);
    after.ttl_ms = draft->ttl_ms;
    after.holder = draft->holder;
    if (ran_ahead) {
        after.flags &= (uint8_t)~RECORD_NAMED;
    } else if (draft->state == RECORD_ORPHAN) {
        after.state = RECORD_ORPHAN;
        go_on(&after, draft);
        after.end = record->end ? record->end : draft->end;
        after.ended_ns = record->ended_ns ? record->ended_ns : draft->ended_ns;
        if (after.dispatched_ns == 0)
            after.dispatched_ns =
                draft->dispatched_ns > after.acquired_ns ? draft->dispatched_ns : after.acquired_ns;
    } else {
        after.deadline_ns = heard_end(record, draft);
        go_on(&after, draft);
    }
    become(step, record, &after);
}

/* A lease of ours is never extended here, since this word took its way after the owner's clock, nor
 * does one that ended live again. That its work goes on, the owner may still say. */
static void state_of_ours(struct step *step, struct record *record, const struct record *draft,
                          uint64_t version)
{
    struct record after = *record;
    if (draft->state == RECORD_ORPHAN) {
        if (lives(record)) {
            end_as_told(step, record, (enum record_end)draft->end, RECORD_ORPHAN, version);
            after = *record;
        }
        take_facts(&after, draft, version);
        after.state = RECORD_ORPHAN;
        if (after.dispatched_ns == 0)
            after.dispatched_ns =
                after.acquired_ns > draft->dispatched_ns ? after.acquired_ns : draft->dispatched_ns;
        become(step, record, &after);
        return;
    }
    if (!lives(record))
        return;
    bool ran_ahead = record->state == RECORD_DISPATCHED && draft->state == RECORD_HELD;
    if (ran_ahead || record->state == RECORD_WAITING)
        return;
    take_facts(&after, draft, version);
    if (draft->deadline_ns < after.deadline_ns)
        after.deadline_ns = draft->deadline_ns;
    go_on(&after, draft);
    become(step, record, &after);
}

static void take_leases(struct step *step, const struct heard_state *state, uint8_t *told)
{
    struct book *book = step->book;
    struct index index;
    index_fill(&index, book);
    uint32_t count = state->lease_count < BOOK_LEASES_MAX ? state->lease_count : BOOK_LEASES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        struct record draft;
        if (!draft_of(step, &state->leases[i], state->epoch, &draft) || draft.state == RECORD_GONE)
            continue;
        struct record *record = index_find(&index, book, draft.id);
        if (record && told[book_index(book, record)])
            continue;
        if (!record) {
            draft.flags |= RECORD_NAMED;
            draft.named_version = state->version;
            record = take_cell(step, &draft);
            if (!record)
                return;
            index_add(&index, draft.id, book_index(book, record));
        } else if (record->named_version <= state->version) {
            if (record->heard_s)
                state_of_other(step, record, &draft, state->version);
            else
                state_of_ours(step, record, &draft, state->version);
        }
        told[book_index(book, record)] = 1;
    }
}

/* Whatever the owner had named and does not name now has ended; whether it was given back or ran out,
 * nobody says. What others claimed stays for as long as the owner may need to hear of it. */
static void end_what_is_missing(struct step *step, uint64_t version, const uint8_t *told)
{
    struct book *book = step->book;
    for (uint32_t i = book->live_count; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        if (told[book->live[i]] || record->named_version > version)
            continue;
        bool named = record->flags & RECORD_NAMED;
        bool old_claim = record->heard_s && second_of(step->now) >= record->heard_s &&
                         second_of(step->now) - record->heard_s >= CLAIM_STAYS_S;
        if (named || old_claim)
            end_as_told(step, record, END_RELEASED, RECORD_GONE, version);
    }
}

/* A reading that this host made itself may be newer. */
static void take_told_reading(struct step *step, const struct heard_state *state)
{
    struct sight *sight = &step->book->sight;
    struct reading reading;
    memcpy(&reading, &state->reading, offsetof(struct reading, slots));
    reading.named = reading.slot_count = 0;
    reading_sanitize(&reading);
    if (reading.answered_ns > step->now)
        reading.answered_ns = step->now;
    bool ours_is_newer = !(sight->flags & SIGHT_TOLD) && sight->reading.sent_ns != 0 &&
                         sight->reading.answered_ns >= reading.answered_ns;
    if (ours_is_newer)
        return;
    if (reading.slots_total > 0)
        sight->slots_last = reading.slots_total;
    if (reading.sent_ns <= 0 || reading.sent_ns > reading.answered_ns)
        return;
    int32_t strangers = sight->strangers, health = sight->reading.health;
    int32_t told = (int32_t)within(state->strangers, 0, STRANGERS_MAX);
    ns_t since = told > 0 ? past(step->now, state->strangers_ms) : 0;
    attribution_take_told(step->book, &reading, told, since);
    step_note_sight(step, strangers, health);
}

void mirror_take_state(struct step *step, const struct heard_state *state)
{
    struct book *book = step->book;
    struct sight *sight = &book->sight;
    if (!take_epoch(step, state->epoch) || state->version <= sight->heard_version)
        return;
    uint8_t told[BOOK_CELLS] = {0};
    sight->heard_version = state->version;
    sight->heard_ns = step->now;
    sight->waiting = (int32_t)within(state->waiting, 0, WAITING_UNITS_MAX);
    sight->flags &= ~(uint32_t)SIGHT_STATIC;
    if (state->is_static)
        sight->flags |= SIGHT_STATIC;
    book->sight_dirty = true;
    take_told_reading(step, state);
    take_leases(step, state, told);
    end_what_is_missing(step, state->version, told);
}

/* ---- an answer ------------------------------------------------------------------------------- */

/* What ended here by the clock or by the owner's own word may live on by a newer one; what its holder
 * gave back, or died with, is over. */
static bool may_live(const struct record *record, uint64_t version)
{
    if (lives(record))
        return true;
    return record->end_heard ? version > record->named_version : record->end == END_EXPIRED;
}

static void named_lives(struct step *step, struct record *record, const struct record *draft,
                        uint64_t version)
{
    struct record after = *record;
    bool ran_ahead = record->state == RECORD_DISPATCHED && draft->state == RECORD_HELD;
    if (!may_live(record, version))
        return;
    take_facts(&after, draft, version);
    after.heard_s = 0;
    after.ttl_ms = draft->ttl_ms ? draft->ttl_ms : after.ttl_ms;
    if (draft->holder.local)
        after.holder = draft->holder;
    if (ran_ahead) {
        after.flags &= (uint8_t)~RECORD_NAMED;
    } else {
        after.deadline_ns = draft->deadline_ns;
        go_on(&after, draft);
    }
    become(step, record, &after);
}

void mirror_take_named(struct step *step, const struct heard_named *named)
{
    struct book *book = step->book;
    struct record draft;
    uint64_t epoch = named->epoch ? named->epoch : mirror_epoch(book);
    if (!take_epoch(step, epoch) || !draft_of(step, &named->lease, epoch, &draft))
        return;
    uint64_t heard = book->sight.heard_version;
    uint64_t version = named->version ? named->version : heard;
    struct record *record = book_find(book, draft.id, UINT32_MAX);
    bool ended = draft.state == RECORD_GONE || draft.state == RECORD_ORPHAN;
    if (record && version < record->named_version)
        return;
    if (record && !ended) {
        named_lives(step, record, &draft, version);
    } else if (record && lives(record)) {
        bool works = record->state == RECORD_DISPATCHED &&
                     (draft.end == END_EXPIRED || draft.end == END_LAPSED);
        end_as_told(step, record, (enum record_end)draft.end, works ? RECORD_ORPHAN : RECORD_GONE,
                    version);
    } else if (record) {
        struct record after = *record;
        after.named_version = version;
        become(step, record, &after);
    } else if (!ended && (version > heard || !named->version)) {
        draft.flags |= RECORD_NAMED;
        draft.named_version = version;
        draft.heard_s = 0;
        take_cell(step, &draft);
    }
}

/* ---- a claim --------------------------------------------------------------------------------- */

static bool has_room(const struct book *book)
{
    uint32_t leases =
        book->count[RECORD_HELD] + book->count[RECORD_DISPATCHED] + book->count[RECORD_ORPHAN];
    uint32_t most = 2 * (uint32_t)book_slots(book);
    return leases < (most > BOOK_LEASES_MIN ? most : BOOK_LEASES_MIN);
}

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
        take_cell(step, draft);
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
    become(step, record, &after);
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
    } else if (book_is_copy(book) && !(record->flags & RECORD_NAMED) &&
               record->state == draft->state && draft->deadline_ns > record->deadline_ns) {
        bool held = record->state == RECORD_HELD;
        bool late = held && draft->deadline_ns > record->hold_end_ns;
        after.deadline_ns = late ? record->hold_end_ns : draft->deadline_ns;
        after.heard_s = draft->heard_s;
        become(step, record, &after);
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
    if (!draft_of(step, &claim->lease, 0, &draft) || draft.state > RECORD_DISPATCHED)
        return;
    struct record *record = book_find(book, draft.id, UINT32_MAX);
    if (!record) {
        bool old = claim->epoch != 0 && claim->epoch < mirror_epoch(book);
        if (claim->withdrawn)
            book_forget(book, draft.id, step->now); /* though the claim itself may yet come */
        else if (!old && !book_is_dead(book, draft.id) && has_room(book) &&
                 (step_slots_are_unknown(book) || draft.units <= book_slots(book)))
            claim_anew(step, &draft);
        return;
    }
    bool same_host = memcmp(record->holder.host, draft.holder.host, NAME_SIZE) == 0;
    if (!lives(record) || is_ours(book, record) || !same_host)
        return;
    if (claim->withdrawn) {
        if (record->state == RECORD_WAITING)
            queue_call(step, record);
        step_end(step, record, END_RELEASED);
    } else {
        claim_again(step, record, &draft);
    }
}
