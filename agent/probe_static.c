/* static:N: nobody is asked, leases alone decide. */
#include "agent/engine.h"

static void begin(struct probe_run *run, ns_t now)
{
    run->reading.sent_ns = now;
    run->reading.health = HEALTH_OK;
    run->reading.slots_total = run->spec->slots;
    run_detail(run, "static: the server is not asked");
}

static bool next(struct probe_run *run, ns_t now, struct engine_ask *ask)
{
    (void)run;
    (void)now;
    (void)ask;
    return false;
}

static void take(struct probe_run *run, int kind, const struct http_answer *answer)
{
    (void)run;
    (void)kind;
    (void)answer;
}

static void end(struct probe_run *run)
{
    (void)run;
}

const struct engine engine_static = {"static", begin, next, take, end, true};
