/* What other engines need of llama.cpp's, who run its server themselves. */
#ifndef AGENT_PROBE_LLAMA_H
#define AGENT_PROBE_LLAMA_H

#include <jansson.h>

#include "broker/reading.h"

/* The answer to /slots, a list that is not empty: slots_total, in_flight and slots[]. False: one of
 * its entries is no slot; the reading is then half filled. */
bool llama_read_slots(struct reading *reading, const json_t *slots);

#endif
