/* One question of this process to a book, from its request to the caller's words. Internal. */
#ifndef AGENT_ASKING_H
#define AGENT_ASKING_H

#include "agent/agent.h"
#include "agent/routes.h"

struct asking {
    struct lease_agent *agent;
    struct provider *provider;
    struct lease_request options;
    struct request request;
    uint32_t interrupts; /* of the agent, when the question began */
    enum reap reap;      /* how closely to look for the dead where somebody is in the way */
    ns_t decided_ns;     /* when the last step was taken */
    bool remote;         /* another host owns the provider, and is asked first (ladder.h) */
    bool named;          /* the answer is the owner's */
    bool silent;         /* the owner did not answer: what is known here decides */
    bool blind;          /* then leases alone, since nobody told where the server is */
    int refusal;         /* of the owner, where it is more than a no */
    uint64_t told_epoch; /* by the owner, with its answer */
    ns_t end_ns;         /* of the whole call; 0: counted from when a reading is asked for */
    ns_t turn_ns;        /* when who waits here asks the owner again; 0: never */
    struct route route;  /* where remote */
    char text[LEASE_REASON_SIZE]; /* where named: what the owner says about it */
    struct effects effects;       /* of the last step; its reply is the answer */
};

#define ASKING_TURN 1 /* asking_wait: still in the queue, and turn_ns is past */

/* Fills in a first request; then asking_set_provider. LEASE_EINVAL. */
int asking_begin(struct asking *asking, struct lease_agent *agent, enum verb verb,
                 const struct lease_request *request);

void asking_set_provider(struct asking *asking, struct provider *provider);

/* Asks, with a reading where one is needed, and again where somebody in the way was dead. */
int asking_step(struct asking *asking);

/* The same, and stands in the queue as long as the request's wait lasts. LEASE_ECLOSED:
 * interrupted, the place was given up. */
int asking_wait(struct asking *asking);

/* When somebody who waits asks again, if nobody wakes him. */
ns_t asking_next_look(const struct answer *answer);

/* The rest of lease_verify once the request is made. */
int asking_verify(struct asking *asking, struct lease *lease, struct lease_verdict *verdict);

/* Releases what the last answer names; flag 0 or REQUEST_GIVE_UP. */
void asking_give_up(struct asking *asking, enum request_flags flag);

/* Has the keeper look after the lease of the last answer. LEASE_EFULL. */
int asking_keep(const struct asking *asking);

/* A no before there was anything to ask; error says why. */
void asking_refuse(struct lease_agent *agent, const char *provider, int error,
                   struct lease_verdict *verdict);
void asking_verdict(const struct asking *asking, int error, struct lease_verdict *verdict);
void asking_lease(const struct asking *asking, struct lease *lease);
int asking_error(const struct asking *asking);
enum lease_basis asking_basis(const struct asking *asking);

/* Who asks, as the request has it. */
void asking_holder(const struct asking *asking, struct holder *holder);

/* Somebody wants this handle's calls to come back. */
bool asking_is_interrupted(const struct asking *asking);

#endif
