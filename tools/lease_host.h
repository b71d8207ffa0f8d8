/* What the runtime directory tells about who speaks for this host. */
#ifndef TOOLS_LEASE_HOST_H
#define TOOLS_LEASE_HOST_H

#include <stdbool.h>

/* A process speaks for the directory and is not stopped: it renews what is tied to a pid. */
bool host_speaker_lives(const char *directory);

#endif
