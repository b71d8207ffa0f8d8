#include "broker/attribution.h"

#include <assert.h>
#include <string.h>

#include "broker/admission.h"

/* ---- the oldest that matches ------------------------------------------------------------------
 */

typedef bool (*match_fn)(const struct book *book, const struct record *record, ns_t limit);

static struct record *oldest(struct book *book, match_fn match, ns_t limit)
{
    struct record *found = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if (match(book, record, limit) &&
            (!found || record->dispatched_ns < found->dispatched_ns ||
             (record->dispatched_ns == found->dispatched_ns && record->place < found->place)))
            found = record;
    }
    return found;
}

static bool has_unseen(const struct book *book, const struct record *record, ns_t sent_ns)
{
    (void)book;
    bool ran = record->state == RECORD_DISPATCHED || record->state == RECORD_ORPHAN;
    return ran && record->arrived < record->units && record->dispatched_ns < sent_ns &&
           !(record->flags & RECORD_SETTLED);
}

static bool is_idle(const struct book *book, const struct record *record, ns_t sent_ns)
{
    (void)book;
    (void)sent_ns;
    return record->state == RECORD_DISPATCHED && (record->flags & RECORD_GHOST) != 0;
}

static bool has_orphaned_work(const struct book *book, const struct record *record, ns_t limit)
{
    (void)book;
    (void)limit;
    return record->state == RECORD_ORPHAN && record->arrived > 0;
}

/* ---- work in the reading ----------------------------------------------------------------------
 */

static bool is_running(const struct reading *reading, int32_t task)
{
    for (int32_t i = 0; task >= 0 && i < reading->slot_count; i++)
        if (reading->slots[i].busy && reading->slots[i].task == task)
            return true;
    return false;
}

/* A task stays in its slot, so its name is looked for only there. */
static bool is_arrival(const struct reading *before, const struct reading *reading, int32_t slot)
{
    const struct reading_slot *now = &reading->slots[slot];
    if (!now->busy || now->task < 0)
        return false;
    if (!before->named || slot >= before->slot_count)
        return true;
    return !before->slots[slot].busy || before->slots[slot].task != now->task;
}

static void arrive(struct book *book, struct record *record, int32_t task)
{
    if (record->arrived < record->units)
        record->arrived++;
    if (task >= 0)
        record->task = task;
    record->flags &= (uint8_t) ~(RECORD_GHOST);
    if (record->arrived == record->units)
        record->flags &= (uint8_t)~RECORD_SETTLED;
    book_touch(book, record);
}

/* An arrival that no unseen lease explains is the next request of a holder whose last one ended,
 * where there is such a holder; otherwise it stays a stranger. */
static void attribute_names(struct book *book, const struct reading *before,
                            const struct reading *reading)
{
    for (int32_t slot = 0; slot < reading->slot_count; slot++) {
        if (!is_arrival(before, reading, slot))
            continue;
        struct record *record = oldest(book, has_unseen, reading->sent_ns);
        if (!record)
            record = oldest(book, is_idle, reading->sent_ns);
        if (record)
            arrive(book, record, reading->slots[slot].task);
    }
}

static int32_t seen_units(const struct book *book, ns_t now, int32_t *orphaned)
{
    int32_t seen = 0;
    *orphaned = 0;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_DISPATCHED)
            seen += (int32_t)admission_seen_units(book, record, now);
        else if (record->state == RECORD_ORPHAN)
            *orphaned += record->arrived;
    }
    return seen;
}

static void attribute_counts(struct book *book, const struct reading *reading, ns_t now)
{
    int32_t orphaned, left = reading->in_flight;
    int32_t seen = seen_units(book, now, &orphaned);
    left -= book->sight.strangers < left ? book->sight.strangers : left;
    left -= seen + orphaned < left ? seen + orphaned : left;
    while (left > 0) {
        struct record *record = oldest(book, has_unseen, reading->sent_ns);
        if (!record)
            return;
        arrive(book, record, -1);
        left--;
    }
}

/* ---- what is left over ------------------------------------------------------------------------
 */

