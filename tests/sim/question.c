/* Asking: the owner first, then below it what is known here. Follows agent/ladder.c, remote.c and
 * keeper_away.c. */
#include <stdlib.h>

#include "broker/planted.h"
#include "tests/sim/question.h"

#define OWNER_MS    (SIM_BUDGET_MS / 2)
#define KEEPER_MS   300
#define RESEND_NS   (2 * NS_PER_SEC)
#define SILENT_NS   (2 * NS_PER_SEC)
#define LOCKED_NS   (20 * NS_PER_MS)
#define ANNOUNCE_NS (50 * NS_PER_MS)

static struct sim_holder *holder_of(uint32_t host, uint32_t index)
{
    return &hosts[host].holders[index];
}

bool question_is_remote(uint32_t host, uint32_t provider)
{
    const struct sim_route *route = &hosts[host].routes[provider];
    return route->owner != SIM_NOBODY && route->owner != host;
}

static void end_question(struct sim_holder *holder)
{
    memset(&holder->question, 0, sizeof holder->question);
}

/* ---- the own book ---------------------------------------------------------------------------- */

static const struct record *peek(uint32_t host, uint32_t provider, struct lease_id id)
{
    shelf_look(host, provider, SIM_BY_CLIENT);
    return book_find(&desk_of(host, provider, SIM_BY_CLIENT)->book, id, UINT32_MAX);
}

/* False: the process died of it. */
static enum sim_table_result step_here(uint32_t host, uint32_t index, uint32_t provider,
                                       struct request *request, struct answer *answer)
{
    struct event event = {.kind = EVENT_REQUEST, .request = request};
    struct effects *effects;
    enum sim_table_result result = table_step(host, provider, SIM_BY_CLIENT, &event, &effects);
    if (result == TABLE_CRASHED) {
        SIM_MARK(client_crash_in_commit);
        holder_dies(host, index);
    }
    if (result == TABLE_OK)
        *answer = effects->reply;
    return result;
}

static void release_here(uint32_t host, uint32_t index, uint32_t provider, struct lease_id lease)
{
    struct answer answer;
    struct request request = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST,
                              .id = draw_request_id(host, index),
                              .lease = lease,
                              .hint = UINT32_MAX};
    step_here(host, index, provider, &request, &answer);
}

static void renew_here(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    struct answer answer;
    struct request request = {.verb = VERB_RENEW,
                              .flags = REQUEST_FIRST,
                              .id = draw_request_id(host, index),
                              .lease = holder->lease,
                              .hint = UINT32_MAX,
                              .ttl_ms = holder->ttl_ms};
    step_here(host, index, holder->provider, &request, &answer);
}

/* ---- what is left to tell -------------------------------------------------------------------- */

static void tell_later(uint32_t host, uint32_t index, struct lease_id lease, bool undo)
{
    struct sim_holder *holder = holder_of(host, index);
    const struct sim_question *question = &holder->question;
    for (uint32_t i = 0; i < SIM_UNTOLD_MAX; i++) {
        struct sim_untold *untold = &holder->untold[i];
        if (untold->in_use)
            continue;
        uint32_t ttl =
            question->request.ttl_ms ? question->request.ttl_ms : TTL_DISPATCHED_MS_DEFAULT;
        *untold = (struct sim_untold){.in_use = true,
                                      .undo = undo,
                                      .verify = question->request.verb == VERB_VERIFY,
                                      .provider = question->provider,
                                      .units = question->request.units,
                                      .ttl_ms = question->request.ttl_ms,
                                      .id = lease,
                                      .asked_by = question->request.id,
                                      .holder = question->request.holder,
                                      .next = sim_here(host) + NS_PER_SEC / 2,
                                      .forget = sim_here(host) + (ns_t)ttl * NS_PER_MS};
        return;
    }
}

