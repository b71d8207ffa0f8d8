/* Every error code of the project, and its text, in one place.
 *
 * Functions return 0 (or a count) on success and one of these negative codes otherwise. The numbers
 * go over the wire and into scripts: they are never reused or renumbered, new ones are appended.
 * Libc only; safe from any thread.
 */
#ifndef LEASEHOLD_BROKER_ERROR_H
#define LEASEHOLD_BROKER_ERROR_H

/* X(name, value, text): the text is lower case, says what failed, and ends without a full stop. */
#define LEASE_ERRORS(X)                                                                            \
    X(LEASE_EINVAL, -1, "bad argument")                                                            \
    X(LEASE_ENOMEM, -2, "out of memory")                                                           \
    X(LEASE_EBUSY, -3, "no slot free")                                                             \
    X(LEASE_EGONE, -4, "the lease is gone")                                                        \
    X(LEASE_EUNKNOWN, -5, "provider in no configuration and no book")                              \
    X(LEASE_EBASIS, -6, "demanded basis not to be had")                                            \
    X(LEASE_ELOCKED, -7, "locked by another process")                                              \
    X(LEASE_EVANISHED, -8, "runtime directory vanished mid-lock")                                  \
    X(LEASE_EDIR, -9, "no usable runtime directory")                                               \
    X(LEASE_ENETFS, -10, "runtime directory is on a network file system")                          \
    X(LEASE_ELAYOUT, -11, "file has another version's layout")                                     \
    X(LEASE_EDAMAGED, -12, "file is damaged")                                                      \
    X(LEASE_EFULL, -13, "table or queue is full")                                                  \
    X(LEASE_ENESTED, -14, "lock taken twice by one thread")                                        \
    X(LEASE_EFORK, -15, "handle used after fork")                                                  \
    X(LEASE_EIO, -16, "input or output failed")                                                    \
    X(LEASE_EPERM, -17, "not permitted")                                                           \
    X(LEASE_ETIMEOUT, -18, "timed out")                                                            \
    X(LEASE_ECLOSED, -19, "handle is closed")                                                      \
    X(LEASE_ENOTOWNER, -20, "this host does not own the provider")                                 \
    X(LEASE_EINTERNAL, -21, "internal error")                                                      \
    X(LEASE_EABSENT, -22, "no such file")                                                          \
    X(LEASE_EDAEMON, -23, "another daemon speaks for the runtime directory")                       \
    X(LEASE_ENOSPC, -24, "no space, or no inodes, left")

enum lease_error {
#define LEASE_ERROR_VALUE(name, value, text) name = (value),
    LEASE_ERRORS(LEASE_ERROR_VALUE)
#undef LEASE_ERROR_VALUE
};

/* Text of a code; never NULL: 0 is "ok", a number that is no code "unknown error". The string is
 * static. */
const char *lease_error_text(int code);

#endif
