/* Following the runtime directory: the choice is looked at each second, since a daemon may have
 * started in another one, or somebody removed ours. And what its speaker left in it, since the next one
 * may know a server by another URL: who went on asking the old one would find it down, and say so in
 * the book. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* ---- the configuration ----------------------------------------------------------------------- */

static bool is_another(const struct lease_agent *agent, struct file_mark *mark)
{
    struct stat status;
    if (fstatat(agent->directory.fd, EFFECTIVE_FILE, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *mark = (struct file_mark){status.st_ino, status.st_mtim};
    const struct file_mark *last = &agent->configuration;
    return mark->inode != last->inode || mark->modified.tv_sec != last->modified.tv_sec ||
           mark->modified.tv_nsec != last->modified.tv_nsec;
}

static void declare_again(struct lease_agent *agent, const struct effective *effective)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < effective->provider_count; i++) {
        const char *text = effective->providers[i].text;
        size_t length = strcspn(text, "=");
        for (uint32_t k = 0; k < count; k++) {
            const char *name = agent->providers[k]->name;
            if (strlen(name) == length && strncmp(name, text, length) == 0)
                provider_declare_again(agent->providers[k], text);
        }
    }
}

static bool is_due(struct lease_agent *agent, ns_t now)
{
    ns_t due = atomic_load(&agent->configured_ns);
    return now >= due &&
           atomic_compare_exchange_strong(&agent->configured_ns, &due, now + NS_PER_SEC);
}

void agent_follow_configuration(struct lease_agent *agent, bool now)
{
    if (!agent->has_directory || !(now || is_due(agent, host_now_ns())))
        return;
    struct file_mark mark;
    pthread_mutex_lock(&agent->providers_mutex);
    struct effective *effective = is_another(agent, &mark) ? malloc(sizeof *effective) : NULL;
    if (effective && effective_read(agent->directory.path, effective) == 0) {
        agent->configuration = mark;
        declare_again(agent, effective);
    }
    pthread_mutex_unlock(&agent->providers_mutex);
    free(effective);
}

/* ---- the directory --------------------------------------------------------------------------- */

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