/* Past settle time, work that never showed counts as seen: of a living lease it is a ghost from
 * then on, of an ended one it is over. */
static void settle(struct book *book, ns_t now)
{
    for (uint32_t i = book->live_count; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        bool ran = record->state == RECORD_DISPATCHED || record->state == RECORD_ORPHAN;
        if (!ran || record->arrived == record->units || (record->flags & RECORD_SETTLED) ||
            admission_seen_units(book, record, now) < record->units)
            continue;
        record->flags |= RECORD_SETTLED;
        book_touch(book, record);
        if (record->state == RECORD_ORPHAN && record->arrived == 0)
            book_end(book, record, END_EXPIRED, now);
    }
}

static void drop_orphan_unit(struct book *book, struct record *record, ns_t now)
{
    record->arrived--;
    record->units = record->units > 1 ? (uint16_t)(record->units - 1) : 1;
    book_touch(book, record);
    if (record->arrived == 0 && admission_seen_units(book, record, now) == record->units)
        book_end(book, record, END_EXPIRED, now);
    else if (record->arrived == 0 && record->units == 1)
        book_end(book, record, END_EXPIRED, now);
}

/* An orphan keeps its name until the reading drops: its own task where that is named, else until
 * the work in flight is no more than what living leases explain. */
static void drop_orphans(struct book *book, const struct reading *reading, ns_t now)
{
    if (reading->named) {
        for (uint32_t i = book->live_count; i-- > 0;) {
            struct record *record = &book->records[book->live[i]];
            if (has_orphaned_work(book, record, 0) && record->units == 1 && record->task >= 0 &&
                !is_running(reading, record->task))
                drop_orphan_unit(book, record, now);
        }
    }
    int32_t orphaned;
    int32_t seen = seen_units(book, now, &orphaned);
    int32_t room = reading->in_flight > seen ? reading->in_flight - seen : 0;
    while (orphaned > room) {
        struct record *record = oldest(book, has_orphaned_work, 0);
        assert(record);
        if (reading->named && record->units == 1 && is_running(reading, record->task))
            return;
        drop_orphan_unit(book, record, now);
        orphaned--;
    }
}

/* The likeliest ghosts first: those that were, those that never showed, those whose task ended. */
static int ghost_rank(const struct reading *reading, const struct record *record)
{
    if (reading->named && record->units == 1 && is_running(reading, record->task))
        return 0;
    if (record->flags & RECORD_GHOST)
        return 4;
    if (record->flags & RECORD_SETTLED)
        return 3;
    return reading->named ? 2 : 1;
}

static struct record *next_ghost(struct book *book, const struct reading *reading, ns_t now,
                                 int32_t most, const uint8_t *chosen)
{
    struct record *found = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if (record->state != RECORD_DISPATCHED || chosen[book->live[i]] ||
            admission_seen_units(book, record, now) < record->units || record->units > most)
            continue;
        int rank = ghost_rank(reading, record), best = found ? ghost_rank(reading, found) : 0;
        if (rank > best ||
            (rank == best && rank > 0 && found && record->dispatched_ns < found->dispatched_ns))
            found = record;
    }
    return found;
}

static void mark_ghosts(struct book *book, const struct reading *reading, ns_t now)
{
    uint8_t chosen[BOOK_CELLS] = {0};
    int32_t orphaned;
    int32_t missing = seen_units(book, now, &orphaned) + orphaned - reading->in_flight;
    struct record *record;
    while (missing > 0 && (record = next_ghost(book, reading, now, missing, chosen))) {
        chosen[book_index(book, record)] = 1;
        missing -= record->units;
        if (record->flags & RECORD_GHOST)
            continue;
        record->flags |= RECORD_GHOST;
        record->idle_mark_ns = book_healthy_ns(book, now);
        book_touch(book, record);
    }
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *other = &book->records[book->live[i]];
        if ((other->flags & RECORD_GHOST) && !chosen[book->live[i]]) {
            other->flags &= (uint8_t)~RECORD_GHOST;
            book_touch(book, other);
        }
    }
}

