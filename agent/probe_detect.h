/* Which engine a server is, by what it answers to a bare http://. Thread-safe. */
#ifndef AGENT_PROBE_DETECT_H
#define AGENT_PROBE_DETECT_H

#include "agent/engine.h"

/* What told it, for people: "/props". "" for 0 and for what is no number of a path. */
const char *detect_path(int found_by);

/* The engine of a reading, if it is one that is found out; else NULL. */
const struct engine *detect_engine(const char *name);

#endif
