/* The speaker's side of the fleet: what it tells other hosts, what it hears of them, and what it
 * answers them. Internal to speaker_*.c.
 *
 * There is one room a speaker, where its configuration names anything of the fleet; else none, and
 * nothing here is called. It belongs to the speaker's thread. Nothing in it blocks: books that are
 * locked are tried again, questions to others are looked at in each turn.
 *
 * Memory is bounded: the tables below by their size, kept questions by SERVICE_LATER_MAX, states that
 * arrive in parts by ROOM_GATHERS. */
#ifndef AGENT_SPEAKER_FLEET_H
#define AGENT_SPEAKER_FLEET_H

#include "agent/asker.h"
#include "agent/mesh.h"
#include "agent/routes.h"
#include "agent/speaker.h"
#include "broker/fleet.h"
#include "proto/gossip.h"

#define ROOM_ERRANDS     8   /* questions of ours under way at a time */
#define ROOM_GATHERS     16  /* states that wait for parts, or for a book; the oldest makes room */
#define ROOM_GAPS        256 /* states that are missing; more are noticed again by the next beat */
#define ROOM_OBLIGATIONS 256 /* leases of our dead that their owners are to hear of */
#define ROOM_RATE        (4u << 20) /* bytes a second that are published, over all peers */
#define ROOM_BEAT_NS     (FLEET_BEAT_MS * NS_PER_MS)
#define ROOM_LATE_NS     (FLEET_SILENT_BEATS * ROOM_BEAT_NS)

/* A state as it is published: its parts one behind the other. */
struct packed_state {
    uint8_t *bytes; /* malloc */
    size_t room;
    uint32_t parts;
    size_t ends[WIRE_PARTS_MAX];
    ns_t made_ns; /* 0: there is none */
    uint64_t epoch, version;
    uint64_t looked; /* publish_version() just before the book was looked at for it */
    uint64_t digest; /* of what in it matters */
};

/* A lease of this host at a provider that another host owns. */
struct claimed {
    struct lease_id id;
    uint16_t cell;
    uint8_t state; /* as announced, RECORD_FREE: it was not, since the owner knows it */
    bool dead;     /* its holder is, and that was told */
    ns_t told_ns;
};

/* Of a book, as its owner counts. */
struct fact {
    uint64_t epoch, version;
};

/* One for each provider that the agent knows, in the same order as the probers. */
struct voice {
    struct provider *provider;
    bool ours;              /* we answer for it */
    uint32_t owner;         /* who does: FLEET_SELF, FLEET_NOBODY, or a peer */
    uint32_t conflicts;     /* other live owners */
    bool is_copy;           /* the book was told that it is one */
    uint64_t issued, told;  /* epoch and version that we published last as its owner, 0: never */
    uint64_t told_digest;   /* of that */
    struct fact stood;      /* the copy, when this owner, or its new incarnation, was first heard */
    uint64_t raise_above;   /* the book's epoch is to go above this one before it grants; 0: no */
    uint32_t change;        /* of the book, when it was last looked at for publishing */
    uint32_t change_now;    /* in this turn, for asked.c */
    struct host_wakes owed; /* who sleeps on the book is woken once the askers are answered */
    bool fresh;             /* it was never looked at */
    bool due;               /* there is something to publish, at due_ns */
    ns_t due_ns, published_ns;
    struct packed_state packed;
    struct refusals *refusals;
    struct claimed *claimed;
    uint32_t claimed_count, claimed_room;
    ns_t claims_ns; /* when leases are looked at again that are still to be refreshed */
    ns_t looked_ns; /* when its owner was last told that somebody here looks */
};

/* What we do about a peer, by its index in the fleet. */
struct contact {
    char endpoint[FLEET_ENDPOINT_SIZE];  /* the peer that this was about */
    char connected[FLEET_ENDPOINT_SIZE]; /* whose PUB we hear, "" none */
    bool hello;                          /* it is to be asked who it is, at hello_ns */
    bool unmet;                          /* and told who we are, though it is heard */
    bool is_self;                        /* the endpoint is our own */
    ns_t hello_ns;
    uint32_t failures;
    uint64_t digest, list_digest; /* of its peers: as it says, as when we last had its list */
    uint32_t count;
};

struct gap {
    uint32_t peer;
    char provider[NAME_SIZE];
    ns_t due_ns;
};

/* A state that arrives in parts, or waits for its book. Of a lease's holder nothing is local. */
struct gather {
    bool in_use, complete;
    uint32_t peer;
    char provider[NAME_SIZE];
    uint64_t incarnation;
    uint64_t parts_seen; /* bits */
    uint32_t parts;
    ns_t began_ns, complete_ns;
    struct heard_state state;
    uint32_t wanted; /* leases over all parts */
    uint32_t lease_room;
    struct heard_lease *leases; /* malloc */
};

