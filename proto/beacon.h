/* The datagram by which agents of one network notice each other: who announces it, and where it answers
 * by TCP. All else is asked there.
 *
 *   0  4  the letters LSHB
 *   4  1  1, the version; a higher one only adds behind
 *   5  1  0
 *   6  2  the port, most significant byte first, never 0
 *   8 16  the agent's lasting id
 *  24  4  the IPv4 address, 0.0.0.0: that from which the datagram came
 *
 * Whoever sends on that network can send one: what is told by it is asked, and not believed. */
#ifndef PROTO_BEACON_H
#define PROTO_BEACON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

struct beacon {
    uint8_t id[WIRE_ID_BYTES];
    uint16_t port;
    uint8_t address[4];
};

void beacon_encode(const struct beacon *beacon, uint8_t bytes[WIRE_BEACON_BYTES]);

/* False where it is none; *beacon is unchanged then. */
bool beacon_decode(const uint8_t *bytes, size_t size, struct beacon *beacon);

#endif
