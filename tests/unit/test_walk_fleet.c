/* A random walk over three hosts: the owner's book, and two copies of it. States, claims, requests and
 * answers are lost, doubled, delayed and overtake each other; epochs are raised and books made anew.
 * After each step what must always be true. LEASEHOLD_SEED=n walks that seed, LEASEHOLD_STEPS=n so
 * far. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/attribution.h"
#include "broker/broker.h"
#include "tests/unit/walk_draws.h"

#define STEPS       150000
#define HOSTS       3
#define OWNER       0
#define SLOTS       3
#define LEASES_MOST 64
#define POST        48
#define PENDING     12
#define LIVES       (1u << 16)

static uint64_t drawn;
static uint32_t quiets, goes, claimed, answers;
static ns_t now;
static bool probed;

static struct host {
    struct book book;
    struct broker broker;
    struct refusals refusals;
    struct effects effects;
    uint64_t version; /* of the book, as a file counts it */
} hosts[HOSTS];

/* What a process of a copy's host has asked the owner, and not heard yet. */
static struct pending {
    bool waits;
    struct request request;
    ns_t sent_ns;
} pendings[HOSTS][PENDING];

enum kind { NOTHING, STATE, CLAIM, REQUEST, ANSWER };

static struct post {
    enum kind kind;
    int to, from;
    ns_t at;
    struct heard_state state;
    struct heard_lease leases[LEASES_MOST];
    struct heard_claim claim;
    struct request request;
    struct heard_named named; /* an answer: left_ms counts from the sending and the waiting */
    struct answer answer;
} posts[POST];

/* What became of each id at the owner, since its book was made. */
static struct life {
    struct lease_id id;
    uint8_t state;
    uint64_t token;
} lives[LIVES];
static uint64_t last_token;

#define MUST(condition) MUST_AT(now / NS_PER_MS, condition)

static bool is_lease(const struct record *record)
{
    return record->state == RECORD_HELD || record->state == RECORD_DISPATCHED;
}

static bool is_ours(const struct record *record)
{
    return record->heard_s == 0 && is_lease(record);
}

static bool is_shown(const struct record *record)
{
    return is_lease(record) || record->state == RECORD_ORPHAN;
}

/* ---- the owner ------------------------------------------------------------------------------- */

static struct life *life_of(struct lease_id id)
{
    uint64_t at = book_place_by_id(id) % LIVES;
    while (lives[at].id.counter && !lease_id_equal(lives[at].id, id))
        at = (at + 1) % LIVES;
    lives[at].id = id;
    return &lives[at];
}

static void look_at_owner(const struct event *event)
{
    const struct host *owner = &hosts[OWNER];
    bool counted_above = event->kind == EVENT_CLAIM || (event->kind == EVENT_REQUEST &&
                                                        (event->request->flags & REQUEST_RUNNING));
    bool went = false;
    for (uint32_t i = 0; i < owner->effects.note_count; i++)
        went |= owner->effects.notes[i].kind == NOTE_WENT;
    uint64_t most = last_token;
    for (uint32_t i = 0; i < owner->book.used; i++) {
        const struct record *record = &owner->book.records[i];
        if (record->state == RECORD_FREE)
            continue;
        struct life *life = life_of(record->id);
        bool over = life->state >= RECORD_ORPHAN;
        MUST(!over || record->state >= life->state); /* no way back */
        MUST(life->state != RECORD_DISPATCHED || record->state >= RECORD_DISPATCHED);
        MUST(life->token == 0 || record->token == life->token);
        if (record->token != 0 && life->token == 0)
            MUST(record->token > last_token);
        MUST(!is_lease(record) || record->token != 0);
        MUST(!(record->flags & RECORD_NAMED));
        most = record->token > most ? record->token : most;
        life->state = record->state;
        life->token = record->token;
    }
    last_token = most;
    struct tally tally;
    admission_tally(&owner->book, now, &tally);
    if (went && !counted_above) {
        MUST(tally.dispatched <= SLOTS);
        goes++;
    }
}

static void step(int host, struct event *event)
{
    struct host *at = &hosts[host];
    event->now = ++now;
    broker_step(&at->broker, event, &at->effects);
    if (host == OWNER)
        look_at_owner(event);
    if (book_is_dirty(&at->book))
        at->version++;
    book_clean(&at->book);
}

