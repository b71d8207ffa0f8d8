#define _GNU_SOURCE
#include "agent/service.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "broker/error.h"
#include "tests/lib/check.h"
#include "tests/lib/quiet_fork.h"
#include "tests/lib/speaker.h"
#include "tests/lib/temp_dir.h"

/* A handler that breaks the rules of the wire. */
static int handle_badly(void *arg, const struct message *request, struct message *reply)
{
    (void)arg;
    (void)request;
    memset(reply->text, 'x', sizeof reply->text); /* without an end */
    return 0;
}

static void turn(struct service *service, long timeout_ms)
{
    zmq_pollitem_t item = {.socket = service_socket(service), .events = ZMQ_POLLIN};
    (void)zmq_poll(&item, 1, timeout_ms);
    assert_int_equal(service_run(service), 0);
}

struct place {
    char directory[TEMP_DIR_MAX];
    struct service *service;
    void *context; /* of the test's own sockets, which are closed at its end, failed or not */
    void *sockets[4];
    unsigned socket_count;
};

static int set_up(void **state)
{
    static struct place place;
    memset(&place, 0, sizeof place);
    assert_true(temp_dir_make(place.directory));
    assert_int_equal(service_open(place.directory, speaker_handle, place.directory, &place.service),
                     0);
    place.context = zmq_ctx_new();
    assert_non_null(place.context);
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    service_close(&place->service);
    assert_null(place->service);
    while (place->socket_count > 0) {
        (void)zmq_close(place->sockets[--place->socket_count]);
    }
    (void)zmq_ctx_term(place->context);
    temp_dir_remove(place->directory);
    return 0;
}

static void path_in(const struct place *place, char path[128])
{
    (void)snprintf(path, 128, "%s/agent.ipc", place->directory);
}

/* ---- an asker --------------------------------------------------------------------------- */

static void *socket_of(struct place *place, int type)
{
    void *socket = zmq_socket(place->context, type);
    assert_non_null(socket);
    assert_true(place->socket_count < 4);
    place->sockets[place->socket_count++] = socket;
    assert_int_equal(ipc_option(socket, ZMQ_LINGER, 0), 0);
    return socket;
}

static void connect_to(const struct place *place, void *socket)
{
    char endpoint[IPC_ENDPOINT_SIZE];
    assert_int_equal(ipc_endpoint(place->directory, endpoint), 0);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
}

static void *dial(struct place *place, int type)
{
    void *socket = socket_of(place, type);
    connect_to(place, socket);
    return socket;
}

static size_t pack(enum message_op op, uint8_t number, uint8_t *bytes)
{
    static struct message m;
    size_t size;
    uint8_t req[16] = {number, 1};
    message_request(&m, op, req);
    m.kind = op == MESSAGE_YIELD ? MESSAGE_DAEMON : MESSAGE_NO_KIND;
    (void)strcpy(m.provider, "z4");
    assert_int_equal(message_encode(&m, bytes, MESSAGE_PACKED_MAX, &size, NULL), WIRE_OK);
    return size;
}

static void send_op(void *socket, enum message_op op, uint8_t number)
{
    uint8_t bytes[MESSAGE_PACKED_MAX];
    size_t size = pack(op, number, bytes);
    assert_int_equal(zmq_send(socket, bytes, size, 0), size);
}

/* Turns the service until a frame has come back, and answers its size. */
static size_t hear_frame(struct service *service, void *socket, uint8_t *bytes, size_t room)
{
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    for (;;) {
        int n = zmq_recv(socket, bytes, room, ZMQ_DONTWAIT);
        if (n >= 0) {
            return (size_t)n;
        }
        assert_int_equal(errno, EAGAIN);
        assert_true(test_now_ns() < deadline);
        turn(service, 1);
    }
}

static void hear(struct service *service, void *socket, struct message *reply)
{
    uint8_t bytes[MESSAGE_PACKED_MAX];
    size_t size = hear_frame(service, socket, bytes, sizeof bytes);
    assert_int_equal(message_decode(bytes, size, reply, NULL), WIRE_OK);
    assert_true(reply->reply);
}

