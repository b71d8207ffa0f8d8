/* LM Studio: tells how many requests it takes at a time, not how many it has. That is told over a
 * websocket alone; leases decide.
 *
 *   /api/v1/models   since 0.4: loaded instances of each model, `parallel` of each
 *   /api/v0/models   before: which models are loaded
 *
 * Neither loads anything. A path that it does not know is answered with 200 and an error inside. */
#include <string.h>

#include "agent/probe_asks.h"
#include "agent/probe_json.h"

enum kind { KIND_MODELS, KIND_OLD_MODELS };

static const char *const paths[ENGINE_ASKS_MAX] = {
    [KIND_MODELS] = "/api/v1/models",
    [KIND_OLD_MODELS] = "/api/v0/models",
};

/* What the models that are wanted come to. */
struct tally {
    bool exists; /* model= is one that it has */
    int loaded;  /* wanted models with an instance */
    int parallel; /* of the model's instances together; of several models the smallest; -1 not told */
};

static void begin(struct probe_run *run, ns_t now)
{
    asks_begin(run, now);
    asks_want(run, KIND_MODELS);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    return asks_next(run, now, paths, ask);
}

/* An embedding model takes no completion; where it is not named, it is not what is meant. */
static bool is_wanted(const struct probe_run *run, const char *name, const char *type)
{
    if (run->spec->model[0] != '\0')
        return strcmp(run->spec->model, name) == 0;
    return strncmp(type, "embedding", 9) != 0;
}

static void add_parallel(struct tally *tally, int parallel)
{
    if (parallel > 0 && (tally->parallel < 0 || parallel < tally->parallel))
        tally->parallel = parallel;
}

/* False: not what it answers. *parallel is the sum over the instances, -1 where one does not tell. */
static bool read_instances(const json_t *list, const char *wanted, bool *named, int *parallel)
{
    size_t index;
    const json_t *instance;
    *parallel = json_array_size(list) > 0 ? 0 : -1;
    json_array_foreach(list, index, instance)
    {
        const char *id = NULL;
        int one = -1;
        if (!json_is_object(instance) || !probe_json_text(instance, "id", &id) ||
            !probe_json_count(json_object_get(instance, "config"), "parallel", &one))
            return false;
        *named = *named || (id != NULL && strcmp(id, wanted) == 0);
        *parallel = one > 0 && *parallel >= 0 && *parallel < BOOK_SLOTS_MAX ? *parallel + one : -1;
    }
    return true;
}

static bool take_model(struct probe_run *run, struct tally *tally, const json_t *model)
{
    const char *key = NULL, *type = "";
    const json_t *instances = json_object_get(model, "loaded_instances");
    bool named = false;
    int parallel = -1;
    if (!json_is_object(model) || !probe_json_text(model, "key", &key) ||
        !probe_json_text(model, "type", &type) || key == NULL || !json_is_array(instances) ||
        !read_instances(instances, run->spec->model, &named, &parallel))
        return false;
    bool loaded = json_array_size(instances) > 0;
    if (loaded)
        asks_model(run, key, MODEL_LOADED);
    if (named || is_wanted(run, key, type)) {
        tally->exists = true;
        tally->loaded += loaded;
        add_parallel(tally, parallel);
    }
    return true;
}

static bool take_old_model(struct probe_run *run, struct tally *tally, const json_t *model)
{
    const char *id = NULL, *state = NULL, *type = "";
    if (!json_is_object(model) || !probe_json_text(model, "id", &id) ||
        !probe_json_text(model, "state", &state) || !probe_json_text(model, "type", &type) ||
        id == NULL || state == NULL)
        return false;
    bool loaded = strcmp(state, "loaded") == 0;
    if (loaded)
        asks_model(run, id, MODEL_LOADED);
    if (is_wanted(run, id, type)) {
        tally->exists = true;
        tally->loaded += loaded;
    }
    return true;
}

static void be_unloaded(struct probe_run *run, int kind)
{
    if (run->reading.model_count == 0)
        asks_count(run, kind, 0, 0); /* nothing could be in flight */
    run->reading.health = HEALTH_UNLOADED;
    run_detail(run, "%s: the first request loads it, if just-in-time loading is on",
               run->reading.model_count == 0 ? "nothing is loaded" : "unloaded");
}

static void judge(struct probe_run *run, int kind, const struct tally *tally)
{
    if (run->spec->model[0] != '\0' && !tally->exists) {
        asks_unknown(run, "it has no model '%s'", run->spec->model);
        return;
    }
    run->reading.sent_ns = run->asks.sent_ns[kind];
    if (tally->loaded == 0) {
        be_unloaded(run, kind);
        return;
    }
    run->reading.health = HEALTH_OK;
    asks_slots(run, tally->parallel);
    if (tally->loaded > 1)
        run_detail(run, "work in flight is not told; %d models are loaded: name one, model=NAME",
                   tally->loaded);
    else if (run->reading.slots_total > 0)
        run_detail(run, "capacity only: work in flight is not told over HTTP");
    else
        run_detail(run, "work in flight is not told, nor how many at a time: say slots=N");
}

static void take_models(struct probe_run *run, int kind, const json_t *body)
{
    size_t index;
    const json_t *model;
    struct tally tally = {.parallel = -1};
    bool old = kind == KIND_OLD_MODELS;
    const json_t *list = json_object_get(body, old ? "data" : "models");
    bool sane = json_is_array(list);
    json_array_foreach(list, index, model)
    {
        sane = sane && (old ? take_old_model : take_model)(run, &tally, model);
    }
    if (sane)
        judge(run, kind, &tally);
    else
        asks_unknown(run, "the answer to %s is not LM Studio's", paths[kind]);
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    if (run->decided)
        return;
    if (kind == KIND_MODELS && asks_absent(answer)) {
        asks_want(run, KIND_OLD_MODELS);
        return;
    }
    if (asks_failed(run, answer, paths[kind]))
        return;
    json_t *body = asks_json(run, answer, paths[kind]);
    if (kind == KIND_MODELS && body != NULL && json_object_get(body, "error") != NULL)
        asks_want(run, KIND_OLD_MODELS);
    else if (body != NULL)
        take_models(run, kind, body);
    json_decref(body);
}

static void end(struct probe_run *run)
{
    (void)run;
}

const struct engine engine_lmstudio = {"lmstudio", begin, next, take, end, true};
