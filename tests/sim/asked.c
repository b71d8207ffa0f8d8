/* What an agent is asked of the books that it owns. Follows agent/speaker_asked.c. */
#include <stdlib.h>

#include "tests/sim/sim.h"

#define LOCKED_NS (20 * NS_PER_MS)
#define LOOK_NS   (100 * NS_PER_MS)

/* ---- from the words of the wire --------------------------------------------------------------- */

static void read_lease(const char *text, struct lease_id *id)
{
    char name[NAME_SIZE];
    if (text[0])
        SIM_MUST(lease_id_parse(text, name, id));
}

static enum verb verb_of(enum message_op op)
{
    return op == MESSAGE_ACQUIRE  ? VERB_ACQUIRE
           : op == MESSAGE_VERIFY ? VERB_VERIFY
           : op == MESSAGE_RENEW  ? VERB_RENEW
                                  : VERB_RELEASE;
}

static void read_request(const struct message *message, ns_t here, struct sim_asked *asked)
{
    struct request *request = &asked->request;
    bool takes = message->op == MESSAGE_ACQUIRE || message->op == MESSAGE_VERIFY;
    uint32_t budget = message->budget_ms ? message->budget_ms : SIM_BUDGET_MS;
    asked->message = *message;
    asked->end = here + ((ns_t)budget + message->wait_ms) * NS_PER_MS;
    *request = (struct request){.verb = verb_of(message->op), .hint = UINT32_MAX};
    request->flags = (message->running ? REQUEST_RUNNING : 0u) |
                     (message->force ? REQUEST_FORCE : 0u) | (message->died ? REQUEST_DIED : 0u) |
                     (message->may_idle ? REQUEST_MAY_IDLE : 0u) |
                     (takes && message->lease[0] ? REQUEST_BRINGS_ID : 0u);
    memcpy(&request->id, message->req, sizeof request->id);
    request->epoch = message->epoch;
    request->units = message->units ? message->units : 1;
    request->slot = (int32_t)message->slot_plus_1 - 1;
    request->ttl_ms = message->ttl_ms;
    request->wait_ms = message->wait_ms;
    request->asked_ns = request->fresh_ns = here;
    if (takes) {
        text_copy(request->holder.host, sizeof request->holder.host, message->host);
        text_copy(request->holder.label, sizeof request->holder.label, message->label);
        request->holder.pid = message->holder_pid;
    }
    read_lease(message->lease, &request->lease);
    read_lease(message->former, &request->former);
}

/* ---- into the words of the wire --------------------------------------------------------------- */

static enum message_verdict verdict_of(enum verdict verdict, enum verb verb)
{
    switch (verdict) {
    case ANSWER_GRANTED: return verb == VERB_RELEASE ? MESSAGE_GONE : MESSAGE_GRANTED;
    case ANSWER_GO: return MESSAGE_GO;
    case ANSWER_GONE: return MESSAGE_GONE;
    default: return MESSAGE_NO;
    }
}

static struct sim_packet *begin_reply(uint32_t host, const struct message *question)
{
    struct sim_packet *packet = packet_new(PACKET_MESSAGE, host);
    packet->message = calloc(1, sizeof *packet->message);
    message_reply(packet->message, question);
    return packet;
}

static void fill_book(uint32_t host, uint32_t provider, struct sim_packet *packet, bool with_state)
{
    const struct sim_desk *desk = desk_of(host, provider, SIM_BY_AGENT);
    packet->message->epoch = desk->book.head.epoch;
    packet->message->state_version = desk->image->writes;
    if (!with_state)
        return;
    packet->state = calloc(1, sizeof *packet->state);
    packet->leases = calloc(SIM_STATE_LEASES, sizeof *packet->leases);
    fill_told(host, provider, packet->state, packet->leases, &packet->lease_count);
}

static void mark_verdict(const struct sim_asked *asked, const struct answer *answer)
{
    static const int marks[] = {
        [ANSWER_GRANTED] = MARK_asked_granted, [ANSWER_GO] = MARK_asked_go,
        [ANSWER_NO] = MARK_asked_no,           [ANSWER_WAIT] = MARK_asked_no,
        [ANSWER_UNREAD] = MARK_asked_no,       [ANSWER_GONE] = MARK_asked_gone};
    sim_marks[marks[answer->verdict]]++;
    bool brings = asked->request.flags & REQUEST_BRINGS_ID;
    if (brings && (answer->verdict == ANSWER_GO || answer->verdict == ANSWER_GRANTED))
        SIM_MARK(brought_id_acquired);
    if (brings && answer->verdict == ANSWER_GONE)
        SIM_MARK(brought_id_refused);
    if (asked->missing == SIM_MISSING_TURN && asked->lease.counter)
        answer->verdict == ANSWER_NO ? SIM_MARK(asked_wait_over) : SIM_MARK(asked_wait_granted);
    if (asked->request.flags & REQUEST_DIED)
        SIM_MARK(died_told);
    if (answer->undecided)
        SIM_MARK(asked_undecided);
}

