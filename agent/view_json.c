/* The one JSON schema of the project: everything that prints JSON prints parts of this. */
#include <jansson.h>

#include "agent/view_json.h"

/* Unknown is null, never 0. */
static json_t *number(int64_t value)
{
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static json_t *seconds(int64_t ms)
{
    return ms < 0 ? json_null() : json_real((double)(ms / 100) / 10.0);
}

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *token(uint64_t value)
{
    return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *lease_object(const struct lease_entry *entry)
{
    return json_pack("{s:s, s:s, s:i, s:o, s:s, s:i, s:s, s:o, s:o, s:I, s:o, s:s, s:o}", "id",
                     entry->id, "state", entry->state, "units", (int)entry->units, "slot",
                     number(entry->slot), "host", entry->host, "pid", (int)entry->pid, "label",
                     entry->label, "age_secs", seconds(entry->age_ms), "dispatched_secs",
                     seconds(entry->dispatched_ms), "left_ms", (json_int_t)entry->left_ms, "token",
                     token(entry->token), "reach", lease_reach_name(entry->reach), "idle_secs",
                     seconds(entry->idle_ms));
}

static json_t *work_object(const struct lease_work *work)
{
    json_t *was = work->was_host[0] ? json_pack("{s:s, s:i, s:s}", "host", work->was_host, "pid",
                                                (int)work->was_pid, "label", work->was_label)
                                    : json_null();
    return json_pack("{s:s, s:o, s:I, s:i, s:o}", "kind", work->kind, "slot", number(work->slot),
                     "for_ms", (json_int_t)work->for_ms, "units", (int)work->units, "was", was);
}

static json_t *capacity_object(const struct lease_view *view)
{
    json_t *models = json_array();
    for (uint32_t i = 0; i < view->model_count; i++)
        json_array_append_new(models, json_pack("{s:s, s:s}", "name", view->models[i].name, "state",
                                                view->models[i].state));
    return json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:s, s:o, s:s}", "slots_total",
                     number(view->slots_total), "in_flight", number(view->in_flight), "queued",
                     number(view->queued), "signal", view->signal, "engine", view->engine, "age_ms",
                     number(view->age_ms), "detail", view->detail, "models", models, "health",
                     view->health);
}

json_t *view_json_provider(const struct lease_fleet *fleet, const struct lease_view *view)
{
    json_t *leases = json_array(), *work = json_array();
    for (uint32_t i = 0; i < view->lease_count; i++)
        json_array_append_new(leases, lease_object(&fleet->leases[view->first_lease + i]));
    for (uint32_t i = 0; i < view->work_count; i++)
        json_array_append_new(work, work_object(&fleet->work[view->first_work + i]));
    return json_pack("{s:s, s:o, s:o, s:o, s:s, s:o, s:s, s:I, s:I, s:o,"
                     " s:o, s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:o}",
                     "provider", view->provider, "owner", text_or_null(view->owner), "url",
                     text_or_null(view->url), "group", text_or_null(view->group), "reach",
                     lease_reach_name(view->reach), "heard_ms", number(view->heard_ms), "state",
                     view->state, "epoch", (json_int_t)view->epoch, "version",
                     (json_int_t)view->version, "capacity", capacity_object(view), "available",
                     number(view->available), "free", number(view->free), "leased",
                     (json_int_t)view->leased, "dispatched", (json_int_t)view->dispatched,
                     "waiting", (json_int_t)view->waiting, "strangers", number(view->strangers),
                     "ghosts", (json_int_t)view->ghosts, "orphans", (json_int_t)view->orphans,
                     "work", work, "leases", leases);
}

static json_t *peer_object(const struct lease_peer *peer)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o}", "name", text_or_null(peer->name), "id",
                     text_or_null(peer->id), "version", text_or_null(peer->version), "endpoint",
                     text_or_null(peer->endpoint), "state", peer->state, "heard_ms",
                     number(peer->heard_ms));
}

json_t *view_json_fleet(const struct lease_fleet *fleet)
{
    json_t *providers = json_array(), *peers = json_array();
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        json_array_append_new(providers, view_json_provider(fleet, &fleet->providers[i]));
    for (uint32_t i = 0; i < fleet->peer_count; i++)
        json_array_append_new(peers, peer_object(&fleet->peers[i]));
    return json_pack("{s:i, s:s, s:s, s:o, s:o}", "schema", 1, "view_from", fleet->view_from,
                     "version", LEASEHOLD_VERSION, "providers", providers, "peers", peers);
}

char *lease_fleet_json(const struct lease_fleet *fleet)
{
    json_t *object = view_json_fleet(fleet);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}
