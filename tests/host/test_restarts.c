/* A server that comes back as another one on the same port: with more slots, with a newer API, with
 * another key. The agent follows within two readings, and `lease watch` tells. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/lib/host_stage.h"
#include "tests/lib/slotserver.h"

static unsigned port;
static char provider[256], key_path[TEMP_DIR_MAX + 16];
static pid_t agent, watch;
static lease_agent_t *looker;

static struct slotserver *start_server(const char *version, unsigned slots, const char *key)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.port = port;
    options.version = version;
    options.slots = slots;
    options.api_key = key;
    options.http_threads = 50;
    struct slotserver *server = slotserver_start(&options);
    assert_non_null(server);
    port = slotserver_port(server);
    return server;
}

static void start_agent(const char *options)
{
    snprintf(provider, sizeof provider, "x=http://127.0.0.1:%u%s", port, options);
    agent = stage_start_agent(provider);
    watch = stage_start((char *[]){LEASE, "watch", "x", NULL}, "watch.out", "watch.err");
    looker = stage_open(NULL, LEASE_OPEN_CLIENT);
    assert_non_null(looker);
}

static void stop_agent(void)
{
    lease_agent_close(&looker);
    stage_kill(watch);
    stage_stop_agent(agent);
    port = 0;
}

static bool reads(const char *health, int64_t slots)
{
    struct lease_view view;
    return stage_look(looker, "x", &view) && strcmp(view.health, health) == 0 &&
           (slots < 0 || view.slots_total == slots);
}

/* By its first questions, of which each background reading has one. */
static void await(struct slotserver *server, const char *health, int64_t slots)
{
    for (int i = 0; i < 2000 && !reads(health, slots); i++)
        usleep(10000);
    assert_true(reads(health, slots));
    if (server)
        assert_in_range(slotserver_asked(server, "/props"), 1, 2);
}

static bool is_told(const char *what)
{
    static char text[1 << 20];
    return stage_read("watch.out", text, sizeof text) && strstr(text, what);
}

static void await_told(const char *what)
{
    for (int i = 0; i < 1000 && !is_told(what); i++)
        usleep(10000);
    if (!is_told(what))
        fail_msg("lease watch does not tell %s", what);
}

static struct slotserver *replace(struct slotserver *server, const char *version, unsigned slots,
                                  const char *key)
{
    slotserver_stop(server);
    await(NULL, "down", -1);
    await_told("\"health\":\"down\"");
    return start_server(version, slots, key);
}

static void test_another_slot_count(void **state)
{
    (void)state;
    struct slotserver *server = start_server("new", 1, NULL);
    start_agent("");
    await(server, "ok", 1);
    server = replace(server, "new", 3, NULL);
    await(server, "ok", 3);
    await_told("\"slots_total\":3");
    slotserver_stop(server); /* so fast that nobody saw it down */
    server = start_server("new", 2, NULL);
    await(server, "ok", 2);
    await_told("\"slots_total\":2");
    stop_agent();
    slotserver_stop(server);
}

static void test_a_newer_api(void **state)
{
    (void)state;
    struct slotserver *server = start_server("old", 2, NULL);
    start_agent("");
    await(server, "ok", 2);
    server = replace(server, "new", 4, NULL);
    await(server, "ok", 4);
    await_told("\"slots_total\":4");
    slotserver_stop(server);
    server = start_server("old", 1, NULL);
    await(server, "ok", 1);
    stop_agent();
    slotserver_stop(server);
}

static void write_key(const char *text)
{
    FILE *file = fopen(key_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(key_path, 0600), 0);
}

static void test_another_key(void **state)
{
    (void)state;
    char option[sizeof key_path + 16];
    snprintf(key_path, sizeof key_path, "%s/key", stage_dir);
    write_key("first\n");
    snprintf(option, sizeof option, ",key-file=%s", key_path);
    struct slotserver *server = start_server("new", 2, "first");
    start_agent(option);
    await(server, "ok", 2);
    slotserver_stop(server);
    server = start_server("new", 2, "second");
    await(server, "unauthorized", -1);
    await_told("\"health\":\"unauthorized\"");
    slotserver_reset(server);
    write_key("second\n");
    await(server, "ok", 2);
    stop_agent();
    unlink(key_path);
    slotserver_stop(server);
}

/* ---- another address --------------------------------------------------------------------------- */

/* On which server, by its URL's port. */
static bool is_placed(lease_agent_t *placement, unsigned at)
{
    struct lease lease;
    struct lease_verdict verdict;
    const char *candidates[] = {"x"};
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", at);
    if (lease_place(placement, candidates, 1, NULL, &lease, &verdict) != 0)
        return false;
    bool there = strcmp(lease.url, url) == 0;
    return lease_release(placement, lease.id, 0) == 0 && there;
}

static void await_placed(lease_agent_t *placement, unsigned at)
{
    for (int i = 0; i < 1000 && !is_placed(placement, at); i++)
        usleep(10000);
    assert_true(is_placed(placement, at));
}

/* A placement that runs on has the address by what an agent left; the next agent has another one. It goes
 * there, and does not tell everybody that the server is down, which it would find at the old one. */
static void test_another_address(void **state)
{
    (void)state;
    struct slotserver *server = start_server("new", 1, NULL);
    start_agent("");
    lease_agent_t *placements[] = {stage_open(NULL, LEASE_OPEN_CLIENT), stage_open(NULL, 0)};
    for (int i = 0; i < 2; i++)
        await_placed(placements[i], port);
    stop_agent();
    slotserver_stop(server);
    server = start_server("new", 3, NULL);
    start_agent("");
    for (int i = 0; i < 2; i++)
        await_placed(placements[i], port);
    await(NULL, "ok", 3);
    for (int i = 0; i < 40; i++) {
        assert_true(is_placed(placements[i % 2], port));
        assert_true(reads("ok", 3));
        usleep(50000); /* older than any reading that a verify would take */
    }
    for (int i = 0; i < 2; i++)
        lease_agent_close(&placements[i]);
    stop_agent();
    slotserver_stop(server);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        staged(test_another_slot_count),
        staged(test_a_newer_api),
        staged(test_another_key),
        staged(test_another_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
