/* Asking: acquire, verify, renew, release. */
#define _GNU_SOURCE

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/asking.h"
#include "agent/group.h"
#include "agent/ladder.h"
#include "agent/remote.h"
#include "broker/host_clock.h"
#include "broker/host_fork.h"
#include "broker/host_random.h"
#include "broker/host_wait.h"

#define PAUSE_SPARE_MS 250 /* of the caller's time, for a reading after the pause */

/* ---- what every call begins with ------------------------------------------------------------- */

int agent_check(const struct lease_agent *agent)
{
    if (!agent)
        return LEASE_EINVAL;
    return agent->generation == host_fork_generation() ? 0 : LEASE_EFORK;
}

void agent_request_id(struct request_id *id)
{
    id->hi = host_random_u64();
    id->lo = host_random_u64() | 1;
}

static const struct lease_request *or_default(const struct lease_request *request)
{
    static const struct lease_request none = {.size = sizeof none};
    return request ? request : &none;
}

static void fill_holder(const struct lease_agent *agent, const struct lease_request *request,
                        struct holder *holder)
{
    memcpy(holder->host, agent->host, sizeof holder->host);
    if (request->label)
        text_copy(holder->label, sizeof holder->label, request->label);
    else
        memcpy(holder->label, agent->label, sizeof holder->label);
    holder->local = 1;
    holder->pid = agent->self.pid;
    holder->pid_start = agent->self.start;
    holder->pid_space = agent->self.pidns;
    if (request->flags & LEASE_BY_PID) {
        holder->pid = request->pid;
        holder->pid_start = host_process_start(request->pid);
    }
}

static uint32_t wire_flags(unsigned flags)
{
    return (flags & LEASE_MAY_IDLE ? REQUEST_MAY_IDLE : 0u) |
           (flags & LEASE_NO_HOLDER ? REQUEST_NO_HOLDER : 0u) |
           (flags & LEASE_BY_PID ? REQUEST_BY_PID : 0u);
}

int asking_begin(struct asking *asking, struct lease_agent *agent, enum verb verb,
                 const struct lease_request *request)
{
    request = or_default(request);
    if (request->size < sizeof *request || request->units > BOOK_SLOTS_MAX ||
        request->slot_plus_1 < 0 || request->slot_plus_1 > BOOK_SLOTS_MAX)
        return LEASE_EINVAL;
    memset(asking, 0, offsetof(struct asking, effects));
    asking->effects.reply.verdict = ANSWER_NO;
    asking->agent = agent;
    asking->options = *request;
    asking->interrupts = atomic_load_explicit(&agent->interrupts, memory_order_relaxed);
    struct request *r = &asking->request;
    r->verb = verb;
    r->flags = wire_flags(request->flags) | REQUEST_FIRST;
    agent_request_id(&r->id);
    r->hint = UINT32_MAX;
    r->units = request->units ? request->units : 1;
    r->slot = request->slot_plus_1 - 1;
    r->ttl_ms = request->ttl_ms;
    r->wait_ms = request->wait_ms;
    asking->reap = request->wait_ms > 0 ? REAP_HOLDERS : REAP_ALL;
    if (verb == VERB_VERIFY || r->wait_ms > 0) /* nothing else asks since when */
        r->asked_ns = r->fresh_ns = host_now_ns();
    if (verb == VERB_ACQUIRE)
        fill_holder(agent, request, &r->holder);
    if (verb == VERB_RELEASE) {
        r->holder.local = 1;
        r->holder.pid = agent->self.pid;
    }
    return 0;
}

void asking_set_provider(struct asking *asking, struct provider *provider)
{
    asking->provider = provider;
    asking->remote = remote_owner(provider, &asking->route);
    if (asking->remote)
        provider_follow(provider);
}

void asking_holder(const struct asking *asking, struct holder *holder)
{
    memset(holder, 0, sizeof *holder);
    fill_holder(asking->agent, &asking->options, holder);
}

