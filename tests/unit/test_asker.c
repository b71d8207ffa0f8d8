#define _GNU_SOURCE
#include "agent/asker.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "tests/lib/answerer.h"
#include "tests/lib/check.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/quiet_fork.h"
#include "tests/lib/temp_dir.h"

/* Nobody is there: kept for documentation, no route (or refused at once), and refused. */
#define NOWHERE "tcp://192.0.2.1:5771"
#define REFUSED "tcp://127.0.0.1:1"

struct place {
    struct asker *asker;
    struct answerer answerer;
    struct ask ask;
};

static int set_up(void **state)
{
    static struct place place;
    memset(&place, 0, sizeof place);
    atomic_store(&place.answerer.stop, true);
    assert_int_equal(asker_open(&place.asker), 0);
    *state = &place;
    return 0;
}

static int set_up_with_answerer(void **state)
{
    (void)set_up(state);
    return answerer_start(&((struct place *)*state)->answerer) ? 0 : -1;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    ask_free(&place->ask);
    asker_close(&place->asker);
    assert_null(place->asker);
    answerer_stop(&place->answerer);
    return 0;
}

static ns_t in_ms(int64_t ms)
{
    return host_now_ns() + ms * NS_PER_MS;
}

static struct message a_request(enum message_op op)
{
    struct message request;
    uint8_t none[WIRE_ID_BYTES] = {0};
    message_request(&request, op, none);
    (void)strcpy(request.provider, "z4");
    return request;
}

static int once(struct place *place, const char *endpoint, int64_t ms)
{
    struct message request = a_request(MESSAGE_VERIFY), reply;
    int error = ask_once(place->asker, endpoint, &request, &reply, in_ms(ms), &place->ask);
    if (error == 0) {
        assert_int_equal(reply.op, MESSAGE_VERIFY);
        assert_memory_equal(reply.req, place->ask.req, WIRE_ID_BYTES);
    }
    return error;
}

static void a_question_is_answered(void **state)
{
    struct place *place = *state;
    for (unsigned n = 0; n < 100; n++) {
        assert_int_equal(once(place, place->answerer.endpoint, 20000), 0);
    }
    assert_int_equal(atomic_load(&place->answerer.heard), 100); /* none twice */
}

static void the_replys_bytes_last(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_FETCH), reply;
    static const size_t sizes[] = {6, 100, WIRE_STATE_MAX, 50};
    for (size_t i = 0; i < 4; i++) {
        place->answerer.state_size = sizes[i]; /* nothing is under way */
        assert_int_equal(ask_once(place->asker, place->answerer.endpoint, &request, &reply,
                                  in_ms(20000), &place->ask),
                         0);
        assert_int_equal(reply.state.size, sizes[i]);
        assert_true(reply.state.at >= place->ask.buffer &&
                    reply.state.at + reply.state.size <=
                        place->ask.buffer + place->ask.buffer_size);
        assert_int_equal(reply.state.at[reply.state.size - 1], 's');
        answerer_stop(&place->answerer);
        assert_true(answerer_start(&place->answerer));
    }
}

static void what_cannot_be_asked_is_refused(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(0)), LEASE_EINVAL);
    assert_int_equal(ask_fd(&place->ask), -1);
    assert_int_equal(ask_send(place->asker, "tcp://*:1", &request, &place->ask), LEASE_EINVAL);
    assert_int_equal(ask_send(place->asker, "", &request, &place->ask), LEASE_EINVAL);
    request.provider[0] = '\0';
    assert_int_equal(ask_send(place->asker, REFUSED, &request, &place->ask), LEASE_EINVAL);
    request = a_request(MESSAGE_VERIFY);
    request.reply = true;
    assert_int_equal(ask_send(place->asker, REFUSED, &request, &place->ask), LEASE_EINVAL);
    ask_end(&place->ask);
    assert_int_equal(asker_check_endpoint(REFUSED), 0);
    assert_int_equal(asker_check_endpoint("tcp://m5:5771"), 0);
    assert_int_equal(asker_check_endpoint("tcp://m5"), LEASE_EINVAL);
}

