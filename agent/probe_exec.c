/* exec:PROGRAM: a program is run and says in one JSON object what there is.
 *
 *   slots_total  how many; slots= may stand for it
 *   in_flight    how many of them are in use; without it leases alone decide
 *   queued       what waits                              optional, as all that follows
 *   health       ok, busy, loading, sleeping, unloaded, unauthorized, down; ok where it is not said
 *   detail       one line for people
 *
 * null is unknown. Anything but one object printed in time by a program that then ends with 0 is not
 * believed. What counts a program is as exact as the program. */
#include <stdio.h>
#include <string.h>

#include "agent/probe_asks.h"
#include "agent/probe_json.h"

enum kind { KIND_RUN };

static void begin(struct probe_run *run, ns_t now)
{
    asks_begin(run, now);
    asks_want(run, KIND_RUN);
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    static const char *const paths[ENGINE_ASKS_MAX] = {[KIND_RUN] = ""};
    ask->program = true;
    return asks_next(run, now, paths, ask);
}

static bool count_of(const json_t *object, const char *key, int *value)
{
    return json_is_null(json_object_get(object, key)) || probe_json_count(object, key, value);
}

static bool health_of(const char *name, enum health *health)
{
    for (*health = HEALTH_UNKNOWN; *health <= HEALTH_DOWN; (*health)++)
        if (strcmp(health_name(*health), name) == 0)
            return true;
    return false;
}

static void take_object(struct probe_run *run, const json_t *object)
{
    const char *word = "ok", *detail = "";
    enum health health;
    int total = -1, in_flight = -1, queued = -1;
    if (!json_is_object(object) || !count_of(object, "slots_total", &total) ||
        !count_of(object, "in_flight", &in_flight) || !count_of(object, "queued", &queued) ||
        !probe_json_text(object, "health", &word) || !probe_json_text(object, "detail", &detail)) {
        asks_unknown(run, "it prints a field of the wrong type");
        return;
    }
    if (!health_of(word, &health)) {
        asks_unknown(run, "it prints health '%.40s', which there is not", word);
        return;
    }
    asks_slots(run, total);
    run_detail(run, "%s", detail);
    if (!health_admits(health))
        asks_decide(run, health);
    else if (run->reading.slots_total <= 0)
        asks_unknown(run, "it prints no slots_total");
    else if (in_flight >= 0)
        asks_count(run, KIND_RUN, in_flight, queued);
    else if (detail[0] == '\0')
        run_detail(run, "it does not tell the work in flight");
    if (!run->decided)
        run->reading.health = (int32_t)health;
}

static void take_failure(struct probe_run *run, const struct http_answer *answer)
{
    const char *program = run->spec->program;
    if (answer->failure == HTTP_TIMEOUT_ANSWER) {
        run_detail(run, "%s", answer->reason);
        asks_decide(run, HEALTH_BUSY);
    } else if (answer->failure == HTTP_UNREACHABLE) {
        asks_unknown(run, "%.80s: %s", program, answer->reason);
    } else if (answer->failure != HTTP_NONE) {
        asks_unknown(run, "%s", answer->reason);
    } else if (answer->status > 0) {
        asks_unknown(run, "it ended with exit code %d", answer->status);
    } else {
        asks_unknown(run, "it was ended by signal %d", -answer->status);
    }
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    (void)kind;
    if (run->decided)
        return;
    if (answer->failure != HTTP_NONE || answer->status != 0) {
        take_failure(run, answer);
        return;
    }
    json_t *object = probe_json(answer->body, answer->size);
    if (object == NULL)
        asks_unknown(run, "it prints no JSON object");
    else
        take_object(run, object);
    json_decref(object);
}

static void end(struct probe_run *run)
{
    (void)run;
}

const struct engine engine_exec = {"exec", begin, next, take, end, true};