/* Turns the service until one of its counters is there. */
static void turn_until(struct service *service, size_t counter, uint64_t value)
{
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    for (;;) {
        struct service_counters now = service_counters(service);
        uint64_t is;
        memcpy(&is, (const char *)&now + counter, sizeof is);
        if (is >= value) {
            assert_true(is == value);
            return;
        }
        assert_true(test_now_ns() < deadline);
        turn(service, 1);
    }
}

#define TURN_UNTIL(place, counter, value)                                                          \
    turn_until((place)->service, offsetof(struct service_counters, counter), value)

/* ---- tests ------------------------------------------------------------------------------ */

static void a_req_is_answered(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *req = dial(place, ZMQ_REQ);
    for (uint8_t n = 0; n < 3; n++) {
        send_op(req, MESSAGE_STATUS, n);
        hear(place->service, req, &reply);
        assert_true(reply.ok);
        assert_int_equal(reply.op, MESSAGE_STATUS);
        assert_int_equal(reply.req[0], n);
        assert_string_equal(reply.directory, place->directory);
    }
    send_op(req, MESSAGE_YIELD, 9);
    hear(place->service, req, &reply);
    assert_true(reply.ok);
    assert_int_equal(service_counters(place->service).answered, 4);
}

/* The envelope of a REQ that counts its requests has one frame more. */
static void a_req_with_a_number_is_answered(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *req = socket_of(place, ZMQ_REQ);
    assert_int_equal(ipc_option(req, ZMQ_REQ_CORRELATE, 1), 0);
    assert_int_equal(ipc_option(req, ZMQ_REQ_RELAXED, 1), 0);
    connect_to(place, req);
    send_op(req, MESSAGE_HELLO, 1);
    send_op(req, MESSAGE_HELLO, 2); /* the first one's answer is not waited for */
    do {
        hear(place->service, req, &reply);
    } while (reply.req[0] != 2);
}

static void a_dealer_is_answered_with_what_it_put_in_front(void **state)
{
    struct place *place = *state;
    struct message reply;
    uint8_t bytes[64];
    void *dealer = dial(place, ZMQ_DEALER);
    send_op(dealer, MESSAGE_HELLO, 1);
    hear(place->service, dealer, &reply);
    assert_int_equal(reply.req[0], 1);
    assert_int_equal(zmq_send(dealer, "mine", 4, ZMQ_SNDMORE), 4);
    assert_int_equal(zmq_send(dealer, "", 0, ZMQ_SNDMORE), 0);
    send_op(dealer, MESSAGE_HELLO, 2);
    assert_int_equal(hear_frame(place->service, dealer, bytes, sizeof bytes), 4);
    assert_memory_equal(bytes, "mine", 4);
    assert_int_equal(hear_frame(place->service, dealer, bytes, sizeof bytes), 0);
    hear(place->service, dealer, &reply);
    assert_int_equal(reply.req[0], 2);
}

static void a_thousand_requests_are_answered_in_order(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *dealer = dial(place, ZMQ_DEALER);
    for (unsigned n = 0; n < 1000; n++) {
        send_op(dealer, n % 2 ? MESSAGE_HELLO : MESSAGE_READ, (uint8_t)n);
    }
    for (unsigned n = 0; n < 1000; n++) {
        hear(place->service, dealer, &reply);
        assert_true(reply.ok);
        assert_int_equal(reply.req[0], (uint8_t)n);
    }
    assert_int_equal(service_counters(place->service).answered, 1000);
}

/* However much waits, one turn takes no more than it may. */
static void a_turn_is_bounded(void **state)
{
    struct place *place = *state;
    void *dealer = dial(place, ZMQ_DEALER);
    for (unsigned n = 0; n < 900; n++) {
        send_op(dealer, MESSAGE_HELLO, 0);
    }
    uint64_t before = 0;
    for (unsigned turns = 0; before < 900; turns++) {
        turn(place->service, 1000);
        uint64_t now = service_counters(place->service).answered;
        assert_true(now - before <= SERVICE_FRAMES_MAX / 2); /* two frames each */
        before = now;
        assert_true(turns < 10000);
    }
}

