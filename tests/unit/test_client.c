#define _GNU_SOURCE
#include "agent/client.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "broker/error.h"
#include "tests/lib/check.h"
#include "tests/lib/speaker.h"
#include "tests/lib/temp_dir.h"

static int set_up(void **state)
{
    static char directory[TEMP_DIR_MAX];
    *state = directory;
    return temp_dir_make(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
    temp_dir_remove(*state);
    return 0;
}

static void end(pid_t speaker)
{
    assert_int_equal(kill(speaker, SIGKILL), 0);
    assert_int_equal(waitpid(speaker, NULL, 0), speaker);
}

static int ask(const char *directory, enum message_op op, struct message *reply, int timeout_ms)
{
    static struct message request;
    memset(&request, 0, sizeof request);
    request.op = op;
    (void)strcpy(request.provider, "m5");
    return client_ask(directory, &request, reply, timeout_ms);
}

static bool answers(void *context)
{
    struct message reply;
    return ask(context, MESSAGE_HELLO, &reply, 5000) == 0;
}

static bool is_stopped(void *context)
{
    int status;
    return waitpid(*(pid_t *)context, &status, WUNTRACED | WNOHANG) > 0 && WIFSTOPPED(status);
}

static void a_question_has_one_of_three_ends(void **state)
{
    const char *directory = *state;
    struct message reply;
    assert_int_equal(ask(directory, MESSAGE_HELLO, &reply, 5000), LEASE_EABSENT); /* no file */
    pid_t speaker = speaker_spawn(directory);
    assert_true(eventually(answers, (void *)(uintptr_t)directory));
    assert_int_equal(ask(directory, MESSAGE_STATUS, &reply, 5000), 0);
    assert_true(reply.ok);
    assert_int_equal(reply.pid, speaker);
    assert_int_equal(ask(directory, MESSAGE_READ, &reply, 5000), 0);
    assert_int_equal(reply.error, LEASE_EUNKNOWN); /* answered, with no */
    assert_string_equal(reply.text, lease_error_text(LEASE_EUNKNOWN));

    assert_int_equal(kill(speaker, SIGSTOP), 0);
    assert_true(eventually(is_stopped, &speaker));
    memset(&reply, 0x5a, sizeof reply);
    int64_t before = test_now_ns();
    assert_int_equal(ask(directory, MESSAGE_HELLO, &reply, 200), LEASE_ETIMEOUT);
    int64_t took_ms = (test_now_ns() - before) / 1000000;
    assert_in_range(took_ms, 200, 5000);
    assert_int_equal(reply.req[0], 0x5a); /* unchanged */
    assert_int_equal(kill(speaker, SIGCONT), 0);
    assert_true(eventually(answers, (void *)(uintptr_t)directory));

    end(speaker);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/agent.ipc", directory);
    assert_int_equal(access(path, F_OK), 0); /* the file is left behind, and nobody is at it */
    before = test_now_ns();
    assert_int_equal(ask(directory, MESSAGE_HELLO, &reply, 20000), LEASE_EABSENT);
    assert_true(test_now_ns() - before < INT64_C(10000000000)); /* known at once */
}

static void a_question_that_cannot_be_asked_is_refused(void **state)
{
    const char *directory = *state;
    struct message m;
    memset(&m, 0, sizeof m);
    m.op = MESSAGE_READ; /* of no provider */
    assert_int_equal(client_ask(directory, &m, &m, 100), LEASE_EINVAL);
    m.op = MESSAGE_HELLO;
    assert_int_equal(client_ask(directory, &m, &m, -1), LEASE_EINVAL);
    assert_int_equal(client_ask("here", &m, &m, 100), LEASE_EINVAL);
    m.reply = true;
    m.error = -1;
    assert_int_equal(client_ask(directory, &m, &m, 100), LEASE_EINVAL); /* no request */
}

static void *ask_many(void *arg)
{
    struct message reply, request;
    const char *directory = arg;
    memset(&request, 0, sizeof request);
    request.op = MESSAGE_HELLO;
    for (int n = 0; n < 25; n++) {
        if (client_ask(directory, &request, &reply, 20000) != 0 || !reply.ok) {
            return arg;
        }
    }
    return NULL;
}

static void threads_ask_at_once(void **state)
{
    const char *directory = *state;
    pthread_t threads[4];
    pid_t speaker = speaker_spawn(directory);
    assert_true(eventually(answers, (void *)(uintptr_t)directory));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_many, (void *)(uintptr_t)directory),
                         0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    end(speaker);
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* A host may be full of timers, and its handlers need not restart system calls. */
static void signals_do_not_end_a_question(void **state)
{
    const char *directory = *state;
    struct message reply;
    struct sigaction before, action = {.sa_handler = on_alarm};
    struct itimerval storm = {{0, 300}, {0, 300}}, calm = {{0, 0}, {0, 0}};
    pid_t speaker = speaker_spawn(directory);
    assert_true(eventually(answers, (void *)(uintptr_t)directory));
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &storm, NULL), 0);
    int failed = 0;
    for (int n = 0; n < 50 && failed == 0; n++) {
        failed = ask(directory, MESSAGE_STATUS, &reply, 20000);
    }
    assert_int_equal(kill(speaker, SIGSTOP), 0);
    int64_t from = test_now_ns();
    int error = ask(directory, MESSAGE_STATUS, &reply, 100);
    int64_t took_ms = (test_now_ns() - from) / 1000000;
    assert_int_equal(setitimer(ITIMER_REAL, &calm, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(failed, 0);
    assert_int_equal(error, LEASE_ETIMEOUT);
    assert_in_range(took_ms, 100, 5000);
    end(speaker);
}

/* ---- a speaker that lies ---------------------------------------------------------------- */

/* What it says to each request, in this order; the last is the answer or the next lie. */
enum lie {
    WRONG_REQ = 1,
    GARBAGE = 2,
    A_REQUEST = 4,
    LATER_VERSION = 8,
    THE_TRUTH = 16,
    FLOOD = 32
};

struct liar {
    const char *directory;
    unsigned lies; /* enum lie */
    atomic_bool bound, stop;
};

static void say(void *router, zmq_msg_t *to, const void *bytes, size_t size)
{
    zmq_msg_t copy;
    (void)zmq_msg_init(&copy);
    (void)zmq_msg_copy(&copy, to);
    if (zmq_msg_send(&copy, router, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        (void)zmq_msg_close(&copy);
        return;
    }
    (void)zmq_send(router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(router, bytes, size, ZMQ_DONTWAIT);
}

static void lie(const struct liar *liar, void *router, zmq_msg_t *to, const struct message *request)
{
    static const enum lie all[] = {WRONG_REQ, GARBAGE, A_REQUEST, LATER_VERSION, THE_TRUTH};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct message reply;
        uint8_t bytes[MESSAGE_PACKED_MAX];
        size_t size;
        if (!(liar->lies & all[i])) {
            continue;
        }
        message_reply(&reply, request);
        reply.error = LEASE_EPERM;
        reply.reply = all[i] != A_REQUEST;
        reply.req[3] ^= all[i] == WRONG_REQ;
        (void)message_encode(&reply, bytes, sizeof bytes, &size, NULL);
        bytes[3] = all[i] == LATER_VERSION ? WIRE_VERSION + 1 : bytes[3];
        bytes[0] = all[i] == GARBAGE ? 0xc1 : bytes[0];
        say(router, to, bytes, size);
    }
}

static void hear_and_lie(const struct liar *liar, void *router, zmq_msg_t *to)
{
    struct message request;
    zmq_msg_t frame;
    int more = 1;
    (void)zmq_msg_recv(to, router, 0);
    while (more) {
        (void)zmq_msg_init(&frame);
        (void)zmq_msg_recv(&frame, router, 0);
        more = zmq_msg_more(&frame);
        if (!more &&
            message_decode(zmq_msg_data(&frame), zmq_msg_size(&frame), &request, NULL) == WIRE_OK) {
            lie(liar, router, to, &request);
        }
        (void)zmq_msg_close(&frame);
    }
}

static void *be_a_liar(void *arg)
{
    struct liar *liar = arg;
    char endpoint[IPC_ENDPOINT_SIZE];
    void *context, *router;
    zmq_msg_t to;
    (void)zmq_msg_init(&to);
    bool fine = ipc_endpoint(liar->directory, endpoint) == 0 &&
                ipc_open(ZMQ_ROUTER, &context, &router) == 0;
    if (fine) {
        (void)zmq_bind(router, endpoint);
        atomic_store(&liar->bound, true);
        while (!atomic_load(&liar->stop)) {
            zmq_pollitem_t item = {.socket = router, .events = ZMQ_POLLIN};
            bool flooding = liar->lies & FLOOD && zmq_msg_size(&to) > 0;
            if (zmq_poll(&item, 1, flooding ? 0 : 10) > 0) {
                hear_and_lie(liar, router, &to);
            }
            if (flooding) {
                say(router, &to, "flood", 5);
            }
        }
        ipc_close(&context, &router);
    }
    (void)zmq_msg_close(&to);
    return NULL;
}

static bool is_bound(void *liar)
{
    return atomic_load(&((struct liar *)liar)->bound);
}

static void assert_lies_end_as(const char *directory, unsigned lies, int timeout_ms, int expected)
{
    pthread_t thread;
    struct liar liar = {.directory = directory, .lies = lies};
    struct message reply;
    assert_int_equal(pthread_create(&thread, NULL, be_a_liar, &liar), 0);
    bool bound = eventually(is_bound, &liar);
    int64_t from = test_now_ns();
    int error = ask(directory, MESSAGE_HELLO, &reply, timeout_ms);
    int64_t took_ms = (test_now_ns() - from) / 1000000;
    atomic_store(&liar.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(bound);
    assert_int_equal(error, expected);
    if (expected == 0) {
        assert_int_equal(reply.error, LEASE_EPERM);
    } else {
        assert_in_range(took_ms, 0, 10000);
    }
}

static void only_the_answer_is_taken_for_one(void **state)
{
    unsigned lies = WRONG_REQ | GARBAGE | A_REQUEST;
    assert_lies_end_as(*state, lies | THE_TRUTH, 20000, 0);
    assert_lies_end_as(*state, lies, 300, LEASE_ETIMEOUT);
    assert_lies_end_as(*state, lies | FLOOD, 300, LEASE_ETIMEOUT);
    assert_lies_end_as(*state, lies | LATER_VERSION, 20000, LEASE_EIO);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        return speaker_serve(argv[2]);
    }
#define PLACED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PLACED(a_question_has_one_of_three_ends),
        PLACED(a_question_that_cannot_be_asked_is_refused),
        PLACED(threads_ask_at_once),
        PLACED(signals_do_not_end_a_question),
        PLACED(only_the_answer_is_taken_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
