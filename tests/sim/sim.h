/* The fleet in virtual time: what its parts share. README.md beside this file says what is simulated.
 *
 * Everything is drawn from one seed; nothing here looks at a clock, an address or uninitialised memory,
 * so a seed gives the same trace with every compiler. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <stdio.h>
#include <string.h>

#include "broker/attribution.h"
#include "broker/broker.h"
#include "broker/fleet.h"
#include "proto/gossip.h"
#include "proto/message.h"
#include "tests/sim/marks.h"

#define SIM_HOSTS_MAX     50
#define SIM_PROVIDERS_MAX 4
#define SIM_HOLDERS_MAX   3 /* processes of a host that take leases */
#define SIM_UNTOLD_MAX    6
#define SIM_ASKED_MAX     128
#define SIM_CLAIMED_MAX   128
#define SIM_STATE_LEASES  512
#define SIM_BUDGET_MS     1500
#define SIM_MS            NS_PER_MS
#define SIM_NOBODY        UINT32_MAX

/* ---- rand.c: chance, and what came of it ------------------------------------------------------ */

void rand_seed(uint64_t seed);
uint64_t rand_word(void);
uint32_t rand_below(uint32_t limit);             /* limit > 0 */
uint32_t rand_from(uint32_t low, uint32_t high); /* both included */
bool rand_one_in(uint32_t chances);
bool rand_permille(uint32_t permille);
void trace_word(uint64_t word); /* into the hash of the run */
uint64_t trace_hash(void);

/* ---- time ------------------------------------------------------------------------------------ */

/* A host's clock: it runs through suspend, at its own rate, and began when the host did. */
struct sim_clock {
    ns_t true_base, local_base;
    int32_t ppm;
    int64_t wall_s; /* seconds of the wall clock when true time is 0 */
};

enum sim_event_kind {
    SIM_PACKET,
    SIM_AGENT,   /* its loop is due */
    SIM_HOLDER,  /* a process that takes leases does something */
    SIM_READING, /* an answer of a server arrives at a host */
    SIM_SERVER,  /* a request arrives at a server, or work ends, or strangers come */
    SIM_FAULT,
    SIM_BOOT,
    SIM_PHASE,
};

struct sim_event {
    ns_t at;
    uint64_t seq;
    enum sim_event_kind kind;
    uint32_t host, index; /* of what the kind says */
    uint32_t life;        /* of the process that it is for: an older one's is void */
    void *what;
};

extern ns_t sim_now; /* true time */
void sim_at(ns_t at, enum sim_event_kind kind, uint32_t host, uint32_t index, uint32_t life,
            void *what);
ns_t sim_local(uint32_t host, ns_t at); /* the host's clock at a true time, and back */
ns_t sim_true(uint32_t host, ns_t local);
ns_t sim_here(uint32_t host); /* the host's clock now */
static inline ns_t sim_earlier(ns_t a, ns_t b)
{
    return a < b ? a : b;
}
#define SIM_DRIFT_PPM 1000 /* two clocks may differ by so much */

/* ---- a provider's server --------------------------------------------------------------------- */

enum sim_signal { SIM_NAMES, SIM_COUNTS, SIM_INFERRED, SIM_STATIC };

#define SIM_TASKS_MAX 256
#define SIM_SLOTS_MAX 8

struct sim_task {
    bool in_use, stranger;
    int32_t name;
    int32_t slot;          /* -1: in the queue */
    uint64_t order;        /* of arrival */
    ns_t start, end, work; /* true */
    uint32_t host, holder, life;
    struct lease_id lease;
    bool by_owner; /* sent under a go of the owner's */
};

struct sim_server {
    enum sim_signal signal;
    int32_t slots;
    bool up, has_two_owners;
    ns_t blind_until, slow_until, tainted_until;
    uint32_t strangers_permille; /* of arrivals, 0: nobody else uses it */
    int32_t next_name;
    uint64_t next_order;
    struct sim_task tasks[SIM_TASKS_MAX];
    uint64_t arrived, queued, queued_by_owner;
};

extern struct sim_server servers[];
void server_begin(uint32_t provider);
void server_send(uint32_t provider, uint32_t host, uint32_t holder, struct lease_id lease,
                 uint32_t units, bool by_owner, ns_t work);
