#include "broker/error.h"

const char *lease_error_text(int error)
{
    switch (error) {
    case 0: return "ok";
#define X(name, value, text)                                                                       \
    case name: return text;
        LEASE_ERRORS(X)
#undef X
    default: return "unknown error";
    }
}
