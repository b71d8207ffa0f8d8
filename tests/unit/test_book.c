#include "broker/book.h"

#include "tests/lib/virtual.h"

/* ---- cells --------------------------------------------------------------------------------------- */

/* Kept so that duplicates get their answers: an ended record is used again after as many others as
 * the spare allows, the oldest first. */
static void ended_records_are_kept_for_a_while(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id first = granted(acquire());
    uint64_t id = last_request();
    release(first);
    const int spare = BOOK_CELLS_SPARE + 2;
    for (int i = 0; i < spare - 1; i++) {
        release(granted(acquire()));
        is_state(first, GONE);
    }
    gone(acquire(.same = id), REASON_ENDED);
    for (int i = 0; i < spare; i++)
        release(granted(acquire()));
    assert_int_equal(state_of(first), RECORD_FREE); /* no such record */
    gone(verify(first), REASON_UNKNOWN_ID);
    assert_in_range(world.book.used, spare, spare + 2);
}

/* A cell that another process has used meanwhile stands in our ring at its old place: it is not the
 * oldest any more. */
static void a_cell_that_others_used_is_not_the_oldest(void **state)
{
    (void)state;
    on_static(1);
    for (int i = 0; i < 80; i++)
        release(granted(acquire()));
    uint32_t oldest = world.book.ended[world.book.ended_first];
    struct record record = world.book.records[oldest];
    record.id.counter = record.counter_max = world.book.counter_max + 1;
    record.state = RECORD_HELD;
    record.end = END_NONE;
    record.deadline_ns = record.hold_end_ns = world.now + NS_PER_SEC;
    book_adopt(&world.book, oldest, &record);
    book_check(&world.book);
    record.state = RECORD_GONE;
    record.end = END_RELEASED;
    record.ended_ns = world.now;
    book_adopt(&world.book, oldest, &record);
    book_check(&world.book);
    release(granted(acquire()));
    assert_true(book_find(&world.book, record.id, UINT32_MAX) != NULL);
    for (int i = 0; i < 30; i++)
        release(granted(acquire()));
    assert_true(book_find(&world.book, record.id, UINT32_MAX) != NULL);
}

static void the_hint_is_only_a_hint(void **state)
{
    (void)state;
    on_static(4);
    struct lease_id a = granted(acquire()), b = granted(acquire());
    uint32_t cell = book_index(&world.book, record_of(b));
    assert_ptr_equal(book_find(&world.book, b, cell), record_of(b));
    assert_ptr_equal(book_find(&world.book, a, cell), record_of(a));
    assert_ptr_equal(book_find(&world.book, a, 99999), record_of(a));
    assert_null(book_find(&world.book, NO_LEASE, cell));
    assert_null(book_find(&world.book, (struct lease_id){1, 2}, cell));
}

/* Every record that a book can hold, and one more. */
static void a_book_without_cells_gives_none(void **state)
{
    (void)state;
    on_static(BOOK_SLOTS_MAX);
    for (uint32_t i = 0; i < BOOK_CELLS; i++) {
        struct record *record = book_take(&world.book, world.now);
        assert_non_null(record);
        record->id =
            (struct lease_id){world.book.head.instance, book_next_counter(&world.book, record)};
        record->deadline_ns = 1;
        book_set_state(&world.book, record, RECORD_WAITING);
    }
    assert_null(book_take(&world.book, world.now));
    book_check(&world.book);
    book_end(&world.book, &world.book.records[7], END_GAVE_UP, world.now);
    assert_ptr_equal(book_take(&world.book, world.now), &world.book.records[7]);
}

/* ---- counters, places, tokens --------------------------------------------------------------------- */

static void a_token_is_epoch_and_number(void **state)
{
    (void)state;
    on_static(4);
    struct answer answer = acquire();
    assert_int_equal(answer.token, (UINT64_C(1000) << 20) + 1);
    answer = acquire();
    assert_int_equal(answer.token, (UINT64_C(1000) << 20) + 2);
}