void server_event(const struct sim_event *event);
void server_restart(uint32_t provider, ns_t down);
void server_calm(uint32_t provider); /* strangers leave, it answers at once */
bool server_has_work(uint32_t provider, struct lease_id lease);
/* Work of any kind that was in a slot at a true time and still is. */
int32_t server_held_since(uint32_t provider, ns_t since);
/* Nothing was amiss with what is promised of a request that has the owner's go. */
bool server_is_clean(uint32_t provider);
void server_taint(uint32_t provider);
void reading_ask(uint32_t host, uint32_t provider);
void reading_event(const struct sim_event *event);

/* ---- books: table.c -------------------------------------------------------------------------- */

/* The file of a host, or the memory of a process without one: what a crash leaves. */
struct sim_image {
    bool ready;
    uint64_t writes, head_version, sight_version;
    uint32_t used;
    struct book_head head;
    struct sight sight;
    struct floor floors[FLOORS_MAX];
    uint64_t floor_versions[FLOORS_MAX];
    struct record records[BOOK_CELLS];
    uint64_t record_versions[BOOK_CELLS];
};

/* The working copy of one process. */
struct sim_desk {
    bool open;
    struct sim_image *image, *own; /* own: where the host has none */
    struct book book;
    struct broker broker;
    struct refusals *refusals;
    uint64_t writes, head_version, sight_version;
    uint64_t floor_versions[FLOORS_MAX];
    uint64_t record_versions[BOOK_CELLS];
};

enum sim_who { SIM_BY_AGENT, SIM_BY_CLIENT };
enum sim_table_result { TABLE_OK = 0, TABLE_LOCKED, TABLE_CRASHED };

struct sim_shelf {
    struct sim_image image;
    struct sim_desk desks[2]; /* by enum sim_who: the clients of a host share one */
    uint64_t kept_epoch;      /* in the state directory */
    ns_t read_sent[2];        /* local: of the last two readings that were taken, and when it was */
    ns_t read_shown[2];       /* true: what they show is of then */
    bool reading;             /* one is under way */
    uint32_t reading_life;
};

struct sim_desk *desk_of(uint32_t host, uint32_t provider, enum sim_who who);
void desk_open(uint32_t host, uint32_t provider, enum sim_who who);
void desk_drop(uint32_t host, uint32_t provider, enum sim_who who);
/* Lock, load, decide, commit, unlock. The effects are valid until the next one. */
enum sim_table_result table_step(uint32_t host, uint32_t provider, enum sim_who who,
                                 struct event *event, struct effects **effects);
void table_change(uint32_t host, uint32_t provider, enum sim_who who,
                  void (*change)(struct book *book, uint64_t argument), uint64_t argument);
void shelf_look(uint32_t host, uint32_t provider, enum sim_who who);
void table_wipe(uint32_t host, uint32_t provider);
void table_damage(uint32_t host, uint32_t provider);
uint64_t epoch_next(uint32_t host, uint32_t provider, uint64_t at_least);

struct sim_packet;

/* ---- agents ---------------------------------------------------------------------------------- */

enum sim_missing { SIM_MISSING_LOCK, SIM_MISSING_READING, SIM_MISSING_TURN };

/* A question that is answered later. */
struct sim_asked {
    bool in_use;
    uint32_t provider, from;
    struct message message;
    struct request request;
    struct lease_id lease;
    ns_t end, locked_since, retry;
    enum sim_missing missing;
    uint64_t writes;
};

struct sim_claimed {
    struct lease_id id;
    uint16_t cell;
    uint8_t state;
    ns_t told;
    uint64_t epoch; /* of the provider, when it was first seen */
};

struct sim_owed {
    bool in_use;
    struct lease_id id;
    ns_t until, next;
    uint64_t epoch; /* 0: as heard */
};

struct sim_voice {
    bool declared; /* this host's configuration has it as its own */
    bool ours, is_copy, fresh, due;
    uint32_t owner; /* a host, or SIM_NOBODY */
    uint64_t issued, told, raise_above, writes;
    ns_t due_at, published_at, read_at, fetch_at, claims_at;
    uint32_t claimed_count;
    struct sim_claimed claimed[SIM_CLAIMED_MAX];
    struct sim_owed owed[16];
};

