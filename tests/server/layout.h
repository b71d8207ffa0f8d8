/* Where things lie in a book's file, for tests that spoil it. Apart, since the headers of the broker
 * and of the test's HTTP client use the same names. */
#ifndef TESTS_SERVER_LAYOUT_H
#define TESTS_SERVER_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

extern const size_t layout_size;       /* of the file */
extern const size_t layout_version_at; /* where the version stands, 4 bytes */
extern const uint32_t layout_version;

#endif
