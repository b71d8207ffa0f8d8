/* Providers that other hosts own: who owns them, asking the owner, and taking what it says into our own
 * copy of its book. Internal.
 *
 * Where there is no fleet (no fleet.json in the runtime directory, and no peers were given) a question
 * whose owner is elsewhere costs one look at the clock, and once a second one at the directory.
 *
 * An owner that does not answer is remembered for REMOTE_SILENT_NS, so that it is asked last and with
 * little patience. Silence is LEASE_ETIMEOUT here, whatever its reason.
 *
 * Threads: any. The mutex inside is taken after all others and held for no I/O but reading that file;
 * nothing is taken under it but agent->directory_mutex. */
#ifndef AGENT_REMOTE_H
#define AGENT_REMOTE_H

#include "agent/agent.h"
#include "agent/asker.h"
#include "agent/routes.h"

#define REMOTE_SILENT_NS (2 * NS_PER_SEC)
#define REMOTE_SHORT_MS  50  /* for an owner that was silent just now */
#define REMOTE_STALE_MS  200 /* for one that nobody has heard of late */

/* agent->remote. peers are copied; LEASE_EINVAL: one is no endpoint, LEASE_ENOMEM. */
int remote_open(struct lease_agent *agent, const char *const *peers, size_t count, char *error,
                size_t error_size);
void remote_close(struct lease_agent *agent);

/* ---- who owns what (remote_routes.c) --------------------------------------------------------- */

/* A copy of the route to this provider, owned by whomever; false where there is none. `ask_peers`:
 * those that were given to the handle are asked where nothing else tells, which takes
 * REMOTE_FETCH_MS at most. Where none were, those of the speaker of this host are for some seconds after
 * its start, when it has not heard them yet. */
#define REMOTE_FETCH_MS 400
bool remote_route(struct lease_agent *agent, const char *provider, bool ask_peers,
                  struct route *route);

/* The same, and the owner is to be asked: it is on another host. */
bool remote_owner(struct provider *provider, struct route *route);

/* All that is known, for views; the caller's to free, NULL where there is nothing. With `ask_peers` those
 * that were given are asked afresh, unless that was done less than a second ago. */
struct routes *remote_routes(struct lease_agent *agent, bool ask_peers);

/* Some peer is live. */
bool remote_is_joined(struct lease_agent *agent);

/* What came of asking: an answer makes its route as good as new, silence has it looked up again. */
void remote_heard(struct lease_agent *agent, const char *endpoint, ns_t now);
void remote_silent(struct lease_agent *agent, const char *endpoint, ns_t now);

/* The owner moved, as somebody told who was asked in its place. */
void remote_moved(struct lease_agent *agent, const char *provider, const char *owner,
                  const char *endpoint);

/* How long to wait for this owner: at most most_ms, and less where it was silent. */
int64_t remote_patience(struct lease_agent *agent, const struct route *route, int64_t most_ms,
                        ns_t now);

/* Silent just now (2), not heard of late (1), neither (0): the order in which to ask. */
int remote_doubt(struct lease_agent *agent, const struct route *route, ns_t now);

/* ---- asking (remote.c) ----------------------------------------------------------------------- */

struct remote_reply {
    struct answer answer;         /* as our own book would have given it; its cell is in our copy */
    char text[LEASE_REASON_SIZE]; /* what the owner says about it, "" nothing */
    int error;                    /* decided, and it is this error rather than answer's */
    uint64_t epoch;               /* of the provider, 0 not told */
};

/* A question that is under way. Zeroed memory is none. */
struct remote_ask {
    struct provider *provider;
    struct route route;
    struct request request;
    struct ask ask;
    ns_t sent_ns;     /* first */
    ns_t resend_ns;   /* of a wait: when to make sure that the owner is still there */
    ns_t end_ns;      /* after it nobody listens, the wait not counted */
    unsigned detours; /* of owners that named another one */
};

/* Sends it; *request is copied. LEASE_ETIMEOUT: silence. */
int remote_send(struct remote_ask *self, struct provider *provider, const struct route *route,
                const struct request *request, ns_t end_ns);

/* The reply by deadline_ns, taken into our copy of the book. LEASE_EBUSY: not yet, call again;
 * LEASE_ETIMEOUT: the owner is silent. A deadline that is past only looks. */
int remote_receive(struct remote_ask *self, ns_t deadline_ns, struct remote_reply *reply);

/* Gives it up. */
void remote_end(struct remote_ask *self);

/* All three; for what does not wait in a queue. first_ns: when a request of this id was sent first, 0:
 * this is the first. */
int remote_once(struct provider *provider, const struct route *route, const struct request *request,
                ns_t first_ns, ns_t end_ns, struct remote_reply *reply);

/* What the owner published last of this provider, taken into our copy; for those who have no speaker
 * that hears it. LEASE_ETIMEOUT, and what its book says. */
int remote_fetch_state(struct provider *provider, const struct route *route, ns_t deadline_ns);

/* The record of this id in our copy, as it is now; false: there is none. */
bool remote_peek(struct provider *provider, struct lease_id id, struct record *copy);

/* An id that nobody else has, for a lease that the owner shall know by it: so that we can give up
 * what we never heard of. */
void remote_draw_id(struct lease_agent *agent, struct lease_id *id);

/* The epoch of the provider as we heard it last, for an id: where the owner has named the lease, that of
 * its token. */
uint64_t remote_epoch(struct provider *provider, const struct route *route, struct lease_id id);

/* Both with one look: the epoch, and the record if there is one. */
bool remote_known(struct provider *provider, const struct route *route, struct lease_id id,
                  uint64_t *epoch, struct record *copy);

#endif
