#include "tests/lib/virtual.h"
int main(void)
{
    return 0;
}
