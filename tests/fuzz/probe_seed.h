/* How the bytes of fuzz_probe lie, which seeds.c writes and fuzz_probe.c reads: two bytes that say who
 * is asked and how, then what is answered:
 *
 *   PROBE_SEED_BODY, a status, the path up to a newline, the body
 *   PROBE_SEED_ROUND: what follows is answered to the next probe of the same server */
#ifndef TESTS_FUZZ_PROBE_SEED_H
#define TESTS_FUZZ_PROBE_SEED_H

#define PROBE_SEED_BODY  '\x1e'
#define PROBE_SEED_ROUND '\x1d'

/* The first byte. */
enum probe_seed_engine {
    PROBE_SEED_DETECT = 0,
    PROBE_SEED_LLAMA,
    PROBE_SEED_VLLM,
    PROBE_SEED_SGLANG,
    PROBE_SEED_TGI,
    PROBE_SEED_SWAP,
    PROBE_SEED_OLLAMA,
    PROBE_SEED_LMSTUDIO,
    PROBE_SEED_EXEC,
    PROBE_SEED_STATIC,
    PROBE_SEED_ENGINES
};

/* The second byte. */
enum probe_seed_how {
    PROBE_SEED_FULL = 1 << 0,
    PROBE_SEED_SLOTS = 1 << 1, /* slots=8 */
    PROBE_SEED_MODEL = 1 << 2, /* model=coder */
    PROBE_SEED_KEY = 1 << 3,
    PROBE_SEED_LATE = 1 << 4, /* the last question is answered first */
    PROBE_SEED_LONG = 1 << 5, /* between two rounds */
};

/* A status, by the last four bits. */
enum probe_seed_status {
    PROBE_SEED_200 = '0',
    PROBE_SEED_404,
    PROBE_SEED_401,
    PROBE_SEED_503,
    PROBE_SEED_500,
    PROBE_SEED_302,
    PROBE_SEED_UNREACHABLE,
    PROBE_SEED_LATE_ANSWER,
    PROBE_SEED_BROKEN
};

#endif
