/* A lease that somebody releases by force under the command that runs with it. */
#define _GNU_SOURCE
#include "tests/server/stage.h"

#include <fcntl.h>
#include <unistd.h>

/* The id of the one lease on x, the caller's; NULL where there is none. */
static char *lease_of(struct stage *stage)
{
    struct ran ran = stage_lease(stage, "ls", "--json", NULL);
    const json_t *x = json_array_get(json_object_get(ran.json, "providers"), 0);
    const char *id = text_of(json_array_get(json_object_get(x, "leases"), 0), "id");
    char *copy = id[0] ? strdup(id) : NULL;
    ran_done(&ran);
    return copy;
}

static bool has_other_lease(struct stage *stage, const char *id)
{
    char *now = lease_of(stage);
    bool other = now && strcmp(now, id) != 0;
    free(now);
    return other;
}

struct act {
    struct stage stage;
    pid_t run;
    char *id;
    char end[128]; /* the command ends with 7 when this file is there */
};

/* A command runs with a lease, and the lease is lost. */
static void lose(struct act *act, const struct company *company, const char *on_lost, bool stubborn)
{
    struct stage *stage = &act->stage;
    char script[512];
    stage_open(stage, company, 1);
    snprintf(stage->spec, sizeof stage->spec, "x=static:1,own=yes");
    if (company->agent)
        stage_agent_start(stage);
    snprintf(act->end, sizeof act->end, "%s/end", stage->root);
    snprintf(script, sizeof script, "%s until [ -e %s ]; do sleep 0.02; done; exit 7",
             stubborn ? "trap '' TERM;" : "", act->end);
    act->run = stage_lease_begin(stage, NULL, "run", "--on-lost", on_lost, "x", "--", "sh", "-c",
                                 script, NULL);
    assert_true(STAGE_UNTIL((act->id = lease_of(stage)) != NULL, 5000));
    struct ran ran = stage_lease(stage, "release", "--force", act->id, NULL);
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
}

static void end_command(struct act *act)
{
    close(open(act->end, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(stage_await(&act->stage, act->run, 5000), 7);
}

static void close_act(struct act *act)
{
    char *left;
    bool gone = STAGE_UNTIL((left = lease_of(&act->stage)) == NULL || (free(left), false), 5000);
    assert_true(gone);
    free(act->id);
    stage_close(&act->stage);
}

static bool log_tells(struct stage *stage, const char *what)
{
    struct ran ran = stage_lease(stage, "log", NULL);
    bool told = strstr(ran.out, what) != NULL;
    ran_done(&ran);
    return told;
}

/* Its command lives, and what it does is counted under a new lease. */
static void test_warn(void **state)
{
    struct act act;
    lose(&act, *state, "warn", false);
    assert_true(STAGE_UNTIL(has_other_lease(&act.stage, act.id), 5000));
    assert_true(log_tells(&act.stage, "forced"));
    assert_int_equal(stage_await(&act.stage, act.run, 0), -1);
    struct ran ran = stage_lease(&act.stage, "run", "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    ran_done(&ran);
    end_command(&act);
    close_act(&act);
}

static void test_ignore(void **state)
{
    struct act act;
    lose(&act, *state, "ignore", false);
    struct ran ran = {0}; /* the slot is given to somebody else meanwhile, again and again */
    for (int i = 0; i < 30; i++) {
        ran = stage_lease(&act.stage, "run", "x", "--", "true", NULL);
        assert_int_equal(ran.code, 0);
        ran_done(&ran);
        client_pause_ms(20);
    }
    assert_int_equal(stage_await(&act.stage, act.run, 0), -1);
    end_command(&act);
    close_act(&act);
}

static void test_term(void **state)
{
    struct act act;
    lose(&act, *state, "term", false);
    assert_int_equal(stage_await(&act.stage, act.run, 3000), 124);
    close_act(&act);
}

/* One that ignores TERM is killed after a grace. */
static void test_term_ignored(void **state)
{
    struct act act;
    lose(&act, *state, "term", true);
    assert_int_equal(stage_await(&act.stage, act.run, 3000), -1);
    assert_int_equal(stage_await(&act.stage, act.run, 5000), 124);
    close_act(&act);
}

static void test_kill(void **state)
{
    struct act act;
    lose(&act, *state, "kill", true);
    assert_int_equal(stage_await(&act.stage, act.run, 3000), 124);
    close_act(&act);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_NEW_COMPANY(test_warn), IN_NEW_COMPANY(test_ignore),       IN_NEW_COMPANY(test_term),
        IN_NEW_COMPANY(test_kill), IN_NEW_COMPANY(test_term_ignored),
    };
    stage_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
