/* What became of a question: what the owner's reply says, or what was decided here, and what the holder
 * makes of it. Follows agent/remote.c and keeper_away.c. */
#include "broker/planted.h"
#include "tests/sim/question.h"

#define ANNOUNCE_NS (50 * NS_PER_MS)

/* ---- what became of it ----------------------------------------------------------------------- */

enum sim_basis question_basis_here(uint32_t host, const struct sim_question *question)
{
    const struct sim_desk *desk = desk_of(host, question->provider, SIM_BY_CLIENT);
    if (desk->image == desk->own)
        return BASIS_PROCESS;
    if (!book_is_copy(&desk->book) && hosts[host].voices[question->provider].declared)
        return BASIS_OWNER;
    return book_is_probed(&desk->book) && !question->remote ? BASIS_READING : BASIS_HOST;
}

/* Whatever is decided here is no word of the owner's: the lease is given back there. */
static void give_back(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    uint32_t provider = holder->question.provider;
    struct lease_id lease = holder->question.request.lease;
    const struct record *record = question_peek(host, provider, lease);
    bool was_named = record && (record->flags & RECORD_NAMED);
    question_release_here(host, index, provider, lease);
    if (was_named && holder->alive)
        question_tell_later(host, index, lease, false);
}

void question_refused(uint32_t host, uint32_t index, const struct answer *answer)
{
    struct sim_holder *holder = holder_of(host, index);
    const struct sim_question *question = &holder->question;
    if (answer->undecided && !question->remote && question->request.lease.counter)
        give_back(host, index);
    else if (answer->undecided && question->remote && answer->lease.counter)
        question_tell_later(host, index, answer->lease, false);
    end_question(holder);
    holder_forgets(host, index);
}

static void verify_below(uint32_t host, uint32_t index, const struct answer *answer)
{
    struct sim_holder *holder = holder_of(host, index);
    struct request request = {.hint = UINT32_MAX, .lease = answer->lease};
    bool below = holder->question.below;
    request.units = holder->units;
    request.slot = holder->slot;
    request.ttl_ms = holder->ttl_ms;
    uint32_t provider = holder->question.provider;
    memset(&holder->question, 0, sizeof holder->question);
    struct sim_question *question = &holder->question;
    *question = (struct sim_question){.want = WANT_VERIFY, .provider = provider, .below = below};
    question->request = request;
    question->request.verb = VERB_VERIFY;
    question->request.id = draw_request_id(host, index);
    ns_t here = sim_here(host);
    question->sent = here;
    question->sent_true = sim_now;
    question->request.asked_ns = question->request.fresh_ns = here + (below ? ANNOUNCE_NS : 0);
    question->retry = here + (below ? ANNOUNCE_NS : 1);
    question->end = here + SIM_BUDGET_MS * SIM_MS;
    question_fill_holder(host, index, &question->request.holder);
}

static void answered_running(uint32_t host, uint32_t index, const struct answer *answer)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    if (answer->verdict == ANSWER_GONE && !question->anew && question->remote) {
        SIM_MARK(told_running_anew);
        question->anew = true;
        question->request.id.lo = ~question->request.id.lo;
        question->request.lease = (struct lease_id){0, 0};
        question->request.flags &= ~(uint32_t)REQUEST_BRINGS_ID;
        question->request.epoch = 0;
        question->end = sim_here(host) + QUESTION_KEEPER_MS * SIM_MS;
        question_send(host, index);
        return;
    }
    server_taint(question->provider);
    if (answer->verdict == ANSWER_GRANTED) {
        struct lease_id before = holder->lease;
        bool remote = question->remote;
        if (remote)
            SIM_MARK(told_running);
        else
            SIM_MARK(taken_again_here);
        holder->lease = answer->lease;
        holder->token = answer->token;
        holder->end = answer->end_ns;
        holder->lost = false;
        holder->named = remote || question_basis_here(host, question) == BASIS_OWNER;
        uint32_t provider = question->provider;
        end_question(holder);
        if (remote && !lease_id_equal(before, answer->lease))
            question_release_here(host, index, provider, before);
    } else {
        end_question(holder);
    }
    holder->running_by = (struct request_id){0, 0};
}

