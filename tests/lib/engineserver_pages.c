/* What each kind of server answers to which path. */
#define _GNU_SOURCE
#include "tests/lib/engineserver_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum MHD_Result answer(struct visit *visit, unsigned status, const char *type,
                              const struct text *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        text->length, (void *)(uintptr_t)text->at, MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(response, "Content-Type", type);
    enum MHD_Result result = MHD_queue_response(visit->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_plain(struct visit *visit, unsigned status, const char *body)
{
    struct text text = {0};
    text_format(&text, "%s", body);
    enum MHD_Result result = answer(visit, status, "application/json", &text);
    text_free(&text);
    return result;
}

/* What the server would tell of now. */
static struct change lagging(const struct engineserver *server)
{
    return work_at(server, now_us() - (int64_t)server->options.lag_ms * 1000);
}

/* ---- vLLM ---- */

static void gauge(struct text *text, const char *name, double value)
{
    text_format(text,
                "# HELP %s As the real one says it.\n# TYPE %s gauge\n"
                "%s{engine=\"0\",model_name=\"m\"} %.1f\n",
                name, name, name, value);
}

static void vllm_metrics(struct engineserver *server, struct text *text)
{
    struct change told = lagging(server);
    text_format(text, "process_start_time_seconds %.2f\n", (double)server->started / 1e6);
    gauge(text, "vllm:num_requests_running", told.running);
    gauge(text, "vllm:num_requests_waiting", told.waiting);
    gauge(text, server->options.old ? "vllm:gpu_cache_usage_perc" : "vllm:kv_cache_usage_perc",
          0.1);
    text_format(text, "# HELP vllm:prompt_tokens_total Prompt tokens.\n");
}

static void vllm_load(struct engineserver *server, struct text *text)
{
    int load = (int)(server->stats.running + server->stats.waiting);
    text_format(text, "{\"server_load\":%d}",
                server->options.tracking ? load + server->options.drift : 0);
}

/* ---- SGLang ---- */

static void sglang_loads(struct engineserver *server, struct text *text)
{
    struct change told = lagging(server);
    text_format(text,
                "{\"timestamp\":\"2026-09-14T09:21:43+00:00\",\"version\":\"0.5.20\",\"loads\":["
                "{\"dp_rank\":0,\"num_running_reqs\":%u,\"num_waiting_reqs\":%u,"
                "\"max_running_requests\":%u,\"token_usage\":0.1}]}",
                told.running, told.waiting, server->options.slots);
}

static void sglang_get_load(struct engineserver *server, struct text *text)
{
    struct change told = lagging(server);
    text_format(text, "[{\"dp_rank\":0,\"num_reqs\":%u,\"num_waiting_reqs\":%u,\"num_tokens\":0}]",
                told.running + told.waiting, told.waiting);
}

static void sglang_models(struct engineserver *server, struct text *text)
{
    (void)server;
    text_format(text, "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\","
                      "\"owned_by\":\"sglang\",\"root\":\"m\",\"max_model_len\":4096}]}");
}

/* ---- TGI ---- */

static void tgi_info(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"model_id\":\"m\",\"max_concurrent_requests\":%u,\"version\":\"3.3.6\"}",
                server->options.slots);
}

static void tgi_metrics(struct engineserver *server, struct text *text)
{
    struct change told = lagging(server);
    if (server->stats.tasks > 0)
        text_format(text,
                    "# TYPE tgi_queue_size gauge\ntgi_queue_size %u\n\n"
                    "# TYPE tgi_batch_current_size gauge\ntgi_batch_current_size %u\n\n",
                    told.waiting, told.running);
    text_format(text, "# TYPE tgi_request_count counter\ntgi_request_count %lu\n",
                server->stats.tasks);
}

/* ---- llama-swap, llama-skein ---- */

static void swap_running(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"running\":[");
    if (server->current >= 0)
        text_format(text, "{\"model\":\"%s\",\"state\":\"%s\",\"cmd\":\"llama-server\",\"ttl\":%u}",
                    server->models[server->current], server->starting ? "starting" : "ready",
                    server->options.ttl_s);
    text_format(text, "]}");
}

static void swap_models(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < server->model_count; i++)
        text_format(text, "%s{\"id\":\"%s\",\"object\":\"model\"}", i > 0 ? "," : "",
                    server->models[i]);
    text_format(text, "]}");
}

static void skein_hardware(struct engineserver *server, struct text *text)
{
    unsigned in_flight = server->stats.running + server->stats.waiting;
    unsigned slots = server->current >= 0;
    text_format(text, "{\"inference\":{\"in_flight\":%u,\"slots_total\":%u,\"busy\":%s}}",
                in_flight, slots, slots > 0 && in_flight >= slots ? "true" : "false");
}

