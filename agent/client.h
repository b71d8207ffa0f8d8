#ifndef AGENT_CLIENT_H
#define AGENT_CLIENT_H
#include "proto/message.h"
int client_ask(const char *directory, const struct message *request, struct message *reply,
               int timeout_ms);
#endif
