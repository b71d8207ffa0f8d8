/* What the runtime directory tells about who speaks for this host. */
#ifndef TOOLS_LEASE_HOST_H
#define TOOLS_LEASE_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct host_speaker {
    uint32_t pid;     /* of the last beat, 0: nobody has ever spoken here */
    bool alive;       /* it beats */
    bool exists;      /* its process is there, whether it beats or not */
    bool stopped;     /* ... and is stopped (Ctrl-Z) */
    bool elsewhere;   /* in another pid namespace: its pid says nothing here */
    const char *kind; /* "daemon", "embedded", "" */
};

/* Reads the beat of `directory`; all zero where there is none. */
void host_speaker(const char *directory, struct host_speaker *speaker);

/* A process speaks for the directory and is not stopped: it renews what is tied to a pid. */
bool host_speaker_lives(const char *directory);

/* The process that sits on the lock of a provider's book, 0 where nobody does or it cannot be told. */
uint32_t host_book_locked_by(const char *directory, const char *provider);
bool host_is_stopped(uint32_t pid);

/* It is the parent of this process, or a parent's parent. */
bool host_is_ancestor(uint32_t pid);

#endif
