/* HTTP GETs, many at once, inside somebody's event loop or blocking on top of the same code; with
 * http_watch.h whatever else a probe waits for.
 *
 * This room is the only one that knows libcurl, and it does not link it: linking costs every
 * short-lived command 4 ms at its start and an embedding process all that libcurl depends on. So
 * libcurl.so.4 is loaded by the first http_get, and stays loaded (the TLS library below it may not
 * be unloaded). Where it is missing http_get says LEASE_EABSENT and nothing else is harmed.
 *
 * What a probe needs is fixed here, not left to callers: every GET has a connection of its own that
 * is closed after (an idle one would occupy a thread of the server); redirects are not followed (an
 * API key must not travel to another host); proxies and .netrc of the environment are ignored; http
 * and https only; no signal is used or let through, nothing is printed, no connection is inherited
 * by a child (libcurl's own idle pair of sockets is, while an http is open). Numeric hosts need no
 * resolver, names are resolved in a thread of libcurl's.
 *
 * Thread rules: a struct http belongs to one thread at a time; different ones are independent.
 * After a fork the child may only leave it alone. Times are the caller's clock in nanoseconds,
 * timeouts are milliseconds. */
#ifndef AGENT_HTTP_H
#define AGENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "broker/record.h"

#define HTTP_BODY_MAX       (4u << 20) /* bytes; a longer body is HTTP_TOO_LARGE */
#define HTTP_REQUESTS_MAX   256        /* at a time in one struct http; more are LEASE_EFULL */
#define HTTP_HEADERS_MAX    8
#define HTTP_TIMEOUT_MS_MAX 600000

enum http_failure {
    HTTP_NONE = 0,    /* an answer, with whatever status */
    HTTP_UNREACHABLE, /* refused, no route, name unknown */
    HTTP_TIMEOUT_CONNECT,
    HTTP_TIMEOUT_ANSWER, /* it accepted the connection and did not answer in time */
    HTTP_TOO_LARGE,
    HTTP_BROKEN, /* truncated, reset, not HTTP, certificate not trusted */
};

struct http_answer {
    enum http_failure failure;
    int status;         /* 100 to 599, 0 where there was none */
    const char *body;   /* never NULL, a NUL stands after its end; "" on failure */
    size_t size;        /* bytes of the body */
    const char *reason; /* static text of a failure, "" without one */
    bool waits;         /* of http_get_patiently: too late, and waited for on */
};

struct http;

/* Called from http_run (or http_drain), never from http_get. `answer` is valid until it returns.
 * May call http_get and http_cancel, not http_run, http_drain or http_close. */
typedef void http_callback(void *arg, const struct http_answer *answer);

/* Makes an idle one. `now` is asked for the time throughout. LEASE_ENOMEM, LEASE_EIO (no
 * descriptor); *http is NULL then. The caller owns it. */
int http_open(ns_t (*now)(void), struct http **http);

/* Ends all requests without their callbacks, drops all watches and frees it; *http becomes NULL. NULL
 * is allowed. */
void http_close(struct http **http);

/* Readable when http_run has something to do; for a poll or another epoll. Owned by http. */
int http_fd(const struct http *http);

/* When http_run wants to be called at the latest; NS_NEVER while idle. */
ns_t http_deadline(const struct http *http);

/* Requests and watches under way, those not counted that are only waited for on. */
int http_pending(const struct http *http);

/* Does what is ready and calls back for what has ended. Never blocks. */
void http_run(struct http *http);

/* Blocks until nothing is pending, which what is waited for on is not. Every request ends within its timeout, so this does too. */
void http_drain(struct http *http);

/* Starts a GET. url is http:// or https://; headers are whole lines ("Name: value"), `NULL` after
 * the last, or NULL for none; timeout_ms is for all of it, connect_timeout_ms for name, connection
 * and handshake. Everything is copied. LEASE_EINVAL, LEASE_EFULL, LEASE_ENOMEM, LEASE_EABSENT (no
 * libcurl); nothing has happened then, and `done` will not be called. */
int http_get(struct http *http, const char *url, const char *const *headers, int timeout_ms,
             int connect_timeout_ms, http_callback *done, void *arg);

/* The same for a server where a question that is given up goes on costing as much as one that is
 * waited for. Where it has accepted the connection and timeout_ms is over, `done` is called with
 * HTTP_TIMEOUT_ANSWER and `waits`, and a second time when there is an answer after all, or
 * patience_ms after the first are over. The connection stays open in between. */
int http_get_patiently(struct http *http, const char *url, const char *const *headers,
                       int timeout_ms, int patience_ms, http_callback *done, void *arg);

/* Ends every request started with `arg` without its callback, and cancels every watch with it. */
void http_cancel(struct http *http, const void *arg);

#endif