static void garbage_moves_counters_only(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *dealer = dial(place, ZMQ_DEALER);
    uint64_t dropped = 0;
    static const char *const garbage[] = {"", "hello", "\xdd\xff\xff\xff\xff", "\x80", "\xc1"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        (void)zmq_send(dealer, garbage[i], strlen(garbage[i]), 0);
        dropped++;
    }
    for (unsigned frames = 2; frames < 1000; frames *= 3) { /* with too much in front */
        for (unsigned i = 1; i < frames; i++) {
            (void)zmq_send(dealer, "x", 1, ZMQ_SNDMORE);
        }
        send_op(dealer, MESSAGE_HELLO, 1);
        dropped++;
    }
    TURN_UNTIL(place, dropped, dropped);
    send_op(dealer, MESSAGE_HELLO, 7); /* and the next one is answered as if nothing had been */
    hear(place->service, dealer, &reply);
    assert_int_equal(reply.req[0], 7);
    assert_int_equal(service_counters(place->service).answered, 1);
    assert_int_equal(service_counters(place->service).refused, 0);
}

static void what_is_wrong_is_answered(void **state)
{
    struct place *place = *state;
    struct message reply;
    void *req = dial(place, ZMQ_REQ);
    uint8_t bytes[MESSAGE_PACKED_MAX];
    size_t size = pack(MESSAGE_HELLO, 5, bytes);
    assert_memory_equal(bytes, "\x83\xa1v\x01\xa2op\xa5hello", 13);
    bytes[3] = 2;
    assert_int_equal(zmq_send(req, bytes, size, 0), size);
    hear(place->service, req, &reply);
    assert_false(reply.ok);
    assert_int_equal(reply.op, MESSAGE_REFUSAL);
    assert_int_equal(reply.error, LEASE_EINVAL);
    assert_int_equal(reply.req[0], 5);
    assert_string_equal(reply.text, "bad request: 'v' is another version of the wire");
    bytes[3] = 1;
    bytes[8] = 'j'; /* an op of "jello" */
    assert_int_equal(zmq_send(req, bytes, size, 0), size);
    hear(place->service, req, &reply);
    assert_int_equal(reply.op, MESSAGE_REFUSAL);
    assert_string_equal(reply.text, "bad request: 'op' is unknown to this version");
    assert_int_equal(service_counters(place->service).refused, 2);
}

/* Two services that answered each other's refusals would never stop. */
static void a_reply_is_not_answered(void **state)
{
    struct place *place = *state;
    static struct message m;
    uint8_t bytes[MESSAGE_PACKED_MAX], req[16] = {1};
    size_t size;
    void *dealer = dial(place, ZMQ_DEALER);
    message_request(&m, MESSAGE_REFUSAL, req);
    m.reply = true;
    m.error = LEASE_EINVAL;
    assert_int_equal(message_encode(&m, bytes, sizeof bytes, &size, NULL), WIRE_OK);
    assert_int_equal(zmq_send(dealer, bytes, size, 0), size);
    bytes[3] = 9; /* of a later version, too */
    assert_int_equal(zmq_send(dealer, bytes, size, 0), size);
    TURN_UNTIL(place, dropped, 2);
}

static void an_oversized_frame_ends_its_connection_alone(void **state)
{
    struct place *place = *state;
    struct message reply;
    static uint8_t big[WIRE_MESSAGE_MAX + 1];
    uint8_t bytes[MESSAGE_PACKED_MAX];
    void *dealer = dial(place, ZMQ_DEALER);
    void *other = dial(place, ZMQ_DEALER);
    send_op(other, MESSAGE_HELLO, 1);
    hear(place->service, other, &reply);
    assert_int_equal(zmq_send(dealer, big, sizeof big - 1, 0), sizeof big - 1);
    TURN_UNTIL(place, dropped, 1);
    assert_int_equal(zmq_send(dealer, big, sizeof big, 0), sizeof big);
    do { /* what is sent right behind it is lost with the connection; the next one is dialled */
        send_op(dealer, MESSAGE_HELLO, 2);
        turn(place->service, 10);
    } while (zmq_recv(dealer, bytes, sizeof bytes, ZMQ_DONTWAIT) < 0);
    send_op(other, MESSAGE_HELLO, 3);
    hear(place->service, other, &reply);
    assert_int_equal(reply.req[0], 3);
    assert_int_equal(service_counters(place->service).dropped, 1); /* the big one was not seen */
}

