/* Whether a URL names this host. Apart from spec.c, since this one asks the system. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/spec.h"

/* An IPv4 address inside of IPv6 is compared as what it is. */
struct address {
    int family;
    unsigned char bytes[16];
};

static bool address_of(const struct sockaddr *from, struct address *to)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memset(to, 0, sizeof *to);
    if (from == NULL)
        return false;
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        to->family = AF_INET;
        memcpy(to->bytes, &in.sin_addr, 4);
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, from, sizeof in6);
    to->family = AF_INET6;
    memcpy(to->bytes, &in6.sin6_addr, 16);
    if (memcmp(to->bytes, mapped, sizeof mapped) == 0) {
        to->family = AF_INET;
        memmove(to->bytes, to->bytes + 12, 4);
        memset(to->bytes + 4, 0, 12);
    }
    return true;
}

/* Loopback, or "any", which connects to this host as well. */
static bool address_is_loopback(const struct address *address)
{
    static const unsigned char any[16], one[16] = {[15] = 1};
    if (address->family == AF_INET)
        return address->bytes[0] == 127 || memcmp(address->bytes, any, 4) == 0;
    return memcmp(address->bytes, any, 16) == 0 || memcmp(address->bytes, one, 16) == 0;
}

static bool address_is_ours(const struct address *address)
{
    struct ifaddrs *list;
    bool ours = false;
    if (getifaddrs(&list) != 0)
        return false;
    for (struct ifaddrs *entry = list; entry != NULL && !ours; entry = entry->ifa_next) {
        struct address own;
        ours = address_of(entry->ifa_addr, &own) && memcmp(&own, address, sizeof own) == 0;
    }
    freeifaddrs(list);
    return ours;
}

static bool any_address(const char *host, int flags, bool (*test)(const struct address *))
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list;
    bool found = false;
    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    for (struct addrinfo *entry = list; entry != NULL && !found; entry = entry->ai_next) {
        struct address address;
        found = address_of(entry->ai_addr, &address) && test(&address);
    }
    freeaddrinfo(list);
    return found;
}

static bool address_is_local(const struct address *address)
{
    return address_is_loopback(address) || address_is_ours(address);
}

static bool address_is_any_kind(const struct address *address)
{
    (void)address;
    return true;
}

static bool host_is_localhost(const char *host)
{
    size_t length = strlen(host);
    return strcasecmp(host, "localhost") == 0 ||
           (length > 10 && strcasecmp(host + length - 10, ".localhost") == 0);
}

static bool host_is_own_name(const char *host)
{
    char own[256];
    if (gethostname(own, sizeof own) != 0)
        return false;
    own[sizeof own - 1] = '\0';
    return strcasecmp(host, own) == 0;
}

bool spec_host_is_numeric(const struct provider_spec *spec)
{
    return spec->host[0] != '\0' && any_address(spec->host, AI_NUMERICHOST, address_is_any_kind);
}

bool spec_url_is_loopback(const struct provider_spec *spec)
{
    return spec->host[0] != '\0' && (host_is_localhost(spec->host) ||
                                     any_address(spec->host, AI_NUMERICHOST, address_is_loopback));
}

bool spec_url_is_local(const struct provider_spec *spec)
{
    if (spec->host[0] == '\0')
        return false;
    if (host_is_localhost(spec->host) || host_is_own_name(spec->host))
        return true;
    if (spec_host_is_numeric(spec))
        return any_address(spec->host, AI_NUMERICHOST, address_is_local);
    return any_address(spec->host, 0, address_is_local);
}