static void answered_renew(uint32_t host, uint32_t index, const struct answer *answer)
{
    struct sim_holder *holder = holder_of(host, index);
    bool remote = holder->question.remote, named = holder->named;
    uint32_t provider = holder->question.provider;
    end_question(holder);
    if (answer->verdict == ANSWER_GRANTED) {
        SIM_MARK(renew_answered);
        holder->end = answer->end_ns;
        holder->unanswered = false;
    } else if (answer->verdict == ANSWER_GONE && remote && !named) {
        question_renew_here(host, index);
    } else if (answer->verdict == ANSWER_GONE) {
        SIM_MARK(renew_gone);
        server_taint(provider);
        if (holder->dispatched)
            holder->lost = true;
        else
            holder_forgets(host, index);
    }
    if (holder->alive && holder->has)
        holder->renew = sim_here(host) + (ns_t)holder_ttl(holder) * SIM_MS / 3;
}

static void answered_undo(uint32_t host, uint32_t index, const struct answer *answer)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_untold *untold = &holder->untold[holder->question.untold];
    bool granted = answer->verdict == ANSWER_GO || answer->verdict == ANSWER_GRANTED;
    bool undo = holder->question.want == WANT_UNDO;
    end_question(holder);
    if (undo && granted) {
        SIM_MARK(undo_released);
        untold->undo = false;
        untold->id = answer->lease;
        untold->next = sim_here(host);
        return;
    }
    SIM_MARK(told_release);
    untold->in_use = false;
}

void question_answered(uint32_t host, uint32_t index, const struct answer *answer,
                       enum sim_basis basis)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    bool granted = answer->verdict == ANSWER_GO || answer->verdict == ANSWER_GRANTED;
    trace_word((uint64_t)question->want << 8 | answer->verdict);
    switch (question->want) {
    case WANT_RENEW: answered_renew(host, index, answer); return;
    case WANT_RUNNING: answered_running(host, index, answer); return;
    case WANT_UNDO:
    case WANT_TELL: answered_undo(host, index, answer); return;
    case WANT_RELEASE:
        end_question(holder);
        holder_forgets(host, index);
        return;
    default: break;
    }
    if (!granted) {
        question_refused(host, index, answer);
        return;
    }
    holder_takes(host, index, answer, basis);
    if (answer->verdict == ANSWER_GRANTED && question->want == WANT_PLACE) {
        verify_below(host, index, answer);
        return;
    }
    if (answer->verdict == ANSWER_GO || answer->state == RECORD_DISPATCHED)
        holder_goes(host, index, basis);
    end_question(holder);
}

/* ---- replies ---------------------------------------------------------------------------------- */

static bool stands(const struct sim_question *question, const struct answer *answer)
{
    enum verb verb = question->request.verb;
    return answer->verdict == ANSWER_GO ||
           (answer->verdict == ANSWER_GRANTED && verb != VERB_RELEASE) ||
           (answer->verdict == ANSWER_NO &&
            (answer->undecided || verb == VERB_RENEW || verb == VERB_RELEASE));
}

static void read_answer(uint32_t host, const struct sim_question *question,
                        const struct message *told, struct answer *answer)
{
    static const enum verdict verdicts[] = {[MESSAGE_GRANTED] = ANSWER_GRANTED,
                                            [MESSAGE_GO] = ANSWER_GO,
                                            [MESSAGE_NO] = ANSWER_NO,
                                            [MESSAGE_GONE] = ANSWER_GONE};
    const struct request *request = &question->request;
    char name[NAME_SIZE];
    memset(answer, 0, sizeof *answer);
    answer->verdict = verdicts[told->verdict];
    answer->undecided = told->undecided;
    answer->lease = request->lease;
    if (told->lease[0])
        SIM_MUST(lease_id_parse(told->lease, name, &answer->lease));
    answer->token = told->token;
    answer->units = told->units ? told->units : request->units ? request->units : 1;
    answer->slot = told->slot_plus_1 ? (int32_t)told->slot_plus_1 - 1 : request->slot;
    answer->waited_ms = told->waited_ms;
    answer->state = !stands(question, answer)                          ? RECORD_GONE
                    : told->dispatched || answer->verdict == ANSWER_GO ? RECORD_DISPATCHED
                                                                       : RECORD_HELD;
    answer->end = answer->state == RECORD_GONE ? END_RELEASED : END_NONE;
    if (answer->verdict == ANSWER_GONE && request->verb != VERB_RELEASE)
        answer->end = END_EXPIRED;
    ns_t from = PLANTED(PLANT_COUNTS_FROM_RECEIPT) ? sim_here(host) : question->sent;
    answer->end_ns = from + ((ns_t)told->left_ms + told->waited_ms) * NS_PER_MS;
}

