#define _GNU_SOURCE

#include "agent/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/host_clock.h"
#include "broker/host_wait.h"

#define SCAN_NS   NS_PER_SEC /* between two looks for members that others have brought */
#define LOCK_SIZE (NAME_SIZE + sizeof ".v1.group")

/* ---- joining --------------------------------------------------------------------------------- */

/* What the SPEC says, or the book where nobody declared the provider to us. */
static uint32_t named_group(struct provider *provider, char *name)
{
    const struct provider_spec *spec = provider_spec(provider);
    if (spec) {
        memcpy(name, spec->group, NAME_SIZE);
        return spec->group_limit > 0 ? (uint32_t)spec->group_limit : 1;
    }
    uint32_t limit = 0;
    name[0] = '\0';
    pthread_mutex_lock(&provider->mutex);
    if (provider->reach == LEASE_REACH_HOST)
        limit = host_table_group(&provider->host, name);
    pthread_mutex_unlock(&provider->mutex);
    return limit > 0 ? limit : 1;
}

static struct group *find_or_make(struct lease_agent *agent, const char *name, uint32_t limit)
{
    for (struct group *group = agent->groups; group; group = group->next)
        if (strcmp(group->name, name) == 0)
            return group;
    struct group *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    memcpy(group->name, name, sizeof group->name);
    group->limit = limit;
    pthread_mutex_init(&group->mutex, NULL);
    group->next = agent->groups;
    agent->groups = group;
    return group;
}

int group_join(struct provider *provider)
{
    if (atomic_load(&provider->group))
        return 0;
    char name[NAME_SIZE];
    uint32_t limit = named_group(provider, name);
    if (name[0] == '\0')
        return 0;
    struct lease_agent *agent = provider->agent;
    pthread_mutex_lock(&agent->groups_mutex);
    struct group *group = find_or_make(agent, name, limit);
    if (group)
        atomic_store(&provider->group, group);
    pthread_mutex_unlock(&agent->groups_mutex);
    if (!group)
        return LEASE_ENOMEM;
    pthread_mutex_lock(&provider->mutex);
    provider->book->group_limit = group->limit;
    memcpy(provider->book->group, group->name, sizeof group->name);
    if (provider_spec(provider) && provider->reach == LEASE_REACH_HOST)
        host_table_set_group(&provider->host, name, limit);
    pthread_mutex_unlock(&provider->mutex);
    return 0;
}

void group_free_all(struct lease_agent *agent)
{
    while (agent->groups) {
        struct group *group = agent->groups;
        agent->groups = group->next;
        if (group->lock_open)
            host_lock_close(&group->lock);
        pthread_mutex_destroy(&group->mutex);
        free(group);
    }
}

/* ---- members --------------------------------------------------------------------------------- */

/* Declared to us, and not needed so far. */
static void open_declared(struct lease_agent *agent, const struct group *group)
{
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct provider *provider = agent->providers[i];
        const struct provider_spec *spec = provider_spec(provider);
        if (spec && strcmp(spec->group, group->name) == 0)
            provider_open(provider);
    }
}

/* Members that other processes have brought show by their books. */
static void find_members(struct lease_agent *agent, struct group *group, ns_t now)
{
    if (group->scanned_ns == 0 || now - group->scanned_ns >= SCAN_NS) {
        group->scanned_ns = now;
        agent_discover(agent);
        open_declared(agent, group);
    }
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    group->member_count = 0;
    for (uint32_t i = 0; i < count && group->member_count < GROUP_MEMBERS_MAX; i++)
        if (atomic_load(&agent->providers[i]->group) == group)
            group->members[group->member_count++] = agent->providers[i];
}

/* How all others stand, into the provider's book. */
static void tell(struct provider *provider, const struct group *group)
{
    struct neighbour neighbours[GROUP_MEMBERS_MAX];
    uint32_t count = 0;
    uint64_t place = 0;
    for (uint32_t i = 0; i < group->member_count; i++) {
        struct provider *member = group->members[i];
        if (member == provider)
            continue;
        pthread_mutex_lock(&member->mutex);
        if (atomic_load(&member->table) && provider_look(member) == 0) {
            book_as_neighbour(member->book, host_now_ns(), &neighbours[count++]);
            place = member->book->place_max > place ? member->book->place_max : place;
        }
        pthread_mutex_unlock(&member->mutex);
    }
    pthread_mutex_lock(&provider->mutex);
    memcpy(provider->book->neighbours, neighbours, count * sizeof neighbours[0]);
    provider->book->neighbour_count = count;
    provider->book->group_limit = group->limit;
    memcpy(provider->book->group, group->name, sizeof group->name);
    book_raise_place(provider->book, place);
    pthread_mutex_unlock(&provider->mutex);
}

