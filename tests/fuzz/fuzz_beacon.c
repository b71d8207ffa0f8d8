/* Any datagram as a beacon: nothing is read beyond it, one that is none changes nothing, and what is
 * taken is written again to the same bytes. */
#include "proto/beacon.h"
#include "tests/fuzz/fuzz.h"

static void try_size(const uint8_t *bytes, size_t size)
{
    struct beacon beacon, before;
    uint8_t back[WIRE_BEACON_BYTES];
    memset(&beacon, 0x5a, sizeof beacon);
    before = beacon;
    uint8_t *copy = malloc(size + 1); /* of its own size */
    must(copy != NULL);
    if (size > 0)
        memcpy(copy, bytes, size);
    bool taken = beacon_decode(copy, size, &beacon);
    if (taken) {
        must(size >= sizeof back && beacon.port != 0);
        beacon_encode(&beacon, back);
        copy[4] = back[4]; /* of a later version */
        must(memcmp(back, copy, 5) == 0 && memcmp(back + 6, copy + 6, sizeof back - 6) == 0);
    } else {
        must(memcmp(&beacon, &before, sizeof beacon) == 0);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    try_size(bytes, size);
    for (size_t less = 1; less < 4 && less <= size; less++)
        try_size(bytes, size - less);
    return 0;
}
