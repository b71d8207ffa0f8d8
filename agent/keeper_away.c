/* The keeper's other half: leases that an owner on another host knows, or should be told of.
 *
 * Only an answer extends such a lease, and only an answer ends it: silence is never loss. While the owner
 * is silent the record in our copy is kept alive, so that this host's processes see each other. */
#define _GNU_SOURCE

#include <string.h>

#include "agent/keeper.h"
#include "agent/remote.h"
#include "broker/host_clock.h"

#define ASK_MS   300 /* the keeper has others to look after */
#define AGAIN_NS NS_PER_SEC
#define LAST_MS  300 /* for all that is left to tell when the handle is closed */

bool keeper_is_away(struct lease_agent *agent, const struct held *held, struct route *route)
{
    const struct provider *provider = held->provider;
    return remote_route(agent, provider->name, false, route) && route->endpoint[0] &&
           (!provider->owned || route->conflicts > 0);
}

/* A request with an id counts from asked_ns, one without is asked by a new one, now. False: the owner is
 * silent. */
static bool ask_there(const struct held *held, const struct route *route, struct request *request,
                      ns_t end_ns, struct remote_reply *reply)
{
    request->hint = UINT32_MAX;
    bool again = request->id.lo != 0;
    if (!again)
        agent_request_id(&request->id);
    return remote_once(held->provider, route, request, again ? held->asked_ns : 0, end_ns, reply) ==
           0;
}

static ns_t patience_end(void)
{
    return host_now_ns() + ASK_MS * NS_PER_MS;
}

/* ---- what it was not told yet ---------------------------------------------------------------- */

static bool release_there(const struct held *held, const struct route *route, struct lease_id id,
                          ns_t end_ns)
{
    struct remote_reply reply;
    struct request request = {.verb = VERB_RELEASE, .lease = id};
    request.epoch = remote_epoch(held->provider, route, id);
    return ask_there(held, route, &request, end_ns, &reply);
}

/* The reply to a question of ours was lost, or the question: asked again it is answered the same, and
 * what was granted is given back. */
static bool undo(const struct held *held, const struct route *route, ns_t end_ns)
{
    struct remote_reply reply;
    struct request request = {.verb = held->dispatched ? VERB_VERIFY : VERB_ACQUIRE,
                              .id = held->asked_by,
                              .units = held->units,
                              .slot = held->slot,
                              .ttl_ms = held->ttl_ms,
                              .holder = held->holder,
                              .epoch = route->epoch};
    if (!ask_there(held, route, &request, end_ns, &reply))
        return false;
    bool granted = reply.answer.verdict == ANSWER_GO || reply.answer.verdict == ANSWER_GRANTED;
    return !granted || release_there(held, route, reply.answer.lease, end_ns);
}

static bool tell(struct lease_agent *agent, const struct held *held, const struct route *route,
                 ns_t end_ns)
{
    struct lease_id id = held->id;
    bool over = host_now_ns() >= held->forget_ns;
    bool told = over || (held->undo ? undo(held, route, end_ns)
                                    : release_there(held, route, held->id, end_ns));
    if (told)
        keeper_remove(agent, &id);
    return told;
}

static void keep_alive_here(struct lease_agent *agent, const struct held *held, ns_t now)
{
    if (now < held->renew_ns || !keeper_renews(held))
        return;
    struct effects effects;
    keeper_step(held, VERB_RENEW, &effects);
    keeper_renewed(agent, held->id, held->named, true, now);
}

/* By the id that it has, or anew where that is dead by what the owner knows. */
static bool ask_running(const struct held *held, const struct route *route, bool by_id,
                        struct remote_reply *reply)
{
    struct request request = {.verb = VERB_ACQUIRE,
                              .flags = REQUEST_RUNNING,
                              .id = held->asked_by,
                              .former = held->id,
                              .units = held->units,
                              .slot = held->slot,
                              .ttl_ms = held->ttl_ms,
                              .holder = held->holder};
    request.flags |= (held->flags & LEASE_MAY_IDLE ? REQUEST_MAY_IDLE : 0u) |
                     (held->flags & LEASE_NO_HOLDER ? REQUEST_NO_HOLDER : 0u) |
                     (held->flags & LEASE_BY_PID ? REQUEST_BY_PID : 0u);
    request.epoch = remote_epoch(held->provider, route, held->id);
    if (by_id)
        request.lease = held->id;
    else
        request.id.hi = ~request.id.hi; /* the same for each try of this one */
    return ask_there(held, route, &request, patience_end(), reply);
}

