/* An API key in a file: read again whenever the file has changed, so that a key can be replaced
 * without a restart. Its first line without white space around it; printable ASCII.
 *
 * Thread rules: a struct belongs to one thread at a time. */
#ifndef AGENT_PROBE_KEY_H
#define AGENT_PROBE_KEY_H

#include <stdbool.h>
#include <stdint.h>

#define PROBE_KEY_SIZE 1024 /* a longer first line is refused */

/* Zeroed: nothing read yet. */
struct probe_key {
    char header[PROBE_KEY_SIZE + 32]; /* "Authorization: Bearer ..." */
    bool open_to_others;              /* group or others may write the file */
    uint64_t device, inode, size;     /* of the file as it was read */
    int64_t changed_ns;
};

/* Brings key up to date with the file. LEASE_EABSENT, LEASE_EPERM, LEASE_EIO (no regular file),
 * LEASE_EINVAL (no key on its first line): key is wiped. */
int probe_key_read(struct probe_key *key, const char *path);

/* Overwrites it. */
void probe_key_wipe(struct probe_key *key);

#endif
