/* The errors of the project: one list, negative numbers, one line of text each.
 *
 * What came from outside is answered with one of these; what we computed is asserted. */
#ifndef BROKER_ERROR_H
#define BROKER_ERROR_H

#define LEASE_ERRORS(X)                                                                            \
    X(LEASE_EINVAL, -1, "an argument is out of bounds")                                            \
    X(LEASE_ENOMEM, -2, "out of memory")                                                           \
    X(LEASE_EBUSY, -3, "no slot is free")                                                          \
    X(LEASE_EGONE, -4, "the lease has ended")                                                      \
    X(LEASE_EUNKNOWN, -5, "the provider is in no configuration and has no book")                   \
    X(LEASE_EBASIS, -6, "the demanded basis is not to be had")                                     \
    X(LEASE_ELOCKED, -7, "another process sits on the lock of the book")                           \
    X(LEASE_EVANISHED, -8, "runtime directory vanished mid-lock")                                  \
    X(LEASE_EDIR, -9, "no runtime directory can be used")                                          \
    X(LEASE_ENETFS, -10, "the runtime directory is on a network file system")                      \
    X(LEASE_ELAYOUT, -11, "the book was written by another version")                               \
    X(LEASE_EDAMAGED, -12, "the book is damaged")                                                  \
    X(LEASE_EFULL, -13, "the book or its queue is full")                                           \
    X(LEASE_ENESTED, -14, "the lock is held by this thread already")                               \
    X(LEASE_EFORK, -15, "the handle was opened by another process, open a new one after fork")     \
    X(LEASE_EIO, -16, "input or output failed")                                                    \
    X(LEASE_EPERM, -17, "permission denied")                                                       \
    X(LEASE_ETIMEOUT, -18, "timed out")                                                            \
    X(LEASE_ECLOSED, -19, "the handle is being closed")                                            \
    X(LEASE_ENOTOWNER, -20, "this host does not own the provider")                                 \
    X(LEASE_EDAEMON, -21, "another daemon speaks for the runtime directory")                       \
    X(LEASE_ENOSPC, -22, "no space left for the book")                                             \
    X(LEASE_EINTERNAL, -23, "internal error")

enum lease_error {
#define X(name, value, text) name = (value),
    LEASE_ERRORS(X)
#undef X
};

/* Never NULL; 0 is "ok". */
const char *lease_error_text(int error);

#endif
