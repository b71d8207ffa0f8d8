/* A speaker for tests: it answers hello and status as the daemon of host m5, yields, and knows the
 * provider z4. Either in the test's own turns (speaker_handle) or as a process of its own. */
#ifndef LEASEHOLD_TESTS_SPEAKER_H
#define LEASEHOLD_TESTS_SPEAKER_H

#include <spawn.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/service.h"
#include "broker/error.h"

extern char **environ;

/* The handler; arg is the directory that a status tells. */
static inline int speaker_handle(void *arg, const struct message *request, struct message *reply)
{
    switch (request->op) {
    case MESSAGE_HELLO:
    case MESSAGE_STATUS:
        (void)strcpy(reply->name, "m5");
        memset(reply->id, 0xaa, sizeof reply->id);
        (void)strcpy(reply->version, "0.1.0");
        reply->kind = MESSAGE_DAEMON;
        reply->pid = (uint32_t)getpid();
        reply->uptime_ms = 7;
        reply->provider_count = 2;
        (void)strcpy(reply->providers[0], "z4");
        (void)strcpy(reply->providers[1], "m5");
        wire_copy_text(reply->directory, sizeof reply->directory, arg);
        return 0;
    case MESSAGE_READ: return strcmp(request->provider, "z4") == 0 ? 0 : LEASE_EUNKNOWN;
    case MESSAGE_YIELD: return 0;
    default: return LEASE_EINTERNAL;
    }
}

/* Speaks until its parent has died; for main() where it is called with the words of speaker_spawn:
 * serve DIRECTORY. */
static inline int speaker_serve(const char *directory)
{
    struct service *service = NULL;
    if (service_open(directory, speaker_handle, (void *)(uintptr_t)directory, &service) != 0) {
        return 1;
    }
    for (;;) {
        zmq_pollitem_t item = {.socket = service_socket(service), .events = ZMQ_POLLIN};
        (void)zmq_poll(&item, 1, 1000);
        if (service_run(service) != 0 || getppid() == 1) {
            return 1;
        }
    }
}

/* This program again, as a speaker; its pid, or -1. */
static inline pid_t speaker_spawn(const char *directory)
{
    pid_t pid;
    char self[] = "/proc/self/exe", word[] = "serve";
    char *argv[] = {self, word, (char *)(uintptr_t)directory, NULL};
    return posix_spawn(&pid, self, NULL, NULL, argv, environ) == 0 ? pid : -1;
}

#endif
