/* Speakers of several hosts, each with a directory of its own: who owns what is known to all, the owner
 * answers, and what it says is seen elsewhere. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zmq.h>

#include "agent/effective.h"
#include "agent/routes.h"
#include "broker/host_clock.h"
#include "tests/lib/fleet_asking.h"

static const char *const names[] = {"z4", "m5", "lap"};

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

/* The next of those names; peer: the index of the one that it is told of, -1 none. */
static void add_host(int index, const char *provider, int peer)
{
    fleet_add(names[index], provider, peer < 0 ? NULL : &fleet_hosts[peer]);
}

#define played(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static void test_the_owner_is_known_to_all(void **state)
{
    (void)state;
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    add_host(2, NULL, 1); /* hears of z4 by m5 alone */
    for (int i = 0; i < 3; i++)
        fleet_await_owner(&fleet_hosts[i], "x", "z4", "live");
    struct routes *routes = fleet_routes(&fleet_hosts[2]);
    assert_string_equal(routes_find(routes, "x")->endpoint, fleet_hosts[0].listen);
    assert_int_equal(routes->peer_count, 2);
    routes_free(&routes);

    char lease[LEASE_ID_SIZE];
    lease_agent_t *agent = fleet_client(&fleet_hosts[0]);
    struct lease held;
    assert_int_equal(lease_acquire(agent, "x", NULL, &held, NULL), 0);
    for (int i = 0; i < 3; i++)
        print_message("held seen at %s after %lld ms\n", fleet_hosts[i].name,
                      (long long)await_seen(&fleet_hosts[i], "x", 1, 0));
    assert_int_equal(lease_verify(agent, held.id, NULL, &held, NULL), 0);
    assert_true(await_seen(&fleet_hosts[2], "x", 0, 1) < stage_patience(1000));
    strcpy(lease, held.id);
    assert_int_equal(lease_release(agent, held.id, 0), 0);
    assert_true(await_seen(&fleet_hosts[2], "x", 0, 0) < stage_patience(1000));
    lease_agent_close(&agent);
}

static bool has_peers(void *arg)
{
    struct routes *routes = fleet_routes(arg);
    bool has = routes && routes->peer_count > 0;
    routes_free(&routes);
    return has;
}

/* By its number it is known at once; by a name it answers itself, after which nothing may be left of it
 * in the file: hence the time. */
static void test_a_host_is_no_peer_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fleet_host *host = fleet_prepare(names[i], NULL, NULL);
        unsigned port;
        assert_int_equal(sscanf(host->listen, "tcp://127.0.0.1:%u", &port), 1);
        snprintf(host->peers[host->peer_count++], FLEET_ENDPOINT_SIZE, "tcp://%s:%u",
                 i == 0 ? "127.0.0.1" : "localhost", port);
        fleet_start(host);
        if (i == 0)
            assert_false(has_peers(host));
    }
    usleep(2500000);
    for (int i = 0; i < 2; i++)
        assert_false(has_peers(&fleet_hosts[i]));
}

static void test_the_owner_answers(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1];
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    acquire(&fleet_hosts[0], lease);
    assert_true(await_seen(&fleet_hosts[1], "x", 1, 0) < stage_patience(1000));
    uint64_t token = verify(&fleet_hosts[0], lease);
    assert_int_equal(verify(&fleet_hosts[0], lease), token); /* a go asked again is the same */
    assert_true(await_seen(&fleet_hosts[1], "x", 0, 1) < stage_patience(1000));

    ask_for(MESSAGE_RENEW, "x");
    strcpy(request.lease, lease);
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GRANTED);
    assert_in_range(reply.left_ms, 25000, 30000);

    ask_for(MESSAGE_VERIFY, "x"); /* nothing is free: refused, with the state */
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_NO);
    assert_true(reply.ok && reply.state.size > 0);
    assert_non_null(strstr(reply.text, "subagent/7"));

    ask_for(MESSAGE_ACQUIRE, "x");
    assert_false(ask(&fleet_hosts[1])->ok);
    assert_int_equal(reply.error, LEASE_ENOTOWNER);
    assert_string_equal(reply.owner, "z4");
    assert_string_equal(reply.endpoint, fleet_hosts[0].listen);

    release(&fleet_hosts[0], lease);
    release(&fleet_hosts[0], lease);
    ask_for(MESSAGE_RENEW, "x");
    strcpy(request.lease, lease);
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GONE);

    ask_for(MESSAGE_VERIFY, "x"); /* acquires and verifies in one */
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GO);
    assert_true(reply.token > token);
    strcpy(lease, reply.lease);
    release(&fleet_hosts[0], lease);

    ask_for(MESSAGE_RENEW, "x");
    strcpy(request.lease, "nonsense");
    assert_int_equal(ask(&fleet_hosts[0])->error, LEASE_EINVAL);
}

