/* How long a question to an owner takes: asker.h against service.h, beside a bare REQ against a bare
 * REP with messages of the same sizes, in turns within one run, on loopback, each answered by a
 * process of its own. Times are stated, none is asserted. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/asker.h"
#include "agent/service.h"
#include "broker/host_clock.h"

#define QUESTIONS_MAX 1000000

static size_t request_size, reply_size;

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void give_up(const char *what)
{
    (void)fprintf(stderr, "bench_ask: %s\n", what);
    exit(70);
}

/* ---- the question ---------------------------------------------------------------------------- */

static struct message a_question(void)
{
    struct message request;
    uint8_t none[WIRE_ID_BYTES] = {0};
    message_request(&request, MESSAGE_VERIFY, none);
    (void)strcpy(request.name, "laptop");
    (void)strcpy(request.provider, "z4-qwen");
    (void)strcpy(request.host, "laptop");
    (void)strcpy(request.label, "subagent/7");
    request.holder_pid = 4242;
    request.units = 1;
    request.ttl_ms = 30000;
    request.budget_ms = 750;
    request.epoch = 1796000000;
    return request;
}

static int answer(void *arg, const struct message *request, struct message *reply)
{
    (void)arg;
    (void)request;
    (void)strcpy(reply->lease, "z4-qwen:aaaaaaaaaaaaaaaaaaaaaaaaaa");
    reply->verdict = MESSAGE_GO;
    reply->token = UINT64_C(1883242496000017);
    reply->left_ms = 30000;
    reply->units = 1;
    reply->dispatched = true;
    reply->epoch = 1796000000;
    reply->state_version = 42;
    return 0;
}

static void measure_sizes(void)
{
    static uint8_t bytes[MESSAGE_PACKED_MAX];
    struct message request = a_question(), reply;
    request.req[0] = 1;
    message_reply(&reply, &request);
    reply.ok = true;
    (void)answer(NULL, &request, &reply);
    if (message_encode(&request, bytes, sizeof bytes, &request_size, NULL) != WIRE_OK ||
        message_encode(&reply, bytes, sizeof bytes, &reply_size, NULL) != WIRE_OK) {
        give_up("a message cannot be sent");
    }
}

/* ---- who answers ----------------------------------------------------------------------------- */

static void tell(int fd, const char *endpoint)
{
    if (write(fd, endpoint, TCP_ENDPOINT_SIZE) != TCP_ENDPOINT_SIZE) {
        exit(70);
    }
}

static void serve(int fd)
{
    struct service *service = NULL;
    char endpoint[TCP_ENDPOINT_SIZE] = "";
    if (service_open(NULL, answer, NULL, &service) != 0 ||
        service_bind(service, "tcp://127.0.0.1:0", endpoint) != 0) {
        exit(70);
    }
    tell(fd, endpoint);
    for (;;) {
        zmq_pollitem_t item = {.socket = service_socket(service), .events = ZMQ_POLLIN};
        (void)zmq_poll(&item, 1, -1);
        (void)service_run(service);
    }
}