/* ---- one answer ------------------------------------------------------------------------------ */

static ns_t attempt_end(const struct asking *asking)
{
    if (asking->end_ns)
        return asking->end_ns;
    uint32_t ms = asking->options.timeout_ms ? asking->options.timeout_ms : TIMEOUT_MS;
    return asking->request.fresh_ns + (ns_t)ms * NS_PER_MS;
}

/* Somebody who died is noticed at the next look, and this is one: only where we were refused. */
static bool found_dead(struct asking *asking, const struct answer *answer)
{
    bool leases = answer->reason == REASON_LEASES || answer->reason == REASON_AHEAD ||
                  answer->reason == REASON_SLOT || answer->reason == REASON_BOOK_FULL ||
                  answer->reason == REASON_NOT_YOURS || answer->reason == REASON_GROUP;
    bool no = answer->verdict == ANSWER_NO || answer->verdict == ANSWER_WAIT;
    return no && leases && group_reap(asking->provider, asking->reap, LOCK_BUDGET_MS) > 0;
}

/* Of the provider, and of those of its group that decide with it. Whose server nobody here was told
 * of stands as it is known. */
static int read_all(struct asking *asking)
{
    struct provider *members[GROUP_MEMBERS_MAX + 1] = {asking->provider};
    int errors[GROUP_MEMBERS_MAX + 1];
    uint32_t count = 0;
    ns_t fresh_ns = asking->request.fresh_ns;
    if (book_is_probed(asking->provider->book) && !asking->blind)
        count = 1;
    bool group = !(asking->request.flags & REQUEST_GROUP_AS_KNOWN);
    if (group)
        count += group_unread(asking->provider, fresh_ns, members + count);
    reader_get_all(members, count, fresh_ns, attempt_end(asking), errors);
    int error = count > 0 && members[0] == asking->provider ? errors[0] : 0;
    for (uint32_t i = 0; i < count; i++)
        if (errors[i] == LEASE_ETIMEOUT && error == 0)
            error = LEASE_ETIMEOUT;
    if (group && error == 0)
        asking->request.flags |= REQUEST_GROUP_AS_KNOWN;
    return error;
}

/* Where no reading is to be had in time, what is known decides, if it can. */
static int await_reading(struct asking *asking)
{
    int error = atomic_load(&asking->provider->group)
                    ? read_all(asking)
                    : reader_get(asking->provider, asking->request.fresh_ns, attempt_end(asking));
    if (error != LEASE_ETIMEOUT || (asking->request.flags & REQUEST_AS_KNOWN))
        return error;
    asking->request.flags |= REQUEST_AS_KNOWN;
    return 0;
}

static int step(struct asking *asking, struct event *event, struct effects *effects)
{
    return asking->blind ? provider_step_blind(asking->provider, event, effects, LOCK_BUDGET_MS)
                         : provider_step(asking->provider, event, effects, LOCK_BUDGET_MS);
}

bool asking_is_interrupted(const struct asking *asking)
{
    const struct lease_agent *agent = asking->agent;
    return atomic_load_explicit(&agent->closing, memory_order_relaxed) ||
           atomic_load_explicit(&agent->interrupts, memory_order_relaxed) != asking->interrupts;
}

/* A no that rests on a server which is left alone for a moment: where that ends within the caller's
 * time, it is asked again then. */
static bool outlasts_pause(struct asking *asking)
{
    const struct answer *answer = &asking->effects.reply;
    if (answer->verdict != ANSWER_NO || answer->retry_ns <= asking->decided_ns ||
        asking->request.wait_ms > 0)
        return false;
    if (asking->request.fresh_ns == 0)
        asking->request.fresh_ns = asking->decided_ns;
    if (answer->retry_ns + PAUSE_SPARE_MS * NS_PER_MS > attempt_end(asking))
        return false;
    struct host_words *words = &asking->provider->own_words;
    for (ns_t left; (left = answer->retry_ns - host_now_ns()) > 0;) {
        if (asking_is_interrupted(asking))
            return false;
        ns_t slice = left < 50 * NS_PER_MS ? left : 50 * NS_PER_MS;
        host_wait(&words->call, atomic_load(&words->call), HOST_WAIT_ANY, slice);
    }
    agent_request_id(&asking->request.id);
    asking->request.flags &= ~(uint32_t)(REQUEST_AS_KNOWN | REQUEST_GROUP_AS_KNOWN);
    return true;
}

