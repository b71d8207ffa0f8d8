/* What an operator writes about a provider: NAME=SPEC, taken apart and checked.
 *
 *   SPEC    http://HOST[:PORT][/PATH]         which engine it is, is found out
 *           ENGINE+http://HOST[:PORT][/PATH]  it is that one (https:// in both too)
 *           static:N                          N slots, nobody is asked
 *           exec:PROGRAM                      a program is asked; no shell, and always last: all
 * that follows is PROGRAM, commas too options, in any order before or after a source and parted by
 * commas: slots=N model=NAME group=NAME[:N] url=URL own=yes|no key-file=PATH
 *
 * A URL holds no comma, no user and password, no query and no fragment. A port that is missing is
 * 80 or 443. A PATH stands before every path that is asked; a last /v1, which clients want, does
 * not.
 *
 * Thread rules: plain data, no pointers. Nothing here allocates. */
#ifndef AGENT_SPEC_H
#define AGENT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/limits.h"

/* Longer texts are refused. */
#define SPEC_URL_SIZE   512
#define SPEC_HOST_SIZE  254
#define SPEC_MODEL_SIZE 128
#define SPEC_FILE_SIZE  512
#define SPEC_ERROR_SIZE 256

enum engine_kind {
    ENGINE_AUTO = 0, /* found out by what it answers */
    ENGINE_LLAMA_CPP,
    ENGINE_LLAMA_SWAP,
    ENGINE_VLLM,
    ENGINE_SGLANG,
    ENGINE_TGI,
    ENGINE_OLLAMA,
    ENGINE_LMSTUDIO,
    ENGINE_EXEC,
    ENGINE_STATIC,
    ENGINE_COUNT,
};

enum spec_own { OWN_BY_URL = 0, OWN_YES, OWN_NO };

struct provider_spec {
    char name[NAME_SIZE];
    enum engine_kind engine;
    enum spec_own own;
    char url[SPEC_URL_SIZE];       /* as written, without ENGINE+; "" for static and exec */
    char probe_url[SPEC_URL_SIZE]; /* what probed paths are appended to: no slash at its end */
    char host[SPEC_HOST_SIZE];     /* without brackets; "" for static and exec */
    uint16_t port;
    int32_t slots; /* slots=, or the N of static; -1: not told */
    char model[SPEC_MODEL_SIZE];
    char group[NAME_SIZE];
    int32_t group_limit;            /* members of the group at a time, 1 by default */
    char client_url[SPEC_URL_SIZE]; /* url=: for clients, "" where not told */
    char key_file[SPEC_FILE_SIZE];
    char program[SPEC_FILE_SIZE]; /* of exec */
};

/* Reads NAME=SPEC. LEASE_EINVAL: `error` (of SPEC_ERROR_SIZE bytes) has one lower-case line without
 * a full stop that says what is wrong and what would be right, and *spec is unchanged. An engine
 * that is known but cannot be asked yet is refused here, too. */
int spec_parse(const char *text, struct provider_spec *spec, char *error);

/* "llama.cpp", ..., "auto". Never NULL. */
const char *engine_name(enum engine_kind kind);

/* The host is written as an address: then spec_url_is_local asks no resolver. */
bool spec_host_is_numeric(const struct provider_spec *spec);

/* The URL names this host: loopback, any, or an address that one of its interfaces has now. False
 * for what has no URL, and for a name that is not resolved. May block while a name is resolved (see
 * spec_host_is_numeric; "localhost" and this host's own name are known without). */
bool spec_url_is_local(const struct provider_spec *spec);

/* The URL is of use on this host only: a loopback or any address, "localhost". Never blocks. */
bool spec_url_is_loopback(const struct provider_spec *spec);

#endif
