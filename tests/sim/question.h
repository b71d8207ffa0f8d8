/* Questions of a holder: to the owner, or to the book of its host. Internal to holder.c and question.c. */
#ifndef TESTS_SIM_QUESTION_H
#define TESTS_SIM_QUESTION_H

#include "tests/sim/sim.h"

bool question_is_remote(uint32_t host, uint32_t provider);
/* Of the provider as heard last; of a lease that the owner has named, that of its token. */
uint64_t question_epoch(uint32_t host, uint32_t provider, struct lease_id id);
/* What the request needs beyond the wish is filled in. */
void question_begin(uint32_t host, uint32_t index, uint32_t provider, enum sim_want want,
                    const struct request *wish);
void question_goes_on(uint32_t host, uint32_t index);
/* Something is left to tell an owner, and it is told now. */
bool question_tells(uint32_t host, uint32_t index, ns_t here);

void holder_takes(uint32_t host, uint32_t index, const struct answer *answer, enum sim_basis basis);
void holder_goes(uint32_t host, uint32_t index, enum sim_basis basis);
void holder_forgets(uint32_t host, uint32_t index);
uint32_t holder_ttl(const struct sim_holder *holder);

#endif
