/* Every body of the engines that were written from documentation, cut and changed (tests/lib/bytes.h),
 * as the answer to each question. */
#define _GNU_SOURCE
#include <string.h>

#include "tests/lib/bytes.h"
#include "tests/lib/check.h"
#include "tests/lib/fake_proc.h"

static const char load_3[] = "{\"server_load\":3}";
static const char gauges_0[] = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n";
static const char info[] = "{\"max_concurrent_requests\":8}";
static const char batch_0[] = "tgi_queue_size 0\ntgi_batch_current_size 0\n";
static const char nothing[] = "{\"running\":[]}";
static const char ready[] = "{\"running\":[{\"model\":\"coder\",\"state\":\"ready\",\"ttl\":0}]}";

static const struct bytes_place places_vllm[] = {
    {.engine = &engine_vllm,
     .name = ".load",
     .path = "/load",
     .other = {{"/metrics", gauges_0}},
     .otherwise = 404,
     .wants = PROBE_FULL,
     .slots = 8},
    {.engine = &engine_vllm,
     .name = ".metrics",
     .path = "/metrics",
     .other = {{NULL, NULL}},
     .otherwise = 404,
     .wants = PROBE_FULL,
     .slots = 8},
    {.engine = &engine_vllm,
     .name = ".both",
     .path = "/metrics",
     .other = {{"/load", load_3}},
     .otherwise = 404,
     .wants = PROBE_FULL},
};
static const struct bytes_place places_sglang[] = {
    {.engine = &engine_sglang, .name = ".loads", .path = "/v1/loads", .otherwise = 404},
    {.engine = &engine_sglang, .name = ".get_load", .path = "/get_load", .otherwise = 404},
    {.engine = &engine_sglang, .name = ".metrics", .path = "/metrics", .otherwise = 404},
};
static const struct bytes_place places_tgi[] = {
    {.engine = &engine_tgi,
     .name = ".info",
     .path = "/info",
     .other = {{"/metrics", batch_0}},
     .otherwise = 404,
     .tells_slots = true},
    {.engine = &engine_tgi,
     .name = ".metrics",
     .path = "/metrics",
     .other = {{"/info", info}},
     .otherwise = 404,
     .tells_slots = true},
};
static const struct bytes_place places_swap[] = {
    {.engine = &engine_swap, .name = ".running", .path = "/running", .otherwise = 404},
    {.engine = &engine_swap,
     .name = ".hardware",
     .path = "/api/hardware",
     .other = {{"/running", ready}},
     .otherwise = 404,
     .model = "coder"},
    {.engine = &engine_swap,
     .name = ".v1models",
     .path = "/v1/models",
     .other = {{"/running", nothing}},
     .otherwise = 404,
     .model = "coder"},
    {.engine = &engine_swap,
     .name = ".slots",
     .path = "/upstream/coder/slots",
     .other = {{"/running", ready}},
     .otherwise = 404,
     .model = "coder"},
};

static struct engine_memory with_child; /* filled in by load */

static const struct bytes_place places_ollama[] = {
    {.engine = &engine_ollama, .name = ".ps", .path = "/api/ps", .otherwise = 404},
    {.engine = &engine_ollama,
     .name = ".tags",
     .path = "/api/tags",
     .other = {{"/api/ps", "{\"models\":[]}"}},
     .otherwise = 404,
     .model = "another"},
    {.engine = &engine_ollama,
     .name = ".slots",
     .path = "/slots",
     .other = {{"/api/ps", "{\"models\":[{\"name\":\"a\"}]}"}},
     .otherwise = 404,
     .memory = &with_child},
};
static const struct bytes_place places_lmstudio[] = {
    {.engine = &engine_lmstudio, .name = ".models", .path = "/api/v1/models", .otherwise = 404},
    {.engine = &engine_lmstudio, .name = ".v0models", .path = "/api/v0/models", .otherwise = 404},
};
static const struct bytes_place places_exec[] = {
    {.engine = &engine_exec, .name = ".run", .path = "", .program = true, .tells_slots = true},
};