static void reply(uint32_t host, const struct sim_asked *asked, const struct answer *answer)
{
    struct sim_packet *packet = begin_reply(host, &asked->message);
    struct message *told = packet->message;
    bool good = answer->verdict == ANSWER_GRANTED || answer->verdict == ANSWER_GO;
    mark_verdict(asked, answer);
    check_answer(host, asked->provider, &asked->message, answer);
    told->ok = true;
    told->verdict = verdict_of(answer->verdict, asked->request.verb);
    told->undecided = answer->undecided;
    if (answer->lease.counter)
        lease_id_format(provider_name(asked->provider), answer->lease, told->lease);
    if (good && asked->request.verb != VERB_RELEASE) {
        ns_t left = answer->end_ns - desk_of(host, asked->provider, SIM_BY_AGENT)->broker.now;
        told->token = answer->token;
        told->left_ms = left > 0 ? (uint64_t)(left / NS_PER_MS) : 0;
        told->units = answer->units;
        told->slot_plus_1 = (uint32_t)(answer->slot + 1);
        told->dispatched = answer->state == RECORD_DISPATCHED;
    }
    told->waited_ms = answer->waited_ms;
    fill_book(host, asked->provider, packet, !good);
    net_send(packet, asked->from);
}

/* What could not be decided: nothing is taken, and nothing has ended. */
static void reply_undecided(uint32_t host, const struct sim_asked *asked)
{
    struct sim_packet *packet = begin_reply(host, &asked->message);
    SIM_MARK(asked_undecided);
    packet->message->ok = true;
    packet->message->verdict = MESSAGE_NO;
    packet->message->undecided = true;
    strcpy(packet->message->lease, asked->message.lease);
    fill_book(host, asked->provider, packet, true);
    net_send(packet, asked->from);
}

static void reply_not_owner(uint32_t host, uint32_t provider, const struct message *question,
                            uint32_t from)
{
    struct sim_packet *packet = begin_reply(host, question);
    uint32_t owner = hosts[host].voices[provider].owner;
    SIM_MARK(asked_not_owner);
    packet->message->error = -1;
    if (owner != SIM_NOBODY && owner != host) {
        strcpy(packet->message->owner, hosts[owner].name);
        strcpy(packet->message->endpoint, hosts[owner].name);
    }
    net_send(packet, from);
}

/* ---- deciding -------------------------------------------------------------------------------- */

static void give_up(uint32_t host, struct sim_asked *asked)
{
    struct request release = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST | REQUEST_GIVE_UP,
                              .id = draw_request_id(host, SIM_AGENT_ASKS),
                              .lease = asked->lease,
                              .hint = asked->request.hint};
    struct event event = {.kind = EVENT_REQUEST, .request = &release};
    struct effects *effects;
    if (asked->missing == SIM_MISSING_TURN && release.lease.counter &&
        table_step(host, asked->provider, SIM_BY_AGENT, &event, &effects) == TABLE_CRASHED)
        agent_crashed(host);
}

static bool is_locked(uint32_t host, struct sim_asked *asked, ns_t here)
{
    SIM_MARK(asked_locked);
    asked->missing = SIM_MISSING_LOCK;
    asked->locked_since = asked->locked_since ? asked->locked_since : here;
    asked->retry = here + SIM_MS;
    if (here - asked->locked_since < LOCKED_NS)
        return true;
    reply_undecided(host, asked);
    return false;
}

static bool is_kept(uint32_t host, struct sim_asked *asked, const struct answer *answer, ns_t here)
{
    if (answer->cell != UINT32_MAX) {
        asked->request.hint = answer->cell;
        asked->lease = answer->lease;
    }
    if (answer->verdict == ANSWER_UNREAD) {
        SIM_MARK(asked_unread);
        if (here >= answer->retry_ns)
            reading_ask(host, asked->provider);
        asked->missing = SIM_MISSING_READING;
        asked->retry = here + LOOK_NS;
        return true;
    }
    if (answer->verdict != ANSWER_WAIT)
        return false;
    SIM_MARK(asked_waits);
    asked->missing = SIM_MISSING_TURN;
    asked->retry = answer->retry_ns;
    return true;
}

