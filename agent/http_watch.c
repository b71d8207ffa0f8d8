#include "agent/http_watch.h"

#include <sys/epoll.h>

#include "broker/error.h"

static void forget(const struct watch_list *list, int fd)
{
    /* Not left to close: a forked child may hold the same file, which keeps it in the epoll. */
    if (fd >= 0)
        epoll_ctl(list->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int watch_list_add(struct watch_list *list, struct http_watch *watch)
{
    if (list->count == HTTP_WATCHES_MAX)
        return LEASE_EFULL;
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = watch->fds[i]};
        if (watch->fds[i] < 0 ||
            epoll_ctl(list->epoll_fd, EPOLL_CTL_ADD, event.data.fd, &event) == 0)
            continue;
        if (i == 1)
            forget(list, watch->fds[0]);
        return LEASE_EIO;
    }
    watch->list = list;
    watch->due = false;
    watch->next = list->first;
    list->first = watch;
    list->count++;
    return 0;
}

void http_watch_forget(struct http_watch *watch, int which)
{
    forget(watch->list, watch->fds[which]);
    watch->fds[which] = -1;
}

void http_unwatch(struct http_watch *watch)
{
    struct http_watch **link = &watch->list->first;
    while (*link != watch)
        link = &(*link)->next;
    *link = watch->next;
    watch->list->count--;
    forget(watch->list, watch->fds[0]);
    forget(watch->list, watch->fds[1]);
}

bool watch_list_ready(struct watch_list *list, int fd)
{
    for (struct http_watch *watch = list->first; watch != NULL; watch = watch->next)
        if (watch->fds[0] == fd || watch->fds[1] == fd) {
            watch->due = true;
            return true;
        }
    return false;
}

/* From the start of the list after each call: it may be another list then. */
bool watch_list_call(struct watch_list *list, ns_t now)
{
    bool any = false;
    for (struct http_watch *watch = list->first; watch != NULL; watch = watch->next)
        watch->due = watch->due || now >= watch->deadline;
    for (struct http_watch *watch = list->first; watch != NULL;) {
        if (!watch->due) {
            watch = watch->next;
            continue;
        }
        watch->due = false;
        watch->ready(watch);
        any = true;
        watch = list->first;
    }
    return any;
}

void watch_list_cancel(struct watch_list *list, const void *arg)
{
    for (struct http_watch *watch = list->first, *next; watch != NULL; watch = next) {
        next = watch->next;
        if (watch->arg == arg)
            watch->cancel(watch);
    }
}

void watch_list_drop(struct watch_list *list)
{
    while (list->first != NULL) {
        struct http_watch *watch = list->first;
        http_unwatch(watch);
        watch->drop(watch);
    }
}

ns_t watch_list_deadline(const struct watch_list *list)
{
    ns_t first = NS_NEVER;
    for (const struct http_watch *watch = list->first; watch != NULL; watch = watch->next)
        first = watch->deadline < first ? watch->deadline : first;
    return first;
}
