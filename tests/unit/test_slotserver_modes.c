/* What the stand-in does at large: sums up, sleeps, ends, routes. */
#define _GNU_SOURCE
#include "tests/unit/slotserver_helpers.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
        cmocka_unit_test(test_totals),    cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_terminate), cmocka_unit_test(test_program),
        cmocka_unit_test(test_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
