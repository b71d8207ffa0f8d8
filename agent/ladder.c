#define _GNU_SOURCE

#include "agent/ladder.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "broker/host_clock.h"

#define SLICE_NS   (100 * NS_PER_MS) /* how long an interrupt may take to be noticed */
#define TURN_NS    (2 * NS_PER_SEC)  /* who waits below a silent owner asks it again so often */
#define RELEASE_MS 200               /* what is left to do then is done by the keeper */

static ns_t earlier(ns_t a, ns_t b)
{
    return a < b ? a : b;
}

/* ---- what is left to tell the owner ---------------------------------------------------------- */

static uint32_t ttl_of(const struct request *request)
{
    bool goes = request->verb == VERB_VERIFY || (request->flags & REQUEST_RUNNING);
    return request->ttl_ms ? request->ttl_ms
                           : (goes ? TTL_DISPATCHED_MS_DEFAULT : TTL_HELD_MS_DEFAULT);
}

/* Until then it may have it, and does not know that nobody wants it. */
static void tell_later(const struct asking *asking, struct lease_id lease, bool undo)
{
    ns_t now = host_now_ns();
    struct held held = {.id = lease,
                        .provider = asking->provider,
                        .units = asking->request.units,
                        .slot = asking->request.slot,
                        .ttl_ms = asking->request.ttl_ms,
                        .dispatched = asking->request.verb == VERB_VERIFY,
                        .untold = true,
                        .undo = undo,
                        .asked_by = asking->request.id,
                        .forget_ns = now + (ns_t)ttl_of(&asking->request) * NS_PER_MS};
    if (undo)
        held.id = (struct lease_id){asking->request.id.hi, asking->request.id.lo};
    asking_holder(asking, &held.holder);
    keeper_add(asking->agent, &held, now); /* a full list: it ends by itself */
}

/* Given back at the owner now if it answers, else as soon as it does. */
static void release_there(const struct asking *asking, struct lease_id lease)
{
    struct lease_agent *agent = asking->agent;
    ns_t now = host_now_ns();
    struct remote_reply reply;
    struct request request = {.verb = VERB_RELEASE, .lease = lease, .hint = UINT32_MAX};
    request.epoch = remote_epoch(asking->provider, &asking->route, lease);
    agent_request_id(&request.id);
    if (remote_doubt(agent, &asking->route, now) == 2 ||
        remote_once(asking->provider, &asking->route, &request, 0, now + RELEASE_MS * NS_PER_MS,
                    &reply) < 0)
        tell_later(asking, lease, false);
}

static void release_here(const struct asking *asking, struct lease_id lease)
{
    struct request request = {
        .verb = VERB_RELEASE, .flags = REQUEST_FIRST, .lease = lease, .hint = UINT32_MAX};
    struct event event = {.kind = EVENT_REQUEST, .request = &request};
    struct effects effects;
    agent_request_id(&request.id);
    provider_step(asking->provider, &event, &effects, LOCK_BUDGET_MS);
}

void ladder_give_up(const struct asking *asking)
{
    release_there(asking, asking->effects.reply.lease);
}

/* ---- the owner ------------------------------------------------------------------------------- */

static uint32_t timeout_of(const struct asking *asking)
{
    return asking->options.timeout_ms ? asking->options.timeout_ms : TIMEOUT_MS;
}

/* Half of what there is: the other half is for the rungs below. */
static ns_t owner_end(struct asking *asking, ns_t now)
{
    if (asking->end_ns == 0)
        asking->end_ns = now + (ns_t)timeout_of(asking) * NS_PER_MS;
    ns_t half_ms = (asking->end_ns - now) / 2 / NS_PER_MS;
    return now + remote_patience(asking->agent, &asking->route, half_ms, now) * NS_PER_MS;
}

static bool may_grant_unknown(const struct request *request)
{
    return request->lease.counter == 0 &&
           (request->verb == VERB_ACQUIRE || request->verb == VERB_VERIFY);
}

/* The request as the owner gets it. Who waits brings an id, so that the place can be given up. */
static void request_for_owner(const struct asking *asking, struct request *request)
{
    struct record record;
    *request = asking->request;
    request->flags &= ~(uint32_t)(REQUEST_FIRST | REQUEST_AS_KNOWN);
    if (asking->silent) /* what was asked before was given up */
        agent_request_id(&request->id);
    if (request->verb == VERB_ACQUIRE && request->wait_ms > 0)
        remote_draw_id(asking->agent, &request->lease);
    bool known =
        remote_known(asking->provider, &asking->route, request->lease, &request->epoch, &record);
    if (request->holder.host[0])
        return;
    if (known && record.holder.local)
        request->holder = record.holder;
    else
        asking_holder(asking, &request->holder);
}

