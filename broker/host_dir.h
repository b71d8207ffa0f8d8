/* The runtime directory: where the processes of one host meet.
 *
 * Candidates, in this order: the one asked for (--dir), or else $LEASE_DIR, and then only that one;
 * otherwise /run/leasehold (made 2770 by root; others may use it through its group),
 * $XDG_RUNTIME_DIR/leasehold (unset: /run/user/UID), /tmp/leasehold-UID (0700). The first whose
 * speaker is alive is taken, or else the first that serves. Directories are made where they are
 * absent, and never removed.
 *
 * Refused, each with one line that says why: what others may write or own (a group's directory is
 * one with the setgid bit: 2770), symbolic links, network file systems (flock and mapped memory do
 * not hold there), paths so long that a socket in them has no name.
 *
 * All calls read the environment and the file system; safe from any thread while nobody changes the
 * environment.
 */
#ifndef LEASEHOLD_BROKER_HOST_DIR_H
#define LEASEHOLD_BROKER_HOST_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_DIR_SOCKET         "agent.ipc"
#define HOST_DIR_PATH_MAX       97 /* bytes: ipc:// takes 107, and "/agent.ipc" follows the path */
#define HOST_DIR_WHY_MAX        256
#define HOST_DIR_CANDIDATES_MAX 3

enum host_dir_kind { HOST_DIR_ASKED, HOST_DIR_ENV, HOST_DIR_RUN, HOST_DIR_XDG, HOST_DIR_TMP };

/* An open runtime directory. */
struct host_dir {
    int fd; /* for openat(); -1 where closed */
    enum host_dir_kind kind;
    unsigned file_mode; /* of files made in it: 0660 in a group's directory, else 0600 */
    uint64_t device, inode;
    char path[HOST_DIR_PATH_MAX + 1]; /* absolute */
    char why[HOST_DIR_WHY_MAX];       /* after a failure: one line, lower case, with what to do */
};

/* One place that was looked at, for `lease status` and `lease doctor`. */
struct host_dir_candidate {
    enum host_dir_kind kind;
    int error;                        /* 0: it serves; else a LEASE_E… code */
    bool exists;                      /* false with error 0: it would be made */
    bool alive;                       /* a speaker has given a sign of life within 3 s */
    bool chosen;                      /* host_dir_open() would take this one */
    uint32_t speaker_pid;             /* of the last beat, alive or not; 0: none */
    uint32_t speaker_kind;            /* enum host_beat_kind */
    char path[HOST_DIR_PATH_MAX + 1]; /* cut short where it is too long */
    char why[HOST_DIR_WHY_MAX];       /* why not, or "" */
};

/* Chooses, makes where absent, and opens. `asked` may be NULL; a relative one is taken from the
 * current directory. 0, or with out->fd == -1 and out->why set: LEASE_EDIR, LEASE_EPERM,
 * LEASE_ENETFS, LEASE_EVANISHED of the one asked for; LEASE_EDIR where none of several serves. */
int host_dir_open(const char *asked, struct host_dir *out);

/* Closes the descriptor. Closing twice is well. */
void host_dir_close(struct host_dir *dir);

/* Does the path still lead to this directory? 0 or LEASE_EVANISHED: close, and choose anew. */
int host_dir_check(const struct host_dir *dir);

/* Looks at all candidates as host_dir_open() would, but makes nothing. Answers how many there are.
 */
unsigned host_dir_candidates(const char *asked,
                             struct host_dir_candidate out[HOST_DIR_CANDIDATES_MAX]);

/* "run", "xdg" and so on, for output. */
const char *host_dir_kind_name(enum host_dir_kind kind);

/* The name of a file system type (statfs.f_type) that is refused, or NULL. */
const char *host_dir_refused_type(uint64_t type);

/* -- of named places, for tests; and of the environment as it was ------------------------------ */

/* Borrowed; NULL: as if unset. */
struct host_dir_places {
    const char *asked;
    const char *lease_dir;
    const char *run; /* the directory itself: "/run/leasehold" */
    const char *xdg; /* its parent */
    const char *tmp; /* the directory itself */
};

int host_dir_open_of(const struct host_dir_places *places, struct host_dir *out);
unsigned host_dir_candidates_of(const struct host_dir_places *places,
                                struct host_dir_candidate out[HOST_DIR_CANDIDATES_MAX]);

#define HOST_DIR_KEPT_MAX 512 /* bytes of a path; longer ones are too long for any use */

/* A copy, since a program may change its environment while threads of ours look. Must not move. */
struct host_dir_memory {
    struct host_dir_places places;
    char asked[HOST_DIR_KEPT_MAX], lease_dir[HOST_DIR_KEPT_MAX], xdg[HOST_DIR_KEPT_MAX], tmp[64];
};

void host_dir_remember(const char *asked, struct host_dir_memory *memory);

#endif