bool question_tells(uint32_t host, uint32_t index, ns_t here)
{
    struct sim_holder *holder = holder_of(host, index);
    for (uint32_t i = 0; i < SIM_UNTOLD_MAX; i++) {
        struct sim_untold *untold = &holder->untold[i];
        if (untold->in_use &&
            (here >= untold->forget || !question_is_remote(host, untold->provider)))
            untold->in_use = false;
        if (!untold->in_use || here < untold->next)
            continue;
        untold->next = here + NS_PER_SEC;
        struct request request = {.hint = UINT32_MAX, .units = untold->units, .slot = -1};
        request.ttl_ms = untold->ttl_ms;
        if (untold->undo) {
            SIM_MARK(undo_asked);
            request.verb = untold->verify ? VERB_VERIFY : VERB_ACQUIRE;
            request.id = untold->asked_by;
        } else {
            request.lease = untold->id;
        }
        question_begin(host, index, untold->provider, untold->undo ? WANT_UNDO : WANT_TELL,
                       &request);
        holder->question.untold = i;
        return true;
    }
    return false;
}

/* ---- sending --------------------------------------------------------------------------------- */

static uint32_t ms_until(ns_t end, ns_t here)
{
    ns_t left = end > here ? (end - here) / NS_PER_MS : 0;
    return left < 1 ? 1 : (uint32_t)left;
}

static void fill_wish(const struct sim_question *question, ns_t here, struct message *message)
{
    const struct request *request = &question->request;
    message->units = request->units;
    message->slot_plus_1 = (uint32_t)(request->slot + 1);
    if (request->wait_ms > 0)
        message->wait_ms = ms_until(request->asked_ns + (ns_t)request->wait_ms * NS_PER_MS, here);
    message->budget_ms = ms_until(question->end, here);
    memcpy(message->host, request->holder.host, sizeof message->host);
    wire_copy_text(message->label, sizeof message->label, request->holder.label);
    message->holder_pid = request->holder.pid;
    message->may_idle = request->flags & REQUEST_MAY_IDLE;
}

static enum message_op op_of(enum verb verb)
{
    return verb == VERB_VERIFY    ? MESSAGE_VERIFY
           : verb == VERB_RENEW   ? MESSAGE_RENEW
           : verb == VERB_RELEASE ? MESSAGE_RELEASE
                                  : MESSAGE_ACQUIRE;
}

static void send(uint32_t host, uint32_t index)
{
    struct sim_question *question = &holder_of(host, index)->question;
    const struct request *request = &question->request;
    struct sim_packet *packet = packet_new(PACKET_MESSAGE, host);
    struct message *message = packet->message = calloc(1, sizeof *message);
    uint8_t req[WIRE_ID_BYTES];
    const char *name = provider_name(question->provider);
    memcpy(req, &request->id, sizeof req);
    message_request(message, op_of(request->verb), req);
    strcpy(message->name, hosts[host].name);
    strcpy(message->provider, name);
    message->ttl_ms = request->ttl_ms;
    message->epoch = request->epoch;
    if (request->lease.counter)
        lease_id_format(name, request->lease, message->lease);
    if (request->verb == VERB_ACQUIRE || request->verb == VERB_VERIFY)
        fill_wish(question, sim_here(host), message);
    if (request->verb == VERB_ACQUIRE && (request->flags & REQUEST_RUNNING)) {
        message->running = true;
        if (request->former.counter)
            lease_id_format(name, request->former, message->former);
    }
    net_send(packet, question->owner);
}

uint64_t question_epoch(uint32_t host, uint32_t provider, struct lease_id id)
{
    const struct record *record = id.counter ? peek(host, provider, id) : NULL;
    shelf_look(host, provider, SIM_BY_CLIENT);
    uint64_t heard = mirror_epoch(&desk_of(host, provider, SIM_BY_CLIENT)->book);
    uint64_t told = hosts[host].routes[provider].epoch;
    if (record && (record->flags & RECORD_NAMED) && record->token)
        return record->token >> TOKEN_BITS;
    return heard > told ? heard : told;
}

