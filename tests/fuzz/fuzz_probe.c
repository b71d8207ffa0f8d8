/* Any bodies as what a server answers, in any order, round after round: what is read is within its
 * bounds (tests/lib/bytes.h), nothing is asked without end, and what a book makes of it is the same
 * twice. How the bytes lie: probe_seed.h. */
#define _GNU_SOURCE
#include <stdio.h>

#include "agent/engine.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/probe_seed.h"
#include "tests/lib/bytes.h"

#define ROUNDS_MAX 4
#define ASKED_MAX  64 /* questions of one probe */

static const struct engine *const engines[] = {
    [PROBE_SEED_DETECT] = &engine_detect, [PROBE_SEED_LLAMA] = &engine_llama,
    [PROBE_SEED_VLLM] = &engine_vllm,     [PROBE_SEED_SGLANG] = &engine_sglang,
    [PROBE_SEED_TGI] = &engine_tgi,       [PROBE_SEED_SWAP] = &engine_swap,
    [PROBE_SEED_OLLAMA] = &engine_ollama, [PROBE_SEED_LMSTUDIO] = &engine_lmstudio,
    [PROBE_SEED_EXEC] = &engine_exec,     [PROBE_SEED_STATIC] = &engine_static};

static struct provider_spec spec;
static struct probe_run run;
static char *copies[ASKED_MAX]; /* bodies, each of its own size; they live as long as a probe */
static size_t copied;

/* What is answered in one round. */
struct answers {
    const uint8_t *at, *end;
};

static struct http_answer answer_of(char status, const uint8_t *body, size_t size)
{
    static const struct http_answer kinds[] = {
        {.status = 200, .reason = ""},
        {.status = 404, .reason = ""},
        {.status = 401, .reason = ""},
        {.status = 503, .reason = ""},
        {.status = 500, .reason = ""},
        {.status = 302, .reason = ""},
        {.failure = HTTP_UNREACHABLE, .reason = "connection refused"},
        {.failure = HTTP_TIMEOUT_ANSWER, .reason = "no answer in time"},
        {.failure = HTTP_BROKEN, .reason = "broken"},
    };
    struct http_answer answer = kinds[(unsigned char)status % 16 % (sizeof kinds / sizeof *kinds)];
    if (answer.failure != HTTP_NONE)
        size = 0;
    must(copied < ASKED_MAX);
    answer.body = copies[copied++] = fuzz_text(body, size);
    answer.size = size;
    return answer;
}

/* The first body that was put at this path; 404 where there is none. */
static struct http_answer answer_to(const struct answers *answers, const struct engine_ask *ask)
{
    size_t length = strcspn(ask->path, "?");
    const uint8_t *at = answers->at;
    while (at < answers->end) {
        const uint8_t *next = memchr(at, PROBE_SEED_BODY, (size_t)(answers->end - at));
        const uint8_t *line = next ? memchr(next, '\n', (size_t)(answers->end - next)) : NULL;
        if (!line || line - next < 2)
            break;
        const uint8_t *body = line + 1;
        at = memchr(body, PROBE_SEED_BODY, (size_t)(answers->end - body));
        at = at ? at : answers->end;
        bool asked =
            (size_t)(line - next - 2) == length && memcmp(next + 2, ask->path, length) == 0;
        if (!asked)
            continue;
        struct http_answer answer = answer_of((char)next[1], body, (size_t)(at - body));
        if (ask->program && answer.failure == HTTP_NONE)
            answer.status = answer.status == 200 ? 0 : answer.status % 128;
        return answer;
    }
    return answer_of(PROBE_SEED_404, (const uint8_t *)"{}", 2);
}