/* Sends a request, waits until it lies at the service, and is gone, connection and all. */
static void ask_and_leave(const struct place *place)
{
    struct place other = *place;
    other.socket_count = 0;
    other.context = zmq_ctx_new();
    void *dealer = dial(&other, ZMQ_DEALER);
    send_op(dealer, MESSAGE_HELLO, 1);
    zmq_pollitem_t item = {.socket = service_socket(place->service), .events = ZMQ_POLLIN};
    assert_int_equal(zmq_poll(&item, 1, 20000), 1);
    (void)zmq_close(dealer);
    (void)zmq_ctx_term(other.context);
}

/* The service may hear of the leaving only after it has answered, so it is tried until it does. */
static void an_asker_that_left_is_counted(void **state)
{
    struct place *place = *state;
    struct message reply;
    int64_t deadline = test_now_ns() + INT64_C(20000000000);
    while (service_counters(place->service).gone == 0) {
        assert_true(test_now_ns() < deadline);
        ask_and_leave(place);
        (void)sched_yield();
        turn(place->service, 0);
    }
    void *req = dial(place, ZMQ_REQ);
    send_op(req, MESSAGE_HELLO, 3);
    hear(place->service, req, &reply);
    assert_int_equal(reply.req[0], 3);
}

static void a_reply_that_cannot_be_sent_is_mended(void **state)
{
    struct place *place = *state;
    struct message reply;
    service_close(&place->service);
    assert_int_equal(service_open(place->directory, handle_badly, NULL, &place->service), 0);
    void *req = dial(place, ZMQ_REQ);
    send_op(req, MESSAGE_HELLO, 3);
    hear(place->service, req, &reply);
    assert_false(reply.ok);
    assert_int_equal(reply.error, LEASE_EINTERNAL);
    assert_int_equal(reply.req[0], 3);
    assert_int_equal(service_counters(place->service).mended, 1);
}

/* ---- the file --------------------------------------------------------------------------- */

static mode_t mode_of(const struct place *place)
{
    char path[128];
    struct stat st;
    path_in(place, path);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    return st.st_mode & 07777;
}

static void the_socket_is_as_private_as_its_directory(void **state)
{
    struct place *place = *state;
    assert_int_equal(mode_of(place), 0600);
    service_close(&place->service);
    assert_int_equal(chmod(place->directory, 02770), 0);
    mode_t before = umask(0);
    assert_int_equal(
        service_open(place->directory, speaker_handle, place->directory, &place->service), 0);
    assert_int_equal(mode_of(place), 0660);
    service_close(&place->service);
    assert_int_equal(chmod(place->directory, 0755), 0);
    assert_int_equal(
        service_open(place->directory, speaker_handle, place->directory, &place->service), 0);
    assert_int_equal(mode_of(place), 0600);
    service_close(&place->service);
    (void)umask(before);
    assert_int_equal(chmod(place->directory, 0777), 0);
    assert_int_equal(
        service_open(place->directory, speaker_handle, place->directory, &place->service),
        LEASE_EPERM);
    assert_null(place->service);
}

/* The longest directory that the wire's limits let through can really be bound. */
static void the_longest_path_can_be_bound(void **state)
{
    struct place *place = *state;
    char directory[IPC_DIRECTORY_MAX + 1];
    size_t length = strlen(place->directory);
    memcpy(directory, place->directory, length);
    memset(directory + length, 'd', sizeof directory - length);
    directory[length] = '/';
    directory[IPC_DIRECTORY_MAX] = '\0';
    assert_int_equal(mkdir(directory, 0700), 0);
    struct service *service = NULL;
    assert_int_equal(service_open(directory, speaker_handle, directory, &service), 0);
    service_close(&service);
}