/* Until there is an answer that no reading is missing for. */
int asking_step(struct asking *asking)
{
    struct event event = {.kind = EVENT_REQUEST, .request = &asking->request};
    bool reaped = false;
    provider_settle(asking->provider);
    asking->request.flags &= ~(uint32_t)(REQUEST_AS_KNOWN | REQUEST_GROUP_AS_KNOWN);
    for (;;) {
        int error = step(asking, &event, &asking->effects);
        if (error < 0)
            return error;
        asking->decided_ns = event.now;
        const struct answer *answer = &asking->effects.reply;
        asking->request.flags &= ~(uint32_t)REQUEST_FIRST;
        if (answer->cell != UINT32_MAX)
            asking->request.hint = answer->cell;
        if (answer->verdict == ANSWER_UNREAD) {
            if (asking->request.fresh_ns == 0)
                asking->request.fresh_ns = event.now;
            error = await_reading(asking);
            if (error < 0)
                return error;
            continue;
        }
        if (outlasts_pause(asking))
            continue;
        if (reaped || !found_dead(asking, answer))
            return 0;
        reaped = true;
        if (answer->verdict == ANSWER_NO) /* a refusal is remembered: this is a new question */
            agent_request_id(&asking->request.id);
    }
}

/* ---- waiting in the queue -------------------------------------------------------------------- */

void asking_give_up(struct asking *asking, enum request_flags flag)
{
    struct request release = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST | (uint32_t)flag,
                              .lease = asking->effects.reply.lease,
                              .hint = asking->request.hint};
    struct event event = {.kind = EVENT_REQUEST, .request = &release};
    struct effects effects;
    agent_request_id(&release.id);
    provider_step(asking->provider, &event, &effects, LOCK_BUDGET_MS);
    if (asking->named)
        ladder_give_up(asking);
}

static bool stands_in_queue(const struct asking *asking)
{
    const struct answer *answer = &asking->effects.reply;
    return asking->request.hint != UINT32_MAX && answer->state == RECORD_WAITING &&
           host_now_ns() < answer->end_ns;
}

/* A reading that is not to be had ends no wait: it is asked for again later. */
ns_t asking_next_look(const struct answer *answer)
{
    ns_t later = host_now_ns() + PROBE_ACTIVE_MS * NS_PER_MS;
    if (answer->verdict == ANSWER_WAIT)
        return answer->retry_ns;
    return later < answer->end_ns ? later : answer->end_ns;
}

int asking_wait(struct asking *asking)
{
    struct provider *provider = asking->provider;
    bool queues = asking->request.wait_ms > 0;
    for (;;) {
        /* who does not wait does not pay for looking */
        struct host_words *words = queues ? provider_words(provider) : &provider->own_words;
        _Atomic uint32_t *call = &words->call;
        uint32_t seen = atomic_load_explicit(call, memory_order_acquire);
        int error = asking_step(asking);
        const struct answer *answer = &asking->effects.reply;
        if (error == LEASE_ELOCKED && stands_in_queue(asking) && !asking_is_interrupted(asking))
            continue; /* the next look may have more luck */
        bool unread = error == LEASE_ETIMEOUT && stands_in_queue(asking);
        if (!unread && (error < 0 || answer->verdict != ANSWER_WAIT))
            return error;
        queues = true;
        ns_t look = asking_next_look(answer);
        if (asking->turn_ns && look > asking->turn_ns)
            look = asking->turn_ns;
        ns_t left = look - host_now_ns();
        bool slept =
            left > 0 && host_wait(call, seen, host_words_bit(answer->cell), left) == LEASE_ETIMEOUT;
        asking->reap = slept ? REAP_ALL : REAP_HOLDERS; /* nobody woke us: is somebody dead? */
        if (asking_is_interrupted(asking)) {
            asking_give_up(asking, REQUEST_GIVE_UP);
            return LEASE_ECLOSED;
        }
        asking->request.fresh_ns = host_now_ns();
        if (asking->turn_ns && asking->request.fresh_ns >= asking->turn_ns)
            return ASKING_TURN;
    }
}

