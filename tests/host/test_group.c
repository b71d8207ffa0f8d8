/* Two models on one GPU: real processes that want one or the other. */
#define _GNU_SOURCE

#include "tests/lib/host_stage.h"

#include <stdlib.h>

#include "tests/lib/slotserver.h"

#define GRANTS 200

static const char *const specs[] = {"m1=static:2,group=gpu", "m2=static:2,group=gpu",
                                    "m3=static:2,group=gpu"};
static const char *const limited[] = {"m1=static:2,group=gpu:2", "m2=static:2,group=gpu:2",
                                      "m3=static:2,group=gpu:2"};

static lease_agent_t *open_members(const char *const *members, size_t count)
{
    struct lease_options options = {.size = sizeof options,
                                    .directory = stage_dir,
                                    .providers = members,
                                    .provider_count = count,
                                    .flags = LEASE_OPEN_CLIENT};
    lease_agent_t *agent = NULL;
    return lease_agent_open(&options, &agent, NULL, 0) == 0 ? agent : NULL;
}

/* ---- one process ------------------------------------------------------------------------------- */

static void the_other_s_verify_says_no_and_names_the_group(void **state)
{
    (void)state;
    struct lease lease, other;
    struct lease_verdict verdict;
    lease_agent_t *agent = open_members(specs, 2);
    assert_non_null(agent);
    assert_int_equal(lease_acquire(agent, "m1", NULL, &lease, NULL), 0);
    assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, NULL), 0);
    assert_int_equal(lease_acquire(agent, "m2", NULL, &other, &verdict), LEASE_EBUSY);
    assert_non_null(strstr(verdict.reason, "m1"));
    assert_non_null(strstr(verdict.reason, "group"));
    assert_int_equal(stage_available(agent, "m2"), 0);
    assert_int_equal(stage_available(agent, "m1"), 1);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    assert_int_equal(stage_available(agent, "m2"), 2);
    assert_int_equal(lease_acquire(agent, "m2", NULL, &other, NULL), 0);
    lease_agent_close(&agent);
}

/* A process that was told of one member only knows the others by their books. */
static void a_member_that_was_not_declared_counts_too(void **state)
{
    (void)state;
    struct lease lease;
    lease_agent_t *both = open_members(specs, 2), *one = open_members(specs + 1, 1);
    assert_int_equal(lease_acquire(both, "m1", NULL, &lease, NULL), 0);
    assert_int_equal(lease_verify(both, lease.id, NULL, &lease, NULL), 0);
    assert_int_equal(lease_acquire(one, "m2", NULL, &lease, NULL), LEASE_EBUSY);
    lease_agent_close(&both);
    assert_int_equal(lease_acquire(one, "m2", NULL, &lease, NULL), 0);
    lease_agent_close(&one);
}

/* ---- work, not leases -------------------------------------------------------------------------- */

static bool is_idle_again(void *arg)
{
    struct lease lease;
    if (lease_acquire(arg, "m2", NULL, &lease, NULL) != 0)
        return false;
    lease_release(arg, lease.id, 0);
    return true;
}

static unsigned in_slots(struct slotserver *server)
{
    struct slotserver_stats stats;
    slotserver_stats(server, &stats);
    return stats.in_slots;
}

static void a_stranger_s_work_at_one_keeps_the_other(void **state)
{
    (void)state;
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.slots = 1;
    options.tps = 20;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    char m1[128], url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", slotserver_port(server));
    snprintf(m1, sizeof m1, "m1=%s,group=gpu", url);
    const char *members[] = {m1, "m2=static:1,group=gpu"};

    char body[] = "{\"prompt\":\"x\",\"n_predict\":1200}", at[96];
    snprintf(at, sizeof at, "%s/completion", url);
    pid_t stranger = stage_start((char *[]){"curl", "-s", "-d", body, at, NULL}, NULL, NULL);
    pid_t daemon = stage_start_agent(m1);
    lease_agent_t *agent = open_members(members, 2);
    struct lease lease;
    struct lease_verdict verdict;
    bool refused = false;
    for (int64_t end = test_now_ns() + INT64_C(15000000000); test_now_ns() < end && !refused;) {
        stage_available(agent, "m1"); /* somebody looks: it is read more often */
        int error = lease_acquire(agent, "m2", NULL, &lease, &verdict);
        refused = error == LEASE_EBUSY && strstr(verdict.reason, "m1");
        if (error == 0)
            lease_release(agent, lease.id, 0);
    }
    assert_true(refused);
    stage_kill(stranger);
    assert_true(eventually(is_idle_again, agent));
    lease_agent_close(&agent);
    stage_stop_agent(daemon);
    slotserver_stop(server);
}

static bool has_no_work(void *arg)
{
    return in_slots(arg) == 0;
}

