/* Servers that do not answer as they should, and how much we ask of them. */
#define _GNU_SOURCE
#include "tests/server/stage.h"

#include <inttypes.h>
#include <unistd.h>

#define TIMEOUT    "0.8"
#define TIMEOUT_MS 800
#define SLACK_MS   500 /* for starting a process on a busy machine */
#define OPEN_MAX   128 /* connections that are listed */

static char *acquire(struct stage *stage)
{
    struct ran ran = {0};
    STAGE_UNTIL((ran_done(&ran), ran = stage_lease(stage, "acquire", "x", "--ttl", "60", NULL),
                 ran.code == 0),
                5000); /* a probe may run out of time where the machine is busy */
    if (ran.code != 0)
        fail_msg("acquire: exit %d, %s", ran.code, ran.err);
    ran.out[strcspn(ran.out, "\n")] = '\0';
    char *id = strdup(ran.out);
    ran_done(&ran);
    client_pause_ms(25); /* a reading of the last 20 ms decides without another one */
    return id;
}

/* Verify answers so, in time. */
static void verify(struct stage *stage, const char *id, int code, const char *reason)
{
    struct ran ran = stage_lease(stage, "verify", "--json", "--timeout", TIMEOUT, id, NULL);
    if (ran.code != code || !strstr(text_of(ran.json, "reason"), reason))
        fail_msg("verify: exit %d instead of %d, '%s' in: %s%s", ran.code, code, reason, ran.out,
                 ran.err);
    assert_string_equal(text_of(ran.json, "verdict"), code == 0 ? "go" : "no");
    assert_in_range(ran.ms, 0, TIMEOUT_MS + SLACK_MS);
    ran_done(&ran);
}

static bool health_is(struct stage *stage, const char *health)
{
    json_t *x = stage_fleet(stage);
    bool is = strcmp(text_of(json_object_get(x, "capacity"), "health"), health) == 0;
    if (is && strcmp(health, "sleeping") != 0 && strcmp(health, "ok") != 0) {
        const json_t *available = json_object_get(x, "available");
        assert_false(json_is_integer(available) && json_integer_value(available) > 0);
    }
    json_decref(x);
    return is;
}

