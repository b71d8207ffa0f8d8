/* Asking the owner, and taking what it says into our own copy of the book. */
#define _GNU_SOURCE

#include "agent/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/heard.h"
#include "agent/remote_peers.h"
#include "broker/host_clock.h"

#define DETOURS_MAX 2
#define RESEND_NS   (2 * NS_PER_SEC) /* of a wait */
#define HELLO_MS    300

/* ---- our copy -------------------------------------------------------------------------------- */

/* The record of this id as it is now; false: there is none. */
static bool peek(struct provider *provider, struct lease_id id, struct record *copy, uint32_t *cell)
{
    pthread_mutex_lock(&provider->mutex);
    const struct record *found = NULL;
    if (id.counter && provider->table && provider_look(provider) == 0)
        found = book_find(provider->book, id, UINT32_MAX);
    if (found) {
        *copy = *found;
        *cell = book_index(provider->book, found);
    }
    pthread_mutex_unlock(&provider->mutex);
    return found != NULL;
}

/* By the step that was just taken, without a look. Any cell is as good a hint as none. */
static uint32_t cell_of(struct provider *provider, struct lease_id id)
{
    pthread_mutex_lock(&provider->mutex);
    const struct record *record = book_find(provider->book, id, UINT32_MAX);
    uint32_t cell = record ? book_index(provider->book, record) : 0;
    pthread_mutex_unlock(&provider->mutex);
    return cell;
}

bool remote_peek(struct provider *provider, struct lease_id id, struct record *copy)
{
    uint32_t cell;
    return peek(provider, id, copy, &cell);
}

bool remote_known(struct provider *provider, const struct route *route, struct lease_id id,
                  uint64_t *epoch, struct record *copy)
{
    const struct record *record = NULL;
    uint64_t named = 0, heard = 0;
    pthread_mutex_lock(&provider->mutex);
    if (provider->table && provider_look(provider) == 0) {
        record = id.counter ? book_find(provider->book, id, UINT32_MAX) : NULL;
        if (record && (record->flags & RECORD_NAMED))
            named = record->token >> TOKEN_BITS;
        if (record)
            *copy = *record;
        heard = mirror_epoch(provider->book);
    }
    pthread_mutex_unlock(&provider->mutex);
    *epoch = named ? named : heard > route->epoch ? heard : route->epoch;
    return record != NULL;
}

uint64_t remote_epoch(struct provider *provider, const struct route *route, struct lease_id id)
{
    struct record record;
    uint64_t epoch;
    remote_known(provider, route, id, &epoch, &record);
    return epoch;
}

static int take_state(struct provider *provider, const struct gossip_state *told,
                      const struct gossip_lease *leases, uint32_t count)
{
    struct heard_state *state = calloc(1, sizeof *state);
    struct heard_lease *heard = calloc((size_t)count + 1, sizeof *heard);
    int error = state && heard ? 0 : LEASE_ENOMEM;
    if (error == 0) {
        heard_state_of(told, host_now_ns(), state);
        for (uint32_t i = 0; i < count; i++)
            state->lease_count += heard_lease_of(&leases[i], provider->name, provider->agent->host,
                                                 &heard[state->lease_count]);
        state->leases = heard;
        struct event event = {.kind = EVENT_STATE, .state = state};
        struct effects effects;
        error = provider_step(provider, &event, &effects, LOCK_BUDGET_MS);
    }
    free(state);
    free(heard);
    return error;
}

/* The state that comes with a refusal, where it is whole. */
static void take_state_of_reply(struct provider *provider, const struct message *reply)
{
    if (reply->state.size == 0)
        return;
    struct gossip_state *told = malloc(sizeof *told);
    struct gossip_lease *leases = malloc(WIRE_LEASES_MAX * sizeof *leases);
    uint32_t count = 0;
    if (told && leases &&
        gossip_state_decode(reply->state.at, reply->state.size, told, leases, WIRE_LEASES_MAX,
                            &count) == WIRE_OK &&
        told->parts <= 1 && strcmp(told->provider, provider->name) == 0)
        take_state(provider, told, leases, count);
    free(told);
    free(leases);
}