static void test_waiting_is_the_owners_queue(void **state)
{
    (void)state;
    char first[WIRE_LEASE_MAX + 1];
    struct ask asks[2] = {0};
    uint8_t req[WIRE_ID_BYTES] = {0};
    add_host(0, "x=static:1,own=yes", -1);
    acquire(&fleet_hosts[0], first);
    verify(&fleet_hosts[0], first);
    for (int i = 0; i < 2; i++) { /* the second is a duplicate of the first */
        ask_for(MESSAGE_VERIFY, "x");
        if (i == 1)
            memcpy(request.req, req, sizeof req);
        request.wait_ms = 20000;
        assert_int_equal(ask_send(fleet_asker, fleet_hosts[0].listen, &request, &asks[i]), 0);
        memcpy(req, asks[i].req, sizeof req);
    }
    assert_int_equal(ask_receive(&asks[0], &reply, host_now_ns() + 300 * NS_PER_MS),
                     LEASE_ETIMEOUT);
    release(&fleet_hosts[0], first);
    uint64_t tokens[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask_receive(&asks[i], &reply, host_now_ns() + FLEET_ANSWER_NS), 0);
        assert_int_equal(reply.verdict, MESSAGE_GO);
        assert_true(reply.waited_ms >= 100);
        tokens[i] = reply.token;
        strcpy(first, reply.lease);
        ask_free(&asks[i]);
    }
    assert_int_equal(tokens[0], tokens[1]);

    ask_for(MESSAGE_VERIFY, "x"); /* and a wait ends */
    request.wait_ms = 200;
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_NO);
    assert_true(reply.ok);
    release(&fleet_hosts[0], first);
    await_seen(&fleet_hosts[0], "x", 0, 0);
}

static void test_a_killed_owner_comes_back(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1], second[WIRE_LEASE_MAX + 1];
    add_host(0, "x=static:2,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    acquire(&fleet_hosts[0], lease);
    uint64_t token = verify(&fleet_hosts[0], lease), epoch = reply.epoch;
    await_seen(&fleet_hosts[1], "x", 0, 1);
    stage_kill(fleet_hosts[0].pid);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "stale");
    fleet_start(&fleet_hosts[0]);
    assert_int_equal(verify(&fleet_hosts[0], lease), token);
    assert_true(reply.epoch > epoch);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    acquire(&fleet_hosts[0], second);
    assert_true(verify(&fleet_hosts[0], second) > token);
    await_seen(&fleet_hosts[1], "x", 0, 2);
    release(&fleet_hosts[0], lease);
    release(&fleet_hosts[0], second);
    await_seen(&fleet_hosts[1], "x", 0, 0);
}

/* The one that had a peer configured is restarted, and the other one, which had none. */
static void test_peers_find_each_other_again(void **state)
{
    (void)state;
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, "y=static:1,own=yes", 0);
    for (int round = 0; round < 2; round++) {
        fleet_await_owner(&fleet_hosts[0], "y", "m5", "live");
        fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
        stage_kill(fleet_hosts[round].pid);
        fleet_await_owner(&fleet_hosts[!round], round ? "y" : "x", fleet_hosts[round].name,
                          "stale");
        fleet_start(&fleet_hosts[round]);
    }
    fleet_await_owner(&fleet_hosts[0], "y", "m5", "live");
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
}

static void test_two_owners_do_not_flap(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1];
    add_host(0, "x=static:1,own=yes", -1); /* z4 */
    add_host(1, "x=static:1,own=yes", 0);  /* m5: the smaller name */
    for (int i = 0; i < 2; i++)
        fleet_await_conflict(&fleet_hosts[i], "x", "m5", 1);
    ask_for(MESSAGE_VERIFY, "x");
    assert_false(ask(&fleet_hosts[0])->ok);
    assert_int_equal(reply.error, LEASE_ENOTOWNER);
    assert_string_equal(reply.owner, "m5");
    acquire(&fleet_hosts[1], lease);
    verify(&fleet_hosts[1], lease);
    await_seen(&fleet_hosts[0], "x", 0, 1);
    release(&fleet_hosts[1], lease);
    await_seen(&fleet_hosts[0], "x", 0, 0);

    stage_kill(fleet_hosts[1].pid); /* then there is one left, which answers with larger tokens */
    uint64_t token = reply.token;
    fleet_await_owner(&fleet_hosts[0], "x", "z4", "live");
    acquire(&fleet_hosts[0], lease);
    assert_true(verify(&fleet_hosts[0], lease) > token);
}