static void refused_as(struct stage *stage, const char *id, const char *reason, const char *health)
{
    verify(stage, id, 75, reason);
    assert_true(STAGE_UNTIL(health_is(stage, health), 5000));
    int64_t begun = client_now_ms();
    struct ran ran = stage_lease(stage, "run", "--timeout", TIMEOUT, "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    assert_in_range(client_now_ms() - begun, 0, TIMEOUT_MS + SLACK_MS);
    ran_says(&ran, reason);
    ran_done(&ran);
}

static void misbehaves(const struct company *company, const char *how, const char *reason,
                       const char *health)
{
    struct stage stage;
    stage_open(&stage, company, 1);
    stage_start(&stage);
    char *id = acquire(&stage);
    assert_true(slotserver_misbehave(stage.server, how));
    refused_as(&stage, id, reason, health);
    free(id);
    assert_true(slotserver_misbehave(stage.server, "none"));
    assert_true(STAGE_UNTIL(health_is(&stage, "ok"), 10000));
    struct ran ran = stage_lease(&stage, "run", "x", "--", "true", NULL);
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    stage_close(&stage);
}

static void test_hangs(void **state)
{
    misbehaves(*state, "hang", "the server is busy: it does not answer in time", "busy");
}

static void test_html(void **state)
{
    misbehaves(*state, "html", "cannot be understood", "unknown");
}

static void test_truncated(void **state)
{
    misbehaves(*state, "truncated", "cannot be understood", "unknown");
}

static void test_cut(void **state)
{
    misbehaves(*state, "cut", "cannot be understood", "unknown");
}

static void test_huge(void **state)
{
    misbehaves(*state, "huge", "cannot be understood", "unknown");
}

static void test_garbage(void **state)
{
    misbehaves(*state, "garbage", "cannot be understood", "unknown");
}

static void test_loads(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    char *id = acquire(&stage);
    client_done(&(struct answer[]){client_get(stage.port, "/_control?loading_ms=60000")}[0]);
    refused_as(&stage, id, "is loading its model", "loading");
    free(id);
    stage_close(&stage);
}

static void test_refuses(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    char *id = acquire(&stage);
    slotserver_stop(stage.server);
    stage.server = NULL;
    refused_as(&stage, id, "the server is down", "down");
    free(id);
    stage_close(&stage);
}

/* The first word that there ever is about it: no lease was had before. */
static void test_never_up(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    slotserver_stop(stage.server);
    stage.server = NULL;
    const struct company *company = *state;
    if (company->agent) /* which may have read it while it came and went */
        assert_true(STAGE_UNTIL(health_is(&stage, "down"), 5000));
    struct ran ran = stage_lease(&stage, "run", "--timeout", TIMEOUT, "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    ran_says(&ran, "the server is down");
    ran_done(&ran);
    stage_close(&stage);
}

static void test_key_missing(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage.options.api_key = "sesame";
    stage_start(&stage);
    assert_true(STAGE_UNTIL(health_is(&stage, "unauthorized"), 5000));
    struct ran ran = stage_lease(&stage, "run", "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    ran_says(&ran, "key");
    ran_done(&ran);
    stage_close(&stage);
}

/* ---- asleep ----------------------------------------------------------------------------- */

static bool is_asleep(struct stage *stage)
{
    struct answer answer = client_get(stage->port, "/props");
    bool asleep = json_is_true(json_object_get(answer.json, "is_sleeping"));
    client_done(&answer);
    return asleep;
}

/* It falls asleep although we read it, is not woken by us, and offered all the same. */
static void test_sleeps(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage.options.sleep_idle_seconds = 7; /* longer than an idle agent's interval of 5 s */
    stage_start(&stage);
    assert_true(STAGE_UNTIL(slotserver_asked(stage.server, "/slots") > 0 || !stage.company->agent,
                            5000)); /* it is read */
    int64_t begun = client_now_ms();
    assert_true(STAGE_UNTIL(is_asleep(&stage), 30000));
    assert_in_range(client_now_ms() - begun, 0, 14000);
    assert_true(STAGE_UNTIL(health_is(&stage, "sleeping"), 10000));
    assert_int_equal(stage_number(&stage, "available"), 1);
    char *id = acquire(&stage);
    verify(&stage, id, 0, "the server sleeps, the first request wakes it");
    free(id);
    assert_true(is_asleep(&stage));
    assert_int_equal(stage_stats(&stage).wakes, 0);
    stage_close(&stage);
}

/* Also while somebody looks on, who asks almost all the time as long as it has never slept. */
static void test_sleeps_while_it_is_watched(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage.options.sleep_idle_seconds = 2; /* longer than a watched agent's interval of 1.2 s */
    stage_start(&stage);
    int out;
    stage_lease_begin(&stage, &out, "watch", NULL);
    assert_true(STAGE_UNTIL(slotserver_asked(stage.server, "/slots") > 1, 10000));
    assert_true(STAGE_UNTIL(is_asleep(&stage), 30000));
    assert_true(STAGE_UNTIL(health_is(&stage, "sleeping"), 10000));
    client_pause_ms(3000); /* how long it is watched is what is tested */
    assert_true(is_asleep(&stage));
    assert_int_equal(stage_stats(&stage).wakes, 0);
    close(out);
    stage_close(&stage);
}

/* ---- how much we ask -------------------------------------------------------------------- */

struct open_socket {
    unsigned port;
    unsigned long inode;
};

/* The client's ends of connections to the server, as the kernel lists them: piece by piece, while
 * they come and go. One may be listed twice, and so may be two of which one followed the other. */
static unsigned list_connections(const struct stage *stage, struct open_socket sockets[OPEN_MAX])
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen("/proc/net/tcp", "re");
    assert_non_null(file);
    while (count < OPEN_MAX && fgets(line, sizeof line, file)) {
        struct open_socket *socket = &sockets[count];
        unsigned remote, state;
        if (sscanf(line, " %*d: %*8x:%4x %*8x:%4x %2x %*x:%*x %*x:%*x %*x %*u %*u %lu",
                   &socket->port, &remote, &state, &socket->inode) == 4 &&
            remote == stage->port && state == 1)
            count++;
    }
    fclose(file);
    return count;
}

static bool is_listed(const struct open_socket *sockets, unsigned count, struct open_socket one)
{
    for (unsigned i = 0; i < count; i++)
        if (sockets[i].port == one.port && sockets[i].inode == one.inode)
            return true;
    return false;
}

/* How many are open at once: those that two looks have listed were all open in between. */
static unsigned open_connections(const struct stage *stage)
{
    struct open_socket before[OPEN_MAX], after[OPEN_MAX];
    unsigned before_count = list_connections(stage, before), count = 0;
    if (before_count == 0)
        return 0;
    unsigned after_count = list_connections(stage, after);
    for (unsigned i = 0; i < before_count; i++)
        count += is_listed(after, after_count, before[i]) && !is_listed(before, i, before[i]);
    return count;
}

struct load {
    unsigned most_open;
    unsigned long asked, unserved;
    unsigned long turns; /* for one probe each 1.2 s, one under way before, and one after */
};

/* Looks for so long at what the server has to bear. */
static struct load measure(struct stage *stage, int64_t ms)
{
    struct load load = {0};
    int64_t begun = client_now_ms();
    unsigned long before =
        slotserver_asked(stage->server, "/props") + slotserver_asked(stage->server, "/slots");
    unsigned long unserved = stage_stats(stage).unserved;
    while (client_now_ms() - begun < ms) {
        unsigned now = open_connections(stage);
        if (now > load.most_open)
            load.most_open = now;
        client_pause_ms(2);
    }
    load.asked = slotserver_asked(stage->server, "/props") +
                 slotserver_asked(stage->server, "/slots") - before;
    load.unserved = stage_stats(stage).unserved - unserved;
    ms = client_now_ms() - begun; /* longer, where the machine is busy */
    load.turns = (unsigned long)ms / 1200 + 2;
    print_message("  in %" PRId64 " ms: %lu asked, %lu unserved, at most %u open\n", ms, load.asked,
                  load.unserved, load.most_open);
    return load;
}

/* Every HTTP thread of the old server has a request: no path answers any more. */
static void test_no_thread_left(void **state)
{
    struct stage stage;
    int requests[64];
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    char *id = acquire(&stage);
    unsigned count = 0;
    while (count < 64 && stage_stats(&stage).unserved == 0) {
        requests[count++] = stage_request(&stage, 100000);
        unsigned long want = count;
        STAGE_UNTIL(stage_stats(&stage).tasks + stage_stats(&stage).unserved >= want, 5000);
    }
    assert_in_range(count, 3, 63);
    verify(&stage, id, 75, "the server is busy: it does not answer in time");
    free(id);
    assert_true(STAGE_UNTIL(health_is(&stage, "busy"), 5000));
    stage_contend(&stage, 8);
    struct load load = measure(&stage, 8000);
    struct contest contest = stage_contest_end(&stage);
    assert_int_equal(contest.go, 0);
    assert_int_equal(contest.errors, 0);
    assert_in_range(contest.longest_ms, 0, 2000);
    /* one question of ours waits there: with an agent that one connection, without only in the book */
    assert_in_range(load.most_open, count, count + 1);
    assert_int_equal(load.asked + load.unserved, 0);
    assert_in_range(open_connections(&stage), count, count + stage.company->agent);
    for (unsigned i = 0; i < count; i++)
        client_leave(requests[i]);
    if (stage.company->agent) {
        assert_true(STAGE_UNTIL(health_is(&stage, "ok"), 5000));
        assert_true(STAGE_UNTIL(open_connections(&stage) == 0, 5000));
    }
    stage_close(&stage);
}

/* An old server answers no /slots during a prefill, and each one that it was asked sits on one of its
 * slots + 2 threads until then. */
static void test_long_prefill(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    char *id = acquire(&stage);
    client_done(&(struct answer[]){client_get(stage.port, "/_control?blind_ms=9000")}[0]);
    int request = stage_request(&stage, 1);
    assert_true(STAGE_UNTIL(stage_stats(&stage).tasks == 1, 5000));
    client_pause_ms(25);
    unsigned long asked = slotserver_asked(stage.server, "/slots");
    verify(&stage, id, 75, "the server is busy: it does not answer in time");
    free(id);
    assert_true(STAGE_UNTIL(health_is(&stage, "busy"), 5000));
    int64_t begun = client_now_ms();
    while (client_now_ms() - begun < 6000) {
        struct ran ran = stage_lease(&stage, "run", "--timeout", TIMEOUT, "x", "--", "true", NULL);
        assert_int_equal(ran.code, 75);
        ran_done(&ran);
        client_pause_ms(100);
        struct answer answer = client_get(stage.port, "/health");
        assert_int_equal(answer.status, 200);
        client_done(&answer);
    }
    assert_int_equal(slotserver_asked(stage.server, "/slots"), asked + 1);
    client_done(&(struct answer[]){client_get(stage.port, "/_control?blind_ms=0")}[0]);
    if (stage.company->agent) {
        assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 0, 15000));
        begun = client_now_ms();
        assert_true(STAGE_UNTIL(health_is(&stage, "ok"), 5000));
        assert_in_range(client_now_ms() - begun, 0, 1000); /* its answer tells */
    }
    client_leave(request);
    stage_close(&stage);
}

