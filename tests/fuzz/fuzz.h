/* What the harnesses share. A finding is an abort: the fuzzer keeps the bytes that led to it. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static inline void must(bool holds)
{
    if (!holds)
        abort();
}

/* A copy of its own size with a NUL after it, so that a reader past its end is found. The caller's to
 * free. */
static inline char *fuzz_text(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    must(text != NULL);
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    return text;
}

/* One line that may go to a terminal: ends within `size`, and holds no control character. */
static inline bool fuzz_is_line(const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);
    for (const char *at = text; end && at < end; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    return end != NULL;
}

#endif