/* Work that was sent without the owner's word runs already. What it grants counts from when it was told
 * first: after half of that, what may have been granted is left to end by itself, and it is told anew. */
static bool announce_running(struct lease_agent *agent, struct held held, const struct route *route)
{
    struct remote_reply reply;
    ns_t half_ns = (ns_t)keeper_ttl_ms(&held) * NS_PER_MS / 2;
    if (held.asked_by.lo == 0 || host_now_ns() - held.asked_ns > half_ns) {
        agent_request_id(&held.asked_by);
        held.asked_ns = host_now_ns();
    }
    bool answered = ask_running(&held, route, true, &reply);
    if (answered && reply.answer.verdict == ANSWER_GONE)
        answered = ask_running(&held, route, false, &reply);
    ns_t now = host_now_ns();
    if (!answered || reply.answer.verdict != ANSWER_GRANTED) {
        /* a refusal is remembered by its id: the next question is another one */
        static const struct request_id none;
        keeper_put_off(agent, held.id, now + AGAIN_NS);
        keeper_asked(agent, held.id, answered ? none : held.asked_by, held.asked_ns);
        keep_alive_here(agent, &held, now);
        return answered;
    }
    struct lease_id by = reply.answer.lease;
    struct effects effects;
    if (!lease_id_equal(by, held.id))
        keeper_step(&held, VERB_RELEASE, &effects);
    if (!keeper_replaced(agent, held.id, by, reply.answer.cell, true, now))
        release_there(&held, route, by, patience_end()); /* given back meanwhile */
    return true;
}

/* ---- renewing -------------------------------------------------------------------------------- */

static bool renew(struct lease_agent *agent, const struct held *held, const struct route *route)
{
    struct remote_reply reply;
    struct request request = {.verb = VERB_RENEW,
                              .lease = held->id,
                              .units = held->units,
                              .slot = held->slot,
                              .ttl_ms = held->ttl_ms,
                              .holder = held->holder};
    request.epoch = remote_epoch(held->provider, route, held->id);
    keep_alive_here(agent, held, host_now_ns()); /* before the owner takes its time */
    bool answered = ask_there(held, route, &request, patience_end(), &reply);
    ns_t now = host_now_ns();
    keeper_put_off(agent, held->id, now + AGAIN_NS);
    const struct answer *answer = &reply.answer;
    if (answered && answer->verdict == ANSWER_GONE && held->named)
        keeper_report_lost(agent, held->id, answer->reason, answer->end);
    else if (answered && answer->verdict != ANSWER_GONE) /* gone: it never knew, verify will tell */
        keeper_renewed(agent, held->id, answer->state == RECORD_DISPATCHED || !held->dispatched,
                       false, now);
    return answered;
}

/* What our copy says to be over, by the owner's state, is made sure of: that is a copy. */
static bool is_worth_asking(const struct held *held, ns_t now)
{
    enum reason reason;
    enum record_end end;
    bool due = keeper_renews(held) && now >= held->renew_ns;
    bool doubtful =
        held->unanswered || (held->named && keeper_look_up(held, &reason, &end) != STANDS);
    return due || (doubtful && now >= held->away_ns);
}

bool keeper_look_away(struct lease_agent *agent, const struct held *held, const struct route *route)
{
    ns_t now = host_now_ns();
    bool silent = remote_doubt(agent, route, now) == 2;
    if (held->untold)
        return silent && now < held->forget_ns ? true : tell(agent, held, route, patience_end());
    if (silent) {
        keep_alive_here(agent, held, now);
        return true;
    }
    if (!held->named && held->dispatched && now >= held->away_ns)
        return announce_running(agent, *held, route);
    return is_worth_asking(held, now) ? renew(agent, held, route) : true;
}

void keeper_tell_all(struct lease_agent *agent)
{
    ns_t end_ns = host_now_ns() + LAST_MS * NS_PER_MS;
    for (uint32_t i = 0; i < agent->held_used; i++) {
        struct held held = agent->held[i];
        struct route route;
        ns_t now = host_now_ns();
        if (held.id.counter && held.untold && now < end_ns &&
            keeper_is_away(agent, &held, &route) && remote_doubt(agent, &route, now) < 2)
            tell(agent, &held, &route, end_ns);
    }
}
