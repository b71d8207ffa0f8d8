/* Every maximum of the wire, with what happens when it is reached.
 *
 * Both ends keep them: what is beyond is not sent, and what arrives beyond is a fault (wire.h).
 * Lengths are in bytes without the end of a C string. */
#ifndef PROTO_LIMITS_H
#define PROTO_LIMITS_H

#include <stdint.h>

#define WIRE_VERSION 1 /* of every message here; another one is refused with an answer */

/* Shape, checked before anything else is looked at. */
#define WIRE_MESSAGE_MAX 65536 /* a frame; the socket closes on the sender of a longer one */
#define WIRE_DEPTH_MAX   4     /* maps and arrays inside each other, the message's own counted */
#define WIRE_COUNT_MAX   4096  /* elements of an array or pairs of a map */

/* Values of fields. Names that are longer are refused; texts are cut before they are sent. */
#define WIRE_ID_BYTES      16
#define WIRE_NAME_MAX      63 /* of [A-Za-z0-9._-] */
#define WIRE_LABEL_MAX     127
#define WIRE_TEXT_MAX      512
#define WIRE_DIRECTORY_MAX 107 /* what a socket's path may have, so no directory is longer */
#define WIRE_PROVIDERS_MAX 64
#define WIRE_LEASE_MAX     90 /* name, colon, 26 characters */
#define WIRE_ENDPOINT_MAX  127
#define WIRE_WORD_MAX      15
#define WIRE_ENGINE_MAX    23
#define WIRE_UNITS_MAX     1024
#define WIRE_TIME_MS_MAX   86400000
#define WIRE_PARTS_MAX     64
#define WIRE_STATE_MAX     49152 /* one part of a state, a beat, a list of peers */
#define WIRE_LEASES_MAX    2048  /* of a state, over all parts */
#define WIRE_MODELS_MAX    16
#define WIRE_PEERS_MAX     512
#define WIRE_URL_MAX       511
#define WIRE_ERROR_MAX     4095                      /* errors are -1 to -4095 */
#define WIRE_NUMBER_MAX    ((UINT64_C(1) << 53) - 1) /* JavaScript holds these exactly */

/* Beacons, on request: a datagram to everybody on the network (beacon.h). */
#define WIRE_BEACON_PORT  5771 /* UDP */
#define WIRE_BEACON_BYTES 28   /* shorter ones are dropped, what is longer is not read */

#endif
