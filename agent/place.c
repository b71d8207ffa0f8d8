/* Placing: several candidates, the first that can be had. */
#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "agent/ladder.h"
#include "broker/host_clock.h"
#include "broker/host_random.h"
#include "broker/host_wait.h"

/* What became of all the candidates, to be told in one word. */
struct outcome {
    int error; /* the one that says most: a busy candidate says more than an unknown one */
};

static void note_error(struct outcome *outcome, int error)
{
    if (outcome->error == 0 || outcome->error == LEASE_EUNKNOWN)
        outcome->error = error;
    else if (outcome->error != error && error != LEASE_EUNKNOWN)
        outcome->error = LEASE_EBUSY; /* mixed failures */
}

static int begin(struct asking *asking, lease_agent_t *agent, enum verb verb,
                 const struct lease_request *request, struct provider *provider)
{
    int error = asking_begin(asking, agent, verb, request);
    if (error == 0)
        asking_set_provider(asking, provider);
    return error;
}

/* Verifies what was just acquired. A no that decided nothing leaves a lease to be given back. */
static int verify(lease_agent_t *agent, struct provider *provider, const struct asking *acquired,
                  const struct lease_request *request, struct lease *lease,
                  struct lease_verdict *verdict)
{
    struct asking asking;
    int error = begin(&asking, agent, VERB_VERIFY, request, provider);
    if (error < 0)
        return error;
    asking.request.lease = acquired->effects.reply.lease;
    asking.request.hint = acquired->effects.reply.cell;
    asking.silent = acquired->silent;
    if (acquired->remote && acquired->end_ns)
        asking.end_ns = acquired->end_ns;
    error = asking_verify(&asking, lease, verdict);
    if (error < 0) {
        char id[LEASE_ID_SIZE];
        lease_id_format(provider->name, asking.request.lease, id);
        lease_release(agent, id, 0);
    }
    return error;
}

/* An owner on another host does both in one turn. */
static int take_dispatched(struct asking *asking, struct lease *lease,
                           struct lease_verdict *verdict)
{
    asking_verdict(asking, 0, verdict);
    int error = asking_error(asking);
    if (error == 0)
        error = asking_keep(asking);
    if (error == 0)
        asking_lease(asking, lease);
    return error;
}

/* Who places has no lease yet: where it ended before the go, in time was none to be had. */
static int no_slot(int error)
{
    return error == LEASE_EGONE || error == LEASE_ETIMEOUT ? LEASE_EBUSY : error;
}

/* Acquire and verify without standing in any queue. */
static int try_now(lease_agent_t *agent, struct provider *provider,
                   const struct lease_request *request, struct lease *lease,
                   struct lease_verdict *verdict)
{
    struct lease_request now = *request;
    now.wait_ms = 0;
    struct asking asking;
    int error = begin(&asking, agent, VERB_ACQUIRE, &now, provider);
    if (error == 0 && asking.remote) {
        asking.end_ns = host_now_ns() + (ns_t)request->timeout_ms * NS_PER_MS;
        error = ladder_place(&asking);
        if (error == 0)
            return no_slot(take_dispatched(&asking, lease, verdict));
        error = error == LEASE_ETIMEOUT ? ladder_ask(&asking) : error;
    } else if (error == 0) {
        error = asking_step(&asking);
    }
    asking_verdict(&asking, error, verdict);
    if (error == 0)
        error = asking_error(&asking);
    if (error == 0)
        error = asking_keep(&asking);
    if (error == 0)
        error = verify(agent, provider, &asking, &now, lease, verdict);
    return no_slot(error);
}

#define MARGIN        20 /* a part of the budget, for what runs late, and the program around it */
#define AWAY_AGAIN_NS (2 * NS_PER_SEC) /* an owner that fell silent in its queue is asked again */

/* ---- standing in every queue ----------------------------------------------------------------- */

struct queueing {
    lease_agent_t *agent;
    const struct lease_request *request;
    struct asking *askings;  /* one a candidate that has a queue */
    struct remote_ask *asks; /* its place in the queue of an owner on another host */
    uint32_t count;
    ns_t end_ns;
    bool woken; /* the last sleep ended before its time */
    int error;  /* LEASE_ELOCKED: the book of `locked` is */
    char locked[NAME_SIZE];
    struct host_waited words[PROVIDERS_MAX]; /* on which to sleep, as they were before asking */
};

