#include "agent/asker_pool.h"

#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "agent/tcp.h"
#include "broker/error.h"
#include "broker/host_clock.h"
#include "broker/host_fork.h"

#define RECONNECT_MS         50 /* up to twice that, at random */
#define RECONNECT_LONGEST_MS 1000

#define SAID_MAX  16 /* questions that libzmq holds for a peer that does not read */
#define HEARD_MAX 64 /* replies that it reads ahead of us */

/* ---- the pool -------------------------------------------------------------------------------- */

int asker_open(struct asker **asker)
{
    struct asker *self = calloc(1, sizeof *self);
    if (!self) {
        return LEASE_ENOMEM;
    }
    host_fork_watch();
    self->generation = host_fork_generation();
    (void)pthread_mutex_init(&self->mutex, NULL);
    *asker = self;
    return 0;
}

bool asker_is_forked(const struct asker *self)
{
    return self->generation != host_fork_generation();
}

static void lock(struct asker *self)
{
    (void)pthread_mutex_lock(&self->mutex);
}

static void unlock(struct asker *self)
{
    (void)pthread_mutex_unlock(&self->mutex);
}

static void close_connection(struct connection *connection)
{
    if (connection->socket) {
        (void)zmq_close(connection->socket);
    }
    lookup_drop(&connection->lookup);
    free(connection->packed);
    free(connection);
}

void asker_close(struct asker **self_p)
{
    struct asker *self = *self_p;
    *self_p = NULL;
    if (!self || asker_is_forked(self)) {
        return;
    }
    while (self->idle) {
        struct connection *connection = self->idle;
        self->idle = connection->next;
        close_connection(connection);
    }
    for (size_t i = 0; i < ASKER_NAMES_MAX; i++) {
        lookup_drop(&self->names[i]);
    }
    void *no_socket = NULL;
    ipc_close(&self->context, &no_socket);
    (void)pthread_mutex_destroy(&self->mutex);
    free(self);
}

int asker_check_endpoint(const char *endpoint)
{
    return tcp_endpoint_kind(endpoint) == ENDPOINT_BAD ? LEASE_EINVAL : 0;
}

struct connection *asker_take_idle(struct asker *self, const char *endpoint)
{
    lock(self);
    struct connection **link = &self->idle;
    while (*link && strcmp((*link)->endpoint, endpoint) != 0) {
        link = &(*link)->next;
    }
    struct connection *found = *link;
    if (found) {
        *link = found->next;
        self->idle_count--;
    }
    unlock(self);
    return found;
}

/* Takes the last one, which was idle for longest, from a list that is not empty. */
static struct connection *take_oldest(struct asker *self)
{
    struct connection **link = &self->idle;
    while ((*link)->next) {
        link = &(*link)->next;
    }
    struct connection *oldest = *link;
    *link = NULL;
    self->idle_count--;
    return oldest;
}

void asker_discard(struct asker *self, struct connection *connection)
{
    lock(self);
    self->count--;
    unlock(self);
    close_connection(connection);
}

void asker_put_idle(struct asker *self, struct connection *connection)
{
    struct connection *too_many = NULL;
    connection->idle_ns = host_now_ns();
    lock(self);
    connection->next = self->idle;
    self->idle = connection;
    if (++self->idle_count > ASKER_IDLE_MAX) {
        too_many = take_oldest(self);
    }
    unlock(self);
    if (too_many) {
        asker_discard(self, too_many);
    }
}

/* ---- dialling -------------------------------------------------------------------------------- */

/* Immediate: nothing is queued for a peer that is not connected, to be said to a later one. */
static int set_options(void *socket)
{
    static const struct {
        int option, value;
    } all[] = {{ZMQ_IMMEDIATE, 1}, {ZMQ_SNDHWM, SAID_MAX}, {ZMQ_RCVHWM, HEARD_MAX}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (ipc_option(socket, all[i].option, all[i].value) != 0) {
            return LEASE_EIO;
        }
    }
    int error = tcp_options(socket);
    return error != 0 ? error : tcp_reconnect(socket, RECONNECT_MS, RECONNECT_LONGEST_MS);
}

int asker_dial(struct asker *self, struct connection *connection, const char *numeric)
{
    void *socket;
    size_t size = sizeof connection->fd;
    lock(self);
    int error = self->context ? 0 : ipc_context(ASKER_ASKS_MAX, &self->context);
    if (error == 0) {
        error = ipc_socket(self->context, ZMQ_DEALER, &socket);
    }
    unlock(self);
    if (error != 0) {
        return error;
    }
    error = set_options(socket);
    if (error == 0) {
        error = tcp_dial(socket, numeric);
    }
    if (error == 0 && zmq_getsockopt(socket, ZMQ_FD, &connection->fd, &size) != 0) {
        error = LEASE_EIO;
    }
    if (error != 0) {
        (void)zmq_close(socket);
        return error;
    }
    connection->socket = socket;
    return 0;
}

/* A lookup of this name that is under way, or a new one in the first place that is free. */
static int find_name(struct asker *self, const char *endpoint, struct lookup **lookup)
{
    char numeric[TCP_ENDPOINT_SIZE];
    struct lookup **free_place = NULL;
    for (size_t i = 0; i < ASKER_NAMES_MAX; i++) {
        struct lookup **at = &self->names[i];
        if (*at && lookup_result(*at, numeric) != LEASE_ETIMEOUT) {
            lookup_drop(at);
        }
        if (*at && strcmp(lookup_of(*at), endpoint) == 0) {
            *lookup = lookup_hold(*at);
            return 0;
        }
        free_place = *at || free_place ? free_place : at;
    }
    if (!free_place) {
        return LEASE_EIO;
    }
    int error = lookup_begin(endpoint, free_place);
    if (error == 0) {
        *lookup = lookup_hold(*free_place);
    }
    return error;
}

static int begin(struct asker *self, struct connection *connection)
{
    int error = 0;
    switch (tcp_endpoint_kind(connection->endpoint)) {
    case ENDPOINT_NAME:
        lock(self);
        error = find_name(self, connection->endpoint, &connection->lookup);
        unlock(self);
        return error;
    case ENDPOINT_IPC: error = ipc_probe(connection->endpoint); break;
    default: break;
    }
    return error != 0 ? error : asker_dial(self, connection, connection->endpoint);
}

int asker_make(struct asker *self, const char *endpoint, struct connection **made)
{
    lock(self);
    bool full = self->count >= ASKER_ASKS_MAX;
    struct connection *oldest = full && self->idle ? take_oldest(self) : NULL;
    self->count += !full || oldest;
    self->count -= oldest != NULL;
    unlock(self);
    if (oldest) {
        close_connection(oldest);
    } else if (full) {
        return LEASE_EIO;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    int error = LEASE_ENOMEM;
    if (connection) {
        connection->fd = -1;
        memcpy(connection->endpoint, endpoint, strlen(endpoint) + 1);
        error = begin(self, connection);
    }
    if (error == 0) {
        *made = connection;
    } else if (connection) {
        asker_discard(self, connection);
    } else {
        lock(self);
        self->count--;
        unlock(self);
    }
    return error;
}