static void fill_holder(uint32_t host, uint32_t index, struct holder *holder)
{
    static const char *const labels[] = {"job", "subagent/7", "eval"};
    strcpy(holder->host, hosts[host].name);
    strcpy(holder->label, labels[index % 3]);
    holder->pid = holder_of(host, index)->pid;
    holder->local = 1;
}

static enum verb verb_for(enum sim_want want, enum verb verb)
{
    switch (want) {
    case WANT_PLACE:
    case WANT_VERIFY: return VERB_VERIFY;
    case WANT_RENEW: return VERB_RENEW;
    case WANT_RELEASE:
    case WANT_TELL: return VERB_RELEASE;
    case WANT_UNDO: return verb;
    default: return VERB_ACQUIRE;
    }
}

static void begin_remote(uint32_t host, uint32_t index)
{
    struct sim_question *question = &holder_of(host, index)->question;
    struct request *request = &question->request;
    struct sim_host *at = &hosts[host];
    ns_t here = sim_here(host);
    bool keeps = question->want >= WANT_RENEW;
    ns_t patience = at->routes[question->provider].silent_until > here ? 50
                    : keeps                                            ? KEEPER_MS
                                                                       : OWNER_MS;
    question->remote = true;
    question->owner = at->routes[question->provider].owner;
    question->end = here + patience * SIM_MS;
    question->resend = rand_one_in(4) ? here + (ns_t)rand_from(20, 200) * SIM_MS : 0;
    if (request->wait_ms > 0) {
        SIM_MARK(waits_remote);
        question->resend = here + RESEND_NS;
        question->end += (ns_t)request->wait_ms * SIM_MS;
        if (rand_one_in(6))
            question->give_up = here + (ns_t)rand_from(50, request->wait_ms) * SIM_MS;
        if (request->verb == VERB_ACQUIRE && request->lease.counter == 0) {
            request->lease = (struct lease_id){rand_word() | 1, rand_from(1, 1000)};
            request->flags |= REQUEST_BRINGS_ID;
        }
    }
    if (request->epoch == 0)
        request->epoch = question_epoch(host, question->provider, request->lease);
    send(host, index);
}

static void ask_here(uint32_t host, uint32_t index);

void question_begin(uint32_t host, uint32_t index, uint32_t provider, enum sim_want want,
                    const struct request *wish)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    ns_t here = sim_here(host);
    memset(question, 0, sizeof *question);
    question->want = want;
    question->provider = provider;
    question->request = *wish;
    question->sent = here;
    question->sent_true = sim_now;
    struct request *request = &question->request;
    request->verb = verb_for(want, wish->verb);
    if (request->id.lo == 0)
        request->id = draw_request_id(host, index);
    request->asked_ns = request->fresh_ns = here;
    fill_holder(host, index, &request->holder);
    if (want == WANT_RUNNING) {
        request->flags |= REQUEST_RUNNING | REQUEST_BRINGS_ID;
        request->former = holder->lease;
        if (holder->lost || !question_is_remote(host, provider)) {
            request->lease = (struct lease_id){0, 0};
            request->flags &= ~(uint32_t)REQUEST_BRINGS_ID;
            question->anew = true;
        }
        if (request_id_is_none(holder->running_by)) {
            holder->running_by = request->id;
            holder->running_since = here;
        }
        request->id = holder->running_by;
        question->sent = holder->running_since;
        if (!question->anew)
            request->epoch = holder->epoch;
    }
    if (want == WANT_VERIFY || want == WANT_RENEW)
        request->epoch = holder->epoch;
    if (want == WANT_RELEASE)
        release_here(host, index, provider, request->lease);
    if (!holder->alive)
        return;
    if (question_is_remote(host, provider)) {
        begin_remote(host, index);
        return;
    }
    if (want == WANT_RELEASE || want == WANT_TELL || want == WANT_UNDO) {
        end_question(holder);
        if (want == WANT_RELEASE)
            holder_forgets(host, index);
        return;
    }
    question->end = here + SIM_BUDGET_MS * SIM_MS;
    ask_here(host, index);
}

