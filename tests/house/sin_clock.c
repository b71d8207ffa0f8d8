/* What the core must not do: read a clock. */
#include <time.h>

long sin_clock(void);

long sin_clock(void)
{
    return (long)time(NULL);
}
