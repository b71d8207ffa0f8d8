#define _GNU_SOURCE
#include "agent/http.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/http_curl.h"
#include "agent/http_watch.h"
#include "broker/error.h"

/* ---- requests -------------------------------------------------------------------------------- */

struct request {
    struct http *http;
    struct request *next;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    size_t size;
    size_t room; /* bytes of body, the NUL counted */
    bool too_large;
    bool no_memory;
    ns_t answer_by; /* patient: when it is told to be late; NS_NEVER: it is not, or was */
    bool waits;     /* it was told to be late */
    http_callback *done;
    void *arg;
};

/* Invariant: pending is the length of the list of requests, waiting is how many of them wait on. */
struct http {
    ns_t (*now)(void);
    CURLM *multi; /* NULL until the first request */
    int fd;
    int pending;
    int waiting;
    ns_t deadline; /* libcurl's */
    struct request *requests;
    struct watch_list watches;
};

static void request_free(struct request *request)
{
    if (request->easy != NULL)
        http_curl.easy_cleanup(request->easy);
    http_curl.slist_free_all(request->headers);
    free(request->body);
    free(request);
}

/* Takes it out of the list and out of libcurl; the body stays readable until request_free. */
static void request_detach(struct request *request)
{
    struct http *http = request->http;
    struct request **link = &http->requests;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    http->pending--;
    http->waiting -= request->waits;
    http_curl.multi_remove_handle(http->multi, request->easy);
}

static size_t refuse(bool *why)
{
    *why = true;
    return 0; /* fewer than given: libcurl aborts the transfer */
}

static size_t on_body(char *data, size_t one, size_t count, void *arg)
{
    struct request *request = arg;
    size_t more = one * count;
    if (more > HTTP_BODY_MAX - request->size)
        return refuse(&request->too_large);
    size_t room = request->room == 0 ? 4096 : request->room;
    while (room < request->size + more + 1)
        room *= 2;
    if (room != request->room) {
        char *body = realloc(request->body, room);
        if (body == NULL)
            return refuse(&request->no_memory);
        request->body = body;
        request->room = room;
    }
    memcpy(request->body + request->size, data, more);
    request->size += more;
    request->body[request->size] = '\0';
    return more;
}

/* libcurl's own socket() may leave it open in the programs that the host process executes. */
static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg;
    (void)purpose;
    int fd = socket(address->family, address->socktype, address->protocol);
    if (fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        close(fd);
        fd = -1;
    }
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* of_socket is set from the second time on. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
    struct http *http = arg;
    struct epoll_event event = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(http->fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN)
        event.events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        event.events |= EPOLLOUT;
    if (of_socket == NULL)
        http_curl.multi_assign(http->multi, fd, http);
    int first = of_socket == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    int second = of_socket == NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(http->fd, first, fd, &event) != 0 && epoll_ctl(http->fd, second, fd, &event) != 0)
        return -1;
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct http *http = arg;
    (void)multi;
    http->deadline = timeout_ms < 0 ? NS_NEVER : http->now() + timeout_ms * NS_PER_MS;
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

int http_open(ns_t (*now)(void), struct http **http)
{
    *http = calloc(1, sizeof **http);
    if (*http == NULL)
        return LEASE_ENOMEM;
    (*http)->now = now;
    (*http)->deadline = NS_NEVER;
    (*http)->fd = epoll_create1(EPOLL_CLOEXEC);
    (*http)->watches.epoll_fd = (*http)->fd;
    if ((*http)->fd >= 0)
        return 0;
    free(*http);
    *http = NULL;
    return LEASE_EIO;
}

void http_close(struct http **http)
{
    struct http *self = *http;
    if (self == NULL)
        return;
    *http = NULL;
    watch_list_drop(&self->watches);
    if (self->multi != NULL) {
        struct shield shield;
        shield_up(&shield);
        while (self->requests != NULL) {
            struct request *request = self->requests;
            request_detach(request);
            request_free(request);
        }
        http_curl.multi_cleanup(self->multi);
        shield_down(&shield);
    }
    close(self->fd);
    free(self);
}

int http_fd(const struct http *http)
{
    return http->fd;
}

ns_t http_deadline(const struct http *http)
{
    ns_t first = watch_list_deadline(&http->watches);
    for (const struct request *request = http->requests; request != NULL; request = request->next)
        if (request->answer_by < first)
            first = request->answer_by;
    return http->pending > 0 && http->deadline < first ? http->deadline : first;
}

int http_pending(const struct http *http)
{
    return http->pending - http->waiting + http->watches.count;
}

int http_watch(struct http *http, struct http_watch *watch)
{
    return watch_list_add(&http->watches, watch);
}

static int multi_open(struct http *http)
{
    if (!http_curl_load())
        return LEASE_EABSENT;
    if (http->multi != NULL)
        return 0;
    http->multi = http_curl.multi_init();
    if (http->multi == NULL)
        return LEASE_ENOMEM;
    http_curl.multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    http_curl.multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    http_curl.multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    http_curl.multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    http_curl.multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, 1L);
    return 0;
}

/* ---- a GET ----------------------------------------------------------------------------------- */

