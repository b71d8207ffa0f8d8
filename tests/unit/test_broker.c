#include "tests/lib/virtual.h"

/* ---- the order of a step --------------------------------------------------------------------------- */

static void the_dead_are_taken_before_anything_is_decided(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = granted(acquire());
    struct lease_id b = waits(acquire(.wait_ms = 60000));
    dies(a);
    is_state(a, GONE);
    is_end(a, LAPSED);
    is_state(b, HELD); /* in the same step */
    assert_int_equal(world.notes[NOTE_LAPSED], 1);
    dies(b);
    granted(acquire());
}

/* It was taken by a process that was to end: time alone ends the lease. */
static void a_lease_without_a_holder_outlives_it(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire(.flags = REQUEST_NO_HOLDER));
    dies(a);
    is_state(a, HELD);
    after(10001);
    tick();
    is_end(a, EXPIRED);
}

static void time_never_runs_backwards(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire());
    ns_t end = record_of(a)->deadline_ns;
    struct request request = {.verb = VERB_RENEW, .id = {9, 9}, .lease = a, .hint = UINT32_MAX};
    struct event event = {.kind = EVENT_REQUEST, .now = 5, .request = &request};
    broker_step(&world.broker, &event, &world.effects);
    assert_true(record_of(a)->deadline_ns >= end);
    assert_int_equal(world.broker.now, world.now);
}

static void effects_are_of_one_step(void **state)
{
    (void)state;
    on_server(1);
    after(100);
    unread(verify(granted(acquire())));
    assert_true(world.effects.probe);
    tick();
    assert_false(world.effects.has_reply);
    assert_false(world.effects.probe);
    assert_int_equal(world.effects.note_count, 0);
    assert_int_equal(world.effects.called_count, 0);
}

/* ---- when it wants to be called again --------------------------------------------------------------- */

static void the_deadline_is_the_first_end_of_anything(void **state)
{
    (void)state;
    on_server(1);
    assert_int_equal(broker_deadline(&world.broker), NS_NEVER);
    struct lease_id a = granted(acquire(.ttl_ms = 20000));
    assert_int_equal(broker_deadline(&world.broker), record_of(a)->deadline_ns);
    struct lease_id b = waits(acquire(.wait_ms = 2000));
    assert_int_equal(broker_deadline(&world.broker), record_of(b)->deadline_ns);
    at(3000);
    tick();
    is_state(b, GONE);
    shows_nothing();
    go(verify(a));
    dies(a);
    ns_t settles = world.book.records[book_index(&world.book, record_of(a))].dispatched_ns +
                   SETTLE_NAMES_MS * NS_PER_MS;
    assert_int_equal(broker_deadline(&world.broker), settles);
    shows(71);
    assert_int_equal(broker_deadline(&world.broker), NS_NEVER); /* a reading ends it */
}

/* A tick at each deadline is all it takes: nothing is left that has ended. */
static void ticks_at_the_deadline_are_enough(void **state)
{
    (void)state;
    on_static(4);
    dispatched("a");
    granted(acquire());
    granted(acquire(.units = 2));
    waits(acquire(.wait_ms = 500));
    int ticks = 0;
    while (broker_deadline(&world.broker) != NS_NEVER) {
        assert_true(broker_deadline(&world.broker) > world.now);
        world.now = broker_deadline(&world.broker) - 1;
        tick();
        assert_in_range(++ticks, 1, 10);
    }
    assert_int_equal(world.book.live_count, 0);
}

/* ---- notes ------------------------------------------------------------------------------------------ */

static void a_note_names_its_holder(void **state)
{
    (void)state;
    on_static(1);
    struct lease_id a = granted(acquire(.label = "subagent/7"));
    assert_int_equal(world.effects.note_count, 1);
    assert_int_equal(world.effects.notes[0].kind, NOTE_ACQUIRED);
    assert_string_equal(world.effects.notes[0].label, "subagent/7");
    assert_string_equal(world.effects.notes[0].host, "m5");
    assert_int_equal(world.effects.notes[0].pid, 4242);
    assert_true(lease_id_equal(world.effects.notes[0].lease, a));
}

static void a_change_of_health_is_noted_once(void **state)
{
    (void)state;
    on_server(1);
    uint32_t before = world.notes[NOTE_HEALTH];
    is_now(HEALTH_DOWN);
    assert_int_equal(world.effects.notes[0].value, HEALTH_DOWN);
    is_now(HEALTH_DOWN);
    shows_nothing();
    assert_int_equal(world.notes[NOTE_HEALTH] - before, 2);
}

