/* What goes wrong in a fleet is mended at once: states that were lost, a copy that is ahead of its owner, a
 * book that was taken for a copy. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libgen.h>
#include <zmq.h>

#include "agent/mesh_frames.h"
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

/* ---- states that are lost -------------------------------------------------------------------- */

#define ROUNDS 6

enum { LOSES, LOST }; /* of the board's counters */

struct line {
    char in[FLEET_ENDPOINT_SIZE], out[FLEET_ENDPOINT_SIZE];
};

static struct line lines[2]; /* of z4 and of m5: where each publishes, and what it hears */

static void *bind_at(void *context, int type, const char *endpoint)
{
    void *socket = zmq_socket(context, type);
    must(socket && zmq_bind(socket, endpoint) == 0);
    if (type == ZMQ_SUB)
        must(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0);
    return socket;
}

static void pass_on(struct mesh_reader *reader, void *in, void *out)
{
    zmq_msg_t frame;
    enum mesh_took took = mesh_take(reader, in, &frame);
    bool loses = atomic_load(&board->count[LOSES]) != 0;
    if (took == MESH_TOOK_MESSAGE && loses && strncmp(reader->topic, "state/", 6) == 0)
        atomic_fetch_add(&board->count[LOST], 1);
    else if (took == MESH_TOOK_MESSAGE)
        mesh_send(out, reader->topic, reader->topic_size, &frame);
    zmq_msg_close(&frame);
}

/* Each hears what the other one publishes, but for what is lost. */
static int lose(int index)
{
    (void)index;
    void *context = zmq_ctx_new(), *in[2], *out[2];
    struct mesh_reader readers[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        in[i] = bind_at(context, ZMQ_SUB, lines[i].in);
        out[i] = bind_at(context, ZMQ_PUB, lines[i].out);
    }
    atomic_fetch_add(&board->step, 1);
    pid_t parent = getppid();
    while (getppid() == parent) {
        zmq_pollitem_t items[2] = {{.socket = in[0], .events = ZMQ_POLLIN},
                                   {.socket = in[1], .events = ZMQ_POLLIN}};
        zmq_poll(items, 2, 20);
        for (int i = 0; i < 2; i++)
            if (items[i].revents)
                pass_on(&readers[i], in[i], out[!i]);
    }
    return 0;
}

static void begin_line(struct line *line)
{
    unsigned port;
    fleet_endpoint(line->in);
    assert_int_equal(sscanf(line->in, "tcp://127.0.0.1:%u", &port), 1);
    snprintf(line->out, sizeof line->out, "tcp://127.0.0.1:%u", port + 1);
}

/* A beat tells within a second of what was lost: without one soon after the change it would take half of
 * that, and more, in the mean. */
static void test_a_lost_state_is_fetched_at_once(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1];
    for (int i = 0; i < 2; i++)
        begin_line(&lines[i]);
    stage_play(lose, 0);
    assert_true(stage_await(&board->step, 1));
    struct fleet_host *z4 = fleet_prepare("z4", "x=static:1,own=yes", NULL);
    memcpy(z4->relay, lines[0].in, sizeof z4->relay);
    fleet_start(z4);
    struct fleet_host *m5 = fleet_prepare("m5", NULL, z4);
    memcpy(m5->relay, lines[1].in, sizeof m5->relay);
    fleet_start(m5);
    fleet_await_owner(m5, "x", "z4", "live");
    int64_t all = 0;
    atomic_store(&board->count[LOSES], 1);
    for (int i = 0; i < ROUNDS; i++) {
        acquire(z4, lease);
        all += await_seen(m5, "x", 1, 0);
        release(z4, lease);
        all += await_seen(m5, "x", 0, 0);
    }
    print_message("lost states were there after %lld ms\n", (long long)all / (2 * ROUNDS));
    assert_true(atomic_load(&board->count[LOST]) >= 2 * ROUNDS);
    assert_true(all / (2 * ROUNDS) < stage_patience(300));
}

/* ---- a copy that is ahead of its owner ------------------------------------------------------- */

static void path_of_epoch(char *path, size_t size)
{
    char directory[TEMP_DIR_MAX];
    snprintf(directory, sizeof directory, "%s", stage_dir);
    snprintf(path, size, "%s/leasehold/x.epoch", dirname(directory));
}

/* The host has lost all that it kept: its next epoch is this one. */
static void forget_all(const struct fleet_host *host, uint64_t next)
{
    char path[TEMP_DIR_MAX + 16 + HOST_TABLE_NAME_SIZE], name[HOST_TABLE_NAME_SIZE];
    host_table_name("x", name);
    snprintf(path, sizeof path, "%s/%s", host->directory, name);
    assert_int_equal(unlink(path), 0);
    path_of_epoch(path, sizeof path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "%llu\n", (unsigned long long)next - 2) > 0); /* made, and raised */
    assert_int_equal(fclose(file), 0);
}

/* Its book at m5 says what it says, by the words of an epoch that is far above the clock's. */
static uint64_t go_ahead(struct fleet_host *z4, struct fleet_host *m5)
{
    char lease[WIRE_LEASE_MAX + 1];
    fleet_await_owner(m5, "x", "z4", "live");
    acquire(z4, lease);
    ask_for(MESSAGE_RELEASE, "x");
    strcpy(request.lease, lease);
    request.epoch = reply.epoch + 100000;
    assert_int_equal(ask(z4)->verdict, MESSAGE_GONE);
    uint64_t epoch = reply.epoch;
    assert_true(epoch > request.epoch);
    for (int i = 0; i < 10; i++) { /* and of many versions */
        acquire(z4, lease);
        await_seen(m5, "x", 1, 0);
        release(z4, lease);
        await_seen(m5, "x", 0, 0);
    }
    return epoch;
}

static void come_back(uint64_t lost)
{
    char lease[WIRE_LEASE_MAX + 1];
    struct fleet_host *z4 = fleet_add("z4", "x=static:1,own=yes", NULL);
    struct fleet_host *m5 = fleet_add("m5", NULL, z4);
    uint64_t epoch = go_ahead(z4, m5);
    stage_kill(z4->pid);
    forget_all(z4, epoch - lost);
    fleet_start(z4);
    acquire(z4, lease);
    uint64_t began = reply.epoch;
    await_seen(m5, "x", 1, 0);
    verify(z4, lease);
    assert_true(reply.epoch >=
                epoch); /* the same, where its versions have got above the old ones */
    if (lost > 0)
        assert_true(began < epoch && reply.epoch > epoch);
    await_seen(m5, "x", 0, 1);
    release(z4, lease);
    await_seen(m5, "x", 0, 0);
}

static void test_an_owner_with_an_older_epoch_is_told(void **state)
{
    (void)state;
    come_back(1000);
}

static void test_an_owner_with_the_same_epoch_is_told(void **state)
{
    (void)state;
    come_back(0);
}

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
        played(test_a_lost_state_is_fetched_at_once),
        played(test_an_owner_with_an_older_epoch_is_told),
        played(test_an_owner_with_the_same_epoch_is_told),
        played(test_a_book_taken_for_a_copy_is_the_owners_again),
        played(test_what_is_published_is_no_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
