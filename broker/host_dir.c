#define _GNU_SOURCE
#include "broker/host_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/vfs.h>
#else
#include <sys/mount.h>
#include <sys/param.h>
#endif
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_beat.h"
#include "broker/host_clock.h"

#define RUN_DIR    "/run/leasehold"
#define GROUP_MODE 02770
#define OWN_MODE   0700
#define LONG_PATH  4096

_Static_assert(HOST_DIR_PATH_MAX + sizeof "/" HOST_DIR_SOCKET - 1 == 107, "what ipc:// takes");

/* -- reasons ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int refuse(struct host_dir_candidate *c, int error,
                                                        const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(c->why, sizeof c->why, format, arguments);
    va_end(arguments);
    c->error = error;
    return error;
}

static int refuse_errno(struct host_dir_candidate *c, const char *what)
{
    int error = errno == EACCES || errno == EPERM || errno == EROFS ? LEASE_EPERM : LEASE_EDIR;
    return refuse(c, error, "%s %s: %s", what, c->path, strerror(errno));
}

const char *host_dir_kind_name(enum host_dir_kind kind)
{
    static const char *const name[] = {"--dir", "LEASE_DIR", "run", "xdg", "tmp"};
    return (unsigned)kind < sizeof name / sizeof name[0] ? name[kind] : "?";
}

/* -- file systems ----------------------------------------------------------------------------- */

/* Where flock is not shared by all who see the file, or maps are not coherent, or a server that
 * does not answer hangs everyone. */
static const struct {
    uint64_t type;
    const char *name;
} refused[] = {
    {0x6969, "nfs"},        {0xff534d42, "cifs"},  {0xfe534d42, "smb2"},   {0x517b, "smb"},
    {0x65735546, "fuse"},   {0x01021997, "9p"},    {0x5346414f, "afs"},    {0x6b414653, "kafs"},
    {0x00c36400, "ceph"},   {0x73757245, "coda"},  {0x564c, "ncp"},        {0x0bd00bd0, "lustre"},
    {0x01161970, "gfs2"},   {0x7461636f, "ocfs2"}, {0x786f4256, "vboxsf"}, {0x47504653, "gpfs"},
    {0x19830326, "beegfs"}, {0xaad7aaea, "panfs"}, {0xbacbacbc, "vmhgfs"},
};

const char *host_dir_refused_type(uint64_t type)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (refused[i].type == type) {
            return refused[i].name;
        }
    }
    return NULL;
}

static int check_file_system(struct host_dir_candidate *c, int fd)
{
    struct statfs fs;
    const char *name = NULL;
    if (fstatfs(fd, &fs)) {
        return refuse_errno(c, "cannot tell the file system of");
    }
#ifdef __linux__
    name = host_dir_refused_type((uint64_t)(uint32_t)fs.f_type);
#elif defined MNT_LOCAL
    name = fs.f_flags & MNT_LOCAL ? NULL : "network";
#endif
    if (name) {
        return refuse(c, LEASE_ENETFS,
                      "%s lies on a network file system (%s): set LEASE_DIR to a local directory",
                      c->path, name);
    }
    return 0;
}

/* -- who may write in it ---------------------------------------------------------------------- */

/* The user's own places: nobody else has any business there. */
static int check_private(struct host_dir_candidate *c, const struct stat *st)
{
    if (st->st_uid != geteuid()) {
        return refuse(c, LEASE_EPERM,
                      "%s belongs to uid %u, not to you: remove it, or set LEASE_DIR", c->path,
                      (unsigned)st->st_uid);
    }
    if (st->st_mode & (S_IRWXG | S_IRWXO)) {
        return refuse(c, LEASE_EPERM, "%s is open to others (mode %04o): chmod 0700 it", c->path,
                      (unsigned)st->st_mode & 07777);
    }
    return 0;
}

static bool is_groups(const struct stat *st)
{
    return (st->st_mode & S_ISGID) && (st->st_mode & S_IWGRP) && !(st->st_mode & S_IWOTH);
}

