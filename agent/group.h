/* Groups: providers that exclude each other, since their models share one GPU.
 *
 * At most `limit` members have leases or work at a time. All changes to any member's book are made
 * under the group's lock, and each sees all the others as they are: nothing is kept of a group but
 * its lock, so that nothing can go stale. Places are drawn in one order over all members. */
#ifndef AGENT_GROUP_H
#define AGENT_GROUP_H

#include "agent/agent.h"

struct group {
    struct group *next;
    char name[NAME_SIZE];
    uint32_t limit;
    pthread_mutex_t mutex; /* taken before any member's; guards what follows */
    struct host_lock lock;
    uint32_t moves; /* of the agent, when the lock was opened */
    bool lock_open;
    ns_t scanned_ns; /* when members were last looked for */
    struct provider *members[GROUP_MEMBERS_MAX];
    uint32_t member_count;
};

/* A provider's book was opened: joins the group that its SPEC or its book names, if it names one.
 * LEASE_ENOMEM. Not under provider->mutex. */
int group_join(struct provider *provider);

/* Takes the group's lock and tells the provider's book how the others stand. LEASE_ELOCKED: nothing
 * is taken. Does nothing for a provider without a group. Not under provider->mutex. */
int group_enter(struct provider *provider, int64_t budget_ms);

/* Gives it back; what happened may have made room for those who wait at the others. effects may be
 * NULL: nothing happened. */
void group_leave(struct provider *provider, const struct effects *effects);

/* provider_reap for the provider and, where it has a group, all other members: whoever died at one of
 * them is in the way here too. How many ended, or an error. */
int group_reap(struct provider *provider, enum reap how, int64_t budget_ms);

/* The members of which a request that was asked at fresh_ns wants a reading, by what the last
 * group_enter found: at most GROUP_MEMBERS_MAX, without the provider itself. */
uint32_t group_unread(struct provider *provider, ns_t fresh_ns, struct provider **members);

/* The same for a look, without the lock. */
void group_look(struct provider *provider);

void group_free_all(struct lease_agent *agent);

#endif
