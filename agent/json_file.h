/* JSON files of the runtime directory: read with suspicion, replaced as a whole. */
#ifndef AGENT_JSON_FILE_H
#define AGENT_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>

/* An object of at most size_max bytes, to be given back with json_decref. LEASE_EABSENT: there is no
 * such file; LEASE_EDAMAGED, LEASE_EPERM, LEASE_EIO. *object is NULL then. */
int json_file_read(const char *directory, const char *name, size_t size_max, json_t **object);

/* flags of json_dumps. LEASE_EIO, LEASE_ENOSPC: the old one stays. */
int json_file_write(const char *directory, const char *name, const json_t *object, size_t flags,
                    unsigned mode);

#endif