/* ---- being stopped --------------------------------------------------------------------------- */

static void test_a_stopped_owner_distrusts_itself(void **state)
{
    (void)state;
    char held[WIRE_LEASE_MAX + 1], kept[WIRE_LEASE_MAX + 1];
    add_host(0, "x=static:2,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    acquire(&fleet_hosts[0], kept);
    verify(&fleet_hosts[0], kept);
    uint64_t epoch = reply.epoch;
    ask_for(MESSAGE_ACQUIRE, "x");
    request.ttl_ms = 1000;
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GRANTED);
    strcpy(held, reply.lease);
    kill(fleet_hosts[0].pid, SIGSTOP);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "stale");
    struct ask late = {0};
    ask_for(MESSAGE_VERIFY, "x"); /* nobody will listen when it is read */
    request.budget_ms = 100;
    strcpy(request.lease, held);
    assert_int_equal(ask_send(fleet_asker, fleet_hosts[0].listen, &request, &late), 0);
    assert_int_equal(ask_receive(&late, &reply, host_now_ns() + 6 * NS_PER_SEC), LEASE_ETIMEOUT);
    kill(fleet_hosts[0].pid, SIGCONT);
    assert_int_equal(ask_receive(&late, &reply, host_now_ns() + FLEET_ANSWER_NS), 0);
    assert_int_not_equal(reply.verdict, MESSAGE_GO);
    ask_free(&late);
    do { /* what came with the late one is taken to be as late */
        ask_for(MESSAGE_VERIFY, "x");
        strcpy(request.lease, held);
    } while (ask(&fleet_hosts[0])->undecided);
    assert_int_equal(reply.verdict, MESSAGE_GONE);
    assert_true(reply.epoch > epoch);
    verify(&fleet_hosts[0], kept);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    await_seen(&fleet_hosts[1], "x", 0, 1);
}

/* ---- holders that die, and those that are elsewhere ------------------------------------------ */

static void put_text(char *to, const char *text)
{
    snprintf(to, LEASE_ID_SIZE, "%s", text);
}

/* Takes the lease of x at m5, which does not own it. */
static int hold(int index)
{
    lease_agent_t *agent = fleet_client(&fleet_hosts[1]);
    struct lease lease;
    struct lease_request wish = {.size = sizeof wish, .label = "holder"};
    must(lease_acquire(agent, "x", &wish, &lease, NULL) == 0);
    must(index == 0 || lease_verify(agent, lease.id, NULL, &lease, NULL) == 0);
    atomic_fetch_add(&board->step, 1);
    fleet_stay();
    lease_agent_close(&agent);
    return 0;
}

static void test_the_owner_hears_of_the_dead(void **state)
{
    (void)state;
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    for (int dispatched = 0; dispatched < 2; dispatched++) {
        uint32_t before = atomic_load(&board->step);
        pid_t holder = stage_play(hold, dispatched);
        assert_true(stage_await(&board->step, before + 1));
        await_seen(&fleet_hosts[0], "x", !dispatched, dispatched);
        await_seen(&fleet_hosts[1], "x", !dispatched, dispatched);
        int64_t began = test_now_ns();
        stage_kill(holder);
        await_seen(&fleet_hosts[0], "x", 0, 0);
        int64_t took = (test_now_ns() - began) / NS_PER_MS;
        print_message("the owner heard of it after %lld ms\n", (long long)took);
        assert_true(took < stage_patience(3000));
        await_seen(&fleet_hosts[1], "x", 0, 0);
    }
}

/* Who died between two looks of the speaker: another process of that host has put it down. */
static void test_the_owner_hears_of_those_who_died_unseen(void **state)
{
    (void)state;
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    for (int dispatched = 0; dispatched < 2; dispatched++) {
        uint32_t before = atomic_load(&board->step);
        kill(fleet_hosts[1].pid, SIGSTOP);
        pid_t holder = stage_play(hold, dispatched);
        assert_true(stage_await(&board->step, before + 1));
        await_seen(&fleet_hosts[0], "x", !dispatched, dispatched);
        stage_kill(holder);
        await_seen(&fleet_hosts[1], "x", 0, 0);
        kill(fleet_hosts[1].pid, SIGCONT);
        assert_true(await_seen(&fleet_hosts[0], "x", 0, 0) < stage_patience(3000));
        fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    }
}

