/* Fleets that never were, for tests of leasetop: a demonstration with one of everything, and random
 * ones from a seed. */
#ifndef TESTS_SCREEN_FLEET_H
#define TESTS_SCREEN_FLEET_H

#include <stdint.h>

#include "tools/top_model.h"

#define SECOND INT64_C(1000000000)
#define START  (INT64_C(1000) * SECOND) /* of the tests' clock */

/* An empty one, seen from host "here". */
struct lease_fleet *fleet_new(void);

/* A live provider of this host, read exactly and just now; its numbers are the caller's to change. */
struct lease_view *fleet_provider(struct lease_fleet *fleet, const char *name, int64_t slots,
                                  int64_t in_flight);

/* Another host's agent; heard_ms -1: never. */
struct lease_peer *fleet_peer(struct lease_fleet *fleet, const char *name, const char *state,
                              int64_t heard_ms);

/* To the provider that was added last. state: held, dispatched; kind: stranger, orphan, ghost. */
struct lease_entry *fleet_lease(struct lease_fleet *fleet, const char *state, const char *label,
                                int64_t left_ms);
struct lease_work *fleet_work(struct lease_fleet *fleet, const char *kind, uint32_t units);

/* Brings available, free and the counts of each provider to what liblease would say. */
void fleet_settle(struct lease_fleet *fleet);

/* One of everything: held, dispatched, stranger, ghost, orphan, down, stale, lost, unowned, conflict. */
struct lease_fleet *fleet_demo(void);

/* Any numbers, also ones that contradict each other, and hostile names. */
struct lease_fleet *fleet_random(uint64_t *seed, uint32_t providers_max);
uint64_t fleet_draw(uint64_t *seed);

/* 200 providers with 4 leases each. */
struct lease_fleet *fleet_large(uint32_t providers, uint32_t leases);

/* model takes it as a snapshot of that time, with an agent or without. */
void fleet_show(struct top_model *model, struct lease_fleet *fleet, int64_t now_ns, bool beats);

#endif
