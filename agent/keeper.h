/* What the two halves of the keeper share: keeper.c has the list, the thread and the leases of this host,
 * keeper_away.c those that an owner on another host knows. Internal. */
#ifndef AGENT_KEEPER_H
#define AGENT_KEEPER_H

#include "agent/agent.h"
#include "agent/routes.h"

/* What our own book says of a lease. */
enum standing { STANDS, IS_LOST, IS_ELSEWHERE };
enum standing keeper_look_up(const struct held *held, enum reason *reason, enum record_end *end);

/* Renews or releases it in our own book. */
int keeper_step(const struct held *held, enum verb verb, struct effects *effects);

/* Nothing more is done for it but telling the caller. */
void keeper_report_lost(struct lease_agent *agent, struct lease_id id, enum reason reason,
                        enum record_end end);

/* It lives for another while, here and, unless `unanswered`, by the word of its owner. */
void keeper_renewed(struct lease_agent *agent, struct lease_id id, bool named, bool unanswered,
                    ns_t now);

/* Its place was taken by a lease with another id. False: it was given back meanwhile. */
bool keeper_replaced(struct lease_agent *agent, struct lease_id id, struct lease_id by,
                     uint32_t cell, bool named, ns_t now);

/* The owner is asked out of turn no sooner than then. */
void keeper_put_off(struct lease_agent *agent, struct lease_id id, ns_t away_ns);

/* The owner may have been told of it by this request, sent first at asked_ns. */
void keeper_asked(struct lease_agent *agent, struct lease_id id, struct request_id asked_by,
                  ns_t asked_ns);

/* How long it lives by each renewal. */
uint32_t keeper_ttl_ms(const struct held *held);

/* It ends by time alone, or the caller or the speaker renews it: not so. */
bool keeper_renews(const struct held *held);

/* Another host owns its provider, as far as is known without asking anybody. */
bool keeper_is_away(struct lease_agent *agent, const struct held *held, struct route *route);

/* One lease of a provider that another host owns. False: its owner was silent. */
bool keeper_look_away(struct lease_agent *agent, const struct held *held,
                      const struct route *route);

/* At the end: one try to tell owners what they do not know yet. The thread has ended. */
void keeper_tell_all(struct lease_agent *agent);

#endif
