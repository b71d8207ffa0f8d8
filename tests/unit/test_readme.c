/* The worked examples of proto/README.md are what the codec writes and reads. */
#include <string.h>

#include "proto/gossip.h"
#include "proto/message.h"
#include "tests/lib/check.h"
#include "tests/lib/example.h"
#include "tests/lib/messages.h"

enum { HELLO, HELLO_REPLY, VERIFY, VERIFY_REPLY, NOT_OWNER, CLAIM, STATE, BEAT, PEERS, EXAMPLES };

static uint8_t ours[MESSAGE_BYTES_MAX];

/* Of instance 0x0123456789abcdef, counter 7. */
#define LEASE "z4:aerukz4jvpg66aaaaaaaaaaaa4"

static size_t hello(void)
{
    struct message m;
    message_request(&m, MESSAGE_HELLO, messages_req);
    return messages_encode(&m, ours);
}

static size_t hello_reply(void)
{
    struct message m;
    message_request(&m, MESSAGE_HELLO, messages_req);
    m.reply = m.ok = true;
    (void)strcpy(m.name, "m5");
    memset(m.id, 0xaa, sizeof m.id);
    (void)strcpy(m.version, "0.1.0");
    m.kind = MESSAGE_DAEMON;
    m.pid = 4242;
    m.uptime_ms = 70000;
    m.provider_count = 2;
    (void)strcpy(m.providers[0], "z4");
    (void)strcpy(m.providers[1], "m5");
    (void)strcpy(m.directory, "/run/leasehold");
    return messages_encode(&m, ours);
}

static size_t verify(void)
{
    struct message m;
    message_request(&m, MESSAGE_VERIFY, messages_req);
    (void)strcpy(m.name, "m5");
    (void)strcpy(m.provider, "z4");
    m.units = 1;
    m.ttl_ms = 30000;
    m.budget_ms = 750;
    (void)strcpy(m.label, "subagent/7");
    m.holder_pid = 4242;
    return messages_encode(&m, ours);
}

static size_t verify_reply(void)
{
    struct message m;
    message_request(&m, MESSAGE_VERIFY, messages_req);
    m.reply = m.ok = true;
    (void)strcpy(m.lease, LEASE);
    m.units = 1;
    m.epoch = 1796000000;
    m.state_version = 42;
    m.verdict = MESSAGE_GO;
    m.token = (UINT64_C(1796000000) << 20) + 17;
    m.left_ms = 30000;
    m.dispatched = true;
    return messages_encode(&m, ours);
}

static size_t not_owner(void)
{
    struct message m;
    message_request(&m, MESSAGE_VERIFY, messages_req);
    m.reply = true;
    m.error = -20; /* LEASE_ENOTOWNER */
    (void)strcpy(m.text, "z4 is owned elsewhere");
    (void)strcpy(m.owner, "z4");
    (void)strcpy(m.endpoint, "tcp://10.0.0.4:5771");
    return messages_encode(&m, ours);
}

static void sender(struct gossip_sender *from, const char *name, uint8_t id)
{
    memset(from->id, id, sizeof from->id);
    (void)strcpy(from->name, name);
    from->incarnation = 77;
}

static void lease(struct gossip_lease *lease)
{
    *lease = (struct gossip_lease){.lease = LEASE,
                                   .state = GOSSIP_DISPATCHED,
                                   .host = "m5",
                                   .label = "subagent/7",
                                   .pid = 4242,
                                   .units = 1,
                                   .ttl_ms = 30000,
                                   .slot = -1,
                                   .left_ms = 29000,
                                   .age_ms = 1000,
                                   .dispatched_ms = 1000,
                                   .idle_ms = -1};
}

static size_t claim(void)
{
    size_t size;
    struct gossip_claim c = {.provider = "z4", .epoch = 1796000000};
    sender(&c.sender, "m5", 0xaa);
    lease(&c.lease);
    assert_int_equal(gossip_claim_encode(&c, ours, sizeof ours, &size), WIRE_OK);
    return size;
}