static bool line_is_whole(const char *body, size_t size, const char *line)
{
    const char *found = memmem(body, size, line, strlen(line));
    return found != NULL && memchr(found + 1, '\n', size - (size_t)(found + 1 - body)) != NULL;
}

/* Metrics are lines: cut behind the last that matters they still say the truth. */
static bool still_counts(const char *body, size_t size)
{
    return (line_is_whole(body, size, "\n# HELP vllm:num_requests_waiting_by") ||
            line_is_whole(body, size, "\n# HELP vllm:num_requests_swapped") ||
            line_is_whole(body, size, "\n# HELP sglang:gen_throughput") ||
            line_is_whole(body, size, "\ntgi_batch_current_size") ||
            line_is_whole(body, size, "\ntgi_request_queue_duration_bucket")); /* of a fresh one */
}

static const struct engine_bodies {
    const char *folder;
    const struct bytes_place *places;
    size_t count;
} engines[] = {
    {"vllm", places_vllm, sizeof places_vllm / sizeof *places_vllm},
    {"sglang", places_sglang, sizeof places_sglang / sizeof *places_sglang},
    {"tgi", places_tgi, sizeof places_tgi / sizeof *places_tgi},
    {"llama-swap", places_swap, sizeof places_swap / sizeof *places_swap},
    {"llama-skein", places_swap, sizeof places_swap / sizeof *places_swap},
    {"ollama", places_ollama, sizeof places_ollama / sizeof *places_ollama},
    {"lmstudio", places_lmstudio, sizeof places_lmstudio / sizeof *places_lmstudio},
    {"exec", places_exec, sizeof places_exec / sizeof *places_exec},
};
#define ENGINES (sizeof engines / sizeof *engines)

static struct fake_proc proc;
static struct recorded bodies[ENGINES][RECORDED_MAX];
static size_t counts[ENGINES];

static void whole_bodies_anywhere(void **state)
{
    (void)state;
    for (size_t e = 0; e < ENGINES; e++) {
        const struct recorded *all = bodies[e];
        for (size_t i = 0; i < counts[e]; i++)
            for (size_t k = 0; k < engines[e].count; k++)
                bytes_play(&engines[e].places[k], all[i].body, all[i].size);
    }
}

static void no_cut_body_is_free(void **state)
{
    (void)state;
    for (size_t e = 0; e < ENGINES; e++) {
        const struct recorded *all = bodies[e];
        for (size_t i = 0; i < counts[e]; i++) {
            const struct bytes_place *place =
                bytes_place_of(engines[e].places, engines[e].count, &all[i], i);
            bool lines = strcmp(place->path, "/metrics") == 0;
            if (!bytes_seen(all, i))
                bytes_cut(place, &all[i], lines ? still_counts : NULL);
        }
    }
}

static void changed_bodies_do_no_harm(void **state)
{
    (void)state;
    long changes = bytes_seed();
    for (size_t e = 0; e < ENGINES; e++) {
        const struct recorded *all = bodies[e];
        for (size_t i = 0; i < counts[e]; i++)
            if (!bytes_seen(all, i))
                bytes_change(bytes_place_of(engines[e].places, engines[e].count, &all[i], i),
                             &all[i], changes);
    }
}

static int load(void **state)
{
    (void)state;
    for (size_t e = 0; e < ENGINES; e++)
        counts[e] = recorded_load(engines[e].folder, bodies[e]);
    fake_proc_new(&proc);
    ollama_proc = proc.path;
    fake_proc_process(&proc, 501, 1, 51, "llama-server", "--port|1");
    with_child.ollama.child = (struct ollama_child){.pid = 501, .port = 1, .started = 51};
    return ollama_child_lives(&with_child.ollama.child) ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    fake_proc_free(&proc);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_bodies_anywhere),
        cmocka_unit_test(no_cut_body_is_free),
        cmocka_unit_test(changed_bodies_do_no_harm),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
