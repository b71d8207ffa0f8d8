/* Other people's work: strangers, what is hidden by somebody's prefill, and work in a slot that a
 * lease names by its index. */
#define _GNU_SOURCE
#include "tests/server/stage.h"

#include <fcntl.h>
#include <unistd.h>

#define BLIND_MS 4000

static void control(struct stage *stage, const char *what)
{
    char path[64];
    snprintf(path, sizeof path, "/_control?%s", what);
    struct answer answer = client_get(stage->port, path);
    assert_int_equal(answer.status, 200);
    client_done(&answer);
}

/* A reading of the last 20 ms decides a verify without another one: past those. */
static void outlive_last_reading(void)
{
    client_pause_ms(25);
}

/* The id of a held lease on x; the caller's. */
static char *acquire(struct stage *stage, const char *option, const char *value)
{
    struct ran ran = stage_lease(stage, "acquire", "x", "--ttl", "60", option, value, NULL);
    if (ran.code != 0)
        fail_msg("acquire: exit %d, %s", ran.code, ran.err);
    ran.out[strcspn(ran.out, "\n")] = '\0';
    char *id = strdup(ran.out);
    ran_done(&ran);
    return id;
}

/* Verifies and wants this exit code, with the text in the reason. */
static void verify(struct stage *stage, const char *id, int code, const char *reason)
{
    struct ran ran = stage_lease(stage, "verify", "--json", id, NULL);
    if (ran.code != code || !ran.json || !strstr(text_of(ran.json, "reason"), reason))
        fail_msg("verify: exit %d instead of %d, '%s' in: %s%s", ran.code, code, reason, ran.out,
                 ran.err);
    assert_string_equal(text_of(ran.json, "verdict"), code == 0 ? "go" : "no");
    assert_false(json_is_true(json_object_get(ran.json, "undecided")));
    ran_done(&ran);
}

/* ---- strangers -------------------------------------------------------------------------- */

static void test_stranger_is_named(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    char *id = acquire(&stage, NULL, NULL);
    int stranger = stage_request(&stage, 100000);
    assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 1, 5000));
    outlive_last_reading();
    verify(&stage, id, 75, "1 stranger at work in 1 slot, without a lease");
    free(id);
    json_t *x = stage_fleet(&stage);
    const json_t *capacity = json_object_get(x, "capacity");
    assert_int_equal(number_of(x, "strangers"), 1);
    assert_int_equal(number_of(x, "available"), 0);
    assert_int_equal(number_of(x, "free"), 0);
    assert_int_equal(number_of(x, "dispatched"), 0);
    assert_int_equal(number_of(capacity, "in_flight"), 1);
    const json_t *work = json_array_get(json_object_get(x, "work"), 0);
    assert_string_equal(text_of(work, "kind"), "stranger");
    json_decref(x);
    struct ran ran = stage_lease(&stage, "run", "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    ran_says(&ran, "1 stranger at work");
    ran_done(&ran);
    client_leave(stranger);
    stage_close(&stage);
}

/* A line of `watch` that shows so many strangers, within 10 s. */
static bool watch_tells(FILE *lines, long long strangers)
{
    char *line = NULL;
    size_t size = 0;
    bool told = false;
    int64_t end = client_now_ms() + 10000;
    while (!told && client_now_ms() < end && client_heard(fileno(lines), end - client_now_ms()) &&
           getline(&line, &size, lines) > 0) {
        json_t *value = json_loads(line, 0, NULL);
        const json_t *provider = json_object_get(value, "provider");
        const json_t *capacity = json_object_get(provider, "capacity");
        told = number_of(provider, "strangers") == strangers &&
               number_of(capacity, "in_flight") == strangers;
        json_decref(value);
    }
    free(line);
    return told;
}

static void test_watch_tells_of_strangers(void **state)
{
    struct stage stage;
    int out;
    stage_open(&stage, *state, 2);
    stage_start(&stage);
    stage_lease_begin(&stage, &out, "watch", NULL);
    FILE *lines = fdopen(out, "r");
    setvbuf(lines, NULL, _IONBF, 0);
    assert_true(watch_tells(lines, 0));
    int first = stage_request(&stage, 100000);
    assert_true(watch_tells(lines, 1));
    int second = stage_request(&stage, 100000);
    assert_true(watch_tells(lines, 2));
    client_leave(first);
    client_leave(second);
    assert_true(watch_tells(lines, 0));
    fclose(lines);
    stage_close(&stage);
}

