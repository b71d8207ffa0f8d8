/* The live words of a book: what processes tell each other without the lock.
 *
 * They lie in the book's file, or in plain memory for the process tier. Nothing that must be right
 * depends on them: they only say when to look again, and who is asking the server just now. So they
 * are not sealed, and whatever stands in them is survived.
 *
 * Thread rules: atomics, used by any number of threads and processes at once. */
#ifndef BROKER_HOST_WORDS_H
#define BROKER_HOST_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/broker.h"

struct host_words {
    /* Grows by 2 with every change; bit 0: somebody sleeps on it. The sleeper sets the bit, whoever
     * changes the word clears it and wakes all. A sleeper that is killed leaves a bit that the next
     * change clears: nothing to clean up. */
    _Atomic uint32_t change;
    /* Grows whenever somebody has taken the book's lock, also to decide what changes nothing: as long
     * as it moves, nobody sits on the lock. */
    _Atomic uint32_t turns;
    /* Grows when waiters of the queue are called; they sleep on it with a bit of their own. */
    _Atomic uint32_t call;
    /* Grows when somebody wants a reading; the speaker sleeps on it. */
    _Atomic uint32_t demand;
    /* Who asks the server just now (0: nobody) and since when, in one word so that nobody takes the
     * one with somebody else's other: the process id << 32 | the low half of milliseconds. */
    _Atomic uint64_t prober;
    /* When somebody last looked at the book as people do: it is read more often then. */
    _Atomic int64_t watched_ns;
};

/* The bit with which a waiter in this cell sleeps on `call`. */
static inline uint32_t host_words_bit(uint32_t cell)
{
    return UINT32_C(1) << (cell % 32);
}

/* After a commit the change is there to be seen: marked while the lock is held, as the file may be
 * cut short once it is not; those who sleep are woken when it is given back, which touches nothing.
 * A system call only where somebody sleeps. */
struct host_wakes {
    bool all;        /* somebody sleeps on `change` */
    uint32_t called; /* bits on `call` */
};
struct host_wakes host_words_mark(struct host_words *words, const struct effects *effects);
void host_words_wake(struct host_words *words, struct host_wakes wakes);

/* Both at once. */
void host_words_announce(struct host_words *words, const struct effects *effects);

/* Sleeps until the change word differs from `seen` (as loaded before looking at the book) or the
 * timeout is over. Answers as host_wait. */
int host_words_await_change(struct host_words *words, uint32_t seen, int64_t timeout_ns);

/* For host_wait_any: the change word with its bit set, or 0 where it has moved on from `seen`. */
bool host_words_arm(struct host_words *words, uint32_t seen, uint32_t *armed);

/* Whether it has moved on from `seen`, without the bit: for those who look again by themselves. */
bool host_words_differ(const struct host_words *words, uint32_t seen);

/* A reading is wanted. */
void host_words_demand(struct host_words *words);

/* Somebody looks at this book, as people do, or did lately. */
#define WATCHED_MS 5000
void host_words_watch(struct host_words *words, ns_t now);
bool host_words_are_watched(const struct host_words *words, ns_t now);

/* Takes the office of prober for process `pid`, where nobody holds it, its holder is dead, or it
 * has been at it for longer than limit_ns. */
bool host_words_take_probe(struct host_words *words, uint32_t pid, ns_t now, ns_t limit_ns);

/* Gives it back. */
void host_words_leave_probe(struct host_words *words, uint32_t pid);

/* Somebody alive is asking the server and has been for no longer than limit_ns. */
bool host_words_is_probed(const struct host_words *words, ns_t now, ns_t limit_ns);

#endif
