#define _GNU_SOURCE
#include "agent/http_curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct http_curl http_curl;
static bool usable;

static bool take_symbol(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol); /* ISO C has no cast from object to function */
    return symbol != NULL;
}

static void load(void)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return;
    bool all = true;
#define CURL_LOAD(result, name, parameters)                                                        \
    all = take_symbol(library, "curl_" #name, &http_curl.name) && all;
    CURL_FUNCTIONS(CURL_LOAD)
#undef CURL_LOAD
    usable = all && http_curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

bool http_curl_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return usable;
}

/* ---- signals --------------------------------------------------------------------------------- */

static bool pipe_is_pending(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void shield_up(struct shield *shield)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &shield->before);
    shield->had_pipe = pipe_is_pending();
}

void shield_down(const struct shield *shield)
{
    if (!shield->had_pipe && pipe_is_pending()) {
        sigset_t pipe_only;
        int taken;
        sigemptyset(&pipe_only);
        sigaddset(&pipe_only, SIGPIPE);
        sigwait(&pipe_only, &taken);
    }
    pthread_sigmask(SIG_SETMASK, &shield->before, NULL);
}
