/* The llama-server that Ollama runs for a model, found in the process list of this host.
 *
 * Ollama itself does not tell what is in flight. Its child does, on a random port of 127.0.0.1, which
 * stands in its command line. That it is the child of the Ollama that we ask is not taken for
 * granted: any process may be called what it likes. A child counts if
 *   - its parent, or a parent of that, is called ollama;
 *   - both run as the user whose socket listens on the server's port, and where that process shows
 *     its descriptors (to its own user and root), that socket is one of them; where none shows them,
 *     there may be only one Ollama of that user;
 *   - the child's port is listened on by that user on loopback, by the same socket in the child's
 *     network namespace and in ours: a container's is another one.
 * Nothing else is taken from its command line, which may hold keys.
 *
 * Linux: /proc. macOS would use proc_listpids and proc_pidinfo; there nothing is found. */
#ifndef AGENT_OLLAMA_CHILD_H
#define AGENT_OLLAMA_CHILD_H

#include <stdbool.h>
#include <stdint.h>

struct ollama_child {
    int32_t pid; /* 0: none */
    uint16_t port;
    uint64_t started; /* in ticks since boot: pids are used again */
};

/* Where the process list lies: "/proc", unless a test points it elsewhere before the first probe. */
extern const char *ollama_proc;

/* How many there are of the Ollama that listens on `port`; *child is one of them. Reads one file of
 * every process: milliseconds where there are many. */
int ollama_child_find(uint16_t port, struct ollama_child *child);

/* It is the process that was found. */
bool ollama_child_lives(const struct ollama_child *child);

#endif
