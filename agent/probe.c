#include "agent/probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine.h"
#include "agent/probe_detect.h"
#include "agent/probe_key.h"
#include "agent/program.h"
#include "broker/error.h"

/* A question under way: its address is the http_get's arg, so that each can be told and cancelled.
 */
struct asking {
    struct probe_target *target;
    int kind;
    bool pending;
    ns_t sent_ns;
};

/* An answer that told which engine it is: that one's first question may be the same. */
struct replay {
    const struct http_answer *answer; /* NULL: none */
    const char *path;
    ns_t sent_ns;
};

/* Invariants: pending is the number of askings that are; 0 unless running. While one is late nothing
 * else is asked. */
struct probe_target {
    struct provider_spec spec;
    ns_t (*now)(void);
    const struct engine *engine; /* of ENGINE_AUTO: engine_detect, or what it has found */
    int found_by;                /* see struct reading */
    struct replay replay;        /* during one pump */
    struct probe_key key;
    struct engine_memory memory;
    ns_t unanswered_ns[PROBE_UNANSWERED_MAX]; /* when each timed out; the oldest is overwritten */
    unsigned unanswered_next;
    struct asking *late; /* sits at the server beyond its probe; NULL: none */
    ns_t over_ns;        /* when the last such one had been sent, that does so no more */
    bool recovered;
    bool running;
    int pending;
    struct http *http;
    ns_t deadline;
    probe_callback *done;
    void *arg;
    struct asking askings[ENGINE_ASKS_MAX];
    struct probe_run run;
};

/* ---- for engines ----------------------------------------------------------------------------- */

const struct engine *engine_of(enum engine_kind kind)
{
    switch (kind) {
    case ENGINE_STATIC: return &engine_static;
    case ENGINE_VLLM: return &engine_vllm;
    case ENGINE_SGLANG: return &engine_sglang;
    case ENGINE_TGI: return &engine_tgi;
    case ENGINE_LLAMA_SWAP: return &engine_swap;
    case ENGINE_LLAMA_CPP: return &engine_llama;
    case ENGINE_OLLAMA: return &engine_ollama;
    case ENGINE_LMSTUDIO: return &engine_lmstudio;
    case ENGINE_EXEC: return &engine_exec;
    default: return &engine_detect;
    }
}

void run_detail(struct probe_run *run, const char *format, ...)
{
    char line[2 * DETAIL_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    text_copy(run->reading.detail, sizeof run->reading.detail, line);
}

static void take_unauthorized(struct probe_run *run, int status)
{
    run->reading.health = HEALTH_UNAUTHORIZED;
    if (run->spec->key_file[0] == '\0')
        run_detail(run, "it wants an API key (%d): say key-file=PATH", status);
    else
        run_detail(run, "it does not accept the key (%d) in %s", status, run->spec->key_file);
}

static void take_status(struct probe_run *run, int status, const char *what)
{
    run->reading.health = HEALTH_UNKNOWN;
    if (status == 401 || status == 403)
        take_unauthorized(run, status);
    else if (status >= 300 && status < 400)
        run_detail(run, "%s answers %d: redirects are not followed", what, status);
    else
        run_detail(run, "%s answers %d", what, status);
}

bool run_take_failure(struct probe_run *run, const struct http_answer *answer, const char *what)
{
    switch (answer->failure) {
    case HTTP_NONE:
        if (answer->status == 200)
            return false;
        take_status(run, answer->status, what);
        return true;
    case HTTP_UNREACHABLE:
    case HTTP_TIMEOUT_CONNECT:
        run->reading.health = HEALTH_DOWN;
        run_detail(run, "%s", answer->reason);
        return true;
    case HTTP_TIMEOUT_ANSWER: run->reading.health = HEALTH_BUSY; break;
    case HTTP_TOO_LARGE:
    case HTTP_BROKEN: run->reading.health = HEALTH_UNKNOWN; break;
    }
    run_detail(run, "%s: %s", what, answer->reason);
    return true;
}

/* ---- target ---------------------------------------------------------------------------------- */

int probe_target_new(const struct provider_spec *spec, ns_t (*now)(void),
                     struct probe_target **target)
{
    *target = calloc(1, sizeof **target);
    if (*target == NULL)
        return LEASE_ENOMEM;
    (*target)->spec = *spec;
    (*target)->now = now;
    (*target)->engine = engine_of(spec->engine);
    return 0;
}

static void forget_late(struct probe_target *target)
{
    if (target->late != NULL)
        http_cancel(target->http, target->late);
    target->late = NULL;
}

void probe_target_destroy(struct probe_target **target)
{
    if (*target == NULL)
        return;
    probe_cancel(*target);
    forget_late(*target);
    probe_key_wipe(&(*target)->key);
    free(*target);
    *target = NULL;
}

bool probe_is_running(const struct probe_target *target)
{
    return target->running;
}

static void cancel_askings(struct probe_target *target)
{
    for (int i = 0; i < ENGINE_ASKS_MAX; i++) {
        if (!target->askings[i].pending)
            continue;
        http_cancel(target->http, &target->askings[i]);
        target->askings[i].pending = false;
        target->pending--;
    }
}

void probe_cancel(struct probe_target *target)
{
    cancel_askings(target);
    target->running = false;
}

int probe_unanswered(const struct probe_target *target)
{
    ns_t since = target->now() - PROBE_UNANSWERED_MS * NS_PER_MS;
    int count = 0;
    for (int i = 0; i < PROBE_UNANSWERED_MAX; i++)
        count += target->unanswered_ns[i] != 0 && target->unanswered_ns[i] > since;
    return count;
}

static void note_unanswered(struct probe_target *target)
{
    target->unanswered_ns[target->unanswered_next++ % PROBE_UNANSWERED_MAX] = target->now();
}

bool probe_recovered(struct probe_target *target)
{
    bool recovered = target->recovered;
    target->recovered = false;
    return recovered;
}

uint32_t probe_source(const struct provider_spec *spec)
{
    const char *const parts[] = {spec->probe_url, "\n", spec->model, "\n", spec->program};
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *at = parts[i]; *at != '\0'; at++)
            hash = (hash ^ (unsigned char)*at) * 16777619u;
    hash = (hash ^ (uint32_t)spec->engine) * 16777619u;
    return hash != 0 ? hash : 1;
}

