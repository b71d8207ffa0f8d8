/* One question of this process to a book, from its request to the caller's words. Internal. */
#ifndef AGENT_ASKING_H
#define AGENT_ASKING_H

#include "agent/agent.h"

struct asking {
    struct lease_agent *agent;
    struct provider *provider;
    struct lease_request options;
    struct request request;
    uint32_t interrupts;    /* of the agent, when the question began */
    enum reap reap;         /* how closely to look for the dead where somebody is in the way */
    ns_t decided_ns;        /* when the last step was taken */
    struct effects effects; /* of the last step; its reply is the answer */
};

/* Fills in a first request; the provider is the caller's to set. LEASE_EINVAL. */
int asking_begin(struct asking *asking, struct lease_agent *agent, enum verb verb,
                 const struct lease_request *request);

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
int asking_error(const struct answer *answer);
enum lease_basis asking_basis(const struct provider *provider);

#endif
