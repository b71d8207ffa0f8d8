/* service.c between hosts: by TCP, later, and against all comers. */
#define _GNU_SOURCE
#include "agent/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#include "broker/error.h"
#include "tests/lib/check.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/rss.h"
#include "tests/lib/speaker.h"
#include "tests/lib/temp_dir.h"

#define MIB (1024L * 1024)

struct place {
    char directory[TEMP_DIR_MAX], endpoint[TCP_ENDPOINT_SIZE];
    struct service *service;
    struct service_asker *kept[SERVICE_LATER_MAX + 1];
    uint8_t kept_req[SERVICE_LATER_MAX + 1][WIRE_ID_BYTES];
    unsigned kept_count;
    bool keeping, was_local;
    void *context;
    void *sockets[16];
    unsigned socket_count;
};

static uint8_t big_state[WIRE_STATE_MAX];

static void make_reply(struct message *reply, const uint8_t *req)
{
    struct message request;
    message_request(&request, MESSAGE_READ, req);
    message_reply(reply, &request);
    reply->ok = true;
}

/* READ can be kept, and releases those that were kept when it is of "release"; FETCH is large. */
static int handle(void *arg, const struct message *request, struct message *reply)
{
    struct place *place = arg;
    place->was_local = service_is_local(place->service);
    if (request->op == MESSAGE_FETCH) {
        reply->state = (struct message_bytes){big_state, sizeof big_state};
        return 0;
    }
    if (request->op == MESSAGE_READ && strcmp(request->provider, "release") == 0) {
        while (place->kept_count > 0) {
            struct message later;
            make_reply(&later, place->kept_req[--place->kept_count]);
            service_answer(place->service, &place->kept[place->kept_count], &later);
            assert_null(place->kept[place->kept_count]);
        }
        return 0;
    }
    if (request->op != MESSAGE_READ || !place->keeping) {
        return speaker_handle(place->directory, request, reply);
    }
    place->kept[place->kept_count] = service_keep(place->service);
    if (!place->kept[place->kept_count]) {
        return LEASE_EFULL;
    }
    memcpy(place->kept_req[place->kept_count++], request->req, WIRE_ID_BYTES);
    return SERVICE_LATER;
}

static int set_up(void **state)
{
    static struct place place;
    memset(&place, 0, sizeof place);
    big_state[0] = 0xdb; /* a text of the rest */
    for (size_t i = 0, rest = sizeof big_state - 5; i < 4; i++) {
        big_state[1 + i] = (uint8_t)(rest >> 8 * (3 - i));
    }
    memset(big_state + 5, 's', sizeof big_state - 5);
    assert_true(temp_dir_make(place.directory));
    assert_int_equal(service_open(place.directory, handle, &place, &place.service), 0);
    assert_int_equal(service_bind(place.service, "tcp://127.0.0.1:0", place.endpoint), 0);
    place.context = zmq_ctx_new();
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    service_close(&place->service);
    while (place->socket_count > 0) {
        (void)zmq_close(place->sockets[--place->socket_count]);
    }
    (void)zmq_ctx_term(place->context);
    temp_dir_remove(place->directory);
    return 0;
}

static void *dial_with(struct place *place, int type, const char *endpoint, int option, int value)
{
    void *socket = zmq_socket(place->context, type);
    assert_non_null(socket);
    assert_true(place->socket_count < 16);
    place->sockets[place->socket_count++] = socket;
    assert_int_equal(ipc_option(socket, ZMQ_LINGER, 0), 0);
    assert_int_equal(ipc_option(socket, option, value), 0);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

static void *dial(struct place *place, int type)
{
    return dial_with(place, type, place->endpoint, ZMQ_LINGER, 0);
}

static void ask(void *socket, enum message_op op, const char *provider, unsigned number)
{
    struct message m;
    uint8_t bytes[MESSAGE_PACKED_MAX], req[16] = {(uint8_t)number, (uint8_t)(number >> 8), 1};
    size_t size;
    message_request(&m, op, req);
    (void)strcpy(m.provider, provider);
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &size, NULL), WIRE_OK);
    assert_int_equal(zmq_send(socket, bytes, size, 0), size);
}

static void turn(struct place *place)
{
    zmq_pollitem_t item = {.socket = service_socket(place->service), .events = ZMQ_POLLIN};
    (void)zmq_poll(&item, 1, 1);
    assert_int_equal(service_run(place->service), 0);
}

