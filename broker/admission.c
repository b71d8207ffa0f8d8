#include "broker/admission.h"

#include "broker/attribution.h"

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t above_zero(int32_t value)
{
    return larger(0, value);
}

bool admission_is_of_this_server(const struct book *book)
{
    uint32_t source = book->sight.reading.source;
    return source == 0 || book->settings.source == 0 || source == book->settings.source;
}

bool admission_trusts(const struct book *book, ns_t now)
{
    const struct reading *reading = &book->sight.reading;
    return reading->sent_ns != 0 && admission_is_of_this_server(book) &&
           now - reading->answered_ns <= READING_TRUST_MS * NS_PER_MS;
}

/* A server that did not answer is left alone for a while: each further question would occupy another
 * of its threads. */
static ns_t fresh_until_ns(const struct book *book)
{
    const struct reading *reading = &book->sight.reading;
    uint32_t max_age_ms =
        reading->health == HEALTH_BUSY ? PROBE_ACTIVE_MS : book->settings.max_age_ms;
    return reading->answered_ns + (ns_t)max_age_ms * NS_PER_MS;
}

/* Asked after the verify came in is as fresh as a reading can be, however long the server took; but
 * not for ever, since whoever asked may have been stopped before it could use the answer. Where no
 * moment was said (0) none was asked for. */
static bool was_asked_for(ns_t sent_ns, ns_t answered_ns, ns_t now, ns_t asked_ns)
{
    return asked_ns != 0 && sent_ns >= asked_ns && now - answered_ns <= PROBE_MS * NS_PER_MS;
}

bool admission_is_fresh(const struct book *book, ns_t now, ns_t asked_ns)
{
    const struct reading *reading = &book->sight.reading;
    if (reading->sent_ns == 0 || reading->in_peace || !admission_is_of_this_server(book))
        return false;
    return now <= fresh_until_ns(book) ||
           was_asked_for(reading->sent_ns, reading->answered_ns, now, asked_ns);
}

static ns_t settle_ns(const struct book *book)
{
    uint32_t ms = book->sight.reading.named ? book->settings.settle_names_ms
                                            : book->settings.settle_counts_ms;
    return (ns_t)ms * NS_PER_MS;
}

ns_t admission_settled_ns(const struct book *book, const struct record *record)
{
    const struct sight *sight = &book->sight;
    if (sight->flags & SIGHT_TOLD)
        return NS_NEVER; /* what the owner takes for shown it has told */
    ns_t left_ns = record->settle_mark_ns + settle_ns(book) - sight->healthy_ns;
    /* what was asked for before the go may be how it stood before it, however late the answer */
    if (left_ns <= 0 && record->dispatched_ns < sight->reading.sent_ns)
        return 0;
    return sight->healthy_since_ns ? sight->healthy_since_ns + left_ns : NS_NEVER;
}

/* By the time of the last reading: one that is older than the lease cannot have shown its work, and
 * was right to show none. */
static bool is_settled(const struct book *book, const struct record *record)
{
    return (record->flags & RECORD_SETTLED) || admission_settled_ns(book, record) == 0;
}

uint32_t admission_seen_units(const struct book *book, const struct record *record)
{
    return is_settled(book, record) ? record->units : record->arrived;
}

ns_t admission_idle_ns(const struct book *book, const struct record *record, ns_t now)
{
    if (record->state != RECORD_DISPATCHED || !(record->flags & RECORD_GHOST))
        return -1;
    return book_healthy_ns(book, now) - record->idle_mark_ns;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* The work of a lease that died or ran out: shown by a reading it is an orphan until the reading
 * drops, not yet shown it counts until it is seen or settled. Where no reading tells, or none has
 * of late, it keeps its units for a while, since its generation may still run. */
static void count_ended(const struct book *book, const struct record *record, ns_t now,
                        struct tally *tally)
{
    if (book->sight.reading.signal != SIGNAL_EXACT || !tally->trusted) {
        ns_t drained = record->ended_ns + (ns_t)book->settings.drain_ms * NS_PER_MS;
        tally->ending += now < drained ? record->units : 0;
        return;
    }
    int32_t unseen = is_settled(book, record) ? 0 : record->units - record->arrived;
    tally->orphans += record->arrived;
    tally->unseen += unseen;
    tally->ending += record->arrived + unseen;
}

static void count_live(const struct book *book, ns_t now, struct tally *tally)
{
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        int32_t seen;
        switch (record->state) {
        case RECORD_WAITING: tally->waiting += record->units; break;
        case RECORD_HELD: tally->held += record->units; break;
        case RECORD_DISPATCHED:
            seen = (int32_t)admission_seen_units(book, record);
            tally->dispatched += record->units;
            tally->seen += seen;
            tally->unseen += record->units - seen;
            break;
        default: count_ended(book, record, now, tally); break;
        }
    }
}

