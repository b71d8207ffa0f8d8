/* Asking: the owner first, then below it what is known here. Follows agent/ladder.c and keeper_away.c;
 * what becomes of it is in answers.c. */
#include <stdlib.h>

#include "tests/sim/question.h"

#define OWNER_MS  (SIM_BUDGET_MS / 2)
#define RESEND_NS (2 * NS_PER_SEC)
#define SILENT_NS (2 * NS_PER_SEC)
#define LOCKED_NS (20 * NS_PER_MS)

bool question_is_remote(uint32_t host, uint32_t provider)
{
    const struct sim_route *route = &hosts[host].routes[provider];
    return route->owner != SIM_NOBODY && route->owner != host;
}

/* ---- the own book ---------------------------------------------------------------------------- */

const struct record *question_peek(uint32_t host, uint32_t provider, struct lease_id id)
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

void question_release_here(uint32_t host, uint32_t index, uint32_t provider, struct lease_id lease)
{
    struct answer answer;
    struct request request = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST,
                              .id = draw_request_id(host, index),
                              .lease = lease,
                              .hint = UINT32_MAX};
    step_here(host, index, provider, &request, &answer);
}

void question_renew_here(uint32_t host, uint32_t index)
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

void question_tell_later(uint32_t host, uint32_t index, struct lease_id lease, bool undo)
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

void question_send(uint32_t host, uint32_t index)
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
    const struct record *record = id.counter ? question_peek(host, provider, id) : NULL;
    shelf_look(host, provider, SIM_BY_CLIENT);
    uint64_t heard = mirror_epoch(&desk_of(host, provider, SIM_BY_CLIENT)->book);
    uint64_t told = hosts[host].routes[provider].epoch;
    if (record && (record->flags & RECORD_NAMED) && record->token)
        return record->token >> TOKEN_BITS;
    return heard > told ? heard : told;
}

void question_fill_holder(uint32_t host, uint32_t index, struct holder *holder)
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
                    : keeps                                            ? QUESTION_KEEPER_MS
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
    question_send(host, index);
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
    question_fill_holder(host, index, &request->holder);
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
        question_release_here(host, index, provider, request->lease);
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

void question_is_silent(uint32_t host, uint32_t index)
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
        question_renew_here(host, index);
        return;
    case WANT_RELEASE:
        SIM_MARK(release_lost);
        question_tell_later(host, index, question->request.lease, false);
        end_question(holder);
        holder_forgets(host, index);
        return;
    case WANT_RUNNING:
        end_question(holder);
        holder->renew = sim_here(host) + NS_PER_SEC;
        question_renew_here(host, index);
        return;
    case WANT_UNDO:
    case WANT_TELL: end_question(holder); return;
    default: break;
    }
    if (question->request.lease.counter == 0)
        question_tell_later(host, index, (struct lease_id){0, 0}, true);
    else if (question->request.verb == VERB_ACQUIRE)
        question_tell_later(host, index, question->request.lease, false);
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
    question_refused(host, index, &answer);
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
    question_answered(host, index, &answer, question_basis_here(host, question));
}

static void give_up(uint32_t host, uint32_t index)
{
    struct sim_holder *holder = holder_of(host, index);
    struct sim_question *question = &holder->question;
    SIM_MARK(gave_up_wait);
    if (question->remote && question->request.lease.counter) {
        question_tell_later(host, index, question->request.lease, false);
    } else if (question->remote) {
        question_tell_later(host, index, (struct lease_id){0, 0}, true);
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
        question_is_silent(host, index);
    } else if (question->remote && question->resend && here >= question->resend) {
        question->resend = question->request.wait_ms > 0 ? here + RESEND_NS : 0;
        question_send(host, index);
    } else if (!question->remote && here >= question->retry) {
        ask_here(host, index);
    }
}
