/* What the stand-in does with requests: queues, hides, pins, forgets, sleeps and ends. */
#define _GNU_SOURCE
#include "tests/lib/client.h"
#include "tests/lib/slotserver.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STREAM "{\"prompt\":\"a\",\"stream\":true}"
#define WHOLE  "{\"prompt\":\"a\"}"
#define SHORT  "{\"prompt\":\"a\",\"n_predict\":2}"
#define PINNED "{\"prompt\":\"a\",\"stream\":true,\"id_slot\":%d}"

static struct slotserver_options options_of(const char *version, unsigned slots)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.version = version;
    options.slots = slots;
    options.metrics = true;
    options.tps = 200;
    options.prefill_tps = 100000;
    options.http_threads = 100; /* the pool has a test of its own */
    return options;
}

static struct slotserver *start(const struct slotserver_options *options)
{
    struct slotserver *server = slotserver_start(options);
    assert_non_null(server);
    return server;
}

static struct slotserver_stats stats_of(struct slotserver *server)
{
    struct slotserver_stats stats;
    slotserver_stats(server, &stats);
    return stats;
}

/* Milliseconds until so many tasks are in slots; -1 if that did not come in time. */
static int64_t until_in_slots(struct slotserver *server, unsigned n, int64_t within_ms)
{
    int64_t begun = client_now_ms();
    while (client_now_ms() - begun < within_ms) {
        if (stats_of(server).in_slots == n)
            return client_now_ms() - begun;
        client_pause_ms(2);
    }
    return -1;
}

static void wait_in_slots(struct slotserver *server, unsigned n)
{
    assert_true(until_in_slots(server, n, 5000) >= 0);
}

static void wait_tasks(struct slotserver *server, unsigned long n)
{
    int64_t deadline = client_now_ms() + 5000;
    while (stats_of(server).tasks < n && client_now_ms() < deadline)
        client_pause_ms(1);
    assert_int_equal(stats_of(server).tasks, n);
}

static long metric(struct slotserver *server, const char *name)
{
    char line[96];
    snprintf(line, sizeof(line), "\nllamacpp:%s ", name);
    struct answer answer = client_get(slotserver_port(server), "/metrics");
    assert_int_equal(answer.status, 200);
    char *found = strstr(answer.body, line);
    assert_non_null(found);
    long value = atol(found + strlen(line));
    client_done(&answer);
    return value;
}

static void expect_load(struct slotserver *server, long processing, long deferred)
{
    int64_t deadline = client_now_ms() + 5000;
    while (client_now_ms() < deadline && (metric(server, "requests_processing") != processing ||
                                          metric(server, "requests_deferred") != deferred))
        client_pause_ms(2);
    assert_int_equal(metric(server, "requests_processing"), processing);
    assert_int_equal(metric(server, "requests_deferred"), deferred);
}

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

