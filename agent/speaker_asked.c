/* What other hosts ask of the providers that this one owns: acquire, verify, renew, release. Decided by
 * the same step on the same book as for the processes of this host, in the same turn where nothing is
 * missing. Else the question is kept: for a reading, for its turn in the queue, or for a book that
 * somebody sits on. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/group.h"
#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

#define ASKERS_MAX 4                 /* duplicates that wait for one reply; the first makes room */
#define BUDGET_MS  1500              /* where none is told */
#define LOCKED_NS  (20 * NS_PER_MS)  /* for a book on which nobody gets on */
#define LOOK_NS    (100 * NS_PER_MS) /* while a reading is awaited, should it not come */
#define MEMBER_NS  (10 * NS_PER_MS)  /* while those of its group are, whose books are not watched */
#define SPARE_NS   (250 * NS_PER_MS) /* of the asker's time, for a reading after a pause */
#define STATE_NS   (2 * NS_PER_MS)   /* so old the state may be that a refusal brings */

enum missing { MISSING_NOTHING, MISSING_LOCK, MISSING_READING, MISSING_PAUSE, MISSING_TURN };

struct asked {
    struct asked *next;
    struct voice *voice;
    struct service_asker *askers[ASKERS_MAX];
    uint32_t asker_count;
    enum message_op op;
    uint8_t req[WIRE_ID_BYTES];
    struct request request;
    struct lease_id lease; /* that stands in the queue for it */
    ns_t end_ns;           /* after it nobody listens */
    enum missing missing;
    uint32_t change, turns; /* of the book, before it was last stepped */
    ns_t locked_ns, retry_ns;
};

/* ---- from the words of the wire --------------------------------------------------------------- */

static bool read_lease(const char *text, const char *provider, struct lease_id *id)
{
    char name[NAME_SIZE];
    return text[0] == '\0' || (lease_id_parse(text, name, id) && strcmp(name, provider) == 0);
}

static uint32_t flags_of(const struct message *message, bool brings_id)
{
    return (message->running ? REQUEST_RUNNING : 0u) | (message->force ? REQUEST_FORCE : 0u) |
           (message->may_idle ? REQUEST_MAY_IDLE : 0u) | (message->by_pid ? REQUEST_BY_PID : 0u) |
           (message->no_holder ? REQUEST_NO_HOLDER : 0u) | (message->died ? REQUEST_DIED : 0u) |
           (brings_id ? REQUEST_BRINGS_ID : 0u);
}

static enum verb verb_of(enum message_op op)
{
    return op == MESSAGE_ACQUIRE  ? VERB_ACQUIRE
           : op == MESSAGE_VERIFY ? VERB_VERIFY
           : op == MESSAGE_RENEW  ? VERB_RENEW
                                  : VERB_RELEASE;
}

static void read_holder(const struct message *message, struct holder *holder)
{
    const char *host = message->host[0] ? message->host : message->name;
    text_copy(holder->host, sizeof holder->host, host);
    text_copy(holder->label, sizeof holder->label, message->label);
    holder->pid = message->holder_pid;
}

