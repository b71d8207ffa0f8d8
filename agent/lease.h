/* liblease: short leases on the serving slots of LLM servers.
 *
 * WHAT IT IS
 *   A placement process takes a lease on one slot of a provider (a named LLM server), everyone
 *   else can see it, and right before the request is sent the lease is verified: on *go* it turns
 *   from held to dispatched in one step, so that two contenders never both get *go* for the last
 *   slot. Leases are advisory and expire on their own. Losing a race costs a fallback.
 *
 *       lease_agent_t *agent;
 *       struct lease lease;
 *       struct lease_verdict verdict;
 *       const char *providers[] = {"z4", "m5"};
 *
 *       if (lease_agent_open(NULL, &agent, NULL, 0) < 0) return inherit_the_parent();
 *       if (lease_place(agent, providers, 2, NULL, &lease, &verdict) == 0) {
 *           send_the_request(lease.url);            // renewed in the background meanwhile
 *           lease_release(agent, lease.id, 0);
 *       } else {
 *           inherit_the_parent();                   // verdict.reason says why
 *       }
 *       lease_agent_close(&agent);
 *
 * WHAT IT IS NOT
 *   No lock and no consensus: whoever does not ask is not stopped. It never sends a request for
 *   you, and a lease that was released proves nothing about the server: verify reads it.
 *
 * TIERS
 *   `process`: no runtime directory could be used, only this process knows of its leases.
 *   `host`: the processes of this host meet in files of the runtime directory.
 *   `fleet`: the owner on another host has named the lease. Never claimed stronger than it is.
 *   Each tier degrades to the one before it without an error; lease_agent_warning() says why.
 *
 * CAVEATS
 *   After fork() the child may not use the handle: every call returns LEASE_EFORK, also close
 *   frees nothing there. Open a new one. posix_spawn and exec are fine: no descriptor is
 *   inherited. The library installs no signal handler unless told to, prints nothing, registers
 *   nothing at exit; its threads block all signals. A file of the runtime directory that somebody
 *   cuts short just while it is looked at is SIGBUS, which only LEASE_OPEN_GUARD survives. The runtime directory must be local: network file systems are
 *   refused. A stopped machine's leases lapse: times run on through suspend.
 *
 * THREADS
 *   A handle may be used by several threads at once, except lease_agent_close, which must be the
 *   last call. Structs are the caller's; nothing in them points into the library.
 *
 * ERRORS
 *   0, or a negative LEASE_E... of broker/error.h (installed with this file), for which
 *   lease_strerror has a line. On an error the out parameters are unchanged but for the verdict,
 *   which tells the reason where one is known. */
#ifndef LEASE_H
#define LEASE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* everything else in the library is hidden */

#define LEASE_ID_SIZE       96  /* bytes of a lease id's text, with its end */
#define LEASE_NAME_SIZE     64  /* of a provider's, host's or model's name */
#define LEASE_LABEL_SIZE    128 /* of a label, UTF-8 */
#define LEASE_URL_SIZE      512
#define LEASE_REASON_SIZE   256
#define LEASE_ENDPOINT_SIZE 128
#define LEASE_MODELS_MAX    16

typedef struct lease_agent lease_agent_t;

enum lease_reach { LEASE_REACH_NONE = 0, LEASE_REACH_PROCESS, LEASE_REACH_HOST, LEASE_REACH_FLEET };

/* What a verdict stands on, weakest first. */
enum lease_basis {
    LEASE_BASIS_PROCESS = 0, /* what this process knows */
    LEASE_BASIS_HOST,        /* what the processes of this host know */
    LEASE_BASIS_READING,     /* that, and what the server itself reported just now */
    LEASE_BASIS_OWNER,       /* the owner of the provider said so */
};

/* ---- opening ---------------------------------------------------------------------------- */