static struct answer ask(int host, struct request *request)
{
    step(host, &(struct event){.kind = EVENT_REQUEST, .request = request});
    MUST(hosts[host].effects.has_reply);
    return hosts[host].effects.reply;
}

/* ---- books ----------------------------------------------------------------------------------- */

static void make_book(int host)
{
    static uint64_t instances;
    struct host *at = &hosts[host];
    struct book_settings settings;
    book_settings_default(&settings);
    settings.slots = SLOTS;
    settings.probed = probed;
    uint64_t epoch = at->book.head.epoch + 1 + below(3);
    book_init(&at->book, "p", &settings);
    book_found(&at->book, (++instances << 8) + (uint64_t)host + 1, host == OWNER ? epoch : 5000);
    if (host != OWNER)
        mirror_begin(&at->book);
    book_clean(&at->book);
    broker_init(&at->broker, &at->book, &at->refusals);
    at->broker.now = now;
    at->version = below(100);
    memset(pendings[host], 0, sizeof pendings[host]);
    if (host == OWNER)
        memset(lives, 0, sizeof lives);
}

/* ---- the post -------------------------------------------------------------------------------- */

static struct post *send(enum kind kind, int from, int to)
{
    static struct post lost;
    static const uint32_t ways_ms[] = {0, 0, 1, 5, 5, 40, 600, 30000};
    struct post *post = &lost;
    for (int i = 0; i < POST && post == &lost; i++)
        if (posts[i].kind == NOTHING)
            post = &posts[i];
    post->kind = one_in(6) ? NOTHING : kind;
    post->from = from;
    post->to = to;
    post->at = now + ways_ms[below(8)] * NS_PER_MS;
    return post;
}

static struct heard_lease lease_of(const struct record *record)
{
    struct heard_lease lease = {
        .id = record->id,
        .state = (enum record_state)record->state,
        .end = (enum record_end)record->end,
        .holder = record->holder,
        .units = record->units,
        .arrived = record->arrived,
        .slot = record->slot,
        .ttl_ms = record->ttl_ms,
        .left_ms = (record->deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS,
        .age_ms = (now - record->acquired_ns) / NS_PER_MS,
        .dispatched_ms = record->dispatched_ns ? (now - record->dispatched_ns) / NS_PER_MS : -1,
        .idle_ms = record->flags & RECORD_GHOST ? 5 : -1,
        .token = record->token,
        .place = record->place,
        .may_idle = record->flags & RECORD_MAY_IDLE,
    };
    return lease;
}

static void write_state(struct post *post)
{
    const struct book *book = &hosts[OWNER].book;
    struct tally tally;
    admission_tally(book, now, &tally);
    post->state = (struct heard_state){.epoch = book->head.epoch,
                                       .version = hosts[OWNER].version,
                                       .reading = book->sight.reading,
                                       .strangers = tally.strangers,
                                       .strangers_ms = -1,
                                       .waiting = tally.waiting,
                                       .is_static = !probed};
    post->state.reading.slots_total = SLOTS;
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *record = &book->records[book->live[i]];
        if (is_shown(record) && post->state.lease_count < LEASES_MOST)
            post->leases[post->state.lease_count++] = lease_of(record);
    }
    post->state.leases = post->leases;
}

static void take_state(int host, struct post *post)
{
    post->state.leases = post->leases;
    for (uint32_t i = 0; i < post->state.lease_count; i++) {
        struct holder *holder = &post->leases[i].holder;
        holder->local = holder->host[1] == '0' + host;
        holder->pid_start = holder->pid_space = 0;
    }
    static ns_t ends[BOOK_CELLS];
    const struct book *book = &hosts[host].book;
    uint32_t used = book->used;
    for (uint32_t i = 0; i < used; i++)
        ends[i] = is_ours(&book->records[i]) ? book->records[i].deadline_ns : NS_NEVER;
    step(host, &(struct event){.kind = EVENT_STATE, .state = &post->state});
    for (uint32_t i = 0; i < used; i++)
        MUST(!is_ours(&book->records[i]) || book->records[i].deadline_ns <= ends[i]);
}

static void publish(void)
{
    for (int to = 1; to < HOSTS; to++)
        write_state(send(STATE, OWNER, to));
}

static void announce(int host, const struct record *record, bool withdrawn)
{
    struct heard_claim claim = {.epoch = mirror_epoch(&hosts[host].book),
                                .withdrawn = withdrawn,
                                .lease = lease_of(record)};
    if (record->state != RECORD_DISPATCHED)
        claim.lease.state = RECORD_HELD;
    claim.lease.holder.local = 0;
    for (int to = 0; to < HOSTS; to++)
        if (to != host)
            send(CLAIM, host, to)->claim = claim;
}