/* Nobody has asked before, and no agent runs: whoever looks is shown what is, not nothing. */
static void test_first_look(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 3);
    stage_start(&stage);
    int stranger = stage_request(&stage, 100000);
    assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 1, 5000));
    assert_true(STAGE_UNTIL(stage_number(&stage, "strangers") == 1, 10000));
    assert_int_equal(stage_number(&stage, "free"), 2);
    client_leave(stranger);
    stage_close(&stage);
}

/* ---- hidden by a prefill ---------------------------------------------------------------- */

/* One slot is deep in a stranger's prefill, the other was given with a go. Its request is not seen
 * before the prefill's batch ends; until then, and while it runs, nobody else may be let in. */
static void test_blind_window(void **state)
{
    struct stage stage;
    char url[128], file[128];
    stage_open(&stage, *state, 2);
    stage.options.blind_ms = BLIND_MS;
    stage_start(&stage);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/completion", stage.port);
    snprintf(file, sizeof file, "%s/sent", stage.root);
    bool old = strcmp(stage.company->version, "old") == 0;
    int stranger = -1;
    if (!old) { /* which answers in the middle of a batch */
        stranger = stage_request(&stage, 1000);
        assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 1, 5000));
        outlive_last_reading(); /* else the stranger's work is taken for that of the next lease */
    }
    /* it dispatches when the file is there */
    char script[512];
    snprintf(script, sizeof script,
             "until [ -e %s ]; do sleep 0.01; done; exec curl -s -o /dev/null -d "
             "'{\"prompt\":\"a\",\"n_predict\":50}' %s",
             file, url);
    pid_t second = stage_lease_begin(&stage, NULL, "run", "x", "--", "sh", "-c", script, NULL);
    assert_true(STAGE_UNTIL(stage_number(&stage, "dispatched") == 1, 10000));
    if (old) {
        stranger = stage_request(&stage, 1000);
        assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 1, 5000));
    }
    outlive_last_reading();
    stage_contend(&stage, 4);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_true(STAGE_UNTIL(stage_stats(&stage).tasks == 2, 5000));
    int64_t sent = client_now_ms();
    assert_int_equal(stage_stats(&stage).in_slots, 1);
    assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 2, 2 * BLIND_MS));
    int64_t hidden = client_now_ms() - sent;
    print_message("  hidden for %lld ms\n", (long long)hidden);
    assert_true(hidden > 1000);
    /* the next batch: now it shows, where the server answers */
    unsigned long asked = slotserver_asked(stage.server, "/slots");
    if (old && !stage.company->agent) /* what was left unanswered counts as outstanding for 60 s */
        client_pause_ms(2 * BLIND_MS);
    else
        assert_true(STAGE_UNTIL(slotserver_asked(stage.server, "/slots") > asked + 1, 10000));
    struct contest contest = stage_contest_end(&stage);
    assert_int_equal(contest.go, 0);
    assert_int_equal(contest.errors, 0);
    assert_true(contest.refused + contest.no > 10);
    assert_true(contest.longest_ms <= 2000);
    control(&stage, "blind_ms=0");
    assert_int_equal(stage_await(&stage, second, 20000), 0);
    assert_int_equal(stage_stats(&stage).queued, 0);
    client_leave(stranger);
    stage_close(&stage);
}

/* ---- by index --------------------------------------------------------------------------- */

static void test_slot_by_index(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 2);
    stage_start(&stage);
    char *first = acquire(&stage, "--slot", "0"), *second = acquire(&stage, "--slot", "1");
    int stranger = client_begin(stage.port, "/completion",
                                "{\"prompt\":\"a\",\"n_predict\":100000,\"id_slot\":0}");
    assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 1, 5000));
    outlive_last_reading();
    verify(&stage, first, 75, "the slot it names is taken");
    verify(&stage, second, 0, "go");
    struct ran ran = stage_lease(&stage, "ls", "--json", NULL);
    const json_t *x = json_array_get(json_object_get(ran.json, "providers"), 0);
    const json_t *lease = json_array_get(json_object_get(x, "leases"), 0);
    assert_int_equal(number_of(lease, "slot"), 1);
    ran_done(&ran);
    ran = stage_lease(&stage, "acquire", "x", "--slot", "2", NULL);
    assert_int_equal(ran.code, 64);
    ran_says(&ran, "no slot with this index");
    ran_done(&ran);
    free(first);
    free(second);
    client_leave(stranger);
    stage_close(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_COMPANY(test_stranger_is_named), IN_COMPANY(test_watch_tells_of_strangers),
        IN_COMPANY(test_first_look),        IN_COMPANY(test_blind_window),
        IN_COMPANY(test_slot_by_index),
    };
    stage_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