static void contend_at(const struct company *company, const char *how)
{
    struct stage stage;
    stage_open(&stage, company, 1);
    stage_start(&stage);
    assert_true(STAGE_UNTIL(health_is(&stage, "ok"), 5000)); /* it is known what to ask */
    assert_true(slotserver_misbehave(stage.server, how));
    client_pause_ms(25); /* past what a reading of before decides */
    stage_contend(&stage, 8);
    struct load load = measure(&stage, 6000);
    struct contest contest = stage_contest_end(&stage);
    assert_int_equal(contest.go, 0);
    assert_int_equal(contest.errors, 0);
    assert_in_range(contest.longest_ms, 0, 2000);
    assert_in_range(load.most_open, 0, 1);
    assert_in_range(load.asked, 1, load.turns);
    assert_true(STAGE_UNTIL(open_connections(&stage) == 0, 5000));
    stage_close(&stage);
}

static void test_contenders_at_hung_server(void **state)
{
    contend_at(*state, "hang");
}

static void test_contenders_at_broken_server(void **state)
{
    contend_at(*state, "html");
}

/* One slot, taken: whatever they do, one asks at a time, no more often than the pause allows. */
static void test_contenders_at_busy_server(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage.options.blind_ms = 300;
    stage_start(&stage);
    int stranger = stage_request(&stage, 100000);
    assert_true(STAGE_UNTIL(stage_stats(&stage).in_slots == 1, 5000));
    client_pause_ms(25);
    stage_contend(&stage, 8);
    struct load load = measure(&stage, 6000);
    struct contest contest = stage_contest_end(&stage);
    assert_int_equal(contest.go, 0);
    assert_int_equal(contest.errors, 0);
    assert_in_range(load.most_open, 1, 2);          /* the stranger's own, and one of ours */
    assert_in_range(load.asked, 2, 2 * load.turns); /* /props and /slots */
    client_leave(stranger);
    stage_close(&stage);
}