/* Whatever is asked for of a model, it is started for. Its idle time begins anew. */
static enum MHD_Result upstream_page(struct visit *visit, int fd)
{
    struct engineserver *server = visit->server;
    const char *name = visit->path + strlen("/upstream/");
    const char *end = strrchr(name, '/');
    char *model = strndup(name, end ? (size_t)(end - name) : strlen(name));
    int index = model_of(server, model);
    struct text text = {0};
    free(model);
    if (index < 0)
        return answer_plain(visit, 404, "model not found");
    if (!work_ensure_model(server, index, fd))
        return MHD_NO;
    server->idle_since = now_us();
    text_format(&text, "[");
    for (unsigned i = 0; i < server->options.slots; i++)
        text_format(&text, "%s{\"id\":%u,\"is_processing\":%s}", i > 0 ? "," : "", i,
                    i < server->stats.running ? "true" : "false");
    text_format(&text, "]");
    enum MHD_Result result = answer(visit, 200, "application/json", &text);
    text_free(&text);
    return result;
}

/* ---- Ollama ---- */

static void ollama_model(struct text *text, const char *name)
{
    text_format(text,
                "{\"name\":\"%s:latest\",\"model\":\"%s:latest\",\"size\":4900000000,"
                "\"digest\":\"d0\",\"details\":{\"family\":\"llama\"},"
                "\"expires_at\":\"2026-09-14T09:26:43Z\",\"size_vram\":4900000000}",
                name, name);
}

/* What is being loaded is told as what is. */
static void ollama_ps(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"models\":[");
    if (server->current >= 0)
        ollama_model(text, server->models[server->current]);
    text_format(text, "]}");
}

static void ollama_tags(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"models\":[");
    for (int i = 0; i < server->model_count; i++) {
        text_format(text, "%s", i > 0 ? "," : "");
        ollama_model(text, server->models[i]);
    }
    text_format(text, "]}");
}

static void ollama_version(struct engineserver *server, struct text *text)
{
    (void)server;
    text_format(text, "{\"version\":\"0.33.0\"}");
}

/* ---- LM Studio ---- */

static void studio_models(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"models\":[");
    for (int i = 0; i < server->model_count; i++) {
        text_format(text, "%s{\"type\":\"llm\",\"key\":\"%s\",\"loaded_instances\":[",
                    i > 0 ? "," : "", server->models[i]);
        if (i == server->current)
            text_format(text,
                        "{\"id\":\"%s\",\"config\":{\"context_length\":4096,\"parallel\":%u}}",
                        server->models[i], server->options.slots);
        text_format(text, "]}");
    }
    text_format(text, "]}");
}

static void studio_old_models(struct engineserver *server, struct text *text)
{
    text_format(text, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < server->model_count; i++)
        text_format(
            text, "%s{\"id\":\"%s\",\"object\":\"model\",\"type\":\"llm\",\"state\":\"%s\"}",
            i > 0 ? "," : "", server->models[i], i == server->current ? "loaded" : "not-loaded");
    text_format(text, "]}");
}

/* ---- the table ---- */

enum { NEW = 1, OLD = 2, ANY = 3 };

static const struct page_of {
    enum server_kind kind;
    int version;
    const char *path;
    void (*body)(struct engineserver *server, struct text *text);
} pages[] = {
    {IS_VLLM, ANY, "/metrics", vllm_metrics},
    {IS_VLLM, NEW, "/load", vllm_load},
    {IS_SGLANG, NEW, "/v1/loads", sglang_loads},
    {IS_SGLANG, OLD, "/get_load", sglang_get_load},
    {IS_SGLANG, ANY, "/v1/models", sglang_models},
    {IS_TGI, ANY, "/info", tgi_info},
    {IS_TGI, ANY, "/metrics", tgi_metrics},
    {IS_SWAP, ANY, "/running", swap_running},
    {IS_SWAP, ANY, "/v1/models", swap_models},
    {IS_SKEIN, ANY, "/running", swap_running},
    {IS_SKEIN, ANY, "/v1/models", swap_models},
    {IS_SKEIN, ANY, "/api/hardware", skein_hardware},
    {IS_OLLAMA, ANY, "/api/ps", ollama_ps},
    {IS_OLLAMA, ANY, "/api/tags", ollama_tags},
    {IS_OLLAMA, ANY, "/api/version", ollama_version},
    {IS_STUDIO, NEW, "/api/v1/models", studio_models},
    {IS_STUDIO, ANY, "/api/v0/models", studio_old_models},
};

static bool is_swap(const struct engineserver *server)
{
    return server->kind == IS_SWAP || server->kind == IS_SKEIN;
}

