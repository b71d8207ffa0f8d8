/* cmocka, and what must be included before it. */
#ifndef LEASEHOLD_TESTS_CHECK_H
#define LEASEHOLD_TESTS_CHECK_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
