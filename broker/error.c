#include "broker/error.h"

const char *lease_error_text(int code)
{
    switch (code) {
    case 0: return "ok";
#define LEASE_ERROR_CASE(name, value, text)                                                        \
    case name: return text;
        LEASE_ERRORS(LEASE_ERROR_CASE)
#undef LEASE_ERROR_CASE
    default: return "unknown error";
    }
}
