/* What the stand-in does with requests: queues, hides, pins and forgets them. */
#define _GNU_SOURCE
#include "tests/unit/slotserver_helpers.h"

#include <signal.h>
#include <unistd.h>

/* Item 6: tasks are counted, not requests; a queued one is in no slot. */
static void test_tasks_not_requests(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 4);
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    int seven = client_begin(port, "/completion",
                             "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\"],"
                             "\"n_predict\":100}");
    expect_load(server, 4, 3);
    struct answer tokens = client_post(port, "/tokenize", "{\"content\":\"a\"}");
    assert_int_equal(tokens.status, 200);
    client_done(&tokens);
    char *all = client_rest(seven);
    json_t *list = json_loads(strstr(all, "\r\n\r\n") + 4, 0, NULL);
    assert_int_equal(json_array_size(list), 7);
    json_decref(list);
    free(all);
    struct slotserver_stats stats = stats_of(server);
    assert_int_equal(stats.queued, 3);
    assert_int_equal(stats.max_in_slots, 4);
    assert_int_equal(stats.completed, 7);
    assert_in_range(stats.queue_wait_longest_ms, 490, 2000);
    slotserver_stop(server);
}

static void test_chat_of_two(void **state)
{
    (void)state;
    static const char two[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":2,"
                              "\"max_tokens\":40}";
    struct slotserver_options options = options_of("new", 4);
    struct slotserver *server = start(&options);
    int fd = client_begin(slotserver_port(server), "/v1/chat/completions", two);
    expect_load(server, 2, 0);
    free(client_rest(fd));
    slotserver_stop(server);
    options = options_of("old", 4);
    server = start(&options);
    struct answer refused = client_post(slotserver_port(server), "/v1/chat/completions", two);
    assert_int_equal(refused.status, 500);
    client_done(&refused);
    slotserver_stop(server);
}

/* Item 7: what comes while a decode runs is nowhere to be seen until it ends. */
static void test_blind_window(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 2);
    options.blind_ms = 700;
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    int first = client_begin(port, "/completion", STREAM);
    wait_in_slots(server, 1);
    int second = client_begin(port, "/completion", STREAM);
    wait_tasks(server, 2);
    assert_int_equal(metric(server, "requests_processing"), 1);
    assert_int_equal(metric(server, "requests_deferred"), 0);
    expect_load(server, 2, 0);
    assert_int_equal(stats_of(server).queued, 0);
    client_leave(first);
    client_leave(second);
    slotserver_stop(server);
}

/* Item 8: the new version answers during a decode, the old one after it. */
static void slots_during_decode(const char *version, int64_t least, int64_t most)
{
    struct slotserver_options options = options_of(version, 1);
    options.blind_ms = 400;
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    int running = client_begin(port, "/completion", STREAM);
    wait_in_slots(server, 1);
    struct answer aligned = client_get(port, "/slots");
    client_done(&aligned);
    struct answer slots = client_get(port, "/slots");
    assert_in_range(slots.ms, least, most);
    client_done(&slots);
    struct answer health = client_get(port, "/health");
    assert_in_range(health.ms, 0, 300);
    client_done(&health);
    client_leave(running);
    slotserver_stop(server);
}

static void test_slots_during_decode(void **state)
{
    (void)state;
    slots_during_decode("new", 0, 300);
    slots_during_decode("old", 300, 5000);
}

/* Item 9: in the old version slots + 2 requests in flight silence every path. */
static void test_pool_of_requests(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct slotserver_options options = options_of(old ? "old" : "new", 1);
        options.http_threads = 0;
        struct slotserver *server = start(&options);
        unsigned port = slotserver_port(server);
        int fds[3];
        for (int i = 0; i < 3; i++) {
            assert_int_equal(status_within(port, "/health", 5000), 200);
            fds[i] = client_begin(port, "/completion", STREAM);
            wait_tasks(server, (unsigned long)i + 1);
        }
        assert_int_equal(status_within(port, "/health", 300), old ? 0 : 200);
        assert_int_equal(status_within(port, "/slots", 300), old ? 0 : 200);
        struct answer stats = client_get(port, "/_stats");
        assert_int_equal(stats.status, 200);
        client_done(&stats);
        client_leave(fds[0]);
        assert_int_equal(status_within(port, "/health", 5000), 200);
        client_leave(fds[1]);
        client_leave(fds[2]);
        slotserver_stop(server);
    }
}

