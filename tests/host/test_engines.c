/* Every engine's stand-in behind a real agent: a burst of as many as there are slots is let through
 * and nobody queues, one more is not; strangers are seen by whoever can be asked, and where nobody
 * can the signal says so. What is not loaded is not loaded by us. */
#define _GNU_SOURCE
#include <signal.h>

#include "agent/probe.h"
#include "broker/host_clock.h"
#include "tests/lib/client.h"
#include "tests/lib/engineserver.h"
#include "tests/lib/host_stage.h"
#include "tests/lib/http_server.h"

enum { SLOTS = 4 };

static struct engineserver *server;
static struct engineserver_options options;
static char provider[256];
static pid_t daemon_pid;
static lease_agent_t *agent;
static struct lease leases[SLOTS];
static int jobs[2 * SLOTS]; /* sockets of requests under way */
static int job_count;

/* ---- vocabulary -------------------------------------------------------------------------------- */

static void begin(const char *kind, const char *spec_options)
{
    options.kind = kind;
    options.slots = SLOTS;
    server = engineserver_start(&options);
    assert_non_null(server);
    const char *engine = strcmp(kind, "llama-skein") == 0 ? "llama-swap" : kind;
    bool found_out = strcmp(spec_options, ",found-out") == 0;
    if (found_out)
        snprintf(provider, sizeof provider, "x=http://127.0.0.1:%u,own=yes",
                 engineserver_port(server));
    else
        snprintf(provider, sizeof provider, "x=%s+http://127.0.0.1:%u,own=yes%s", engine,
                 engineserver_port(server), spec_options);
    daemon_pid = stage_start_agent(provider);
    agent = stage_open(NULL, LEASE_OPEN_CLIENT);
    assert_non_null(agent);
}

static int set_up(void **state)
{
    engineserver_defaults(&options);
    job_count = 0;
    return stage_set_up(state);
}

static int tear_down(void **state)
{
    lease_agent_close(&agent);
    while (job_count > 0)
        client_leave(jobs[--job_count]);
    if (server)
        engineserver_stop(server);
    server = NULL;
    return stage_tear_down(state);
}

static struct engineserver_stats truth(void)
{
    struct engineserver_stats stats;
    engineserver_stats(server, &stats);
    return stats;
}

/* Requests that stay until leave_all. */
static void send_jobs(int count)
{
    while (count-- > 0)
        jobs[job_count++] =
            client_begin(engineserver_port(server), "/v1/completions", "{\"model\":\"coder\"}");
}

static void leave_all(void)
{
    while (job_count > 0)
        client_leave(jobs[--job_count]);
}

static bool works(unsigned running, unsigned waiting)
{
    int64_t deadline = client_now_ms() + STAGE_PATIENT;
    for (;;) {
        struct engineserver_stats stats = truth();
        if (stats.running == running && stats.waiting == waiting)
            return true;
        if (client_now_ms() > deadline)
            return false;
        client_pause_ms(5);
    }
}

/* One lease from acquire to go; 0 or what refused it. */
static int take(struct lease *lease, uint32_t wait_ms, struct lease_verdict *verdict)
{
    struct lease_request request = {.size = sizeof request, .wait_ms = wait_ms};
    int rc = lease_acquire(agent, "x", &request, lease, verdict);
    if (rc < 0)
        return rc;
    rc = lease_verify(agent, lease->id, &request, lease, verdict);
    if (rc < 0)
        lease_release(agent, lease->id, 0);
    return rc;
}

static void take_all(uint32_t wait_ms)
{
    struct lease_verdict verdict;
    for (int i = 0; i < SLOTS; i++) {
        int rc = take(&leases[i], wait_ms, &verdict);
        if (rc < 0)
            fail_msg("%d of %d: %s", i + 1, SLOTS, verdict.reason);
    }
}

static void give_all_back(void)
{
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(lease_release(agent, leases[i].id, 0), 0);
}