static void fill_lease(struct heard_lease *lease, const struct request *request,
                       const struct remote_reply *reply, const struct record *before, ns_t now)
{
    const struct answer *answer = &reply->answer;
    lease->id = answer->lease;
    lease->state = answer->state;
    lease->end = answer->state == RECORD_GONE ? answer->end : END_NONE;
    lease->holder = request->holder;
    lease->holder.local = request->holder.pid != 0 || request->holder.host[0] != '\0';
    lease->units = answer->units;
    lease->slot = answer->slot;
    lease->ttl_ms = request->ttl_ms;
    lease->left_ms = answer->end_ns > now ? (answer->end_ns - now) / NS_PER_MS : 0;
    lease->dispatched_ms = answer->state == RECORD_DISPATCHED ? 0 : -1;
    lease->idle_ms = -1;
    lease->token = answer->token;
    lease->may_idle = request->flags & REQUEST_MAY_IDLE;
    lease->no_holder = request->flags & REQUEST_NO_HOLDER;
    lease->by_pid = request->flags & REQUEST_BY_PID;
    if (!before)
        return;
    if (request->verb != VERB_ACQUIRE && before->holder.host[0])
        lease->holder = before->holder;
    lease->ttl_ms = request->ttl_ms ? request->ttl_ms : before->ttl_ms;
    lease->age_ms = (now - before->acquired_ns) / NS_PER_MS;
    lease->arrived = before->arrived;
    lease->may_idle = lease->may_idle || (before->flags & RECORD_MAY_IDLE);
    lease->no_holder = lease->no_holder || (before->flags & RECORD_NO_HOLDER);
    lease->by_pid = lease->by_pid || (before->flags & RECORD_BY_PID);
    if (lease->state == RECORD_DISPATCHED && before->state == RECORD_DISPATCHED)
        lease->dispatched_ms = (now - before->dispatched_ns) / NS_PER_MS;
}

/* What the owner said of a lease. One that ended is noted only where it is in our copy; one that the owner
 * has never heard of is not ended by that: its work may run. */
static void take_named(struct provider *provider, const struct request *request,
                       const struct message *told, struct remote_reply *reply)
{
    struct answer *answer = &reply->answer;
    struct record before;
    uint32_t cell = 0;
    bool known = peek(provider, answer->lease, &before, &cell);
    bool ended = answer->state == RECORD_GONE;
    answer->cell = cell;
    if (answer->lease.counter == 0 || (ended && !known) ||
        (answer->verdict == ANSWER_GONE && !(before.flags & RECORD_NAMED)))
        return;
    struct heard_named named = {.epoch = told->epoch, .version = told->state_version};
    fill_lease(&named.lease, request, reply, known ? &before : NULL, host_now_ns());
    struct event event = {.kind = EVENT_NAMED, .named = &named};
    struct effects effects;
    if (provider_step(provider, &event, &effects, LOCK_BUDGET_MS) == 0 && !known)
        answer->cell = cell_of(provider, answer->lease);
}

/* ---- the question ---------------------------------------------------------------------------- */

static enum message_op op_of(enum verb verb)
{
    switch (verb) {
    case VERB_VERIFY: return MESSAGE_VERIFY;
    case VERB_RENEW: return MESSAGE_RENEW;
    case VERB_RELEASE: return MESSAGE_RELEASE;
    default: return MESSAGE_ACQUIRE;
    }
}

static uint32_t ms_until(ns_t end_ns, ns_t now)
{
    ns_t left = end_ns > now ? (end_ns - now) / NS_PER_MS : 0;
    return left < 1 ? 1 : left > WIRE_TIME_MS_MAX ? WIRE_TIME_MS_MAX : (uint32_t)left;
}

static void fill_wish(const struct remote_ask *self, ns_t now, struct message *message)
{
    const struct request *request = &self->request;
    message->units = request->units;
    message->slot_plus_1 = (uint32_t)(request->slot + 1);
    if (request->wait_ms > 0)
        message->wait_ms = ms_until(request->asked_ns + (ns_t)request->wait_ms * NS_PER_MS, now);
    message->budget_ms = ms_until(self->end_ns, now);
    memcpy(message->host, request->holder.host, sizeof message->host);
    wire_copy_text(message->label, sizeof message->label, request->holder.label);
    message->holder_pid = request->holder.pid;
    message->may_idle = request->flags & REQUEST_MAY_IDLE;
    message->no_holder = request->flags & REQUEST_NO_HOLDER;
    message->by_pid = request->flags & REQUEST_BY_PID;
}

