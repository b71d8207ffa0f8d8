#include "agent/client.h"
#include "agent/service.h"
int service_open(const char *d, service_handler *h, void *a, struct service **s)
{
    (void)d;
    (void)h;
    (void)a;
    *s = 0;
    return -16;
}
void *service_socket(struct service *s)
{
    (void)s;
    return 0;
}
int service_run(struct service *s)
{
    (void)s;
    return 0;
}
void service_close(struct service **s)
{
    (void)s;
}
int client_ask(const char *d, const struct message *q, struct message *r, int t)
{
    (void)d;
    (void)q;
    (void)r;
    (void)t;
    return -22;
}
