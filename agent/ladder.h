/* The rungs of a question about a provider that another host owns: its owner; where that does not answer,
 * our copy of its book with a reading of our own of the server; where nobody told where that is, the
 * copy alone. Where this host owns it, or nobody does, each of these is what asking.h does. Internal.
 *
 * A go below the owner comes no sooner than LADDER_ANNOUNCED_MS after the lease was written down here,
 * so that announcements may cross. What was decided without the owner is told to it by the keeper. */
#ifndef AGENT_LADDER_H
#define AGENT_LADDER_H

#include "agent/asking.h"
#include "agent/remote.h"

#define LADDER_ANNOUNCED_MS 50

/* acquire and verify: as asking_wait. LEASE_EBASIS: the owner is silent and less will not do, the lease
 * was given back. */
int ladder_ask(struct asking *asking);

/* Acquire and verify in one round trip, for an acquire that does not wait. LEASE_ETIMEOUT: the owner is
 * silent, asking->silent is set. Otherwise the answer is in *asking. */
int ladder_place(struct asking *asking);

/* As asking_step. */
int ladder_renew(struct asking *asking);
int ladder_release(struct asking *asking, bool ours);

/* What the answer names is given back to the owner too. */
void ladder_give_up(const struct asking *asking);

/* ---- a place in an owner's queue, for who stands in several ---------------------------------- */

/* LEASE_ETIMEOUT: the owner is silent. */
int ladder_enqueue(struct asking *asking, struct remote_ask *ask);

/* Never blocks while the owner answers. 0: the answer is in *asking; LEASE_EBUSY: still waits;
 * LEASE_ETIMEOUT: the owner is silent, the place was given up. */
int ladder_look(struct asking *asking, struct remote_ask *ask);
void ladder_leave(struct asking *asking, struct remote_ask *ask);

/* Makes the question one for our copy of the book. */
void ladder_step_down(struct asking *asking);

#endif