/* ---- asking the owner ------------------------------------------------------------------------ */

static struct request some_request(int host, enum verb verb)
{
    static const uint32_t ttls_ms[] = {0, 0, 1000, 3000, 20000};
    struct request request = {.verb = verb,
                              .id = {(uint64_t)host + 1, ++drawn},
                              .hint = UINT32_MAX,
                              .units = one_in(5) ? 1 + below(3) : 1,
                              .slot = -1,
                              .ttl_ms = ttls_ms[below(5)],
                              .wait_ms = one_in(3) ? below(3000) : 0,
                              .asked_ns = now + 1,
                              .epoch = mirror_epoch(&hosts[host].book),
                              .holder = {.pid = 40 + below(3), .local = 1}};
    request.holder.host[0] = 'h';
    request.holder.host[1] = (char)('0' + host);
    return request;
}

static struct record *some_record(int host, bool (*fits)(const struct record *record))
{
    struct book *book = &hosts[host].book;
    for (int i = 0; i < 8 && book->live_count > 0; i++) {
        struct record *record = &book->records[book->live[below(book->live_count)]];
        if (fits(record))
            return record;
    }
    return NULL;
}

static void send_request(int host, const struct pending *pending)
{
    struct request request = pending->request;
    request.holder.local = 0;
    send(REQUEST, host, OWNER)->request = request;
}

static void asks_the_owner(int host)
{
    struct pending *pending = &pendings[host][below(PENDING)];
    if (pending->waits) {
        send_request(host, pending); /* nothing was heard: the same again */
        return;
    }
    const struct record *record = some_record(host, is_ours);
    static const enum verb verbs[] = {VERB_VERIFY, VERB_VERIFY, VERB_RENEW, VERB_RELEASE};
    struct request request = some_request(host, record      ? verbs[below(4)]
                                                : one_in(3) ? VERB_ACQUIRE
                                                            : VERB_VERIFY);
    if (record) {
        request.lease = record->id;
        request.holder = record->holder;
        request.units = record->units;
    }
    if (request.lease.instance == hosts[host].book.head.instance)
        request.flags |= REQUEST_BRINGS_ID;
    if (record && record->state == RECORD_DISPATCHED && request.verb == VERB_VERIFY) {
        request.verb = VERB_ACQUIRE; /* decided without the owner: it is told */
        request.flags |= REQUEST_RUNNING;
        if (!(request.flags & REQUEST_BRINGS_ID)) {
            request.former = request.lease;
            request.lease = (struct lease_id){0, 0};
        }
    }
    *pending = (struct pending){true, request, now};
    send_request(host, pending);
}

static void answer_at_owner(struct post *post)
{
    struct request request = post->request;
    request.asked_ns = now;
    struct answer answer = ask(OWNER, &request);
    if (answer.verdict == ANSWER_WAIT || answer.verdict == ANSWER_UNREAD)
        return; /* asked again */
    const struct record *record = book_find(&hosts[OWNER].book, answer.lease, UINT32_MAX);
    struct post *reply = send(ANSWER, OWNER, post->from);
    reply->request = post->request;
    reply->answer = answer;
    reply->named = (struct heard_named){hosts[OWNER].book.head.epoch,
                                        hosts[OWNER].version,
                                        {.id = request.lease, .state = RECORD_GONE}};
    if (record)
        reply->named.lease = lease_of(record);
    reply->named.lease.left_ms = (answer.end_ns - now) / NS_PER_MS;
}

