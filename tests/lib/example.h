/* The worked examples of proto/README.md: what stands between "```hex" and "```", without what
 * follows a #. */
#ifndef TESTS_LIB_EXAMPLE_H
#define TESTS_LIB_EXAMPLE_H

#include <stddef.h>
#include <stdint.h>

#define EXAMPLE_MAX 4096

/* Bytes of the n-th one, counted from 0; none is left: 0. `to` has room for EXAMPLE_MAX. */
size_t example_read(unsigned n, uint8_t *to);

#endif