static bool read_request(const struct message *message, ns_t arrived_ns, struct asked *asked)
{
    struct request *request = &asked->request;
    bool takes = message->op == MESSAGE_ACQUIRE || message->op == MESSAGE_VERIFY;
    uint32_t budget_ms = message->budget_ms ? message->budget_ms : BUDGET_MS;
    asked->op = message->op;
    memcpy(asked->req, message->req, sizeof asked->req);
    asked->end_ns = arrived_ns + ((ns_t)budget_ms + message->wait_ms) * NS_PER_MS;
    request->verb = verb_of(message->op);
    request->flags = flags_of(message, takes && message->lease[0]);
    memcpy(&request->id, message->req, sizeof request->id);
    request->epoch = message->epoch;
    request->hint = UINT32_MAX;
    request->units = message->units ? message->units : 1;
    request->slot = (int32_t)message->slot_plus_1 - 1;
    request->ttl_ms = message->ttl_ms;
    request->wait_ms = message->wait_ms;
    request->asked_ns = request->fresh_ns = arrived_ns;
    if (takes)
        read_holder(message, &request->holder);
    return read_lease(message->lease, message->provider, &request->lease) &&
           read_lease(message->former, message->provider, &request->former);
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

/* So that the asker's view is mended by the refusal: one from before what it was refused for would not. */
static void fill_state(struct room *room, struct voice *voice, struct message *reply)
{
    bool changed = voice->packed.looked != publish_version(voice->provider);
    if (publish_pack(room, voice, changed ? 0 : STATE_NS) < 0 || voice->packed.parts != 1)
        return;
    reply->state.at = voice->packed.bytes;
    reply->state.size = voice->packed.ends[0];
}

static void fill_book(struct voice *voice, struct message *reply)
{
    struct provider *provider = voice->provider;
    pthread_mutex_lock(&provider->mutex);
    reply->epoch = provider->book->head.epoch;
    reply->state_version = publish_version_seen(provider); /* with this answer in it */
    pthread_mutex_unlock(&provider->mutex);
}

static void fill_reply(struct room *room, const struct asked *asked, const struct answer *answer,
                       ns_t now, struct message *reply)
{
    struct voice *voice = asked->voice;
    bool good = answer->verdict == ANSWER_GRANTED || answer->verdict == ANSWER_GO;
    bool holds = good && asked->request.verb != VERB_RELEASE;
    char text[WIRE_TEXT_MAX + 1];
    reply->verdict = verdict_of(answer->verdict, asked->request.verb);
    broker_reason_text(answer, text, sizeof text);
    wire_copy_text(reply->text, sizeof reply->text, text);
    reply->undecided = answer->undecided;
    if (answer->lease.counter)
        lease_id_format(voice->provider->name, answer->lease, reply->lease);
    if (holds) {
        ns_t left = answer->end_ns - now;
        reply->token = answer->token;
        reply->left_ms = left > 0 ? (uint64_t)(left / NS_PER_MS) : 0;
        reply->units = answer->units;
        reply->slot_plus_1 = (uint32_t)(answer->slot + 1);
        reply->dispatched = answer->state == RECORD_DISPATCHED;
    }
    reply->waited_ms = answer->waited_ms < WIRE_TIME_MS_MAX ? answer->waited_ms : WIRE_TIME_MS_MAX;
    fill_book(voice, reply);
    if (!good)
        fill_state(room, voice, reply);
}

/* What could not be decided: nothing is taken, and nothing has ended. */
static void fill_undecided(struct room *room, const struct asked *asked, const char *why,
                           struct message *reply)
{
    reply->verdict = MESSAGE_NO;
    reply->undecided = true;
    if (asked->request.lease.counter)
        lease_id_format(asked->voice->provider->name, asked->request.lease, reply->lease);
    wire_copy_text(reply->text, sizeof reply->text, why);
    fill_book(asked->voice, reply);
    fill_state(room, asked->voice, reply);
}

/* ---- deciding -------------------------------------------------------------------------------- */

static void prepare_refusals(struct voice *voice)
{
    struct provider *provider = voice->provider;
    if (!voice->refusals)
        voice->refusals = calloc(1, sizeof *voice->refusals);
    pthread_mutex_lock(&provider->mutex);
    provider->broker.refusals = voice->refusals; /* a book that was opened anew knows of none */
    pthread_mutex_unlock(&provider->mutex);
}

static void remember_words(struct asked *asked)
{
    struct host_words *words = provider_words(asked->voice->provider);
    asked->change = atomic_load_explicit(&words->change, memory_order_acquire) & ~1u;
    uint32_t turns = atomic_load_explicit(&words->turns, memory_order_relaxed);
    if (turns != asked->turns)
        asked->locked_ns = 0; /* somebody got on: the patience begins anew */
    asked->turns = turns;
}

/* Gives the place in the queue back, if it has one. */
static void give_up(struct asked *asked)
{
    struct request release = {.verb = VERB_RELEASE,
                              .flags = REQUEST_FIRST | REQUEST_GIVE_UP,
                              .lease = asked->lease,
                              .hint = asked->request.hint};
    struct event event = {.kind = EVENT_REQUEST, .request = &release};
    struct effects effects;
    agent_request_id(&release.id);
    if (asked->missing == MISSING_TURN && release.lease.counter)
        provider_step(asked->voice->provider, &event, &effects, 0);
}

static bool is_locked(struct room *room, struct asked *asked, ns_t now, struct message *reply)
{
    char text[AGENT_TEXT_SIZE];
    asked->missing = MISSING_LOCK;
    asked->locked_ns = asked->locked_ns ? asked->locked_ns : now;
    asked->retry_ns = now + NS_PER_MS;
    if (now - asked->locked_ns < LOCKED_NS)
        return true;
    provider_lock_text(room->speaker->agent, asked->voice->provider->name, text, sizeof text);
    fill_undecided(room, asked, text, reply);
    return false;
}

/* Of the provider, and of those of its group that decide with it. Whose server nobody here was told of
 * stands as it is known. */
static void demand_readings(struct asked *asked, ns_t now)
{
    struct provider *members[GROUP_MEMBERS_MAX];
    uint32_t count = group_unread(asked->voice->provider, asked->request.fresh_ns, members);
    bool any = false;
    host_words_demand(provider_words(asked->voice->provider));
    for (uint32_t i = 0; i < count; i++)
        if (provider_spec(members[i])) {
            host_words_demand(provider_words(members[i]));
            any = true;
        }
    if (count > 0 && !any)
        asked->request.flags |= REQUEST_GROUP_AS_KNOWN;
    asked->retry_ns = now + (count > 0 ? MEMBER_NS : LOOK_NS);
}

/* A no that rests on a server which is left alone for a moment, where that ends in the asker's time. An
 * id that was brought is dead with a no that is decided. */
static bool outlasts_pause(const struct asked *asked, const struct answer *answer, ns_t now)
{
    bool may_change = answer->undecided || !(asked->request.flags & REQUEST_BRINGS_ID);
    return answer->verdict == ANSWER_NO && may_change && asked->request.wait_ms == 0 &&
           answer->retry_ns > now && answer->retry_ns + SPARE_NS <= asked->end_ns;
}

static void unsay(const struct asked *asked)
{
    struct provider *provider = asked->voice->provider;
    pthread_mutex_lock(&provider->mutex);
    broker_unsay(&provider->broker, asked->request.id);
    pthread_mutex_unlock(&provider->mutex);
}

static void keep_for_pause(struct asked *asked, ns_t until)
{
    unsay(asked);
    asked->missing = MISSING_PAUSE;
    asked->retry_ns = until;
}

static bool is_kept(struct asked *asked, const struct answer *answer, ns_t now)
{
    if (answer->cell != UINT32_MAX) {
        asked->request.hint = answer->cell;
        asked->lease = answer->lease;
    }
    if (answer->verdict == ANSWER_UNREAD) {
        asked->missing = MISSING_READING;
        demand_readings(asked, now);
        return true;
    }
    if (outlasts_pause(asked, answer, now)) {
        keep_for_pause(asked, answer->retry_ns);
        return true;
    }
    if (answer->verdict != ANSWER_WAIT)
        return false;
    asked->missing = MISSING_TURN;
    asked->retry_ns = answer->retry_ns;
    return true;
}

static bool is_copy(const struct voice *voice)
{
    struct provider *provider = voice->provider;
    pthread_mutex_lock(&provider->mutex);
    bool is = book_is_copy(provider->book);
    pthread_mutex_unlock(&provider->mutex);
    return is;
}

/* What a copy of a book says is no owner's word: where a process of this host took ours for one, it is
 * decided again. */
static int step_as_owner(struct asked *asked, struct event *event, struct effects *effects)
{
    struct voice *voice = asked->voice;
    for (int tries = 0; tries < 2; tries++) {
        if (voice->raise_above)
            room_raise(voice, voice->raise_above);
        if (voice->raise_above)
            return LEASE_ELOCKED;
        int error = provider_step_owing(voice->provider, event, effects, 0, &voice->owed);
        if (error < 0 || !is_copy(voice))
            return error;
        unsay(asked);
        voice->raise_above = room_epoch(voice) + 1;
    }
    return LEASE_ELOCKED;
}

/* Whether it is to be kept; else the reply is filled in, or *error is set. */
static bool step(struct room *room, struct asked *asked, struct message *reply, int *error)
{
    struct effects effects;
    struct event event = {.kind = EVENT_REQUEST, .request = &asked->request};
    struct provider *provider = asked->voice->provider;
    ns_t now = host_now_ns();
    bool takes = asked->request.verb == VERB_ACQUIRE || asked->request.verb == VERB_VERIFY;
    *error = 0;
    if (takes && now >= asked->end_ns) {
        give_up(asked);
        fill_undecided(room, asked, "no answer was to be had in time", reply);
        return false;
    }
    remember_words(asked);
    if (asked->missing == MISSING_TURN || asked->missing == MISSING_PAUSE) {
        asked->request.fresh_ns = now;
        asked->request.flags &= ~(uint32_t)REQUEST_GROUP_AS_KNOWN;
    }
    if (takes)
        group_reap(provider, REAP_HOLDERS, 0);
    *error = step_as_owner(asked, &event, &effects);
    if (*error == LEASE_ELOCKED) {
        *error = 0;
        return is_locked(room, asked, now, reply);
    }
    if (*error < 0)
        return false;
    asked->locked_ns = 0;
    if (is_kept(asked, &effects.reply, event.now))
        return true;
    fill_reply(room, asked, &effects.reply, event.now, reply);
    return false;
}

/* ---- those that are kept --------------------------------------------------------------------- */

static struct asked *find_kept(struct room *room, const struct message *message)
{
    for (struct asked *asked = room->asked; asked; asked = asked->next)
        if (asked->op == message->op && memcmp(asked->req, message->req, sizeof asked->req) == 0)
            return asked;
    return NULL;
}

static int join(struct room *room, struct asked *asked)
{
    struct service *service = room->speaker->service;
    struct service_asker *asker = service_keep(service);
    if (!asker)
        return LEASE_EFULL;
    if (asked->asker_count == ASKERS_MAX) {
        service_answer(service, &asked->askers[0], NULL);
        memmove(asked->askers, asked->askers + 1, (ASKERS_MAX - 1) * sizeof asked->askers[0]);
        asked->asker_count--;
    }
    asked->askers[asked->asker_count++] = asker;
    return SERVICE_LATER;
}

static int keep(struct room *room, const struct asked *fresh)
{
    struct asked *asked = malloc(sizeof *asked);
    if (!asked)
        return LEASE_ENOMEM;
    *asked = *fresh;
    int result = join(room, asked);
    if (result < 0) {
        free(asked);
        return result;
    }
    asked->next = room->asked;
    room->asked = asked;
    room->asked_count++;
    room->asked_ns = asked->retry_ns < room->asked_ns ? asked->retry_ns : room->asked_ns;
    return SERVICE_LATER;
}

int say_who_owns(const struct room *room, const struct message *message, struct message *reply)
{
    uint32_t owner = fleet_owner(room->fleet, message->provider, false, host_now_ns(), NULL);
    if (owner < FLEET_PEERS_MAX) {
        snprintf(reply->owner, sizeof reply->owner, "%s", room->fleet->peers[owner].name);
        snprintf(reply->endpoint, sizeof reply->endpoint, "%s", room->fleet->peers[owner].endpoint);
    }
    return LEASE_ENOTOWNER;
}

int asked_handle(struct room *room, const struct message *message, struct message *reply)
{
    room_notice_late(room);
    struct voice *voice = room_voice(room, message->provider);
    if (!voice || !voice->ours)
        return say_who_owns(room, message, reply);
    struct asked *kept = find_kept(room, message);
    if (kept)
        return join(room, kept);
    struct asked asked = {.voice = voice};
    if (!read_request(message, room->arrival_ns, &asked)) {
        wire_copy_text(reply->text, sizeof reply->text, "the lease's id is none of this provider");
        return LEASE_EINVAL;
    }
    int error;
    room_hear_epoch(voice, message->epoch);
    prepare_refusals(voice);
    return step(room, &asked, reply, &error) ? keep(room, &asked) : error;
}

/* ---- the turn -------------------------------------------------------------------------------- */

static void answer_all(struct room *room, struct asked *asked, struct message *reply, int error)
{
    reply->ok = error == 0;
    reply->error = error;
    if (error < 0 && reply->text[0] == '\0')
        wire_copy_text(reply->text, sizeof reply->text, lease_error_text(error));
    for (uint32_t i = 0; i < asked->asker_count; i++)
        service_answer(room->speaker->service, &asked->askers[i], reply);
}

/* True where it was answered. */
static bool run(struct room *room, struct asked *asked)
{
    int error;
    message_request(room->request, asked->op, asked->req);
    message_reply(room->reply, room->request);
    if (!asked->voice->ours) {
        snprintf(room->request->provider, sizeof room->request->provider, "%s",
                 asked->voice->provider->name);
        error = say_who_owns(room, room->request, room->reply);
    } else if (step(room, asked, room->reply, &error)) {
        return false;
    }
    answer_all(room, asked, room->reply, error);
    return true;
}

static bool is_due(const struct asked *asked, ns_t now)
{
    return now >= asked->retry_ns || now >= asked->end_ns ||
           asked->change != asked->voice->change_now;
}

/* First come, first served is the book's to keep: here the order does not matter. */
void asked_run(struct room *room, ns_t now)
{
    room->asked_ns = NS_NEVER;
    if (!room->asked)
        return;
    for (uint32_t i = 0; i < room->voice_count; i++)
        room->voices[i].change_now =
            atomic_load_explicit(&provider_words(room->voices[i].provider)->change,
                                 memory_order_acquire) &
            ~1u;
    struct asked **link = &room->asked;
    while (*link) {
        struct asked *asked = *link;
        if (is_due(asked, now) && run(room, asked)) {
            *link = asked->next;
            room->asked_count--;
            free(asked);
            continue;
        }
        ns_t next = asked->retry_ns < asked->end_ns ? asked->retry_ns : asked->end_ns;
        room->asked_ns = next < room->asked_ns ? next : room->asked_ns;
        link = &asked->next;
    }
}

void asked_close(struct room *room)
{
    while (room->asked) {
        struct asked *asked = room->asked;
        room->asked = asked->next;
        for (uint32_t i = 0; i < asked->asker_count; i++)
            service_answer(room->speaker->service, &asked->askers[i], NULL);
        free(asked);
    }
    room->asked_count = 0;
}