/* ---- the lock -------------------------------------------------------------------------------- */

static int take_lock(struct provider *provider, struct group *group, int64_t budget_ms)
{
    struct lease_agent *agent = provider->agent;
    if (provider->reach != LEASE_REACH_HOST)
        return 0; /* in the process tier the mutex is enough */
    if (group->lock_open && group->moves != atomic_load(&agent->moves)) {
        host_lock_close(&group->lock);
        group->lock_open = false;
    }
    if (!group->lock_open) {
        char name[LOCK_SIZE];
        snprintf(name, sizeof name, "%s.v1.group", group->name);
        group->moves = atomic_load(&agent->moves);
        int error = host_lock_open(&group->lock, agent->directory.fd, name, HOST_LOCK_CREATE,
                                   agent->directory.file_mode);
        if (error < 0)
            return error;
        group->lock_open = true;
    }
    return host_lock_acquire(&group->lock, HOST_LOCK_EXCLUSIVE, (int)budget_ms);
}

int group_enter(struct provider *provider, int64_t budget_ms)
{
    struct group *group = atomic_load(&provider->group);
    if (!group)
        return 0;
    pthread_mutex_lock(&group->mutex);
    int error = take_lock(provider, group, budget_ms);
    if (error == LEASE_EVANISHED) {
        host_lock_close(&group->lock);
        group->lock_open = false;
        error = 0; /* the book's own lock finds that out too, and begins anew */
    }
    if (error < 0) {
        pthread_mutex_unlock(&group->mutex);
        return error;
    }
    find_members(provider->agent, group, host_now_ns());
    tell(provider, group);
    return 0;
}

static bool has_waiters(struct provider *member)
{
    pthread_mutex_lock(&member->mutex);
    bool any = member->book && member->book->count[RECORD_WAITING] > 0;
    pthread_mutex_unlock(&member->mutex);
    return any;
}

static void wake_the_others(const struct provider *provider, const struct group *group)
{
    for (uint32_t i = 0; i < group->member_count; i++) {
        struct provider *member = group->members[i];
        if (member == provider || !has_waiters(member))
            continue;
        struct host_words *words = provider_words(member);
        atomic_fetch_add_explicit(&words->call, 1, memory_order_release);
        host_wake(&words->call, HOST_WAIT_ANY);
    }
}

void group_leave(struct provider *provider, const struct effects *effects)
{
    struct group *group = atomic_load(&provider->group);
    if (!group)
        return;
    if (effects && effects->note_count > 0)
        wake_the_others(provider, group);
    if (group->lock_open && host_lock_held(&group->lock))
        host_lock_release(&group->lock);
    pthread_mutex_unlock(&group->mutex);
}

int group_reap(struct provider *provider, enum reap how, int64_t budget_ms)
{
    int ended = provider_reap(provider, how, budget_ms);
    struct group *group = atomic_load(&provider->group);
    if (!group)
        return ended;
    struct provider *members[GROUP_MEMBERS_MAX];
    pthread_mutex_lock(&group->mutex);
    uint32_t count = group->member_count;
    memcpy(members, group->members, count * sizeof members[0]);
    pthread_mutex_unlock(&group->mutex);
    for (uint32_t i = 0; i < count && ended >= 0; i++) {
        int more = members[i] == provider ? 0 : provider_reap(members[i], how, budget_ms);
        ended = more < 0 ? more : ended + more;
    }
    return ended;
}

uint32_t group_unread(struct provider *provider, ns_t fresh_ns, struct provider **members)
{
    struct group *group = atomic_load(&provider->group);
    uint32_t count = 0;
    if (!group)
        return 0;
    pthread_mutex_lock(&group->mutex);
    for (uint32_t i = 0; i < group->member_count; i++) {
        struct provider *member = group->members[i];
        struct neighbour neighbour = {0};
        pthread_mutex_lock(&member->mutex);
        ns_t now = host_now_ns();
        if (member != provider && atomic_load(&member->table))
            book_as_neighbour(member->book, now, &neighbour);
        pthread_mutex_unlock(&member->mutex);
        if (admission_neighbour_is_unread(&neighbour, now, fresh_ns))
            members[count++] = member;
    }
    pthread_mutex_unlock(&group->mutex);
    return count;
}

void group_look(struct provider *provider)
{
    struct group *group = atomic_load(&provider->group);
    if (!group)
        return;
    pthread_mutex_lock(&group->mutex);
    find_members(provider->agent, group, host_now_ns());
    tell(provider, group);
    pthread_mutex_unlock(&group->mutex);
}