enum lease_open_flags {
    LEASE_OPEN_CLIENT = 1 << 0,  /* never speak for the host (command-line tools) */
    LEASE_OPEN_PROCESS = 1 << 1, /* only the process tier: use no runtime directory */
    LEASE_OPEN_DAEMON = 1 << 2,  /* speak, and refuse to run beside another daemon */
    LEASE_OPEN_FLEET = 1 << 3,   /* open what the fleet needs although nobody is named yet */
    LEASE_OPEN_GUARD = 1 << 4,   /* install a handler for SIGBUS, once a process: see CAVEATS. It is
                                  * never removed, and passes on what is not about our files */
};

struct lease_options {
    size_t size;           /* sizeof(struct lease_options) */
    const char *directory; /* the runtime directory; NULL: $LEASE_DIR, then the usual ones */
    const char *host;      /* this host's name; NULL: as its agent has it, or the machine's */
    const char *label;     /* default label of leases; NULL: the program's name */
    const char *const *providers; /* NAME=SPEC, as on the command line */
    size_t provider_count;
    unsigned flags;           /* enum lease_open_flags */
    const char *const *peers; /* agents of other hosts: tcp://HOST[:PORT][,name=PEER] */
    size_t peer_count;
    /* For an agent that speaks for its host: it answers other hosts at `listen`, and publishes at
     * `publish` (NULL: the port after that of the first listen). Beyond loopback only with `insecure`.
     * Where neither of these nor peers is given, nothing of the fleet is opened. */
    const char *const *listen;
    size_t listen_count;
    const char *publish;
    const char *advertise; /* where others reach it, where that is not where it listens */
    const char *relay;     /* of a relay to publish through, instead of to each peer */
    int insecure;
};

/* Opens an agent. options may be NULL. Providers that are not named there are taken from the
 * configuration which the speaker of the runtime directory has left in it, and from the books.
 * error (may be NULL) gets one line, lower case, what failed and what to do.
 * LEASE_EINVAL: a SPEC or a name cannot be read. LEASE_EDAEMON: another daemon speaks already.
 * A runtime directory that cannot be used is no error: the reach is `process` then, and
 * lease_agent_warning tells why. */
int lease_agent_open(const struct lease_options *options, lease_agent_t **agent, char *error,
                     size_t error_size);

/* Releases every lease that this handle took and that is not tied to something else, ends the
 * background thread, frees, and sets *self to NULL. Does nothing where it is NULL. */
void lease_agent_close(lease_agent_t **self);

/* The strongest tier at hand, the directory in use ("" for none), and one line of warning ("" for
 * none) when a tier was lost. The texts live as long as the handle. */
enum lease_reach lease_agent_reach(const lease_agent_t *agent);
const char *lease_agent_directory(const lease_agent_t *agent);
const char *lease_agent_warning(const lease_agent_t *agent);

/* ---- asking ----------------------------------------------------------------------------- */

enum lease_request_flags {
    LEASE_MAY_IDLE = 1 << 0,  /* the holder may pause: not taken for a ghost and refused renewal */
    LEASE_NO_HOLDER = 1 << 1, /* outlives this process: time alone ends it, nobody renews it */
    LEASE_BY_PID = 1 << 2,    /* lives as long as `pid`; once dispatched, the speaker renews it */
    LEASE_ANY_ORDER = 1 << 3, /* lease_place: the candidates are equals, choose at random */
    LEASE_NO_RENEW = 1 << 4,  /* the caller renews by itself */
    LEASE_FORCE = 1 << 5,     /* lease_release: of somebody else's lease */
};

/* Zero in every field is the default. */
struct lease_request {
    size_t size;              /* sizeof(struct lease_request) */
    uint32_t units;           /* slots to take, default 1 */
    int32_t slot_plus_1;      /* a slot's index + 1; 0: any slot */
    uint32_t ttl_ms;          /* default 10 s while held, 30 s once dispatched; 1 s to 24 h */
    uint32_t wait_ms;         /* how long to wait in the queue; 0: not at all */
    uint32_t timeout_ms;      /* for the whole call without the wait, default 1,500 */
    uint32_t pid;             /* with LEASE_BY_PID */
    unsigned flags;           /* enum lease_request_flags */
    enum lease_basis require; /* the least basis of a go that will do */
    const char *label;        /* who, for people; at most 127 bytes of UTF-8 */
    const char *running;      /* id of a lease that ended while its request goes on: the new one is
                                 dispatched at once, counted even above the slots */
};