/* ---- answers in the caller's words ----------------------------------------------------------- */

enum lease_basis asking_basis(const struct asking *asking)
{
    struct provider *provider = asking->provider;
    if (asking->named)
        return LEASE_BASIS_OWNER;
    pthread_mutex_lock(&provider->mutex);
    bool read = book_is_probed(provider->book) && !asking->blind;
    pthread_mutex_unlock(&provider->mutex);
    if (provider->reach == LEASE_REACH_PROCESS)
        return read ? LEASE_BASIS_READING : LEASE_BASIS_PROCESS;
    if (provider->owned && !asking->remote)
        return LEASE_BASIS_OWNER;
    return read ? LEASE_BASIS_READING : LEASE_BASIS_HOST;
}

void asking_refuse(struct lease_agent *agent, const char *provider, int error,
                   struct lease_verdict *verdict)
{
    if (!verdict)
        return;
    memset(verdict, 0, sizeof *verdict);
    text_copy(verdict->provider, sizeof verdict->provider, provider);
    verdict->undecided = 1;
    if (error == LEASE_ELOCKED)
        provider_lock_text(agent, provider, verdict->reason, sizeof verdict->reason);
    else if (error == LEASE_ENOSPC || error == LEASE_ELAYOUT || error == LEASE_EDAMAGED)
        snprintf(verdict->reason, sizeof verdict->reason,
                 "its book cannot be used (%s), and an agent speaks for this host",
                 lease_error_text(error));
    else
        snprintf(verdict->reason, sizeof verdict->reason, "%s", lease_error_text(error));
}

/* Only an owner issues tokens: what our copy of its book draws is for its own order. */
static uint64_t token_of(const struct asking *asking)
{
    return asking->remote && !asking->named ? 0 : asking->effects.reply.token;
}

/* What the last reading says of itself, where it says nothing else. */
static void add_detail(struct provider *provider, struct lease_verdict *verdict)
{
    pthread_mutex_lock(&provider->mutex);
    const struct reading *reading = &provider->book->sight.reading;
    const struct provider_spec *spec = provider_spec(provider);
    const char *what =
        spec && spec->engine == ENGINE_EXEC ? "the program tells nothing" : verdict->reason;
    char text[LEASE_REASON_SIZE + LABEL_SIZE + 2];
    if (reading->detail[0]) {
        snprintf(text, sizeof text, "%s: %s", what, reading->detail);
        text_copy(verdict->reason, sizeof verdict->reason, text);
    }
    pthread_mutex_unlock(&provider->mutex);
}

void asking_verdict(const struct asking *asking, int error, struct lease_verdict *verdict)
{
    if (!verdict)
        return;
    if (error < 0) {
        asking_refuse(asking->agent, asking->provider->name, error, verdict);
        verdict->basis = asking_basis(asking);
        return;
    }
    memset(verdict, 0, sizeof *verdict);
    memcpy(verdict->provider, asking->provider->name, sizeof verdict->provider);
    verdict->basis = asking_basis(asking);
    const struct answer *answer = &asking->effects.reply;
    verdict->go = answer->verdict == ANSWER_GO;
    verdict->undecided = answer->undecided;
    verdict->token = token_of(asking);
    verdict->waited_ms = answer->waited_ms;
    if (asking->named) {
        memcpy(verdict->reason, asking->text, sizeof verdict->reason);
        return;
    }
    broker_reason_text(answer, verdict->reason, sizeof verdict->reason);
    if (answer->reason == REASON_HEALTH && answer->health == HEALTH_UNKNOWN)
        add_detail(asking->provider, verdict);
}