static void fill(const struct remote_ask *self, ns_t now, struct message *message)
{
    const struct request *request = &self->request;
    const struct provider *provider = self->provider;
    uint8_t req[WIRE_ID_BYTES];
    _Static_assert(sizeof request->id == sizeof req, "a request's id is its req");
    memcpy(req, &request->id, sizeof req);
    message_request(message, op_of(request->verb), req);
    memcpy(message->name, provider->agent->host, sizeof message->name);
    message->pid = provider->agent->self.pid;
    memcpy(message->provider, provider->name, sizeof message->provider);
    message->ttl_ms = request->ttl_ms;
    message->epoch = request->epoch;
    if (request->lease.counter)
        lease_id_format(provider->name, request->lease, message->lease);
    if (request->verb == VERB_ACQUIRE || request->verb == VERB_VERIFY)
        fill_wish(self, now, message);
    if (request->verb == VERB_ACQUIRE && (request->flags & REQUEST_RUNNING)) {
        message->running = true;
        if (request->former.counter)
            lease_id_format(provider->name, request->former, message->former);
    }
    message->force = request->verb == VERB_RELEASE && (request->flags & REQUEST_FORCE);
    message->died = request->verb == VERB_RELEASE && (request->flags & REQUEST_DIED);
}

static int send(struct remote_ask *self)
{
    struct lease_agent *agent = self->provider->agent;
    struct message message;
    ns_t now = host_now_ns();
    fill(self, now, &message);
    int error = ask_send(remote_asker(agent), self->route.endpoint, &message, &self->ask);
    self->resend_ns = now + RESEND_NS;
    if (error < 0)
        remote_silent(agent, self->route.endpoint, now);
    return error < 0 ? LEASE_ETIMEOUT : 0;
}

int remote_send(struct remote_ask *self, struct provider *provider, const struct route *route,
                const struct request *request, ns_t end_ns)
{
    memset(self, 0, sizeof *self);
    self->provider = provider;
    self->route = *route;
    self->request = *request;
    self->end_ns = end_ns;
    self->sent_ns = host_now_ns();
    int error = send(self);
    /* What the answer will be written to is looked at while there is nothing else to do. */
    struct record record;
    if (error == 0)
        remote_peek(provider, request->lease, &record);
    return error;
}

void remote_end(struct remote_ask *self)
{
    ask_free(&self->ask);
}

/* ---- the reply ------------------------------------------------------------------------------- */

/* Owners say in words why a lease ended: those that we know are told apart for events and logs. */
static enum record_end end_of(const char *text)
{
    for (int end = END_RELEASED; end <= END_REPLACED; end++) {
        char known[LEASE_REASON_SIZE];
        struct answer answer = {.reason = REASON_ENDED, .end = (enum record_end)end};
        broker_reason_text(&answer, known, sizeof known);
        if (strcmp(known, text) == 0)
            return (enum record_end)end;
    }
    return END_EXPIRED;
}

static bool read_verdict(enum message_verdict told, enum verdict *verdict)
{
    switch (told) {
    case MESSAGE_GRANTED: *verdict = ANSWER_GRANTED; return true;
    case MESSAGE_GO: *verdict = ANSWER_GO; return true;
    case MESSAGE_NO: *verdict = ANSWER_NO; return true;
    case MESSAGE_GONE: *verdict = ANSWER_GONE; return true;
    default: return false;
    }
}

static enum record_state state_of(const struct request *request, const struct answer *answer,
                                  bool dispatched)
{
    bool stands =
        answer->verdict == ANSWER_GO ||
        (answer->verdict == ANSWER_GRANTED && request->verb != VERB_RELEASE) ||
        (answer->verdict == ANSWER_NO &&
         (answer->undecided || request->verb == VERB_RENEW || request->verb == VERB_RELEASE));
    if (!stands)
        return RECORD_GONE;
    return dispatched || answer->verdict == ANSWER_GO ? RECORD_DISPATCHED : RECORD_HELD;
}

static enum record_end end_for(const struct request *request, const struct answer *answer,
                               const char *text)
{
    if (request->verb == VERB_RELEASE)
        return request->flags & REQUEST_FORCE ? END_FORCED : END_RELEASED;
    switch (answer->verdict) {
    case ANSWER_GONE: return end_of(text);
    case ANSWER_NO: return request->wait_ms > 0 ? END_GAVE_UP : END_REFUSED;
    default: return END_RELEASED;
    }
}

