#include "broker/book.h"

#include <assert.h>
#include <string.h>

#include "broker/planted.h"

void book_settings_default(struct book_settings *settings)
{
    *settings = (struct book_settings){
        .probed = 1,
        .settle_names_ms = SETTLE_NAMES_MS,
        .settle_counts_ms = SETTLE_COUNTS_MS,
        .ghost_ms = GHOST_MS,
        .drain_ms = DRAIN_MS,
        .max_age_ms = MAX_AGE_MS,
        .held_ms_max = HELD_MS_MAX,
    };
}

void book_init(struct book *book, const char *provider, const struct book_settings *settings)
{
    memset(book, 0, offsetof(struct book, records));
    text_copy(book->provider, sizeof book->provider, provider);
    book->settings = *settings;
    reading_clear(&book->sight.reading);
}

void book_found(struct book *book, uint64_t instance, uint64_t epoch)
{
    assert(book->used == 0 && instance != 0 && epoch <= EPOCH_MAX);
    book->head.instance = instance;
    book->head.epoch = epoch;
    book->head_dirty = true;
}

void book_raise_epoch(struct book *book, uint64_t epoch)
{
    if (epoch <= book->head.epoch || epoch > EPOCH_MAX)
        return;
    book->head.epoch = epoch;
    book->head_dirty = true;
}

/* ---- what is derived from the records -------------------------------------------------------- */

static void leave_live(struct book *book, uint32_t index)
{
    uint16_t at = book->live_at[index];
    uint16_t last = book->live[--book->live_count];
    book->live[at] = last;
    book->live_at[last] = at;
}

static void join_live(struct book *book, uint32_t index)
{
    book->live_at[index] = (uint16_t)book->live_count;
    book->live[book->live_count++] = (uint16_t)index;
}

enum in_ended { NOT_IN_RING = 0, IN_RING, ENDED_AGAIN };

/* A cell stands in the ring once at most. One that another process has taken again meanwhile is
 * passed over when its turn comes, and stands at the end again if it has ended again. */
static void join_ended(struct book *book, uint32_t index)
{
    if (book->records[index].ended_ns > book->ended_last_ns)
        book->ended_last_ns = book->records[index].ended_ns;
    if (book->in_ended[index] != NOT_IN_RING) {
        book->in_ended[index] = ENDED_AGAIN;
        return;
    }
    book->in_ended[index] = IN_RING;
    book->ended[(book->ended_first + book->ended_count++) % BOOK_CELLS] = (uint16_t)index;
}

static uint32_t mark_of(uint64_t high, uint64_t low)
{
    uint64_t word = (high ^ low >> 32 ^ low) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(word >> 32);
}

static void mark(struct book *book, uint32_t index)
{
    const struct record *record = &book->records[index];
    book->id_marks[index] = mark_of(record->id.instance, record->id.counter);
    book->request_marks[index] = mark_of(record->acquired_by.hi, record->acquired_by.lo);
}

static void derive(struct book *book, uint32_t index, enum record_state before)
{
    const struct record *record = &book->records[index];
    mark(book, index);
    bool was_live = before >= RECORD_WAITING && before <= RECORD_ORPHAN;
    bool live = record_is_live(record);
    if (was_live && !live)
        leave_live(book, index);
    if (!was_live && live)
        join_live(book, index);
    if (record->state == RECORD_GONE)
        join_ended(book, index);
    if (before != RECORD_FREE)
        book->count[before]--;
    if (record->state != RECORD_FREE)
        book->count[record->state]++;
    if (record->counter_max > book->counter_max)
        book->counter_max = record->counter_max;
    if (record->place_max > book->place_max)
        book->place_max = record->place_max;
    if (record->token_max > book->token_max && !PLANTED(PLANT_TOKEN_AGAIN))
        book->token_max = record->token_max;
}

void book_adopt(struct book *book, uint32_t index, const struct record *record)
{
    assert(index < BOOK_CELLS && book_record_fits(book, record));
    while (book->used <= index) {
        memset(&book->records[book->used], 0, sizeof(struct record));
        mark(book, book->used++);
    }
    enum record_state before = (enum record_state)book->records[index].state;
    book->records[index] = *record;
    derive(book, index, before);
}