void asking_lease(const struct asking *asking, struct lease *lease)
{
    if (!lease)
        return;
    const struct answer *answer = &asking->effects.reply;
    const struct provider *provider = asking->provider;
    memset(lease, 0, sizeof *lease);
    lease_id_format(provider->name, answer->lease, lease->id);
    memcpy(lease->provider, provider->name, sizeof lease->provider);
    const char *url = provider_url(provider);
    if (!url[0] && asking->remote)
        url = asking->route.url;
    memcpy(lease->url, url, strnlen(url, sizeof lease->url - 1));
    lease->token = token_of(asking);
    lease->left_ms = (answer->end_ns - asking->decided_ns) / NS_PER_MS;
    lease->units = answer->units;
    lease->slot = answer->slot;
    lease->dispatched = answer->state == RECORD_DISPATCHED;
    lease->reach = asking->named ? LEASE_REACH_FLEET : provider->reach;
}

int asking_error(const struct asking *asking)
{
    const struct answer *answer = &asking->effects.reply;
    if (asking->named && asking->refusal < 0)
        return asking->refusal;
    switch (answer->verdict) {
    case ANSWER_GRANTED:
    case ANSWER_GO: return 0;
    case ANSWER_GONE: return LEASE_EGONE;
    default: break;
    }
    switch (answer->reason) {
    case REASON_TTL:
    case REASON_UNITS:
    case REASON_SLOT_RANGE: return LEASE_EINVAL;
    case REASON_BOOK_FULL:
    case REASON_QUEUE_FULL: return LEASE_EFULL;
    case REASON_NOT_YOURS: return LEASE_EPERM;
    default: return LEASE_EBUSY;
    }
}

