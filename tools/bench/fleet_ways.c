/* Ways to ask somebody else whether one may go on, and the loop that measures them in turns. */
#define _GNU_SOURCE

#include <curl/curl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/lease.h"
#include "agent/routes.h"
#include "proto/message.h"
#include "tools/bench/fleet.h"

#define WARM_UP 200
#define RUN_OF  100 /* questions of one way in a row, flat out */
#define JOIN_NS INT64_C(20000000000)
#define BYTES   8192

/* ---- bare REQ/REP ----------------------------------------------------------------------------- */

struct bare {
    pid_t server;
    void *context, *req;
    size_t asked, answered; /* bytes, as those of a verify */
};

/* What the library says to an owner, and hears. */
static void measure_sizes(struct bare *bare)
{
    static uint8_t bytes[MESSAGE_PACKED_MAX];
    struct message request, reply;
    uint8_t id[WIRE_ID_BYTES] = {1};
    message_request(&request, MESSAGE_VERIFY, id);
    snprintf(request.name, sizeof request.name, "asker");
    snprintf(request.provider, sizeof request.provider, FLEET_PROVIDER);
    snprintf(request.lease, sizeof request.lease, FLEET_PROVIDER ":aaaaaaaaaaaaaaaaaaaaaaaaaa");
    snprintf(request.host, sizeof request.host, "asker");
    snprintf(request.label, sizeof request.label, "bench");
    request.pid = request.holder_pid = 4242;
    request.units = 1;
    request.budget_ms = 750;
    request.epoch = 1796000000;
    message_reply(&reply, &request);
    reply.ok = reply.dispatched = true;
    memcpy(reply.lease, request.lease, sizeof reply.lease);
    reply.verdict = MESSAGE_GO;
    reply.token = UINT64_C(1883242496000017);
    reply.left_ms = 30000;
    reply.units = 1;
    reply.epoch = 1796000000;
    reply.state_version = UINT64_C(4000000000);
    message_encode(&request, bytes, sizeof bytes, &bare->asked, NULL);
    message_encode(&reply, bytes, sizeof bytes, &bare->answered, NULL);
}

