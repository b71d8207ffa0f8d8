/* Members of a group exclude each other: by what is in use, and by who was first. */
#include "broker/admission.h"

#include "tests/lib/virtual.h"

static void in_a_group(uint32_t limit)
{
    world.book.group_limit = limit;
    world.book.neighbour_count = 0;
}

static void neighbour(const char *name, bool in_use, uint64_t first_place)
{
    struct neighbour *other = &world.book.neighbours[world.book.neighbour_count++];
    memset(other, 0, sizeof *other);
    text_copy(other->name, sizeof other->name, name);
    other->in_use = in_use;
    other->first_place = first_place;
}

static void a_member_in_use_excludes(void **state)
{
    (void)state;
    on_static(2);
    in_a_group(1);
    neighbour("m2", true, UINT64_MAX);
    assert_int_equal(tally_now().available, 0);
    struct answer answer = acquire();
    assert_int_equal(answer.verdict, ANSWER_NO);
    assert_int_equal(answer.reason, REASON_GROUP);
    assert_string_equal(answer.member, "m2");
    char text[256];
    broker_reason_text(&answer, text, sizeof text);
    assert_non_null(strstr(text, "m2"));
    world.book.neighbours[0].in_use = false;
    granted(acquire());
}

static void a_held_lease_excludes_only_from_a_smaller_place(void **state)
{
    (void)state;
    on_static(2);
    in_a_group(1);
    struct lease_id mine = granted(acquire());
    uint64_t place = record_of(mine)->place;
    neighbour("m2", false, place + 1);
    go(verify(mine));
    no(acquire(), REASON_GROUP); /* which would come after m2's */

    on_static(2);
    in_a_group(1);
    book_raise_place(&world.book, 10);
    mine = granted(acquire());
    neighbour("m2", false, 5);
    no(verify(mine), REASON_GROUP);
}

static void so_many_at_a_time_as_the_limit_says(void **state)
{
    (void)state;
    on_static(2);
    in_a_group(2);
    neighbour("m2", true, UINT64_MAX);
    neighbour("m3", false, UINT64_MAX);
    struct lease_id mine = granted(acquire());
    go(verify(mine));
    world.book.neighbours[1].in_use = true;
    no(acquire(), REASON_GROUP);
}

static void a_waiter_gets_its_turn_when_the_other_is_idle(void **state)
{
    (void)state;
    on_static(1);
    in_a_group(1);
    neighbour("m2", true, UINT64_MAX);
    struct lease_id mine = waits(acquire(.wait_ms = 60000));
    tick();
    assert_int_equal(state_of(mine), RECORD_WAITING);
    world.book.neighbours[0].in_use = false;
    tick();
    assert_int_equal(state_of(mine), RECORD_HELD);
    assert_int_equal(world.effects.called_count, 1);
}

/* However old this book's own reading is: no newer one would change it. */
static void a_no_because_of_a_neighbour_wants_no_reading_of_ours(void **state)
{
    (void)state;
    on_counting_server(2);
    in_a_group(1);
    struct lease_id mine = granted(acquire());
    neighbour("m2", true, UINT64_MAX);
    after(5000);
    no(verify(mine), REASON_GROUP);
}

/* What the others see: leases and work make a book in use, intentions have their place. */
static void how_a_book_looks_to_the_others(void **state)
{
    (void)state;
    struct neighbour seen;
    on_server(2);
    book_as_neighbour(&world.book, world.now, &seen);
    assert_false(seen.in_use);
    assert_true(seen.first_place == UINT64_MAX);

    struct lease_id first = granted(acquire());
    granted(acquire());
    book_as_neighbour(&world.book, world.now, &seen);
    assert_false(seen.in_use);
    assert_true(seen.first_place == record_of(first)->place);

    go(verify(first));
    book_as_neighbour(&world.book, world.now, &seen);
    assert_true(seen.in_use);

    on_server(2);
    shows(71); /* a stranger's */
    book_as_neighbour(&world.book, world.now, &seen);
    assert_true(seen.in_use);
}

/* A member whose server is left alone for a moment says when it is to be asked again, where only its reading
 * stands in the way. */