/* ---- how often the agent reads ---------------------------------------------------------- */

static void readings_in_10_s(struct stage *stage, const char *path, unsigned least,
                             unsigned most_of)
{
    slotserver_reset(stage->server);
    unsigned long before = slotserver_asked(stage->server, path);
    int64_t end = client_now_ms() + 10000;
    unsigned most = 0;
    while (client_now_ms() < end) {
        unsigned now = open_connections(stage);
        most = now > most ? now : most;
        client_pause_ms(2);
    }
    unsigned long readings = slotserver_asked(stage->server, path) - before;
    print_message("  %lu readings in 10 s, at most %u at once\n", readings,
                  stage_stats(stage).max_connections);
    assert_in_range(most, 0, 1);
    assert_in_range(stage_stats(stage).max_connections, 1, 2); /* one that is just being closed */
    assert_in_range(readings, least, most_of);
}

static bool has_been_forgotten(struct stage *stage, int64_t since)
{
    (void)stage;
    return client_now_ms() - since > 5500; /* nobody has looked for longer than 5 s */
}

static void test_agent_reads_idle(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    int64_t since = client_now_ms();
    assert_true(STAGE_UNTIL(has_been_forgotten(&stage, since), 10000));
    readings_in_10_s(&stage, "/props", 1, 3);
    assert_int_equal(slotserver_asked(stage.server, "/slots"), 0); /* which would keep it awake */
    stage_close(&stage);
}

static void test_agent_reads_leased(void **state)
{
    struct stage stage;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    free(acquire(&stage));
    readings_in_10_s(&stage, "/slots", 6, 9);
    stage_close(&stage);
}

static void test_agent_reads_watched(void **state)
{
    struct stage stage;
    int out;
    stage_open(&stage, *state, 1);
    stage_start(&stage);
    stage_lease_begin(&stage, &out, "watch", NULL);
    assert_true(client_heard(out, 5000));
    readings_in_10_s(&stage, "/slots", 6, 9);
    close(out);
    stage_close(&stage);
}

#define WITH_AGENT(test)                                                                           \
    {                                                                                              \
#test, test, NULL, NULL, &companies[1]                                                     \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_NEW_COMPANY(test_hangs),
        IN_NEW_COMPANY(test_html),
        IN_NEW_COMPANY(test_truncated),
        IN_NEW_COMPANY(test_cut),
        IN_NEW_COMPANY(test_huge),
        IN_NEW_COMPANY(test_garbage),
        IN_COMPANY(test_loads),
        IN_NEW_COMPANY(test_refuses),
        IN_NEW_COMPANY(test_never_up),
        IN_COMPANY(test_key_missing),
        IN_NEW_COMPANY(test_sleeps_while_it_is_watched),
        IN_NEW_COMPANY(test_sleeps), /* the old one knows no sleep */
        {"test_long_prefill", test_long_prefill, NULL, NULL, &companies[2]},
        {"test_long_prefill (agent)", test_long_prefill, NULL, NULL, &companies[3]},
        {"test_no_thread_left", test_no_thread_left, NULL, NULL, &companies[2]},
        {"test_no_thread_left (agent)", test_no_thread_left, NULL, NULL, &companies[3]},
        IN_NEW_COMPANY(test_contenders_at_hung_server),
        IN_NEW_COMPANY(test_contenders_at_broken_server),
        IN_COMPANY(test_contenders_at_busy_server),
        WITH_AGENT(test_agent_reads_idle),
        WITH_AGENT(test_agent_reads_leased),
        WITH_AGENT(test_agent_reads_watched),
    };
    stage_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
