/*
 * What the files of slotserver share. One lock guards everything that more than one thread sees;
 * MHD gives each connection a thread of its own, as llama-server's HTTP library does, and each
 * model has one more that stands for its decoding loop.
 */
#ifndef SLOTSERVER_INTERNAL_H
#define SLOTSERVER_INTERNAL_H

#include "tests/lib/slotserver.h"

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum {
    SILENCE_US = 1000000, /* a second without any result: then the server looks after its clients */
    KEEP_ALIVE_SEC = 5,
    KEEP_ALIVE_REQUESTS = 100,
    MODELS_MAX = 16,
    PATHS_MAX = 64,
    PATH_SIZE = 64,
    TASKS_OF_CALL_MAX = 1024,
    BODY_MAX = 64 << 20,
};

/* One prompt that needs one slot. Shared by the call that waits for it and the engine. */
struct task {
    TAILQ_ENTRY(task) link;
    unsigned refs;
    long id;
    int index; /* in its call */
    int pin;   /* the slot that it insists on, -1: any */
    long n_prompt, n_prefilled;
    long n_predict, n_decoded; /* n_predict < 0: until the context is full */
    long fail_after;           /* a failure in mid-stream after so many tokens; < 0: none */
    double temperature;
    bool stream;
    bool queued; /* no slot was free when it came */
    bool begun;  /* has or had a slot */
    bool done, failed, truncated;
    bool cancelled;
    int slot;
    int64_t arrived, begun_at, generating_at, ended_at;
};
TAILQ_HEAD(task_list, task);

struct slot {
    struct task *task; /* NULL: idle */
    struct task last;  /* a copy that stays to be shown when idle */
    bool used;         /* had a task ever */
    long step;         /* prompt tokens in the current decode; 0: generates */
    int64_t last_used;
};

struct engine {
    struct slotserver *server;
    const char *name;
    pthread_t thread;
    pthread_cond_t work;
    struct slot *slots;
    struct task_list incoming; /* not looked at before the current decode ends */
    struct task_list deferred;
    unsigned n_deferred;
    unsigned in_system; /* tasks that have not ended */
    bool decoding;
    unsigned long turns;   /* decodes that have ended */
    int64_t decoded_until; /* 0: rested since */
    int64_t last_result;
    bool loading, loaded;
    bool sleeping, wake_wanted;
    int64_t idle_since;
    long prompt_tokens, predicted_tokens, decodes, busy_in_decodes, longest;
    int64_t prompt_us, predicted_us;
};

struct connection {
    TAILQ_ENTRY(connection) link;
    bool placed;  /* has an HTTP thread */
    bool waiting; /* in the line for one */
    bool exempt;  /* asked for a control path */
    unsigned requests;
};
TAILQ_HEAD(connection_list, connection);

struct path_count {
    char path[PATH_SIZE];
    unsigned long n;
};

enum misbehaviour {
    BEHAVE,
    HANG,
    HTML,
    TRUNCATED,
    CUT,
    HUGE_BODY,
    GARBAGE,
    REDIRECT,
    REFUSE_SLOTS,
};

struct slotserver {
    struct slotserver_options options;
    enum slotserver_version version;
    char *names; /* what the engines' names point into */
    struct MHD_Daemon *daemon;
    unsigned port;
    int64_t loaded_at;
    pthread_mutex_t lock;
    pthread_cond_t results; /* anything that a connection may wait for has changed */
    bool stopping;
    bool terminated;
    struct engine engines[MODELS_MAX];
    unsigned n_engines;
    long next_task;
    unsigned calls;   /* completions in flight */
    unsigned unheard; /* of them those whose client has not had a byte */
    struct connection_list line;
    unsigned places_taken;
    enum misbehaviour misbehaviour;
    struct slotserver_stats stats;
    struct path_count paths[PATHS_MAX];
    struct path_count askers[PATHS_MAX]; /* addresses that asked, not counting control paths */
};