static unsigned hear(struct place *place, void *socket, struct message *reply)
{
    static uint8_t bytes[WIRE_MESSAGE_MAX];
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    for (;;) {
        int n = zmq_recv(socket, bytes, sizeof bytes, ZMQ_DONTWAIT);
        if (n >= 0) {
            assert_int_equal(message_decode(bytes, (size_t)n, reply, NULL), WIRE_OK);
            return reply->req[0] + reply->req[1] * 256u;
        }
        assert_true(test_now_ns() < deadline);
        turn(place);
    }
}

/* ---- by TCP ----------------------------------------------------------------------------- */

static void it_is_told_who_is_local(void **state)
{
    struct place *place = *state;
    struct message reply;
    char ipc[IPC_ENDPOINT_SIZE];
    assert_int_equal(ipc_endpoint(place->directory, ipc), 0);
    void *near = dial_with(place, ZMQ_REQ, ipc, ZMQ_LINGER, 0), *far = dial(place, ZMQ_REQ);
    ask(far, MESSAGE_HELLO, "", 1);
    assert_int_equal(hear(place, far, &reply), 1);
    assert_false(place->was_local);
    ask(near, MESSAGE_HELLO, "", 2);
    assert_int_equal(hear(place, near, &reply), 2);
    assert_true(place->was_local);
    assert_false(service_is_local(place->service)); /* nobody asks */
}

static void ipv6_is_told_too(void **state)
{
    struct place *place = *state;
    struct message reply;
    char endpoint[TCP_ENDPOINT_SIZE];
    if (service_bind(place->service, "tcp://[::1]:0", endpoint) != 0) {
        print_message("skipped: no IPv6\n");
        skip();
    }
    assert_int_equal(tcp_endpoint_kind(endpoint), ENDPOINT_IPV6);
    void *far = zmq_socket(place->context, ZMQ_REQ);
    place->sockets[place->socket_count++] = far;
    assert_int_equal(ipc_option(far, ZMQ_LINGER, 0), 0);
    assert_int_equal(tcp_dial(far, endpoint), 0);
    ask(far, MESSAGE_HELLO, "", 1);
    assert_int_equal(hear(place, far, &reply), 1);
    assert_false(place->was_local);
}

static void without_a_directory_there_is_tcp_alone(void **state)
{
    struct place *place = *state;
    struct message reply;
    service_close(&place->service);
    assert_int_equal(service_open(NULL, handle, place, &place->service), 0);
    assert_int_equal(service_bind(place->service, place->endpoint, NULL), 0); /* the same again */
    void *far = dial(place, ZMQ_REQ);
    ask(far, MESSAGE_STATUS, "", 1);
    assert_int_equal(hear(place, far, &reply), 1);
}

static void what_cannot_be_bound_is_said(void **state)
{
    struct place *place = *state;
    struct service *other = NULL;
    assert_int_equal(service_open(NULL, handle, place, &other), 0);
    assert_int_equal(service_bind(other, place->endpoint, NULL), LEASE_EBUSY);
    assert_int_equal(service_bind(other, "tcp://192.0.2.1:0", NULL), LEASE_EABSENT);
    assert_int_equal(service_bind(other, "tcp://*:0", NULL), LEASE_EINVAL);
    assert_int_equal(service_bind(other, "tcp://localhost:5771", NULL), LEASE_EINVAL);
    assert_int_equal(service_bind(other, "ipc:///tmp/x", NULL), LEASE_EINVAL);
    service_close(&place->service);
    assert_int_equal(service_bind(other, place->endpoint, NULL), 0); /* tried again, it is free */
    service_close(&other);
}

static void a_large_reply_arrives_whole(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *far = dial(place, ZMQ_REQ);
    ask(far, MESSAGE_FETCH, "", 3);
    assert_int_equal(hear(place, far, &reply), 3);
    assert_int_equal(reply.state.size, sizeof big_state);
    assert_memory_equal(reply.state.at, big_state, sizeof big_state);
}

/* ---- later ------------------------------------------------------------------------------ */

static void answers_are_given_later(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *req = dial(place, ZMQ_REQ), *dealer = dial(place, ZMQ_DEALER),
         *other = dial(place, ZMQ_REQ);
    place->keeping = true;
    ask(req, MESSAGE_READ, "z4", 1);
    while (place->kept_count < 1) {
        turn(place);
    }
    ask(dealer, MESSAGE_READ, "z4", 2);
    ask(dealer, MESSAGE_READ, "z4", 3);
    while (place->kept_count < 3) {
        turn(place);
    }
    service_answer(place->service, &place->kept[1], NULL); /* dropped */
    place->kept[1] = place->kept[--place->kept_count];
    memcpy(place->kept_req[1], place->kept_req[2], WIRE_ID_BYTES);
    ask(other, MESSAGE_READ, "release", 4);
    assert_int_equal(hear(place, other, &reply), 4);
    assert_int_equal(hear(place, dealer, &reply), 3);
    assert_true(reply.ok);
    assert_int_equal(hear(place, req, &reply), 1);
    struct service_counters counters = service_counters(place->service);
    assert_int_equal(counters.later, 3);
    assert_int_equal(counters.answered, 4);
    assert_int_equal(counters.gone + counters.full, 0);
}