static void serve_bare(int fd, size_t answered)
{
    static char bytes[BYTES];
    char endpoint[128] = "";
    size_t size = sizeof endpoint;
    void *rep = zmq_socket(zmq_ctx_new(), ZMQ_REP);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!rep || zmq_bind(rep, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(rep, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0 ||
        write(fd, endpoint, sizeof endpoint) != sizeof endpoint)
        _exit(70);
    for (;;) {
        zmq_recv(rep, bytes, sizeof bytes, 0);
        zmq_send(rep, bytes, answered, 0);
    }
}

static void bare_close(void *state)
{
    struct bare *bare = state;
    if (bare->req)
        zmq_close(bare->req);
    if (bare->context)
        zmq_ctx_term(bare->context);
    if (bare->server > 0) {
        kill(bare->server, SIGKILL);
        waitpid(bare->server, NULL, 0);
    }
    free(bare);
}

static bool bare_open(const struct fleet_place *place, void **state)
{
    (void)place;
    int ends[2], none = 0;
    char endpoint[128];
    struct bare *bare = calloc(1, sizeof *bare);
    if (!bare || pipe(ends) < 0) {
        free(bare);
        return false;
    }
    measure_sizes(bare);
    bare->server = fork();
    if (bare->server == 0)
        serve_bare(ends[1], bare->answered);
    close(ends[1]);
    bool ok = bare->server > 0 && read(ends[0], endpoint, sizeof endpoint) == sizeof endpoint;
    close(ends[0]);
    bare->context = zmq_ctx_new();
    bare->req = bare->context ? zmq_socket(bare->context, ZMQ_REQ) : NULL;
    ok = ok && bare->req && zmq_setsockopt(bare->req, ZMQ_LINGER, &none, sizeof none) == 0 &&
         zmq_connect(bare->req, endpoint) == 0;
    if (ok)
        *state = bare;
    else
        bare_close(bare);
    return ok;
}

static int64_t bare_once(void *state)
{
    static char bytes[BYTES];
    struct bare *bare = state;
    int64_t before = fleet_now_ns();
    if (zmq_send(bare->req, bytes, bare->asked, 0) < 0 ||
        zmq_recv(bare->req, bytes, sizeof bytes, 0) < 0)
        return -1;
    return fleet_now_ns() - before;
}

const struct fleet_way fleet_way_bare = {"libzmq REQ/REP", "same sizes", bare_open, bare_once,
                                         bare_close};

/* ---- leasehold -------------------------------------------------------------------------------- */

struct leased {
    struct fleet_agent owner, host; /* host.pid 0: the asker has no agent, only a peer */
    lease_agent_t *agent;
    struct lease held; /* to be verified next */
};

static void leased_close(void *state)
{
    struct leased *leased = state;
    lease_agent_close(&leased->agent);
    fleet_agent_end(&leased->host, 1);
    fleet_agent_end(&leased->owner, 1);
    free(leased);
}

/* Until the host's own agent knows the owner. */
static bool await_owner(const char *directory)
{
    int64_t end = fleet_now_ns() + JOIN_NS;
    bool known = false;
    while (!known && fleet_now_ns() < end) {
        struct routes *routes = NULL;
        const struct route *route =
            routes_read(directory, &routes) == 0 ? routes_find(routes, FLEET_PROVIDER) : NULL;
        known = route && route->endpoint[0];
        routes_free(&routes);
        fleet_sleep_ns(20000000);
    }
    return known;
}

static bool open_leased(const struct fleet_place *place, const char *suffix, bool own_agent,
                        void **state)
{
    char owner[32], asker[32], alone[PATH_MAX + 8], error[512] = "";
    struct leased *leased = calloc(1, sizeof *leased);
    if (!leased)
        return false;
    snprintf(owner, sizeof owner, "owner-%s", suffix);
    snprintf(asker, sizeof asker, "asker-%s", suffix);
    snprintf(alone, sizeof alone, "%.1000s", place->directory);
    bool ok = fleet_agent_start(place, &leased->owner, owner, FLEET_PROVIDER "=static:64,own=yes",
                                NULL, NULL) &&
              fleet_agent_await(&leased->owner);
    if (ok && own_agent)
        ok = fleet_agent_start(place, &leased->host, asker, NULL, leased->owner.endpoint, NULL) &&
             await_owner(leased->host.directory);
    const char *peer = leased->owner.endpoint;
    struct lease_options options = {.size = sizeof options,
                                    .directory = own_agent ? leased->host.directory : alone,
                                    .host = "asker",
                                    .label = "bench",
                                    .flags = LEASE_OPEN_CLIENT,
                                    .peers = &peer,
                                    .peer_count = own_agent ? 0 : 1};
    if (ok && lease_agent_open(&options, &leased->agent, error, sizeof error) < 0) {
        fprintf(stderr, "bench: %s\n", error);
        ok = false;
    }
    if (ok)
        ok = lease_acquire(leased->agent, FLEET_PROVIDER, NULL, &leased->held, NULL) == 0;
    if (ok)
        *state = leased;
    else
        leased_close(leased);
    return ok;
}

static bool verify_open(const struct fleet_place *place, void **state)
{
    return open_leased(place, "verify", true, state);
}

static bool verify_peer_open(const struct fleet_place *place, void **state)
{
    return open_leased(place, "peer", false, state);
}

static bool place_open(const struct fleet_place *place, void **state)
{
    return open_leased(place, "place", true, state);
}

/* Only the verify is measured, which is all that is waited for right before dispatch. It comes first, as
 * cold as the others: the lease for the next one is acquired after it. */
static int64_t verify_once(void *state)
{
    struct leased *leased = state;
    struct lease lease = leased->held;
    struct lease_verdict verdict = {0};
    int64_t before = fleet_now_ns();
    int error = lease_verify(leased->agent, lease.id, NULL, NULL, &verdict);
    int64_t took = fleet_now_ns() - before;
    lease_release(leased->agent, lease.id, 0);
    bool next = lease_acquire(leased->agent, FLEET_PROVIDER, NULL, &leased->held, NULL) == 0;
    return next && error == 0 && verdict.basis == LEASE_BASIS_OWNER ? took : -1;
}

/* Acquire and verify, in one question. */
static int64_t place_once(void *state)
{
    struct leased *leased = state;
    const char *provider = FLEET_PROVIDER;
    struct lease lease;
    struct lease_verdict verdict;
    int64_t before = fleet_now_ns();
    int error = lease_place(leased->agent, &provider, 1, NULL, &lease, &verdict);
    int64_t took = fleet_now_ns() - before;
    if (error < 0)
        return -1;
    lease_release(leased->agent, lease.id, 0);
    return verdict.basis == LEASE_BASIS_OWNER ? took : -1;
}

const struct fleet_way fleet_way_verify = {"leasehold", "verify", verify_open, verify_once,
                                           leased_close};
const struct fleet_way fleet_way_verify_peer = {"leasehold, --peer", "verify", verify_peer_open,
                                                verify_once, leased_close};
const struct fleet_way fleet_way_place = {"leasehold", "acquire+verify", place_open, place_once,
                                          leased_close};

/* ---- Redis ------------------------------------------------------------------------------------ */

static void redis_close(void *state)
{
    redisFree(state);
}

static bool split_address(const char *address, char *host, size_t size, int *port)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    if (!colon || (size_t)(colon - address) >= size)
        return false;
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    *port = atoi(colon + 1);
    return *port > 0;
}