static void take(struct asking *asking, const struct remote_reply *reply)
{
    asking->named = true;
    asking->silent = false;
    asking->refusal = reply->error;
    asking->told_epoch = reply->epoch;
    asking->effects.reply = reply->answer;
    asking->decided_ns = host_now_ns();
    if (reply->answer.cell != UINT32_MAX)
        asking->request.hint = reply->answer.cell;
    const char *words = reply->text;
    if (!words[0])
        words = reply->answer.verdict == ANSWER_GO ? "go"
                : reply->error                     ? lease_error_text(reply->error)
                                                   : "";
    text_copy(asking->text, sizeof asking->text, words);
}

/* Until the owner answers, is silent, or this handle is to come back. */
static int converse(struct asking *asking, struct remote_ask *ask, ns_t end_ns)
{
    struct remote_reply reply;
    ns_t wait_ns = (ns_t)asking->request.wait_ms * NS_PER_MS;
    for (;;) {
        ns_t until = earlier(host_now_ns() + SLICE_NS, end_ns + wait_ns);
        int error = remote_receive(ask, until, &reply);
        if (error == 0)
            take(asking, &reply);
        if (error != LEASE_EBUSY)
            return error;
        if (asking_is_interrupted(asking))
            return LEASE_ECLOSED;
    }
}

/* LEASE_ETIMEOUT: it is silent. */
static int ask_owner(struct asking *asking)
{
    struct request request;
    struct remote_ask ask;
    ns_t end_ns = owner_end(asking, host_now_ns());
    request_for_owner(asking, &request);
    int error = remote_send(&ask, asking->provider, &asking->route, &request, end_ns);
    bool sent = error == 0;
    if (sent)
        error = converse(asking, &ask, end_ns);
    remote_end(&ask);
    if (error == 0 || !sent)
        return error;
    if (may_grant_unknown(&request))
        tell_later(asking, request.lease, true);
    else if (request.verb == VERB_ACQUIRE)
        tell_later(asking, request.lease, false);
    return error;
}

/* An owner that started anew knows no id of before: the question is asked once more, with what the copy
 * has learned of it by now. */
static int ask_owner_twice(struct asking *asking)
{
    int error = ask_owner(asking);
    bool anew = error == 0 && asking->request.verb == VERB_ACQUIRE &&
                asking->effects.reply.verdict == ANSWER_GONE;
    if (!anew)
        return error;
    if (asking->told_epoch > asking->route.epoch)
        asking->route.epoch = asking->told_epoch;
    agent_request_id(&asking->request.id);
    return ask_owner(asking);
}

/* ---- what the copy shows to be taken --------------------------------------------------------- */

static void explain(const struct book *book, const struct tally *tally, ns_t now,
                    struct answer *answer)
{
    memset(answer, 0, sizeof *answer);
    answer->verdict = ANSWER_NO;
    answer->reason = REASON_LEASES;
    answer->cell = UINT32_MAX;
    answer->slots = tally->slots;
    answer->busy = tally->busy + tally->held;
    answer->strangers = tally->strangers;
    const struct record *other = admission_first_to_end(book, UINT64_MAX);
    if (!other)
        return;
    memcpy(answer->other.host, other->holder.host, NAME_SIZE);
    memcpy(answer->other.label, other->holder.label, LABEL_SIZE);
    answer->other.pid = other->holder.pid;
    answer->other.state = other->state;
    answer->other.left_ms = (other->deadline_ns - now) / NS_PER_MS;
}

/* By leases alone, of a copy that is as fresh as beats make it: what readings say changes faster. */
static bool is_taken(struct asking *asking)
{
    struct provider *provider = asking->provider;
    const struct request *request = &asking->request;
    if (request->wait_ms > 0 || (request->flags & REQUEST_RUNNING) ||
        strcmp(route_state_name(&asking->route, host_now_ns()), "live") != 0)
        return false;
    bool taken = false;
    pthread_mutex_lock(&provider->mutex);
    if (provider->table && provider_look(provider) == 0) {
        const struct book *book = provider->book;
        struct tally tally;
        ns_t now = host_now_ns();
        admission_tally(book, now, &tally);
        int32_t wanted = (int32_t)request->units + tally.held + tally.waiting + tally.dispatched;
        taken = book->sight.heard_version > 0 && book->sight.slots_last > 0 && wanted > tally.slots;
        if (taken)
            explain(book, &tally, now, &asking->effects.reply);
    }
    pthread_mutex_unlock(&provider->mutex);
    if (taken)
        asking->decided_ns = host_now_ns();
    return taken;
}

