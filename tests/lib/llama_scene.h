/* A llama-server in a state that was recorded, and what a probe of it comes to, without a socket. */
#ifndef TESTS_LIB_LLAMA_SCENE_H
#define TESTS_LIB_LLAMA_SCENE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine.h"
#include "tests/lib/check.h"
#include "tests/lib/recorded.h"

static struct recorded all[RECORDED_MAX];
static size_t all_count;

/* A server in a state that was recorded: its answers by path; and what differs from that. */
struct scene {
    const char *prefix;
    struct {
        const char *path; /* without the query */
        int status;
        const char *body;
        size_t size;
        enum http_failure failure;
    } other[4];
    enum probe_wants wants;
    const char *model;
    const char *key_file;
    struct engine_memory memory;
    struct reading last; /* sent_ns 0: none */
};

/* What a scene came to. */
static struct probe_run run;
static struct provider_spec spec;
static char asked[512]; /* the paths in their order; '+' for each that left with others under way */

#define NOW (1000 * NS_PER_SEC)
static ns_t clock_ns;

static inline const struct recorded *recorded_answer(const struct scene *scene, const char *path)
{
    static const char *const endings[][2] = {
        {"/props", "props.json"},     {"/slots", "slots.json"},   {"/metrics", "metrics.txt"},
        {"/metrics", "metrics.json"}, {"/health", "health.json"}, {"/v1/models", "v1models.json"}};
    char name[128];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const struct recorded *found;
        if (strcmp(endings[i][0], path) != 0)
            continue;
        snprintf(name, sizeof name, "%s.%s", scene->prefix, endings[i][1]);
        found = recorded_find(all, all_count, name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static inline struct http_answer answer_to(const struct scene *scene, const char *full)
{
    char path[ENGINE_PATH_SIZE];
    struct http_answer answer = {.body = "", .reason = "test"};
    snprintf(path, sizeof path, "%.*s", (int)strcspn(full, "?"), full);
    for (size_t i = 0; i < 4 && scene->other[i].path != NULL; i++) {
        if (strcmp(scene->other[i].path, path) != 0 && strcmp(scene->other[i].path, full) != 0)
            continue;
        answer.failure = scene->other[i].failure;
        answer.status = scene->other[i].status;
        if (scene->other[i].body != NULL) {
            answer.body = scene->other[i].body;
            answer.size = scene->other[i].size != 0 ? scene->other[i].size : strlen(answer.body);
        }
        return answer;
    }
    const struct recorded *found = recorded_answer(scene, path);
    if (found == NULL)
        fail_msg("%s has no answer to %s", scene->prefix, path);
    answer.status = found->status;
    answer.body = found->body;
    answer.size = found->size;
    return answer;
}

static inline void run_clear(const struct scene *scene)
{
    memset(&run, 0, sizeof run);
    memset(&spec, 0, sizeof spec);
    snprintf(spec.model, sizeof spec.model, "%s", scene->model == NULL ? "" : scene->model);
    snprintf(spec.key_file, sizeof spec.key_file, "%s",
             scene->key_file == NULL ? "" : scene->key_file);
    run.spec = &spec;
    run.wants = scene->wants;
    run.memory = scene->memory;
    run.last = scene->last;
    if (run.last.sent_ns == 0)
        reading_clear(&run.last);
    reading_clear(&run.reading);
    asked[0] = '\0';
    clock_ns = NOW;
}

/* What probe.c does, without a socket: the answers come in the order of the questions. Each event
 * takes a millisecond. */
static inline const struct reading *play(const struct scene *scene)
{
    struct engine_ask waiting[ENGINE_ASKS_MAX];
    int count = 0;
    run_clear(scene);
    engine_llama.begin(&run, clock_ns);
    for (;;) {
        while (!run.decided && engine_llama.next(&run, clock_ns, &waiting[count])) {
            snprintf(asked + strlen(asked), sizeof asked - strlen(asked), "%s%s",
                     count > 0          ? "+"
                     : asked[0] != '\0' ? " "
                                        : "",
                     waiting[count].path);
            count++;
            assert_true(count < ENGINE_ASKS_MAX && strlen(asked) < sizeof asked - 1);
        }
        if (run.decided || count == 0)
            break;
        clock_ns += NS_PER_MS;
        struct http_answer answer = answer_to(scene, waiting[0].path);
        engine_llama.take(&run, waiting[0].kind, &answer);
        memmove(waiting, waiting + 1, (size_t)--count * sizeof *waiting);
    }
    engine_llama.end(&run);
    return &run.reading;
}

static void reads(const struct scene *scene, enum health health, enum signal_kind kind, int total,
                  int in_flight, int queued)
{
    const struct reading *reading = play(scene);
    if (reading->health != (int)health || reading->signal != (int)kind ||
        reading->slots_total != total || reading->in_flight != in_flight ||
        reading->queued != queued)
        fail_msg("%s: %s %s, %d of %d in flight, %d queued, '%s', asked %s", scene->prefix,
                 health_name((enum health)reading->health),
                 signal_name((enum signal_kind)reading->signal), reading->in_flight,
                 reading->slots_total, reading->queued, reading->detail, asked);
    assert_int_equal(reading->queue_means_full, 0);
}

static inline struct reading last_of(enum health health, int in_flight, int ms_ago)
{
    struct reading last;
    reading_clear(&last);
    last.health = (int32_t)health;
    last.signal = SIGNAL_EXACT;
    last.in_flight = in_flight;
    last.sent_ns = last.answered_ns = NOW - ms_ago * NS_PER_MS;
    return last;
}

static inline int load(void **state)
{
    (void)state;
    all_count = recorded_load("llama.cpp", all);
    return all_count > 300 ? 0 : -1;
}

#endif