static bool redis_open(const struct fleet_place *place, void **state)
{
    char host[64];
    int port;
    if (!split_address(place->redis, host, sizeof host, &port))
        return false;
    redisContext *context = redisConnect(host, port);
    if (context && !context->err) {
        *state = context;
        return true;
    }
    fprintf(stderr, "bench: redis at %s: %s\n", place->redis,
            context ? context->errstr : "no memory");
    if (context)
        redisFree(context);
    return false;
}

static bool said_ok(redisReply *reply)
{
    bool ok = reply && reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
    if (reply)
        freeReplyObject(reply);
    return ok;
}

static int64_t redis_once(void *state)
{
    char key[64];
    snprintf(key, sizeof key, "bench:%d", (int)getpid());
    int64_t before = fleet_now_ns();
    bool ok = said_ok(redisCommand(state, "SET %s %s NX PX 30000", key, "asker:4242"));
    int64_t took = fleet_now_ns() - before;
    redisReply *reply = redisCommand(state, "DEL %s", key);
    if (reply)
        freeReplyObject(reply);
    return ok && reply ? took : -1;
}

const struct fleet_way fleet_way_redis = {"Redis, TCP", "SET NX PX", redis_open, redis_once,
                                          redis_close};

/* ---- etcd: a transaction through its JSON gateway ----------------------------------------------- */

/* "bench" and "asker:4242" in base64, as the gateway wants them. */
#define ETCD_KEY "YmVuY2g="
#define ETCD_TAKE                                                                                  \
    "{\"compare\":[{\"key\":\"" ETCD_KEY                                                           \
    "\",\"target\":\"CREATE\",\"create_revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":" \
    "\"" ETCD_KEY "\",\"value\":\"YXNrZXI6NDI0Mg==\"}}]}"
#define ETCD_DROP "{\"key\":\"" ETCD_KEY "\"}"

struct etcd {
    CURL *curl;
    char txn[128], drop[128];
    char answer[BYTES];
    size_t size;
};

static size_t etcd_write(char *bytes, size_t one, size_t count, void *arg)
{
    struct etcd *etcd = arg;
    size_t size = one * count, room = sizeof etcd->answer - 1 - etcd->size;
    memcpy(etcd->answer + etcd->size, bytes, size < room ? size : room);
    etcd->size += size < room ? size : room;
    etcd->answer[etcd->size] = '\0';
    return size;
}

static bool etcd_post(struct etcd *etcd, const char *url, const char *body)
{
    etcd->size = 0;
    curl_easy_setopt(etcd->curl, CURLOPT_URL, url);
    curl_easy_setopt(etcd->curl, CURLOPT_POSTFIELDS, body);
    return curl_easy_perform(etcd->curl) == CURLE_OK;
}

static void etcd_close(void *state)
{
    struct etcd *etcd = state;
    curl_easy_cleanup(etcd->curl);
    free(etcd);
}