struct text {
    char *at;
    size_t length, size;
};

/* A completion in flight. */
struct call {
    struct slotserver *server;
    struct engine *engine;
    enum { COMPLETION, OAI_COMPLETION, CHAT } kind;
    int fd;
    bool stream, several, include_usage;
    bool heard; /* its client has had a byte */
    char model[64];
    char prompt[128];
    char id[48];
    int n_tasks;
    struct task **tasks;
    long *n_sent; /* of each task, for streams; -1 past its last event */
    int n_ended;  /* streams: tasks whose last event was sent */
    struct text out;
    size_t out_read;
};

struct request {
    struct slotserver *server;
    struct MHD_Connection *connection;
    struct connection *line;
    const char *method, *path;
    struct engine *engine;
    struct text body;
    struct call *call;
    bool counted;
};

typedef enum MHD_Result (*page)(struct request *request);

/* slotserver_util.c */
int64_t now_us(void);
void condition_init(pthread_cond_t *condition);
bool wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t when);
void text_add(struct text *text, const char *bytes, size_t length);
void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);
bool peer_gone(int fd);

/* slotserver_engine.c; all but start and join with the lock held */
void engine_start(struct engine *engine);
void engine_join(struct engine *engine);
void engine_free(struct engine *engine);
void engine_submit(struct engine *engine, struct task *task);
void engine_cancel(struct engine *engine, struct task *task);
unsigned engine_busy(const struct engine *engine);
void engine_restart(struct engine *engine); /* slots as if never used */
void engine_wake(struct engine *engine);
void engine_told(struct engine *engine); /* a result was produced for somebody */
void task_unref(struct task *task);

/* slotserver_router.c; with the lock held */
struct engine *models_find(struct slotserver *server, const char *name);
void models_load(struct engine *engine);

/* slotserver_bodies.c */
json_t *body_params(const struct slotserver *server, const struct task *task, bool whole);
json_t *body_slots(const struct engine *engine);
json_t *body_props(const struct engine *engine);
json_t *body_models(const struct slotserver *server, bool loading);
json_t *body_error(enum slotserver_version version, int code, const char *type, const char *text);
void body_model_name(const struct engine *engine, char *name, size_t size);

/* slotserver_metrics.c */
void body_metrics(const struct engine *engine, struct text *out);

/* slotserver_router.c */
json_t *body_router_props(const struct slotserver *server);
json_t *body_router_models(const struct slotserver *server);

/* slotserver_events.c */
json_t *call_answer(struct call *call);
void call_more(struct call *call); /* whatever there is to stream, into call->out */
bool call_ready(const struct call *call);
const char *build_of(enum slotserver_version version);

/* slotserver_completion.c */
enum MHD_Result completion_page(struct request *request);
void completion_end(struct request *request);

/* slotserver_pages.c */
enum MHD_Result answer_text(struct request *request, unsigned status, const char *type,
                            const char *text, size_t length);
enum MHD_Result answer_json(struct request *request, unsigned status, json_t *body);
enum MHD_Result answer_error(struct request *request, unsigned status, const char *type,
                             const char *text);
enum MHD_Result answer_response(struct request *request, unsigned status, const char *type,
                                struct MHD_Response *response);
enum MHD_Result dispatch(struct request *request);
const char *argument(const struct request *request, const char *name);

/* slotserver_http.c */
struct MHD_Daemon *http_start(struct slotserver *server);

/* slotserver_misbehave.c */
bool misbehaviour_parse(const char *word, enum misbehaviour *misbehaviour);
bool misbehaves_on(enum misbehaviour misbehaviour, const char *path);
enum MHD_Result misbehave(struct request *request, enum misbehaviour misbehaviour);

/* PATHS_MAX of them; what finds no room is counted as "other". */
void stats_count(struct path_count *counts, const char *path);
json_t *stats_json(struct slotserver *server);

/* slotserver_control.c */
enum MHD_Result control_page(struct request *request);

#endif
