/* The JSON bodies that show the state of a model. */
#include "tests/lib/slotserver_internal.h"
#include "tests/lib/slotserver_templates.h"

#include <string.h>
#include <time.h>

#define MODEL_PATH "/models/tiny.gguf"

static json_t *from_template(const struct slotserver *server, const char *new, const char *old)
{
    return json_loads(server->version == SLOTSERVER_NEW ? new : old, 0, NULL);
}

json_t *body_error(enum slotserver_version version, int code, const char *type, const char *text)
{
    (void)version; /* the order of the keys differs, which JSON does not mean */
    return json_pack("{s:{s:i,s:s,s:s}}", "error", "code", code, "message", text, "type", type);
}

/* What a new server calls its model: the first alias. An old one takes the list for one name. */
static json_t *aliases(const struct slotserver *server, const struct engine *engine)
{
    const char *list = server->options.alias;
    if (server->options.router)
        list = engine->name;
    if (!list)
        list = MODEL_PATH;
    if (server->version == SLOTSERVER_OLD)
        return json_pack("[s]", list);
    json_t *names = json_array();
    for (;;) {
        size_t length = strcspn(list, ",");
        json_array_append_new(names, json_stringn(list, length));
        if (list[length] == '\0')
            return names;
        list += length + 1;
    }
}

/* What /slots shows of a task leaves out what can be long. */
static const char *const only_whole[] = {
    "dry_sequence_breakers", "stop", "logit_bias", "grammar", "grammar_lazy", "grammar_triggers",
    "preserved_tokens",
};

json_t *body_params(const struct slotserver *server, const struct task *task, bool whole)
{
    json_t *params = from_template(server, template_settings_new, template_settings_old);
    for (size_t i = 0; !whole && i < sizeof(only_whole) / sizeof(*only_whole); i++)
        json_object_del(params, only_whole[i]);
    json_object_set_new(params, "max_tokens", json_integer(task->n_predict));
    json_object_set_new(params, "n_predict", json_integer(task->n_predict));
    json_object_set_new(params, "stream", json_boolean(task->stream));
    json_object_set_new(params, "temperature", json_real(task->temperature));
    return params;
}

static void show_task(const struct slotserver *server, const struct slot *slot, json_t *shown)
{
    const struct task *task = slot->task ? slot->task : &slot->last;
    json_object_set_new(shown, "id_task", json_integer(task->id));
    if (server->version == SLOTSERVER_NEW) {
        long there = task->n_prefilled + task->n_decoded;
        json_object_set_new(shown, "n_prompt_tokens", json_integer(there));
        json_object_set_new(shown, "n_prompt_tokens_processed", json_integer(task->n_prefilled));
        json_object_set_new(shown, "n_prompt_tokens_cache", json_integer(0));
    }
    json_object_set_new(shown, "params", body_params(server, task, false));
    long left = task->n_predict < 0 ? -1 : task->n_predict - task->n_decoded;
    json_object_set_new(shown, "next_token",
                        json_pack("[{s:b,s:b,s:I,s:I}]", "has_next_token", slot->task != NULL,
                                  "has_new_line", 0, "n_remain", (json_int_t)left, "n_decoded",
                                  (json_int_t)task->n_decoded));
}

json_t *body_slots(const struct engine *engine)
{
    const struct slotserver *server = engine->server;
    json_t *slots = json_array();
    for (unsigned i = 0; i < server->options.slots; i++) {
        const struct slot *slot = &engine->slots[i];
        json_t *shown = json_pack("{s:i,s:i,s:b,s:b}", "id", (int)i, "n_ctx",
                                  (int)(server->options.ctx / server->options.slots), "speculative",
                                  0, "is_processing", slot->task != NULL);
        if (slot->used)
            show_task(server, slot, shown);
        json_array_append_new(slots, shown);
    }
    return slots;
}

json_t *body_props(const struct engine *engine)
{
    const struct slotserver *server = engine->server;
    const struct slotserver_options *options = &server->options;
    json_t *props = from_template(server, template_props_new, template_props_old);
    struct task none = {.n_predict = -1, .temperature = 0.8};
    json_t *settings = json_object_get(props, "default_generation_settings");
    json_object_set_new(settings, "params", body_params(server, &none, false));
    json_object_set_new(settings, "n_ctx", json_integer(options->ctx / options->slots));
    json_object_set_new(props, "total_slots", json_integer(options->slots));
    json_object_set_new(props, "endpoint_slots", json_boolean(!options->no_slots));
    json_object_set_new(props, "endpoint_metrics", json_boolean(options->metrics));
    if (server->version == SLOTSERVER_NEW) {
        json_t *names = aliases(server, engine);
        json_object_set(props, "model_alias", json_array_get(names, 0));
        json_decref(names);
        json_object_set_new(props, "is_sleeping", json_boolean(engine->sleeping));
    }
    return props;
}

json_t *body_models(const struct slotserver *server, bool loading)
{
    json_t *body = from_template(server, template_models_new, template_models_old);
    json_t *names = aliases(server, &server->engines[0]);
    json_t *first = json_array_get(names, 0);
    json_t *model = json_array_get(json_object_get(body, "models"), 0);
    json_object_set(model, "name", first);
    json_object_set(model, "model", first);
    json_t *data = json_array_get(json_object_get(body, "data"), 0);
    json_object_set(data, "id", first);
    json_object_set_new(data, "created", json_integer((json_int_t)time(NULL)));
    if (loading)
        json_object_set_new(data, "meta", json_null());
    if (server->version == SLOTSERVER_NEW) {
        json_t *meta = json_object_get(data, "meta");
        json_object_set_new(meta, "n_ctx",
                            json_integer(server->options.ctx / server->options.slots));
        json_object_set(data, "aliases", names);
    }
    json_decref(names);
    return body;
}

void body_model_name(const struct engine *engine, char *name, size_t size)
{
    json_t *names = aliases(engine->server, engine);
    const char *first = json_string_value(json_array_get(names, 0));
    strncpy(name, first ? first : "", size - 1);
    name[size - 1] = '\0';
    json_decref(names);
}
