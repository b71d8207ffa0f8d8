#define _GNU_SOURCE
#include "tools/lease_doctor_net.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/asker.h"
#include "agent/lookup.h"
#include "broker/error.h"
#include "broker/host_clock.h"
#include "proto/gossip.h"

/* ---- addresses ------------------------------------------------------------------------------- */

static int ms_left(int64_t end_ns)
{
    int64_t left = (end_ns - host_now_ns()) / 1000000;
    return left > 0 ? (int)left : 0;
}

static void resolve_all(struct dial *dials, size_t count, int64_t end_ns)
{
    struct lookup **lookups = calloc(count + 1, sizeof(struct lookup *));
    for (size_t i = 0; i < count; i++) {
        dials[i].error = ENOENT;
        dials[i].numeric[0] = '\0';
        if (lookups && lookup_begin(dials[i].endpoint, &lookups[i]) < 0)
            lookups[i] = NULL;
    }
    for (size_t i = 0; lookups && i < count; i++) {
        if (!lookups[i])
            continue;
        int error;
        while ((error = lookup_result(lookups[i], dials[i].numeric)) == LEASE_ETIMEOUT &&
               ms_left(end_ns) > 0) {
            struct pollfd done = {.fd = lookup_fd(lookups[i]), .events = POLLIN};
            poll(&done, 1, ms_left(end_ns));
        }
        if (error < 0)
            dials[i].numeric[0] = '\0';
        lookup_drop(&lookups[i]);
    }
    free(lookups);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int begin_connect(const char *numeric, int *failed)
{
    struct endpoint endpoint;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *address = NULL;
    char port[8];
    *failed = ENOENT;
    if (!endpoint_parse(numeric, &endpoint))
        return -1;
    snprintf(port, sizeof port, "%u", endpoint.port);
    if (getaddrinfo(endpoint.host, port, &hints, &address) != 0)
        return -1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *failed = errno;
    if (fd >= 0)
        *failed = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    freeaddrinfo(address);
    if (fd >= 0 && *failed != 0 && *failed != EINPROGRESS) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int connect_result(int fd, int64_t end_ns)
{
    struct pollfd done = {.fd = fd, .events = POLLOUT};
    int failed = 0;
    socklen_t size = sizeof failed;
    if (poll(&done, 1, ms_left(end_ns)) <= 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) < 0 ? errno : failed;
}

void dial_all(struct dial *dials, size_t count, int timeout_ms)
{
    resolve_all(dials, count, host_now_ns() + (int64_t)timeout_ms * 1000000);
    int *fds = calloc(count + 1, sizeof *fds);
    int64_t end_ns = host_now_ns() + (int64_t)timeout_ms * 1000000;
    for (size_t i = 0; fds && i < count; i++)
        fds[i] = dials[i].numeric[0] ? begin_connect(dials[i].numeric, &dials[i].error) : -1;
    for (size_t i = 0; fds && i < count; i++) {
        if (fds[i] < 0)
            continue;
        dials[i].error = connect_result(fds[i], end_ns);
        close(fds[i]);
    }
    free(fds);
}

/* ---- who is there ---------------------------------------------------------------------------- */

static void take_publish(const struct message *reply, const char *dialled, char *publish)
{
    static struct gossip_beat beat; /* large */
    struct endpoint endpoint;
    publish[0] = '\0';
    if (gossip_beat_decode(reply->beat.at, reply->beat.size, &beat) != WIRE_OK)
        return;
    if (beat.publish[0])
        snprintf(publish, ENDPOINT_SIZE, "%s", beat.publish);
    else if (beat.publish_port > 0 && beat.publish_port < 65536 &&
             endpoint_parse(dialled, &endpoint))
        endpoint_format(endpoint.host, (uint16_t)beat.publish_port, publish);
}

static void take_greeting(const struct message *reply, const char *dialled,
                          struct greeting *greeting)
{
    greeting->error = reply->ok ? 0 : reply->error;
    if (!reply->ok)
        return;
    snprintf(greeting->name, sizeof greeting->name, "%s", reply->name);
    snprintf(greeting->version, sizeof greeting->version, "%s", reply->version);
    for (int i = 0; i < WIRE_ID_BYTES; i++)
        snprintf(greeting->id + 2 * i, 3, "%02x", reply->id[i]);
    take_publish(reply, dialled, greeting->publish);
}

void greet_all(const struct dial *dials, size_t count, int timeout_ms, struct greeting *greetings)
{
    static struct message request, reply; /* both large */
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    struct ask *asks = calloc(count + 1, sizeof *asks);
    struct asker *asker = NULL;
    memset(greetings, 0, count * sizeof *greetings);
    for (size_t i = 0; i < count; i++)
        greetings[i].error = LEASE_EABSENT;
    if (!asks || asker_open(&asker) < 0) {
        free(asks);
        return;
    }
    message_request(&request, MESSAGE_HELLO, drawn_there);
    int64_t end_ns = host_now_ns() + (int64_t)timeout_ms * 1000000;
    for (size_t i = 0; i < count; i++)
        if (dials[i].error == 0)
            greetings[i].error = ask_send(asker, dials[i].numeric, &request, &asks[i]);
    for (size_t i = 0; i < count; i++) {
        if (dials[i].error == 0 && greetings[i].error == 0) {
            greetings[i].error = ask_receive(&asks[i], &reply, end_ns);
            if (greetings[i].error == 0)
                take_greeting(&reply, dials[i].numeric, &greetings[i]);
        }
        ask_free(&asks[i]);
    }
    asker_close(&asker);
    free(asks);
}

/* ---- who has a port -------------------------------------------------------------------------- */

#define LISTENING 0x0a

/* The inode of the socket that listens at `port`, as this table of the kernel has it; 0: none. */
static unsigned long listening_inode(const char *path, uint16_t port)
{
    char line[512];
    FILE *table = fopen(path, "re");
    unsigned long found = 0;
    while (table && found == 0 && fgets(line, sizeof line, table)) {
        unsigned local_port, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %lu",
                   &local_port, &state, &inode) == 3 &&
            local_port == port && state == LISTENING)
            found = inode;
    }
    if (table)
        fclose(table);
    return found;
}

static bool has_socket(const char *pid, const char *wanted)
{
    char path[300], link[64];
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *folder = opendir(path);
    bool found = false;
    const struct dirent *entry;
    while (folder && !found && (entry = readdir(folder))) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, link, sizeof link - 1);
        link[size > 0 ? size : 0] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

static void read_name(const char *pid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/comm", pid);
    FILE *comm = fopen(path, "re");
    if (!comm || !fgets(name, (int)size, comm))
        name[0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    if (comm)
        fclose(comm);
}

uint32_t port_holder(uint16_t port, char *name, size_t size)
{
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    if (inode == 0)
        inode = listening_inode("/proc/net/tcp6", port);
    name[0] = '\0';
    DIR *folder = inode ? opendir("/proc") : NULL;
    char wanted[64];
    uint32_t pid = 0;
    const struct dirent *entry;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    while (folder && pid == 0 && (entry = readdir(folder))) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !has_socket(entry->d_name, wanted))
            continue;
        pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        read_name(entry->d_name, name, size);
    }
    if (folder)
        closedir(folder);
    return pid;
}