/* Two models of one router: the very next verify at one sees a stranger at the other. */
static void a_stranger_at_one_model(bool with_agent)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.slots = 1;
    options.tps = 20;
    options.router = "alpha,beta";
    options.models_max = 2;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    char a[160], b[160], at[96];
    unsigned port = slotserver_port(server);
    snprintf(a, sizeof a, "m1=http://127.0.0.1:%u,model=alpha,group=gpu", port);
    snprintf(b, sizeof b, "m2=http://127.0.0.1:%u,model=beta,group=gpu", port);
    snprintf(at, sizeof at, "http://127.0.0.1:%u/completion", port);
    const char *members[] = {a, b};
    pid_t daemon = with_agent ? stage_start_agents(a, b) : 0;
    lease_agent_t *agent = open_members(members, 2);
    for (int round = 0; round < 3; round++) {
        struct lease lease;
        struct lease_verdict verdict;
        assert_true(eventually(has_no_work, server)); /* the last round's is over */
        assert_true(eventually(is_idle_again, agent));
        assert_int_equal(lease_acquire(agent, "m2", NULL, &lease, NULL), 0);
        char body[] = "{\"model\":\"alpha\",\"prompt\":\"x\",\"n_predict\":1200}";
        pid_t stranger = stage_start((char *[]){"curl", "-s", "-d", body, at, NULL}, NULL, NULL);
        for (int64_t end = test_now_ns() + INT64_C(15000000000); in_slots(server) == 0;)
            assert_true(test_now_ns() < end);
        usleep(25000); /* past what a reading of before decides */
        assert_int_equal(lease_verify(agent, lease.id, NULL, &lease, &verdict), LEASE_EBUSY);
        assert_string_equal(verdict.reason, "m1 of group gpu is in use, or was first");
        stage_kill(stranger);
    }
    lease_agent_close(&agent);
    if (with_agent)
        stage_stop_agent(daemon);
    slotserver_stop(server);
}

static void the_very_next_verify_sees_a_stranger_at_the_other(void **state)
{
    (void)state;
    a_stranger_at_one_model(false);
    a_stranger_at_one_model(true);
}

/* ---- many processes ---------------------------------------------------------------------------- */

/* board->count[k]: units in use of member k; the rest counts what must not be. */
enum { VIOLATIONS = 10, SERVED = 11 };

static int members_in_use(void)
{
    int in_use = 0;
    for (int k = 0; k < 3; k++)
        in_use += atomic_load(&board->count[k]) > 0;
    return in_use;
}

static int contend(int index, const char *const *members, int most)
{
    lease_agent_t *agent = open_members(members, 3);
    must(agent);
    struct lease_request request = {.size = sizeof request, .wait_ms = 30000};
    for (int i = 0; i < GRANTS; i++) {
        struct lease lease;
        int member = (index + i / 8) % 3;
        const char *name[] = {(const char *[]){"m1", "m2", "m3"}[member]};
        int error = lease_place(agent, name, 1, &request, &lease, NULL);
        must(error == 0);
        atomic_fetch_add(&board->count[member], 1);
        if (members_in_use() > most)
            atomic_fetch_add(&board->count[VIOLATIONS], 1);
        atomic_fetch_add(&board->count[SERVED], 1);
        atomic_fetch_sub(&board->count[member], 1);
        must(lease_release(agent, lease.id, 0) == 0);
    }
    lease_agent_close(&agent);
    return 0;
}

static int contend_for_one(int index)
{
    return contend(index, specs, 1);
}

static int contend_for_two(int index)
{
    return contend(index, limited, 2);
}

static void churn(stage_part *part)
{
    pid_t parts[6];
    for (int i = 0; i < 6; i++)
        parts[i] = stage_play(part, i);
    for (int i = 0; i < 6; i++)
        assert_int_equal(stage_end_within(parts[i], 100000), 0);
    assert_int_equal(atomic_load(&board->count[VIOLATIONS]), 0);
    assert_int_equal(atomic_load(&board->count[SERVED]), 6 * GRANTS);
}

static void never_two_members_in_use_and_everybody_served(void **state)
{
    (void)state;
    churn(contend_for_one);
}

static void never_three_where_two_are_allowed(void **state)
{
    (void)state;
    churn(contend_for_two);
}

/* Who dies with the group's lock, or with a lease, is in nobody's way. */
static int contend_for_ever(int index)
{
    while (contend(index, specs, 1) == 0)
        continue;
    return 0;
}

static void who_dies_is_in_nobody_s_way(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        pid_t victim = stage_play(contend_for_ever, round);
        uint64_t seen = atomic_load(&board->count[SERVED]);
        int64_t end = test_now_ns() + INT64_C(10000000000);
        while (atomic_load(&board->count[SERVED]) < seen + 3 && test_now_ns() < end)
            continue;
        stage_kill(victim);
        for (int k = 0; k < 3; k++)
            atomic_store(&board->count[k], 0);
    }
    lease_agent_t *agent = open_members(specs, 3);
    struct lease lease;
    struct lease_request request = {.size = sizeof request, .wait_ms = 20000};
    const char *name[] = {"m2"};
    assert_int_equal(lease_place(agent, name, 1, &request, &lease, NULL), 0);
    lease_agent_close(&agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        staged(the_other_s_verify_says_no_and_names_the_group),
        staged(a_member_that_was_not_declared_counts_too),
        staged(a_stranger_s_work_at_one_keeps_the_other),
        staged(the_very_next_verify_sees_a_stranger_at_the_other),
        staged(never_two_members_in_use_and_everybody_served),
        staged(never_three_where_two_are_allowed),
        staged(who_dies_is_in_nobody_s_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
