/* The configuration file of `lease` and `lease-agent`: ZPL, read through zconfig.
 *
 * Its keys are the flags of `lease-agent` without their dashes, plus `pool`. Not a part of
 * liblease, since czmq has no business in a stranger's process: there the providers come from
 * what the speaker left in the runtime directory.
 *
 * zconfig prints what it cannot parse to stdout and miscounts long lines, so every line is checked
 * here first and zconfig sees only what it can read. It starts no thread and takes no signal.
 *
 * A file is untrusted input: whatever it holds, the answer is a struct within the bounds below or
 * one line with file and line number. Nothing here is shared between threads. */
#ifndef AGENT_CONFIG_H
#define AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "broker/limits.h"

/* What is beyond these bounds is refused, except for warnings: further ones are dropped. */
#define CONFIG_BYTES_MAX     (256 * 1024)
#define CONFIG_LINE_MAX      1000 /* bytes; zconfig's own buffer is 1,024 */
#define CONFIG_ITEMS_MAX     4096 /* lines that set something */
#define CONFIG_POOLS_MAX     64
#define CONFIG_MEMBERS_MAX   PROVIDERS_MAX /* providers of one pool */
#define CONFIG_ENDPOINTS_MAX 512           /* each of listen and peer */
#define CONFIG_WARNINGS_MAX  16
#define CONFIG_PATH_SIZE     4096
#define CONFIG_ERROR_SIZE    512

struct config_list {
    char **items; /* ends with a NULL beyond `count` */
    size_t count;
};

struct config_pool {
    char name[NAME_SIZE];
    struct config_list members; /* names of providers, in the order to try */
};

/* NULL, false or empty: not set. All text belongs to the struct. */
struct config {
    char *path; /* the file it was read from */
    char *name;
    char *dir;
    char *publish;
    char *advertise;
    char *http;
    bool beacon;
    bool relay;
    bool insecure;
    struct config_list providers; /* NAME=SPEC, as on the command line */
    struct config_list listen;
    struct config_list peers;    /* ENDPOINT[,name=PEER] */
    struct config_list warnings; /* one line each, with file and line number */
    struct config_pool *pools;
    size_t pool_count;
};

/* Writes the path of the file to read into `path` (CONFIG_PATH_SIZE bytes): `given` where it is
 * not NULL, otherwise the first that exists of $XDG_CONFIG_HOME/leasehold/leasehold.conf
 * (~/.config) and /etc/leasehold/leasehold.conf. False, and "" in path, where there is none. */
bool config_find(const char *given, char *path);

/* The path in the user's own folder, whether it exists or not: where a first configuration
 * belongs. False where neither $XDG_CONFIG_HOME nor $HOME is set. */
bool config_user_path(char *path);

/* Reads a file, or a text of `size` bytes for which `path` is only a name. 0 or a negative
 * LEASE_E...; then `config` is empty and `error` (CONFIG_ERROR_SIZE bytes) has one line: what is
 * wrong where, and what to do. Give a config that was read to config_free. */
int config_load(const char *path, struct config *config, char *error);
int config_parse(const char *path, const char *text, size_t size, struct config *config,
                 char *error);

/* Frees what is in it and leaves it empty. */
void config_free(struct config *config);

/* NULL where no pool has that name. */
const struct config_pool *config_pool(const struct config *config, const char *name);

#endif
