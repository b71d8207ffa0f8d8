/* The epochs of providers, kept outside of the runtime directory so that tokens grow across a
 * reboot also where the wall clock went backwards.
 *
 * One small file a provider in the state directory: $STATE_DIRECTORY, $XDG_STATE_HOME/leasehold
 * (unset: ~/.local/state/leasehold; for root /var/lib/leasehold). Where none can be written the
 * wall clock alone decides; that is no error. */
#ifndef BROKER_HOST_EPOCH_H
#define BROKER_HOST_EPOCH_H

#include <stdint.h>

/* An epoch above: at_least, the wall clock's seconds, and the one that was kept. Keeps it. */
uint64_t host_epoch_next(const char *provider, uint64_t at_least);

#endif
