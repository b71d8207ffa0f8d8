#define _GNU_SOURCE
#include "agent/http.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/http_server.h"

static struct http_server server;
static char last_head[HTTP_SERVER_HEAD];
static pthread_mutex_t last_head_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the server's side ---- */

static void send_text(int fd, const char *text)
{
    http_server_send(fd, text, strlen(text));
}

static void send_zeroes(int fd, size_t count, bool chunked)
{
    static char zeroes[65536];
    char size[32];
    for (size_t sent = 0; sent < count; sent += sizeof zeroes) {
        snprintf(size, sizeof size, "%zx\r\n", sizeof zeroes);
        if ((chunked && !http_server_send(fd, size, strlen(size))) ||
            !http_server_send(fd, zeroes, sizeof zeroes) ||
            (chunked && !http_server_send(fd, "\r\n", 2)))
            return;
    }
    if (chunked)
        send_text(fd, "0\r\n\r\n");
}

static void answer_sized(int fd, size_t size)
{
    char head[96];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", size);
    send_text(fd, head);
    send_zeroes(fd, size, false);
}

static const struct {
    const char *path;
    const char *answer;
} scripts[] = {
    {"/short", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"},
    {"/broken-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"},
    {"/bad-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
    {"/until-close", "HTTP/1.1 200 OK\r\n\r\n12345"},
    {"/garbage", "\x16\x03\x01 this is not HTTP at all\r\n\r\n"},
    {"/nothing", ""},
    {"/half-head", "HTTP/1.1 200 OK\r\nContent-Le"},
    {"/moved", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"},
    {"/503", "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno"},
    {"/gigantic", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"},
};

static atomic_bool let_go;

static void serve(struct http_server *self, int fd, const char *head)
{
    char path[64] = "";
    (void)self;
    sscanf(head, "GET %63s", path);
    pthread_mutex_lock(&last_head_lock);
    snprintf(last_head, sizeof last_head, "%s", head);
    pthread_mutex_unlock(&last_head_lock);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(path, scripts[i].path) == 0) {
            send_text(fd, scripts[i].answer);
            return;
        }
    if (strcmp(path, "/hang") == 0) {
        http_server_hang(fd);
    } else if (strcmp(path, "/late") == 0) {
        while (!atomic_load(&let_go))
            usleep(1000);
        http_server_answer(fd, 200, path, strlen(path));
    } else if (strcmp(path, "/slow") == 0) {
        send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1");
        http_server_hang(fd);
    } else if (strcmp(path, "/max") == 0) {
        answer_sized(fd, HTTP_BODY_MAX);
    } else if (strcmp(path, "/above") == 0) {
        answer_sized(fd, HTTP_BODY_MAX + 65536);
    } else if (strcmp(path, "/above-chunked") == 0) {
        send_text(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        send_zeroes(fd, 100u << 20, true);
    } else {
        http_server_answer(fd, 200, path, strlen(path));
    }
}

/* ---- the client's side ---- */

struct result {
    int calls;
    enum http_failure failure;
    int status;
    size_t size;
    char body[64];
    char reason[64];
    bool waits;
};

static void keep(void *arg, const struct http_answer *answer)
{
    struct result *result = arg;
    result->calls++;
    result->failure = answer->failure;
    result->waits = answer->waits;
    result->status = answer->status;
    result->size = answer->size;
    assert_int_equal(answer->body[answer->size], '\0');
    snprintf(result->body, sizeof result->body, "%s", answer->body);
    snprintf(result->reason, sizeof result->reason, "%s", answer->reason);
}

static const char *url_of(int port, const char *path)
{
    static char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    return url;
}

static struct result get(int port, const char *path, int timeout_ms)
{
    struct result result = {0};
    struct http *http;
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(
        http_get(http, url_of(port, path), NULL, timeout_ms, timeout_ms, keep, &result), 0);
    assert_int_equal(result.calls, 0);
    http_drain(http);
    assert_int_equal(result.calls, 1);
    assert_int_equal(http_pending(http), 0);
    assert_true(http_deadline(http) == NS_NEVER);
    http_close(&http);
    assert_null(http);
    return result;
}

static void fails(const char *path, int timeout_ms, enum http_failure failure)
{
    struct result result = get(server.port, path, timeout_ms);
    if (result.failure != failure)
        fail_msg("%s: failure %d (%s), not %d", path, result.failure, result.reason, failure);
    assert_int_equal(result.size, 0);
    assert_true(result.reason[0] != '\0');
}

static void an_answer_is_brought(void **state)
{
    (void)state;
    struct result result = get(server.port, "/hello", 5000);
    assert_int_equal(result.failure, HTTP_NONE);
    assert_int_equal(result.status, 200);
    assert_string_equal(result.body, "/hello");
    result = get(server.port, "/503", 5000);
    assert_int_equal(result.failure, HTTP_NONE);
    assert_int_equal(result.status, 503);
    assert_string_equal(result.body, "no");
    assert_string_equal(get(server.port, "/until-close", 5000).body, "12345");
}

static void nobody_there_is_unreachable(void **state)
{
    (void)state;
    assert_int_equal(get(http_server_free_port(), "/", 5000).failure, HTTP_UNREACHABLE);
}

static void a_name_that_nobody_has_is_unreachable(void **state)
{
    (void)state;
    struct result result = {0};
    struct http *http;
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(http_get(http, "http://nobody.invalid/", NULL, 20000, 20000, keep, &result),
                     0);
    http_drain(http);
    http_close(&http);
    /* Where the resolver itself is not reached it may take longer than that. */
    assert_true(result.failure == HTTP_UNREACHABLE || result.failure == HTTP_TIMEOUT_CONNECT);
}

static void silence_after_the_connection_is_told_apart(void **state)
{
    (void)state;
    ns_t before = host_now_ns();
    fails("/hang", 60, HTTP_TIMEOUT_ANSWER);
    assert_true(host_now_ns() - before >= 55 * NS_PER_MS);
    fails("/slow", 60, HTTP_TIMEOUT_ANSWER);
}

/* A listener whose queue is full answers no SYN: the way a dead machine looks. */
static void no_connection_in_time_is_told_apart(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int fds[64], count = 0, queue = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(queue, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(queue, 0), 0);
    assert_int_equal(getsockname(queue, (struct sockaddr *)&address, &size), 0);
    for (bool full = false; !full && count < 64; count++) {
        fds[count] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fds[count], (struct sockaddr *)&address, sizeof address);
        struct pollfd connected = {.fd = fds[count], .events = POLLOUT};
        full = poll(&connected, 1, 200) == 0;
    }
    assert_true(count < 64);
    assert_int_equal(get(ntohs(address.sin_port), "/", 60).failure, HTTP_TIMEOUT_CONNECT);
    while (count > 0)
        close(fds[--count]);
    close(queue);
}

static void what_is_cut_off_is_broken(void **state)
{
    (void)state;
    fails("/short", 5000, HTTP_BROKEN);
    fails("/broken-chunk", 5000, HTTP_BROKEN);
    fails("/bad-chunk", 5000, HTTP_BROKEN);
    fails("/nothing", 5000, HTTP_BROKEN);
    fails("/garbage", 5000, HTTP_BROKEN);
    assert_int_equal(get(server.port, "/half-head", 5000).size, 0);
}

static void a_body_has_a_maximum(void **state)
{
    (void)state;
    struct result result = get(server.port, "/max", 20000);
    assert_int_equal(result.failure, HTTP_NONE);
    assert_int_equal(result.size, HTTP_BODY_MAX);
    fails("/above", 20000, HTTP_TOO_LARGE);
    fails("/above-chunked", 20000, HTTP_TOO_LARGE);
    fails("/gigantic", 20000, HTTP_TOO_LARGE);
}

static void a_redirect_is_not_followed(void **state)
{
    (void)state;
    struct result result = get(server.port, "/moved", 5000);
    assert_int_equal(result.failure, HTTP_NONE);
    assert_int_equal(result.status, 302);
}

static void the_environment_s_proxy_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("ALL_PROXY", "http://127.0.0.1:1", 1), 0);
    assert_int_equal(get(server.port, "/x", 5000).failure, HTTP_NONE);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
}

static void headers_are_sent(void **state)
{
    (void)state;
    static const char *const headers[] = {"Authorization: Bearer abc", NULL};
    static const char *const split[] = {"X: a\r\nY: b", NULL};
    struct result result = {0};
    struct http *http;
    assert_int_equal(http_open(host_now_ns, &http), 0);
    const char *url = url_of(server.port, "/x");
    assert_int_equal(http_get(http, url, headers, 5000, 5000, keep, &result), 0);
    assert_int_equal(http_get(http, url, split, 5000, 5000, keep, &result), LEASE_EINVAL);
    http_drain(http);
    http_close(&http);
    assert_int_equal(result.calls, 1);
    pthread_mutex_lock(&last_head_lock);
    assert_non_null(strstr(last_head, "\r\nAuthorization: Bearer abc\r\n"));
    pthread_mutex_unlock(&last_head_lock);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    struct http *http;
    struct result result = {0};
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(http_get(http, "ftp://h/", NULL, 1, 1, keep, &result), LEASE_EINVAL);
    assert_int_equal(http_get(http, "file:///etc/passwd", NULL, 1, 1, keep, &result), LEASE_EINVAL);
    assert_int_equal(http_get(http, "http://h/", NULL, 0, 1, keep, &result), LEASE_EINVAL);
    assert_int_equal(http_get(http, "http://h/", NULL, 1, 0, keep, &result), LEASE_EINVAL);
    http_run(http); /* nothing was ever started */
    http_drain(http);
    http_cancel(http, &result);
    http_close(&http);
    http_close(&http);
    assert_int_equal(result.calls, 0);
}

/* The loop's way: poll the descriptor until the deadline that it names, run, never block. */
static void run_until_idle(struct http *http)
{
    while (http_pending(http) > 0) {
        struct pollfd ready = {.fd = http_fd(http), .events = POLLIN};
        ns_t left = http_deadline(http) - host_now_ns();
        poll(&ready, 1, left <= 0 ? 0 : (int)(left / NS_PER_MS) + 1);
        http_run(http);
    }
}

static void many_run_at_once_in_a_loop(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    static struct result results[COUNT];
    struct http *http;
    memset(results, 0, sizeof results);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(http_get(http, url_of(server.port, i % 2 ? "/hang" : "/x"), NULL,
                                  i % 2 ? 300 : 20000, 20000, keep, &results[i]),
                         0);
    ns_t before = host_now_ns();
    run_until_idle(http);
    ns_t took = host_now_ns() - before;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(results[i].calls, 1);
        assert_int_equal(results[i].failure, i % 2 ? HTTP_TIMEOUT_ANSWER : HTTP_NONE);
    }
    assert_true(took < COUNT / 2 * 300 * NS_PER_MS); /* not one after the other */
    http_close(&http);
}

