/* A small HTTP server for tests, one thread a connection: what it does is told by the path.
 *
 *   start     listens on a free port of 127.0.0.1; each request is given to `serve` in a thread
 *   stop      closes everything and joins; requests that hang are cut
 *
 * `serve` reads nothing: `head` is the request up to its blank line. It writes to fd with
 * http_server_send and returns; the connection is closed then. To hang, call http_server_hang, which
 * returns when the client has gone or the server stops. */
#ifndef TESTS_LIB_HTTP_SERVER_H
#define TESTS_LIB_HTTP_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define HTTP_SERVER_CONNECTIONS 512 /* in its life; further ones are closed at once */
#define HTTP_SERVER_HEAD        4096

struct http_server;
typedef void http_server_serve(struct http_server *server, int fd, const char *head);

struct http_server_connection {
    struct http_server *server;
    pthread_t thread;
    int fd;
};

struct http_server {
    int port;
    int fd;
    pthread_t thread;
    http_server_serve *serve;
    void *arg;
    atomic_int requests; /* heads read so far */
    atomic_bool stopping;
    int count;
    struct http_server_connection connections[HTTP_SERVER_CONNECTIONS];
};

/* The struct is big: let it be static. Fails the test where it cannot. */
void http_server_start(struct http_server *server, http_server_serve *serve, void *arg);
void http_server_stop(struct http_server *server);

/* All of it, or false: the client has gone. */
bool http_server_send(int fd, const void *data, size_t size);

/* A whole answer with Content-Length. */
void http_server_answer(int fd, int status, const char *body, size_t size);

/* Until the client closes or the server stops. */
void http_server_hang(int fd);

/* A port of 127.0.0.1 where nobody listens. */
int http_server_free_port(void);

#endif
