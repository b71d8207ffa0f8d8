#include "proto/beacon.h"

#include <string.h>

#define VERSION 1

static const uint8_t letters[4] = {'L', 'S', 'H', 'B'};

void beacon_encode(const struct beacon *beacon, uint8_t bytes[WIRE_BEACON_BYTES])
{
    memcpy(bytes, letters, sizeof letters);
    bytes[4] = VERSION;
    bytes[5] = 0;
    bytes[6] = (uint8_t)(beacon->port >> 8);
    bytes[7] = (uint8_t)(beacon->port & 0xff);
    memcpy(bytes + 8, beacon->id, sizeof beacon->id);
    memcpy(bytes + 24, beacon->address, sizeof beacon->address);
}

bool beacon_decode(const uint8_t *bytes, size_t size, struct beacon *beacon)
{
    if (size < WIRE_BEACON_BYTES || memcmp(bytes, letters, sizeof letters) != 0 ||
        bytes[4] < VERSION) {
        return false;
    }
    uint16_t port = (uint16_t)(bytes[6] << 8 | bytes[7]);
    if (port == 0) {
        return false;
    }
    beacon->port = port;
    memcpy(beacon->id, bytes + 8, sizeof beacon->id);
    memcpy(beacon->address, bytes + 24, sizeof beacon->address);
    return true;
}
