#define _GNU_SOURCE
#include "agent/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "agent/ipc.h"
#include "broker/error.h"
#include "broker/host_random.h"

#define SCHEME "tcp://"

/* Probing begins when three beats have not come. */
#define KEEPALIVE_IDLE_S     3
#define KEEPALIVE_INTERVAL_S 1
#define KEEPALIVE_COUNT      3

#define BACKLOG 1024

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const char name_characters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

/* ---- endpoints ------------------------------------------------------------------------------- */

struct parts {
    char host[TCP_ENDPOINT_SIZE]; /* without brackets */
    char port[6];
    bool bracketed;
};

static bool split_port(const char *text, struct parts *parts)
{
    size_t size = strlen(text);
    if (size == 0 || size > 5 || strspn(text, "0123456789") != size || atoi(text) > 65535) {
        return false;
    }
    memcpy(parts->port, text, size + 1);
    return true;
}

/* tcp://HOST:PORT or tcp://[HOST]:PORT. */
static bool split(const char *endpoint, struct parts *parts)
{
    if (strnlen(endpoint, TCP_ENDPOINT_SIZE) == TCP_ENDPOINT_SIZE ||
        strncmp(endpoint, SCHEME, strlen(SCHEME)) != 0) {
        return false;
    }
    const char *host = endpoint + strlen(SCHEME), *end = strrchr(host, ':');
    if (!end || end == host || !split_port(end + 1, parts)) {
        return false;
    }
    size_t size = (size_t)(end - host);
    parts->bracketed = host[0] == '[';
    if (parts->bracketed) {
        if (size < 3 || host[size - 1] != ']') {
            return false;
        }
        host++;
        size -= 2;
    }
    memcpy(parts->host, host, size);
    parts->host[size] = '\0';
    return true;
}

static bool is_ipv6(const char *host)
{
    char address[TCP_ENDPOINT_SIZE];
    struct in6_addr parsed;
    size_t size = strcspn(host, "%");
    const char *zone = host + size;
    memcpy(address, host, size);
    address[size] = '\0';
    if (*zone && (zone[1] == '\0' || strspn(zone + 1, name_characters) != strlen(zone + 1))) {
        return false;
    }
    return inet_pton(AF_INET6, address, &parsed) == 1;
}

static enum endpoint_kind kind_of_host(const struct parts *parts)
{
    struct in_addr parsed;
    size_t size = strlen(parts->host);
    if (parts->bracketed) {
        return is_ipv6(parts->host) ? ENDPOINT_IPV6 : ENDPOINT_BAD;
    }
    if (inet_pton(AF_INET, parts->host, &parsed) == 1) {
        return ENDPOINT_IPV4;
    }
    bool is_name = strspn(parts->host, name_characters) == size && parts->host[0] != '-' &&
                   strcspn(parts->host, letters) < size;
    return is_name ? ENDPOINT_NAME : ENDPOINT_BAD;
}

static bool is_ipc(const char *endpoint)
{
    size_t scheme = strlen(IPC_SCHEME);
    if (strncmp(endpoint, IPC_SCHEME, scheme) != 0) {
        return false;
    }
    size_t size = strnlen(endpoint + scheme, IPC_PATH_MAX + 1);
    return size > 1 && size <= IPC_PATH_MAX && (endpoint[scheme] == '/' || endpoint[scheme] == '@');
}

enum endpoint_kind tcp_endpoint_kind(const char *endpoint)
{
    struct parts parts;
    if (!endpoint) {
        return ENDPOINT_BAD;
    }
    if (is_ipc(endpoint)) {
        return ENDPOINT_IPC;
    }
    return split(endpoint, &parts) && atoi(parts.port) != 0 ? kind_of_host(&parts) : ENDPOINT_BAD;
}

/* A name may have addresses of both kinds, and an agent that listens at all addresses of its host means
 * those of IPv4. */
static const struct addrinfo *preferred(const struct addrinfo *found)
{
    for (const struct addrinfo *each = found; each; each = each->ai_next)
        if (each->ai_family == AF_INET)
            return each;
    return found;
}