/* From now on no process of this host is told who owns what; its speaker goes on, as one that has run for so
 * long that its peers are not asked in its place. */
static void hide_owners(const struct fleet_host *host)
{
    char path[sizeof host->directory + 32];
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    snprintf(path, sizeof path, "%s/" EFFECTIVE_FILE, host->directory);
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    snprintf(path, sizeof path, "%s/" ROUTES_FILE, host->directory);
    do {
        unlink(path);
    } while (mkdir(path, 0700) < 0); /* over which no file is renamed */
}

/* Given back by a process whose word did not reach the owner, and which has ended: nothing else happens there of
 * which the owner would tell. */
static void test_the_owner_hears_of_what_was_given_back_only_here(void **state)
{
    (void)state;
    char id[LEASE_ID_SIZE];
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    lease_agent_t *agent = fleet_client(&fleet_hosts[1]);
    struct lease_request wish = {
        .size = sizeof wish, .flags = LEASE_BY_PID, .pid = (uint32_t)getpid()};
    struct lease lease;
    assert_int_equal(lease_acquire(agent, "x", &wish, &lease, NULL), 0);
    assert_int_equal(lease_verify(agent, lease.id, &wish, &lease, NULL), 0);
    put_text(id, lease.id);
    lease_agent_close(&agent); /* it goes on with the pid */
    await_seen(&fleet_hosts[0], "x", 0, 1);
    stage_kill(
        fleet_hosts[1].pid); /* the next one knows it as the owner's, and has announced nothing */
    fleet_start(&fleet_hosts[1]);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    await_seen(&fleet_hosts[1], "x", 0, 1);
    hide_owners(&fleet_hosts[1]);
    agent = fleet_client(&fleet_hosts[1]);
    assert_int_equal(lease_release(agent, id, 0), 0);
    lease_agent_close(&agent);
    assert_true(await_seen(&fleet_hosts[0], "x", 0, 0) < stage_patience(4000));
}

static void test_leases_by_pid_are_renewed_there(void **state)
{
    (void)state;
    char id[LEASE_ID_SIZE], command[] = "/bin/sleep", seconds[] = "600";
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    pid_t sleeper = stage_start((char *[]){command, seconds, NULL}, NULL, NULL);
    lease_agent_t *agent = fleet_client(&fleet_hosts[1]);
    struct lease_request wish = {
        .size = sizeof wish, .flags = LEASE_BY_PID, .pid = (uint32_t)sleeper, .ttl_ms = 1500};
    struct lease lease;
    assert_int_equal(lease_acquire(agent, "x", &wish, &lease, NULL), 0);
    assert_int_equal(lease_verify(agent, lease.id, &wish, &lease, NULL), 0);
    put_text(id, lease.id);
    lease_agent_close(&agent); /* it goes on with the pid */
    int64_t until = test_now_ns() + 4 * NS_PER_SEC;
    while (test_now_ns() < until) {
        ask_for(MESSAGE_VERIFY, "x");
        strcpy(request.lease, id);
        assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GO);
        usleep(100000);
    }
    stage_kill(sleeper);
    await_seen(&fleet_hosts[0], "x", 0, 0);
}

/* ---- an embedded speaker --------------------------------------------------------------------- */

static int live(int index)
{
    lease_agent_t *agent = NULL;
    struct lease_options options = {.size = sizeof options,
                                    .directory = fleet_hosts[index].directory,
                                    .host = fleet_hosts[index].name,
                                    .label = "embedded"};
    must(lease_agent_open(&options, &agent, NULL, 0) == 0);
    atomic_fetch_add(&board->step, 1);
    fleet_stay();
    lease_agent_close(&agent);
    return 0;
}

static void test_an_embedded_agent_takes_the_sockets_over(void **state)
{
    (void)state;
    char lease[WIRE_LEASE_MAX + 1];
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    stage_play(live, 0);
    assert_true(stage_await(&board->step, 1));
    acquire(&fleet_hosts[0], lease);
    uint64_t token = verify(&fleet_hosts[0], lease);
    int64_t began = test_now_ns();
    stage_kill(fleet_hosts[0].pid);
    ask_for(MESSAGE_RENEW, "x");
    strcpy(request.lease, lease);
    assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GRANTED);
    int64_t took = (test_now_ns() - began) / NS_PER_MS;
    print_message("answered again after %lld ms\n", (long long)took);
    assert_true(took < stage_patience(2000));
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    release(&fleet_hosts[0], lease);
    acquire(&fleet_hosts[0], lease);
    assert_true(verify(&fleet_hosts[0], lease) > token);

    fleet_start(&fleet_hosts[0]); /* a daemon gets all of it back */
    release(&fleet_hosts[0], lease);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    await_seen(&fleet_hosts[1], "x", 0, 0);
}