/* Places that an administrator or the user has named. */
static int check_named(struct host_dir_candidate *c, const struct stat *st)
{
    bool groups = is_groups(st);
    unsigned mode = (unsigned)st->st_mode & 07777;
    if (st->st_uid != geteuid() && st->st_uid != 0 && !groups) {
        return refuse(c, LEASE_EPERM,
                      "%s belongs to uid %u and is no group's: make it mode 2770, or take another",
                      c->path, (unsigned)st->st_uid);
    }
    if ((st->st_mode & S_IWOTH) && !(st->st_mode & S_ISVTX)) {
        return refuse(c, LEASE_EPERM, "anybody may write in %s (mode %04o): chmod 0700 or 2770 it",
                      c->path, mode);
    }
    if ((st->st_mode & S_IWGRP) && !groups && !(st->st_mode & S_ISVTX)) {
        return refuse(c, LEASE_EPERM,
                      "a group may write in %s without being its group (mode %04o): chmod 0700 or "
                      "2770 it",
                      c->path, mode);
    }
    return 0;
}

static bool is_private(enum host_dir_kind kind)
{
    return kind == HOST_DIR_XDG || kind == HOST_DIR_TMP;
}

static int refuse_read_only(struct host_dir_candidate *c)
{
    return refuse(c, LEASE_EPERM,
                  "%s lies on a file system that is mounted read-only: mount it writable, or set "
                  "LEASE_DIR to another directory",
                  c->path);
}

static int check_access(struct host_dir_candidate *c, const struct stat *st)
{
    if (faccessat(AT_FDCWD, c->path, R_OK | W_OK | X_OK, AT_EACCESS)) {
        if (errno == EROFS) {
            return refuse_read_only(c);
        }
        return refuse(c, LEASE_EPERM,
                      "uid %u may not write in %s: join its group (gid %u), or set "
                      "LEASE_DIR",
                      (unsigned)geteuid(), c->path, (unsigned)st->st_gid);
    }
    return 0;
}

/* -- one candidate ---------------------------------------------------------------------------- */

static void look_for_speaker(struct host_dir_candidate *c, int dir_fd)
{
    struct host_beat beat;
    int fd = host_beat_open(dir_fd, false, 0);
    if (fd < 0) {
        return;
    }
    if (host_beat_read(fd, &beat) == 0) {
        c->speaker_pid = beat.pid;
        c->speaker_kind = beat.kind;
        c->alive = host_beat_alive(&beat, host_now_ns());
    }
    (void)close(fd);
}

static int check_open(struct host_dir_candidate *c, int fd, struct stat *st)
{
    if (fstat(fd, st)) {
        return refuse_errno(c, "cannot look at");
    }
    int rc = is_private(c->kind) ? check_private(c, st) : check_named(c, st);
    if (!rc) {
        rc = check_access(c, st);
    }
    if (!rc) {
        rc = check_file_system(c, fd);
    }
    return rc;
}

/* Why the path could not be opened as a directory. */
static int refuse_open(struct host_dir_candidate *c)
{
    struct stat st;
    if (errno == EACCES && lstat(c->path, &st) == 0) {
        return refuse(c, LEASE_EPERM,
                      "uid %u may not enter %s: join its group (gid %u), or set "
                      "LEASE_DIR",
                      (unsigned)geteuid(), c->path, (unsigned)st.st_gid);
    }
    if ((errno == ELOOP || errno == ENOTDIR) && lstat(c->path, &st) == 0) {
        bool link = S_ISLNK(st.st_mode);
        return refuse(c, LEASE_EPERM, "%s is %s: remove it, or set LEASE_DIR", c->path,
                      link ? "a symbolic link" : "not a directory");
    }
    return refuse_errno(c, "cannot open");
}

static void parent_of(const char *path, char parent[HOST_DIR_PATH_MAX + 1])
{
    (void)snprintf(parent, HOST_DIR_PATH_MAX + 1, "%s", path);
    char *slash = strrchr(parent, '/');
    slash[slash == parent ? 1 : 0] = '\0';
}

/* Whether it could be made: without making it. */
static int check_parent(struct host_dir_candidate *c)
{
    char parent[HOST_DIR_PATH_MAX + 1];
    struct stat st;
    parent_of(c->path, parent);
    if (stat(parent, &st)) {
        return refuse(c, LEASE_EDIR, "%s is absent, and so is %s", c->path, parent);
    }
    if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS)) {
        if (errno == EROFS) {
            return refuse_read_only(c);
        }
        return refuse(c, LEASE_EPERM,
                      "%s is absent, and uid %u may not make it: have root do it, "
                      "mode 2770 and your group, or set LEASE_DIR",
                      c->path, (unsigned)geteuid());
    }
    return 0;
}