struct lease {
    char id[LEASE_ID_SIZE];
    char provider[LEASE_NAME_SIZE];
    char url[LEASE_URL_SIZE]; /* where clients reach the server, "" unknown */
    uint64_t token;           /* grows with every grant of a provider; 0: none yet */
    int64_t left_ms;          /* until it ends, counted from when it was asked for */
    uint32_t units;
    int32_t slot;   /* -1: any */
    int dispatched; /* 0: held */
    enum lease_reach reach;
};

struct lease_verdict {
    int go;
    int undecided; /* a no that was not decided by whoever owns the book: release the lease */
    enum lease_basis basis;
    uint64_t token;
    uint32_t waited_ms;
    char provider[LEASE_NAME_SIZE];
    char reason[LEASE_REASON_SIZE]; /* one line, lower case: why, and what it would take */
};

/* Takes a held lease. LEASE_EBUSY: no slot (in time); LEASE_EUNKNOWN: no such provider anywhere;
 * LEASE_EFULL; LEASE_ELOCKED: another process sits on the book; LEASE_EINVAL. request may be NULL.
 * The lease is renewed in the background while this process lives, within the limits: a held one
 * for 60 s at most. */
int lease_acquire(lease_agent_t *agent, const char *provider, const struct lease_request *request,
                  struct lease *lease, struct lease_verdict *verdict);

/* The question right before dispatch. 0: go, the lease is dispatched. LEASE_EBUSY: no, and the
 * lease has ended (not so where verdict->undecided: release it). LEASE_EGONE: the lease had ended.
 * LEASE_EBASIS: go, but on less than request->require; the lease is released. Of request only
 * ttl_ms, wait_ms, timeout_ms, require and LEASE_MAY_IDLE count; it may be NULL. */
int lease_verify(lease_agent_t *agent, const char *id, const struct lease_request *request,
                 struct lease *lease, struct lease_verdict *verdict);

/* One more time to live (0: the lease's own). LEASE_EGONE: it has ended, for good. LEASE_EBUSY:
 * refused, since no work shows for it. */
int lease_renew(lease_agent_t *agent, const char *id, uint32_t ttl_ms, struct lease *lease);

/* Ends it. 0 also where it had ended already. LEASE_ELOCKED: another process sits on the book; what
 * this handle took is given back in the background as soon as it can be. flags: LEASE_FORCE. */
int lease_release(lease_agent_t *agent, const char *id, unsigned flags);

/* Tries the candidates in the order given: acquire, verify, next. 0: dispatched on one of them.
 * With wait_ms it stands in the queue of each, keeps the first grant it learns of and leaves the
 * others. LEASE_EBUSY: none in time, LEASE_EUNKNOWN: none of them is known. */
int lease_place(lease_agent_t *agent, const char *const *providers, size_t count,
                const struct lease_request *request, struct lease *lease,
                struct lease_verdict *verdict);

/* Makes every call of this handle that waits now come back soon with LEASE_ECLOSED, its place in
 * the queue given up. Async-signal-safe: for a handler in the thread that waits, whose sleep a
 * signal ends; other threads notice within a second. */
void lease_interrupt(lease_agent_t *agent);

/* ---- hearing ---------------------------------------------------------------------------- */

enum lease_event_kind {
    LEASE_EVENT_NONE = 0,
    LEASE_EVENT_LOST, /* the book says that a lease of this handle has ended */
    LEASE_EVENT_BOOK, /* a book was removed, cut short or spoilt: what was in it is gone. No id; the
                         leases of this handle keep theirs and are taken again by themselves */
};

struct lease_event {
    enum lease_event_kind kind;
    char id[LEASE_ID_SIZE];
    char reason[LEASE_REASON_SIZE];
};

/* A descriptor that is readable while an event waits, for any event loop; -1 where none is to be
 * had. It belongs to the handle. */