/* Who owns what, as this host's processes read it from a file. */
struct sim_route {
    uint32_t owner; /* a host, or SIM_NOBODY */
    uint64_t epoch;
    ns_t heard, silent_until; /* local */
};

/* ---- holders --------------------------------------------------------------------------------- */

enum sim_want {
    WANT_NOTHING,
    WANT_PLACE,
    WANT_ACQUIRE,
    WANT_VERIFY,
    WANT_RENEW,
    WANT_RELEASE,
    WANT_RUNNING,
    WANT_UNDO,
    WANT_TELL,
};

/* A question under way: of the owner (remote), or of our own book. */
struct sim_question {
    enum sim_want want;
    bool remote, below; /* below: of our copy, since the owner is silent */
    uint32_t provider, owner;
    struct request request;
    ns_t sent, end, resend, give_up, retry; /* local */
    ns_t sent_true, locked_since;
    uint32_t detours, untold;
    bool anew; /* running: not by the id that it has */
};

struct sim_untold {
    bool in_use, undo, verify;
    uint32_t provider, units, ttl_ms;
    struct lease_id id;
    struct request_id asked_by;
    struct holder holder;
    ns_t forget, next;
};

enum sim_basis { BASIS_NONE, BASIS_PROCESS, BASIS_HOST, BASIS_READING, BASIS_OWNER };

struct sim_holder {
    bool alive;
    uint32_t pid, life;
    ns_t paused_until, stuck_until;
    bool scheduled;
    ns_t wake; /* true: of the event that is under way */
    struct sim_question question;
    bool has, dispatched, named, lost, working, unanswered;
    uint32_t provider;
    struct lease_id lease;
    uint64_t token, epoch; /* epoch: of the provider, when it was taken */
    uint32_t units, ttl_ms, tasks_left;
    int32_t slot;
    enum sim_basis basis;
    ns_t end, renew, sends, idle_until; /* local; sends: when the request leaves after a go */
    bool wants_release;
    struct request_id running_by;
    ns_t running_since; /* local: when that id was first sent */
    struct sim_untold untold[SIM_UNTOLD_MAX];
};

struct sim_host {
    struct sim_clock clock;
    char name[NAME_SIZE];
    uint8_t id[16];
    bool up, agent_up;
    uint32_t life; /* of the host; counts boots */
    uint32_t agent_life;
    ns_t paused_until; /* the agent, true */
    ns_t asleep_until; /* all of it, true */
    ns_t locked_until; /* somebody was stopped in the lock: true */
    bool shm_missing;  /* for processes that begin now */
    uint32_t crash_at; /* the next commit stops after so many stores; 0: it does not */
    enum sim_who crash_who;
    uint64_t incarnation;
    uint64_t draws; /* for ids and instances */
    uint32_t pids;
    struct fleet fleet;
    ns_t planned, beat_at, own_at, reap_at, route_at;
    ns_t timer;                               /* true: of the event that is under way, 0 none */
    uint64_t epoch_before[SIM_PROVIDERS_MAX]; /* of our books, when we last distrusted ourselves */
    struct sim_voice voices[SIM_PROVIDERS_MAX];
    struct sim_route routes[SIM_PROVIDERS_MAX];
    uint32_t asked_count;
    struct sim_asked *asked; /* SIM_ASKED_MAX */
    uint32_t asked_most;
    struct sim_holder holders[SIM_HOLDERS_MAX];
    struct sim_shelf *shelves; /* one a provider */
};