/* Under sudo the variable is still the user's: what root makes there the user could not use. */
static int check_xdg_base(struct host_dir_candidate *c)
{
    char parent[HOST_DIR_PATH_MAX + 1];
    struct stat st;
    parent_of(c->path, parent);
    if (stat(parent, &st) == 0 && st.st_uid != geteuid()) {
        return refuse(c, LEASE_EPERM, "%s belongs to uid %u, not to you", parent,
                      (unsigned)st.st_uid);
    }
    return 0;
}

/* Opens a directory that is there. A descriptor, -1 with c->error, or -1 without: it is absent. */
static int open_existing(struct host_dir_candidate *c, struct stat *st)
{
    int fd = open(c->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT) {
            (void)refuse_open(c);
        }
        return -1;
    }
    c->exists = true;
    if (check_open(c, fd, st)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Fills in what there is to know, without making anything. */
static void examine(struct host_dir_candidate *c)
{
    struct stat st;
    if (c->error || (c->kind == HOST_DIR_XDG && check_xdg_base(c))) {
        return;
    }
    int fd = open_existing(c, &st);
    if (fd >= 0) {
        look_for_speaker(c, fd);
        (void)close(fd);
    } else if (!c->error) {
        (void)check_parent(c);
    }
}

/* -- the list --------------------------------------------------------------------------------- */

static void add(struct host_dir_candidate *c, enum host_dir_kind kind, const char *path)
{
    memset(c, 0, sizeof *c);
    c->kind = kind;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    (void)snprintf(c->path, sizeof c->path, "%.*s", (int)length, path);
    if (path[0] != '/') {
        (void)refuse(c, LEASE_EDIR, "%s is not absolute: processes elsewhere would not meet there",
                     c->path);
    } else if (length > HOST_DIR_PATH_MAX) {
        (void)refuse(c, LEASE_EDIR,
                     "%s… is %zu bytes too long for a socket in it: set LEASE_DIR to a path of at "
                     "most %d",
                     c->path, length - HOST_DIR_PATH_MAX, HOST_DIR_PATH_MAX);
    }
}

static void add_asked(struct host_dir_candidate *c, const char *path)
{
    char here[LONG_PATH];
    char whole[2 * LONG_PATH];
    if (path[0] == '/' || !getcwd(here, sizeof here)) {
        add(c, HOST_DIR_ASKED, path);
        return;
    }
    (void)snprintf(whole, sizeof whole, "%s/%s", here, path);
    add(c, HOST_DIR_ASKED, whole);
}

static void add_xdg(struct host_dir_candidate *c, const char *base)
{
    char path[LONG_PATH];
    if (base && base[0] == '/') {
        (void)snprintf(path, sizeof path, "%s/leasehold", base);
    } else { /* a relative one is to be ignored, says its specification */
        (void)snprintf(path, sizeof path, "/run/user/%u/leasehold", (unsigned)geteuid());
    }
    add(c, HOST_DIR_XDG, path);
}

static unsigned list(const struct host_dir_places *places,
                     struct host_dir_candidate out[HOST_DIR_CANDIDATES_MAX])
{
    if (places->asked && *places->asked) {
        add_asked(&out[0], places->asked);
        return 1;
    }
    if (places->lease_dir && *places->lease_dir) {
        add(&out[0], HOST_DIR_ENV, places->lease_dir);
        return 1;
    }
    add(&out[0], HOST_DIR_RUN, places->run);
    add_xdg(&out[1], places->xdg);
    add(&out[2], HOST_DIR_TMP, places->tmp);
    return 3;
}

/* The first whose speaker is alive, else the first that serves; NULL where there is none. */
static struct host_dir_candidate *choose(struct host_dir_candidate *c, unsigned n)
{
    struct host_dir_candidate *serves = NULL;
    for (unsigned i = 0; i < n; i++) {
        if (!c[i].error && c[i].alive) {
            return &c[i];
        }
        if (!c[i].error && !serves) {
            serves = &c[i];
        }
    }
    return serves;
}

unsigned host_dir_candidates_of(const struct host_dir_places *places,
                                struct host_dir_candidate out[HOST_DIR_CANDIDATES_MAX])
{
    unsigned n = list(places, out);
    for (unsigned i = 0; i < n; i++) {
        examine(&out[i]);
    }
    struct host_dir_candidate *chosen = choose(out, n);
    if (chosen) {
        chosen->chosen = true;
    }
    return n;
}

/* -- opening ---------------------------------------------------------------------------------- */

/* mkdir() is subject to the umask and drops the setgid bit: hence the chmod. Somebody else may make
 * it at the same moment; whoever did, it is checked like one that was there. */
static int make(struct host_dir_candidate *c)
{
    mode_t mode = c->kind == HOST_DIR_RUN ? GROUP_MODE : OWN_MODE;
    if (mkdir(c->path, OWN_MODE)) {
        return errno == EEXIST ? 0 : refuse_errno(c, "cannot make");
    }
    return mode != OWN_MODE && chmod(c->path, mode) ? refuse_errno(c, "cannot chmod") : 0;
}

static int open_chosen(struct host_dir_candidate *c, struct host_dir *out)
{
    struct stat st;
    if (!c->exists && make(c)) {
        return c->error;
    }
    int fd = open_existing(c, &st);
    if (fd < 0) {
        return c->error ? c->error : refuse(c, LEASE_EVANISHED, "%s vanished just now", c->path);
    }
    out->fd = fd;
    out->kind = c->kind;
    out->file_mode = is_groups(&st) ? 0660 : 0600;
    out->device = (uint64_t)st.st_dev;
    out->inode = (uint64_t)st.st_ino;
    memcpy(out->path, c->path, sizeof out->path);
    return 0;
}

int host_dir_open_of(const struct host_dir_places *places, struct host_dir *out)
{
    struct host_dir_candidate c[HOST_DIR_CANDIDATES_MAX];
    unsigned n = host_dir_candidates_of(places, c);
    struct host_dir_candidate *chosen;
    memset(out, 0, sizeof *out);
    out->fd = -1;
    while ((chosen = choose(c, n)) != NULL) {
        if (open_chosen(chosen, out) == 0) {
            return 0; /* or it has c->error now, and the next is tried */
        }
    }
    (void)snprintf(out->why, sizeof out->why, "%s", c[n - 1].why);
    return n == 1 ? c[0].error : LEASE_EDIR;
}

void host_dir_close(struct host_dir *dir)
{
    if (dir->fd >= 0) {
        (void)close(dir->fd);
        dir->fd = -1;
    }
}

int host_dir_check(const struct host_dir *dir)
{
    struct stat st;
    bool same = dir->fd >= 0 && lstat(dir->path, &st) == 0 && (uint64_t)st.st_dev == dir->device &&
                (uint64_t)st.st_ino == dir->inode;
    return same ? 0 : LEASE_EVANISHED;
}

/* -- of this process -------------------------------------------------------------------------- */

static const char *keep(const char *value, char kept[HOST_DIR_KEPT_MAX])
{
    if (!value) {
        return NULL;
    }
    (void)snprintf(kept, HOST_DIR_KEPT_MAX, "%s", value);
    return kept;
}

void host_dir_remember(const char *asked, struct host_dir_memory *memory)
{
    (void)snprintf(memory->tmp, sizeof memory->tmp, "/tmp/leasehold-%u", (unsigned)geteuid());
    memory->places = (struct host_dir_places){
        .asked = keep(asked, memory->asked),
        .lease_dir = keep(getenv("LEASE_DIR"), memory->lease_dir),
        .run = RUN_DIR,
        .xdg = keep(getenv("XDG_RUNTIME_DIR"), memory->xdg),
        .tmp = memory->tmp,
    };
}

int host_dir_open(const char *asked, struct host_dir *out)
{
    struct host_dir_memory memory;
    host_dir_remember(asked, &memory);
    return host_dir_open_of(&memory.places, out);
}

unsigned host_dir_candidates(const char *asked,
                             struct host_dir_candidate out[HOST_DIR_CANDIDATES_MAX])
{
    struct host_dir_memory memory;
    host_dir_remember(asked, &memory);
    return host_dir_candidates_of(&memory.places, out);
}