void book_set_state(struct book *book, struct record *record, enum record_state state)
{
    enum record_state before = (enum record_state)record->state;
    record->state = (uint8_t)state;
    derive(book, book_index(book, record), before);
    book_touch(book, record);
}

/* ---- finding, taking, ending ----------------------------------------------------------------- */

uint32_t book_index(const struct book *book, const struct record *record)
{
    assert(record >= book->records && record < book->records + book->used);
    return (uint32_t)(record - book->records);
}

struct record *book_find(struct book *book, struct lease_id id, uint32_t hint)
{
    if (id.counter == 0)
        return NULL;
    if (hint < book->used && lease_id_equal(book->records[hint].id, id))
        return &book->records[hint];
    uint32_t wanted = mark_of(id.instance, id.counter);
    for (uint32_t i = 0; i < book->used; i++)
        if (book->id_marks[i] == wanted && lease_id_equal(book->records[i].id, id))
            return &book->records[i];
    return NULL;
}

struct record *book_find_made(struct book *book, struct request_id by, uint32_t hint)
{
    if (hint < book->used && request_id_equal(book->records[hint].acquired_by, by))
        return &book->records[hint];
    uint32_t wanted = mark_of(by.hi, by.lo);
    for (uint32_t i = 0; i < book->used; i++)
        if (book->request_marks[i] == wanted && request_id_equal(book->records[i].acquired_by, by))
            return &book->records[i];
    return NULL;
}

bool book_is_dead(const struct book *book, struct lease_id id)
{
    if (id.instance == book->head.instance)
        return true; /* ours: everything alive is in a record, which the caller has looked for */
    return floors_is_dead(&book->floors, id);
}

static uint32_t oldest_ended(struct book *book)
{
    while (book->ended_count > 0) {
        uint32_t index = book->ended[book->ended_first];
        bool again = book->in_ended[index] == ENDED_AGAIN;
        book->ended_first = (book->ended_first + 1) % BOOK_CELLS;
        book->ended_count--;
        book->in_ended[index] = NOT_IN_RING;
        if (book->records[index].state != RECORD_GONE)
            continue;
        if (!again)
            return index;
        join_ended(book, index);
    }
    return BOOK_CELLS;
}

void book_forget(struct book *book, struct lease_id id, ns_t now)
{
    if (id.counter == 0 || id.instance == book->head.instance || PLANTED(PLANT_NO_FLOORS))
        return; /* our own need no floor: no id of ours is issued twice */
    int at = floors_forget(&book->floors, id, now);
    if (at >= 0 && !book->is_dirty_floor[at]) {
        book->is_dirty_floor[at] = 1;
        book->dirty_floors[book->dirty_floor_count++] = (uint16_t)at;
    }
}

struct record *book_take(struct book *book, ns_t now)
{
    uint32_t spare = BOOK_CELLS_SPARE + 2 * (uint32_t)book_slots(book);
    uint32_t index = BOOK_CELLS;
    if (book->used >= BOOK_CELLS || book->used >= spare + book->live_count)
        index = oldest_ended(book);
    if (index == BOOK_CELLS && book->used < BOOK_CELLS) {
        index = book->used++;
        memset(&book->records[index], 0, sizeof(struct record));
        mark(book, index);
    }
    if (index == BOOK_CELLS)
        return NULL;

    struct record *record = &book->records[index];
    struct record blank = {.counter_max = record->counter_max,
                           .place_max = record->place_max,
                           .token_max = record->token_max,
                           .task = -1,
                           .slot = -1,
                           .units = 1};
    book_forget(book, record->id, now);
    enum record_state before = (enum record_state)record->state;
    *record = blank;
    derive(book, index, before);
    book_touch(book, record);
    return record;
}

/* By the last reading, while that is young, there is no work of this lease. */
static bool is_known_idle(const struct book *book, const struct record *record, ns_t now)
{
    const struct reading *reading = &book->sight.reading;
    return (record->flags & RECORD_GHOST) && reading_counts(reading) &&
           now - reading->answered_ns <= READING_TRUST_MS * NS_PER_MS;
}

