/* Writes each example of the wire's manual to a file of its own: what a fuzzer begins with. */
#include <stdio.h>

#include "tests/lib/example.h"

int main(int argc, char **argv)
{
    static uint8_t bytes[EXAMPLE_MAX];
    size_t size;
    unsigned n = 0;
    for (; argc == 2 && (size = example_read(n, bytes)) > 0; n++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/example-%u", argv[1], n);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return n == 0;
}