bool admission_shows_task(const struct reading *reading, int32_t task)
{
    for (int32_t i = 0; task >= 0 && i < reading->slot_count; i++)
        if (reading->slots[i].busy && reading->slots[i].task == task)
            return true;
    return false;
}

static uint32_t shown_units(const struct record *record)
{
    return record->flags & RECORD_SETTLED ? record->units : record->arrived;
}

/* Its holder said that its work is over, and the reading may not have known: it was given back
 * after the question left. By force it is somebody else who says so, and replaced it goes on. */
static bool was_given_back(const struct record *record, const struct reading *reading)
{
    return record->state == RECORD_GONE && record->end == END_RELEASED &&
           record->ended_ns > reading->sent_ns;
}

/* Who waits at the server takes the place of work that is over, before anybody new arrives. Of those
 * who wait, unseen leases are counted elsewhere. */
static int32_t moves_up(const struct reading *reading, const struct tally *tally, int32_t over)
{
    int32_t others = above_zero(reading->queued - tally->unseen);
    return others < over ? others : over;
}

/* Seen leases released since the reading take their units out of it. Where the reading names the
 * task, its work certainly was or was not there; where it does not, as many were not there as there
 * are ghosts among all seen ones. */
static int32_t still_in_flight(const struct book *book, const struct tally *tally)
{
    const struct reading *reading = &book->sight.reading;
    int32_t certain = 0, perhaps = 0;
    if (book->ended_last_ns <= reading->sent_ns)
        return reading->in_flight;
    for (uint32_t k = 0; k < book->ended_count; k++) {
        uint32_t at = (book->ended_first + k) % BOOK_CELLS;
        const struct record *record = &book->records[book->ended[at]];
        if (!was_given_back(record, reading))
            continue;
        if (reading->named && record->units == 1 && record->task >= 0)
            certain += admission_shows_task(reading, record->task);
        else
            perhaps += (int32_t)shown_units(record);
    }
    int32_t ghosts = above_zero(tally->seen + certain + perhaps - reading->in_flight);
    int32_t over = certain + above_zero(perhaps - ghosts);
    return above_zero(reading->in_flight - over + moves_up(reading, tally, over));
}

/* Who waits at an owner of whom nothing was heard of late is in nobody's way. */
static int32_t waiting_elsewhere(const struct book *book, ns_t now)
{
    const struct sight *sight = &book->sight;
    return now - sight->heard_ns <= READING_TRUST_MS * NS_PER_MS ? sight->waiting : 0;
}

static int32_t ghost_units(const struct book *book)
{
    int32_t units = 0;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_DISPATCHED && (record->flags & RECORD_GHOST))
            units += record->units;
    }
    return units;
}

/* A reading that the owner told is older than the leases that it told with it; its strangers are
 * not, and say what the owner makes of both. With its arithmetic:
 * max(D + ending, I + unseen) = D + ending + strangers. */
static void count_as_told(const struct book *book, struct tally *tally)
{
    tally->in_flight = book->sight.reading.in_flight;
    tally->strangers = book->sight.strangers;
    tally->busy += tally->strangers;
    tally->ghosts = ghost_units(book);
}

static void count_reading(const struct book *book, struct tally *tally)
{
    tally->in_flight = still_in_flight(book, tally);
    tally->busy = larger(tally->busy, tally->in_flight + tally->unseen);
    tally->strangers = above_zero(tally->in_flight - tally->seen - tally->orphans);
    tally->ghosts = above_zero(tally->seen + tally->orphans - tally->in_flight);
}

void admission_tally(const struct book *book, ns_t now, struct tally *tally)
{
    const struct reading *reading = &book->sight.reading;
    *tally = (struct tally){.slots = book_slots(book), .in_flight = -1, .available = -1};
    tally->trusted = admission_trusts(book, now);
    tally->counts = tally->trusted && reading_counts(reading);
    count_live(book, now, tally);
    if (book_is_copy(book))
        tally->waiting += tally->elsewhere = waiting_elsewhere(book, now);

    tally->busy = tally->dispatched + tally->ending;
    if (tally->counts) {
        if (book->sight.flags & SIGHT_TOLD)
            count_as_told(book, tally);
        else
            count_reading(book, tally);
        if (reading->queue_means_full && reading->queued > 0)
            tally->busy = larger(tally->busy, tally->slots);
    }
    bool known = tally->trusted && reading->health != HEALTH_UNKNOWN;
    if (!book_is_probed(book) || (known && health_admits((enum health)reading->health)))
        tally->available = above_zero(tally->slots - tally->busy - tally->held - tally->waiting);
    else if (known)
        tally->available = 0;
    if (tally->available > 0 && admission_neighbour(book, UINT64_MAX))
        tally->available = 0;
}