/* Whether it is to be kept. */
static bool step(uint32_t host, struct sim_asked *asked)
{
    struct event event = {.kind = EVENT_REQUEST, .request = &asked->request};
    struct effects *effects;
    struct sim_voice *voice = &hosts[host].voices[asked->provider];
    ns_t here = sim_here(host);
    bool takes = asked->request.verb == VERB_ACQUIRE || asked->request.verb == VERB_VERIFY;
    if (takes && here >= asked->end) {
        SIM_MARK(asked_too_late);
        give_up(host, asked);
        if (hosts[host].agent_up)
            reply_undecided(host, asked);
        return false;
    }
    if (asked->missing == SIM_MISSING_TURN)
        asked->request.fresh_ns = here;
    voice_keep(host, asked->provider);
    if (voice->raise_above)
        return is_locked(host, asked, here);
    asked->writes = desk_of(host, asked->provider, SIM_BY_AGENT)->image->writes;
    enum sim_table_result result =
        table_step(host, asked->provider, SIM_BY_AGENT, &event, &effects);
    if (result == TABLE_CRASHED)
        agent_crashed(host);
    if (result == TABLE_LOCKED)
        return is_locked(host, asked, here);
    if (result != TABLE_OK)
        return false;
    struct answer answer = effects->reply;
    SIM_MUST(effects->has_reply);
    trace_word((uint64_t)answer.verdict << 32 ^ answer.token ^ answer.lease.counter);
    asked->locked_since = 0;
    asked->writes = desk_of(host, asked->provider, SIM_BY_AGENT)->image->writes;
    if (is_kept(host, asked, &answer, event.now))
        return true;
    reply(host, asked, &answer);
    return false;
}

/* ---- those that are kept --------------------------------------------------------------------- */

static struct sim_asked *find_kept(uint32_t host, const struct message *message)
{
    struct sim_asked *asked = hosts[host].asked;
    for (uint32_t i = 0; i < SIM_ASKED_MAX; i++)
        if (asked[i].in_use && asked[i].message.op == message->op &&
            memcmp(asked[i].message.req, message->req, sizeof message->req) == 0)
            return &asked[i];
    return NULL;
}

static void keep(uint32_t host, const struct sim_asked *fresh)
{
    struct sim_host *at = &hosts[host];
    for (uint32_t i = 0; i < SIM_ASKED_MAX; i++)
        if (!at->asked[i].in_use) {
            at->asked[i] = *fresh;
            at->asked[i].in_use = true;
            at->asked_count++;
            at->asked_most = at->asked_count > at->asked_most ? at->asked_count : at->asked_most;
            agent_wake(host, fresh->retry > sim_here(host) ? fresh->retry - sim_here(host) : 1);
            return;
        }
}

void asked_take(uint32_t host, uint32_t provider, const struct message *message, uint32_t from)
{
    struct sim_asked asked = {.provider = provider, .from = from};
    if (!hosts[host].voices[provider].ours) {
        reply_not_owner(host, provider, message, from);
        return;
    }
    if (find_kept(host, message)) {
        SIM_MARK(asked_again_kept);
        return;
    }
    read_request(message, sim_here(host), &asked);
    shelf_look(host, provider, SIM_BY_AGENT);
    voice_hear_epoch(host, provider, message->epoch);
    if (step(host, &asked) && hosts[host].agent_up)
        keep(host, &asked);
}

void asked_run(uint32_t host)
{
    struct sim_host *at = &hosts[host];
    uint32_t life = at->agent_life;
    ns_t here = sim_here(host);
    for (uint32_t i = 0; i < SIM_ASKED_MAX && at->asked_count > 0 && at->agent_life == life; i++) {
        struct sim_asked *asked = &at->asked[i];
        if (!asked->in_use)
            continue;
        uint64_t writes = desk_of(host, asked->provider, SIM_BY_AGENT)->image->writes;
        bool due = here >= asked->retry || here >= asked->end || writes != asked->writes;
        if (!due)
            continue;
        bool stays = false;
        if (at->voices[asked->provider].ours)
            stays = step(host, asked);
        else
            reply_not_owner(host, asked->provider, &asked->message, asked->from);
        if (!stays && at->agent_life == life) {
            asked->in_use = false;
            at->asked_count--;
        }
    }
}