/* ---- taking a reading in ----------------------------------------------------------------------
 */

/* A server that is gone or starts afresh has no work in it. */
static void clear_work(struct book *book, ns_t now)
{
    for (uint32_t i = book->live_count; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_ORPHAN)
            book_end(book, record, END_EXPIRED, now);
    }
    book->sight.strangers = 0;
    book->sight.strangers_since_ns = 0;
}

/* While there is work that no living lease explains, the server is left alone now and then: it
 * notices that a client has gone only in a second in which nobody asks. */
static void plan_pause(struct book *book, const struct reading *reading, int32_t unexplained)
{
    struct sight *sight = &book->sight;
    if (unexplained == 0)
        return;
    bool full = reading->in_flight >= book_slots(book);
    bool due = reading->answered_ns - sight->pause_until_ns >= PAUSE_EVERY_MS * NS_PER_MS;
    if (full || due)
        sight->pause_until_ns = reading->answered_ns + PAUSE_MS * NS_PER_MS;
}

static void keep_clock(struct sight *sight, const struct reading *reading)
{
    ns_t since = sight->healthy_since_ns;
    if (since != 0 && reading->answered_ns > since)
        sight->healthy_ns += reading->answered_ns - since;
    sight->healthy_since_ns = reading->health == HEALTH_OK ? reading->answered_ns : 0;
}

/* The slots of the last reading that could be counted stay, so that the next such one can tell
 * which names are new. */
static void keep_reading(struct sight *sight, const struct reading *reading)
{
    if (reading_counts(reading)) {
        sight->reading = *reading;
    } else {
        memcpy(&sight->reading, reading, offsetof(struct reading, slots));
        /* named and slot_count describe slots[], which is the earlier one's */
    }
    if (reading->slots_total > 0)
        sight->slots_last = reading->slots_total;
}

static void count_strangers(struct book *book, const struct reading *reading, ns_t now)
{
    struct sight *sight = &book->sight;
    int32_t orphaned;
    int32_t seen = seen_units(book, now, &orphaned);
    int32_t strangers = reading->in_flight - seen - orphaned;
    sight->strangers = strangers > 0 ? strangers : 0;
    if (sight->strangers == 0)
        sight->strangers_since_ns = 0;
    else if (sight->strangers_since_ns == 0)
        sight->strangers_since_ns = now;
    plan_pause(book, reading, sight->strangers + orphaned);
}

bool attribution_take(struct book *book, const struct reading *reading, ns_t now)
{
    struct sight *sight = &book->sight;
    if (reading->sent_ns <= 0 || reading->answered_ns < reading->sent_ns ||
        reading->answered_ns <= sight->reading.answered_ns)
        return false;
    struct reading before;
    before.named = sight->reading.named;
    before.slot_count = sight->reading.slot_count;
    memcpy(before.slots, sight->reading.slots, sizeof before.slots);

    book->sight_dirty = true;
    keep_clock(sight, reading);
    keep_reading(sight, reading);
    if (reading_counts(reading)) {
        if (reading->named)
            attribute_names(book, &before, reading);
        else
            attribute_counts(book, reading, now);
        settle(book, now);
        drop_orphans(book, reading, now);
        mark_ghosts(book, reading, now);
        count_strangers(book, reading, now);
    } else {
        sight->reading.named = before.named;
        sight->reading.slot_count = before.slot_count;
        if (reading->health == HEALTH_DOWN || reading->health == HEALTH_LOADING)
            clear_work(book, now);
    }
    return true;
}

ns_t attribution_not_before(const struct book *book)
{
    return book->sight.pause_until_ns;
}

ns_t attribution_next_due(const struct book *book, bool watched)
{
    bool active = watched || book->live_count > 0 || book->sight.strangers > 0;
    ns_t interval = (active ? PROBE_ACTIVE_MS : PROBE_IDLE_MS) * NS_PER_MS;
    ns_t due = book->sight.reading.sent_ns ? book->sight.reading.answered_ns + interval : 0;
    return due > book->sight.pause_until_ns ? due : book->sight.pause_until_ns;
}
