/* The copy of a book: whose it is, and what the owner says of it, in states and in answers. */
#include "broker/mirror.h"

#include <string.h>

#include "broker/attribution.h"
#include "broker/heard.h"
#include "broker/planted.h"
#include "broker/step.h"

#define JITTER_NS     (100 * NS_PER_MS) /* of the way of a state: no reason to write a record again */
#define STRANGERS_MAX 1000000

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
        become_copy(book, heard_second(step->now));
    }
    if (epoch > book->sight.heard_epoch)
        follow_epoch(book, epoch);
    return true;
}

/* A lease that was granted while this was a copy: also one that had its place before, as the owner's. */
static bool lacks_token(const struct record *record)
{
    return record->token == 0 &&
           (record->state == RECORD_HELD || record->state == RECORD_DISPATCHED);
}

static struct record *first_that_lacks(struct book *book)
{
    struct record *first = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if ((record->place >= PLACE_BY_ID || lacks_token(record)) &&
            (!first || record->place < first->place))
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
    while ((record = first_that_lacks(book))) {
        if (record->place >= PLACE_BY_ID)
            record->place = book_next_place(book, record);
        if (lacks_token(record))
            record->token = book_next_token(book, record);
        book_touch(book, record);
    }
}

/* ---- records --------------------------------------------------------------------------------- */

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
    heard_become(step, record, &after);
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
    bool ran_ahead = record->state == RECORD_DISPATCHED && draft->state == RECORD_HELD &&
                     record->deadline_ns > step->now;
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
    heard_become(step, record, &after);
}

/* A lease of ours is never extended here, since this word took its way after the owner's clock, nor
 * does one that ended live again. That its work goes on, the owner may still say. */
static void state_of_ours(struct step *step, struct record *record, const struct record *draft,
                          uint64_t version)
{
    struct record after = *record;
    if (draft->state == RECORD_ORPHAN) {
        if (heard_lives(record)) {
            end_as_told(step, record, (enum record_end)draft->end, RECORD_ORPHAN, version);
            after = *record;
        }
        take_facts(&after, draft, version);
        after.state = RECORD_ORPHAN;
        if (after.dispatched_ns == 0)
            after.dispatched_ns =
                after.acquired_ns > draft->dispatched_ns ? after.acquired_ns : draft->dispatched_ns;
        heard_become(step, record, &after);
        return;
    }
    if (!heard_lives(record))
        return;
    bool ran_ahead = record->state == RECORD_DISPATCHED && draft->state == RECORD_HELD;
    if (ran_ahead || record->state == RECORD_WAITING)
        return;
    take_facts(&after, draft, version);
    if (draft->deadline_ns < after.deadline_ns || PLANTED(PLANT_STATE_EXTENDS))
        after.deadline_ns = draft->deadline_ns;
    go_on(&after, draft);
    heard_become(step, record, &after);
}

static void take_leases(struct step *step, const struct heard_state *state, uint8_t *told)
{
    struct book *book = step->book;
    struct index index;
    index_fill(&index, book);
    uint32_t count = state->lease_count < BOOK_LEASES_MAX ? state->lease_count : BOOK_LEASES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        struct record draft;
        if (!heard_draft(step, &state->leases[i], state->epoch, &draft) ||
            draft.state == RECORD_GONE)
            continue;
        struct record *record = index_find(&index, book, draft.id);
        if (record && told[book_index(book, record)])
            continue;
        if (!record) {
            draft.flags |= RECORD_NAMED;
            draft.named_version = state->version;
            record = heard_take_cell(step, &draft);
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
        bool old_claim = record->heard_s && heard_second(step->now) >= record->heard_s &&
                         heard_second(step->now) - record->heard_s >= CLAIM_STAYS_S;
        if ((named && !PLANTED(PLANT_MISSING_STAYS)) || old_claim)
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
    int32_t told = (int32_t)heard_within(state->strangers, 0, STRANGERS_MAX);
    ns_t since = told > 0 ? heard_past(step->now, state->strangers_ms) : 0;
    attribution_take_told(step->book, &reading, told, since);
    step_note_sight(step, strangers, health);
}

void mirror_take_state(struct step *step, const struct heard_state *state)
{
    struct book *book = step->book;
    struct sight *sight = &book->sight;
    bool was_copy = book_is_copy(book);
    if (!take_epoch(step, state->epoch) ||
        (state->version <= sight->heard_version && !PLANTED(PLANT_OLD_STATE_TAKEN)))
        return;
    book->sight_last = was_copy; /* killed in between, the same state is taken once more */
    uint8_t told[BOOK_CELLS] = {0};
    sight->heard_version = state->version;
    sight->heard_ns = step->now;
    sight->waiting = (int32_t)heard_within(state->waiting, 0, WAITING_UNITS_MAX);
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
    if (heard_lives(record))
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
    heard_become(step, record, &after);
}

void mirror_take_named(struct step *step, const struct heard_named *named)
{
    struct book *book = step->book;
    struct record draft;
    uint64_t epoch = named->epoch ? named->epoch : mirror_epoch(book);
    if (!take_epoch(step, epoch) || !heard_draft(step, &named->lease, epoch, &draft))
        return;
    uint64_t heard = book->sight.heard_version;
    uint64_t version = named->version ? named->version : heard;
    struct record *record = book_find(book, draft.id, UINT32_MAX);
    bool ended = draft.state == RECORD_GONE || draft.state == RECORD_ORPHAN;
    if (record && version < record->named_version)
        return;
    if (record && !ended) {
        named_lives(step, record, &draft, version);
    } else if (record && heard_lives(record)) {
        bool works = record->state == RECORD_DISPATCHED &&
                     (draft.end == END_EXPIRED || draft.end == END_LAPSED);
        end_as_told(step, record, (enum record_end)draft.end, works ? RECORD_ORPHAN : RECORD_GONE,
                    version);
    } else if (record) {
        struct record after = *record;
        after.named_version = version;
        heard_become(step, record, &after);
    } else if (!ended && (version > heard || !named->version)) {
        draft.flags |= RECORD_NAMED;
        draft.named_version = version;
        draft.heard_s = 0;
        heard_take_cell(step, &draft);
    }
}
