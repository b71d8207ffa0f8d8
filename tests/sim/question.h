/* Questions of a holder: to the owner, or to the book of its host. Internal to holder.c, question.c and
 * answers.c. */
#ifndef TESTS_SIM_QUESTION_H
#define TESTS_SIM_QUESTION_H

#include "tests/sim/sim.h"

#define QUESTION_KEEPER_MS 300 /* a keeper's patience with an owner */

bool question_is_remote(uint32_t host, uint32_t provider);
/* Of the provider as heard last; of a lease that the owner has named, that of its token. */
uint64_t question_epoch(uint32_t host, uint32_t provider, struct lease_id id);
/* What the request needs beyond the wish is filled in. */
void question_begin(uint32_t host, uint32_t index, uint32_t provider, enum sim_want want,
                    const struct request *wish);
void question_goes_on(uint32_t host, uint32_t index);
/* Something is left to tell an owner, and it is told now. */
bool question_tells(uint32_t host, uint32_t index, ns_t here);

/* What answers.c needs of question.c: the host's own book, what is left to tell, and asking on. */
const struct record *question_peek(uint32_t host, uint32_t provider, struct lease_id id);
void question_release_here(uint32_t host, uint32_t index, uint32_t provider, struct lease_id lease);
void question_renew_here(uint32_t host, uint32_t index);
void question_tell_later(uint32_t host, uint32_t index, struct lease_id lease, bool undo);
void question_fill_holder(uint32_t host, uint32_t index, struct holder *holder);
void question_send(uint32_t host, uint32_t index);
void question_is_silent(uint32_t host, uint32_t index);

/* answers.c */
void question_refused(uint32_t host, uint32_t index, const struct answer *answer);
enum sim_basis question_basis_here(uint32_t host, const struct sim_question *question);
void question_answered(uint32_t host, uint32_t index, const struct answer *answer,
                       enum sim_basis basis);

static inline struct sim_holder *holder_of(uint32_t host, uint32_t index)
{
    return &hosts[host].holders[index];
}

static inline void end_question(struct sim_holder *holder)
{
    memset(&holder->question, 0, sizeof holder->question);
}

void holder_takes(uint32_t host, uint32_t index, const struct answer *answer, enum sim_basis basis);
void holder_goes(uint32_t host, uint32_t index, enum sim_basis basis);
void holder_forgets(uint32_t host, uint32_t index);
uint32_t holder_ttl(const struct sim_holder *holder);

#endif