/* Work of a dispatched lease goes on when its holder dies or forgets; not when it was given back. */
static bool work_may_run(const struct book *book, const struct record *record, enum record_end end,
                         ns_t now)
{
    return record->state == RECORD_DISPATCHED && (end == END_EXPIRED || end == END_LAPSED) &&
           !PLANTED(PLANT_ORPHANS_ARE_FREE) && !is_known_idle(book, record, now);
}

void book_end(struct book *book, struct record *record, enum record_end end, ns_t now)
{
    assert(record_is_live(record));
    bool orphan = work_may_run(book, record, end, now);
    if (record->state != RECORD_ORPHAN) {
        record->end = (uint8_t)end;
        record->ended_ns = now;
    }
    if (orphan && (record->flags & RECORD_SETTLED))
        record->arrived = record->units; /* it explains work in the reading */
    record->flags &= (uint8_t)~RECORD_CALLED;
    book_set_state(book, record, orphan ? RECORD_ORPHAN : RECORD_GONE);
}

void book_touch(struct book *book, const struct record *record)
{
    uint32_t index = book_index(book, record);
    mark(book, index);
    if (book->is_dirty[index])
        return;
    book->is_dirty[index] = 1;
    book->dirty[book->dirty_count++] = (uint16_t)index;
}

uint64_t book_next_counter(struct book *book, struct record *record)
{
    return book->counter_max = record->counter_max = book->counter_max + 1;
}

/* The same everywhere and for ever: other hosts order what they claim by it. */
uint64_t book_place_by_id(struct lease_id id)
{
    uint64_t word = id.instance ^ id.counter * UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return PLACE_BY_ID | (word ^ word >> 31) >> 2;
}

uint64_t book_next_place(struct book *book, struct record *record)
{
    if (book_is_copy(book))
        return book_place_by_id(record->id);
    return book->place_max = record->place_max = book->place_max + 1;
}

uint64_t book_next_token(struct book *book, struct record *record)
{
    if (book_is_copy(book))
        return record->token;
    uint64_t first = book->head.epoch << TOKEN_BITS;
    uint64_t token = (book->token_max > first ? book->token_max : first) + 1;
    book_raise_epoch(book, token >> TOKEN_BITS);
    return book->token_max = record->token_max = token;
}

void book_raise_place(struct book *book, uint64_t place)
{
    if (place > book->place_max)
        book->place_max = place;
}

void book_clean(struct book *book)
{
    for (uint32_t i = 0; i < book->dirty_count; i++)
        book->is_dirty[book->dirty[i]] = 0;
    for (uint32_t i = 0; i < book->dirty_floor_count; i++)
        book->is_dirty_floor[book->dirty_floors[i]] = 0;
    book->dirty_count = book->dirty_floor_count = 0;
    book->head_dirty = book->sight_dirty = book->sight_last = false;
}

bool book_is_dirty(const struct book *book)
{
    return book->dirty_count || book->dirty_floor_count || book->head_dirty || book->sight_dirty;
}

/* ---- small questions ------------------------------------------------------------------------- */

ns_t book_healthy_ns(const struct book *book, ns_t now)
{
    const struct sight *sight = &book->sight;
    if (sight->healthy_since_ns == 0 || now < sight->healthy_since_ns)
        return sight->healthy_ns;
    return sight->healthy_ns + (now - sight->healthy_since_ns);
}

int32_t book_slots(const struct book *book)
{
    if (book->sight.slots_last > 0)
        return book->sight.slots_last;
    if (book->settings.slots > BOOK_SLOTS_MAX)
        return BOOK_SLOTS_MAX;
    return book->settings.slots > 0 ? (int32_t)book->settings.slots : 1;
}

bool book_has_room(const struct book *book, int32_t slots)
{
    const uint32_t *count = book->count;
    uint32_t leases = count[RECORD_HELD] + count[RECORD_DISPATCHED] + count[RECORD_ORPHAN];
    uint32_t most = 2 * (uint32_t)slots;
    return leases < (most > BOOK_LEASES_MIN ? most : BOOK_LEASES_MIN);
}

/* ---- invariants ------------------------------------------------------------------------------ */

