/* A switch that loses what agents publish, and an ear that counts it. */
#ifndef TOOLS_BENCH_FLEET_SWITCH_H
#define TOOLS_BENCH_FLEET_SWITCH_H

#include <stdint.h>

/* To each of `count` agents it is a relay of its own, in a thread of the bench's; of what one publishes each
 * other one misses loss_percent, by itself. NULL with a line on stderr. */
struct fleet_switch;
struct fleet_switch *fleet_switch_open(uint32_t count, uint32_t loss_percent);
void fleet_switch_close(struct fleet_switch **self);
const char *fleet_switch_endpoint(const struct fleet_switch *self, uint32_t agent);
const char *fleet_switch_heard_at(const struct fleet_switch *self); /* everything, nothing lost */

/* Hears what an agent publishes: beats of that name, states of that provider. */
struct fleet_switch_ear;
struct fleet_switch_ear *fleet_switch_listen(const char *publish, const char *name,
                                             const char *provider);
double fleet_switch_heard(struct fleet_switch_ear *ear); /* since it was asked last */
void fleet_switch_deafen(struct fleet_switch_ear **ear);

#endif