/* The question stands in its owner's queue, and not in one of this host's. */
static bool is_away(const struct queueing *queueing, uint32_t index)
{
    return queueing->askings[index].remote && !queueing->askings[index].silent;
}

static void leave(struct queueing *queueing, uint32_t index)
{
    struct asking *asking = &queueing->askings[index];
    if (is_away(queueing, index) && !asking->named) {
        if (queueing->asks[index].provider)
            ladder_leave(asking, &queueing->asks[index]);
        return;
    }
    if (asking->effects.reply.state == RECORD_WAITING || asking->effects.reply.state == RECORD_HELD)
        asking_give_up(asking, REQUEST_GIVE_UP);
}

static void leave_all(struct queueing *queueing)
{
    for (uint32_t i = 0; i < queueing->count; i++)
        leave(queueing, i);
}

#define LOCKED_LOOK_NS (NS_PER_SEC / 20) /* until a locked book is tried again */

/* Somebody sits on that book: it may yet let go, so that the wait goes on, and its end names it. */
static int note_locked(struct queueing *queueing, const struct asking *asking)
{
    queueing->error = LEASE_ELOCKED;
    memcpy(queueing->locked, asking->provider->name, sizeof queueing->locked);
    return LEASE_ETIMEOUT;
}

/* The same at an owner on another host. One that falls silent is asked again after a while; meanwhile
 * the place is one in our copy of its book. LEASE_EABSENT: ask there. */
static int ask_away(struct queueing *queueing, uint32_t index)
{
    struct asking *asking = &queueing->askings[index];
    struct remote_ask *ask = &queueing->asks[index];
    int error = 0;
    if (asking->silent && host_now_ns() >= asking->turn_ns) {
        leave(queueing, index); /* of this host */
        asking->silent = asking->blind = false;
        memset(&asking->effects.reply, 0, sizeof asking->effects.reply);
        asking_set_provider(asking, asking->provider);
        agent_request_id(&asking->request.id);
    }
    if (!is_away(queueing, index))
        return LEASE_EABSENT;
    if (!ask->provider)
        error = ladder_enqueue(asking, ask);
    if (error == 0)
        error = ladder_look(asking, ask);
    if (error == LEASE_EBUSY)
        return LEASE_ETIMEOUT;
    ask->provider = NULL;
    if (error == 0)
        return asking_error(asking);
    ladder_step_down(asking);
    asking->request.hint = UINT32_MAX;
    asking->turn_ns = host_now_ns() + AWAY_AGAIN_NS;
    return LEASE_EABSENT;
}

/* Asks in queue `index` how things stand. 0: granted; LEASE_ETIMEOUT: still waits; or refused. */
static int ask_queue(struct queueing *queueing, uint32_t index)
{
    struct asking *asking = &queueing->askings[index];
    if (asking->remote) {
        int error = ask_away(queueing, index);
        if (error != LEASE_EABSENT)
            return error;
    }
    asking->request.fresh_ns = host_now_ns();
    asking->reap = queueing->woken ? REAP_HOLDERS : REAP_ALL;
    int error = asking_step(asking);
    if (error == LEASE_ELOCKED)
        return note_locked(queueing, asking);
    if (error < 0)
        return error;
    return asking->effects.reply.verdict == ANSWER_WAIT ? LEASE_ETIMEOUT : asking_error(asking);
}

/* A queue that says no for good is left out from then on. */
static void drop_queue(struct queueing *queueing, uint32_t index)
{
    queueing->count--;
    queueing->askings[index] = queueing->askings[queueing->count];
    queueing->asks[index] = queueing->asks[queueing->count];
    memset(&queueing->asks[queueing->count], 0, sizeof queueing->asks[0]);
    queueing->words[index] = queueing->words[queueing->count];
}

