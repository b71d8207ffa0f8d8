#include "broker/attribution.h"

#include <assert.h>
#include <string.h>

#include "broker/admission.h"

/* ---- the oldest that matches ----------------------------------------------------------------- */

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

/* What the reading calls by name is there, whatever the numbers say. */
static bool is_at_work(const struct book *book, const struct record *record)
{
    const struct reading *reading = &book->sight.reading;
    return reading->named && record->units == 1 && admission_shows_task(reading, record->task);
}

/* Its last request is over and its next one may be this. */
static bool is_idle(const struct book *book, const struct record *record, ns_t limit)
{
    (void)limit;
    bool ended = record->units == 1 && record->task >= 0 && !is_at_work(book, record);
    return record->state == RECORD_DISPATCHED && (ended || (record->flags & RECORD_GHOST));
}

static bool has_orphaned_work(const struct book *book, const struct record *record, ns_t limit)
{
    (void)limit;
    return record->state == RECORD_ORPHAN && record->arrived > 0 && !is_at_work(book, record);
}

/* ---- work in the reading --------------------------------------------------------------------- */

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

/* A lease that lives, or its orphan, goes by this task's name. */
static bool is_carried(const struct book *book, int32_t task)
{
    for (uint32_t i = 0; i < book->live_count; i++)
        if (book->records[book->live[i]].task == task)
            return true;
    return false;
}

/* A lease given back while the reading was made, of which none has shown its work: this may be it. */
static struct record *given_back_unseen(struct book *book, const struct reading *reading)
{
    for (uint32_t k = 0; k < book->ended_count; k++) {
        struct record *record = &book->records[book->ended[(book->ended_first + k) % BOOK_CELLS]];
        if (record->state == RECORD_GONE && record->end == END_RELEASED &&
            record->ended_ns > reading->sent_ns && record->dispatched_ns != 0 &&
            record->arrived < record->units && !(record->flags & RECORD_SETTLED))
            return record;
    }
    return NULL;
}

/* The lease by whose name this task went, if it was given back before the question left. */
static const struct record *former_owner(const struct book *book, int32_t task, ns_t sent_ns)
{
    for (uint32_t k = 0; k < book->ended_count; k++) {
        const struct record *record =
            &book->records[book->ended[(book->ended_first + k) % BOOK_CELLS]];
        if (record->state == RECORD_GONE && record->end == END_RELEASED && record->task == task &&
            record->ended_ns < sent_ns)
            return record;
    }
    return NULL;
}

/* The oldest lease that was dispatched before limit and has work that no reading has shown. */
static struct record *oldest_unseen(struct book *book, const struct reading *reading, ns_t limit)
{
    struct record *ended = given_back_unseen(book, reading);
    struct record *record = oldest(book, has_unseen, limit);
    return ended && (!record || ended->dispatched_ns < record->dispatched_ns) ? ended : record;
}

/* It has no work by its name in this reading, and was dispatched before limit. */
static bool lacks_work(const struct book *book, const struct record *record, ns_t limit)
{
    return has_unseen(book, record, limit) ||
           (is_idle(book, record, limit) && record->dispatched_ns < limit);
}

/* Whoever gave a lease back said that its work is over. What goes by its name and is at work still
 * was taken for it by mistake, and is another's that had been dispatched by then, or by when the last
 * reading, which had it too, was answered: the lease sent nothing, or its work was over before a reading
 * could show it, or two were mixed up. */
static void correct_names(struct book *book, const struct reading *before,
                          const struct reading *reading)
{
    for (int32_t slot = 0; slot < reading->slot_count; slot++) {
        const struct reading_slot *now = &reading->slots[slot];
        if (!now->busy || now->task < 0)
            continue;
        if (!oldest(book, lacks_work, reading->sent_ns))
            return;
        const struct record *former = former_owner(book, now->task, reading->sent_ns);
        if (!former)
            continue;
        ns_t by_then = former->ended_ns;
        if (by_then < before->answered_ns)
            by_then = before->answered_ns;
        struct record *record = oldest(book, lacks_work, by_then);
        if (record && !is_carried(book, now->task))
            arrive(book, record, now->task);
    }
}

/* The slot of the arrival with the smallest name above `after`, or -1: names are given in the order
 * in which requests come. */
static int32_t next_arrival(const struct reading *before, const struct reading *reading,
                            int32_t after)
{
    int32_t found = -1;
    for (int32_t slot = 0; slot < reading->slot_count; slot++) {
        int32_t task = reading->slots[slot].task;
        if (is_arrival(before, reading, slot) && task > after &&
            (found < 0 || task < reading->slots[found].task))
            found = slot;
    }
    return found;
}

/* An arrival that no unseen lease explains is the next request of a holder whose last one ended,
 * where there is such a holder; otherwise it stays a stranger. */