static void one_that_left_meanwhile_is_counted(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *asker = dial(place, ZMQ_DEALER), *other = dial(place, ZMQ_REQ);
    place->keeping = true;
    ask(asker, MESSAGE_READ, "z4", 1);
    while (place->kept_count < 1) {
        turn(place);
    }
    (void)zmq_close(place->sockets[0]);
    place->sockets[0] = place->sockets[--place->socket_count];
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (service_counters(place->service).gone == 0) { /* until the service has heard of it */
        struct service_asker *kept = place->kept[0];
        assert_true(test_now_ns() < deadline);
        place->keeping = kept == NULL;
        place->kept_count = kept != NULL;
        ask(other, MESSAGE_READ, "release", 2);
        assert_int_equal(hear(place, other, &reply), 2);
        if (service_counters(place->service).gone == 0) { /* it was not known yet: one more */
            void *again = dial(place, ZMQ_DEALER);
            place->keeping = true;
            ask(again, MESSAGE_READ, "z4", 1);
            while (place->kept_count < 1) {
                turn(place);
            }
            (void)zmq_close(again);
            place->socket_count--;
        }
    }
}

static void a_reply_later_that_cannot_be_sent_is_mended(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *req = dial(place, ZMQ_REQ);
    place->keeping = true;
    ask(req, MESSAGE_READ, "z4", 7);
    while (place->kept_count < 1) {
        turn(place);
    }
    make_reply(&reply, place->kept_req[0]);
    memset(reply.text, 'x', sizeof reply.text);
    service_answer(place->service, &place->kept[0], &reply);
    assert_int_equal(hear(place, req, &reply), 7);
    assert_int_equal(reply.error, LEASE_EINTERNAL);
    assert_int_equal(service_counters(place->service).mended, 1);
}

static void only_so_many_are_kept(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *dealer = dial(place, ZMQ_DEALER);
    place->keeping = true;
    for (unsigned n = 0; n < SERVICE_LATER_MAX; n++) {
        ask(dealer, MESSAGE_READ, "z4", n);
        if (n % 32 == 0) {
            turn(place);
        }
    }
    ask(dealer, MESSAGE_READ, "z4", 9999);
    assert_int_equal(hear(place, dealer, &reply), 9999);
    assert_int_equal(reply.error, LEASE_EFULL);
    assert_int_equal(place->kept_count, SERVICE_LATER_MAX);
    service_answer(place->service, &place->kept[--place->kept_count], NULL);
    ask(dealer, MESSAGE_READ, "z4", 1);
    while (place->kept_count < SERVICE_LATER_MAX) {
        turn(place);
    }
    /* the rest is freed when it closes */
}

