/* Whose client has gone away must lose its slot, however much we ask: the server notices only in a
 * second in which nobody does. */
#define _GNU_SOURCE
#include "tests/server/stage.h"

#include <signal.h>
#include <unistd.h>

#define TOKENS     6000 /* a minute of work */
#define NOTICED    5000 /* ms within which the slot must be free */
#define SETTLED    10000
#define CONTENDERS 8

static void await_in_slots(struct stage *stage, unsigned n)
{
    assert_true(STAGE_UNTIL(stage_stats(stage).in_slots == n, 5000));
}

/* How long the server went on with it. */
static int64_t until_abandoned(struct stage *stage)
{
    int64_t begun = client_now_ms();
    bool gone = STAGE_UNTIL(stage_stats(stage).abandoned > 0, 4 * NOTICED);
    int64_t ms = client_now_ms() - begun;
    print_message("  abandoned after %lld ms\n", (long long)ms);
    if (!gone)
        fail_msg("the abandoned request still runs after %lld ms", (long long)ms);
    return ms;
}

static void stranger_among_contenders(const struct company *company, unsigned slots)
{
    struct stage stage;
    stage_open(&stage, company, slots);
    stage_start(&stage);
    int stranger = stage_request(&stage, TOKENS);
    await_in_slots(&stage, 1);
    stage_contend(&stage, CONTENDERS);
    /* they have noticed it, and are well under way */
    assert_true(STAGE_UNTIL(slotserver_asked(stage.server, "/slots") >= 3, 15000));
    if (slots == 1)
        assert_int_equal(stage_number(&stage, "strangers"), 1);
    client_leave(stranger);
    int64_t ms = until_abandoned(&stage);
    await_in_slots(&stage, 0);
    assert_true(ms <= NOTICED);
    struct contest contest = stage_contest_end(&stage);
    assert_int_equal(contest.errors, 0);
    /* each waits for the end of a pause, within its own timeout, before it hears no */
    assert_true(contest.acquires >= CONTENDERS);
    stage_close(&stage);
}

static void test_one_slot(void **state)
{
    stranger_among_contenders(*state, 1);
}

/* With a slot to spare they get go after go, and the pause is theirs to make all the same. */
static void test_a_slot_to_spare(void **state)
{
    stranger_among_contenders(*state, 2);
}

/* Who asks after the slot was given back gets it soon, whether or not somebody kept reading. */
static void test_free_again(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    int stranger = stage_request(&stage, TOKENS);
    await_in_slots(&stage, 1);
    client_pause_ms(25); /* a reading of the last 20 ms decides without another one */
    struct ran ran = stage_lease(&stage, "run", "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    ran_done(&ran);
    client_leave(stranger);
    int64_t begun = client_now_ms();
    int code = -1;
    while (code != 0 && client_now_ms() - begun < 3 * NOTICED) {
        ran = stage_lease(&stage, "run", "x", "--", "true", NULL);
        code = ran.code;
        assert_true(code == 0 || code == 75);
        ran_done(&ran);
    }
    print_message("  go after %lld ms\n", (long long)(client_now_ms() - begun));
    assert_true(client_now_ms() - begun <= NOTICED);
    stage_close(&stage);
}

/* Nobody wants it; only the agent reads, as somebody watches. */
static void test_background_readings(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    int stranger = stage_request(&stage, TOKENS);
    await_in_slots(&stage, 1);
    int out;
    stage_lease_begin(&stage, &out, "watch", NULL);
    assert_true(STAGE_UNTIL(stage_number(&stage, "strangers") == 1, 10000));
    assert_true(STAGE_UNTIL(slotserver_asked(stage.server, "/slots") >= 3, 10000));
    client_leave(stranger);
    assert_true(until_abandoned(&stage) <= NOTICED);
    close(out);
    stage_close(&stage);
}

/* The holder is killed together with its client: what is left is an orphan. */
static void test_orphan_among_contenders(void **state)
{
    struct stage stage;
    char url[128];
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/completion", stage.port);
    pid_t holder =
        stage_lease_begin(&stage, NULL, "run", "x", "--", "curl", "-s", "-o", "/dev/null", "-d",
                          "{\"prompt\":\"a\",\"n_predict\":6000}", url, NULL);
    await_in_slots(&stage, 1);
    stage_contend(&stage, CONTENDERS);
    assert_true(STAGE_UNTIL(stage_number(&stage, "dispatched") == 1, 5000));
    struct ran ran = {0};
    unsigned long asked = slotserver_asked(stage.server, "/slots");
    if (stage.company->agent) /* seen by a reading, so that it is known whose work it was */
        assert_true(STAGE_UNTIL(slotserver_asked(stage.server, "/slots") > asked, 10000));
    stage_kill(&stage, holder, SIGKILL); /* takes its child along */
    assert_int_equal(stage_await(&stage, holder, 5000), 128 + SIGKILL);
    int64_t ms = until_abandoned(&stage);
    assert_true(ms <= NOTICED);
    await_in_slots(&stage, 0);
    /* and the slot is to be had again: without an agent nobody saw the work arrive, since leases
     * alone said no to everybody, and it counts until it has settled */
    bool had =
        STAGE_UNTIL(({
                        ran = stage_lease(&stage, "run", "--wait", "1", "x", "--", "true", NULL);
                        int code = ran.code;
                        ran_done(&ran);
                        code == 0;
                    }),
                    stage.company->agent ? NOTICED : SETTLED + NOTICED);
    assert_true(had);
    stage_contest_end(&stage);
    assert_int_equal(stage_stats(&stage).queued, 0);
    stage_close(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_COMPANY(test_one_slot),
        IN_COMPANY(test_a_slot_to_spare),
        IN_COMPANY(test_free_again),
        {"test_background_readings (new, agent)", test_background_readings, NULL, NULL,
         &companies[1]},
        {"test_background_readings (old, agent)", test_background_readings, NULL, NULL,
         &companies[3]},
        IN_COMPANY(test_orphan_among_contenders),
    };
    stage_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
