/* How one kind of server is asked: a state machine without socket or clock, one a file
 * (probe_llama.c, ...). probe.c drives it over HTTP, tests drive it with recorded answers.
 *
 *   begin            then, until next says false with nothing unanswered:
 *   next             the next question to send now; several may be under way
 *   take             the answer to one of them, in any order
 *   end              the reading is complete, except for answered_ns
 *
 * Everything lies in struct probe_run. Thread rules: plain data. */
#ifndef AGENT_ENGINE_H
#define AGENT_ENGINE_H

#include <stdbool.h>

#include "agent/http.h"
#include "agent/ollama_child.h"
#include "agent/probe.h"
#include "agent/spec.h"
#include "broker/reading.h"

#define ENGINE_PATH_SIZE 512
#define ENGINE_ASKS_MAX  8 /* kinds of question of one engine */

/* Zeroed before each `next`; most engines set kind and path alone. */
struct engine_ask {
    int kind; /* the engine's own number, below ENGINE_ASKS_MAX */
    char path[ENGINE_PATH_SIZE];
    uint16_t local_port; /* not 0: this port of 127.0.0.1 is asked instead, without the key */
    bool program;        /* the spec's program is run; what it prints is the body, and `status` its
                          * exit code, or minus a signal; HTTP_UNREACHABLE: it could not be */
};

/* What vLLM's two counts were found to be worth; see probe_vllm.c. */
struct vllm_memory {
    bool believed;  /* /load counts */
    bool drifted;   /* /load counts wrongly, until it restarts */
    ns_t odds_ns;   /* since when it contradicts the gauges; 0: it does not */
    ns_t gauges_ns; /* when the gauges were last asked for that then answered; 0 never */
    int waiting;    /* by them */
    bool cache_full;
    double started; /* the server's own time of its start; 0: not told */
};

struct sglang_memory {
    int way;   /* the kind of question that was answered last */
    int ranks; /* how many told their load */
};

struct swap_memory {
    bool no_hardware; /* it has no /api/hardware */
};

struct ollama_memory {
    struct ollama_child child; /* pid 0: none found */
    ns_t looked_ns;            /* when the process list was last read; 0 never */
};

struct detect_memory {
    ns_t in_vain_ns;   /* when all was asked last that told no engine; 0 never */
    uint64_t props;    /* a hash of what /props answered then */
    unsigned answered; /* by bits of kinds, before time was over */
};

/* What is remembered of a server from one probe to the next. Zeroed: nothing. */
struct engine_memory {
    ns_t awake_ns; /* when a question that keeps it awake was sent that it then answered; 0 never */
    ns_t told_ns;  /* when it last told whether it can sleep; 0 never */
    bool can_sleep;
    bool seen_asleep;
    bool slots_off;
    struct vllm_memory vllm;
    struct sglang_memory sglang;
    struct swap_memory swap;
    struct ollama_memory ollama;
    struct detect_memory detect;
};

/* llama.cpp's, set by begin. Flags and counts are -1 where nothing is told. */
struct llama_state {
    unsigned todo;  /* bits of questions still to be sent */
    unsigned asked; /* bits of questions sent */
    ns_t asked_ns[ENGINE_ASKS_MAX];
    bool router;
    bool known_awake; /* /slots was asked first: whether it sleeps was not */
    bool slots_known;
    bool slots_off; /* said by /slots itself */
    int endpoint_slots;
    int endpoint_metrics;
    int processing; /* of /metrics */
    int deferred;
    bool metrics_odd; /* they were answered, and not with what they are */
};

/* Of the engines that use probe_asks.h. Bits by kind. */
struct asks {
    unsigned todo, sent;
    ns_t sent_ns[ENGINE_ASKS_MAX];
};

struct vllm_state {
    bool load_told, metrics_answered;
    int load;
    int running, waiting; /* by the gauges; -1: not told */
};

struct swap_state {
    bool running_told;
    bool hardware_due; /* was asked for and has not answered */
    bool slots_told;
    bool at_peer;
    enum model_state wanted; /* of model= */
    int ttl;                 /* of model=; -1: not told */
    int running, ready;      /* models */
    int in_flight, slots;    /* of all; in_flight is -1 where nothing is told */
};

/* Of an engine that is being found out, probe_detect.c. */
struct detect_state {
    unsigned answered;          /* bits of kinds */
    uint64_t props;             /* a hash of what /props answers; 0: not with 200 */
    bool starting;              /* 503 to something */
    struct http_answer refused; /* 401 or 403 to something; status 0: to nothing */
    const struct mark *best;    /* so far */
};

struct ollama_state {
    int models;   /* loaded, as far as told */
    bool loaded;  /* the one that is wanted, or any */
    bool counted; /* by its child */
};

struct probe_run {
    const struct provider_spec *spec;
    enum probe_wants wants;
    struct engine_memory memory;
    struct reading last; /* all unknown where there is none; sent_ns 0 */
    struct reading reading;
    enum threads threads; /* as far as known; reading.threads at the end */
    bool rest_is_over;    /* who only looks may ask what keeps an idle server awake */
    bool decided;         /* the reading is complete: what is still unanswered is not waited for */
    struct llama_state llama;
    struct asks asks;
    struct vllm_state vllm;
    struct swap_state swap;
    struct ollama_state ollama;
    struct detect_state detect;
    const struct engine *found; /* by `take` of engine_detect: this one goes on */
    int found_by;               /* see struct reading */
};

struct engine {
    const char *name;
    void (*begin)(struct probe_run *run, ns_t now);
    bool (*next)(struct probe_run *run, ns_t now, struct engine_ask *ask);
    void (*take)(struct probe_run *run, int kind, const struct http_answer *answer);
    void (*end)(struct probe_run *run);
    bool many_threads; /* of every server of this kind */
};

extern const struct engine engine_llama;
extern const struct engine engine_static;
extern const struct engine engine_vllm;
extern const struct engine engine_sglang;
extern const struct engine engine_tgi;
extern const struct engine engine_swap;
extern const struct engine engine_ollama;
extern const struct engine engine_lmstudio;
extern const struct engine engine_exec;
extern const struct engine engine_detect;

/* Never NULL: what is not known is to be found out. */
const struct engine *engine_of(enum engine_kind kind);

/* Health, and one line for people; what came from outside is made printable and cut. */
void run_detail(struct probe_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What every engine makes of a failed answer, and of 401, 403, redirects and other refusals: true
 * if the answer was one of these; then health and detail are set. `what` is the path for people. */
bool run_take_failure(struct probe_run *run, const struct http_answer *answer, const char *what);

#endif
