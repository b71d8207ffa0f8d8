/* What engines share: which of their questions are to be sent, and how a reading is given up.
 *
 * A kind of question is a number below ENGINE_ASKS_MAX and is sent once a probe. */
#ifndef AGENT_PROBE_ASKS_H
#define AGENT_PROBE_ASKS_H

#include <jansson.h>

#include "agent/engine.h"

/* At the start of every begin. The slots that the operator told stand until the server tells. */
void asks_begin(struct probe_run *run, ns_t now);

/* To be sent, unless it was. */
void asks_want(struct probe_run *run, int kind);

bool asks_sent(const struct probe_run *run, int kind);

/* An engine's `next` for fixed paths, one a kind. */
bool asks_next(struct probe_run *run, ns_t now, const char *const *paths, struct engine_ask *ask);

/* It said that it has no such path: 404, 405, 501. Not for what may be missing for another reason. */
bool asks_absent(const struct http_answer *answer);

/* The probe is over with this health; nothing of what was counted stands. */
void asks_decide(struct probe_run *run, enum health health);

/* The same with health unknown and a line for people. */
void asks_unknown(struct probe_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a failed answer decides: run_take_failure's, and 503 is a server that is starting. True:
 * decided. `what` is the path. */
bool asks_failed(struct probe_run *run, const struct http_answer *answer, const char *what);

/* The body as JSON; NULL: it is none, and decided. The caller decrefs it. */
json_t *asks_json(struct probe_run *run, const struct http_answer *answer, const char *what);

/* The server tells a limit that may be well above what it does well at a time, or below what it has:
 * slots= wins where the operator said it. */
void asks_slots(struct probe_run *run, int64_t told);

/* One of the models that it has; a long name loses its folders, more than fit are left out. */
void asks_model(struct probe_run *run, const char *name, enum model_state state);

/* The work there is, counted by a question of this kind: exact. */
void asks_count(struct probe_run *run, int kind, int in_flight, int queued);

#endif
