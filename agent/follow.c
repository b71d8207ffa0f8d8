/* Following the runtime directory: the choice is looked at each second, since a daemon may have
 * started in another one, or somebody removed ours. */
#define _GNU_SOURCE

#include <string.h>

#include "agent/agent.h"
#include "broker/host_clock.h"

int agent_find_directory_again(struct lease_agent *agent)
{
    pthread_mutex_lock(&agent->directory_mutex);
    int error = 0;
    if (host_dir_check(&agent->directory) < 0) {
        host_dir_close(&agent->directory);
        error = host_dir_open_of(&agent->places.places, &agent->directory);
        atomic_fetch_add(&agent->moves, 1);
    }
    pthread_mutex_unlock(&agent->directory_mutex);
    return error;
}

/* Another candidate's speaker lives, and comes before ours. */
static bool another_is_chosen(const struct lease_agent *agent)
{
    struct host_dir_candidate candidates[HOST_DIR_CANDIDATES_MAX];
    unsigned count = host_dir_candidates_of(&agent->places.places, candidates);
    for (unsigned i = 0; i < count; i++)
        if (candidates[i].chosen)
            return candidates[i].alive && strcmp(candidates[i].path, agent->directory.path) != 0;
    return false;
}

static bool move(struct lease_agent *agent)
{
    struct host_dir fresh;
    if (host_dir_open_of(&agent->places.places, &fresh) < 0)
        return false;
    pthread_mutex_lock(&agent->directory_mutex);
    struct host_dir left = agent->directory;
    agent->directory = fresh;
    atomic_fetch_add(&agent->moves, 1);
    pthread_mutex_unlock(&agent->directory_mutex);
    host_dir_close(&left);
    return true;
}

void agent_follow(struct lease_agent *agent)
{
    ns_t now = host_now_ns(), due = atomic_load(&agent->follow_ns);
    if (!agent->has_directory || now < due ||
        !atomic_compare_exchange_strong(&agent->follow_ns, &due, now + NS_PER_SEC))
        return;
    bool gone = host_dir_check(&agent->directory) < 0;
    if (gone ? agent_find_directory_again(agent) < 0 : !another_is_chosen(agent) || !move(agent))
        return;
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++)
        provider_move(agent->providers[i], gone ? LOSS_REMOVED : LOSS_NONE);
}