/* What the owner said of a lease, into our copy. */
static void take_named(uint32_t host, const struct sim_question *question,
                       const struct message *told, const struct answer *answer)
{
    const struct request *request = &question->request;
    const struct record *before = question_peek(host, question->provider, answer->lease);
    bool ended = answer->state == RECORD_GONE;
    ns_t here = sim_here(host);
    if (answer->lease.counter == 0 || (ended && !before) ||
        (answer->verdict == ANSWER_GONE && !(before->flags & RECORD_NAMED)))
        return;
    struct heard_named named = {.epoch = told->epoch, .version = told->state_version};
    struct heard_lease *lease = &named.lease;
    *lease = (struct heard_lease){.id = answer->lease,
                                  .state = answer->state,
                                  .end = answer->end,
                                  .holder = request->holder,
                                  .units = answer->units,
                                  .slot = answer->slot,
                                  .ttl_ms = request->ttl_ms,
                                  .dispatched_ms = answer->state == RECORD_DISPATCHED ? 0 : -1,
                                  .idle_ms = -1,
                                  .token = answer->token,
                                  .may_idle = request->flags & REQUEST_MAY_IDLE};
    lease->left_ms = answer->end_ns > here ? (answer->end_ns - here) / NS_PER_MS : 0;
    if (before) {
        if (request->verb != VERB_ACQUIRE && before->holder.host[0])
            lease->holder = before->holder;
        lease->ttl_ms = request->ttl_ms ? request->ttl_ms : before->ttl_ms;
        lease->age_ms = (here - before->acquired_ns) / NS_PER_MS;
        lease->arrived = before->arrived;
        lease->may_idle = lease->may_idle || (before->flags & RECORD_MAY_IDLE);
        if (lease->state == RECORD_DISPATCHED && before->state == RECORD_DISPATCHED)
            lease->dispatched_ms = (here - before->dispatched_ns) / NS_PER_MS;
    }
    struct event event = {.kind = EVENT_NAMED, .named = &named};
    struct effects *effects;
    table_step(host, question->provider, SIM_BY_CLIENT, &event, &effects);
}

static void read_refusal(uint32_t host, uint32_t index, const struct message *told)
{
    struct sim_question *question = &holder_of(host, index)->question;
    uint32_t owner = told->endpoint[0] ? host_by_name(told->endpoint) : SIM_NOBODY;
    if (owner == SIM_NOBODY || owner == question->owner || owner == host ||
        question->detours++ >= 2) {
        question_is_silent(host, index);
        return;
    }
    hosts[host].routes[question->provider].owner = owner;
    question->owner = owner;
    question_send(host, index);
}

static void agent_is_answered(uint32_t host, uint32_t which)
{
    uint32_t at = which - SIM_AGENT_ASKS - 1;
    if (which > SIM_AGENT_ASKS && at < 16 * SIM_PROVIDERS_MAX)
        hosts[host].voices[at / 16].owed[at % 16].in_use = false;
}

void holder_reply(uint32_t host, const struct message *told, const struct sim_event *event)
{
    struct request_id id;
    memcpy(&id, told->req, sizeof id);
    uint32_t index = (uint32_t)id.hi;
    if (index >= SIM_AGENT_ASKS) {
        agent_is_answered(host, index);
        return;
    }
    if (index >= SIM_HOLDERS_MAX)
        return;
    struct sim_holder *holder = holder_of(host, index);
    if (!holder->alive || !holder->question.want || !holder->question.remote ||
        !request_id_equal(holder->question.request.id, id))
        return;
    if (holder->paused_until > sim_now) {
        ((struct sim_packet *)event->what)->references++;
        sim_at(sim_earlier(holder->paused_until, sim_now + 250 * SIM_MS), SIM_PACKET, host, 0,
               event->life, event->what);
        return;
    }
    const struct sim_packet *packet = event->what;
    hosts[host].routes[holder->question.provider].silent_until = 0;
    if (!told->ok) {
        read_refusal(host, index, told);
    } else {
        struct answer answer;
        read_answer(host, &holder->question, told, &answer);
        if (packet->state)
            hear_state_of_reply(host, holder->question.provider, packet);
        take_named(host, &holder->question, told, &answer);
        question_answered(host, index, &answer, BASIS_OWNER);
        if (holder->has && (answer.verdict == ANSWER_GO || answer.verdict == ANSWER_GRANTED))
            check_taken(host, index, packet->from);
    }
    holder_wake(host, index, SIM_MS);
}
