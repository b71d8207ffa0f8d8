#define _GNU_SOURCE

#include "agent/speaker_outside.h"

#include <string.h>
#include <unistd.h>

#include "agent/speaker_fleet.h"
#include "broker/host_clock.h"

/* The wake is a hint: within a second the loop turns anyway. */
static void wake(const struct speaker *speaker)
{
    uint64_t one = 1;
    ssize_t written = write(speaker->wake_fd, &one, sizeof one);
    (void)written;
}

int speaker_tell_peer(struct lease_agent *agent, const uint8_t id[16], const char *endpoint)
{
    struct speaker *speaker = agent->speaker;
    struct endpoint parsed;
    if (!speaker)
        return LEASE_EABSENT;
    if (!endpoint_parse(endpoint, &parsed) || !endpoint_is_numeric(parsed.host))
        return LEASE_EINVAL;
    struct outside *outside = &speaker->outside;
    pthread_mutex_lock(&outside->mutex);
    int error = outside->peer_count < OUTSIDE_PEERS_MAX ? 0 : LEASE_EFULL;
    if (error == 0) {
        memcpy(outside->peers[outside->peer_count].id, id, 16);
        endpoint_format(parsed.host, parsed.port, outside->peers[outside->peer_count++].endpoint);
    }
    pthread_mutex_unlock(&outside->mutex);
    wake(speaker);
    return error;
}

void speaker_where(struct lease_agent *agent, struct speaker_place *place)
{
    struct speaker *speaker = agent->speaker;
    memset(place, 0, sizeof *place);
    if (!speaker)
        return;
    pthread_mutex_lock(&speaker->outside.mutex);
    *place = speaker->outside.place;
    pthread_mutex_unlock(&speaker->outside.mutex);
}

void outside_run(struct room *room, ns_t now)
{
    struct outside *outside = &room->speaker->outside;
    pthread_mutex_lock(&outside->mutex);
    for (uint32_t i = 0; i < outside->peer_count; i++) {
        fleet_tell(room->fleet, NULL, outside->peers[i].id, outside->peers[i].endpoint, false, now);
        room->routes_changed = true;
        room->look_ns = 0; /* who is new is asked now */
    }
    outside->peer_count = 0;
    pthread_mutex_unlock(&outside->mutex);
}

void outside_show(struct room *room)
{
    struct speaker *speaker = room->speaker;
    struct speaker_place *place = &speaker->outside.place;
    pthread_mutex_lock(&speaker->outside.mutex);
    memcpy(place->id, speaker->id, sizeof place->id);
    memcpy(place->endpoint, room->endpoint, sizeof place->endpoint);
    memcpy(place->trouble, room->trouble, sizeof place->trouble);
    pthread_mutex_unlock(&speaker->outside.mutex);
}
