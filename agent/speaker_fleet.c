/* The room: opening and closing it, its turn in the speaker's loop, who owns what, and distrusting
 * ourselves after a sleep. */
#define _GNU_SOURCE

#include "agent/speaker_fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/lookup.h"
#include "agent/tcp.h"
#include "broker/host_clock.h"
#include "broker/host_epoch.h"
#include "broker/host_random.h"

#define BIND_NS      (3 * NS_PER_SEC)  /* between two tries */
#define GRACE_NS     (5 * NS_PER_SEC)  /* for owners to be heard of, before we read their servers */
#define ADDRESSES_NS (5 * NS_PER_SEC)  /* between two looks at this host's addresses */
#define STALL_NS     (200 * NS_PER_MS) /* a turn, or a wake, so late is noticed */

/* ---- binding --------------------------------------------------------------------------------- */

bool room_wants_service(const struct speaker *speaker)
{
    const struct fleet_config *config = atomic_load(&speaker->agent->fleet);
    return config && config->listen_count > 0;
}

static void complain(struct room *room, const char *what, const char *endpoint, int error)
{
    if (room->trouble[0] == '\0')
        snprintf(room->trouble, sizeof room->trouble, "cannot %s %s (%s), tried again", what,
                 endpoint, error == LEASE_EBUSY ? "in use" : lease_error_text(error));
    room->bind_ns = host_now_ns() + BIND_NS;
}

static void bind_services(struct room *room)
{
    for (uint32_t i = 0; i < room->config->listen_count; i++) {
        char bound[TCP_ENDPOINT_SIZE] = "";
        if (room->bound & 1u << i)
            continue;
        int error = room->speaker->service
                        ? service_bind(room->speaker->service, room->config->listen[i], bound)
                        : LEASE_EIO;
        if (error < 0) {
            complain(room, "listen at", room->config->listen[i], error);
            continue;
        }
        room->bound |= 1u << i;
        if (room->endpoint[0] == '\0')
            snprintf(room->endpoint, sizeof room->endpoint, "%s", bound);
    }
}

/* The one that was configured, or that beside where we answer. */
static void publish_place(const struct room *room, char *endpoint)
{
    struct endpoint wanted;
    endpoint[0] = '\0';
    if (room->config->relay[0])
        return;
    if (room->config->publish[0])
        snprintf(endpoint, ENDPOINT_SIZE, "%s", room->config->publish);
    else if (room->endpoint[0] && endpoint_parse(room->config->listen[0], &wanted))
        endpoint_format(wanted.host, wanted.port == 0 ? 0 : (uint16_t)(wanted.port + 1), endpoint);
}

/* What cannot be bound yet (an address that comes with a VPN, the last speaker's port) is tried again;
 * meanwhile we only go out. */