static void a_large_envelope_is_not_kept(void **state)
{
    struct place *place = *state;
    struct message reply;
    static uint8_t bytes[SERVICE_ENVELOPE_MAX];
    void *dealer = dial(place, ZMQ_DEALER);
    place->keeping = true;
    assert_int_equal(zmq_send(dealer, bytes, sizeof bytes, ZMQ_SNDMORE), sizeof bytes);
    assert_int_equal(zmq_send(dealer, "", 0, ZMQ_SNDMORE), 0);
    ask(dealer, MESSAGE_READ, "z4", 1);
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (service_counters(place->service).answered == 0) {
        assert_true(test_now_ns() < deadline);
        turn(place);
    }
    assert_int_equal(zmq_recv(dealer, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(zmq_recv(dealer, bytes, sizeof bytes, 0), 0);
    assert_int_equal(hear(place, dealer, &reply), 1);
    assert_int_equal(reply.error, LEASE_EFULL);
}

/* ---- all comers ------------------------------------------------------------------------- */

static size_t a_valid_one(uint8_t *bytes)
{
    struct message m;
    size_t size;
    uint8_t req[16] = {1};
    message_request(&m, MESSAGE_STATUS, req);
    assert_int_equal(message_encode(&m, bytes, MESSAGE_PACKED_MAX, &size, NULL), WIRE_OK);
    return size;
}

/* One of the kinds of rubbish; its size, at most WIRE_MESSAGE_MAX + 1. */
static size_t rubbish(unsigned n, uint8_t *bytes)
{
    static const uint8_t bomb[] = {0xdf, 0xff, 0xff, 0xff, 0xff};
    size_t size;
    switch (n % 100 == 99 ? 6 : n % 6) {
    case 0:
        for (size = 0; size < 300; size++) {
            bytes[size] = (uint8_t)rand();
        }
        return size;
    case 1: /* cut short */ size = a_valid_one(bytes); return size - 1 - n % (size - 1);
    case 2: /* deep */ memset(bytes, 0x81, 5000); return 5000;
    case 3: /* huge length */ memcpy(bytes, bomb, sizeof bomb); return sizeof bomb;
    case 4: /* from the future */
        size = a_valid_one(bytes);
        bytes[3] = 100;
        return size;
    case 5: /* a wrong type */
        size = a_valid_one(bytes);
        bytes[8] = 0xc0;
        return size;
    default: memset(bytes, 0xc1, WIRE_MESSAGE_MAX + 1); return WIRE_MESSAGE_MAX + 1;
    }
}

static void rubbish_moves_counters_only(void **state)
{
    struct place *place = *state;
    struct message reply;
    static uint8_t bytes[WIRE_MESSAGE_MAX + 1];
    void *other = dial(place, ZMQ_REQ);
    ask(other, MESSAGE_HELLO, "", 1);
    (void)hear(place, other, &reply);
    void *dealer = dial(place, ZMQ_DEALER);
    /* its connection ends with each of them */
    void *oversized = dial_with(place, ZMQ_DEALER, place->endpoint, ZMQ_RECONNECT_IVL, 1);
    uint64_t sent = 0;
    long before = 0;
    for (unsigned n = 0; n < 3000; n++) { /* the first thousand warms up */
        before = n == 1000 ? rss_bytes() : before;
        size_t size = rubbish(n, bytes);
        void *to = size > WIRE_MESSAGE_MAX ? oversized : dealer;
        int64_t deadline = test_now_ns() + INT64_C(20000000000);
        sent += to == dealer;
        while (zmq_send(to, bytes, size, ZMQ_DONTWAIT) < 0) {
            assert_int_equal(errno, EAGAIN);
            assert_true(test_now_ns() < deadline);
            turn(place);
        }
    }
    struct service_counters counters = service_counters(place->service);
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (counters.dropped + counters.refused < sent) {
        assert_true(test_now_ns() < deadline);
        turn(place);
        counters = service_counters(place->service);
    }
    assert_true(rss_bytes() - before < 16 * MIB);
    assert_true(counters.dropped > sent / 2);
    assert_true(counters.refused >= sent / 6);
    ask(other, MESSAGE_HELLO, "", 2);
    assert_int_equal(hear(place, other, &reply), 2);
    assert_int_equal(service_counters(place->service).answered, 2);
}

static int raw_connection(const struct place *place)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)atoi(strrchr(place->endpoint, ':') + 1));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* What is no ZeroMQ at all. */
static void strangers_are_shown_the_door(void **state)
{
    struct place *place = *state;
    struct message reply;
    uint8_t bytes[512];
    for (unsigned n = 0; n < 200; n++) {
        int fd = raw_connection(place);
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)rand();
        }
        bytes[0] = n % 2 ? 0xff : bytes[0];
        (void)send(fd, n % 3 ? (const void *)bytes : "GET / HTTP/1.1\r\n\r\n", n % 3 ? n : 18,
                   MSG_NOSIGNAL);
        (void)close(fd);
        turn(place);
    }
    void *other = dial(place, ZMQ_REQ);
    ask(other, MESSAGE_HELLO, "", 2);
    assert_int_equal(hear(place, other, &reply), 2);
}

/* A DEALER's handshake with a name, by hand. */
static int raw_dealer(const struct place *place, const uint8_t *name, uint8_t size)
{
    uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    uint8_t ready[64] = "\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06"
                        "DEALER\x08Identity\0\0\0";
    int fd = raw_connection(place);
    ready[1] = (uint8_t)(41 + size);
    ready[42] = size;
    memcpy(ready + 43, name, size);
    assert_int_equal(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    assert_int_equal(send(fd, ready, 43u + size, MSG_NOSIGNAL), 43u + size);
    uint8_t answer[64 + 2];
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer); /* it is in */
    return fd;
}

/* libzmq numbers its peers from what rand() says first, unless seeded always the same, and would end
 * the process when a peer has called itself by a number that is still to come. */