static size_t a_state(void)
{
    size_t size;
    uint32_t next = 0;
    struct gossip_lease l;
    struct gossip_state s = {.provider = "z4",
                             .url = "http://10.0.0.4:8080",
                             .epoch = 1796000000,
                             .version = 43,
                             .parts = 1,
                             .leases = 1,
                             .age_ms = 80,
                             .slots_total = 4,
                             .in_flight = 1,
                             .queued = -1,
                             .probed = true,
                             .health = "ok",
                             .signal = "exact",
                             .engine = "llama.cpp",
                             .model_count = 1,
                             .models = {{"qwen", "loaded"}},
                             .strangers_ms = -1};
    sender(&s.sender, "z4", 0xbb);
    lease(&l);
    l.arrived = 1;
    l.token = (UINT64_C(1796000000) << 20) + 17;
    l.place = 91;
    assert_int_equal(gossip_state_encode(&s, &l, 1, &next, ours, sizeof ours, &size), WIRE_OK);
    return size;
}

static size_t beat(void)
{
    size_t size;
    static struct gossip_beat b = {.version = "0.1.0",
                                   .endpoint = "tcp://10.0.0.4:5771",
                                   .publish = "tcp://10.0.0.4:5772",
                                   .port = 5771,
                                   .publish_port = 5772,
                                   .peer_count = 1,
                                   .peer_digest = 99,
                                   .offer_count = 1};
    sender(&b.sender, "z4", 0xbb);
    b.offers[0] = (struct gossip_offer){"z4", "http://10.0.0.4:8080", 1796000000, 43};
    assert_int_equal(gossip_beat_encode(&b, ours, sizeof ours, &size), WIRE_OK);
    return size;
}

static size_t peers(void)
{
    size_t size;
    struct gossip_peer p[2] = {{.name = "m5", .endpoint = "tcp://10.0.0.5:5771"},
                               {.endpoint = "tcp://10.0.0.6:5771"}};
    memset(p[0].id, 0xaa, sizeof p[0].id);
    assert_int_equal(gossip_peers_encode(p, 2, ours, sizeof ours, &size), WIRE_OK);
    return size;
}

static size_t (*const write_example[EXAMPLES])(void) = {
    [HELLO] = hello,         [HELLO_REPLY] = hello_reply,
    [VERIFY] = verify,       [VERIFY_REPLY] = verify_reply,
    [NOT_OWNER] = not_owner, [CLAIM] = claim,
    [STATE] = a_state,       [BEAT] = beat,
    [PEERS] = peers,
};

static void the_codec_writes_the_examples(void **state)
{
    (void)state;
    static uint8_t told[EXAMPLE_MAX];
    for (unsigned n = 0; n < EXAMPLES; n++) {
        size_t size = example_read(n, told);
        if (size != write_example[n]() || memcmp(told, ours, size) != 0) {
            fail_msg("example %u is another one", n);
        }
    }
    assert_int_equal(example_read(EXAMPLES, told), 0);
}

static void the_codec_reads_the_examples(void **state)
{
    (void)state;
    static uint8_t told[EXAMPLE_MAX];
    static struct message m;
    enum gossip_kind kind;
    for (unsigned n = HELLO; n <= NOT_OWNER; n++) {
        assert_int_equal(message_decode(told, example_read(n, told), &m, NULL), WIRE_OK);
    }
    static const enum gossip_kind kinds[] = {GOSSIP_CLAIM, GOSSIP_STATE, GOSSIP_BEAT};
    for (unsigned n = CLAIM; n <= BEAT; n++) {
        assert_int_equal(gossip_kind_of(told, example_read(n, told), &kind), WIRE_OK);
        assert_int_equal(kind, kinds[n - CLAIM]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_codec_writes_the_examples),
        cmocka_unit_test(the_codec_reads_the_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