/* A waiter for a slot's index holds back only who wants the same index: to everyone else it is a
 * request that the server will defer while other slots are free. */
static bool stands_before(const struct record *record, uint64_t place, int32_t slot)
{
    if (record->place >= place)
        return false;
    if (record->state == RECORD_HELD)
        return true;
    return record->state == RECORD_WAITING && (record->slot < 0 || record->slot == slot);
}

int32_t admission_ahead(const struct book *book, uint64_t place, int32_t slot)
{
    int32_t ahead = 0;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (stands_before(record, place, slot))
            ahead += record->units;
    }
    return ahead;
}

/* ---- asking for one slot by its index -------------------------------------------------------- */

/* What besides the work itself takes a slot's index: `held` leases whatever their place, and what
 * `ended` ones left running. */
struct index_rule {
    uint64_t place;
    bool held, ended;
};

static bool index_is_leased(const struct book *book, int32_t slot, struct index_rule rule)
{
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->slot != slot || (record->state == RECORD_ORPHAN && !rule.ended))
            continue;
        if (record->state == RECORD_DISPATCHED || record->state == RECORD_ORPHAN ||
            record->place < rule.place)
            return true;
        if (rule.held && record->state == RECORD_HELD && record->place != rule.place)
            return true;
    }
    return false;
}

/* The reading shows work in it that was not given back since. */
static bool index_is_busy(const struct book *book, int32_t slot)
{
    const struct reading *reading = &book->sight.reading;
    if (slot >= reading->slot_count || !reading->slots[slot].busy)
        return false;
    int32_t task = reading->named ? reading->slots[slot].task : -1;
    for (uint32_t k = 0; k < book->ended_count; k++) {
        uint32_t at = (book->ended_first + k) % BOOK_CELLS;
        const struct record *record = &book->records[book->ended[at]];
        bool its_work =
            task >= 0 ? record->task == task : record->slot == slot && shown_units(record) > 0;
        if (its_work && was_given_back(record, reading))
            return false;
    }
    return true;
}

/* ---- the group ------------------------------------------------------------------------------- */

/* What it has in flight was told, or there is nothing that could have. */
static bool is_known_to_be_empty(enum health health)
{
    return health_admits(health) || health == HEALTH_DOWN;
}

void book_as_neighbour(const struct book *book, ns_t now, struct neighbour *neighbour)
{
    struct tally tally;
    admission_tally(book, now, &tally);
    const struct reading *reading = &book->sight.reading;
    text_copy(neighbour->name, sizeof neighbour->name, book->provider);
    neighbour->leased = tally.dispatched > 0;
    neighbour->in_use = tally.busy > 0 || (book_is_probed(book) && tally.trusted &&
                                           !is_known_to_be_empty((enum health)reading->health));
    neighbour->probed = book_is_probed(book) && now >= attribution_not_before(book);
    neighbour->paused_until_ns = book_is_probed(book) ? attribution_not_before(book) : 0;
    neighbour->sent_ns = reading->in_peace ? 0 : reading->sent_ns;
    neighbour->answered_ns = reading->answered_ns;
    neighbour->fresh_until_ns = fresh_until_ns(book);
    neighbour->first_place = UINT64_MAX;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        bool wants = record->state == RECORD_HELD || record->state == RECORD_WAITING;
        if (wants && record->place < neighbour->first_place)
            neighbour->first_place = record->place;
    }
}

const struct neighbour *admission_neighbour(const struct book *book, uint64_t place)
{
    uint32_t before = 0;
    const struct neighbour *first = NULL;
    for (uint32_t i = 0; i < book->neighbour_count; i++) {
        const struct neighbour *neighbour = &book->neighbours[i];
        if (!neighbour->in_use && neighbour->first_place >= place)
            continue;
        before++;
        if (!first || (neighbour->in_use && !first->in_use))
            first = neighbour;
    }
    return book->group_limit > 0 && before >= book->group_limit ? first : NULL;
}

bool admission_neighbour_is_unread(const struct neighbour *neighbour, ns_t now, ns_t asked_ns)
{
    bool fresh = neighbour->sent_ns != 0 &&
                 (now <= neighbour->fresh_until_ns ||
                  was_asked_for(neighbour->sent_ns, neighbour->answered_ns, now, asked_ns));
    return neighbour->probed && !neighbour->leased && !fresh;
}