/* ---- what became of it ----------------------------------------------------------------------- */

static enum sim_basis basis_here(uint32_t host, const struct sim_question *question)
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
    const struct record *record = peek(host, provider, lease);
    bool was_named = record && (record->flags & RECORD_NAMED);
    release_here(host, index, provider, lease);
    if (was_named && holder->alive)
        tell_later(host, index, lease, false);
}

static void refused(uint32_t host, uint32_t index, const struct answer *answer)
{
    struct sim_holder *holder = holder_of(host, index);
    const struct sim_question *question = &holder->question;
    if (answer->undecided && !question->remote && question->request.lease.counter)
        give_back(host, index);
    else if (answer->undecided && question->remote && answer->lease.counter)
        tell_later(host, index, answer->lease, false);
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
    fill_holder(host, index, &question->request.holder);
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
        question->end = sim_here(host) + KEEPER_MS * SIM_MS;
        send(host, index);
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
        holder->named = remote || basis_here(host, question) == BASIS_OWNER;
        uint32_t provider = question->provider;
        end_question(holder);
        if (remote && !lease_id_equal(before, answer->lease))
            release_here(host, index, provider, before);
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
        renew_here(host, index);
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

static void answered(uint32_t host, uint32_t index, const struct answer *answer,
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
        refused(host, index, answer);
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

/* ---- the owner is silent ---------------------------------------------------------------------- */

static void step_down(uint32_t host, uint32_t index)
{
    struct sim_question *question = &holder_of(host, index)->question;
    struct request *request = &question->request;
    ns_t here = sim_here(host);
    question->remote = false;
    question->below = true;
    question->resend = question->give_up = 0;
    question->sent = here;
    if (question->want != WANT_VERIFY) {
        request->lease = (struct lease_id){0, 0};
        request->verb = VERB_ACQUIRE;
    }
    request->flags &= ~(uint32_t)REQUEST_BRINGS_ID;
    request->id = draw_request_id(host, index);
    request->asked_ns = request->fresh_ns = here;
    if (request->wait_ms > 1500)
        request->wait_ms = 1500;
    question->end = here + SIM_BUDGET_MS * SIM_MS;
    ask_here(host, index);
}

static void is_silent(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    SIM_MARK(owner_silent);
    TRACE("%lld h%u holder %u: h%u is silent, want %d req %llx, %lld ms\n",
          (long long)(sim_now / SIM_MS), host, index, question->owner, (int)question->want,
          (unsigned long long)question->request.id.lo,
          (long long)((sim_here(host) - question->sent) / SIM_MS));
    check_silence(host, question);
    hosts[host].routes[question->provider].silent_until = sim_here(host) + SILENT_NS;
    switch (question->want) {
    case WANT_RENEW:
        SIM_MARK(renew_unanswered);
        end_question(holder);
        holder->unanswered = true;
        holder->renew = sim_here(host) + NS_PER_SEC;
        renew_here(host, index);
        return;
    case WANT_RELEASE:
        SIM_MARK(release_lost);
        tell_later(host, index, question->request.lease, false);
        end_question(holder);
        holder_forgets(host, index);
        return;
    case WANT_RUNNING:
        end_question(holder);
        holder->renew = sim_here(host) + NS_PER_SEC;
        renew_here(host, index);
        return;
    case WANT_UNDO:
    case WANT_TELL: end_question(holder); return;
    default: break;
    }
    if (question->request.lease.counter == 0)
        tell_later(host, index, (struct lease_id){0, 0}, true);
    else if (question->request.verb == VERB_ACQUIRE)
        tell_later(host, index, question->request.lease, false);
    step_down(host, index);
}

/* ---- asking here ------------------------------------------------------------------------------ */

/* Not to be had in time: what was asked for is given back. */
static void over(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    struct answer answer = {.verdict = ANSWER_NO, .undecided = true};
    if (question->want == WANT_RENEW || question->want == WANT_RUNNING) {
        end_question(holder);
        return;
    }
    refused(host, index, &answer);
}

static void ask_here(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    struct answer answer;
    ns_t here = sim_here(host);
    if (question->want == WANT_PLACE && !question->below && question->request.verb != VERB_ACQUIRE)
        question->request.verb = VERB_VERIFY;
    enum sim_table_result result =
        step_here(host, index, question->provider, &question->request, &answer);
    if (result == TABLE_CRASHED)
        return;
    if (result == TABLE_LOCKED) {
        question->locked_since = question->locked_since ? question->locked_since : here;
        question->retry = here + 2 * SIM_MS;
        if (here - question->locked_since > LOCKED_NS)
            over(host, index);
        return;
    }
    if (answer.cell != UINT32_MAX)
        question->request.hint = answer.cell;
    if (answer.lease.counter && question->request.lease.counter == 0 &&
        (answer.verdict == ANSWER_UNREAD || answer.verdict == ANSWER_WAIT))
        question->request.lease = answer.lease;
    if (answer.verdict == ANSWER_UNREAD) {
        if (here >= answer.retry_ns)
            reading_ask(host, question->provider);
        question->retry = here + 50 * SIM_MS;
        if (here >= question->end)
            over(host, index);
        return;
    }
    if (answer.verdict == ANSWER_WAIT) {
        SIM_MARK(waits_local);
        question->request.fresh_ns = here;
        question->retry = answer.retry_ns;
        if (question->give_up == 0 && rand_one_in(8))
            question->give_up = here + (ns_t)rand_from(50, 3000) * SIM_MS;
        if (question->end < answer.end_ns + NS_PER_SEC)
            question->end = answer.end_ns + NS_PER_SEC;
        return;
    }
    if (question->want == WANT_VERIFY && question->below && answer.verdict == ANSWER_NO)
        answer.undecided = true;
    answered(host, index, &answer, basis_here(host, question));
}

static void give_up(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    SIM_MARK(gave_up_wait);
    if (question->remote && question->request.lease.counter) {
        tell_later(host, index, question->request.lease, false);
    } else if (question->remote) {
        tell_later(host, index, (struct lease_id){0, 0}, true);
    } else if (question->request.lease.counter) {
        struct answer answer;
        struct request request = {.verb = VERB_RELEASE,
                                  .flags = REQUEST_FIRST | REQUEST_GIVE_UP,
                                  .id = draw_request_id(host, index),
                                  .lease = question->request.lease,
                                  .hint = UINT32_MAX};
        step_here(host, index, question->provider, &request, &answer);
    }
    end_question(holder);
    holder_forgets(host, index);
}

void question_goes_on(uint32_t host, uint32_t index)
{
    struct sim_question *question = &holder_of(host, index)->question;
    ns_t here = sim_here(host);
    if (question->give_up && here >= question->give_up) {
        give_up(host, index);
    } else if (question->remote && here >= question->end) {
        is_silent(host, index);
    } else if (question->remote && question->resend && here >= question->resend) {
        question->resend = question->request.wait_ms > 0 ? here + RESEND_NS : 0;
        send(host, index);
    } else if (!question->remote && here >= question->retry) {
        ask_here(host, index);
    }
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
    const struct record *before = peek(host, question->provider, answer->lease);
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
        is_silent(host, index);
        return;
    }
    hosts[host].routes[question->provider].owner = owner;
    question->owner = owner;
    send(host, index);
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
        answered(host, index, &answer, BASIS_OWNER);
        if (holder->has && (answer.verdict == ANSWER_GO || answer.verdict == ANSWER_GRANTED))
            check_taken(host, index, packet->from);
    }
    holder_wake(host, index, SIM_MS);
}
