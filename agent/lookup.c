#define _GNU_SOURCE
#include "agent/lookup.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/error.h"

#define STACK_BYTES (256 * 1024) /* the resolver's modules like some */

struct lookup {
    atomic_uint holders;
    atomic_int state; /* 1: under way; 0 or LEASE_E...: done, and numeric stands */
    int fd;
    char endpoint[TCP_ENDPOINT_SIZE];
    char numeric[TCP_ENDPOINT_SIZE];
};

static void *look_up(void *arg)
{
    struct lookup *self = arg;
    int error = tcp_resolve(self->endpoint, self->numeric);
    atomic_store_explicit(&self->state, error, memory_order_release);
    uint64_t one = 1;
    ssize_t n = write(self->fd, &one, sizeof one);
    (void)n;
    lookup_drop(&self);
    return NULL;
}

static int start(struct lookup *self)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0) {
        return LEASE_ENOMEM;
    }
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attributes, look_up, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return rc == 0 ? 0 : LEASE_EIO;
}

int lookup_begin(const char *endpoint, struct lookup **lookup)
{
    struct lookup *self = calloc(1, sizeof *self);
    if (!self) {
        return LEASE_ENOMEM;
    }
    (void)snprintf(self->endpoint, sizeof self->endpoint, "%s", endpoint);
    atomic_init(&self->holders, 2);
    atomic_init(&self->state, 1);
    self->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = self->fd < 0 ? LEASE_EIO : start(self);
    if (error != 0) {
        if (self->fd >= 0) {
            (void)close(self->fd);
        }
        free(self);
        return error;
    }
    *lookup = self;
    return 0;
}

struct lookup *lookup_hold(struct lookup *self)
{
    (void)atomic_fetch_add_explicit(&self->holders, 1, memory_order_relaxed);
    return self;
}

void lookup_drop(struct lookup **self_p)
{
    struct lookup *self = *self_p;
    *self_p = NULL;
    if (self && atomic_fetch_sub_explicit(&self->holders, 1, memory_order_acq_rel) == 1) {
        (void)close(self->fd);
        free(self);
    }
}

const char *lookup_of(const struct lookup *self)
{
    return self->endpoint;
}

int lookup_fd(const struct lookup *self)
{
    return self->fd;
}

int lookup_result(const struct lookup *self, char numeric[TCP_ENDPOINT_SIZE])
{
    int state = atomic_load_explicit(&self->state, memory_order_acquire);
    if (state > 0) {
        return LEASE_ETIMEOUT;
    }
    if (state == 0) {
        memcpy(numeric, self->numeric, sizeof self->numeric);
    }
    return state;
}