static void take_answer(int host, const struct post *post)
{
    struct pending *pending = pendings[host];
    while (pending < pendings[host] + PENDING &&
           !(pending->waits && request_id_equal(pending->request.id, post->request.id)))
        pending++;
    if (pending == pendings[host] + PENDING)
        return;
    pending->waits = false;
    answers++;
    struct heard_named named = post->named;
    bool ended = post->request.verb == VERB_RELEASE || post->answer.verdict == ANSWER_GONE ||
                 (post->answer.verdict == ANSWER_NO && !post->answer.undecided &&
                  post->request.verb != VERB_RENEW);
    if (ended)
        named.lease.state = RECORD_GONE;
    ns_t end = pending->sent_ns + named.lease.left_ms * NS_PER_MS +
               (ns_t)post->answer.waited_ms * NS_PER_MS;
    named.lease.left_ms = (end - now - 1) / NS_PER_MS - 1;
    named.lease.holder = pending->request.holder;
    if (named.lease.id.counter == 0)
        return;
    step(host, &(struct event){.kind = EVENT_NAMED, .named = &named});
    const struct record *record = book_find(&hosts[host].book, named.lease.id, UINT32_MAX);
    const struct record *real = book_find(&hosts[OWNER].book, named.lease.id, UINT32_MAX);
    bool taken = record && is_ours(record) && (record->flags & RECORD_NAMED) &&
                 record->named_version == named.version &&
                 named.epoch == hosts[OWNER].book.head.epoch;
    MUST(!taken || !real || real->state != record->state ||
         record->deadline_ns <= real->deadline_ns);
}

static void deliver(struct post *post)
{
    struct post now_due = *post;
    if (!one_in(8))
        post->kind = NOTHING; /* else it comes again */
    if (now_due.to == OWNER && now_due.kind == CLAIM) {
        claimed++;
        step(OWNER, &(struct event){.kind = EVENT_CLAIM, .claim = &now_due.claim});
    } else if (now_due.kind == CLAIM) {
        step(now_due.to, &(struct event){.kind = EVENT_CLAIM, .claim = &now_due.claim});
    } else if (now_due.kind == STATE) {
        take_state(now_due.to, &now_due);
    } else if (now_due.kind == REQUEST) {
        answer_at_owner(&now_due);
    } else if (now_due.kind == ANSWER) {
        take_answer(now_due.to, &now_due);
    }
}

/* ---- what happens on a host by itself -------------------------------------------------------- */

/* Of a copy: nobody can ask the owner now. What was decided is announced, and told when it is back. */
static void acts_alone(int host)
{
    const struct record *record = some_record(host, is_ours);
    enum verb verb = record ? (enum verb)(VERB_VERIFY + below(3)) : VERB_ACQUIRE;
    if (record && verb == VERB_RENEW && (host != OWNER && (record->flags & RECORD_NAMED)))
        return; /* whose end is the owner's to extend */
    struct request request = some_request(host, one_in(4) ? VERB_ACQUIRE : verb);
    if (record && request.verb != VERB_ACQUIRE) {
        request.lease = record->id;
        request.holder.pid = record->holder.pid;
        if (host == OWNER && !record->holder.local)
            return;
    }
    if (request.verb == VERB_ACQUIRE && one_in(20))
        request.flags |= REQUEST_RUNNING;
    struct answer answer = ask(host, &request);
    record = book_find(&hosts[host].book, answer.lease, UINT32_MAX);
    if (host != OWNER && record && record->heard_s == 0 &&
        (is_lease(record) || request.verb == VERB_RELEASE))
        announce(host, record, request.verb == VERB_RELEASE);
}

static void reads_the_server(int host)
{
    struct reading reading;
    reading_clear(&reading);
    reading.health = one_in(20) ? HEALTH_BUSY : HEALTH_OK;
    reading.signal = SIGNAL_EXACT;
    reading.slots_total = SLOTS;
    reading.in_flight = (int32_t)below(SLOTS + 1);
    reading.queued = 0;
    reading.sent_ns = now - 1;
    reading.answered_ns = now;
    step(host, &(struct event){.kind = EVENT_READING, .reading = &reading});
}

static void some_die(int host)
{
    struct book *book = &hosts[host].book;
    if (book->live_count == 0)
        return;
    uint16_t dead = book->live[below(book->live_count)];
    step(host, &(struct event){.kind = EVENT_DEAD, .dead = &dead, .dead_count = 1});
}

/* ---- what must be true of copies ------------------------------------------------------------- */

static void ends_are_in_order(int host)
{
    struct book *copy = &hosts[host].book;
    bool up_to_date = copy->sight.heard_version == hosts[OWNER].version &&
                      copy->sight.heard_epoch == hosts[OWNER].book.head.epoch;
    for (uint32_t i = 0; i < copy->live_count; i++) {
        const struct record *record = &copy->records[copy->live[i]];
        const struct record *real = book_find(&hosts[OWNER].book, record->id, UINT32_MAX);
        MUST(!real || record->token <= real->token); /* smaller: an earlier owner's */
        if (!is_lease(record) || !(record->flags & RECORD_NAMED) || !real ||
            real->state != record->state)
            continue;
        if (record->heard_s != 0 && up_to_date)
            MUST(record->deadline_ns >= real->deadline_ns);
    }
}