extern struct sim_host hosts[SIM_HOSTS_MAX];
extern uint32_t host_count, provider_count;
const char *provider_name(uint32_t provider);
uint32_t host_by_name(const char *name);
void agent_start(uint32_t host);
void agent_stop(uint32_t host);
void agent_event(const struct sim_event *event);
void agent_woken(uint32_t host); /* first in each turn: was it late? */
void agent_own(uint32_t host);
void agent_crashed(uint32_t host);
uint32_t host_of_peer(uint32_t host, uint32_t peer);
uint64_t voice_epoch(uint32_t host, uint32_t provider);
void voice_hear_epoch(uint32_t host, uint32_t provider, uint64_t epoch);
struct request_id draw_request_id(uint32_t host, uint32_t who);
#define SIM_AGENT_ASKS 0xffu
void agent_wake(uint32_t host, ns_t in); /* a turn of its loop, soon */
void agent_changed(uint32_t host, uint32_t provider, const struct effects *effects);
void asked_take(uint32_t host, uint32_t provider, const struct message *message, uint32_t from);
void asked_run(uint32_t host);
void voice_raise(uint32_t host, uint32_t provider, uint64_t above);
void voice_keep(uint32_t host, uint32_t provider);
void publish_state(uint32_t host, uint32_t provider, uint32_t to, bool fetched);
void claims_run(uint32_t host, uint32_t provider);
void hear_packet(uint32_t host, const struct sim_event *event);
void hear_state_of_reply(uint32_t host, uint32_t provider, const struct sim_packet *packet);
void fill_told(uint32_t host, uint32_t provider, struct gossip_state *state,
               struct gossip_lease *leases, uint32_t *count);

void holder_start(uint32_t host, uint32_t index);
void holder_event(const struct sim_event *event);
void holder_reply(uint32_t host, const struct message *reply, const struct sim_event *event);
void holder_wake(uint32_t host, uint32_t index, ns_t in);
void holder_work_ended(uint32_t host, uint32_t index, struct lease_id lease);
void holder_dies(uint32_t host, uint32_t index);
bool pid_lives(uint32_t host, uint32_t pid);
extern bool holders_begin; /* they take new leases */

/* ---- the network: net.c ---------------------------------------------------------------------- */

enum sim_packet_kind { PACKET_MESSAGE, PACKET_STATE, PACKET_CLAIM, PACKET_BEAT };

/* Shared by all who get it. */
struct sim_packet {
    uint32_t references;
    enum sim_packet_kind kind;
    uint32_t from;
    bool fetched; /* the answer to a fetch */
    struct message *message;
    struct gossip_claim *claim;
    struct gossip_beat *beat;
    struct gossip_state *state; /* also what a reply carries */
    struct gossip_lease *leases;
    uint32_t lease_count;
};

struct sim_network {
    uint32_t loss, duplicate, reorder, replay, corrupt, codec; /* permille */
    uint32_t way_ms;
    ns_t dirty_until; /* something may have been lost up to then */
};

extern struct sim_network network;
struct sim_packet *packet_new(enum sim_packet_kind kind, uint32_t from);
void packet_free(struct sim_packet *packet);
void net_send(struct sim_packet *packet, uint32_t to);
void net_publish(struct sim_packet *packet);
void net_event(const struct sim_event *event);
void net_cut(uint32_t from, uint32_t to, ns_t until);
void net_heal(void);
bool net_is_clean(uint32_t a, uint32_t b);

/* ---- faults.c, check.c, main.c --------------------------------------------------------------- */

void faults_begin(void);
void faults_event(const struct sim_event *event);
void faults_end(void); /* all is well from now on */
void host_boots(const struct sim_event *event);
extern bool calm; /* no faults */
extern ns_t calm_since;

void check_begin(void);
void check_step(uint32_t host, uint32_t provider, enum sim_who who, const struct event *event,
                const struct effects *effects);
void check_opened(uint32_t host, uint32_t provider, struct book *book);
void check_wiped(uint32_t host, uint32_t provider, bool amnesia);
void check_answer(uint32_t host, uint32_t provider, const struct message *question,
                  const struct answer *answer);
void check_published(uint32_t host, uint32_t provider, const struct gossip_state *state,
                     const struct gossip_lease *leases, uint32_t count);
void check_taken(uint32_t host, uint32_t index, uint32_t owner);
void check_distrusted(uint32_t host, uint32_t provider);
void check_choice(uint32_t equals, uint32_t chosen);
void check_silence(uint32_t host, const struct sim_question *question);
void check_healed(void);
void check_quiet(void);
void check_end(void);
void check_event(const struct sim_event *event);
bool is_authority(uint32_t host, uint32_t provider);
void sim_fails(const char *what, const char *file, int line) __attribute__((noreturn));
extern bool sim_traces;

#define SIM_MUST(condition) ((condition) ? (void)0 : sim_fails(#condition, __FILE__, __LINE__))
#define TRACE(...)          (sim_traces ? (void)printf(__VA_ARGS__) : (void)0)

#endif