static bool holder_is_valid(const struct holder *holder)
{
    return memchr(holder->host, 0, sizeof holder->host) &&
           memchr(holder->label, 0, sizeof holder->label);
}

static bool times_are_near(const struct record *r)
{
    return ns_is_near(r->acquired_ns) && ns_is_near(r->deadline_ns) && ns_is_near(r->hold_end_ns) &&
           ns_is_near(r->dispatched_ns) && ns_is_near(r->ended_ns) &&
           ns_is_near(r->waiting_since_ns) && ns_is_near(r->settle_mark_ns) &&
           ns_is_near(r->idle_mark_ns);
}

bool book_record_is_valid(const struct record *r)
{
    if (r->state > RECORD_GONE || r->end > END_REPLACED || !times_are_near(r))
        return false;
    if ((r->place_max < r->place && r->place < PLACE_BY_ID) || r->token_max < r->token)
        return false;
    if ((r->state == RECORD_FREE) != (r->id.counter == 0))
        return false;
    if (r->state == RECORD_FREE)
        return true;
    bool ended = r->state == RECORD_ORPHAN || r->state == RECORD_GONE;
    bool ran = r->state == RECORD_DISPATCHED || r->state == RECORD_ORPHAN;
    return r->units >= 1 && r->units <= BOOK_SLOTS_MAX && r->arrived <= r->units &&
           (r->slot == -1 || (r->units == 1 && r->slot >= 0 && r->slot < BOOK_SLOTS_MAX)) &&
           (!ended || (r->end != END_NONE && r->ended_ns > 0)) &&
           (!ran || (r->dispatched_ns > 0 && r->dispatched_ns >= r->acquired_ns)) &&
           (r->state != RECORD_HELD || r->deadline_ns <= r->hold_end_ns) &&
           holder_is_valid(&r->holder);
}

bool book_record_fits(const struct book *book, const struct record *r)
{
    bool ours = r->id.instance == book->head.instance;
    return book_record_is_valid(r) && (!ours || r->id.counter <= r->counter_max) &&
           r->token_max >> TOKEN_BITS <= book->head.epoch;
}

bool book_sight_is_valid(const struct sight *sight)
{
    struct reading reading = sight->reading;
    reading_sanitize(&reading);
    return memcmp(&reading, &sight->reading, sizeof reading) == 0 && ns_is_near(reading.sent_ns) &&
           ns_is_near(reading.answered_ns) && ns_is_near(sight->healthy_ns) &&
           ns_is_near(sight->healthy_since_ns) && ns_is_near(sight->pause_until_ns) &&
           ns_is_near(sight->strangers_since_ns) && ns_is_near(sight->heard_ns) &&
           sight->strangers >= 0 && sight->strangers <= WORK_MAX && sight->slots_last >= 0 &&
           sight->slots_last <= BOOK_SLOTS_MAX && sight->waiting >= 0 &&
           sight->waiting <= WAITING_UNITS_MAX;
}

void book_check(const struct book *book)
{
#ifdef NDEBUG
    (void)book;
#else
    uint32_t live = 0, count[RECORD_GONE + 1] = {0};
    for (uint32_t i = 0; i < book->used; i++) {
        const struct record *record = &book->records[i];
        assert(book_record_fits(book, record));
        assert(book->id_marks[i] == mark_of(record->id.instance, record->id.counter));
        assert(book->request_marks[i] == mark_of(record->acquired_by.hi, record->acquired_by.lo));
        assert(record->counter_max <= book->counter_max);
        assert(record->place_max <= book->place_max);
        assert(record->token_max <= book->token_max || PLANTED(PLANT_TOKEN_AGAIN));
        if (record->state != RECORD_FREE)
            count[record->state]++;
        if (record_is_live(record)) {
            live++;
            assert(book->live[book->live_at[i]] == i);
        }
        assert(record->state != RECORD_GONE || book->in_ended[i] != NOT_IN_RING);
    }
    assert(live == book->live_count && book->ended_count <= BOOK_CELLS);
    for (int state = RECORD_WAITING; state <= RECORD_GONE; state++)
        assert(count[state] == book->count[state]);
    assert(book->token_max >> TOKEN_BITS <= book->head.epoch);
#endif
}