/* Idle connections hold a thread, too, for 5 s. */
static void test_pool_of_idle(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("old", 1);
    options.http_threads = 0;
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    int fds[3];
    int64_t begun = client_now_ms();
    for (int i = 0; i < 3; i++) {
        fds[i] = client_begin(port, "/health", NULL);
        assert_true(client_heard(fds[i], 5000));
    }
    assert_int_equal(status_within(port, "/health", 300), 0);
    assert_int_equal(status_within(port, "/health", 10000), 200);
    assert_in_range(client_now_ms() - begun, 4500, 9000);
    for (int i = 0; i < 3; i++)
        client_leave(fds[i]);
    assert_true(stats_of(server).unserved >= 2);
    slotserver_stop(server);
}

/* And one connection serves 100 requests, in both versions. */
static void test_keep_alive(void **state)
{
    (void)state;
    char bytes[1024];
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    int fd = client_begin(slotserver_port(server), NULL, NULL);
    for (int i = 0; i < 100; i++) {
        size_t length = 0;
        dprintf(fd, "GET /health HTTP/1.1\r\nHost: test\r\n\r\n");
        do {
            assert_true(client_heard(fd, 5000));
            ssize_t got = read(fd, bytes + length, sizeof(bytes) - 1 - length);
            assert_true(got > 0);
            length += (size_t)got;
            bytes[length] = '\0';
        } while (!strstr(bytes, "{\"status\":\"ok\"}"));
    }
    assert_true(client_heard(fd, 2000));
    assert_int_equal(read(fd, bytes, sizeof(bytes)), 0);
    client_leave(fd);
    slotserver_stop(server);
}

/* Item 10: headers of a queued stream */
static void test_queued_headers(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct slotserver_options options = options_of(old ? "old" : "new", 1);
        struct slotserver *server = start(&options);
        unsigned port = slotserver_port(server);
        int running = client_begin(port, "/completion", STREAM);
        wait_in_slots(server, 1);
        int queued = client_begin(port, "/completion", STREAM);
        wait_tasks(server, 2);
        assert_int_equal(client_heard(queued, old ? 5000 : 200), old);
        client_leave(running);
        assert_true(client_heard(queued, 5000));
        client_leave(queued);
        slotserver_stop(server);
    }
}

/* Item 11: a stream that was left */
static void test_stream_left(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    int running = client_begin(slotserver_port(server), "/completion", STREAM);
    assert_true(client_heard(running, 5000));
    client_leave(running);
    assert_in_range(until_in_slots(server, 0, 5000), 0, 600);
    assert_int_equal(stats_of(server).abandoned, 1);
    slotserver_stop(server);
}

/* Polled quickly, the dead live on; asked for their health only, they do not. */
static void poll_while(struct slotserver *server, const char *path, int64_t every, int64_t for_ms)
{
    int64_t deadline = client_now_ms() + for_ms;
    while (client_now_ms() < deadline && stats_of(server).in_slots) {
        struct answer answer = client_get(slotserver_port(server), path);
        client_done(&answer);
        client_pause_ms(every);
    }
}

static void whole_left(const char *version)
{
    struct slotserver_options options = options_of(version, 1);
    struct slotserver *server = start(&options);
    int fd = client_begin(slotserver_port(server), "/completion", WHOLE);
    wait_in_slots(server, 1);
    client_leave(fd);
    poll_while(server, "/slots", 300, 1300);
    assert_int_equal(stats_of(server).in_slots, 1);
    poll_while(server, "/metrics", 300, 1300);
    assert_int_equal(stats_of(server).in_slots, 1);
    poll_while(server, "/health", 50, 2500);
    assert_int_equal(stats_of(server).in_slots, 0);
    assert_int_equal(stats_of(server).abandoned, 1);
    slotserver_stop(server);
}

static void test_whole_left(void **state)
{
    (void)state;
    whole_left("new");
    whole_left("old");
}

/* A stream beside it has the same effect as polling. */
static void test_left_beside_stream(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 2);
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    int stream = client_begin(port, "/completion", STREAM);
    int whole = client_begin(port, "/completion", WHOLE);
    wait_in_slots(server, 2);
    client_leave(whole);
    assert_int_equal(until_in_slots(server, 1, 1600), -1);
    client_leave(stream);
    assert_in_range(until_in_slots(server, 0, 5000), 500, 2500);
    slotserver_stop(server);
}

