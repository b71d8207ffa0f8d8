#ifndef AGENT_SERVICE_H
#define AGENT_SERVICE_H
#include "proto/message.h"
struct service;
typedef void service_handler(void *arg, const struct message *request, struct message *reply);
int service_open(const char *directory, service_handler *handler, void *arg,
                 struct service **service);
void *service_socket(struct service *service);
int service_run(struct service *service);
void service_close(struct service **service);
#endif
