/* Any bytes as a message: nothing is read beyond them, and what is taken can be written and read
 * again to the same bytes. */
#include "proto/message.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static uint8_t first[MESSAGE_BYTES_MAX], second[MESSAGE_BYTES_MAX];
    static struct message message, back;
    size_t first_size, second_size;
    if (message_decode(bytes, size, &message, NULL) != WIRE_OK) {
        return 0;
    }
    must(message_encode(&message, first, sizeof first, &first_size, NULL) == WIRE_OK);
    must(message_decode(first, first_size, &back, NULL) == WIRE_OK);
    must(message_encode(&back, second, sizeof second, &second_size, NULL) == WIRE_OK);
    must(first_size == second_size && memcmp(first, second, first_size) == 0);
    return 0;
}