/* Those of which a request names the model, which is loaded for it. */
static bool loads_models(const struct engineserver *server)
{
    return is_swap(server) || server->kind == IS_OLLAMA || server->kind == IS_STUDIO;
}

static enum MHD_Result get_page(struct visit *visit, int fd)
{
    struct engineserver *server = visit->server;
    server->stats.asked++;
    if (now_us() < server->loaded_at)
        return answer_plain(visit, 503, "{\"error\":\"starting\"}");
    if (is_swap(server) && strncmp(visit->path, "/upstream/", 10) == 0)
        return upstream_page(visit, fd);
    work_tidy(server);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        const struct page_of *of = &pages[i];
        if (of->kind != server->kind || strcmp(of->path, visit->path) != 0 ||
            !(of->version & (server->options.old ? OLD : NEW)))
            continue;
        struct text text = {0};
        of->body(server, &text);
        enum MHD_Result result = answer(visit, 200, "text/plain", &text);
        text_free(&text);
        return result;
    }
    if (server->kind == IS_STUDIO)
        return answer_plain(visit, 200, "{\"error\":\"Unexpected endpoint or method.\"}");
    return answer_plain(visit, 404, "{\"detail\":\"Not Found\"}");
}

static bool turns_away(struct engineserver *server)
{
    bool away = server->kind == IS_OLLAMA && server->stats.waiting >= server->options.max_waiting;
    server->stats.turned_away += away;
    return away;
}

static enum MHD_Result post_page(struct visit *visit, int fd)
{
    struct engineserver *server = visit->server;
    json_t *body = json_loadb(visit->body.at ? visit->body.at : "", visit->body.length, 0, NULL);
    const json_t *ms = json_object_get(body, "ms");
    const char *name = json_string_value(json_object_get(body, "model"));
    int model = loads_models(server) ? model_of(server, name ? name : server->models[0]) : -1;
    long wanted = json_is_integer(ms) ? (long)json_integer_value(ms) : -1;
    json_decref(body);
    if (loads_models(server) && model < 0)
        return answer_plain(visit, 404, "{\"error\":\"no such model\"}");
    if (turns_away(server))
        return answer_plain(visit, 503,
                            "{\"error\":\"server busy, please try again.  maximum pending requests "
                            "exceeded\"}");
    return work_do(server, model, wanted, fd) ? answer_plain(visit, 200, "{}") : MHD_NO;
}

static enum MHD_Result set_one(void *closure, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    (void)kind;
    return engineserver_set(closure, name, value ? atoi(value) : 0) ? MHD_YES : MHD_NO;
}

static enum MHD_Result control_pages(struct visit *visit)
{
    struct engineserver_stats stats;
    struct text text = {0};
    if (strcmp(visit->path, "/_/set") == 0)
        MHD_get_connection_values(visit->connection, MHD_GET_ARGUMENT_KIND, set_one, visit->server);
    engineserver_stats(visit->server, &stats);
    text_format(&text,
                "{\"tasks\":%lu,\"queued\":%lu,\"running\":%u,\"waiting\":%u,\"max_running\":%u,"
                "\"loads\":%lu,\"stops\":%lu,\"asked\":%lu,\"turned_away\":%lu}\n",
                stats.tasks, stats.queued, stats.running, stats.waiting, stats.max_running,
                stats.loads, stats.stops, stats.asked, stats.turned_away);
    enum MHD_Result result = answer(visit, 200, "application/json", &text);
    text_free(&text);
    return result;
}

/* vLLM's key guards what stands below /v1, that of the others everything. */
static bool wants_key(const struct visit *visit)
{
    const struct engineserver *server = visit->server;
    char wanted[256];
    const char *given =
        MHD_lookup_connection_value(visit->connection, MHD_HEADER_KIND, "Authorization");
    if (!server->options.api_key ||
        (server->kind == IS_VLLM && strncmp(visit->path, "/v1/", 4) != 0))
        return false;
    snprintf(wanted, sizeof wanted, "Bearer %s", server->options.api_key);
    return !given || strcmp(given, wanted) != 0;
}

enum MHD_Result pages_serve(struct visit *visit)
{
    struct engineserver *server = visit->server;
    int fd =
        MHD_get_connection_info(visit->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (strncmp(visit->path, "/_/", 3) == 0)
        return control_pages(visit);
    if (wants_key(visit))
        return answer_plain(visit, 401, "{\"error\":\"Unauthorized\"}");
    pthread_mutex_lock(&server->lock);
    bool posted = strcmp(visit->method, "POST") == 0 && strncmp(visit->path, "/v1/", 4) == 0;
    enum MHD_Result result = posted ? post_page(visit, fd) : get_page(visit, fd);
    pthread_mutex_unlock(&server->lock);
    return result;
}
