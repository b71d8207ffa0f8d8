#define _GNU_SOURCE
#include "tools/lease_agent_beacon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/speaker_outside.h"
#include "broker/host_clock.h"
#include "proto/beacon.h"
#include "tools/lease_agent.h"

#define OFTEN_NS  (1 * NS_PER_SEC) /* between two announcements in the first seconds */
#define RARELY_NS (5 * NS_PER_SEC) /* and later */
#define OFTEN_MAX 5
#define AGAIN_NS  (30 * NS_PER_SEC) /* the agent is told of the same one no more often */
#define HEARD_MAX 64                /* remembered; the one told of longest ago makes room */
#define NEW_MAX   8                 /* told of in a second: whoever forges many gets few in */
#define TAKE_MAX  64                /* datagrams in one turn */

struct heard {
    uint8_t id[16];
    ns_t told_ns;
};

struct beacons {
    int fd;
    uint16_t port;
    bool complained;
    uint32_t announced; /* up to OFTEN_MAX */
    ns_t next_ns, look_ns;
    uint32_t told; /* in this second */
    struct heard heard[HEARD_MAX];
};

/* ---- the socket ------------------------------------------------------------------------------ */

static int open_socket(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* several agents of one host hear the same broadcasts */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    int failed = errno;
    close(fd);
    errno = failed;
    return -1;
}

static void try_to_open(struct beacons *self)
{
    if (self->fd >= 0)
        return;
    self->fd = open_socket(self->port);
    if (self->fd < 0 && !self->complained)
        say("no beacons: UDP port %u: %s, tried again", self->port, strerror(errno));
    else if (self->fd >= 0 && self->complained)
        say("beacons on UDP port %u from now on", self->port);
    self->complained = self->fd < 0;
}

struct beacons *beacons_open(uint16_t port)
{
    struct beacons *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->fd = -1;
    self->port = port;
    try_to_open(self);
    return self;
}

void beacons_close(struct beacons **self)
{
    if (!*self)
        return;
    if ((*self)->fd >= 0)
        close((*self)->fd);
    free(*self);
    *self = NULL;
}

int beacons_fd(const struct beacons *self)
{
    return self ? self->fd : -1;
}

/* ---- announcing ------------------------------------------------------------------------------ */

static void send_to(const struct beacons *self, const uint8_t *bytes, struct in_addr address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(self->port)};
    to.sin_addr = address;
    /* who does not hear this one hears the next */
    sendto(self->fd, bytes, WIRE_BEACON_BYTES, MSG_DONTWAIT, (const struct sockaddr *)&to,
           sizeof to);
}

/* Where the broadcasts of this network go; false: it has none that are of use to those who are to dial
 * `only` (0: any address of ours). */
static bool broadcast_of(const struct ifaddrs *network, struct in_addr only, struct in_addr *to)
{
    if (!network->ifa_addr || network->ifa_addr->sa_family != AF_INET ||
        !(network->ifa_flags & IFF_UP))
        return false;
    struct in_addr own = ((const struct sockaddr_in *)(const void *)network->ifa_addr)->sin_addr;
    bool loopback = network->ifa_flags & IFF_LOOPBACK;
    bool only_loopback = ntohl(only.s_addr) >> 24 == 127;
    if (only.s_addr != 0 && only.s_addr != own.s_addr && !(loopback && only_loopback))
        return false;
    if (loopback) {
        to->s_addr = htonl(0x7fffffff);
        return true;
    }
    if (!(network->ifa_flags & IFF_BROADCAST) || !network->ifa_broadaddr)
        return false;
    *to = ((const struct sockaddr_in *)(const void *)network->ifa_broadaddr)->sin_addr;
    return true;
}

static void send_everywhere(const struct beacons *self, const uint8_t *bytes, struct in_addr only)
{
    struct ifaddrs *networks = NULL;
    struct in_addr to;
    if (getifaddrs(&networks) < 0)
        return;
    for (const struct ifaddrs *network = networks; network; network = network->ifa_next)
        if (broadcast_of(network, only, &to))
            send_to(self, bytes, to);
    freeifaddrs(networks);
}