static void nobody_there_is_silence(void **state)
{
    struct place *place = *state;
    static const char *const nobody[] = {REFUSED, NOWHERE};
    for (size_t i = 0; i < 4; i++) { /* a connection that is new, and one that was used */
        int64_t before = test_now_ns();
        assert_int_equal(once(place, nobody[i % 2], 100), LEASE_ETIMEOUT);
        int64_t took_ms = (test_now_ns() - before) / 1000000;
        assert_in_range(took_ms, 99, 5000);
    }
    assert_int_equal(once(place, "ipc:///nowhere/at/all", 20000), LEASE_EABSENT);
    struct message request = a_request(MESSAGE_VERIFY), reply;
    assert_int_equal(ask_send(place->asker, NOWHERE, &request, &place->ask), 0);
    assert_int_equal(ask_receive(&place->ask, &reply, 0), LEASE_ETIMEOUT); /* only looks */
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(10)), LEASE_ETIMEOUT);
}

/* Silence while it is away, an answer when it is back, by a question that began before. */
static void one_that_comes_back_is_found(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    assert_int_equal(once(place, place->answerer.endpoint, 20000), 0);
    answerer_stop(&place->answerer);
    assert_int_equal(once(place, place->answerer.endpoint, 50), LEASE_ETIMEOUT);
    assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &request, &place->ask), 0);
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(50)), LEASE_ETIMEOUT);
    assert_true(answerer_start(&place->answerer));
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(20000)), 0);
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(0)), LEASE_EINVAL); /* it was */
}

/* It heard the question, died, and the next one has to hear it again. */
static void one_that_died_with_the_question_is_asked_again(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    atomic_store(&place->answerer.lose, 1);
    assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &request, &place->ask), 0);
    while (atomic_load(&place->answerer.heard) < 1) {
        assert_int_equal(ask_receive(&place->ask, &reply, in_ms(5)), LEASE_ETIMEOUT);
    }
    answerer_stop(&place->answerer);
    assert_true(answerer_start(&place->answerer));
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(20000)), 0);
}

static void a_lost_reply_is_asked_for_again(void **state)
{
    struct place *place = *state;
    atomic_store(&place->answerer.lose, 2);
    int64_t before = test_now_ns();
    assert_int_equal(once(place, place->answerer.endpoint, 20000), 0);
    int64_t took_ms = (test_now_ns() - before) / 1000000;
    assert_in_range(took_ms, 2 * ASKER_AGAIN_MS - 10, 10000);
    assert_int_equal(atomic_load(&place->answerer.heard), 3);
}

/* The same connection, the same thread: only the req tells them apart. */
static void a_late_reply_is_not_taken_for_anothers(void **state)
{
    struct place *place = *state;
    struct message first = a_request(MESSAGE_VERIFY), second = first, reply;
    first.req[0] = 1;
    second.req[0] = 2;
    atomic_store(&place->answerer.hold, true);
    atomic_store(&place->answerer.rubbish, 3);
    assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &first, &place->ask), 0);
    while (atomic_load(&place->answerer.heard) < 1) {
        assert_int_equal(ask_receive(&place->ask, &reply, in_ms(5)), LEASE_ETIMEOUT);
    }
    assert_int_equal(ask_once(place->asker, place->answerer.endpoint, &second, &reply, in_ms(20000),
                              &place->ask),
                     0);
    assert_int_equal(reply.req[0], 2);
    /* asked twice before it was answered once: the other answer waits for the next question */
    second.req[0] = 3;
    atomic_store(&place->answerer.hold, true);
    assert_int_equal(ask_once(place->asker, place->answerer.endpoint, &second, &reply, in_ms(20000),
                              &place->ask),
                     0);
    second.req[0] = 4;
    assert_int_equal(ask_once(place->asker, place->answerer.endpoint, &second, &reply, in_ms(20000),
                              &place->ask),
                     0);
    assert_int_equal(reply.req[0], 4);
}

static void rubbish_does_not_hold_it_up(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    atomic_store(&place->answerer.rubbish, 20);
    assert_int_equal(once(place, place->answerer.endpoint, 20000), 0);
    /* replies without an end, none of them ours */
    atomic_store(&place->answerer.rubbish, 2000000000);
    assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &request, &place->ask), 0);
    int64_t before = test_now_ns();
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(200)), LEASE_ETIMEOUT);
    int64_t took_ms = (test_now_ns() - before) / 1000000;
    assert_in_range(took_ms, 199, 5000);
    atomic_store(&place->answerer.rubbish, 0);
}

