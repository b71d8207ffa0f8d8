/* What agents publish, at every limit and as it is every day, for the tests of its codec. */
#ifndef TESTS_LIB_GOSSIPS_H
#define TESTS_LIB_GOSSIPS_H

#include "proto/gossip.h"

/* Every field filled to its limit. */
void gossips_fill_lease(struct gossip_lease *lease);
void gossips_fill_claim(struct gossip_claim *claim);
void gossips_fill_state(struct gossip_state *state); /* one part, no leases */
void gossips_fill_beat(struct gossip_beat *beat);
void gossips_fill_peer(struct gossip_peer *peer);

/* As one sees them every day; `n` makes leases different. */
void gossips_lease(struct gossip_lease *lease, uint32_t n);
void gossips_claim(struct gossip_claim *claim);
void gossips_state(struct gossip_state *state, uint32_t leases);
void gossips_beat(struct gossip_beat *beat, uint32_t offers);

#endif