static void bind_all(struct room *room)
{
    char publish[ENDPOINT_SIZE];
    room->bind_ns = NS_NEVER;
    room->trouble[0] = '\0';
    bind_services(room);
    publish_place(room, publish);
    int error = publish[0] && !mesh_endpoint(room->mesh)[0] ? mesh_bind(room->mesh, publish) : 0;
    if (error < 0)
        complain(room, "publish at", publish, error);
    room->routes_changed = true;
    outside_show(room);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int allocate(struct room *room)
{
    room->fleet = calloc(1, sizeof *room->fleet);
    room->leases = calloc(WIRE_LEASES_MAX, sizeof *room->leases);
    room->beat = calloc(1, sizeof *room->beat);
    room->request = calloc(1, sizeof *room->request);
    room->reply = calloc(1, sizeof *room->reply);
    room->bytes = malloc(MESSAGE_BYTES_MAX);
    room->list = malloc(MESSAGE_BYTES_MAX);
    bool all = room->fleet && room->leases && room->beat && room->request && room->reply &&
               room->bytes && room->list;
    return all ? 0 : LEASE_ENOMEM;
}

static int open_parts(struct room *room)
{
    struct speaker *speaker = room->speaker;
    int error = allocate(room);
    if (error < 0)
        return error;
    fleet_init(room->fleet, speaker->agent->host, speaker->id);
    room->fleet->incarnation = room->incarnation;
    const char *relay = room->config->relay[0] ? room->config->relay : NULL;
    error = mesh_open(NULL, relay, &room->mesh);
    if (error == 0)
        error = asker_open(&room->asker);
    return error == 0 ? peers_open(room) : error;
}

int room_open(struct speaker *speaker)
{
    struct fleet_config *config = atomic_load(&speaker->agent->fleet);
    if (!config) {
        unlinkat(speaker->agent->directory.fd, ROUTES_FILE, 0);
        return 0;
    }
    struct room *room = calloc(1, sizeof *room);
    if (!room)
        return LEASE_ENOMEM;
    ns_t now = host_now_ns();
    room->speaker = speaker;
    room->config = config;
    room->incarnation = host_random_u64();
    room->opened_ns = room->tokens_ns = room->planned_ns = room->slept_ns = now;
    room->turn_ns = room->arrival_ns = now;
    room->tokens = ROOM_RATE;
    room->asked_ns = NS_NEVER;
    room->written_ns = now - NS_PER_SEC;
    (void)routes_read(speaker->agent->directory.path, &room->before);
    speaker->room = room;
    int error = open_parts(room);
    if (error < 0) {
        room_close(speaker);
        return error;
    }
    bind_all(room);
    return 0;
}

static void free_voice(struct voice *voice)
{
    struct provider *provider = voice->provider;
    pthread_mutex_lock(&provider->mutex);
    if (provider->broker.refusals == voice->refusals)
        provider->broker.refusals = NULL;
    pthread_mutex_unlock(&provider->mutex);
    free(voice->refusals);
    free(voice->claimed);
    free(voice->packed.bytes);
}

void room_close(struct speaker *speaker)
{
    struct room *room = speaker->room;
    speaker->room = NULL;
    if (!room)
        return;
    asked_close(room);
    errands_drop(room);
    errands_close(room);
    peers_close(room);
    asker_close(&room->asker);
    mesh_close(&room->mesh);
    for (uint32_t i = 0; i < room->voice_count; i++)
        free_voice(&room->voices[i]);
    for (uint32_t i = 0; i < ROOM_GATHERS; i++)
        free(room->gathers[i].leases);
    routes_free(&room->before);
    free(room->fleet);
    free(room->leases);
    free(room->beat);
    free(room->request);
    free(room->reply);
    free(room->bytes);
    free(room->list);
    free(room);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

uint64_t room_epoch(const struct voice *voice)
{
    struct provider *provider = voice->provider;
    pthread_mutex_lock(&provider->mutex);
    const struct book *book = provider->book;
    uint64_t epoch = !book ? 0 : book_is_copy(book) ? mirror_epoch(book) : book->head.epoch;
    pthread_mutex_unlock(&provider->mutex);
    return epoch;
}

struct fact room_copy(struct provider *provider)
{
    struct fact copy = {0};
    pthread_mutex_lock(&provider->mutex);
    if (provider->book && book_is_copy(provider->book))
        copy = (struct fact){.epoch = provider->book->sight.heard_epoch,
                             .version = provider->book->sight.heard_version};
    pthread_mutex_unlock(&provider->mutex);
    return copy;
}

bool room_is_former(const struct voice *voice, struct fact told)
{
    return told.epoch == voice->stood.epoch && told.version < voice->stood.version;
}

/* The caller holds the mutex and the book's lock. */
static void end_change(struct provider *provider)
{
    static const struct effects none_happened;
    table_commit(provider->table, provider->book, &none_happened, host_now_ns());
    host_words_announce(provider->words, &none_happened);
    table_end(provider->table);
}

/* Tokens grow, nothing ends. A book that is locked is raised later, and grants nothing before. */
void room_raise(struct voice *voice, uint64_t above)
{
    struct provider *provider = voice->provider;
    above = above > 0 ? above : 1; /* 0 would say that there is nothing to do */
    voice->raise_above = above > voice->raise_above ? above : voice->raise_above;
    pthread_mutex_lock(&provider->mutex);
    if (provider->table && table_begin(provider->table, provider->book, 0) == 0) {
        uint64_t now = provider->book->head.epoch;
        above = now > voice->raise_above ? now : voice->raise_above;
        speaker_raise(provider->book, host_epoch_next(provider->name, above));
        end_change(provider);
        voice->raise_above = 0;
        voice->packed.made_ns = 0;
        voice->fresh = true;
    }
    pthread_mutex_unlock(&provider->mutex);
}

/* Epochs, places and tokens are the owner's from now on. */
bool room_begin_copy(struct voice *voice)
{
    struct provider *provider = voice->provider;
    if (voice->is_copy)
        return true;
    pthread_mutex_lock(&provider->mutex);
    if (provider->table && table_begin(provider->table, provider->book, 0) == 0) {
        mirror_begin(provider->book);
        end_change(provider);
        voice->is_copy = true;
    }
    pthread_mutex_unlock(&provider->mutex);
    return voice->is_copy;
}

static bool is_book_copy(const struct voice *voice)
{
    struct provider *provider = voice->provider;
    pthread_mutex_lock(&provider->mutex);
    bool is = provider_look(provider) == 0 && book_is_copy(provider->book);
    pthread_mutex_unlock(&provider->mutex);
    return is;
}

/* A process of this host may take its book for a copy, by what it had read of us before we owned it. */
bool room_keep(struct voice *voice)
{
    if (is_book_copy(voice))
        room_raise(voice, room_epoch(voice));
    return voice->raise_above == 0;
}

void room_hear_epoch(struct voice *voice, uint64_t epoch)
{
    if (epoch > room_epoch(voice) && !room_is_epoch_mad(epoch))
        room_raise(voice, epoch);
}

/* An epoch is about the seconds of a wall clock: above one of the far future nobody could go. */
bool room_is_epoch_mad(uint64_t epoch)
{
    time_t wall = time(NULL);
    return epoch > (uint64_t)(wall > 0 ? wall : 0) + 366 * 86400;
}

/* ---- who owns what --------------------------------------------------------------------------- */

/* An address may come and go; a server is not left alone because of that, but only to somebody. */
static void look_at_address(struct room *room, struct provider *provider, ns_t now)
{
    const struct provider_spec *spec = provider_spec(provider);
    if (!spec || spec->own != OWN_BY_URL)
        return;
    bool named = provider_is_here(spec);
    if (named) {
        provider->owned = true;
    } else if (provider->owned) {
        uint32_t owner = fleet_owner(room->fleet, provider->name, false, now, NULL);
        if (owner < FLEET_PEERS_MAX &&
            fleet_peer_state(&room->fleet->peers[owner], now) == PEER_LIVE)
            provider->owned = false;
    }
}

static void be_owner(struct room *room, struct voice *voice)
{
    uint64_t heard = fleet_epoch(room->fleet, voice->provider->name), epoch = room_epoch(voice);
    if (voice->is_copy || (heard >= epoch && heard > 0))
        room_raise(voice, heard > epoch ? heard : epoch);
    voice->is_copy = false;
    room_keep(voice);
}

static void own(struct room *room, struct voice *voice, ns_t now)
{
    struct provider *provider = voice->provider;
    bool owned = provider_spec(provider) && provider->owned, was_ours = voice->ours;
    uint32_t owner = voice->owner, conflicts = voice->conflicts;
    voice->owner = fleet_owner(room->fleet, provider->name, owned, now, &voice->conflicts);
    voice->ours = voice->owner == FLEET_SELF;
    if (owner != voice->owner || conflicts != voice->conflicts)
        room->routes_changed = true;
    if (voice->ours)
        be_owner(room, voice);
    else if (voice->owner < FLEET_PEERS_MAX)
        room_begin_copy(voice);
    if (voice->ours != was_ours)
        voice->fresh = true;
}

static void add_voices(struct room *room)
{
    struct speaker *speaker = room->speaker;
    while (room->voice_count < speaker->prober_count) {
        struct voice *voice = &room->voices[room->voice_count];
        memset(voice, 0, sizeof *voice);
        voice->provider = speaker->probers[room->voice_count++]->provider;
        voice->owner = FLEET_NOBODY;
        voice->fresh = true;
        room->own_ns = 0;
    }
}

void room_own(struct room *room)
{
    ns_t now = host_now_ns();
    room->own_ns = now + ROOM_BEAT_NS;
    bool look = now >= room->addresses_ns;
    if (look)
        room->addresses_ns = now + ADDRESSES_NS;
    for (uint32_t i = 0; i < room->voice_count; i++) {
        if (look)
            look_at_address(room, room->voices[i].provider, now);
        own(room, &room->voices[i], now);
    }
}

struct voice *room_voice(struct room *room, const char *provider)
{
    for (uint32_t i = 0; i < room->voice_count; i++)
        if (strcmp(room->voices[i].provider->name, provider) == 0)
            return &room->voices[i];
    return NULL;
}

static const struct voice *voice_of(const struct room *room, const struct provider *provider)
{
    for (uint32_t i = 0; i < room->voice_count; i++)
        if (room->voices[i].provider == provider)
            return &room->voices[i];
    return NULL;
}

bool room_is_elsewhere(const struct room *room, const struct provider *provider)
{
    const struct voice *voice = room ? voice_of(room, provider) : NULL;
    return voice && voice->owner < FLEET_PEERS_MAX;
}

/* A server that another host owns is read when somebody here asks for it. */
bool room_probes(const struct room *room, const struct provider *provider, ns_t now)
{
    const struct voice *voice = room ? voice_of(room, provider) : NULL;
    if (!room || (voice && voice->ours))
        return true;
    return voice && voice->owner == FLEET_NOBODY && now - room->opened_ns > GRACE_NS;
}

/* ---- our own lateness ------------------------------------------------------------------------ */

/* We were stopped, or slept: what ran out has ended, whatever anybody says now, and nobody is
 * believed to be as he was. */
static void distrust(struct room *room)
{
    struct event tick = {.kind = EVENT_TICK};
    struct effects effects;
    for (uint32_t i = 0; i < room->voice_count; i++) {
        struct voice *voice = &room->voices[i];
        if (!voice->ours)
            continue;
        provider_step(voice->provider, &tick, &effects, LOCK_BUDGET_MS);
        room_raise(voice, 0);
    }
    fleet_distrust(room->fleet);
    errands_drop(room);
    peers_distrust(room);
    for (uint32_t i = 0; i < ROOM_GATHERS; i++)
        room->gathers[i].in_use = room->gathers[i].complete = false;
    room->beat_ns = 0;
    room->own_ns = 0;
    room->distrusted++;
}

/* Stopped in the middle of a turn. */
void room_notice_late(struct room *room)
{
    ns_t now = host_now_ns();
    if (now - room->turn_ns <= ROOM_LATE_NS)
        return;
    room->turn_ns = now;
    distrust(room);
}

/* Requests that are read now may have come while nobody looked: then their time runs from there. */
void room_wake(struct room *room)
{
    ns_t now = host_now_ns();
    ns_t late = now - room->planned_ns, worked = room->slept_ns - room->turn_ns;
    room->arrival_ns = worked > STALL_NS ? room->turn_ns : late > STALL_NS ? room->slept_ns : now;
    room->turn_ns = now;
    if (late > ROOM_LATE_NS || worked > ROOM_LATE_NS) /* in a sleep, or in the turn before it */
        distrust(room);
    add_voices(room);
    if (now >= room->own_ns)
        room_own(room);
}

/* ---- the turn -------------------------------------------------------------------------------- */

/* The watcher need not tell of it. */
void room_looked(struct room *room, struct voice *voice, uint32_t change)
{
    voice->fresh = false;
    voice->change = change;
    atomic_store_explicit(&room->speaker->looked[voice - room->voices], change,
                          memory_order_release);
}

void room_run(struct room *room)
{
    asked_run(room, host_now_ns());
    hear_run(room);
    ns_t now = host_now_ns();
    if (now >= room->bind_ns)
        bind_all(room);
    outside_run(room, now);
    peers_run(room, now);
    errands_run(room, now);
    for (uint32_t i = 0; i < room->voice_count; i++)
        if (room->voices[i].raise_above)
            room_raise(&room->voices[i], room->voices[i].raise_above);
    publish_run(room, now);
    for (uint32_t i = 0; i < room->voice_count; i++)
        provider_wake(room->voices[i].provider, &room->voices[i].owed);
    room_write_routes(room, now);
    atomic_store_explicit(&room->speaker->watches,
                          room->asked_count > 0 ? SPEAKER_WATCHES_CLOSELY : SPEAKER_WATCHES_BOOKS,
                          memory_order_relaxed);
}

static ns_t earlier(ns_t a, ns_t b)
{
    return a < b ? a : b;
}

ns_t room_deadline(struct room *room)
{
    ns_t now = host_now_ns();
    ns_t first = earlier(publish_deadline(room), peers_deadline(room));
    first = earlier(first, errands_deadline(room, now));
    first = earlier(first, hear_deadline(room));
    first = earlier(first, earlier(room->own_ns, room->bind_ns));
    if (room->routes_changed)
        first = earlier(first, room_routes_deadline(room));
    return earlier(first, room->asked_ns);
}

void room_sleeps(struct room *room, ns_t until_ns)
{
    room->slept_ns = host_now_ns();
    room->planned_ns = until_ns > room->slept_ns ? until_ns : room->slept_ns;
}

void *room_socket(const struct room *room)
{
    return host_now_ns() < room->hear_ns ? NULL : mesh_socket(room->mesh);
}

void room_to_hear(struct room *room)
{
    room->to_hear = true;
}