/* In the loop of a host: it sleeps on the descriptor. */
static void a_loop_can_wait_for_it(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    for (unsigned n = 0; n < 20; n++) {
        ns_t deadline = in_ms(20000);
        assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &request, &place->ask),
                         0);
        while (ask_receive(&place->ask, &reply, 0) == LEASE_ETIMEOUT) {
            struct pollfd item = {.fd = ask_fd(&place->ask), .events = POLLIN};
            assert_true(item.fd >= 0);
            (void)poll(&item, 1, ASKER_AGAIN_MS);
            assert_true(host_now_ns() < deadline);
        }
        ask_end(&place->ask);
    }
}

/* ---- names ------------------------------------------------------------------------------ */

static void a_name_is_looked_up(void **state)
{
    struct place *place = *state;
    char endpoint[TCP_ENDPOINT_SIZE];
    (void)snprintf(endpoint, sizeof endpoint, "tcp://localhost%s",
                   strrchr(place->answerer.endpoint, ':'));
    for (unsigned n = 0; n < 3; n++) {
        assert_int_equal(once(place, endpoint, 20000), 0);
    }
}

/* However long the resolver takes, nobody waits beyond his deadline, nor for it to end. */
static void a_name_that_is_nobodys_is_absent(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY);
    for (unsigned n = 0; n < 3; n++) {
        int64_t before = test_now_ns();
        int error = once(place, "tcp://nobody.invalid:5771", 300);
        int64_t took_ms = (test_now_ns() - before) / 1000000;
        assert_true(error == LEASE_EABSENT || error == LEASE_ETIMEOUT);
        assert_in_range(took_ms, 0, 5000);
    }
    assert_int_equal(ask_send(place->asker, "tcp://nobody2.invalid:5771", &request, &place->ask),
                     0);
    assert_true(ask_fd(&place->ask) >= 0);
}

/* ---- many ------------------------------------------------------------------------------- */

#define THREADS   8
#define QUESTIONS 300

static void *ask_many(void *arg)
{
    struct place *place = arg;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    struct ask ask = {0};
    void *failed = NULL;
    for (int n = 0; n < QUESTIONS && !failed; n++) {
        const char *endpoint = n % 50 == 0 ? REFUSED : place->answerer.endpoint;
        ns_t deadline = in_ms(n % 50 == 0 ? 1 : 20000);
        int error = ask_once(place->asker, endpoint, &request, &reply, deadline, &ask);
        failed = error == (n % 50 == 0 ? LEASE_ETIMEOUT : 0) ? NULL : arg;
    }
    ask_free(&ask);
    return failed;
}

static void ask_from_threads(struct place *place)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_many, place), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

static void threads_ask_at_once(void **state)
{
    ask_from_threads(*state);
}

static void on_alarm(int number)
{
    (void)number;
}

static void a_storm_of_signals_changes_nothing(void **state)
{
    struct place *place = *state;
    struct sigaction before, action = {.sa_handler = on_alarm};
    struct itimerval storm = {{0, 300}, {0, 300}}, calm = {{0, 0}, {0, 0}};
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &storm, NULL), 0);
    int failed = 0;
    for (int n = 0; n < 300 && failed == 0; n++) {
        failed = once(place, place->answerer.endpoint, 20000);
    }
    int64_t from = test_now_ns();
    int silence = once(place, REFUSED, 100);
    int64_t took_ms = (test_now_ns() - from) / 1000000;
    assert_int_equal(setitimer(ITIMER_REAL, &calm, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(failed, 0);
    assert_int_equal(silence, LEASE_ETIMEOUT);
    assert_in_range(took_ms, 99, 5000);
}

/* Idle ones beyond the limit are closed, and questions beyond the other are refused. */
static void the_pool_is_bounded(void **state)
{
    struct place *place = *state;
    static struct ask asks[ASKER_ASKS_MAX + 1];
    struct message request = a_request(MESSAGE_VERIFY), reply;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < 3 * ASKER_ASKS_MAX) {
        print_message("skipped: no more than %ld descriptors\n", (long)files.rlim_cur);
        skip();
    }
    for (unsigned i = 0; i < ASKER_ASKS_MAX; i++) {
        assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &request, &asks[i]), 0);
    }
    assert_int_equal(
        ask_send(place->asker, place->answerer.endpoint, &request, &asks[ASKER_ASKS_MAX]),
        LEASE_EIO);
    for (unsigned i = 0; i < ASKER_ASKS_MAX; i++) {
        assert_int_equal(ask_receive(&asks[i], &reply, in_ms(60000)), 0);
        ask_free(&asks[i]);
    }
    assert_int_equal(once(place, place->answerer.endpoint, 20000), 0);
    assert_int_equal(once(place, REFUSED, 1), LEASE_ETIMEOUT); /* room for others again */
}