/* ---- many leases ----------------------------------------------------------------------------- */

static void test_a_large_book_travels_in_parts(void **state)
{
    (void)state;
    char label[WIRE_LABEL_MAX + 1];
    memset(label, 'l', sizeof label - 1);
    label[sizeof label - 1] = '\0';
    add_host(0, "x=static:1024,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    for (int i = 0; i < 1024; i++) {
        ask_for(MESSAGE_ACQUIRE, "x");
        strcpy(request.label, label);
        request.ttl_ms = 60000;
        assert_int_equal(ask(&fleet_hosts[0])->verdict, MESSAGE_GRANTED);
    }
    int64_t took = await_seen(&fleet_hosts[1], "x", 1024, 0);
    print_message("1,024 leases seen after %lld ms\n", (long long)took);
    add_host(2, NULL, 0); /* and by whoever comes later */
    await_seen(&fleet_hosts[2], "x", 1024, 0);
}

/* ---- rubbish --------------------------------------------------------------------------------- */

static void *dial(void *context, int type, const char *endpoint)
{
    int none = 0, most = 1000;
    void *socket = zmq_socket(context, type);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &most, sizeof most);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

static void fill_rubbish(uint8_t *bytes, size_t size, unsigned *seed)
{
    static const uint8_t heads[] = {0xdf, 0xdd, 0xdb, 0xc6, 0x81, 0x8f, 0x91, 0xc1};
    for (size_t i = 0; i < size; i++) {
        *seed = *seed * 1103515245u + 12345u;
        bytes[i] = (uint8_t)(*seed >> 16);
    }
    if (size > 0)
        bytes[0] = heads[*seed % sizeof heads];
}

/* Into the sockets that are bound: the ROUTER takes all of it, a PUB but subscriptions. */
static void test_rubbish_is_counted_only(void **state)
{
    (void)state;
    static uint8_t bytes[70000];
    char lease[WIRE_LEASE_MAX + 1];
    unsigned seed = 7;
    add_host(0, "x=static:1,own=yes", -1);
    add_host(1, NULL, 0);
    fleet_await_owner(&fleet_hosts[1], "x", "z4", "live");
    void *context = zmq_ctx_new();
    void *router = dial(context, ZMQ_DEALER, fleet_hosts[0].listen);
    void *published = dial(context, ZMQ_XSUB, fleet_hosts[0].publish);
    for (int i = 0; i < 1000; i++) {
        size_t size = i % 100 == 0 ? sizeof bytes : (size_t)(i * 7) % 3000;
        fill_rubbish(bytes, size, &seed);
        zmq_send(router, bytes, size, i % 3 == 0 ? ZMQ_SNDMORE : 0);
        zmq_send(published, bytes, size % 200, 0);
    }
    zmq_send(router, "", 0, 0);
    zmq_close(router);
    zmq_close(published);
    zmq_ctx_term(context);
    acquire(&fleet_hosts[0], lease);
    verify(&fleet_hosts[0], lease);
    await_seen(&fleet_hosts[1], "x", 0, 1);
    release(&fleet_hosts[0], lease);
    atomic_store(&board->go, 1); /* and both end as they should */
    for (int k = 0; k < 2; k++)
        assert_int_equal(stage_end(fleet_hosts[k].pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        played(test_the_owner_is_known_to_all),
        played(test_a_host_is_no_peer_of_its_own),
        played(test_the_owner_answers),
        played(test_waiting_is_the_owners_queue),
        played(test_a_killed_owner_comes_back),
        played(test_peers_find_each_other_again),
        played(test_two_owners_do_not_flap),
        played(test_a_stopped_owner_distrusts_itself),
        played(test_rubbish_is_counted_only),
        played(test_the_owner_hears_of_the_dead),
        played(test_the_owner_hears_of_those_who_died_unseen),
        played(test_the_owner_hears_of_what_was_given_back_only_here),
        played(test_leases_by_pid_are_renewed_there),
        played(test_an_embedded_agent_takes_the_sockets_over),
        played(test_a_large_book_travels_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