static void is_refused(const char *part)
{
    struct lease lease;
    struct lease_verdict verdict;
    assert_true(take(&lease, 0, &verdict) < 0);
    if (strstr(verdict.reason, part) == NULL)
        fail_msg("'%s' does not say '%s'", verdict.reason, part);
}

/* Asked again until it is: readings come in the background. */
static void becomes_refused(const char *part)
{
    struct lease lease;
    struct lease_verdict verdict;
    int64_t deadline = client_now_ms() + STAGE_PATIENT;
    do {
        if (take(&lease, 0, &verdict) < 0 && strstr(verdict.reason, part) != NULL)
            return;
        lease_release(agent, lease.id, 0);
        client_pause_ms(50);
    } while (client_now_ms() < deadline);
    fail_msg("never refused with '%s'", part);
}

static void becomes(const char *signal_wanted, const char *health)
{
    struct lease_view view = {0};
    int64_t deadline = client_now_ms() + STAGE_PATIENT;
    do {
        if (stage_look(agent, "x", &view) && strcmp(view.signal, signal_wanted) == 0 &&
            strcmp(view.health, health) == 0)
            return;
        client_pause_ms(20);
    } while (client_now_ms() < deadline);
    fail_msg("%s %s instead of %s %s: %s", view.signal, view.health, signal_wanted, health,
             view.detail);
}

/* ---- what is true of all of them ---------------------------------------------------------------- */

static void burst(void)
{
    take_all(0);
    send_jobs(SLOTS);
    assert_true(works(SLOTS, 0));
    is_refused("leased");
    assert_int_equal(truth().queued, 0);
    give_all_back();
    leave_all();
    assert_true(works(0, 0));
}

/* All slots are free again without a wait that is worth the name, and strangers take them. */
static void strangers(void)
{
    take_all(10000);
    give_all_back();
    send_jobs(SLOTS);
    assert_true(works(SLOTS, 0));
    client_pause_ms(MAX_AGE_MS + 5); /* no reading of before will do */
    is_refused("stranger");
    leave_all();
    assert_true(works(0, 0));
    take_all(10000);
    give_all_back();
    assert_int_equal(truth().queued, 0);
}

/* ---- each ------------------------------------------------------------------------------------------ */

static void vllm_with_load(void **state)
{
    (void)state;
    options.tracking = true;
    options.lag_ms = 500;
    begin("vllm", ",slots=4");
    becomes("inferred", "ok"); /* it has not counted anything yet */
    burst();
    send_jobs(1);
    becomes("exact", "ok");
    leave_all();
    strangers();
}

/* Its gauge does not move though it works: what cannot be told is told as that, and not as idle. */
static bool tells_nothing_of_work(void)
{
    struct lease_fleet *fleet;
    struct lease_view view = {0};
    if (!stage_look(agent, "x", &view) || lease_fleet(agent, &fleet) < 0)
        return false;
    char *json = lease_fleet_json(fleet);
    bool tells = view.in_flight == -1 && view.free == -1 &&
                 strstr(view.detail, "--enable-server-load-tracking") && json &&
                 strstr(json, "\"in_flight\":null") && strstr(json, "\"free\":null") &&
                 strstr(json, "\"signal\":\"inferred\"");
    free(json);
    lease_fleet_free(&fleet);
    return tells;
}

static void vllm_without_load(void **state)
{
    (void)state;
    options.lag_ms = 500;
    begin("vllm", ",slots=4");
    becomes("inferred", "ok");
    assert_true(tells_nothing_of_work());
    burst();
    take_all(0); /* though the gauges still show what has ended */
    give_all_back();
    send_jobs(SLOTS); /* strangers that nobody can see at once */
    assert_true(works(SLOTS, 0));
    becomes("inferred", "ok");
    send_jobs(SLOTS); /* but as many again, in a queue, can be */
    becomes("inferred", "busy");
    becomes_refused("busy");
    leave_all();
    becomes("inferred", "ok");
    take_all(10000);
}