/* What the owner is to hear of a lease: that it lives on with its process, that its holder died, that it
 * was given back. */
enum owed { OWED_RENEWAL, OWED_DEATH, OWED_RELEASE };

struct obligation {
    bool in_use, busy;
    enum owed what;
    char provider[NAME_SIZE];
    struct lease_id id;
    ns_t until_ns, next_ns;
};

enum errand_kind {
    ERRAND_NONE,
    ERRAND_HELLO,
    ERRAND_LIST,
    ERRAND_STATE,
    ERRAND_OBLIGATION,
    ERRAND_LOOK
};

struct errand {
    enum errand_kind kind;
    struct ask ask;
    char endpoint[FLEET_ENDPOINT_SIZE];
    uint32_t peer;
    char provider[NAME_SIZE];
    uint32_t part, tries;
    uint32_t obligation;
    ns_t sent_ns, deadline_ns;
};

struct asked; /* a question that is answered later: speaker_asked.c */
struct names; /* of the configuration's peers: speaker_peers.c */

struct room {
    struct speaker *speaker;
    struct fleet_config *config; /* the agent's, or what the last speaker left */
    struct fleet *fleet;
    struct mesh *mesh;
    struct asker *asker;
    struct names *names;
    uint64_t incarnation;
    ns_t opened_ns;
    char endpoint[FLEET_ENDPOINT_SIZE]; /* first that is bound, "" none */
    uint32_t bound;                     /* bits: of config->listen */
    char trouble[ROUTES_WARNING_SIZE];  /* why something is not bound */
    ns_t bind_ns;                       /* when to try again, 0: all is bound */

    ns_t planned_ns; /* when the loop wanted to be awake again at the latest */
    ns_t slept_ns;   /* when it last began to sleep */
    ns_t turn_ns;    /* when its last turn began */
    ns_t arrival_ns; /* no request that is read now came before this */
    bool to_hear;    /* there may be something in the SUB */
    ns_t hear_ns;    /* it is not looked at before */
    uint32_t echoes; /* beats that are still to follow a change */
    ns_t echo_ns;
    ns_t beat_ns, look_ns, own_ns, addresses_ns, joined_ns, written_ns;
    struct routes *before; /* as whoever spoke before us left them, or NULL */
    uint64_t distrusted;   /* how often we distrusted ourselves */
    bool routes_changed;
    double tokens; /* bytes that may still be told to whoever fetches */
    ns_t tokens_ns;

    uint32_t voice_count;
    struct voice voices[KNOWN_MAX];
    struct contact *contacts; /* FLEET_PEERS_MAX */
    uint32_t gap_count;
    struct gap gaps[ROOM_GAPS];
    struct gather gathers[ROOM_GATHERS];
    struct obligation obligations[ROOM_OBLIGATIONS];
    struct errand errands[ROOM_ERRANDS];
    ns_t hellos_ns;             /* ahead of now by what was asked faster than is allowed for long */
    uint32_t hello_next;        /* whose turn it is to be asked who it is */
    ns_t list_ns, list_wait_ns; /* when somebody's peers are asked for next */
    bool list_asked;            /* they were when that was looked at last */
    ns_t lookers_ns;            /* when it is next seen to who looks here at what others own */
    struct asked *asked;
    uint32_t asked_count;
    ns_t asked_ns; /* when one of them is to be looked at */

    struct gossip_lease *leases; /* scratch: WIRE_LEASES_MAX */
    struct gossip_beat *beat;    /* scratch */
    struct message *request, *reply;
    uint8_t *bytes; /* scratch: MESSAGE_BYTES_MAX, what a reply points to */
    uint8_t *list;  /* the same, for a list of peers */
    struct room_counters {
        uint64_t unreadable, foreign, parts_lost, full;
    } counters;
};

/* ---- speaker_fleet.c */
int room_open(struct speaker *speaker); /* speaker->room, NULL where the fleet is off */
void room_close(struct speaker *speaker);
bool room_wants_service(const struct speaker *speaker);
void room_wake(struct room *room);        /* first in each turn */
void room_notice_late(struct room *room); /* before anything is answered in it */
void room_run(struct room *room);         /* last in it */
ns_t room_deadline(struct room *room);    /* when the next turn is due */
void room_sleeps(struct room *room, ns_t until_ns);
void *room_socket(const struct room *room);           /* the SUB, NULL: not now */
void room_to_hear(struct room *room);                 /* something is there, for the next turn */
uint32_t room_fds(const struct room *room, int *fds); /* at most ROOM_ERRANDS */
/* Without a room everything is ours: its server is read though nobody asks; another host owns it. */
bool room_probes(const struct room *room, const struct provider *provider, ns_t now);
bool room_is_elsewhere(const struct room *room, const struct provider *provider);
struct voice *room_voice(struct room *room, const char *provider);
void room_own(struct room *room); /* who owns what, and our epoch above all others' */
uint32_t room_peer_of(const struct room *room, const uint8_t *id);
uint64_t room_epoch(const struct voice *voice);
struct fact
room_copy(struct provider *provider); /* what it holds of its owner's; 0: it is no copy */
/* What the copy holds is of an incarnation of its owner that counted on from there. */
bool room_is_former(const struct voice *voice, struct fact told);
void room_raise(struct voice *voice, uint64_t above);
bool room_begin_copy(struct voice *voice); /* false: the book is locked just now */
bool room_keep(struct voice *voice);       /* the book of one that is ours is no copy: the same */
void room_hear_epoch(struct voice *voice, uint64_t epoch);
void room_looked(struct room *room, struct voice *voice, uint32_t change); /* at the book */
bool room_is_epoch_mad(uint64_t epoch);