int tcp_resolve(const char *endpoint, char numeric[TCP_ENDPOINT_SIZE])
{
    struct parts parts;
    char address[NI_MAXHOST];
    struct addrinfo *found, wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    enum endpoint_kind kind = tcp_endpoint_kind(endpoint);
    if (kind == ENDPOINT_BAD) {
        return LEASE_EINVAL;
    }
    if (kind != ENDPOINT_NAME) {
        (void)snprintf(numeric, TCP_ENDPOINT_SIZE, "%s", endpoint);
        return 0;
    }
    (void)split(endpoint, &parts);
    if (getaddrinfo(parts.host, parts.port, &wanted, &found) != 0) {
        return LEASE_EABSENT;
    }
    const struct addrinfo *one = preferred(found);
    int rc = getnameinfo(one->ai_addr, one->ai_addrlen, address, sizeof address, NULL, 0,
                         NI_NUMERICHOST);
    bool six = one->ai_family == AF_INET6;
    freeaddrinfo(found);
    if (rc != 0) {
        return LEASE_EABSENT;
    }
    (void)snprintf(numeric, TCP_ENDPOINT_SIZE, SCHEME "%s%.100s%s:%s", six ? "[" : "", address,
                   six ? "]" : "", parts.port);
    return 0;
}

/* ---- sockets --------------------------------------------------------------------------------- */

int tcp_options(void *socket)
{
    static const struct {
        int option, value;
    } all[] = {
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S},
        {ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S},
        {ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT},
        {ZMQ_TCP_MAXRT, TCP_SILENCE_MS},
        {ZMQ_CONNECT_TIMEOUT, TCP_CONNECT_MS},
        {ZMQ_BACKLOG, BACKLOG},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (ipc_option(socket, all[i].option, all[i].value) != 0) {
            return LEASE_EIO;
        }
    }
    return 0;
}

/* libzmq adds a random part of its own, which is the same in every process. */
int tcp_reconnect(void *socket, int first_ms, int longest_ms)
{
    int interval = first_ms + (int)(host_random_u64() % (uint64_t)first_ms);
    if (ipc_option(socket, ZMQ_RECONNECT_IVL, interval) != 0) {
        return LEASE_EIO;
    }
    return ipc_option(socket, ZMQ_RECONNECT_IVL_MAX, longest_ms);
}

static int listen_error(int error)
{
    switch (error) {
    case EADDRINUSE: return LEASE_EBUSY;
    case EADDRNOTAVAIL:
    case ENODEV: return LEASE_EABSENT;
    case EACCES:
    case EPERM: return LEASE_EPERM;
    case EINVAL: return LEASE_EINVAL;
    default: return LEASE_EIO;
    }
}

int tcp_listen(void *socket, const char *endpoint, char bound[TCP_ENDPOINT_SIZE])
{
    struct parts parts;
    enum endpoint_kind kind = split(endpoint, &parts) ? kind_of_host(&parts) : ENDPOINT_BAD;
    if (kind != ENDPOINT_IPV4 && kind != ENDPOINT_IPV6) {
        return LEASE_EINVAL;
    }
    if (ipc_option(socket, ZMQ_IPV6, kind == ENDPOINT_IPV6) != 0) {
        return LEASE_EIO;
    }
    int error = ipc_bind(socket, endpoint) == 0 ? 0 : listen_error(errno);
    char last[TCP_ENDPOINT_SIZE];
    size_t size = sizeof last;
    if (error == 0 && bound) {
        if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, last, &size) != 0) {
            return LEASE_EIO;
        }
        memcpy(bound, last, size);
    }
    return error;
}

int tcp_dial(void *socket, const char *endpoint)
{
    enum endpoint_kind kind = tcp_endpoint_kind(endpoint);
    if (kind == ENDPOINT_BAD || kind == ENDPOINT_NAME) {
        return LEASE_EINVAL;
    }
    if (ipc_option(socket, ZMQ_IPV6, kind == ENDPOINT_IPV6) != 0 ||
        ipc_connect(socket, endpoint) != 0) {
        return LEASE_EIO;
    }
    return 0;
}
