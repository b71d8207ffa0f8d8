#define _GNU_SOURCE

#include "agent/endpoint.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME "tcp://"

static bool parse_port(const char *text, struct endpoint *endpoint)
{
    endpoint->port = ENDPOINT_PORT;
    endpoint->has_port = *text == ':';
    if (*text == '\0')
        return true;
    size_t digits = *text == ':' ? strspn(text + 1, "0123456789") : 0;
    unsigned long port = digits > 0 && digits <= 5 ? strtoul(text + 1, NULL, 10) : 65536;
    if (port > 65535 || text[1 + digits] != '\0')
        return false;
    endpoint->port = (uint16_t)port;
    return true;
}

bool endpoint_parse(const char *text, struct endpoint *endpoint)
{
    struct endpoint parsed = {.port = 0};
    if (strncmp(text, SCHEME, strlen(SCHEME)) != 0 || strlen(text) >= ENDPOINT_SIZE)
        return false;
    const char *host = text + strlen(SCHEME), *end;
    bool bracket = *host == '[';
    host += bracket;
    size_t length = strcspn(host, bracket ? "]" : ":/,;[]@ ");
    end = host + length;
    if (length == 0 || length >= sizeof parsed.host || (bracket && *end != ']'))
        return false;
    memcpy(parsed.host, host, length);
    if (bracket && !strchr(parsed.host, ':'))
        return false;
    if (!parse_port(end + bracket, &parsed))
        return false;
    *endpoint = parsed;
    return true;
}

void endpoint_format(const char *host, uint16_t port, char *text)
{
    bool bracket = strchr(host, ':') != NULL;
    snprintf(text, ENDPOINT_SIZE, SCHEME "%s%.*s%s:%u", bracket ? "[" : "", ENDPOINT_HOST_SIZE - 1,
             host, bracket ? "]" : "", (unsigned)port);
}

static bool read_address(const char *host, struct in_addr *v4, struct in6_addr *v6, bool *is_v4)
{
    *is_v4 = inet_pton(AF_INET, host, v4) == 1;
    return *is_v4 || inet_pton(AF_INET6, host, v6) == 1;
}

bool endpoint_is_numeric(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v4;
    return read_address(host, &v4, &v6, &is_v4);
}

bool endpoint_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v4;
    if (strcmp(host, "localhost") == 0)
        return true;
    if (!read_address(host, &v4, &v6, &is_v4))
        return false;
    return is_v4 ? ntohl(v4.s_addr) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(&v6);
}

bool endpoint_is_any(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v4;
    if (strcmp(host, "*") == 0)
        return true;
    if (!read_address(host, &v4, &v6, &is_v4))
        return false;
    return is_v4 ? v4.s_addr == 0 : IN6_IS_ADDR_UNSPECIFIED(&v6);
}
