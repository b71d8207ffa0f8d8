/* tcp://HOST:PORT, taken apart and put together. HOST is a name or an address, in brackets where it is
 * an IPv6 one. Nothing here asks a resolver. */
#ifndef AGENT_ENDPOINT_H
#define AGENT_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#define ENDPOINT_SIZE      128 /* with its end, as on the wire */
#define ENDPOINT_PORT      5771
#define ENDPOINT_HOST_SIZE 112

struct endpoint {
    char host[ENDPOINT_HOST_SIZE]; /* without brackets */
    uint16_t port;
    bool has_port;
};

/* False where it is none; *endpoint is unchanged then. */
bool endpoint_parse(const char *text, struct endpoint *endpoint);

/* text has ENDPOINT_SIZE bytes. */
void endpoint_format(const char *host, uint16_t port, char *text);

bool endpoint_is_numeric(const char *host);
bool endpoint_is_loopback(const char *host); /* localhost, too */
bool endpoint_is_any(const char *host); /* every address of the host: tells no one where it is */

#endif
