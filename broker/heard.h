/* What the takers of other hosts' words share (mirror.c, claim.c). Internal to broker/. */
#ifndef BROKER_HEARD_H
#define BROKER_HEARD_H

#include "broker/mirror.h"

int64_t heard_within(int64_t value, int64_t low, int64_t high);

/* So long ago; never before this host's clock began. */
ns_t heard_past(ns_t now, int64_t ago_ms);

/* The second in which something was heard: 0 is none. */
uint32_t heard_second(ns_t now);

/* What a lease is by this word, as a record of ours; its state may be GONE. False: it is none. */
bool heard_draft(const struct step *step, const struct heard_lease *lease, uint64_t epoch,
                 struct record *draft);

/* The record becomes what `after` says, which is noted; one that says nothing new is not written
 * again. `after` is changed: what is carried forward in a record never sinks. */
void heard_become(struct step *step, struct record *record, struct record *after);

/* A new record of what was heard, or NULL where the book is full. */
struct record *heard_take_cell(struct step *step, const struct record *draft);

/* It is no orphan, and has not ended. */
bool heard_lives(const struct record *record);

#endif
