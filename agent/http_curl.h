/* libcurl, loaded when first needed, and the signals that it must not see. Internal to http.c. */
#ifndef AGENT_HTTP_CURL_H
#define AGENT_HTTP_CURL_H

#include <signal.h>
#include <stdbool.h>

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

/* X(type of the result, name, parameters): every function of libcurl that is used. */
#define CURL_FUNCTIONS(X)                                                                          \
    X(CURLcode, global_init, (long))                                                               \
    X(CURL *, easy_init, (void))                                                                   \
    X(void, easy_cleanup, (CURL *))                                                                \
    X(CURLcode, easy_setopt, (CURL *, CURLoption, ...))                                            \
    X(CURLcode, easy_getinfo, (CURL *, CURLINFO, ...))                                             \
    X(const char *, easy_strerror, (CURLcode))                                                     \
    X(CURLM *, multi_init, (void))                                                                 \
    X(CURLMcode, multi_cleanup, (CURLM *))                                                         \
    X(CURLMcode, multi_setopt, (CURLM *, CURLMoption, ...))                                        \
    X(CURLMcode, multi_add_handle, (CURLM *, CURL *))                                              \
    X(CURLMcode, multi_remove_handle, (CURLM *, CURL *))                                           \
    X(CURLMcode, multi_socket_action, (CURLM *, curl_socket_t, int, int *))                        \
    X(CURLMcode, multi_assign, (CURLM *, curl_socket_t, void *))                                   \
    X(CURLMsg *, multi_info_read, (CURLM *, int *))                                                \
    X(struct curl_slist *, slist_append, (struct curl_slist *, const char *))                      \
    X(void, slist_free_all, (struct curl_slist *))

struct http_curl {
#define CURL_FIELD(result, name, parameters) result(*name) parameters;
    CURL_FUNCTIONS(CURL_FIELD)
#undef CURL_FIELD
};

/* Of a library that was found by http_curl_load. */
extern struct http_curl http_curl;

/* False: there is no libcurl, or one without a function that is used. Loads it once; any thread. */
bool http_curl_load(void);

/* Threads of libcurl's inherit our mask, and its TLS writes may raise SIGPIPE: while libcurl runs,
 * this thread takes no signal, and a SIGPIPE that it caused is swallowed. */
struct shield {
    sigset_t before;
    bool had_pipe;
};

void shield_up(struct shield *shield);
void shield_down(const struct shield *shield);

#endif