/* ---- speaker_routes.c */
void room_write_routes(struct room *room, ns_t now);
ns_t room_routes_deadline(const struct room *room);

/* ---- speaker_outside.c */
void outside_run(struct room *room, ns_t now); /* takes who was told */
void outside_show(struct room *room);          /* where it is bound now */

/* ---- speaker_publish.c */
void publish_run(struct room *room, ns_t now);
ns_t publish_deadline(const struct room *room);
void publish_beat(struct room *room);
/* Fills room->bytes with our beat; its size, 0 on failure. */
size_t publish_pack_beat(struct room *room, uint8_t *bytes, size_t size);
/* Brings voice->packed up to date where it is older than age_ns. */
int publish_pack(struct room *room, struct voice *voice, ns_t age_ns);
uint64_t publish_version(const struct provider *provider);
uint64_t publish_version_seen(const struct provider *provider); /* of the book as we have it */

/* ---- speaker_claims.c */
void claims_run(struct room *room, struct voice *voice, ns_t now);

/* A state that was just taken: leases of this host in it that were given back here are given back at the owner. */
void claims_hand_back(struct room *room, struct provider *provider, const struct heard_state *state,
                      ns_t now);

/* ---- speaker_hear.c */
void hear_run(struct room *room);
/* Where it answers and publishes as far as we can tell, "" not. */
enum heard_how {
    HEARD_PUBLISHED,
    HEARD_ASKED /* it answered us */,
    HEARD_ASKING /* it asked us */
};
void hear_beat(struct room *room, const struct gossip_beat *beat, const char *endpoint,
               const char *publish, enum heard_how how);
/* A part of a state, from this peer itself. 0, or it is of no use: LEASE_EINVAL. */
int hear_state(struct room *room, const uint8_t *bytes, size_t size, uint32_t peer,
               uint32_t *parts);
bool hear_waits_for_book(const struct room *room, uint32_t peer, const char *provider);
ns_t hear_deadline(const struct room *room);

/* ---- speaker_peers.c */
int peers_open(struct room *room);
void peers_close(struct room *room);
void peers_run(struct room *room, ns_t now);
ns_t peers_deadline(const struct room *room);
void peers_heard(struct room *room, uint32_t peer, unsigned news, enum heard_how how, ns_t now);
void peers_introduce(struct room *room, uint32_t peer, ns_t now);
void peers_distrust(struct room *room);
/* What is to be asked next, taken off the list: who somebody is, a state that is missing, whom
 * somebody knows. */
bool peers_next_hello(struct room *room, ns_t now, uint32_t *peer);
void peers_hello_ended(struct room *room, uint32_t peer, bool answered, bool is_self);
bool peers_next_gap(struct room *room, ns_t now, struct gap *gap);
bool peers_next_list(struct room *room, ns_t now, uint32_t *peer);
/* Where the peer behind this endpoint publishes or answers, by the port that it told. */
void peers_beside(const char *endpoint, uint32_t port, char *to);

/* ---- speaker_errands.c */
void errands_run(struct room *room, ns_t now);
void errands_drop(struct room *room);
void errands_close(struct room *room);
bool errands_are_full(const struct room *room); /* what is due to be asked waits */
ns_t errands_deadline(const struct room *room, ns_t now);
void errands_owe(struct room *room, const char *provider, struct lease_id id, enum owed what,
                 ns_t until_ns);

/* ---- speaker_asked.c */
int asked_handle(struct room *room, const struct message *request, struct message *reply);
int say_who_owns(const struct room *room, const struct message *request, struct message *reply);
void asked_run(struct room *room, ns_t now);
void asked_close(struct room *room);

/* ---- speaker_fetch.c */
int fetch_handle(struct room *room, const struct message *request, struct message *reply);
int hello_handle(struct room *room, const struct message *request, struct message *reply);

/* ---- speaker_gossip.c */
void gossip_of_record(const struct book *book, const struct record *record, ns_t now,
                      struct gossip_lease *lease);
void gossip_of_book(const struct book *book, ns_t now, struct gossip_state *state);

#endif