static void the_table_has_a_maximum(void **state)
{
    (void)state;
    struct http *http;
    struct result result = {0};
    const char *url = url_of(server.port, "/x");
    assert_int_equal(http_open(host_now_ns, &http), 0);
    for (int i = 0; i < HTTP_REQUESTS_MAX; i++)
        assert_int_equal(http_get(http, url, NULL, 5000, 5000, keep, &result), 0);
    assert_int_equal(http_get(http, url, NULL, 5000, 5000, keep, &result), LEASE_EFULL);
    http_close(&http); /* with all of them under way: no callback */
    assert_int_equal(result.calls, 0);
}

static void a_cancelled_one_does_not_call_back(void **state)
{
    (void)state;
    struct http *http;
    struct result hang = {0}, fine = {0};
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(http_get(http, url_of(server.port, "/hang"), NULL, 60000, 60000, keep, &hang),
                     0);
    assert_int_equal(http_get(http, url_of(server.port, "/x"), NULL, 20000, 20000, keep, &fine), 0);
    http_run(http);
    http_cancel(http, &hang);
    assert_int_equal(http_pending(http), 1);
    http_drain(http);
    assert_int_equal(hang.calls, 0);
    assert_int_equal(fine.calls, 1);
    http_close(&http);
}

struct chain {
    struct http *http;
    struct result result;
    int left;
};