static bool etcd_open(const struct fleet_place *place, void **state)
{
    struct etcd *etcd = place->etcd ? calloc(1, sizeof *etcd) : NULL;
    if (!etcd)
        return false;
    etcd->curl = curl_easy_init();
    snprintf(etcd->txn, sizeof etcd->txn, "http://%.64s/v3/kv/txn", place->etcd);
    snprintf(etcd->drop, sizeof etcd->drop, "http://%.64s/v3/kv/deleterange", place->etcd);
    curl_easy_setopt(etcd->curl, CURLOPT_WRITEFUNCTION, etcd_write);
    curl_easy_setopt(etcd->curl, CURLOPT_WRITEDATA, etcd);
    curl_easy_setopt(etcd->curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(etcd->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(etcd->curl, CURLOPT_TIMEOUT_MS, 5000L);
    if (etcd_post(etcd, etcd->drop, ETCD_DROP)) {
        *state = etcd;
        return true;
    }
    fprintf(stderr, "bench: etcd at %s does not answer\n", place->etcd);
    etcd_close(etcd);
    return false;
}

static int64_t etcd_once(void *state)
{
    struct etcd *etcd = state;
    int64_t before = fleet_now_ns();
    bool ok = etcd_post(etcd, etcd->txn, ETCD_TAKE) && strstr(etcd->answer, "\"succeeded\":true");
    int64_t took = fleet_now_ns() - before;
    return etcd_post(etcd, etcd->drop, ETCD_DROP) && ok ? took : -1;
}

const struct fleet_way fleet_way_etcd = {"etcd, JSON", "txn create", etcd_open, etcd_once,
                                         etcd_close};

/* ---- measuring -------------------------------------------------------------------------------- */

struct run {
    const struct fleet_way *way;
    void *state;
    int64_t *times;
    uint32_t count, failed;
    int64_t spent_ns;
};

static void ask(struct run *run)
{
    int64_t took = run->way->once(run->state);
    if (took < 0) {
        run->failed++;
        return;
    }
    run->times[run->count++] = took;
    run->spent_ns += took;
}

/* One after the other, so that all of them are disturbed by the same. Not in step: an owner tells the
 * fleet of a change 10 ms later, which at a hundred a second would always be just now. */
static void ask_paced(struct run *runs, uint32_t ways, uint32_t count, uint32_t a_second)
{
    int64_t next = fleet_now_ns(), gap = INT64_C(1000000000) / ((int64_t)a_second * ways);
    for (uint32_t n = 0; n < count; n++)
        for (uint32_t i = 0; i < ways; i++) {
            next += gap / 2 + random() % gap;
            struct timespec t = {next / 1000000000, next % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
            ask(&runs[i]);
        }
}

static void ask_flat_out(struct run *runs, uint32_t ways, uint32_t count)
{
    for (uint32_t done = 0; done < count; done += RUN_OF)
        for (uint32_t i = 0; i < ways; i++)
            for (uint32_t n = 0; n < RUN_OF && done + n < count; n++)
                ask(&runs[i]);
}

static double at(const struct run *run, double part)
{
    return run->count ? (double)run->times[(uint32_t)((double)(run->count - 1) * part)] / 1e3 : 0;
}

static void conclude(struct run *run, struct fleet_times *times)
{
    qsort(run->times, run->count, sizeof *run->times, fleet_by_time);
    *times = (struct fleet_times){.count = run->count,
                                  .failed = run->failed,
                                  .p50_us = at(run, 0.5),
                                  .p99_us = at(run, 0.99),
                                  .p999_us = at(run, 0.999)};
    times->a_second = run->spent_ns ? (double)run->count * 1e9 / (double)run->spent_ns : 0;
    run->count = run->failed = 0;
    run->spent_ns = 0;
}

static uint32_t open_all(const struct fleet_place *place, const struct fleet_settings *settings,
                         struct run *runs)
{
    static const struct fleet_way *const ways[] = {&fleet_way_bare,        &fleet_way_verify,
                                                   &fleet_way_verify_peer, &fleet_way_place,
                                                   &fleet_way_redis,       &fleet_way_etcd};
    uint32_t count = 0;
    uint32_t most = settings->paced > settings->flat_out ? settings->paced : settings->flat_out;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct run *run = &runs[count];
        bool wanted = i == 0 || !settings->only || strstr(ways[i]->name, settings->only) ||
                      strstr(ways[i]->what, settings->only);
        run->way = ways[i];
        run->times = wanted ? calloc(most + WARM_UP, sizeof *run->times) : NULL;
        if (run->times && ways[i]->open(place, &run->state))
            count++;
        else
            free(run->times);
    }
    return count;
}

uint32_t fleet_ask_all(const struct fleet_place *place, const struct fleet_settings *settings,
                       struct fleet_row *rows)
{
    struct run runs[FLEET_WAYS_MAX] = {{0}};
    struct fleet_times warm_up;
    uint32_t count = open_all(place, settings, runs);
    ask_flat_out(runs, count, settings->paced < WARM_UP ? settings->paced : WARM_UP);
    for (uint32_t i = 0; i < count; i++)
        conclude(&runs[i], &warm_up);
    ask_paced(runs, count, settings->paced, settings->a_second);
    for (uint32_t i = 0; i < count; i++) {
        rows[i].way = runs[i].way;
        conclude(&runs[i], &rows[i].paced);
    }
    ask_flat_out(runs, count, settings->flat_out);
    for (uint32_t i = 0; i < count; i++) {
        conclude(&runs[i], &rows[i].flat_out);
        runs[i].way->close(runs[i].state);
        free(runs[i].times);
    }
    return count;
}