/* As agent/probe.c drives it; an engine that is found out goes on as that one. */
static const struct engine *ask_all(const struct engine *engine, const struct answers *answers,
                                    bool late, ns_t now)
{
    struct engine_ask waiting[ENGINE_ASKS_MAX];
    size_t count = 0, asked = 0;
    engine->begin(&run, now);
    for (;;) {
        memset(&waiting[count], 0, count < ENGINE_ASKS_MAX ? sizeof *waiting : 0);
        while (!run.decided && engine->next(&run, now, &waiting[count])) {
            must(memchr(waiting[count].path, '\0', ENGINE_PATH_SIZE) != NULL);
            must(waiting[count].kind >= 0 && waiting[count].kind < ENGINE_ASKS_MAX);
            must(++count < ENGINE_ASKS_MAX && ++asked < ASKED_MAX);
            memset(&waiting[count], 0, sizeof *waiting);
        }
        if (run.decided || count == 0)
            break;
        now += NS_PER_MS;
        size_t turn = late ? count - 1 : 0;
        struct engine_ask ask = waiting[turn];
        memmove(waiting + turn, waiting + turn + 1, (--count - turn) * sizeof *waiting);
        struct http_answer answer = answer_to(answers, &ask);
        engine->take(&run, ask.kind, &answer);
        if (run.found != NULL) {
            engine = run.found;
            run.found = NULL;
            count = 0;
            reading_clear(&run.reading);
            engine->begin(&run, now);
        }
    }
    engine->end(&run);
    run.reading.answered_ns = now;
    return engine;
}

static void must_be_in_bounds(const struct engine *engine)
{
    static struct reading once, twice;
    struct bytes_place place = {.engine = engine, .tells_slots = engine == &engine_exec};
    bytes_check(&place, &run.reading);
    once = run.reading;
    reading_sanitize(&once);
    bytes_check(&place, &once);
    must(once.in_flight >= run.reading.in_flight || run.reading.in_flight > INT32_MAX / 4);
    must(once.health == run.reading.health && once.signal == run.reading.signal);
    must(once.slots_total == run.reading.slots_total);
    twice = once;
    reading_sanitize(&twice);
    must(memcmp(&once, &twice, sizeof once) == 0);
    must(fuzz_is_line(once.detail, sizeof once.detail));
    for (int i = 0; i < once.model_count; i++)
        must(fuzz_is_line(once.models[i].name, sizeof once.models[i].name));
    run.last = once;
}

static void begin_server(unsigned how)
{
    memset(&spec, 0, sizeof spec);
    memset(&run, 0, sizeof run);
    spec.slots = how & PROBE_SEED_SLOTS ? 8 : -1;
    spec.port = 11434;
    (void)snprintf(spec.model, sizeof spec.model, "%s", how & PROBE_SEED_MODEL ? "coder" : "");
    (void)snprintf(spec.key_file, sizeof spec.key_file, "%s", how & PROBE_SEED_KEY ? "/k" : "");
    run.spec = &spec;
    run.wants = how & PROBE_SEED_FULL ? PROBE_FULL : PROBE_QUICK;
    reading_clear(&run.last);
}

static void forget_bodies(void)
{
    while (copied > 0)
        free(copies[--copied]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    ns_t now = 1000 * NS_PER_SEC;
    must(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0); /* the checks are a test's */
    if (size < 2)
        return 0;
    const struct engine *engine = engines[bytes[0] % PROBE_SEED_ENGINES];
    unsigned how = bytes[1];
    struct answers answers = {.at = bytes + 2};
    begin_server(how);
    if (engine == &engine_static)
        spec.slots = 8;
    for (int i = 0; i < ROUNDS_MAX && answers.at < bytes + size; i++) {
        answers.end = memchr(answers.at, PROBE_SEED_ROUND, (size_t)(bytes + size - answers.at));
        answers.end = answers.end ? answers.end : bytes + size;
        run.decided = false;
        reading_clear(&run.reading);
        engine = ask_all(engine, &answers, how & PROBE_SEED_LATE, now);
        must_be_in_bounds(engine);
        forget_bodies();
        answers.at = answers.end + 1;
        now += (how & PROBE_SEED_LONG ? 90 : 2) * NS_PER_SEC;
    }
    return 0;
}