/* ---- which engine ---------------------------------------------------------------------------- */

/* Behind what else there is to say, where it fits. */
static void tell_reason(struct probe_run *run)
{
    struct reading *reading = &run->reading;
    const char *path = detect_path(reading->found_by);
    char line[2 * DETAIL_SIZE];
    int length = reading->detail[0] == '\0'
                     ? snprintf(line, sizeof line, "engine found out by %s", path)
                     : snprintf(line, sizeof line, "%s (engine by %s)", reading->detail, path);
    if (path[0] != '\0' && length < DETAIL_SIZE)
        run_detail(run, "%s", line);
}

/* Where the server is found to be down or starting, refuses, or makes no sense, it may be another one
 * by the next probe. What it was last is still said, unless somebody else answers. */
static void settle_engine(struct probe_target *target)
{
    struct probe_run *run = &target->run;
    struct reading *reading = &run->reading;
    bool lost = reading->health != HEALTH_BUSY && !health_admits((enum health)reading->health);
    if (target->spec.engine != ENGINE_AUTO)
        return;
    if (target->engine == &engine_detect && reading->health != HEALTH_UNKNOWN &&
        detect_engine(run->last.engine) != NULL) {
        memcpy(reading->engine, run->last.engine, sizeof reading->engine);
        reading->found_by = run->last.found_by;
    } else {
        reading->found_by = target->found_by;
    }
    tell_reason(run);
    if (lost && target->engine != &engine_detect) {
        target->engine = &engine_detect;
        target->found_by = 0;
        target->memory = (struct engine_memory){0};
    }
}

/* Somebody else has asked it lately: what he found is not to be found out again. */
static void take_over_engine(struct probe_target *target)
{
    const struct reading *last = &target->run.last;
    const struct engine *known = detect_engine(last->engine);
    bool usable = last->health == HEALTH_BUSY || health_admits((enum health)last->health);
    if (target->engine != &engine_detect || known == NULL || last->found_by == 0 || !usable)
        return;
    target->engine = known;
    target->found_by = last->found_by;
}

/* ---- one probe ------------------------------------------------------------------------------- */

static void finish(struct probe_target *target)
{
    struct probe_run *run = &target->run;
    struct reading *reading = &run->reading;
    cancel_askings(target);
    target->engine->end(run);
    target->memory = run->memory;
    reading->answered_ns = target->now();
    reading->threads = (int32_t)run->threads;
    if (target->key.open_to_others && reading->detail[0] == '\0')
        run_detail(run, "warning: others may write %s", target->spec.key_file);
    settle_engine(target);
    reading_sanitize(reading);
    reading_rest(reading, &run->last);
    target->running = false;
    target->done(target->arg, reading);
}

static void pump(struct probe_target *target);
static void begin_engine(struct probe_target *target, ns_t now);

/* The engine is known now, and the probe goes on as its own. */
static void become(struct probe_target *target, int kind, const struct http_answer *answer)
{
    struct probe_run *run = &target->run;
    cancel_askings(target);
    target->engine = run->found;
    target->found_by = run->found_by;
    run->found = NULL;
    target->replay = (struct replay){
        .answer = answer, .path = detect_path(kind + 1), .sent_ns = run->asks.sent_ns[kind]};
    begin_engine(target, target->replay.sent_ns);
}

