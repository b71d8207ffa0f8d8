/* Placing: several candidates, the first that can be had. */
#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "agent/asking.h"
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
    asking->provider = provider;
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
    error = asking_verify(&asking, lease, verdict);
    if (error < 0) {
        char id[LEASE_ID_SIZE];
        lease_id_format(provider->name, asking.request.lease, id);
        lease_release(agent, id, 0);
    }
    return error;
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
    if (error == 0)
        error = asking_step(&asking);
    asking_verdict(&asking, error, verdict);
    if (error == 0)
        error = asking_error(&asking.effects.reply);
    if (error == 0)
        error = asking_keep(&asking);
    return error < 0 ? error : verify(agent, provider, &asking, &now, lease, verdict);
}

/* ---- standing in every queue ----------------------------------------------------------------- */

struct queueing {
    lease_agent_t *agent;
    const struct lease_request *request;
    struct asking *askings; /* one a candidate that has a queue */
    uint32_t count;
    ns_t end_ns;
    bool woken; /* the last sleep ended before its time */
    int error;  /* LEASE_ELOCKED: the book of `locked` is */
    char locked[NAME_SIZE];
    struct host_waited words[PROVIDERS_MAX]; /* on which to sleep, as they were before asking */
};

static void leave(struct queueing *queueing, uint32_t index)
{
    struct asking *asking = &queueing->askings[index];
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

/* Asks in queue `index` how things stand. 0: granted; LEASE_ETIMEOUT: still waits; or refused. */
static int ask_queue(struct queueing *queueing, uint32_t index)
{
    struct asking *asking = &queueing->askings[index];
    asking->request.fresh_ns = host_now_ns();
    asking->reap = queueing->woken ? REAP_HOLDERS : REAP_ALL;
    int error = asking_step(asking);
    if (error == LEASE_ELOCKED)
        return note_locked(queueing, asking);
    if (error < 0)
        return error;
    return asking->effects.reply.verdict == ANSWER_WAIT ? LEASE_ETIMEOUT
                                                        : asking_error(&asking->effects.reply);
}

/* A queue that says no for good is left out from then on. */
static void drop_queue(struct queueing *queueing, uint32_t index)
{
    queueing->count--;
    queueing->askings[index] = queueing->askings[queueing->count];
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
            note_error(outcome, error);
            drop_queue(queueing, i);
            continue;
        }
        const struct answer *answer = &queueing->askings[i].effects.reply;
        ns_t retry = queueing->error ? host_now_ns() + LOCKED_LOOK_NS : asking_next_look(answer);
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
    error = verify(queueing->agent, granted->provider, granted, &request, lease, verdict);
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
    if (!askings)
        return LEASE_ENOMEM;
    struct queueing queueing = {.agent = agent, .request = request, .askings = askings};
    queueing.end_ns = host_now_ns() + (ns_t)request->wait_ms * NS_PER_MS;
    for (uint32_t i = 0; i < count; i++)
        if (begin(&askings[queueing.count], agent, VERB_ACQUIRE, request, providers[i]) == 0)
            queueing.count++;
    int error =
        queueing.count > 0 ? wait_in_queues(&queueing, outcome, lease, verdict) : LEASE_EINVAL;
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
    uint32_t found = find_all(agent, names, count, providers, &outcome);
    if (request->flags & LEASE_ANY_ORDER)
        shuffle(providers, found);
    ns_t end_ns =
        host_now_ns() + (ns_t)(request->timeout_ms ? request->timeout_ms : TIMEOUT_MS) * NS_PER_MS;
    for (uint32_t i = 0; i < found; i++) {
        ns_t left_ms = (end_ns - host_now_ns()) / NS_PER_MS;
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