/* 0, or LEASE_ETIMEOUT where it makes no sense: as good as none. */
static int read_answer(const struct remote_ask *self, const struct message *told,
                       struct remote_reply *reply)
{
    const struct request *request = &self->request;
    struct answer *answer = &reply->answer;
    char provider[NAME_SIZE];
    if (!read_verdict(told->verdict, &answer->verdict))
        return LEASE_ETIMEOUT;
    answer->undecided = told->undecided;
    answer->lease = request->lease;
    if (told->lease[0] && (!lease_id_parse(told->lease, provider, &answer->lease) ||
                           strcmp(provider, self->provider->name) != 0))
        return LEASE_ETIMEOUT;
    bool grants = answer->verdict == ANSWER_GO || answer->verdict == ANSWER_GRANTED;
    if (grants && answer->lease.counter == 0)
        return LEASE_ETIMEOUT;
    answer->token = told->token;
    answer->units = told->units ? told->units : request->units ? request->units : 1;
    answer->slot = told->slot_plus_1 ? (int32_t)told->slot_plus_1 - 1 : request->slot;
    answer->waited_ms = told->waited_ms;
    answer->state = state_of(request, answer, told->dispatched);
    answer->end = answer->state == RECORD_GONE ? end_for(request, answer, told->text) : END_NONE;
    answer->reason = answer->verdict == ANSWER_GONE ? REASON_ENDED : REASON_NONE;
    uint64_t left_ms = told->left_ms < TTL_MS_MAX ? told->left_ms : TTL_MS_MAX;
    answer->end_ns = self->sent_ns + ((ns_t)left_ms + told->waited_ms) * NS_PER_MS;
    return 0;
}

/* Not ok: another owner is named, or this is what it decided, or it could not. */
static int read_refusal(struct remote_ask *self, const struct message *told,
                        struct remote_reply *reply)
{
    if (told->error == LEASE_ENOTOWNER && told->endpoint[0] && self->detours < DETOURS_MAX &&
        strcmp(told->endpoint, self->route.endpoint) != 0 &&
        asker_check_endpoint(told->endpoint) == 0) {
        self->detours++;
        remote_moved(self->provider->agent, self->provider->name, told->owner, told->endpoint);
        snprintf(self->route.owner, sizeof self->route.owner, "%s", told->owner);
        snprintf(self->route.endpoint, sizeof self->route.endpoint, "%s", told->endpoint);
        int error = send(self);
        return error < 0 ? error : LEASE_EBUSY;
    }
    switch (told->error) {
    case LEASE_EINVAL:
    case LEASE_EFULL:
    case LEASE_EPERM:
    case LEASE_EBUSY: reply->error = told->error; break;
    case LEASE_ELOCKED:
        reply->error = LEASE_ELOCKED;
        reply->answer.undecided = true;
        break;
    default: return LEASE_ETIMEOUT;
    }
    reply->answer.verdict = ANSWER_NO;
    reply->answer.lease = self->request.lease;
    return 0;
}

static int take_reply(struct remote_ask *self, const struct message *told,
                      struct remote_reply *reply)
{
    memset(reply, 0, sizeof *reply);
    reply->answer.cell = UINT32_MAX;
    reply->epoch = told->epoch;
    text_copy(reply->text, sizeof reply->text, told->text);
    remote_heard(self->provider->agent, self->route.endpoint, host_now_ns());
    int error = told->ok ? read_answer(self, told, reply) : read_refusal(self, told, reply);
    if (error < 0 || !told->ok)
        return error;
    take_state_of_reply(self->provider, told);
    take_named(self->provider, &self->request, told, reply);
    return 0;
}

/* ---- waiting for it -------------------------------------------------------------------------- */

/* Somebody answers there. */
static bool is_there(struct remote_ask *self)
{
    struct message request, reply;
    struct ask ask = {0};
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    message_request(&request, MESSAGE_HELLO, drawn_there);
    int error = ask_once(remote_asker(self->provider->agent), self->route.endpoint, &request,
                         &reply, host_now_ns() + HELLO_MS * NS_PER_MS, &ask);
    ask_free(&ask);
    return error == 0;
}

/* In a queue silence is what is to be expected. So now and then it is made sure that the owner is still
 * there; asking again with the same request keeps the place, also in an owner that was started anew. */