/* The first queue with a grant, or -1. */
static int ask_all(struct queueing *queueing, struct outcome *outcome, ns_t *look_ns)
{
    *look_ns = queueing->end_ns;
    queueing->error = 0;
    for (uint32_t i = 0; i < queueing->count;) {
        int error = ask_queue(queueing, i);
        if (error == 0)
            return (int)i;
        if (error != LEASE_ETIMEOUT) {
            note_error(outcome, no_slot(error));
            drop_queue(queueing, i);
            continue;
        }
        const struct answer *answer = &queueing->askings[i].effects.reply;
        ns_t retry = asking_next_look(answer);
        if (is_away(queueing, i))
            retry = host_now_ns() + HOST_WAIT_LOOK_MS * NS_PER_MS;
        else if (queueing->error)
            retry = host_now_ns() + LOCKED_LOOK_NS;
        if (queueing->askings[i].silent && retry > queueing->askings[i].turn_ns)
            retry = queueing->askings[i].turn_ns;
        if (retry < *look_ns)
            *look_ns = retry;
        i++;
    }
    return -1;
}

static void sleep_in_queues(struct queueing *queueing, ns_t look_ns)
{
    const struct host_waited *words = queueing->words;
    ns_t left = look_ns - host_now_ns();
    int result = LEASE_ETIMEOUT;
    if (left > 0 && queueing->count == 1)
        result = host_wait(words[0].word, words[0].seen,
                           host_words_bit(queueing->askings[0].effects.reply.cell), left);
    else if (left > 0)
        result = host_wait_any(words, queueing->count, left);
    queueing->woken = result != LEASE_ETIMEOUT;
}

static void remember_words(struct queueing *queueing)
{
    struct host_waited *words = queueing->words;
    for (uint32_t i = 0; i < queueing->count; i++) {
        words[i].word = &provider_words(queueing->askings[i].provider)->call;
        words[i].seen = atomic_load_explicit(words[i].word, memory_order_acquire);
    }
}

static bool was_interrupted(const struct queueing *queueing)
{
    const struct lease_agent *agent = queueing->agent;
    return atomic_load_explicit(&agent->closing, memory_order_relaxed) ||
           atomic_load_explicit(&agent->interrupts, memory_order_relaxed) !=
               queueing->askings[0].interrupts;
}

/* The first grant is kept, all other queues are left before dispatch. */
static int take_grant(struct queueing *queueing, uint32_t index, struct lease *lease,
                      struct lease_verdict *verdict)
{
    struct asking *granted = &queueing->askings[index];
    uint32_t waited_ms = granted->effects.reply.waited_ms;
    for (uint32_t i = 0; i < queueing->count; i++)
        if (i != index)
            leave(queueing, i);
    int error = asking_keep(granted);
    if (error < 0)
        return error;
    ns_t left_ms = (queueing->end_ns - host_now_ns()) / NS_PER_MS;
    struct lease_request request = *queueing->request;
    request.wait_ms = left_ms > 0 ? (uint32_t)left_ms : 0;
    error = no_slot(verify(queueing->agent, granted->provider, granted, &request, lease, verdict));
    if (verdict)
        verdict->waited_ms += waited_ms;
    return error;
}

static int wait_in_queues(struct queueing *queueing, struct outcome *outcome, struct lease *lease,
                          struct lease_verdict *verdict)
{
    for (;;) {
        remember_words(queueing);
        ns_t look_ns;
        int granted = ask_all(queueing, outcome, &look_ns);
        if (granted >= 0)
            return take_grant(queueing, (uint32_t)granted, lease, verdict);
        if (queueing->count == 0)
            return outcome->error;
        if (was_interrupted(queueing) || host_now_ns() >= queueing->end_ns) {
            bool interrupted = was_interrupted(queueing);
            asking_verdict(&queueing->askings[0], 0, verdict);
            if (queueing->error)
                asking_refuse(queueing->agent, queueing->locked, queueing->error, verdict);
            int error = queueing->error ? queueing->error : LEASE_EBUSY;
            leave_all(queueing);
            return interrupted ? LEASE_ECLOSED : error;
        }
        sleep_in_queues(queueing, look_ns);
        if (was_interrupted(queueing)) {
            leave_all(queueing);
            return LEASE_ECLOSED;
        }
    }
}

