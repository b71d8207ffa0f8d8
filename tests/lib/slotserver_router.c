/* The router's own bodies, and the models behind it: loaded on demand, the idlest one dropped. */
#include "tests/lib/slotserver_internal.h"
#include "tests/lib/slotserver_templates.h"

#include <string.h>

json_t *body_router_props(const struct slotserver *server)
{
    json_t *props = json_loads(template_router_props, 0, NULL);
    json_object_set_new(props, "max_instances", json_integer(server->options.models_max));
    return props;
}

static const char *status_of(const struct engine *engine)
{
    if (engine->loading)
        return "loading";
    return engine->loaded ? "loaded" : "unloaded";
}

json_t *body_router_models(const struct slotserver *server)
{
    json_t *data = json_array();
    for (unsigned i = 0; i < server->n_engines; i++) {
        const struct engine *engine = &server->engines[i];
        json_t *model = json_loads(template_router_model, 0, NULL);
        json_object_set_new(model, "id", json_string(engine->name));
        json_object_set_new(json_object_get(model, "status"), "value",
                            json_string(status_of(engine)));
        if (!engine->loaded)
            json_object_del(model, "meta");
        json_array_append_new(data, model);
    }
    return json_pack("{s:o,s:s}", "data", data, "object", "list");
}

struct engine *models_find(struct slotserver *server, const char *name)
{
    for (unsigned i = 0; i < server->n_engines; i++) {
        if (strcmp(server->engines[i].name, name) == 0)
            return &server->engines[i];
    }
    return NULL;
}

static struct engine *idlest(struct slotserver *server, unsigned *resident)
{
    struct engine *found = NULL;
    *resident = 0;
    for (unsigned i = 0; i < server->n_engines; i++) {
        struct engine *engine = &server->engines[i];
        *resident += engine->loaded || engine->loading;
        if (engine->loaded && engine->in_system == 0 &&
            (!found || engine->idle_since < found->idle_since))
            found = engine;
    }
    return found;
}

static void make_room(struct slotserver *server)
{
    unsigned resident;
    struct engine *engine = idlest(server, &resident);
    if (resident < server->options.models_max || !engine)
        return;
    engine->loaded = false;
    engine_restart(engine);
    server->stats.model_evictions++;
}

/* With the lock held; returns when the model is there (or the server ends). */
void models_load(struct engine *engine)
{
    struct slotserver *server = engine->server;
    while (engine->loading && !server->stopping)
        pthread_cond_wait(&server->results, &server->lock);
    if (engine->loaded || server->stopping)
        return;
    make_room(server);
    engine->loading = true;
    int64_t there = now_us() + (int64_t)server->options.model_load_ms * 1000;
    while (!server->stopping && now_us() < there)
        wait_until(&server->results, &server->lock, there);
    engine->loading = false;
    engine->loaded = true;
    engine->idle_since = now_us();
    server->stats.model_loads++;
    pthread_cond_broadcast(&server->results);
}
