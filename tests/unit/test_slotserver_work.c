/* What the stand-in does with requests: queues, hides, pins, forgets, sleeps and ends. */
#include "tests/lib/slotserver.h"
int main(void)
{
    return 0;
}