static void tokens_grow_across_epochs(void **state)
{
    (void)state;
    on_static(4);
    struct answer before = acquire();
    book_raise_epoch(&world.book, 999); /* lower: nothing */
    assert_int_equal(world.book.head.epoch, 1000);
    book_raise_epoch(&world.book, 1001);
    assert_true(world.book.head_dirty);
    is_state(before.lease, HELD); /* raising ends nothing */
    assert_int_equal(record_of(before.lease)->token, before.token);
    struct answer answer = acquire();
    assert_int_equal(answer.token, (UINT64_C(1001) << 20) + 1);
    granted(renew(before.lease));

    uint64_t last = answer.token;
    struct book_settings settings = world.book.settings;
    book_init(&world.book, "z4", &settings); /* the file was lost */
    book_found(&world.book, 99, 1002);
    broker_init(&world.broker, &world.book, &world.refusals);
    answer = acquire();
    assert_true(answer.token > last);
    assert_true(answer.token >> 53 == 0);
}

static void numbers_that_overflow_raise_the_epoch(void **state)
{
    (void)state;
    on_static(4);
    struct lease_id a = granted(acquire());
    struct record record = *record_of(a);
    record.token = record.token_max = (UINT64_C(1001) << 20) - 1;
    book_adopt(&world.book, book_index(&world.book, record_of(a)), &record);
    struct answer answer = acquire();
    granted(answer);
    assert_int_equal(answer.token, UINT64_C(1001) << 20);
    assert_int_equal(world.book.head.epoch, 1001);
    assert_true(acquire().token > answer.token);
}

/* What was ever in a cell is carried forward, so that whoever loads the book anew goes on above
 * it. */
static void a_reload_goes_on_where_the_book_was(void **state)
{
    (void)state;
    static struct record cells[BOOK_CELLS];
    on_static(2);
    uint64_t token = 0, place = 0, counter = 0;
    for (int i = 0; i < 100; i++) {
        struct answer answer = acquire();
        token = answer.token;
        place = answer.place;
        counter = answer.lease.counter;
        release(answer.lease);
    }
    uint32_t used = world.book.used;
    memcpy(cells, world.book.records, used * sizeof cells[0]);
    struct book_head head = world.book.head;
    struct book_settings settings = world.book.settings;
    book_init(&world.book, "z4", &settings);
    world.book.head = head;
    for (uint32_t i = used; i-- > 0;)
        book_adopt(&world.book, i, &cells[i]);
    book_check(&world.book);
    struct answer answer = acquire();
    assert_int_equal(answer.token, token + 1);
    assert_int_equal(answer.place, place + 1);
    assert_int_equal(answer.lease.counter, counter + 1);
}

/* ---- dead ids -------------------------------------------------------------------------------------- */

static void ids_of_other_books_are_dead_once_forgotten(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id foreign = {4711, 12};
    assert_false(book_is_dead(&world.book, foreign));
    struct record *record = book_take(&world.book, world.now);
    record->id = foreign;
    record->counter_max = 12;
    record->deadline_ns = record->hold_end_ns = world.now + 1;
    book_set_state(&world.book, record, RECORD_HELD);
    book_end(&world.book, record, END_RELEASED, world.now);
    for (int i = 0; i < 100; i++)
        release(granted(acquire()));
    assert_null(record_of(foreign));
    assert_true(book_is_dead(&world.book, foreign));
    assert_false(book_is_dead(&world.book, (struct lease_id){4711, 13}));
    assert_true(book_is_dead(&world.book, (struct lease_id){world.book.head.instance, 1}));
}

static void what_changed_is_dirty_once(void **state)
{
    (void)state;
    on_static(2);
    assert_false(book_is_dirty(&world.book));
    struct record *record = book_take(&world.book, world.now);
    record->id =
        (struct lease_id){world.book.head.instance, book_next_counter(&world.book, record)};
    book_touch(&world.book, record);
    book_touch(&world.book, record);
    assert_int_equal(world.book.dirty_count, 1);
    assert_true(book_is_dirty(&world.book));
    book_clean(&world.book);
    assert_false(book_is_dirty(&world.book));
}