int asking_keep(const struct asking *asking)
{
    const struct answer *answer = &asking->effects.reply;
    struct held held = {.id = answer->lease,
                        .provider = asking->provider,
                        .holder = asking->request.holder,
                        .cell = answer->cell,
                        .units = answer->units,
                        .slot = answer->slot,
                        .ttl_ms = asking->request.ttl_ms,
                        .flags = asking->options.flags,
                        .dispatched = answer->state == RECORD_DISPATCHED,
                        .named = asking->named};
    return keeper_add(asking->agent, &held, asking->decided_ns);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int begin_for(struct asking *asking, lease_agent_t *agent, enum verb verb,
                     const struct lease_request *request, const char *provider,
                     struct lease_verdict *verdict)
{
    int error = agent_check(agent);
    if (error == 0)
        error = asking_begin(asking, agent, verb, request);
    if (error < 0)
        return error;
    struct provider *found = provider_find(agent, provider, &error);
    if (found)
        asking_set_provider(asking, found);
    if (error < 0 && provider && name_is_valid(provider))
        asking_refuse(agent, provider, error, verdict);
    return error;
}

static int begin_for_id(struct asking *asking, lease_agent_t *agent, enum verb verb,
                        const struct lease_request *request, const char *id,
                        struct lease_verdict *verdict)
{
    char provider[NAME_SIZE];
    struct lease_id lease;
    if (!id || !lease_id_parse(id, provider, &lease))
        return LEASE_EINVAL;
    int error = begin_for(asking, agent, verb, request, provider, verdict);
    if (error == 0) {
        asking->request.lease = lease;
        asking->request.hint = verb == VERB_RELEASE ? keeper_remove(agent, &asking->request.lease)
                                                    : keeper_resolve(agent, &asking->request.lease);
    }
    return error;
}

/* What cannot be decided in time is a no that decides nothing. */
static int verdict_error(int error)
{
    return error == LEASE_ETIMEOUT ? LEASE_EBUSY : error;
}

int lease_acquire(lease_agent_t *agent, const char *provider, const struct lease_request *request,
                  struct lease *lease, struct lease_verdict *verdict)
{
    struct asking asking;
    int error = begin_for(&asking, agent, VERB_ACQUIRE, request, provider, verdict);
    if (error < 0)
        return error;
    if (asking.options.running) {
        char name[NAME_SIZE];
        if (!lease_id_parse(asking.options.running, name, &asking.request.former))
            return LEASE_EINVAL;
        asking.request.flags |= REQUEST_RUNNING;
    }
    error = ladder_ask(&asking);
    asking_verdict(&asking, error, verdict);
    if (error == 0)
        error = asking_error(&asking);
    if (error == 0)
        error = asking_keep(&asking);
    if (error == 0)
        asking_lease(&asking, lease);
    return verdict_error(error);
}

/* A go on less than was demanded is given back: the caller may not use it. */
static int check_basis(struct asking *asking, struct lease_verdict *verdict)
{
    if (asking_basis(asking) >= asking->options.require)
        return 0;
    asking_give_up(asking, 0);
    keeper_remove(asking->agent, &asking->effects.reply.lease);
    if (verdict) {
        verdict->go = 0;
        snprintf(verdict->reason, sizeof verdict->reason, "basis %s is less than %s",
                 lease_basis_name(asking_basis(asking)), lease_basis_name(asking->options.require));
    }
    return LEASE_EBASIS;
}

int asking_verify(struct asking *asking, struct lease *lease, struct lease_verdict *verdict)
{
    int error = ladder_ask(asking);
    asking_verdict(asking, error, verdict);
    if (error < 0)
        return verdict_error(error);
    const struct answer *answer = &asking->effects.reply;
    error = asking_error(asking);
    if (error == 0)
        error = check_basis(asking, verdict);
    if (error == 0) {
        keeper_dispatched(asking->agent, answer->lease, asking->options.ttl_ms, asking->named,
                          asking->decided_ns);
        asking_lease(asking, lease);
    } else if (!answer->undecided) {
        keeper_remove(asking->agent, &asking->request.lease);
    }
    return error;
}

int lease_verify(lease_agent_t *agent, const char *id, const struct lease_request *request,
                 struct lease *lease, struct lease_verdict *verdict)
{
    struct asking asking;
    int error = begin_for_id(&asking, agent, VERB_VERIFY, request, id, verdict);
    return error < 0 ? error : asking_verify(&asking, lease, verdict);
}

int lease_renew(lease_agent_t *agent, const char *id, uint32_t ttl_ms, struct lease *lease)
{
    struct asking asking;
    struct lease_request request = {.size = sizeof request, .ttl_ms = ttl_ms};
    int error = begin_for_id(&asking, agent, VERB_RENEW, &request, id, NULL);
    if (error == 0)
        error = ladder_renew(&asking);
    if (error == 0)
        error = asking_error(&asking);
    if (error == 0)
        asking_lease(&asking, lease);
    else if (error == LEASE_EGONE)
        keeper_remove(agent, &asking.request.lease);
    return error;
}

int lease_release(lease_agent_t *agent, const char *id, unsigned flags)
{
    struct asking asking;
    int error = begin_for_id(&asking, agent, VERB_RELEASE, NULL, id, NULL);
    if (error < 0)
        return error;
    bool ours = asking.request.hint != UINT32_MAX;
    if (flags & LEASE_FORCE)
        asking.request.flags |= REQUEST_FORCE;
    error = ladder_release(&asking, ours);
    if (error == 0 && asking.effects.reply.reason == REASON_NOT_YOURS)
        return LEASE_EPERM;
    return error < 0 ? error : 0;
}

void lease_interrupt(lease_agent_t *agent)
{
    atomic_fetch_add_explicit(&agent->interrupts, 1, memory_order_relaxed);
}