static void test_queued_left(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    int running = client_begin(port, "/completion", WHOLE);
    wait_in_slots(server, 1);
    int queued = client_begin(port, "/completion", STREAM);
    wait_tasks(server, 2);
    expect_load(server, 1, 1);
    client_leave(queued);
    int64_t begun = client_now_ms();
    while (stats_of(server).abandoned == 0 && client_now_ms() - begun < 5000)
        client_pause_ms(5);
    assert_in_range(client_now_ms() - begun, 800, 2500);
    expect_load(server, 1, 0);
    client_leave(running);
    slotserver_stop(server);
}

static int begin_pinned(struct slotserver *server, int slot)
{
    char json[96];
    unsigned long tasks = stats_of(server).tasks;
    snprintf(json, sizeof(json), PINNED, slot);
    int fd = client_begin(slotserver_port(server), "/completion", json);
    wait_tasks(server, tasks + 1);
    return fd;
}

static json_int_t slot_used(struct slotserver *server, const char *id_slot)
{
    char json[96];
    snprintf(json, sizeof(json), "{\"prompt\":\"a\",\"n_predict\":1,\"id_slot\":%s}", id_slot);
    struct answer answer = client_post(slotserver_port(server), "/completion", json);
    assert_int_equal(answer.status, 200);
    json_int_t used = json_integer_value(json_object_get(answer.json, "id_slot"));
    client_done(&answer);
    return used;
}

/* Item 12 */
static void pins(const char *version)
{
    struct slotserver_options options = options_of(version, 4);
    struct slotserver *server = start(&options);
    assert_int_equal(slot_used(server, "null"), 3);
    assert_int_equal(slot_used(server, "1"), 1);
    assert_int_equal(slot_used(server, "2.7"), 2);
    assert_int_equal(slot_used(server, "\"2\""), 0);
    int running = begin_pinned(server, 2);
    wait_in_slots(server, 1);
    int second = begin_pinned(server, 2);
    expect_load(server, 1, 1);
    assert_int_equal(slot_used(server, "-1"), 3);
    assert_int_equal(slot_used(server, "1"), 1);
    expect_load(server, 1, 1);
    client_leave(running);
    expect_load(server, 1, 0);
    client_leave(second);
    wait_in_slots(server, 0);
    slotserver_stop(server);
}

static void test_pins(void **state)
{
    (void)state;
    pins("new");
    pins("old");
}

static void test_pins_out_of_range(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 4);
    struct slotserver *server = start(&options);
    assert_int_equal(slot_used(server, "7"), 3);
    assert_int_equal(slot_used(server, "-2"), 2);
    assert_int_equal(slot_used(server, "-5"), 3);
    slotserver_stop(server);
    options = options_of("old", 4);
    server = start(&options);
    int lost = begin_pinned(server, 4);
    expect_load(server, 0, 1);
    client_leave(lost);
    slotserver_stop(server);
}

/* On release the new version calls whoever waits for that very slot, the old one the first. */
static void test_pins_order(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct slotserver_options options = options_of(old ? "old" : "new", 2);
        struct slotserver *server = start(&options);
        int running[] = {begin_pinned(server, 0), begin_pinned(server, 1)};
        wait_in_slots(server, 2);
        int unpinned = begin_pinned(server, -1);
        int pinned = begin_pinned(server, 1);
        expect_load(server, 2, 2);
        slotserver_reset(server);
        client_leave(running[1]);
        expect_load(server, 2, 1);
        if (old) {
            client_leave(unpinned);
            assert_true(client_heard(pinned, 5000));
        } else {
            assert_true(client_heard(pinned, 5000));
            assert_false(client_heard(unpinned, 100));
            client_leave(unpinned);
        }
        client_leave(running[0]);
        client_leave(pinned);
        slotserver_stop(server);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks_not_requests),
        cmocka_unit_test(test_chat_of_two),
        cmocka_unit_test(test_blind_window),
        cmocka_unit_test(test_slots_during_decode),
        cmocka_unit_test(test_pool_of_requests),
        cmocka_unit_test(test_pool_of_idle),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_queued_headers),
        cmocka_unit_test(test_stream_left),
        cmocka_unit_test(test_whole_left),
        cmocka_unit_test(test_left_beside_stream),
        cmocka_unit_test(test_queued_left),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_pins_out_of_range),
        cmocka_unit_test(test_pins_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