static void attribute_names(struct book *book, const struct reading *before,
                            const struct reading *reading)
{
    correct_names(book, before, reading);
    int32_t slot, task = -1;
    while ((slot = next_arrival(before, reading, task)) >= 0) {
        task = reading->slots[slot].task;
        struct record *record = oldest_unseen(book, reading, reading->answered_ns);
        if (!record)
            record = oldest(book, is_idle, reading->sent_ns);
        if (record)
            arrive(book, record, task);
    }
}

static int32_t seen_units(const struct book *book, int32_t *orphaned)
{
    int32_t seen = 0;
    *orphaned = 0;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_DISPATCHED)
            seen += (int32_t)admission_seen_units(book, record);
        else if (record->state == RECORD_ORPHAN)
            *orphaned += record->arrived;
    }
    return seen;
}

/* Leases that only time has made seen, and that right now, may still be shown to be so. */
static int32_t explained_units(const struct book *book)
{
    int32_t explained = 0;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_DISPATCHED || record->state == RECORD_ORPHAN)
            explained += record->flags & RECORD_SETTLED ? record->units : record->arrived;
    }
    return explained;
}

static void attribute_counts(struct book *book, const struct reading *reading)
{
    int32_t left = reading->in_flight - book->sight.strangers - explained_units(book);
    while (left > 0) {
        struct record *record = oldest_unseen(book, reading, reading->sent_ns);
        if (!record)
            return;
        arrive(book, record, -1);
        left--;
    }
}

/* ---- what is left over ----------------------------------------------------------------------- */

/* Past settle time, work that never showed counts as seen: of a living lease it is a ghost from
 * then on, of an ended one it is over. */
static void settle(struct book *book, ns_t now)
{
    for (uint32_t i = book->live_count; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        bool ran = record->state == RECORD_DISPATCHED || record->state == RECORD_ORPHAN;
        if (!ran || record->arrived == record->units || (record->flags & RECORD_SETTLED) ||
            admission_settled_ns(book, record) != 0)
            continue;
        book_touch(book, record);
        if (record->state == RECORD_DISPATCHED)
            record->flags |= RECORD_SETTLED;
        else if (record->arrived > 0)
            record->units = record->arrived;
        else
            book_end(book, record, END_EXPIRED, now);
    }
}

static void drop_orphan_unit(struct book *book, struct record *record, ns_t now)
{
    if (record->units == 1) {
        book_end(book, record, END_EXPIRED, now);
        return;
    }
    record->units--;
    record->arrived--;
    book_touch(book, record);
    if (record->arrived == 0 && now >= admission_settled_ns(book, record))
        book_end(book, record, END_EXPIRED, now);
}

/* An orphan keeps its name until the reading drops: its own task where that is named, else until
 * the work in flight is no more than what living leases explain. */
static void drop_orphans(struct book *book, const struct reading *reading, ns_t now)
{
    for (uint32_t i = reading->named ? book->live_count : 0; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        if (has_orphaned_work(book, record, 0) && record->units == 1 && record->task >= 0)
            drop_orphan_unit(book, record, now);
    }
    int32_t orphaned;
    int32_t seen = seen_units(book, &orphaned);
    int32_t room = reading->in_flight > seen ? reading->in_flight - seen : 0;
    struct record *record;
    while (orphaned-- > room && (record = oldest(book, has_orphaned_work, 0)))
        drop_orphan_unit(book, record, now);
}

/* The likeliest ghosts first: those that were, those that never showed, those whose task ended. */
static int ghost_rank(const struct book *book, const struct record *record)
{
    if (is_at_work(book, record))
        return 0;
    if (record->flags & RECORD_GHOST)
        return 4;
    if (record->flags & RECORD_SETTLED)
        return 3;
    return record->units == 1 && record->task >= 0 ? 2 : 1;
}

static struct record *next_ghost(struct book *book, int32_t most, const uint8_t *chosen)
{
    struct record *found = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        struct record *record = &book->records[book->live[i]];
        if (record->state != RECORD_DISPATCHED || chosen[book->live[i]] ||
            admission_seen_units(book, record) < record->units || record->units > most)
            continue;
        int rank = ghost_rank(book, record), best = found ? ghost_rank(book, found) : 0;
        if (rank > best ||
            (rank == best && rank > 0 && found && record->dispatched_ns < found->dispatched_ns))
            found = record;
    }
    return found;
}