/* ---- below the owner ------------------------------------------------------------------------- */

void ladder_step_down(struct asking *asking)
{
    provider_told(asking->provider, asking->route.url);
    asking->silent = true;
    asking->named = false;
    asking->refusal = 0;
    asking->text[0] = '\0';
    asking->blind = !provider_source(asking->provider);
}

static void await_announced(const struct asking *asking)
{
    struct record record;
    if (!remote_peek(asking->provider, asking->request.lease, &record) ||
        (record.flags & RECORD_NAMED))
        return;
    ns_t until = record.acquired_ns + LADDER_ANNOUNCED_MS * NS_PER_MS;
    if (asking->end_ns)
        until = earlier(until, asking->end_ns);
    for (ns_t left; (left = until - host_now_ns()) > 0 && !asking_is_interrupted(asking);) {
        struct timespec pause = {0, (long)earlier(left, SLICE_NS)};
        nanosleep(&pause, NULL);
    }
}

/* Whatever is decided here is no word of the owner's: the lease is given back there. */
static void give_back(struct asking *asking)
{
    struct lease_id lease = asking->request.lease;
    struct record record;
    bool was_named = remote_peek(asking->provider, lease, &record) && (record.flags & RECORD_NAMED);
    keeper_remove(asking->agent, &lease);
    release_here(asking, lease);
    if (was_named)
        tell_later(asking, lease, false);
}

static bool is_demanded_of_owner(const struct asking *asking)
{
    return asking->request.verb == VERB_VERIFY && asking->options.require >= LEASE_BASIS_OWNER;
}

static int refuse_basis(struct asking *asking)
{
    snprintf(asking->text, sizeof asking->text,
             "%s, who owns it, does not answer, and basis owner is demanded", asking->route.owner);
    give_back(asking);
    return LEASE_EBASIS;
}

/* A server that could not be asked in time is a no. */
static int ask_below(struct asking *asking)
{
    bool waits = asking->request.wait_ms > 0;
    ns_t end_ns = asking->end_ns;
    ladder_step_down(asking);
    if (asking->request.verb == VERB_VERIFY)
        await_announced(asking);
    if (asking->request.fresh_ns)
        asking->request.fresh_ns = host_now_ns();
    if (waits) {
        asking->end_ns = 0;
        asking->turn_ns = host_now_ns() + TURN_NS;
    }
    int error = asking_wait(asking);
    asking->turn_ns = 0;
    asking->end_ns = waits ? 0 : end_ns;
    if (error < 0)
        snprintf(asking->text, sizeof asking->text, "%s, who owns it, does not answer: %s",
                 asking->route.owner,
                 error == LEASE_ETIMEOUT   ? "the server does not answer either"
                 : error == LEASE_EUNKNOWN ? "and nobody knows where the server is"
                                           : lease_error_text(error));
    struct answer *answer = &asking->effects.reply;
    bool ends = error == LEASE_ETIMEOUT || error == LEASE_EUNKNOWN ||
                (error == 0 && answer->verdict == ANSWER_NO);
    if (asking->request.verb == VERB_VERIFY && ends) {
        give_back(asking);
        answer->undecided = true;
    }
    return error == LEASE_EUNKNOWN ? LEASE_ETIMEOUT : error;
}

/* The owner may be back: who waits here leaves the place for one in its queue. */
static int ask_again(struct asking *asking)
{
    if (!remote_owner(asking->provider, &asking->route))
        asking->remote = false;
    if (!asking->remote)
        return asking_wait(asking);
    struct lease_id here = asking->effects.reply.lease;
    int error = ask_owner(asking);
    if (error != LEASE_ETIMEOUT && asking->request.verb == VERB_ACQUIRE)
        release_here(asking, here);
    return error;
}