static int place_waiting(lease_agent_t *agent, struct provider **providers, uint32_t count,
                         const struct lease_request *request, struct outcome *outcome,
                         struct lease *lease, struct lease_verdict *verdict)
{
    struct asking *askings = calloc(count, sizeof *askings);
    struct remote_ask *asks = calloc(count, sizeof *asks);
    if (!askings || !asks) {
        free(askings);
        free(asks);
        return LEASE_ENOMEM;
    }
    struct queueing queueing = {
        .agent = agent, .request = request, .askings = askings, .asks = asks};
    queueing.end_ns = host_now_ns() + (ns_t)request->wait_ms * NS_PER_MS;
    for (uint32_t i = 0; i < count; i++)
        if (begin(&askings[queueing.count], agent, VERB_ACQUIRE, request, providers[i]) == 0)
            queueing.count++;
    int error =
        queueing.count > 0 ? wait_in_queues(&queueing, outcome, lease, verdict) : LEASE_EINVAL;
    for (uint32_t i = 0; i < count; i++)
        remote_end(&asks[i]);
    free(asks);
    free(askings);
    return error;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Equals are tried at random, those with the most room first. */
static void shuffle(struct provider **providers, uint32_t count)
{
    int32_t available[PROVIDERS_MAX];
    for (uint32_t first = 0; first + 1 < count; first++) {
        for (uint32_t i = first; i < count; i++) {
            struct tally tally;
            pthread_mutex_lock(&providers[i]->mutex);
            provider_look(providers[i]);
            admission_tally(providers[i]->book, host_now_ns(), &tally);
            pthread_mutex_unlock(&providers[i]->mutex);
            available[i] = tally.available;
        }
        int best = broker_choose(available + first, count - first, host_random_u64());
        struct provider *chosen = providers[first + (uint32_t)best];
        providers[first + (uint32_t)best] = providers[first];
        providers[first] = chosen;
    }
}

static uint32_t find_all(lease_agent_t *agent, const char *const *names, size_t count,
                         struct provider **providers, struct outcome *outcome)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        int error = 0;
        struct provider *provider = provider_find(agent, names[i], &error);
        bool twice = false;
        for (uint32_t k = 0; k < found; k++)
            twice = twice || providers[k] == provider;
        if (!provider)
            note_error(outcome, error);
        else if (!twice)
            providers[found++] = provider;
    }
    return found;
}

/* Owners that are known to be silent go last, and nothing else of the order changes. */
static bool put_silent_last(struct provider **providers, uint32_t count)
{
    int doubts[PROVIDERS_MAX] = {0};
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        struct route route;
        bool away = remote_owner(providers[i], &route);
        any = any || away;
        doubts[i] = away ? remote_doubt(providers[i]->agent, &route, host_now_ns()) : 0;
    }
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = i; k > 0 && doubts[k] < doubts[k - 1]; k--) {
            struct provider *provider = providers[k];
            int doubt = doubts[k];
            providers[k] = providers[k - 1];
            doubts[k] = doubts[k - 1];
            providers[k - 1] = provider;
            doubts[k - 1] = doubt;
        }
    return any;
}

int lease_place(lease_agent_t *agent, const char *const *names, size_t count,
                const struct lease_request *request, struct lease *lease,
                struct lease_verdict *verdict)
{
    static const struct lease_request none = {.size = sizeof none};
    struct provider *providers[PROVIDERS_MAX];
    struct outcome outcome = {0};
    int error = agent_check(agent);
    if (error < 0)
        return error;
    request = request ? request : &none;
    if (count == 0 || count > PROVIDERS_MAX || request->size < sizeof *request)
        return LEASE_EINVAL;
    if (verdict)
        memset(verdict, 0, sizeof *verdict);
    ns_t began_ns = host_now_ns();
    uint32_t found = find_all(agent, names, count, providers, &outcome);
    if (request->flags & LEASE_ANY_ORDER)
        shuffle(providers, found);
    bool away = put_silent_last(providers, found);
    ns_t budget_ms = request->timeout_ms ? request->timeout_ms : TIMEOUT_MS;
    budget_ms -= budget_ms / MARGIN;
    ns_t end_ns = began_ns + budget_ms * NS_PER_MS;
    for (uint32_t i = 0; i < found; i++) {
        ns_t left_ms = (end_ns - host_now_ns()) / NS_PER_MS;
        if (away)
            left_ms /= found - i;
        struct lease_request share = *request; /* one budget for all candidates */
        share.timeout_ms = left_ms > 0 ? (uint32_t)left_ms : 1;
        error = try_now(agent, providers[i], &share, lease, verdict);
        if (error == 0)
            return 0;
        note_error(&outcome, error);
    }
    if (found == 0 || request->wait_ms == 0)
        return outcome.error;
    outcome.error = 0;
    return place_waiting(agent, providers, found, request, &outcome, lease, verdict);
}
