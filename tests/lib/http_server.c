#define _GNU_SOURCE
#include "tests/lib/http_server.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/check.h"

static int listen_somewhere(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 128) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        fail_msg("no port to listen on");
    *port = ntohs(address.sin_port);
    return fd;
}

int http_server_free_port(void)
{
    int port;
    close(listen_somewhere(&port));
    return port;
}

static bool read_head(int fd, char *head)
{
    size_t size = 0;
    head[0] = '\0';
    while (strstr(head, "\r\n\r\n") == NULL) {
        ssize_t got = recv(fd, head + size, HTTP_SERVER_HEAD - 1 - size, 0);
        if (got <= 0)
            return false;
        size += (size_t)got;
        head[size] = '\0';
    }
    return true;
}

static void *serve_one(void *arg)
{
    struct http_server_connection *connection = arg;
    char head[HTTP_SERVER_HEAD];
    if (read_head(connection->fd, head)) {
        atomic_fetch_add(&connection->server->requests, 1);
        connection->server->serve(connection->server, connection->fd, head);
    }
    shutdown(connection->fd, SHUT_RDWR); /* closed by stop: the number may not be used again */
    return NULL;
}

static void *accept_all(void *arg)
{
    struct http_server *server = arg;
    while (!atomic_load(&server->stopping)) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (server->count == HTTP_SERVER_CONNECTIONS || atomic_load(&server->stopping)) {
            close(fd);
            continue;
        }
        struct http_server_connection *connection = &server->connections[server->count];
        *connection = (struct http_server_connection){.server = server, .fd = fd};
        if (pthread_create(&connection->thread, NULL, serve_one, connection) == 0)
            server->count++;
        else
            close(fd);
    }
    return NULL;
}

void http_server_start(struct http_server *server, http_server_serve *serve, void *arg)
{
    memset(server, 0, sizeof *server);
    server->serve = serve;
    server->arg = arg;
    server->fd = listen_somewhere(&server->port);
    if (pthread_create(&server->thread, NULL, accept_all, server) != 0)
        fail_msg("no thread for the server");
}

void http_server_stop(struct http_server *server)
{
    atomic_store(&server->stopping, true);
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
    for (int i = 0; i < server->count; i++) {
        shutdown(server->connections[i].fd, SHUT_RDWR);
        pthread_join(server->connections[i].thread, NULL);
        close(server->connections[i].fd);
    }
}

bool http_server_send(int fd, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        from += sent;
        size -= (size_t)sent;
    }
    return true;
}

void http_server_answer(int fd, int status, const char *body, size_t size)
{
    char head[128];
    int length = snprintf(head, sizeof head, "HTTP/1.1 %d Whatever\r\nContent-Length: %zu\r\n\r\n",
                          status, size);
    if (http_server_send(fd, head, (size_t)length))
        http_server_send(fd, body, size);
}

void http_server_hang(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
        continue;
}