bool admission_group_is_unread(const struct book *book, uint64_t place, ns_t now, ns_t asked_ns)
{
    uint32_t before = 0;
    bool unread = false;
    for (uint32_t i = 0; i < book->neighbour_count; i++) {
        const struct neighbour *neighbour = &book->neighbours[i];
        before += neighbour->leased || neighbour->first_place < place;
        unread = unread || admission_neighbour_is_unread(neighbour, now, asked_ns);
    }
    return unread && before < book->group_limit;
}

ns_t admission_group_retry_ns(const struct book *book, uint64_t place, ns_t now)
{
    uint32_t before = 0;
    ns_t first = 0;
    for (uint32_t i = 0; i < book->neighbour_count; i++) {
        const struct neighbour *neighbour = &book->neighbours[i];
        bool stays = neighbour->leased || neighbour->first_place < place;
        before += stays;
        if (!stays && neighbour->in_use && neighbour->paused_until_ns > now &&
            (first == 0 || neighbour->paused_until_ns < first))
            first = neighbour->paused_until_ns;
    }
    return before < book->group_limit ? first : 0;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static enum obstacle what_stands_in_the_way(const struct tally *tally, int32_t ahead, int32_t units)
{
    int32_t leases = tally->dispatched + tally->ending;
    if (leases + units > tally->slots)
        return OBSTACLE_LEASES;
    if (leases + ahead + units > tally->slots)
        return OBSTACLE_AHEAD;
    return tally->strangers > 0 ? OBSTACLE_STRANGERS : OBSTACLE_QUEUE;
}

enum obstacle admission_verify(const struct book *book, const struct tally *tally, uint64_t place,
                               uint32_t units, int32_t slot, bool with_reading)
{
    /* what ended leases left running a new reading may show to be over */
    bool ended = with_reading || !book_is_probed(book);
    int32_t ahead = admission_ahead(book, place, slot);
    int32_t busy = ended ? tally->busy : tally->dispatched;
    if (with_reading && book_is_probed(book) &&
        !health_admits((enum health)book->sight.reading.health))
        return OBSTACLE_HEALTH;
    if (admission_neighbour(book, place))
        return OBSTACLE_GROUP;
    if (busy + ahead + (int32_t)units > tally->slots)
        return what_stands_in_the_way(tally, ahead, (int32_t)units);
    if (slot >= 0 && index_is_leased(book, slot, (struct index_rule){place, false, ended}))
        return OBSTACLE_SLOT;
    if (slot >= 0 && with_reading && tally->counts && index_is_busy(book, slot))
        return OBSTACLE_SLOT;
    return OBSTACLE_NONE;
}

/* What the last reading, while it is trusted, says about taking any request at all. */
static bool health_refuses(const struct book *book, const struct tally *tally)
{
    return book_is_probed(book) && tally->trusted &&
           !health_admits((enum health)book->sight.reading.health);
}

static enum obstacle admit_held(const struct book *book, const struct tally *tally, int32_t before,
                                uint64_t place, uint32_t units, int32_t slot)
{
    if (health_refuses(book, tally))
        return OBSTACLE_HEALTH;
    if (admission_neighbour(book, place))
        return OBSTACLE_GROUP;
    if (tally->busy + before + (int32_t)units > tally->slots)
        return what_stands_in_the_way(tally, before, (int32_t)units);
    if (slot >= 0 && (index_is_leased(book, slot, (struct index_rule){place, true, true}) ||
                      (tally->counts && index_is_busy(book, slot))))
        return OBSTACLE_SLOT;
    return OBSTACLE_NONE;
}

enum obstacle admission_acquire(const struct book *book, const struct tally *tally, uint32_t units,
                                int32_t slot)
{
    int32_t ahead = admission_ahead(book, UINT64_MAX, slot) + tally->elsewhere;
    return admit_held(book, tally, ahead, UINT64_MAX, units, slot);
}

enum obstacle admission_waiter(const struct book *book, const struct tally *tally, uint64_t place,
                               uint32_t units, int32_t slot)
{
    int32_t before = tally->held + tally->elsewhere;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (record->state == RECORD_WAITING && stands_before(record, place, slot))
            before += record->units;
    }
    return admit_held(book, tally, before, place, units, slot);
}

const struct record *admission_first_to_end(const struct book *book, uint64_t place)
{
    const struct record *first = NULL;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        bool in_the_way = record->state == RECORD_DISPATCHED || record->state == RECORD_ORPHAN ||
                          (record->state == RECORD_HELD && record->place < place);
        if (in_the_way && record->place != place &&
            (!first || record->deadline_ns < first->deadline_ns))
            first = record;
    }
    return first;
}