/* ---- the process it lives in ------------------------------------------------------------ */

static void a_forked_child_leaves_it_alone(void **state)
{
    struct place *place = *state;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    assert_int_equal(ask_send(place->asker, place->answerer.endpoint, &request, &place->ask), 0);
    pid_t child = quiet_fork();
    if (child == 0) {
        struct ask other = {0};
        bool fine = ask_receive(&place->ask, &reply, in_ms(1)) == LEASE_EFORK &&
                    ask_fd(&place->ask) == -1 &&
                    ask_send(place->asker, REFUSED, &request, &other) == LEASE_EFORK;
        ask_free(&place->ask);
        asker_close(&place->asker);
        struct asker *own = NULL; /* and can ask by one of its own */
        fine = fine && asker_open(&own) == 0;
        fine = fine &&
               (!DESCRIPTORS_FORK_WITH_THREADS || ask_once(own, place->answerer.endpoint, &request,
                                                           &reply, in_ms(20000), &other) == 0);
        _exit(fine ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ask_receive(&place->ask, &reply, in_ms(20000)), 0);
}

static bool ask_with_few(void *arg, int spare)
{
    struct place *place = arg;
    struct message request = a_request(MESSAGE_VERIFY), reply;
    struct asker *asker = NULL;
    struct ask ask = {0};
    int error = asker_open(&asker);
    if (error == 0) {
        error = ask_once(asker, place->answerer.endpoint, &request, &reply, in_ms(20000), &ask);
    }
    ask_free(&ask);
    asker_close(&asker);
    return error == (spare < IPC_SPARE_FDS ? LEASE_EIO : 0);
}

static bool ask_on_with_few(void *arg, int spare)
{
    struct place *place = arg;
    struct message request = a_request(MESSAGE_VERIFY);
    static struct ask asks[64];
    unsigned n = 0;
    int error = 0;
    struct asker *asker = NULL;
    if (asker_open(&asker) != 0) {
        return false;
    }
    while (n < 64 && error == 0) { /* until there are no more */
        error = ask_send(asker, place->answerer.endpoint, &request, &asks[n++]);
    }
    while (n > 0) {
        ask_free(&asks[--n]);
    }
    asker_close(&asker);
    return error == LEASE_EIO && spare >= 0;
}

static void without_descriptors_it_fails_and_lives(void **state)
{
    if (!DESCRIPTORS_FORK_WITH_THREADS) {
        skip();
    }
    assert_true(descriptors_try(ask_with_few, *state, IPC_SPARE_FDS + 1));
    assert_true(descriptors_try(ask_on_with_few, *state, IPC_SPARE_FDS + 8));
}

int main(void)
{
#define PLACED(test)   cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define ANSWERED(test) cmocka_unit_test_setup_teardown(test, set_up_with_answerer, tear_down)
    const struct CMUnitTest tests[] = {
        ANSWERED(a_question_is_answered),
        ANSWERED(the_replys_bytes_last),
        PLACED(what_cannot_be_asked_is_refused),
        PLACED(nobody_there_is_silence),
        ANSWERED(one_that_comes_back_is_found),
        ANSWERED(one_that_died_with_the_question_is_asked_again),
        ANSWERED(a_lost_reply_is_asked_for_again),
        ANSWERED(a_late_reply_is_not_taken_for_anothers),
        ANSWERED(rubbish_does_not_hold_it_up),
        ANSWERED(a_loop_can_wait_for_it),
        ANSWERED(a_name_is_looked_up),
        PLACED(a_name_that_is_nobodys_is_absent),
        ANSWERED(threads_ask_at_once),
        ANSWERED(a_storm_of_signals_changes_nothing),
        ANSWERED(the_pool_is_bounded),
        ANSWERED(a_forked_child_leaves_it_alone),
        ANSWERED(without_descriptors_it_fails_and_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