static void kinds_have_names(void **state)
{
    (void)state;
    for (int kind = 0; kind < NOTE_KINDS; kind++)
        assert_string_not_equal(note_name((enum note_kind)kind), "unknown");
    assert_string_equal(note_name((enum note_kind) - 1), "unknown");
    assert_string_equal(note_name(NOTE_KINDS), "unknown");
}

/* ---- choosing --------------------------------------------------------------------------------------- */

static void the_most_available_is_chosen(void **state)
{
    (void)state;
    const int32_t available[] = {1, 3, 0, 3};
    assert_int_equal(broker_choose(available, 0, 1), -1);
    int seen[4] = {0};
    for (uint64_t entropy = 0; entropy < 100; entropy++)
        seen[broker_choose(available, 4, entropy)]++;
    assert_int_equal(seen[0] + seen[2], 0);
    assert_int_equal(seen[1], 50);
    assert_int_equal(seen[3], 50);
    const int32_t unknown[] = {0, -1, 0}, known[] = {-1, 1};
    assert_int_equal(broker_choose(unknown, 3, 7), 1);
    assert_int_equal(broker_choose(known, 2, 7), 1);
    const int32_t none[] = {0, 0};
    assert_in_range(broker_choose(none, 2, 7), 0, 1);
}

/* ---- reasons in words ------------------------------------------------------------------------------- */

static void says(struct answer answer, const char *expected)
{
    char text[256];
    broker_reason_text(&answer, text, sizeof text);
    assert_string_equal(text, expected);
}

static void reasons_say_who_and_how_long(void **state)
{
    (void)state;
    on_server(1);
    struct lease_id a = dispatched("subagent/7");
    after(10000);
    says(acquire(),
         "1 of 1 slot leased, taken by subagent/7 on m5 (pid 4242) for another 20.0 s at "
         "most");
    shows(71);
    dies(a);
    says(acquire(), "1 of 1 slot leased, left running by subagent/7 on m5 (pid 4242)");
    after(3000);
    shows(9);
    says(acquire(), "1 stranger at work in 1 slot, without a lease");
    after(3000);
    struct reading *queue = blank_reading();
    queue->queued = 2;
    queue->queue_means_full = 1;
    take(queue);
    assert_int_equal(acquire().reason, REASON_QUEUE);
    after(3000);
    is_now(HEALTH_UNAUTHORIZED);
    says(acquire(), "the server refuses our key: check key-file");

    on_static(4);
    struct lease_id three = granted(acquire(.units = 3, .label = "batch"));
    says(acquire(.units = 2),
         "3 units ahead in 4 slots, held by batch on m5 (pid 4242) for another "
         "10.0 s at most");
    go(verify(three));
    says(acquire(.units = 2), "3 of 4 slots leased, taken by batch on m5 (pid 4242) for another "
                              "30.0 s at most");
    says(acquire(.units = 5), "asks for more units than there are slots");
    says(renew(NO_LEASE), "no such lease, or it ended long ago");
    says(verify(three), "go");
}

/* However small the room for it. */
static void reasons_fit_where_they_are_put(void **state)
{
    (void)state;
    struct answer answer = {0};
    memset(answer.other.label, 'l', LABEL_BYTES_MAX);
    memset(answer.other.host, 'h', NAME_CHARS_MAX);
    answer.other.state = RECORD_HELD;
    for (int reason = REASON_NONE; reason <= REASON_NOT_YOURS; reason++) {
        answer.reason = (enum reason)reason;
        for (size_t size = 1; size < 300; size += 23) {
            char text[300];
            memset(text, 'x', sizeof text);
            broker_reason_text(&answer, text, size);
            assert_non_null(memchr(text, 0, size));
            assert_int_equal(text[size], 'x');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dead_are_taken_before_anything_is_decided),
        cmocka_unit_test(a_lease_without_a_holder_outlives_it),
        cmocka_unit_test(time_never_runs_backwards),
        cmocka_unit_test(effects_are_of_one_step),
        cmocka_unit_test(the_deadline_is_the_first_end_of_anything),
        cmocka_unit_test(ticks_at_the_deadline_are_enough),
        cmocka_unit_test(a_note_names_its_holder),
        cmocka_unit_test(a_change_of_health_is_noted_once),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(the_most_available_is_chosen),
        cmocka_unit_test(reasons_say_who_and_how_long),
        cmocka_unit_test(reasons_fit_where_they_are_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
