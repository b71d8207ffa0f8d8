/* What the files of engineserver share. One lock guards everything; MHD gives each connection a
 * thread of its own. */
#ifndef ENGINESERVER_INTERNAL_H
#define ENGINESERVER_INTERNAL_H

#include "tests/lib/engineserver.h"
#include "tests/lib/slotserver_internal.h"

enum { SWAP_MODELS_MAX = 8, CHANGES_MAX = 4096, LOOK_US = 20000 };

enum server_kind {
    IS_VLLM,
    IS_SGLANG,
    IS_TGI,
    IS_SWAP,
    IS_SKEIN,
    IS_OLLAMA,
    IS_STUDIO,
    KIND_COUNT
};

/* How much ran and waited from a moment on. */
struct change {
    int64_t at;
    unsigned running, waiting;
};

struct job {
    TAILQ_ENTRY(job) link;
    int model;
};
TAILQ_HEAD(job_list, job);

struct engineserver {
    struct engineserver_options options;
    enum server_kind kind;
    struct MHD_Daemon *daemon;
    unsigned port;
    int64_t started, loaded_at;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* anything that a request may wait for */
    bool stopping;
    struct job_list line; /* those that wait, in order */
    struct engineserver_stats stats;
    struct change changes[CHANGES_MAX]; /* the last ones, a ring */
    unsigned long change_count;
    char *names;
    const char *models[SWAP_MODELS_MAX];
    int model_count;
    int current; /* the model that runs; -1: none */
    bool starting;
    int64_t idle_since;
};

struct visit {
    struct engineserver *server;
    struct MHD_Connection *connection;
    const char *method, *path;
    struct text body;
};

/* engineserver_work.c; with the lock held */
void work_changed(struct engineserver *server);
struct change work_at(const struct engineserver *server, int64_t when);
void work_tidy(struct engineserver *server); /* stops a model that was idle for too long */
/* From its arrival to its end; false: its client has gone, or the server stops. ms < 0: until the
 * client goes. */
bool work_do(struct engineserver *server, int model, long ms, int fd);
bool work_ensure_model(struct engineserver *server, int model, int fd);

/* engineserver_pages.c */
enum MHD_Result pages_serve(struct visit *visit);

int model_of(const struct engineserver *server, const char *name); /* -1: none */

#endif