static void request_limits(CURL *easy, long timeout_ms, long connect_timeout_ms)
{
    http_curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    http_curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_timeout_ms);
    http_curl.easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)HTTP_BODY_MAX);
    http_curl.easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    http_curl.easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    http_curl.easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    http_curl.easy_setopt(easy, CURLOPT_PROXY, "");
    http_curl.easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    http_curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    http_curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    http_curl.easy_setopt(easy, CURLOPT_TCP_KEEPALIVE,
                          1L); /* a host that is gone says nothing itself */
    http_curl.easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 5L);
    http_curl.easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 2L);
    http_curl.easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* else a slow resolver blocks the end */
}

static void request_hooks(CURL *easy, struct request *request)
{
    http_curl.easy_setopt(easy, CURLOPT_PRIVATE, request);
    http_curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    http_curl.easy_setopt(easy, CURLOPT_WRITEDATA, request);
    http_curl.easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    http_curl.easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
}

static int request_headers(struct request *request, const char *const *headers)
{
    for (int i = 0; headers != NULL && headers[i] != NULL; i++) {
        if (i == HTTP_HEADERS_MAX || strpbrk(headers[i], "\r\n") != NULL)
            return LEASE_EINVAL;
        struct curl_slist *longer = http_curl.slist_append(request->headers, headers[i]);
        if (longer == NULL)
            return LEASE_ENOMEM;
        request->headers = longer;
    }
    return 0;
}

static int request_prepare(struct request *request, const char *url, const char *const *headers)
{
    int error = request_headers(request, headers);
    if (error != 0)
        return error;
    request->easy = http_curl.easy_init();
    if (request->easy == NULL)
        return LEASE_ENOMEM;
    request_hooks(request->easy, request);
    return http_curl.easy_setopt(request->easy, CURLOPT_URL, url) == CURLE_OK ? 0 : LEASE_ENOMEM;
}

static int request_start(struct http *http, struct request *request)
{
    if (http_curl.multi_add_handle(http->multi, request->easy) != CURLM_OK)
        return LEASE_ENOMEM;
    request->next = http->requests;
    http->requests = request;
    http->pending++;
    return 0;
}

struct patience {
    int timeout_ms, connect_timeout_ms, patience_ms;
};

static int get(struct http *http, const char *url, const char *const *headers,
               struct patience times, http_callback *done, void *arg)
{
    struct shield shield;
    int timeout_ms = times.timeout_ms, connect_timeout_ms = times.connect_timeout_ms;
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return LEASE_EINVAL;
    if (timeout_ms <= 0 || timeout_ms > HTTP_TIMEOUT_MS_MAX || connect_timeout_ms <= 0)
        return LEASE_EINVAL;
    if (http->pending == HTTP_REQUESTS_MAX)
        return LEASE_EFULL;
    int error = multi_open(http);
    struct request *request = error != 0 ? NULL : calloc(1, sizeof *request);
    if (request == NULL)
        return error != 0 ? error : LEASE_ENOMEM;
    request->http = http;
    request->done = done;
    request->arg = arg;
    request->answer_by = times.patience_ms > 0 ? http->now() + timeout_ms * NS_PER_MS : NS_NEVER;
    shield_up(&shield);
    error = request_prepare(request, url, headers);
    if (error == 0) {
        request_limits(request->easy, (long)timeout_ms + times.patience_ms, connect_timeout_ms);
        error = request_start(http, request);
    }
    if (error != 0)
        request_free(request);
    shield_down(&shield);
    return error;
}

int http_get(struct http *http, const char *url, const char *const *headers, int timeout_ms,
             int connect_timeout_ms, http_callback *done, void *arg)
{
    return get(http, url, headers, (struct patience){timeout_ms, connect_timeout_ms, 0}, done, arg);
}

int http_get_patiently(struct http *http, const char *url, const char *const *headers,
                       int timeout_ms, int patience_ms, http_callback *done, void *arg)
{
    if (patience_ms <= 0 || patience_ms > HTTP_TIMEOUT_MS_MAX)
        return LEASE_EINVAL;
    return get(http, url, headers, (struct patience){timeout_ms, timeout_ms, patience_ms}, done,
               arg);
}