/* One is enough: more is asked only of servers with many threads, or where nothing sits on any. */
static void be_late(struct probe_target *target, struct asking *asking)
{
    if (target->late != NULL) {
        http_cancel(target->http, asking);
        return;
    }
    target->late = asking;
    target->run.reading.hung_ns = asking->sent_ns;
}

static void end_late(struct probe_target *target)
{
    target->over_ns = target->late->sent_ns;
    target->late = NULL;
    target->recovered = true;
}

static void on_answer(void *arg, const struct http_answer *answer)
{
    struct asking *asking = arg;
    struct probe_target *target = asking->target;
    if (asking == target->late) {
        end_late(target);
        return;
    }
    asking->pending = false;
    target->pending--;
    if (answer->failure == HTTP_TIMEOUT_ANSWER)
        note_unanswered(target);
    if (answer->waits)
        be_late(target, asking);
    target->engine->take(&target->run, asking->kind, answer);
    if (target->run.found != NULL)
        become(target, asking->kind, answer);
    pump(target);
}

static int ask_http(struct probe_target *target, const struct engine_ask *question, int left_ms,
                    struct asking *asking)
{
    char url[SPEC_URL_SIZE + ENGINE_PATH_SIZE];
    const char *headers[] = {target->key.header, NULL};
    bool with_key = question->local_port == 0 && target->key.header[0] != '\0';
    if (question->local_port != 0)
        snprintf(url, sizeof url, "http://127.0.0.1:%u%s", question->local_port, question->path);
    else
        snprintf(url, sizeof url, "%s%s", target->spec.probe_url, question->path);
    const char *const *lines = with_key ? headers : NULL;
    if (target->run.threads == THREADS_MANY || question->local_port != 0)
        return http_get(target->http, url, lines, left_ms, left_ms, on_answer, asking);
    return http_get_patiently(target->http, url, lines, left_ms, PROBE_UNANSWERED_MS, on_answer,
                              asking);
}

static int ask(struct probe_target *target, const struct engine_ask *question)
{
    struct asking *asking = &target->askings[question->kind];
    int left_ms = (int)((target->deadline - target->now()) / NS_PER_MS);
    if (left_ms < 1)
        left_ms = 1;
    *asking = (struct asking){.target = target, .kind = question->kind, .sent_ns = target->now()};
    int error = question->program ? program_start(target->http, target->now, target->spec.program,
                                                  target->spec.name, left_ms, on_answer, asking)
                                  : ask_http(target, question, left_ms, asking);
    if (error == 0) {
        asking->pending = true;
        target->pending++;
    }
    return error;
}

static void give_up(struct probe_target *target, enum health health, const char *what, int error)
{
    target->run.reading.health = (int32_t)health;
    target->run.decided = true;
    run_detail(&target->run, "%s: %s", what,
               error == LEASE_EABSENT  ? "not found"
               : error == LEASE_EPERM  ? "may not be read"
               : error == LEASE_EINVAL ? "has no key in its first line"
               : error == LEASE_EFULL  ? "too many at a time"
               : error == LEASE_ENOMEM ? "out of memory"
                                       : "cannot be read");
    finish(target);
}

/* For the engine to say: what cannot be run is a matter of the configuration. */
static void take_no_program(struct probe_target *target, const struct engine_ask *question,
                            int error)
{
    struct http_answer answer = {.failure = HTTP_UNREACHABLE, .body = ""};
    answer.reason = error == LEASE_EABSENT  ? "there is no such program"
                    : error == LEASE_EPERM  ? "it may not be executed"
                    : error == LEASE_EINVAL ? "it is no program (a script begins with #!)"
                    : error == LEASE_EFULL  ? "too many of its processes cannot be killed"
                    : error == LEASE_ENOMEM ? "out of memory or processes"
                                            : "it cannot be started";
    target->engine->take(&target->run, question->kind, &answer);
}

/* True if the question is the one whose answer is at hand. */
static bool take_replay(struct probe_target *target, const struct engine_ask *question)
{
    struct replay replay = target->replay;
    if (replay.answer == NULL || question->local_port != 0 || question->program ||
        strcmp(replay.path, question->path) != 0)
        return false;
    target->replay.answer = NULL;
    target->engine->take(&target->run, question->kind, replay.answer);
    return true;
}

static bool next_question(struct probe_target *target, struct engine_ask *question)
{
    ns_t now = target->replay.answer != NULL ? target->replay.sent_ns : target->now();
    question->local_port = 0;
    question->program = false;
    return !target->run.decided && target->engine->next(&target->run, now, question);
}