/* Too late is told in time, and what comes after all is told, too. */
static void a_patient_one_waits_on(void **state)
{
    (void)state;
    struct result result = {0};
    struct http *http;
    atomic_store(&let_go, false);
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(
        http_get_patiently(http, url_of(server.port, "/late"), NULL, 50, 60000, keep, &result), 0);
    assert_int_equal(http_pending(http), 1);
    ns_t begun = host_now_ns();
    http_drain(http);
    assert_in_range(host_now_ns() - begun, 50 * NS_PER_MS, 5000 * NS_PER_MS);
    assert_int_equal(result.calls, 1);
    assert_int_equal(result.failure, HTTP_TIMEOUT_ANSWER);
    assert_true(result.waits);
    assert_int_equal(http_pending(http), 0);
    atomic_store(&let_go, true);
    while (result.calls == 1) {
        struct pollfd ready = {.fd = http_fd(http), .events = POLLIN};
        poll(&ready, 1, 1000);
        http_run(http);
    }
    assert_int_equal(result.calls, 2);
    assert_int_equal(result.status, 200);
    assert_false(result.waits);
    assert_true(http_deadline(http) == NS_NEVER);
    http_close(&http);
}

static void patience_ends(void **state)
{
    (void)state;
    struct result result = {0}, cancelled = {0};
    struct http *http;
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(
        http_get_patiently(http, url_of(server.port, "/hang"), NULL, 20, 50, keep, &result), 0);
    assert_int_equal(
        http_get_patiently(http, url_of(server.port, "/hang"), NULL, 20, 50, keep, &cancelled), 0);
    http_drain(http);
    assert_int_equal(cancelled.calls, 1);
    http_cancel(http, &cancelled);
    while (result.calls == 1) {
        struct pollfd ready = {.fd = http_fd(http), .events = POLLIN};
        poll(&ready, 1, 5);
        http_run(http);
    }
    assert_int_equal(result.failure, HTTP_TIMEOUT_ANSWER);
    assert_false(result.waits);
    assert_int_equal(cancelled.calls, 1);
    http_close(&http);
    fails("/hang", 20, HTTP_TIMEOUT_ANSWER);
    result = (struct result){0};
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(
        http_get_patiently(http, url_of(server.port, "/x"), NULL, 20, 0, keep, &result),
        LEASE_EINVAL);
    http_close(&http);
}