static void sglang(void **state)
{
    (void)state;
    begin("sglang", "");
    becomes("exact", "ok");
    burst();
    strangers();
}

/* Of which nothing but its address is told. */
static void sglang_found_out(void **state)
{
    (void)state;
    begin("sglang", ",found-out");
    becomes("exact", "ok");
    burst();
    strangers();
}

static void sglang_old(void **state)
{
    (void)state;
    options.old = true;
    begin("sglang", ",slots=4");
    becomes("exact", "ok");
    burst();
    strangers();
}

static void tgi(void **state)
{
    (void)state;
    begin("tgi", "");
    becomes("none", "ok"); /* before its first request */
    burst();
    becomes("exact", "ok");
    strangers();
}

static void llama_swap(void **state)
{
    (void)state;
    begin("llama-swap", ",model=coder,slots=4");
    becomes("exact", "unloaded");
    burst();
    becomes("exact", "ok");
    strangers();
    assert_int_equal(truth().loads, 1);
    engineserver_set(server, "ttl_s", 3);
    becomes("exact", "unloaded"); /* nobody keeps it from falling out */
    assert_int_equal(truth().loads, 1);
    assert_int_equal(truth().stops, 1);
}

static void llama_swap_with_another_model(void **state)
{
    (void)state;
    begin("llama-swap", ",model=big,slots=4");
    send_jobs(1);
    becomes("none", "unloaded"); /* coder runs; who waits for big cannot be seen */
    take_all(0);
    is_refused("leased");
    give_all_back();
    assert_int_equal(truth().loads, 1);
}

static void llama_skein(void **state)
{
    (void)state;
    begin("llama-skein", ",slots=4");
    becomes("exact", "unloaded");
    burst();
    becomes("exact", "ok");
    strangers();
    assert_int_equal(truth().loads, 1);
}

/* What is not told of work, and of which what is loaded is known: our own leases decide. */
static void is_told_no_work(const char *kind, const char *spec_options, const char *signal_loaded)
{
    begin(kind, spec_options);
    becomes("exact", "unloaded"); /* nothing is loaded, so nothing is at work */
    burst();
    assert_int_equal(truth().loads, 1);
    becomes(signal_loaded, "ok");
    send_jobs(1); /* a stranger, whom nobody can see */
    assert_true(works(1, 0));
    client_pause_ms(MAX_AGE_MS + 5); /* no reading of before will do */
    struct lease_view view;
    assert_true(stage_look(agent, "x", &view));
    assert_int_equal(view.in_flight, -1);
    assert_int_equal(view.free, -1);
    leave_all();
    engineserver_set(server, "ttl_s", 2);
    becomes("exact", "unloaded"); /* nobody keeps it from falling out */
    assert_int_equal(truth().loads, 1);
    assert_int_equal(truth().stops, 1);
}

static void ollama(void **state)
{
    (void)state;
    is_told_no_work("ollama", ",model=coder,slots=4", "inferred");
}

static void ollama_with_another_model(void **state)
{
    (void)state;
    begin("ollama", ",model=big,slots=4");
    send_jobs(1);
    becomes("inferred", "unloaded"); /* coder is loaded; the first request for big loads that */
    take_all(0);
    is_refused("leased");
    give_all_back();
    assert_int_equal(truth().loads, 1);
}

static void ollama_turns_away(void **state)
{
    (void)state;
    options.max_waiting = 2;
    begin("ollama", ",model=coder,slots=4");
    take_all(0);
    for (unsigned i = 1; i <= SLOTS; i++) { /* the first waits for the model */
        send_jobs(1);
        assert_true(works(i, 0));
    }
    send_jobs(2);
    assert_true(works(SLOTS, 2));
    send_jobs(1);
    int64_t deadline = client_now_ms() + STAGE_PATIENT;
    while (truth().turned_away == 0) {
        assert_true(client_now_ms() < deadline);
        client_pause_ms(5);
    }
    is_refused("leased"); /* and no lease of ours is among those that wait or are turned away */
    assert_int_equal(truth().queued, 2);
}