/* ---- what a file may say ---------------------------------------------------------------------------- */

static void records_out_of_bounds_are_not_valid(void **state)
{
    (void)state;
    on_static(4);
    const struct record good = *record_of(dispatched("a"));
    assert_true(book_record_is_valid(&good));
    assert_true(book_record_is_valid(&(struct record){0})); /* never used */
    struct record bad;
#define IS_BAD(change)                                                                             \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        if (book_record_is_valid(&bad))                                                            \
            fail_msg("valid: %s", #change);                                                        \
    } while (0)
    IS_BAD(bad.state = RECORD_GONE + 1);
    IS_BAD(bad.end = END_REPLACED + 1);
    IS_BAD(bad.state = RECORD_FREE);
    IS_BAD(bad.id.counter = 0);
    IS_BAD(bad.place_max = 0);
    IS_BAD(bad.token_max = 0);
    IS_BAD(bad.units = 0);
    IS_BAD(bad.units = BOOK_SLOTS_MAX + 1);
    IS_BAD(bad.arrived = 2);
    IS_BAD(bad.slot = -2);
    IS_BAD(bad.slot = BOOK_SLOTS_MAX);
    IS_BAD((bad.slot = 1, bad.units = 2));
    IS_BAD(bad.dispatched_ns = 0);
    IS_BAD(bad.dispatched_ns = bad.acquired_ns - 1);
    IS_BAD(bad.state = RECORD_GONE);
    IS_BAD((bad.state = RECORD_HELD, bad.hold_end_ns = bad.deadline_ns - 1));
    IS_BAD(memset(bad.holder.host, 'x', sizeof bad.holder.host));
    IS_BAD(memset(bad.holder.label, 'x', sizeof bad.holder.label));
}

static void slots_are_told_or_configured_or_one(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    begin_world(&settings);
    assert_int_equal(book_slots(&world.book), 1);
    settings.slots = 3;
    begin_world(&settings);
    assert_int_equal(book_slots(&world.book), 3);
    world.slots = 5;
    shows_nothing();
    assert_int_equal(book_slots(&world.book), 5);
    settings.slots = 4000000000u;
    begin_world(&settings);
    assert_int_equal(book_slots(&world.book), BOOK_SLOTS_MAX);
}

static void the_healthy_clock_runs_only_while_health_is_ok(void **state)
{
    (void)state;
    struct book_settings settings;
    book_settings_default(&settings);
    world.slots = 1;
    begin_world(&settings);
    after(1000);
    assert_int_equal(book_healthy_ns(&world.book, world.now), 0);
    shows_nothing();
    ns_t began = world.now;
    after(1000);
    assert_int_equal(book_healthy_ns(&world.book, began + 1000), 1000);
    is_now(HEALTH_LOADING);
    ns_t then = book_healthy_ns(&world.book, world.now);
    assert_int_equal(then, world.now - began);
    after(60000);
    is_now(HEALTH_BUSY);
    assert_int_equal(book_healthy_ns(&world.book, world.now), then);
    shows_nothing();
    after(500);
    assert_int_equal(book_healthy_ns(&world.book, world.now), then + 500 * NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_records_are_kept_for_a_while),
        cmocka_unit_test(a_cell_that_others_used_is_not_the_oldest),
        cmocka_unit_test(the_hint_is_only_a_hint),
        cmocka_unit_test(a_book_without_cells_gives_none),
        cmocka_unit_test(a_token_is_epoch_and_number),
        cmocka_unit_test(tokens_grow_across_epochs),
        cmocka_unit_test(numbers_that_overflow_raise_the_epoch),
        cmocka_unit_test(a_reload_goes_on_where_the_book_was),
        cmocka_unit_test(ids_of_other_books_are_dead_once_forgotten),
        cmocka_unit_test(what_changed_is_dirty_once),
        cmocka_unit_test(records_out_of_bounds_are_not_valid),
        cmocka_unit_test(slots_are_told_or_configured_or_one),
        cmocka_unit_test(the_healthy_clock_runs_only_while_health_is_ok),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