static void the_name_goes_with_the_speaker_unless_it_was_taken(void **state)
{
    struct place *place = *state;
    char path[128];
    path_in(place, path);
    struct service *second = NULL;
    /* What the flock is there to prevent: the second one takes the path. */
    assert_int_equal(service_open(place->directory, speaker_handle, place->directory, &second), 0);
    service_close(&place->service);
    assert_int_equal(access(path, F_OK), 0); /* not the first one's to take away */
    service_close(&second);
    assert_int_equal(access(path, F_OK), -1);
    service_close(&second); /* twice is nothing */
}

/* ---- the process it lives in ------------------------------------------------------------ */

/* What a thread of this process blocks, a bit a signal. */
static unsigned long long blocked_by(const char *tid)
{
    char path[64], line[256];
    unsigned long long mask = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/status", tid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "SigBlk:", 7) == 0) {
            mask = strtoull(line + 7, NULL, 16);
        }
    }
    (void)fclose(file);
    return mask;
}

/* Threads beside this one that block all that can be blocked (the C library keeps 32 and 33). */
static unsigned threads_that_block_all(void)
{
    const unsigned long long least = ~(1ULL << (SIGKILL - 1) | 1ULL << (SIGSTOP - 1) | 3ULL << 31);
    unsigned blocking = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] != '.' && atoi(task->d_name) != getpid()) {
            blocking += (blocked_by(task->d_name) & least) == least;
        }
    }
    (void)closedir(tasks);
    return blocking;
}

static void signals_stay_with_the_host(void **state)
{
    struct place *place = *state;
    sigset_t now;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    assert_false(sigismember(&now, SIGINT));
    unsigned with = threads_that_block_all(); /* a sanitizer may have one of its own */
    service_close(&place->service);
    assert_int_equal(with - threads_that_block_all(), 2); /* reaper and I/O */
}

static void a_forked_child_leaves_it_alone(void **state)
{
    struct place *place = *state;
    char path[128];
    path_in(place, path);
    pid_t child = quiet_fork();
    if (child == 0) {
        bool refused = service_run(place->service) == LEASE_EFORK;
        service_close(&place->service);
        _exit(refused && !place->service && access(path, F_OK) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    void *req = dial(place, ZMQ_REQ);
    struct message reply;
    send_op(req, MESSAGE_HELLO, 1);
    hear(place->service, req, &reply);
}

/* ---- a peer of another language --------------------------------------------------------- */

static void a_foreign_peer_is_understood(void **state)
{
    struct place *place = *state;
    pid_t peer = -1;
    int status = 0;
    char python[] = PYTHON, script[] = FOREIGN_PEER;
    char *argv[] = {python, script, place->directory, NULL};
    if (python[0] == '\0' || posix_spawn(&peer, python, NULL, NULL, argv, environ) != 0) {
        print_message("skipped: no python3\n");
        skip();
    }
    while (waitpid(peer, &status, WNOHANG) == 0) {
        turn(place->service, 10);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: %s has no zmq and msgpack\n", PYTHON);
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
#define PLACED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PLACED(a_req_is_answered),
        PLACED(a_req_with_a_number_is_answered),
        PLACED(a_dealer_is_answered_with_what_it_put_in_front),
        PLACED(a_thousand_requests_are_answered_in_order),
        PLACED(a_turn_is_bounded),
        PLACED(garbage_moves_counters_only),
        PLACED(what_is_wrong_is_answered),
        PLACED(a_reply_is_not_answered),
        PLACED(an_oversized_frame_ends_its_connection_alone),
        PLACED(an_asker_that_left_is_counted),
        PLACED(a_reply_that_cannot_be_sent_is_mended),
        PLACED(the_socket_is_as_private_as_its_directory),
        PLACED(the_longest_path_can_be_bound),
        PLACED(the_name_goes_with_the_speaker_unless_it_was_taken),
        PLACED(signals_stay_with_the_host),
        PLACED(a_forked_child_leaves_it_alone),
        PLACED(a_foreign_peer_is_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