/* What is the owner's word in a copy is so at the owner, and what the owner has is in the copy, but for
 * what this host gave back itself and could not yet say. */
static void copy_is_equal(int host)
{
    struct book *copy = &hosts[host].book, *book = &hosts[OWNER].book;
    for (uint32_t i = 0; i < copy->live_count; i++) {
        const struct record *record = &copy->records[copy->live[i]];
        const struct record *real = book_find(book, record->id, UINT32_MAX);
        if (record->state == RECORD_WAITING ||
            (!(record->flags & RECORD_NAMED) && record->heard_s == 0))
            continue;
        MUST(real && is_shown(real));
        bool ran_ahead = record->state == RECORD_DISPATCHED && real->state == RECORD_HELD;
        bool over = record->heard_s == 0 && record->state == RECORD_ORPHAN;
        MUST(ran_ahead || over || record->state == real->state);
        MUST(ran_ahead || over || record->units == real->units);
        MUST(ran_ahead || over || (record->place == real->place && record->token == real->token));
    }
    for (uint32_t i = 0; i < book->live_count; i++) {
        const struct record *real = &book->records[book->live[i]];
        const struct record *record = book_find(copy, real->id, UINT32_MAX);
        if (is_shown(real))
            MUST(record && (record_is_live(record) || record->heard_s == 0));
    }
}

/* Nothing is on its way, a while passes, and the owner says how it is. */
static void all_is_quiet(void)
{
    static struct post post;
    for (int i = 0; i < POST; i++)
        posts[i].kind = NOTHING;
    now += (CLAIM_STAYS_S + 1) * NS_PER_SEC;
    step(OWNER, &(struct event){.kind = EVENT_TICK});
    for (int host = 1; host < HOSTS; host++) {
        hosts[OWNER].version++;
        write_state(&post);
        take_state(host, &post);
        copy_is_equal(host);
    }
    quiets++;
}

/* ---- walking --------------------------------------------------------------------------------- */

static void something_happens(void)
{
    static const uint32_t pauses_ms[] = {0, 0, 1, 1, 5, 20, 100, 700};
    now += pauses_ms[below(8)] * NS_PER_MS;
    int host = (int)below(HOSTS), copy = 1 + (int)below(HOSTS - 1);
    uint32_t which = below(24);
    if (which < 8)
        asks_the_owner(copy);
    else if (which < 12)
        acts_alone(host);
    else if (which < 14 && probed)
        reads_the_server(host);
    else if (which < 19)
        publish();
    else if (which < 20)
        some_die(host);
    else
        step(host, &(struct event){.kind = EVENT_TICK});
    for (int i = 0; i < POST; i++)
        if (posts[i].kind != NOTHING && posts[i].at <= now)
            deliver(&posts[i]);
    if (one_in(400))
        book_raise_epoch(&hosts[OWNER].book, hosts[OWNER].book.head.epoch + 1);
    if (one_in(1500))
        make_book((int)below(HOSTS));
    if (one_in(100))
        all_is_quiet();
}

static void walk_with(uint64_t from, bool with_readings)
{
    const char *wanted = getenv("LEASEHOLD_STEPS");
    unsigned long long steps = wanted ? strtoull(wanted, NULL, 10) : STEPS;
    probed = with_readings;
    draw_from(from);
    now = 1000 * NS_PER_SEC;
    last_token = 0;
    memset(posts, 0, sizeof posts);
    quiets = goes = claimed = answers = 0;
    for (int host = 0; host < HOSTS; host++)
        make_book(host);
    for (unsigned long long i = 0; i < steps; i++) {
        something_happens();
        for (int host = 1; host < HOSTS; host++)
            ends_are_in_order(host);
    }
    uint32_t least = (uint32_t)(steps / 1500);
    if (goes < least || quiets < least || claimed < least || answers < least)
        fail_msg("%u goes, %u quiet moments, %u claims, %u answers: the walk is no proof", goes,
                 quiets, claimed, answers);
}

static void static_books_walk(void **state)
{
    (void)state;
    walk_with(first_seed(20261201), false);
}

static void probed_books_walk(void **state)
{
    (void)state;
    walk_with(first_seed(20261201) + 1, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_books_walk),
        cmocka_unit_test(probed_books_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