static void keep_and_go_on(void *arg, const struct http_answer *answer)
{
    struct chain *chain = arg;
    keep(&chain->result, answer);
    if (--chain->left > 0)
        assert_int_equal(http_get(chain->http, url_of(server.port, "/x"), NULL, 20000, 20000,
                                  keep_and_go_on, chain),
                         0);
}

static void a_callback_may_start_another(void **state)
{
    (void)state;
    struct chain chain = {.left = 5};
    assert_int_equal(http_open(host_now_ns, &chain.http), 0);
    assert_int_equal(
        http_get(chain.http, url_of(server.port, "/x"), NULL, 20000, 20000, keep_and_go_on, &chain),
        0);
    http_drain(chain.http);
    assert_int_equal(chain.result.calls, 5);
    http_close(&chain.http);
}

static void no_socket_is_inherited(void **state)
{
    (void)state;
    struct http *http;
    struct result result = {0};
    bool before[256];
    int sockets = 0;
    assert_int_equal(http_open(host_now_ns, &http), 0);
    assert_int_equal(http_get(http, url_of(server.port, "/x"), NULL, 5000, 5000, keep, &result), 0);
    http_cancel(http, &result); /* libcurl's own descriptors exist now */
    for (int fd = 0; fd < 256; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    assert_int_equal(
        http_get(http, url_of(server.port, "/hang"), NULL, 60000, 60000, keep, &result), 0);
    http_run(http);
    for (int fd = 0; fd < 256; fd++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        if (before[fd] || getpeername(fd, (struct sockaddr *)&peer, &size) != 0 ||
            ntohs(peer.sin_port) != server.port)
            continue;
        sockets++;
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    assert_int_equal(sockets, 1);
    http_close(&http);
}

static void the_caller_s_signals_are_as_before(void **state)
{
    (void)state;
    sigset_t before, after;
    struct sigaction pipe_before, pipe_after;
    sigaction(SIGPIPE, NULL, &pipe_before);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    get(server.port, "/x", 5000);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    sigaction(SIGPIPE, NULL, &pipe_after);
    for (int number = 1; number < 32; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    assert_ptr_equal(pipe_before.sa_handler, pipe_after.sa_handler);
}

static int start(void **state)
{
    (void)state;
    http_server_start(&server, serve, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_brought),
        cmocka_unit_test(nobody_there_is_unreachable),
        cmocka_unit_test(a_name_that_nobody_has_is_unreachable),
        cmocka_unit_test(silence_after_the_connection_is_told_apart),
        cmocka_unit_test(no_connection_in_time_is_told_apart),
        cmocka_unit_test(what_is_cut_off_is_broken),
        cmocka_unit_test(a_body_has_a_maximum),
        cmocka_unit_test(a_redirect_is_not_followed),
        cmocka_unit_test(the_environment_s_proxy_is_ignored),
        cmocka_unit_test(headers_are_sent),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(many_run_at_once_in_a_loop),
        cmocka_unit_test(the_table_has_a_maximum),
        cmocka_unit_test(a_cancelled_one_does_not_call_back),
        cmocka_unit_test(a_patient_one_waits_on),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(a_callback_may_start_another),
        cmocka_unit_test(no_socket_is_inherited),
        cmocka_unit_test(the_caller_s_signals_are_as_before),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
