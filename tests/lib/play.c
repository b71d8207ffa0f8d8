#define _GNU_SOURCE
#include "tests/lib/play.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/check.h"

struct probe_run play_run;
char play_asked[512];

static struct provider_spec spec;

static const struct recorded *find(const struct play *play, const char *path)
{
    char begin[160];
    const struct play_name *name = play->names;
    while (name->path != NULL && strcmp(name->path, path) != 0)
        name++;
    if (name->path == NULL)
        return NULL;
    snprintf(begin, sizeof begin, "%s.%s.", play->prefix, name->name);
    for (size_t i = 0; i < play->count; i++)
        if (strncmp(play->all[i].name, begin, strlen(begin)) == 0)
            return &play->all[i];
    return NULL;
}

static struct http_answer answer_to(const struct play *play, const char *full)
{
    char path[ENGINE_PATH_SIZE];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(full, "?"), full);
    for (size_t i = 0; i < PLAY_OTHERS && play->other[i].path != NULL; i++) {
        const struct play_other *other = &play->other[i];
        const char *body = other->body != NULL ? other->body : "";
        if (strcmp(other->path, path) == 0)
            return (struct http_answer){.failure = other->failure,
                                        .status = other->status,
                                        .body = body,
                                        .size = strlen(body),
                                        .reason = "test"};
    }
    const struct recorded *found = find(play, path);
    if (found == NULL)
        return (struct http_answer){.status = 404, .body = "{}", .size = 2, .reason = ""};
    return (struct http_answer){
        .status = found->status, .body = found->body, .size = found->size, .reason = ""};
}

static void run_clear(const struct play *play)
{
    struct reading last;
    reading_clear(&last);
    if (play->last != NULL)
        last = *play->last;
    memset(&play_run, 0, sizeof play_run);
    memset(&spec, 0, sizeof spec);
    snprintf(spec.model, sizeof spec.model, "%s", play->model == NULL ? "" : play->model);
    snprintf(spec.key_file, sizeof spec.key_file, "%s",
             play->key_file == NULL ? "" : play->key_file);
    spec.slots = play->slots == 0 ? -1 : play->slots;
    play_run.spec = &spec;
    play_run.wants = play->wants;
    play_run.memory = play->memory;
    play_run.last = last;
    reading_clear(&play_run.reading);
    snprintf(play_run.reading.engine, sizeof play_run.reading.engine, "%s", play->engine->name);
    play_asked[0] = '\0';
}

const struct reading *play(const struct play *play)
{
    struct engine_ask waiting[ENGINE_ASKS_MAX];
    ns_t now = play->now != 0 ? play->now : PLAY_NOW;
    int count = 0;
    run_clear(play);
    play->engine->begin(&play_run, now);
    for (;;) {
        while (!play_run.decided && play->engine->next(&play_run, now, &waiting[count])) {
            size_t length = strlen(play_asked);
            const char *before = count > 0 ? "+" : length > 0 ? " " : "";
            snprintf(play_asked + length, sizeof play_asked - length, "%s%s", before,
                     waiting[count].path);
            assert_true(++count <= ENGINE_ASKS_MAX);
        }
        if (play_run.decided || count == 0)
            break;
        now += NS_PER_MS;
        struct http_answer answer = answer_to(play, waiting[0].path);
        play->engine->take(&play_run, waiting[0].kind, &answer);
        memmove(waiting, waiting + 1, (size_t)--count * sizeof *waiting);
    }
    play->engine->end(&play_run);
    play_run.reading.answered_ns = now;
    return &play_run.reading;
}

void play_reads(const struct play *scene, enum health health, enum signal_kind kind, int total,
                int in_flight, int queued)
{
    const struct reading *reading = play(scene);
    if (reading->health != (int)health || reading->signal != (int)kind ||
        reading->slots_total != total || reading->in_flight != in_flight ||
        reading->queued != queued)
        fail_msg("%s: %s %s, %d of %d in flight, %d queued, '%s', asked %s", scene->prefix,
                 health_name((enum health)reading->health),
                 signal_name((enum signal_kind)reading->signal), reading->in_flight,
                 reading->slots_total, reading->queued, reading->detail, play_asked);
    assert_true(reading->sent_ns >= (scene->now != 0 ? scene->now : PLAY_NOW));
}