int ladder_ask(struct asking *asking)
{
    if (!asking->remote)
        return asking_wait(asking);
    if (asking->request.verb == VERB_ACQUIRE && !asking->silent && is_taken(asking))
        return 0;
    int error = asking->silent ? LEASE_ETIMEOUT : ask_owner_twice(asking);
    while (error == LEASE_ETIMEOUT) {
        if (is_demanded_of_owner(asking))
            return refuse_basis(asking);
        error = ask_below(asking);
        if (error != ASKING_TURN)
            return error;
        error = ask_again(asking);
    }
    return error;
}

int ladder_place(struct asking *asking)
{
    if (is_taken(asking))
        return 0;
    asking->request.verb = VERB_VERIFY;
    int error = ask_owner(asking);
    asking->request.verb = VERB_ACQUIRE;
    asking->silent = error == LEASE_ETIMEOUT;
    return error;
}

/* ---- renew and release ----------------------------------------------------------------------- */

int ladder_renew(struct asking *asking)
{
    if (!asking->remote)
        return asking_step(asking);
    int error = ask_owner(asking);
    bool unheard = false;
    if (error == 0 && asking->effects.reply.verdict == ANSWER_GONE) {
        struct record record;
        unheard = remote_peek(asking->provider, asking->request.lease, &record) &&
                  record_is_live(&record) && !(record.flags & RECORD_NAMED);
    }
    if (error != LEASE_ETIMEOUT && !unheard)
        return error;
    asking->named = false;
    asking->refusal = 0;
    return asking_step(asking);
}

/* Somebody's on another host: the book here would not know whose leave to ask. */
static bool is_elsewhere(const struct asking *asking, const struct record *record)
{
    return record_is_live(record) && !record->holder.local && record->holder.pid != 0 &&
           !(asking->request.flags & REQUEST_FORCE);
}

/* LEASE_ETIMEOUT where it is not ours and the owner is silent: nothing was done. */
static int release_at_owner(struct asking *asking, bool here)
{
    struct lease_agent *agent = asking->agent;
    ns_t now = host_now_ns();
    int error = LEASE_ETIMEOUT;
    if (here)
        asking->end_ns = now + 2 * RELEASE_MS * NS_PER_MS;
    if (!here || remote_doubt(agent, &asking->route, now) < 2)
        error = ask_owner(asking);
    if (error != LEASE_ETIMEOUT)
        return error == 0 ? asking->refusal : error;
    if (here)
        tell_later(asking, asking->request.lease, false);
    return here ? 0 : error;
}

int ladder_release(struct asking *asking, bool ours)
{
    struct record record = {0};
    bool known = asking->remote && remote_peek(asking->provider, asking->request.lease, &record);
    struct answer *answer = &asking->effects.reply;
    if (known && is_elsewhere(asking, &record)) {
        *answer = (struct answer){.verdict = ANSWER_NO, .reason = REASON_NOT_YOURS};
        return 0;
    }
    int error = asking_step(asking);
    if (error < 0 && ours)
        keeper_add(asking->agent,
                   &(struct held){.id = asking->request.lease,
                                  .provider = asking->provider,
                                  .cell = asking->request.hint,
                                  .releasing = true},
                   host_now_ns());
    if (!asking->remote || (error == 0 && answer->reason == REASON_NOT_YOURS))
        return error;
    if (known && !(record.flags & RECORD_NAMED))
        return error; /* our speaker withdraws what it announced */
    int there = release_at_owner(asking, ours || (known && record.holder.local));
    return ours && error < 0 ? error : there;
}

/* ---- a place in an owner's queue ------------------------------------------------------------- */

int ladder_enqueue(struct asking *asking, struct remote_ask *ask)
{
    struct request request;
    asking->end_ns = 0;
    ns_t end_ns = owner_end(asking, host_now_ns());
    request_for_owner(asking, &request);
    int error = remote_send(ask, asking->provider, &asking->route, &request, end_ns);
    if (error < 0)
        remote_end(ask);
    return error;
}

int ladder_look(struct asking *asking, struct remote_ask *ask)
{
    struct remote_reply reply;
    int error = remote_receive(ask, 0, &reply);
    if (error == LEASE_EBUSY)
        return error;
    if (error == 0)
        take(asking, &reply);
    else
        tell_later(asking, ask->request.lease, false);
    remote_end(ask);
    return error;
}

void ladder_leave(struct asking *asking, struct remote_ask *ask)
{
    remote_end(ask);
    release_there(asking, ask->request.lease);
}
