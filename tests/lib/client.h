/*
 * Two sorts of HTTP clients for tests: one that asks and waits for the answer, and one that has
 * asked and is left in the middle of it, to be looked at or to go away.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLIENT_TIMED_OUT = 28 }; /* CURLE_OPERATION_TIMEDOUT */

struct answer {
    long status; /* 0: none, see error */
    int error;   /* a CURLcode */
    char *body;  /* never NULL */
    size_t length;
    json_t *json; /* NULL if it is none */
    int64_t ms;
};

/* header: one more line, or NULL. json: NULL for a GET. */
struct answer client_ask(unsigned port, const char *path, const char *json, const char *header,
                         long timeout_ms);
struct answer client_get(unsigned port, const char *path);
struct answer client_post(unsigned port, const char *path, const char *json);
void client_done(struct answer *answer);

/* Sends the request and returns the socket. */
int client_begin(unsigned port, const char *path, const char *json);
bool client_heard(int fd, int64_t within_ms); /* whether a byte has come, or the end */
void client_leave(int fd);
/* Reads to the end of the body or of the connection; for free(). */
char *client_rest(int fd);

int64_t client_now_ms(void);
void client_pause_ms(int64_t ms); /* between two looks, never in the hope of something */

#endif
