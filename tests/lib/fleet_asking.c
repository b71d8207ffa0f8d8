#define _GNU_SOURCE
#include "tests/lib/fleet_asking.h"

#include "broker/host_clock.h"

struct asker *fleet_asker;
struct message request, reply;
static struct ask asking;

int fleet_asking_open(void)
{
    return asker_open(&fleet_asker);
}

void fleet_asking_close(void)
{
    ask_free(&asking);
    asker_close(&fleet_asker);
}

struct message *ask_for(enum message_op op, const char *provider)
{
    static const uint8_t drawn[WIRE_ID_BYTES];
    message_request(&request, op, drawn);
    strcpy(request.name, "third");
    if (provider)
        strcpy(request.provider, provider);
    return &request;
}

const struct message *ask(const struct fleet_host *host)
{
    assert_int_equal(ask_once(fleet_asker, host->listen, &request, &reply,
                              host_now_ns() + FLEET_ANSWER_NS, &asking),
                     0);
    return &reply;
}

void acquire(const struct fleet_host *host, char *lease)
{
    ask_for(MESSAGE_ACQUIRE, "x");
    strcpy(request.label, "subagent/7");
    request.holder_pid = 4242;
    assert_true(ask(host)->ok);
    assert_int_equal(reply.verdict, MESSAGE_GRANTED);
    assert_in_range(reply.left_ms, 5000, 10000);
    strcpy(lease, reply.lease);
}

uint64_t verify(const struct fleet_host *host, const char *lease)
{
    ask_for(MESSAGE_VERIFY, "x");
    strcpy(request.lease, lease);
    assert_true(ask(host)->ok);
    assert_int_equal(reply.verdict, MESSAGE_GO);
    assert_true(reply.dispatched);
    assert_true(reply.state_version > 0 && reply.epoch > 0);
    return reply.token;
}

void release(const struct fleet_host *host, const char *lease)
{
    ask_for(MESSAGE_RELEASE, "x");
    strcpy(request.lease, lease);
    assert_true(ask(host)->ok);
    assert_int_equal(reply.verdict, MESSAGE_GONE);
}

struct seen {
    lease_agent_t *agent;
    const char *provider;
    int64_t leased, dispatched;
    uint64_t epoch;
};

static bool is_seen(void *arg)
{
    struct seen *seen = arg;
    struct lease_view view;
    if (!stage_look(seen->agent, seen->provider, &view))
        return false;
    seen->epoch = view.epoch;
    return view.leased == seen->leased && view.dispatched == seen->dispatched;
}

int64_t await_seen(const struct fleet_host *at, const char *provider, int64_t leased,
                   int64_t dispatched)
{
    struct seen seen = {fleet_client(at), provider, leased, dispatched, 0};
    int64_t began = test_now_ns();
    bool so = eventually(is_seen, &seen);
    int64_t took = (test_now_ns() - began) / NS_PER_MS;
    lease_agent_close(&seen.agent);
    if (!so)
        fail_msg("%s does not see %lld leased, %lld dispatched of %s", at->name, (long long)leased,
                 (long long)dispatched, provider);
    return took;
}
