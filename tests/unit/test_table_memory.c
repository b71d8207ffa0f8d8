#include "broker/table_memory.h"

#include "tests/lib/virtual.h"

static struct table_memory memory;

static void a_commit_cleans_the_book_and_keeps_the_notes(void **state)
{
    (void)state;
    on_static(1);
    table_memory_init(&memory);
    struct table *table = &memory.table;
    assert_int_equal(table_begin(table, &world.book, 0), 0);
    struct request request = {.verb = VERB_ACQUIRE, .id = {1, 1}, .units = 1, .slot = -1};
    struct event event = {.kind = EVENT_REQUEST, .now = world.now, .request = &request};
    broker_step(&world.broker, &event, &world.effects);
    assert_true(book_is_dirty(&world.book));
    table_commit(table, &world.book, &world.effects, world.now);
    table_end(table);
    assert_false(book_is_dirty(&world.book));
    assert_int_equal(memory.log_seq, 1);
    assert_true(log_entry_is_valid(&memory.log[1]));
    assert_int_equal(memory.log[1].kind, NOTE_ACQUIRED);
    assert_int_equal(table_look(table, &world.book), 0);
}

static void the_log_is_a_ring(void **state)
{
    (void)state;
    on_static(1);
    table_memory_init(&memory);
    struct effects *effects = &world.effects;
    for (int i = 0; i < LOG_ENTRIES + 3; i++) {
        effects->note_count = 1;
        effects->notes[0] = (struct note){.kind = NOTE_STRANGERS, .value = i};
        table_commit(&memory.table, &world.book, effects, world.now);
    }
    assert_int_equal(memory.log_seq, LOG_ENTRIES + 3);
    assert_int_equal(memory.log[3].seq, LOG_ENTRIES + 3);
    assert_int_equal(memory.log[3].value, LOG_ENTRIES + 2);
    assert_int_equal(memory.log[4].seq, 4);
    static struct log_entry entries[LOG_ENTRIES];
    assert_int_equal(table_memory_log(&memory, LOG_ENTRIES, entries), 3);
    assert_int_equal(entries[2].seq, LOG_ENTRIES + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_cleans_the_book_and_keeps_the_notes),
        cmocka_unit_test(the_log_is_a_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