static void lmstudio(void **state)
{
    (void)state;
    is_told_no_work("lmstudio", ",model=coder,slots=4", "none");
}

static void lmstudio_old(void **state)
{
    (void)state;
    options.old = true;
    is_told_no_work("lmstudio", ",model=coder,slots=4", "none");
}

/* Of what is loaded it tells how many at a time. */
static void lmstudio_tells_its_slots(void **state)
{
    (void)state;
    begin("lmstudio", ",found-out");
    send_jobs(1);
    becomes("none", "ok");
    struct lease_view view;
    assert_true(stage_look(agent, "x", &view));
    assert_int_equal(view.slots_total, SLOTS);
    assert_string_equal(view.engine, "lmstudio");
    assert_int_equal(truth().loads, 1);
}

/* Without an agent: one question, one answer. */
static void probed_once(void **state)
{
    (void)state;
    struct provider_spec spec;
    struct reading reading;
    char error[SPEC_ERROR_SIZE];
    begin("sglang", "");
    send_jobs(2);
    assert_true(works(2, 0));
    assert_int_equal(spec_parse(provider, &spec, error), 0);
    assert_int_equal(probe_now(&spec, PROBE_QUICK, NULL, 5000, host_now_ns, &reading), 0);
    assert_int_equal(reading.health, HEALTH_OK);
    assert_int_equal(reading.in_flight, 2);
    assert_int_equal(reading.slots_total, SLOTS);
}

static void a_starting_server_is_awaited(void **state)
{
    (void)state;
    options.loading_ms = 1500;
    begin("sglang", "");
    becomes("none", "loading");
    is_refused("loading");
    becomes("exact", "ok");
    take_all(10000);
}

static void a_wanted_key_is_said(void **state)
{
    (void)state;
    options.api_key = "secret";
    begin("tgi", "");
    becomes("none", "unauthorized");
    is_refused("key");
}

static void hang(struct http_server *self, int fd, const char *head)
{
    (void)self, (void)head;
    http_server_hang(fd);
}

/* Servers that take connections and never answer, whom no agent of another host speaks for: the call, and the
 * program around it, are over in time. */
static void three_that_hang_cost_one_budget(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    struct http_server hung;
    char specs[3][64];
    const char *providers[3];
    struct lease lease;
    struct lease_verdict verdict;
    http_server_start(&hung, hang, NULL);
    for (int i = 0; i < 3; i++) {
        snprintf(specs[i], sizeof specs[i], "%s=llama.cpp+http://127.0.0.1:%d", names[i],
                 hung.port);
        providers[i] = specs[i];
    }
    struct lease_options opening = {.size = sizeof opening,
                                    .directory = stage_dir,
                                    .flags = LEASE_OPEN_CLIENT,
                                    .providers = providers,
                                    .provider_count = 3};
    assert_int_equal(lease_agent_open(&opening, &agent, NULL, 0), 0);
    int64_t began = test_now_ns();
    assert_int_equal(lease_place(agent, names, 3, NULL, &lease, &verdict), LEASE_EBUSY);
    int64_t took = (test_now_ns() - began) / 1000000;
    print_message("no after %lld ms: %s\n", (long long)took, verdict.reason);
    assert_true(took <= stage_patience(1480));
    http_server_stop(&hung);
}

#define engine(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        engine(vllm_with_load),
        engine(vllm_without_load),
        engine(sglang),
        engine(sglang_found_out),
        engine(sglang_old),
        engine(tgi),
        engine(llama_swap),
        engine(llama_swap_with_another_model),
        engine(llama_skein),
        engine(ollama),
        engine(ollama_with_another_model),
        engine(ollama_turns_away),
        engine(lmstudio),
        engine(lmstudio_old),
        engine(lmstudio_tells_its_slots),
        engine(probed_once),
        engine(a_starting_server_is_awaited),
        engine(a_wanted_key_is_said),
        engine(three_that_hang_cost_one_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