void http_cancel(struct http *http, const void *arg)
{
    struct shield shield;
    watch_list_cancel(&http->watches, arg);
    if (http->multi == NULL)
        return;
    shield_up(&shield);
    for (struct request *request = http->requests, *next; request != NULL; request = next) {
        next = request->next;
        if (request->arg != arg)
            continue;
        request_detach(request);
        request_free(request);
    }
    shield_down(&shield);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool was_connected(CURL *easy)
{
    curl_off_t connected_us = 0;
    http_curl.easy_getinfo(easy, CURLINFO_CONNECT_TIME_T, &connected_us);
    return connected_us > 0;
}

static enum http_failure failure_of(const struct request *request, CURLcode code)
{
    switch (code) {
    case CURLE_OK: return HTTP_NONE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return HTTP_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return was_connected(request->easy) ? HTTP_TIMEOUT_ANSWER : HTTP_TIMEOUT_CONNECT;
    case CURLE_FILESIZE_EXCEEDED: return HTTP_TOO_LARGE;
    default: return request->too_large ? HTTP_TOO_LARGE : HTTP_BROKEN;
    }
}

static const char *reason_of(const struct request *request, enum http_failure failure,
                             CURLcode code)
{
    switch (failure) {
    case HTTP_NONE: return "";
    case HTTP_UNREACHABLE:
        return code == CURLE_COULDNT_RESOLVE_HOST ? "its name is not known"
                                                  : "refused, or not reached";
    case HTTP_TIMEOUT_CONNECT: return "no connection in time";
    case HTTP_TIMEOUT_ANSWER: return "no answer in time";
    case HTTP_TOO_LARGE: return "answer above 4 MiB";
    default: return request->no_memory ? "out of memory" : http_curl.easy_strerror(code);
    }
}

/* Outside of the shield: the callback is the caller's code and keeps the caller's signals. */
static void request_finish(struct request *request, CURLcode code)
{
    struct http_answer answer = {.failure = failure_of(request, code), .body = ""};
    long status = 0;
    struct shield shield;
    shield_up(&shield);
    http_curl.easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
    answer.status = (int)status;
    answer.reason = reason_of(request, answer.failure, code);
    if (answer.failure == HTTP_NONE && request->body != NULL) {
        answer.body = request->body;
        answer.size = request->size;
    }
    request_detach(request);
    shield_down(&shield);
    request->done(request->arg, &answer);
    shield_up(&shield);
    request_free(request);
    shield_down(&shield);
}

/* One that is late and not even connected has ended: libcurl would find so in the same moment. */
static bool tell_late(struct http *http)
{
    struct request *request = http->requests;
    ns_t now = http->now();
    while (request != NULL && request->answer_by > now)
        request = request->next;
    if (request == NULL)
        return false;
    request->answer_by = NS_NEVER;
    if (!was_connected(request->easy)) {
        request_finish(request, CURLE_OPERATION_TIMEDOUT);
        return true;
    }
    request->waits = true;
    http->waiting++;
    struct http_answer answer = {.failure = HTTP_TIMEOUT_ANSWER, .body = "", .waits = true};
    answer.reason = reason_of(request, HTTP_TIMEOUT_ANSWER, CURLE_OPERATION_TIMEDOUT);
    request->done(request->arg, &answer); /* may have cancelled it */
    return true;
}

/* True if something had ended and a callback was called. */
static bool finish_one(struct http *http)
{
    CURLMsg *message;
    int left;
    while ((message = http_curl.multi_info_read(http->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        struct request *request = NULL;
        CURLcode code = message->data.result; /* gone once the handle is removed */
        http_curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &request);
        request_finish(request, code);
        return true;
    }
    return false;
}

static int flags_of(uint32_t events)
{
    int flags = 0;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP))
        flags |= CURL_CSELECT_IN;
    if (events & EPOLLOUT)
        flags |= CURL_CSELECT_OUT;
    if (events & EPOLLERR)
        flags |= CURL_CSELECT_ERR;
    return flags;
}

static void drive_curl(struct http *http, const struct epoll_event *events, int count)
{
    struct shield shield;
    int running;
    shield_up(&shield);
    for (int i = 0; i < count; i++)
        http_curl.multi_socket_action(http->multi, events[i].data.fd, flags_of(events[i].events),
                                      &running);
    if (http->now() >= http->deadline) {
        http->deadline = NS_NEVER; /* libcurl sets it again where it still wants one */
        http_curl.multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    shield_down(&shield);
}

/* True if a watch was called. */
static bool drive(struct http *http)
{
    struct epoll_event events[32];
    int count = epoll_wait(http->fd, events, 32, 0), others = 0;
    for (int i = 0; i < count; i++)
        if (!watch_list_ready(&http->watches, events[i].data.fd))
            events[others++] = events[i];
    if (http->multi != NULL)
        drive_curl(http, events, others);
    return http->watches.count > 0 && watch_list_call(&http->watches, http->now());
}

void http_run(struct http *http)
{
    if (http->multi == NULL && http->watches.count == 0)
        return;
    /* Again where a callback started something: its connection leaves in this turn. Bounded, so
     * that callbacks that always start another GET cannot keep the loop here. */
    for (int turn = 0; turn < 8; turn++) {
        bool any = drive(http);
        while (http->multi != NULL && (finish_one(http) || tell_late(http)))
            any = true;
        if (!any)
            return;
    }
}

/* Until the next deadline in milliseconds, rounded up, -1 for ever. */
static int wait_ms(const struct http *http)
{
    ns_t deadline = http_deadline(http);
    if (deadline == NS_NEVER)
        return -1;
    ns_t left = deadline - http->now();
    if (left <= 0)
        return 0;
    return (int)((left + NS_PER_MS - 1) / NS_PER_MS);
}

void http_drain(struct http *http)
{
    while (http_pending(http) > 0) {
        struct pollfd ready = {.fd = http->fd, .events = POLLIN};
        poll(&ready, 1, wait_ms(http)); /* interrupted is as good as ready: run finds out */
        http_run(http);
    }
}
