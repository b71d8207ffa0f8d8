/* Asking a server what it has free: one probe, inside an event loop or blocking.
 *
 * A probe ends in a struct reading, always: whatever the server does, within probe_ms. What could
 * not be had is unknown (-1), never 0, and `detail` says why in one line.
 *
 * What a probe never does: wake a server that sleeps, load or evict a model, follow a redirect,
 * keep a prompt or an answer that a server shows. What it cannot help: /slots of llama.cpp restarts
 * the idle timer of --sleep-idle-seconds. So a background probe of an idle server reads /metrics,
 * which does not. Where a server that could sleep has no /metrics (they are off by default), only
 * /props is read while it is idle and nobody wants to know (PROBE_IDLE), or somebody who only looks
 * asked not long ago (PROBE_LOOK, reading_rest; seldom where it was never seen asleep), and of one
 * that this target has once seen asleep also while something is leased; in_flight is then unknown
 * until a verify (PROBE_QUICK) asks.
 *
 * Old llama-servers have slots + 2 HTTP threads, and a question that was not answered sits on one of
 * them until the server gets to it, whether or not we still wait for it. So of a server that is not
 * known to have many, one at most is out: the target says busy in time and waits on, for 60 s, with
 * that one connection open. Until then each probe says busy at once, without a question; when the
 * answer comes it is time for the next one (probe_recovered). A process that ends meanwhile closes the
 * connection and frees nothing: `hung_ns` of its reading keeps the next one from asking, too, where
 * the server is known to have few threads. Several questions at a time go only to one with many.
 *
 * Thread rules: a target belongs to one thread at a time. `now` is a clock that runs through
 * suspend and is the one of the http it is used with. */
#ifndef AGENT_PROBE_H
#define AGENT_PROBE_H

#include <stdbool.h>

#include "agent/http.h"
#include "agent/spec.h"
#include "broker/reading.h"

#define PROBE_UNANSWERED_MAX 16            /* counted up to here */
#define PROBE_UNANSWERED_MS  UNANSWERED_MS /* how long each is counted */

enum probe_wants {
    PROBE_QUICK, /* a verify waits: what is in flight, in as few questions as are safe */
    PROBE_FULL,  /* in the background: also what is queued, and which models there are */
    PROBE_IDLE,  /* the same where nothing is leased or at work and nobody looks */
    PROBE_LOOK,  /* the same where somebody looks */
};

/* A server that is probed, with what was learnt about it: its key, whether it can sleep. */
struct probe_target;

/* `reading` is valid until it returns or starts the next probe of this target. It may do that, not
 * destroy the target. */
typedef void probe_callback(void *arg, const struct reading *reading);

/* LEASE_ENOMEM; *target is NULL then. Asks nothing. The caller owns it; spec is copied. */
int probe_target_new(const struct provider_spec *spec, ns_t (*now)(void),
                     struct probe_target **target);

/* Cancels what is under way, without its callback; *target becomes NULL. NULL is allowed. */
void probe_target_destroy(struct probe_target **target);

/* Starts a probe; its answer comes out of http_run, or before this returns where there is nothing
 * to ask (static) or nothing can be asked (no key file, no libcurl). `last` is the last reading
 * known, by whomever, or NULL: it tells whether the server is certainly awake, and what does not
 * change is taken over from it. Copied. LEASE_EBUSY: one is under way (wait for that one).
 * LEASE_EINVAL: probe_ms is not from 1 to HTTP_TIMEOUT_MS_MAX. Nothing has happened on failure. */
int probe_start(struct http *http, struct probe_target *target, enum probe_wants wants,
                const struct reading *last, int probe_ms, probe_callback *done, void *arg);

bool probe_is_running(const struct probe_target *target);

/* Ends one that is under way without its callback. */
void probe_cancel(struct probe_target *target);

/* Questions of the last 60 s that the server accepted and did not answer in time. */
int probe_unanswered(const struct probe_target *target);

/* Once after the question that sat at the server was answered, or will not be: time for the next. */
bool probe_recovered(struct probe_target *target);

/* What tells one server, or model of it, from another: never 0. */
uint32_t probe_source(const struct provider_spec *spec);

/* Probes once and waits for it: at most probe_ms. *reading is filled on success. LEASE_ENOMEM,
 * LEASE_EIO, LEASE_EINVAL: *reading is unchanged. */
int probe_now(const struct provider_spec *spec, enum probe_wants wants, const struct reading *last,
              int probe_ms, ns_t (*now)(void), struct reading *reading);

#endif