static void a_neighbours_pause_is_told(void **state)
{
    (void)state;
    struct neighbour seen;
    on_server(1);
    shows(71); /* a stranger's */
    book_as_neighbour(&world.book, world.now, &seen);
    ns_t until = seen.paused_until_ns;
    assert_true(seen.in_use && until == world.now + PAUSE_MS * NS_PER_MS);

    on_static(1);
    in_a_group(1);
    neighbour("m2", false, UINT64_MAX);
    struct lease_id mine = granted(acquire());
    struct neighbour *other = &world.book.neighbours[0];
    *other = seen;
    until = other->paused_until_ns = world.now + PAUSE_MS * NS_PER_MS;
    struct answer answer = acquire();
    assert_int_equal(answer.reason, REASON_GROUP);
    assert_true(answer.retry_ns == until);
    answer = verify(mine);
    assert_int_equal(answer.verdict, ANSWER_NO);
    assert_int_equal(answer.reason, REASON_GROUP);
    assert_true(answer.undecided && answer.retry_ns == until);
    other->in_use = false; /* its next reading */
    go(verify(mine));

    on_static(1); /* a lease stands in the way, and no reading takes it out of it */
    in_a_group(1);
    neighbour("m2", false, UINT64_MAX);
    mine = granted(acquire());
    other->in_use = other->leased = true;
    other->paused_until_ns = world.now + NS_PER_SEC;
    assert_true(acquire().retry_ns == 0);
    no(verify(mine), REASON_GROUP);
}

/* A verify depends on every member that shows no lease; one that is in use by leases is so whatever
 * its server says. */
static void members_are_read_before_a_go(void **state)
{
    (void)state;
    on_static(2);
    in_a_group(1);
    neighbour("m2", false, UINT64_MAX);
    struct neighbour *other = &world.book.neighbours[0];
    struct lease_id mine = granted(acquire());
    other->probed = true;
    unread(verify(mine)); /* never read */
    other->sent_ns = other->answered_ns = world.now - 21 * NS_PER_MS;
    other->fresh_until_ns = other->answered_ns + 20 * NS_PER_MS;
    unread(verify(mine));
    other->leased = other->in_use = true;
    no(verify(mine), REASON_GROUP);

    other->leased = false; /* what was at work may be gone: that is worth a look, too */
    unread(acquire());
    mine = (other->in_use = false, granted(acquire()));
    other->in_use = true;
    unread(verify(mine));
    other->fresh_until_ns = world.now + NS_PER_SEC;
    no(verify(mine), REASON_GROUP);
    mine = (other->in_use = false, granted(acquire()));
    go(verify(mine));
}

/* Its server does not answer, or makes no sense: that is no sign of leisure. */
static void what_is_not_told_is_in_use(void **state)
{
    (void)state;
    static const struct {
        enum health health;
        bool in_use;
    } cases[] = {{HEALTH_BUSY, true},     {HEALTH_LOADING, true}, {HEALTH_UNKNOWN, true},
                 {HEALTH_DOWN, false},    {HEALTH_OK, false},     {HEALTH_SLEEPING, false},
                 {HEALTH_UNLOADED, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct neighbour seen;
        on_server(2);
        world.book.sight.reading.health = (int32_t)cases[i].health;
        book_as_neighbour(&world.book, world.now, &seen);
        assert_int_equal(seen.in_use, cases[i].in_use);
        assert_false(seen.leased);
        assert_true(seen.probed);
    }
}

static void the_group_is_named(void **state)
{
    (void)state;
    char text[256];
    on_static(2);
    in_a_group(1);
    text_copy(world.book.group, sizeof world.book.group, "gpu");
    neighbour("m2", true, UINT64_MAX);
    struct answer answer = acquire();
    broker_reason_text(&answer, text, sizeof text);
    assert_string_equal(text, "m2 of group gpu is in use, or was first");
}

static void one_order_of_places_over_all(void **state)
{
    (void)state;
    on_static(2);
    book_raise_place(&world.book, 100);
    struct lease_id mine = granted(acquire());
    assert_int_equal(record_of(mine)->place, 101);
    book_raise_place(&world.book, 50);
    assert_int_equal(record_of(granted(acquire()))->place, 102);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_in_use_excludes),
        cmocka_unit_test(a_held_lease_excludes_only_from_a_smaller_place),
        cmocka_unit_test(so_many_at_a_time_as_the_limit_says),
        cmocka_unit_test(a_waiter_gets_its_turn_when_the_other_is_idle),
        cmocka_unit_test(a_no_because_of_a_neighbour_wants_no_reading_of_ours),
        cmocka_unit_test(how_a_book_looks_to_the_others),
        cmocka_unit_test(a_neighbours_pause_is_told),
        cmocka_unit_test(members_are_read_before_a_go),
        cmocka_unit_test(what_is_not_told_is_in_use),
        cmocka_unit_test(the_group_is_named),
        cmocka_unit_test(one_order_of_places_over_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
