/* Descriptors that are no GET's, in the same loop and under the same deadline as the GETs: the pipe
 * of a program and its end. http_run calls for what is ready.
 *
 * Thread rules: those of the struct http it is used with. */
#ifndef AGENT_HTTP_WATCH_H
#define AGENT_HTTP_WATCH_H

#include <stdbool.h>

#include "broker/record.h"

#define HTTP_WATCHES_MAX 256 /* at a time in one struct http; more are LEASE_EFULL */

struct http;
struct watch_list;

/* Lies in its owner's struct, which outlives the watching. */
struct http_watch {
    int fds[2];    /* readable is what is waited for; -1: none */
    ns_t deadline; /* may be changed at any time */
    void *arg;     /* what http_cancel is told */

    /* Out of http_run: something is readable, or it is past the deadline. Comes again for as long as
     * that is so; also without a reason. May do what an http_callback may. */
    void (*ready)(struct http_watch *watch);
    /* Out of http_cancel: nobody waits for the result any more. It may go on watching. */
    void (*cancel)(struct http_watch *watch);
    /* Out of http_close: it is not watched any more. */
    void (*drop)(struct http_watch *watch);

    struct watch_list *list; /* the rest is the list's */
    struct http_watch *next;
    bool due;
};

/* Begins to watch. LEASE_EFULL, LEASE_EIO: nothing has happened. */
int http_watch(struct http *http, struct http_watch *watch);

/* Watches this one of its descriptors no more and forgets it; before it is closed. */
void http_watch_forget(struct http_watch *watch, int which);

/* Watches nothing of it any more; before its descriptors are closed. */
void http_unwatch(struct http_watch *watch);

/* ---- for http.c ---- */

/* Invariant: count is the length of the list. */
struct watch_list {
    int epoll_fd;
    int count;
    struct http_watch *first;
};

int watch_list_add(struct watch_list *list, struct http_watch *watch);

/* Something about fd is ready. False: it is not one of these. */
bool watch_list_ready(struct watch_list *list, int fd);

/* Calls those that are ready or late; true if there were any. */
bool watch_list_call(struct watch_list *list, ns_t now);

void watch_list_cancel(struct watch_list *list, const void *arg);
void watch_list_drop(struct watch_list *list); /* all */
ns_t watch_list_deadline(const struct watch_list *list);

#endif
