/* Writers that have not thought of dying: the crash test must find each of them out. */
#ifndef TESTS_CRASH_SINS_H
#define TESTS_CRASH_SINS_H

#include "broker/host_table.h"

/* Gives an open table the habits of enum scene_sin; 0 leaves it as it is. */
void sins_commit(struct host_table *table, unsigned sins, int dir);

#endif