int lease_event_fd(lease_agent_t *agent);

/* The next event; 0 and kind LEASE_EVENT_NONE where there is none. Never blocks. */
int lease_event_next(lease_agent_t *agent, struct lease_event *event);

/* ---- looking ---------------------------------------------------------------------------- */

/* Numbers of which -1 means unknown. */
struct lease_view {
    char provider[LEASE_NAME_SIZE];
    char owner[LEASE_NAME_SIZE];
    char url[LEASE_URL_SIZE];
    char group[LEASE_NAME_SIZE];
    enum lease_reach reach;
    char state[16]; /* live, stale, lost, unowned, conflict */
    int64_t heard_ms;
    uint64_t epoch;
    uint64_t version;
    int64_t slots_total, in_flight, queued;
    char signal[16], engine[24], health[16], detail[LEASE_LABEL_SIZE];
    int64_t age_ms; /* of the reading */
    struct {
        char name[LEASE_NAME_SIZE];
        char state[16];
    } models[LEASE_MODELS_MAX];
    uint32_t model_count;
    int64_t available; /* what a new acquire would be granted now */
    int64_t free;      /* slots without work in them, by the reading */
    int64_t leased, dispatched, waiting, strangers, ghosts, orphans; /* strangers: -1 unknown */
    uint32_t first_lease, lease_count;                               /* of lease_fleet.leases */
    uint32_t first_work, work_count;                                 /* of lease_fleet.work */
};

struct lease_entry {
    char id[LEASE_ID_SIZE];
    char state[16]; /* held, dispatched; waiting ones are counted only */
    char host[LEASE_NAME_SIZE];
    char label[LEASE_LABEL_SIZE];
    uint32_t pid, units;
    int32_t slot;
    int64_t age_ms, dispatched_ms /* -1: not dispatched */, left_ms, idle_ms /* -1: no ghost */;
    uint64_t token;
    enum lease_reach reach;
};

struct lease_work {
    char kind[16]; /* stranger, orphan, ghost */
    int32_t slot;
    int64_t for_ms;
    uint32_t units;
    uint32_t was_pid; /* of an orphan's or ghost's holder */
    char was_host[LEASE_NAME_SIZE];
    char was_label[LEASE_LABEL_SIZE];
};

/* Another host's agent. */
struct lease_peer {
    char name[LEASE_NAME_SIZE]; /* "" never heard */
    char id[33];                /* hexadecimal, "" never heard */
    char version[LEASE_NAME_SIZE];
    char endpoint[LEASE_ENDPOINT_SIZE];
    char state[16];   /* live, silent, lost */
    int64_t heard_ms; /* -1: never */
};

struct lease_fleet {
    char view_from[LEASE_NAME_SIZE];
    struct lease_view *providers;
    struct lease_entry *leases;
    struct lease_work *work;
    uint32_t provider_count, lease_count, work_count;
    struct lease_peer *peers;
    uint32_t peer_count;
};

/* Brings up to date what lease_fleet shows of the servers, as people want it who look: asks each
 * whose reading is older than 1.2 s and that no other process reads. Blocks for timeout_ms at most (0:
 * 1,500) over all of them. 0 also where a server does not answer, which is something to show. */
int lease_read(lease_agent_t *agent, uint32_t timeout_ms);

/* A snapshot of everything known, without waiting for a lock: one is tried for only where somebody
 * has died. *fleet is the caller's: give it back to lease_fleet_free. */
int lease_fleet(lease_agent_t *agent, struct lease_fleet **fleet);
void lease_fleet_free(struct lease_fleet **fleet);

/* The snapshot as the one JSON schema of the project (a NUL-ended text from malloc, the caller's
 * to free), or NULL without memory. */
char *lease_fleet_json(const struct lease_fleet *fleet);

/* One line for an error code, lower case, without a full stop. Never NULL. */
const char *lease_strerror(int error);

const char *lease_reach_name(enum lease_reach reach);
const char *lease_basis_name(enum lease_basis basis);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