/* False where others cannot dial it by an IPv4 address. */
static bool describe(const struct speaker_place *place, struct beacon *beacon, struct in_addr *only)
{
    struct endpoint endpoint;
    only->s_addr = 0;
    if (!endpoint_parse(place->endpoint, &endpoint))
        return false;
    if (!endpoint_is_any(endpoint.host) && inet_pton(AF_INET, endpoint.host, only) != 1)
        return false;
    memcpy(beacon->id, place->id, sizeof beacon->id);
    memcpy(beacon->address, &only->s_addr, sizeof beacon->address);
    beacon->port = endpoint.port;
    return true;
}

void beacons_announce(struct beacons *self, lease_agent_t *agent)
{
    ns_t now = host_now_ns();
    if (now >= self->look_ns) {
        self->look_ns = now + NS_PER_SEC;
        self->told = 0;
        try_to_open(self);
    }
    if (self->fd < 0 || now < self->next_ns)
        return;
    struct speaker_place place;
    struct beacon beacon;
    struct in_addr only;
    uint8_t bytes[WIRE_BEACON_BYTES];
    speaker_where(agent, &place);
    if (!describe(&place, &beacon, &only))
        return;
    beacon_encode(&beacon, bytes);
    send_everywhere(self, bytes, only);
    self->announced += self->announced < OFTEN_MAX;
    self->next_ns = now + (self->announced < OFTEN_MAX ? OFTEN_NS : RARELY_NS);
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* Its entry where it is to be told of now, else NULL. */
static struct heard *to_be_told(struct beacons *self, const uint8_t *id, ns_t now)
{
    struct heard *oldest = &self->heard[0];
    for (int i = 0; i < HEARD_MAX; i++) {
        struct heard *heard = &self->heard[i];
        if (heard->told_ns != 0 && memcmp(heard->id, id, sizeof heard->id) == 0)
            return now - heard->told_ns >= AGAIN_NS ? heard : NULL;
        if (heard->told_ns < oldest->told_ns)
            oldest = heard;
    }
    return self->told < NEW_MAX ? oldest : NULL;
}

static void take(struct beacons *self, lease_agent_t *agent, const struct beacon *beacon,
                 struct in_addr from)
{
    struct speaker_place place;
    ns_t now = host_now_ns();
    speaker_where(agent, &place);
    if (memcmp(beacon->id, place.id, sizeof place.id) == 0)
        return; /* our own */
    struct heard *heard = to_be_told(self, beacon->id, now);
    if (!heard)
        return;
    char host[INET_ADDRSTRLEN], endpoint[ENDPOINT_SIZE];
    static const uint8_t none[4];
    if (memcmp(beacon->address, none, sizeof none) != 0)
        memcpy(&from.s_addr, beacon->address, sizeof beacon->address);
    endpoint_format(inet_ntop(AF_INET, &from, host, sizeof host), beacon->port, endpoint);
    if (speaker_tell_peer(agent, beacon->id, endpoint) < 0)
        return;
    memcpy(heard->id, beacon->id, sizeof heard->id);
    heard->told_ns = now;
    self->told++;
}

void beacons_hear(struct beacons *self, lease_agent_t *agent)
{
    for (int i = 0; i < TAKE_MAX && self->fd >= 0; i++) {
        uint8_t bytes[WIRE_BEACON_BYTES];
        struct sockaddr_in from = {0};
        socklen_t size = sizeof from;
        struct beacon beacon;
        ssize_t got = recvfrom(self->fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size);
        if (got < 0)
            return;
        if (from.sin_family == AF_INET && beacon_decode(bytes, (size_t)got, &beacon))
            take(self, agent, &beacon, from.sin_addr);
    }
}