/* Sends what there is to be asked now; finishes when there is nothing more. */
static void pump(struct probe_target *target)
{
    struct engine_ask question;
    while (next_question(target, &question)) {
        if (take_replay(target, &question))
            continue;
        int error = ask(target, &question);
        if (error != 0 && question.program) {
            take_no_program(target, &question, error);
        } else if (error != 0) {
            give_up(target, HEALTH_UNKNOWN, error == LEASE_EABSENT ? "libcurl.so.4" : "request",
                    error);
            return;
        }
    }
    target->replay.answer = NULL;
    if (target->run.decided || target->pending == 0)
        finish(target);
}

/* Whoever asked last had found out, or it is what this kind of server is like. */
static enum threads threads_of(const struct probe_target *target)
{
    const struct reading *last = &target->run.last;
    if (target->engine->many_threads)
        return THREADS_MANY;
    return strcmp(last->engine, target->engine->name) == 0 ? (enum threads)last->threads
                                                           : THREADS_UNKNOWN;
}

static void begin_engine(struct probe_target *target, ns_t now)
{
    struct probe_run *run = &target->run;
    ns_t hung_ns = run->reading.hung_ns;
    reading_clear(&run->reading);
    run->reading.hung_ns = hung_ns; /* of a question about the engine */
    run->reading.source = probe_source(&target->spec);
    run->threads = threads_of(target);
    snprintf(run->reading.engine, sizeof run->reading.engine, "%s", target->engine->name);
    target->engine->begin(run, now);
}

static void run_begin(struct probe_target *target, enum probe_wants wants,
                      const struct reading *last)
{
    struct probe_run *run = &target->run;
    if (last != NULL && (last->source == 0 || last->source == probe_source(&target->spec)))
        memmove(&run->last, last,
                sizeof run->last); /* it may be this run's own reading of before */
    else
        reading_clear(&run->last); /* or another server's */
    run->reading.hung_ns = 0;
    take_over_engine(target);
    run->spec = &target->spec;
    run->wants = wants;
    run->memory = target->memory;
    run->decided = false;
    run->found = NULL;
    target->replay.answer = NULL;
    begin_engine(target, target->now());
}

/* When the question was sent that keeps us from asking another one; 0: none does. */
static ns_t hung_since(const struct probe_target *target)
{
    const struct reading *last = &target->run.last;
    ns_t now = target->now();
    if (target->late != NULL)
        return target->late->sent_ns;
    bool other = last->hung_ns != 0 && last->hung_ns != target->over_ns && now >= last->hung_ns &&
                 now - last->hung_ns < PROBE_UNANSWERED_MS * NS_PER_MS;
    return other && last->threads == THREADS_FEW ? last->hung_ns : 0;
}

static void say_hung(struct probe_target *target, ns_t since_ns)
{
    struct probe_run *run = &target->run;
    run->decided = true;
    run->reading.health = HEALTH_BUSY;
    run->reading.hung_ns = since_ns;
    run_detail(run, "no answer for %d s to a question that is not asked again before it comes",
               (int)((target->now() - since_ns) / NS_PER_SEC));
    finish(target);
}

int probe_start(struct http *http, struct probe_target *target, enum probe_wants wants,
                const struct reading *last, int probe_ms, probe_callback *done, void *arg)
{
    if (probe_ms < 1 || probe_ms > HTTP_TIMEOUT_MS_MAX)
        return LEASE_EINVAL;
    if (target->running)
        return LEASE_EBUSY;
    target->running = true;
    target->http = http;
    target->done = done;
    target->arg = arg;
    target->deadline = target->now() + probe_ms * NS_PER_MS;
    run_begin(target, wants, last);
    ns_t since_ns = hung_since(target);
    if (since_ns != 0) {
        say_hung(target, since_ns);
        return 0;
    }
    int error =
        target->spec.key_file[0] == '\0' ? 0 : probe_key_read(&target->key, target->spec.key_file);
    if (error != 0)
        give_up(target, HEALTH_UNAUTHORIZED, target->spec.key_file, error);
    else
        pump(target);
    return 0;
}

/* ---- blocking -------------------------------------------------------------------------------- */

static void keep_reading(void *arg, const struct reading *reading)
{
    struct reading *to = arg;
    *to = *reading;
}

int probe_now(const struct provider_spec *spec, enum probe_wants wants, const struct reading *last,
              int probe_ms, ns_t (*now)(void), struct reading *reading)
{
    struct probe_target *target;
    struct http *http;
    int error = http_open(now, &http);
    if (error != 0)
        return error;
    error = probe_target_new(spec, now, &target);
    if (error == 0)
        error = probe_start(http, target, wants, last, probe_ms, keep_reading, reading);
    if (error == 0)
        http_drain(http);
    probe_target_destroy(&target);
    http_close(&http);
    return error;
}