static void serve_bare(int fd)
{
    static char bytes[8192];
    char endpoint[TCP_ENDPOINT_SIZE] = "";
    size_t size = sizeof endpoint;
    void *rep = zmq_socket(zmq_ctx_new(), ZMQ_REP);
    if (!rep || zmq_bind(rep, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(rep, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0) {
        exit(70);
    }
    tell(fd, endpoint);
    for (;;) {
        (void)zmq_recv(rep, bytes, sizeof bytes, 0);
        (void)zmq_send(rep, bytes, reply_size, 0);
    }
}

static void start(void (*server)(int fd), char endpoint[TCP_ENDPOINT_SIZE])
{
    int ends[2];
    if (pipe(ends) != 0) {
        give_up("no pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        server(ends[1]);
    }
    if (child < 0 || read(ends[0], endpoint, TCP_ENDPOINT_SIZE) != TCP_ENDPOINT_SIZE) {
        give_up("a server did not start");
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* ---- who asks -------------------------------------------------------------------------------- */

struct subject {
    const char *name;
    void (*ask)(struct subject *self);
    char endpoint[TCP_ENDPOINT_SIZE];
    void *req;
    struct asker *asker;
    struct ask question;
    int64_t *times;
};

static void ask_bare(struct subject *self)
{
    static char bytes[8192];
    if (zmq_send(self->req, bytes, request_size, 0) < 0 ||
        zmq_recv(self->req, bytes, sizeof bytes, 0) < 0) {
        give_up("a bare question failed");
    }
}

static void ask_asker(struct subject *self)
{
    struct message request = a_question(), reply;
    ns_t deadline = host_now_ns() + 10 * NS_PER_SEC;
    if (ask_once(self->asker, self->endpoint, &request, &reply, deadline, &self->question) != 0 ||
        reply.verdict != MESSAGE_GO) {
        give_up("a question failed");
    }
}

static int by_time(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static double at(const struct subject *subject, unsigned count, double part)
{
    return (double)subject->times[(unsigned)((double)(count - 1) * part)] / 1000;
}

/* `count` questions of each, in turns: one by one where they are paced, else in runs of a hundred. */
static void run(struct subject *subjects, unsigned count, unsigned a_second)
{
    unsigned done[2] = {0};
    int64_t next = now_ns();
    for (unsigned turn = 0; done[0] < count || done[1] < count; turn++) {
        struct subject *subject = &subjects[turn % 2];
        for (unsigned n = 0; n < (a_second ? 1 : 100) && done[turn % 2] < count; n++) {
            if (a_second) {
                next += 1000000000 / (2 * a_second);
                struct timespec t = {next / 1000000000, next % 1000000000};
                (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
            }
            int64_t before = now_ns();
            subject->ask(subject);
            subject->times[done[turn % 2]++] = now_ns() - before;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        qsort(subjects[i].times, count, sizeof *subjects[i].times, by_time);
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct subject *subject = &subjects[i];
        (void)printf("%-16s %-10s %8u %8.1f %8.1f %8.1f %6.2f %6.2f\n", subject->name,
                     a_second ? "paced" : "flat out", count, at(subject, count, 0.5),
                     at(subject, count, 0.99), at(subject, count, 0.999),
                     at(subject, count, 0.5) / at(&subjects[0], count, 0.5),
                     at(subject, count, 0.99) / at(&subjects[0], count, 0.99));
        (void)fflush(stdout);
    }
}

static unsigned number(int argc, char **argv, int i, unsigned otherwise)
{
    long value = argc > i ? atol(argv[i]) : (long)otherwise;
    if (value < 1 || value > QUESTIONS_MAX) {
        (void)fprintf(stderr, "usage: bench_ask [PACED [FLAT-OUT [A-SECOND]]]\n");
        exit(64);
    }
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    static struct subject subjects[2] = {{.name = "bare REQ/REP", .ask = ask_bare},
                                         {.name = "asker/service", .ask = ask_asker}};
    unsigned paced = number(argc, argv, 1, 1000), flat_out = number(argc, argv, 2, 20000);
    unsigned a_second = number(argc, argv, 3, 100);
    measure_sizes();
    start(serve_bare, subjects[0].endpoint);
    start(serve, subjects[1].endpoint);
    for (unsigned i = 0; i < 2; i++) {
        subjects[i].times = calloc(QUESTIONS_MAX, sizeof *subjects[i].times);
        if (!subjects[i].times) {
            give_up("no memory");
        }
    }
    subjects[0].req = zmq_socket(zmq_ctx_new(), ZMQ_REQ);
    if (!subjects[0].req || zmq_connect(subjects[0].req, subjects[0].endpoint) != 0 ||
        asker_open(&subjects[1].asker) != 0) {
        give_up("cannot ask");
    }
    for (unsigned n = 0; n < 100; n++) {
        ask_bare(&subjects[0]);
        ask_asker(&subjects[1]);
    }
    (void)printf("%zu bytes asked, %zu answered; microseconds\n", request_size, reply_size);
    (void)printf("%-16s %-10s %8s %8s %8s %8s %6s %6s\n", "", "", "n", "p50", "p99", "p99.9",
                 "x p50", "x p99");
    run(subjects, paced, a_second);
    run(subjects, flat_out, 0);
    return 0;
}