static void mark_ghosts(struct book *book, const struct reading *reading)
{
    uint8_t chosen[BOOK_CELLS] = {0};
    int32_t orphaned;
    int32_t missing = seen_units(book, &orphaned) + orphaned - reading->in_flight;
    struct record *record;
    while (missing > 0 && (record = next_ghost(book, missing, chosen))) {
        chosen[book_index(book, record)] = 1;
        missing -= record->units;
        if (record->flags & RECORD_GHOST)
            continue;
        record->flags |= RECORD_GHOST;
        record->idle_mark_ns = book->sight.healthy_ns;
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

/* ---- taking a reading in --------------------------------------------------------------------- */

/* A server that is gone or starts afresh has no work in it, and begins its names anew. What has
 * not shown yet may wait for it to be up, unless it is gone. */
static void clear_work(struct book *book, enum health health, ns_t now)
{
    for (uint32_t i = book->live_count; i-- > 0;) {
        struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_ORPHAN && health == HEALTH_DOWN) {
            book_end(book, record, END_EXPIRED, now);
        } else if (record->state == RECORD_ORPHAN) {
            while (record->state == RECORD_ORPHAN && record->arrived > 0)
                drop_orphan_unit(book, record, now);
        } else if (record->task >= 0) {
            record->task = -1;
            book_touch(book, record);
        }
    }
    struct sight *sight = &book->sight;
    sight->strangers = 0;
    sight->strangers_since_ns = 0;
    sight->reading.named = 0;
    sight->reading.slot_count = 0;
}

/* While there is work that no living lease explains, the server is left alone now and then: it
 * notices that a client has gone only in a second in which nobody asks. Where nobody asked before
 * this reading for as long, it had its pause. */
static void plan_pause(struct book *book, const struct reading *reading, ns_t gap_ns,
                       int32_t unexplained)
{
    struct sight *sight = &book->sight;
    const ns_t pause_ns = PAUSE_MS * NS_PER_MS;
    if (gap_ns >= pause_ns && sight->pause_until_ns < reading->sent_ns)
        sight->pause_until_ns = reading->sent_ns;
    if (unexplained == 0)
        return;
    bool full = reading->in_flight >= book_slots(book);
    ns_t since_ns = reading->answered_ns - sight->pause_until_ns;
    if (full || since_ns >= PAUSE_EVERY_MS * NS_PER_MS - pause_ns)
        sight->pause_until_ns = reading->answered_ns + pause_ns;
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

static int32_t count_strangers(struct book *book, ns_t now)
{
    struct sight *sight = &book->sight;
    struct tally tally;
    admission_tally(book, now, &tally);
    sight->strangers = tally.strangers;
    if (sight->strangers == 0)
        sight->strangers_since_ns = 0;
    else if (sight->strangers_since_ns == 0)
        sight->strangers_since_ns = now;
    return tally.strangers + tally.orphans;
}

static void take_counted(struct book *book, const struct reading *before,
                         const struct reading *reading, ns_t now)
{
    if (reading->named)
        attribute_names(book, before, reading);
    else
        attribute_counts(book, reading);
    settle(book, now);
    drop_orphans(book, reading, now);
    mark_ghosts(book, reading);
    int32_t unexplained = count_strangers(book, now);
    plan_pause(book, reading, reading->sent_ns - before->answered_ns, unexplained);
}

static bool is_gone_or_new(enum health health)
{
    return health == HEALTH_DOWN || health == HEALTH_LOADING || health == HEALTH_UNLOADED;
}

bool attribution_take(struct book *book, const struct reading *reading, ns_t now)
{
    struct sight *sight = &book->sight;
    if (reading->sent_ns <= 0 || reading->answered_ns < reading->sent_ns ||
        reading->answered_ns > now || reading->answered_ns <= sight->reading.answered_ns)
        return false;
    struct reading before;
    before.answered_ns = sight->reading.answered_ns;
    before.named = sight->reading.named;
    before.slot_count = sight->reading.slot_count;
    if (reading->source != sight->reading.source) /* names of another server */
        before.named = before.slot_count = 0;
    memcpy(before.slots, sight->reading.slots, (size_t)before.slot_count * sizeof before.slots[0]);

    book->sight_dirty = true;
    sight->flags &= ~(uint32_t)SIGHT_TOLD;
    keep_clock(sight, reading);
    keep_reading(sight, reading);
    if (reading_counts(reading)) {
        take_counted(book, &before, reading, now);
    } else {
        sight->reading.named = before.named;
        sight->reading.slot_count = before.slot_count;
    }
    if (is_gone_or_new((enum health)reading->health))
        clear_work(book, (enum health)reading->health, now);
    return true;
}

void attribution_take_told(struct book *book, const struct reading *reading, int32_t strangers,
                           ns_t strangers_since_ns)
{
    struct sight *sight = &book->sight;
    keep_clock(sight, reading);
    memcpy(&sight->reading, reading, offsetof(struct reading, slots));
    sight->reading.named = sight->reading.slot_count = 0;
    sight->strangers = strangers;
    sight->strangers_since_ns = strangers_since_ns;
    sight->flags |= SIGHT_TOLD;
    book->sight_dirty = true;
}

ns_t attribution_not_before(const struct book *book)
{
    return admission_is_of_this_server(book) ? book->sight.pause_until_ns : 0;
}

bool attribution_is_active(const struct book *book, bool watched)
{
    return watched || book->live_count > 0 || book->sight.strangers > 0;
}

ns_t attribution_next_due(const struct book *book, bool watched)
{
    ns_t interval =
        (attribution_is_active(book, watched) ? PROBE_ACTIVE_MS : PROBE_IDLE_MS) * NS_PER_MS;
    ns_t due = book->sight.reading.sent_ns ? book->sight.reading.answered_ns + interval : 0;
    return due > attribution_not_before(book) ? due : attribution_not_before(book);
}