static void nobody_guesses_the_next_ones_number(void **state)
{
    struct place *place = *state;
    struct message reply;
    int fds[32];
    for (uint32_t n = 0; n < 32; n++) {
        uint32_t guess = 0x6b8b4567 + n;
        uint8_t name[5] = {0, (uint8_t)(guess >> 24), (uint8_t)(guess >> 16), (uint8_t)(guess >> 8),
                           (uint8_t)guess};
        fds[n] = raw_dealer(place, name, sizeof name);
    }
    for (unsigned n = 0; n < 8; n++) {
        void *other = dial(place, ZMQ_REQ);
        ask(other, MESSAGE_HELLO, "", n);
        assert_int_equal(hear(place, other, &reply), n);
    }
    for (unsigned n = 0; n < 32; n++) {
        (void)close(fds[n]);
    }
}

static void a_name_that_comes_back_is_let_in(void **state)
{
    struct place *place = *state;
    struct message reply;
    for (unsigned n = 0; n < 3; n++) { /* while the one before is still there */
        void *dealer = zmq_socket(place->context, ZMQ_DEALER);
        place->sockets[place->socket_count++] = dealer;
        assert_int_equal(ipc_option(dealer, ZMQ_LINGER, 0), 0);
        assert_int_equal(zmq_setsockopt(dealer, ZMQ_ROUTING_ID, "m5", 2), 0);
        assert_int_equal(zmq_connect(dealer, place->endpoint), 0);
        ask(dealer, MESSAGE_HELLO, "", n);
        assert_int_equal(hear(place, dealer, &reply), n);
    }
}

/* Peers that ask for much and read nothing: memory stays, and others are answered. */
static void who_never_reads_does_not_grow_it(void **state)
{
#ifdef __SANITIZE_THREAD__ /* each of libzmq's messages is a race to be looked up and suppressed */
    skip();
#endif
    struct place *place = *state;
    struct message reply;
    long before = rss_bytes();
    for (unsigned i = 0; i < 4; i++) {
        void *deaf = dial_with(place, ZMQ_DEALER, place->endpoint, ZMQ_RCVHWM, 1);
        for (unsigned n = 0; n < 300; n++) {
            ask(deaf, MESSAGE_FETCH, "", n);
            if (n % 32 == 0) {
                turn(place);
            }
        }
    }
    int64_t deadline = test_now_ns() + INT64_C(60000000000);
    while (service_counters(place->service).answered < 1200) {
        assert_true(test_now_ns() < deadline);
        turn(place);
    }
    assert_true(service_counters(place->service).full > 0);
    assert_true(rss_bytes() - before < (long)SERVICE_OUTSTANDING_MAX + 32 * MIB);
    void *other = dial(place, ZMQ_REQ);
    ask(other, MESSAGE_HELLO, "", 2);
    assert_int_equal(hear(place, other, &reply), 2);
}

static bool open_and_bind(void *arg, int spare)
{
    (void)arg;
    struct service *service = NULL;
    char bound[TCP_ENDPOINT_SIZE];
    int error = service_open(NULL, handle, NULL, &service);
    if (spare < IPC_SPARE_FDS) {
        return error == LEASE_EIO;
    }
    bool fine = error == 0 && service_bind(service, "tcp://127.0.0.1:0", bound) == 0 &&
                service_run(service) == 0;
    service_close(&service);
    return fine;
}

static void without_descriptors_it_fails_and_lives(void **state)
{
    if (!DESCRIPTORS_FORK_WITH_THREADS) {
        skip();
    }
    (void)state;
    assert_true(descriptors_try(open_and_bind, NULL, IPC_SPARE_FDS));
}

int main(void)
{
#define PLACED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PLACED(nobody_guesses_the_next_ones_number), /* first: the numbers begin with the process */
        PLACED(it_is_told_who_is_local),
        PLACED(ipv6_is_told_too),
        PLACED(without_a_directory_there_is_tcp_alone),
        PLACED(what_cannot_be_bound_is_said),
        PLACED(a_large_reply_arrives_whole),
        PLACED(answers_are_given_later),
        PLACED(one_that_left_meanwhile_is_counted),
        PLACED(a_reply_later_that_cannot_be_sent_is_mended),
        PLACED(only_so_many_are_kept),
        PLACED(a_large_envelope_is_not_kept),
        PLACED(rubbish_moves_counters_only),
        PLACED(strangers_are_shown_the_door),
        PLACED(a_name_that_comes_back_is_let_in),
        PLACED(who_never_reads_does_not_grow_it),
        cmocka_unit_test(without_descriptors_it_fails_and_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
