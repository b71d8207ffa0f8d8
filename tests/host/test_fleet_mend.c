/* What goes wrong in a fleet is mended at once: a book that was taken for a copy. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "broker/host_clock.h"
#include "broker/host_table.h"
#include "broker/mirror.h"
#include "tests/lib/fleet_asking.h"

static int set_up(void **state)
{
    int failed = stage_set_up(state);
    fleet_stage_reset();
    return failed ? failed : fleet_asking_open();
}

static int tear_down(void **state)
{
    fleet_asking_close();
    return stage_tear_down(state);
}

#define played(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* ---- a book that was taken for a copy -------------------------------------------------------- */

static void take_for_a_copy(const struct fleet_host *host)
{
    static const struct effects none_happened;
    struct book_settings settings;
    struct host_table table = {.file = NULL};
    struct host_table_options options = {.instance = 1, .epoch = 1, .mode = 0600};
    struct book *book = malloc(sizeof *book);
    int dir = open(host->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(book && dir >= 0);
    book_settings_default(&settings);
    book_init(book, "x", &settings);
    assert_int_equal(host_table_open(&table, dir, "x", book, &options), 0);
    assert_int_equal(table_begin(&table.table, book, 1000), 0);
    mirror_begin(book);
    assert_true(book_is_copy(book));
    table_commit(&table.table, book, &none_happened, host_now_ns());
    table_end(&table.table);
    host_table_close(&table);
    close(dir);
    free(book);
}

static void test_a_book_taken_for_a_copy_is_the_owners_again(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1];
    struct fleet_host *z4 = fleet_add("z4", "x=static:1,own=yes", NULL);
    struct fleet_host *m5 = fleet_add("m5", NULL, z4);
    fleet_await_owner(m5, "x", "z4", "live");
    acquire(z4, lease);
    uint64_t token = verify(z4, lease), epoch = reply.epoch;
    release(z4, lease);
    for (int i = 0; i < 5; i++) {
        take_for_a_copy(z4);
        acquire(z4, lease); /* at once */
        assert_true(reply.epoch > epoch);
        epoch = reply.epoch;
        assert_true(verify(z4, lease) > token);
        assert_true(reply.epoch >= epoch);
        token = reply.token;
        await_seen(m5, "x", 0, 1);
        release(z4, lease);
        await_seen(m5, "x", 0, 0);
    }
}

/* Nobody asks it anything: what it publishes is an owner's word all the same. */
static void test_what_is_published_is_no_copy(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1];
    struct fleet_host *z4 = fleet_add("z4", "x=static:1,own=yes", NULL);
    struct fleet_host *m5 = fleet_add("m5", NULL, z4);
    fleet_await_owner(m5, "x", "z4", "live");
    acquire(z4, lease);
    await_seen(m5, "x", 1, 0);
    take_for_a_copy(z4);
    lease_agent_t *agent = fleet_client(z4);
    assert_int_equal(lease_release(agent, lease, LEASE_FORCE), 0);
    lease_agent_close(&agent);
    await_seen(m5, "x", 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        played(test_a_book_taken_for_a_copy_is_the_owners_again),
        played(test_what_is_published_is_no_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