static long status_within(unsigned port, const char *path, long ms)
{
    struct answer answer = client_ask(port, path, NULL, NULL, ms);
    long status = answer.status;
    client_done(&answer);
    return status;
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

/* Item 14: totals move when a task ends. */
static void test_totals(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    int fd = client_begin(slotserver_port(server), "/completion",
                          "{\"prompt\":\"a\",\"n_predict\":60,\"stream\":true}");
    assert_true(client_heard(fd, 5000));
    assert_int_equal(metric(server, "tokens_predicted_total"), 0);
    free(client_rest(fd));
    assert_int_equal(metric(server, "tokens_predicted_total"), 60);
    slotserver_stop(server);
}

static bool sleeping(struct slotserver *server)
{
    struct answer props = client_get(slotserver_port(server), "/props");
    bool is = json_is_true(json_object_get(props.json, "is_sleeping"));
    client_done(&props);
    return is;
}

static void wait_asleep(struct slotserver *server)
{
    int64_t deadline = client_now_ms() + 5000;
    while (!sleeping(server) && client_now_ms() < deadline)
        client_pause_ms(10);
    assert_true(sleeping(server));
}

/* Item 16 */
static void test_sleep(void **state)
{
    (void)state;
    static const char *const harmless[] = {"/health", "/props", "/metrics", "/v1/models"};
    struct slotserver_options options = options_of("new", 1);
    options.sleep_idle_seconds = 0.5;
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    wait_asleep(server);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(status_within(port, harmless[i], 5000), 200);
    assert_true(sleeping(server));
    assert_int_equal(stats_of(server).wakes, 0);
    struct answer slots = client_get(port, "/slots");
    assert_true(slots.ms >= 125);
    assert_int_equal(json_object_size(json_array_get(slots.json, 0)), 4);
    client_done(&slots);
    assert_int_equal(stats_of(server).wakes, 1);
    for (int64_t end = client_now_ms() + 1200; client_now_ms() < end; client_pause_ms(100)) {
        assert_int_equal(status_within(port, "/slots", 5000), 200);
        assert_false(sleeping(server));
    }
    wait_asleep(server);
    struct answer answer = client_post(port, "/completion", SHORT);
    assert_int_equal(answer.status, 200);
    client_done(&answer);
    assert_int_equal(stats_of(server).wakes, 2);
    slotserver_stop(server);
}

/* Item 17, in one process and as a program */
static void test_terminate(void **state)
{
    (void)state;
    struct slotserver_options options = options_of("new", 1);
    struct slotserver *server = start(&options);
    int stream = client_begin(slotserver_port(server), "/completion", STREAM);
    assert_true(client_heard(stream, 5000));
    assert_true(slotserver_terminate(server));
    client_leave(stream);
    slotserver_stop(server);

    server = start(&options);
    int whole = client_begin(slotserver_port(server), "/completion", WHOLE);
    wait_in_slots(server, 1);
    assert_false(slotserver_terminate(server));
    assert_true(slotserver_lingers(server));
    client_leave(whole);
    int64_t begun = client_now_ms();
    while (slotserver_lingers(server))
        assert_true(client_now_ms() - begun < 5000);
    slotserver_stop(server);
}

static pid_t run_program(const char *version, unsigned *port)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl(SLOTSERVER, "slotserver", "--version", version, "--exit-after", "20", NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    assert_int_equal(fscanf(out, "slotserver: listening on http://127.0.0.1:%u", port), 1);
    fclose(out);
    return pid;
}

static int ended(pid_t pid)
{
    int status = 0;
    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_program(void **state)
{
    (void)state;
    unsigned port;
    pid_t pid = run_program("new", &port);
    assert_int_equal(status_within(port, "/health", 5000), 200);
    assert_int_equal(ended(pid), 0);

    pid = run_program("old", &port);
    int stream = client_begin(port, "/completion", STREAM);
    assert_true(client_heard(stream, 5000));
    int status = ended(pid);
    client_leave(stream);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static const char *model_state(struct slotserver *server, size_t i, char *state)
{
    struct answer models = client_get(slotserver_port(server), "/v1/models");
    json_t *model = json_array_get(json_object_get(models.json, "data"), i);
    json_t *value = json_object_get(json_object_get(model, "status"), "value");
    strcpy(state, json_string_value(value));
    client_done(&models);
    return state;
}

/* Item 18 */
static void test_router(void **state)
{
    (void)state;
    char now[64];
    struct slotserver_options options = options_of("new", 4);
    options.router = "slow,tiny";
    options.models_max = 1;
    struct slotserver *server = start(&options);
    unsigned port = slotserver_port(server);
    assert_int_equal(status_within(port, "/slots", 5000), 400);
    assert_int_equal(status_within(port, "/metrics", 5000), 400);
    assert_int_equal(status_within(port, "/slots?model=nosuch", 5000), 400);
    assert_int_equal(status_within(port, "/slots?model=tiny&autoload=false", 5000), 400);
    assert_int_equal(status_within(port, "/health", 5000), 200);
    struct answer props = client_get(port, "/props");
    assert_string_equal(json_string_value(json_object_get(props.json, "role")), "router");
    client_done(&props);
    assert_string_equal(model_state(server, 1, now), "unloaded");
    assert_int_equal(stats_of(server).model_loads, 0);

    struct answer slots = client_get(port, "/slots?model=tiny");
    assert_true(slots.ms >= 170);
    assert_int_equal(json_array_size(slots.json), 4);
    client_done(&slots);
    assert_string_equal(model_state(server, 1, now), "loaded");
    assert_int_equal(status_within(port, "/slots?model=tiny&autoload=false", 5000), 200);
    struct answer answer =
        client_post(port, "/completion", "{\"prompt\":\"a\",\"n_predict\":2,\"model\":\"slow\"}");
    assert_int_equal(answer.status, 200);
    client_done(&answer);
    assert_string_equal(model_state(server, 1, now), "unloaded");
    assert_int_equal(stats_of(server).model_loads, 2);
    assert_int_equal(stats_of(server).model_evictions, 1);
    slotserver_stop(server);
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
        cmocka_unit_test(test_queued_headers),
        cmocka_unit_test(test_stream_left),
        cmocka_unit_test(test_whole_left),
        cmocka_unit_test(test_left_beside_stream),
        cmocka_unit_test(test_queued_left),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_pins_out_of_range),
        cmocka_unit_test(test_pins_order),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_terminate),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
