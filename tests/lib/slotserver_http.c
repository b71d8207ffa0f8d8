/*
 * The connections: a thread each from MHD, and on top of them the fixed pool of the old version, in
 * which a connection holds its thread from the first to the last byte, idle seconds included. One
 * that finds no thread free is accepted and then not served until one is.
 */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0: no limit */
static unsigned places(const struct slotserver *server)
{
    unsigned slots = server->options.slots;
    if (server->options.http_threads || server->version == SLOTSERVER_NEW)
        return server->options.http_threads;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned others = cores > 1 ? (unsigned)cores - 1 : 1;
    return slots + 2 > others ? slots + 2 : others;
}

static void hand_out_places(struct slotserver *server)
{
    unsigned most = places(server);
    struct connection *next;
    while ((next = TAILQ_FIRST(&server->line)) != NULL &&
           (most == 0 || server->places_taken < most)) {
        TAILQ_REMOVE(&server->line, next, link);
        next->waiting = false;
        next->placed = true;
        server->places_taken++;
    }
    pthread_cond_broadcast(&server->results);
}

static void leave_place(struct slotserver *server, struct connection *connection)
{
    if (connection->waiting)
        TAILQ_REMOVE(&server->line, connection, link);
    if (connection->placed)
        server->places_taken--;
    connection->waiting = connection->placed = false;
    hand_out_places(server);
}

static void count_connection(struct slotserver *server)
{
    if (++server->stats.connections > server->stats.max_connections)
        server->stats.max_connections = server->stats.connections;
}

static void arrive(struct slotserver *server, void **context)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        abort();
    *context = connection;
    pthread_mutex_lock(&server->lock);
    count_connection(server);
    connection->waiting = true;
    TAILQ_INSERT_TAIL(&server->line, connection, link);
    hand_out_places(server);
    if (connection->waiting)
        server->stats.unserved++;
    pthread_mutex_unlock(&server->lock);
}

static void depart(struct slotserver *server, void **context)
{
    struct connection *connection = *context;
    pthread_mutex_lock(&server->lock);
    server->stats.connections--;
    leave_place(server, connection);
    pthread_mutex_unlock(&server->lock);
    free(connection);
    *context = NULL;
}

static void notice_connection(void *closure, struct MHD_Connection *connection, void **context,
                              enum MHD_ConnectionNotificationCode code)
{
    (void)connection;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        arrive(closure, context);
    else
        depart(closure, context);
}

/* Control paths answer always, and take no thread of the server that is played. */
static bool is_control(const char *path)
{
    return strncmp(path, "/_", 2) == 0;
}

static bool take_place(struct request *request)
{
    struct slotserver *server = request->server;
    struct connection *line = request->line;
    pthread_mutex_lock(&server->lock);
    if (is_control(request->path) && !line->exempt) {
        line->exempt = true;
        leave_place(server, line);
    }
    while (line->waiting && !line->exempt && !server->stopping)
        pthread_cond_wait(&server->results, &server->lock);
    bool stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    return !stopping;
}

static struct request *open_request(struct slotserver *server, struct MHD_Connection *connection,
                                    const char *path, const char *method)
{
    struct request *request = calloc(1, sizeof(*request));
    if (!request)
        abort();
    request->server = server;
    request->connection = connection;
    request->line =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    request->path = path;
    request->method = method;
    request->line->requests++;
    /* What takes long here is never the client's idleness. */
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return request;
}

static void count_asker(struct request *request)
{
    const struct sockaddr_in *address = (const struct sockaddr_in *)MHD_get_connection_info(
                                            request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)
                                            ->client_addr;
    char text[INET_ADDRSTRLEN];
    if (!is_control(request->path) &&
        inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != NULL)
        stats_count(request->server->askers, text);
}

static enum MHD_Result serve(struct request *request)
{
    struct slotserver *server = request->server;
    if (!take_place(request))
        return MHD_NO;
    pthread_mutex_lock(&server->lock);
    stats_count(server->paths, request->path);
    count_asker(request);
    enum misbehaviour misbehaviour = server->misbehaviour;
    pthread_mutex_unlock(&server->lock);
    if (is_control(request->path))
        return control_page(request);
    if (misbehaves_on(misbehaviour, request->path))
        return misbehave(request, misbehaviour);
    return dispatch(request);
}

static enum MHD_Result handle(void *closure, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **context)
{
    (void)version;
    struct request *request = *context;
    if (!request) {
        *context = open_request(closure, connection, path, method);
        return MHD_YES;
    }
    if (*size) {
        if (request->body.length + *size > BODY_MAX)
            return MHD_NO;
        text_add(&request->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return serve(request);
}

static void close_request(void *closure, struct MHD_Connection *connection, void **context,
                          enum MHD_RequestTerminationCode code)
{
    (void)closure;
    (void)code;
    struct request *request = *context;
    if (!request)
        return;
    if (request->call)
        completion_end(request);
    text_free(&request->body);
    free(request);
    *context = NULL;
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)KEEP_ALIVE_SEC);
}

struct MHD_Daemon *http_start(struct slotserver *server)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)server->options.port),
    };
    if (inet_pton(AF_INET, server->options.host, &address.sin_addr) != 1)
        return NULL;
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR, &address,
        MHD_OPTION_NOTIFY_CONNECTION, notice_connection, server, MHD_OPTION_NOTIFY_COMPLETED,
        close_request, server, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)KEEP_ALIVE_SEC,
        MHD_OPTION_CONNECTION_LIMIT, 4096u, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
}