static int look_after_wait(struct remote_ask *self)
{
    if (is_there(self) || is_there(self)) {
        remote_heard(self->provider->agent, self->route.endpoint, host_now_ns());
        return send(self);
    }
    remote_silent(self->provider->agent, self->route.endpoint, host_now_ns());
    return LEASE_ETIMEOUT;
}

int remote_receive(struct remote_ask *self, ns_t deadline_ns, struct remote_reply *reply)
{
    ns_t wait_ns = (ns_t)self->request.wait_ms * NS_PER_MS;
    for (;;) {
        struct message told;
        ns_t until = deadline_ns < self->end_ns + wait_ns ? deadline_ns : self->end_ns + wait_ns;
        if (self->request.wait_ms && until > self->resend_ns)
            until = self->resend_ns;
        int error = ask_receive(&self->ask, &told, until);
        if (error == 0)
            error = take_reply(self, &told, reply);
        else if (error != LEASE_ETIMEOUT || host_now_ns() >= self->end_ns + wait_ns)
            remote_silent(self->provider->agent, self->route.endpoint, host_now_ns());
        else
            error = LEASE_EBUSY;
        if (error != LEASE_EBUSY)
            return error < 0 ? LEASE_ETIMEOUT : 0;
        ns_t now = host_now_ns();
        if (self->request.wait_ms && now >= self->resend_ns && look_after_wait(self) < 0)
            return LEASE_ETIMEOUT;
        if (now >= deadline_ns)
            return LEASE_EBUSY;
    }
}

int remote_once(struct provider *provider, const struct route *route, const struct request *request,
                ns_t first_ns, ns_t end_ns, struct remote_reply *reply)
{
    struct remote_ask ask;
    int error = remote_send(&ask, provider, route, request, end_ns);
    if (first_ns)
        ask.sent_ns = first_ns;
    while (error == 0 || error == LEASE_EBUSY) {
        error = remote_receive(&ask, end_ns, reply);
        if (error == 0)
            break;
        if (error == LEASE_EBUSY && host_now_ns() >= end_ns) {
            remote_silent(provider->agent, ask.route.endpoint, host_now_ns());
            error = LEASE_ETIMEOUT;
        }
    }
    remote_end(&ask);
    return error;
}

/* ---- fetching -------------------------------------------------------------------------------- */

struct parts {
    struct gossip_state told;
    struct gossip_lease leases[WIRE_LEASES_MAX];
    uint32_t count;
};

static int fetch_part(struct provider *provider, const struct route *route, uint32_t part,
                      ns_t deadline_ns, struct parts *parts)
{
    struct message request, reply;
    struct ask ask = {0};
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    message_request(&request, MESSAGE_FETCH, drawn_there);
    memcpy(request.provider, provider->name, sizeof request.provider);
    request.part = part;
    int error = ask_once(remote_asker(provider->agent), route->endpoint, &request, &reply,
                         deadline_ns, &ask);
    uint32_t count = 0;
    if (error < 0)
        remote_silent(provider->agent, route->endpoint, host_now_ns());
    else if (!reply.ok || reply.state.size == 0 ||
             gossip_state_decode(reply.state.at, reply.state.size, &parts->told,
                                 parts->leases + parts->count, WIRE_LEASES_MAX - parts->count,
                                 &count) != WIRE_OK)
        error = LEASE_ETIMEOUT;
    parts->count += count;
    ask_free(&ask);
    return error < 0 ? LEASE_ETIMEOUT : 0;
}

int remote_fetch_state(struct provider *provider, const struct route *route, ns_t deadline_ns)
{
    struct parts *parts = calloc(1, sizeof *parts);
    if (!parts)
        return LEASE_ENOMEM;
    int error = fetch_part(provider, route, 0, deadline_ns, parts);
    uint64_t epoch = parts->told.epoch, version = parts->told.version;
    for (uint32_t part = 1; error == 0 && part < parts->told.parts; part++) {
        error = fetch_part(provider, route, part, deadline_ns, parts);
        if (parts->told.epoch != epoch || parts->told.version != version)
            error = LEASE_ETIMEOUT; /* it changed meanwhile: another time */
    }
    if (error == 0)
        error = take_state(provider, &parts->told, parts->leases, parts->count);
    free(parts);
    return error;
}
