/* A snapshot as jansson objects, for tools that add to it or take a part. Each is the caller's
 * (json_decref), NULL without memory. */
#ifndef AGENT_VIEW_JSON_H
#define AGENT_VIEW_JSON_H

#include <jansson.h>

#include "agent/lease.h"

json_t *view_json_fleet(const struct lease_fleet *fleet);
json_t *view_json_provider(const struct lease_fleet *fleet, const struct lease_view *view);

#endif
