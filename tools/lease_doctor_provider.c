#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/probe.h"
#include "broker/host_clock.h"
#include "broker/host_table.h"
#include "tools/lease_doctor.h"
#include "tools/lease_host.h"

#define LOOK_MS 1000

static ns_t clock_now(void)
{
    return host_now_ns();
}

void doctor_add_provider(struct doctor *doctor, const char *text)
{
    char error[SPEC_ERROR_SIZE];
    struct provider_spec spec;
    if (spec_parse(text, &spec, error) < 0) {
        doctor_wrong(doctor, "provider", "correct its line, see `lease init --print`",
                     "'%.120s': %s", text, error);
        return;
    }
    for (size_t i = 0; i < doctor->provider_count; i++)
        if (strcmp(doctor->providers[i].name, spec.name) == 0)
            return;
    if (doctor->provider_count < DECLARED_MAX)
        doctor->providers[doctor->provider_count++] = spec;
}

static void check_key_file(struct doctor *doctor, const struct provider_spec *spec)
{
    struct stat facts;
    char mend[SPEC_FILE_SIZE + 32];
    const char *file = spec->key_file;
    snprintf(mend, sizeof mend, "chmod 600 %s", file);
    if (stat(file, &facts) < 0)
        doctor_wrong(doctor, spec->name,
                     "put the key there, mode 0600, or correct key-file=", "its key file %s: %s",
                     file, strerror(errno));
    else if (!S_ISREG(facts.st_mode))
        doctor_wrong(doctor, spec->name, "name a regular file", "its key file %s is none", file);
    else if (access(file, R_OK) < 0)
        doctor_wrong(doctor, spec->name, "make it readable for this user", "its key file %s: %s",
                     file, strerror(errno));
    else if (facts.st_mode & 077)
        doctor_wrong(doctor, spec->name, mend, "others may open its key file %s (mode %03o)", file,
                     facts.st_mode & 0777u);
}

static void wrong_key(struct doctor *doctor, const struct provider_spec *spec)
{
    if (spec->key_file[0])
        doctor_wrong(doctor, spec->name, "put the right key into it",
                     "%s does not take the key in %s", spec->url, spec->key_file);
    else
        doctor_wrong(doctor, spec->name, "write the key into a file and add ,key-file=PATH",
                     "%s wants an API key", spec->url);
}

static const char *source_of(const struct provider_spec *spec)
{
    return spec->url[0] != '\0' ? spec->url : spec->program;
}

static void check_health(struct doctor *doctor, const struct provider_spec *spec,
                         const struct reading *reading)
{
    const char *detail = reading->detail[0] ? reading->detail : "it tells nothing more";
    switch ((enum health)reading->health) {
    case HEALTH_OK:
    case HEALTH_SLEEPING:
    case HEALTH_UNLOADED:
    case HEALTH_LOADING:
        doctor_ok(doctor, spec->name, "%s, %s%s%s", health_name((enum health)reading->health),
                  reading->engine, reading->detail[0] ? ": " : "", reading->detail);
        break;
    case HEALTH_UNAUTHORIZED: wrong_key(doctor, spec); break;
    case HEALTH_BUSY:
        doctor_wrong(doctor, spec->name, "see whether the server is overloaded or hangs",
                     "%s is busy: %s", source_of(spec), detail);
        break;
    case HEALTH_DOWN:
        doctor_wrong(doctor, spec->name, "start the server, or correct its address",
                     "%s cannot be reached: %s", source_of(spec), detail);
        break;
    case HEALTH_UNKNOWN:
        doctor_wrong(doctor, spec->name,
                     spec->engine == ENGINE_EXEC
                         ? "run the command by hand; it is to print one JSON object and end with 0"
                         : "name its engine (ENGINE+http://...), or count leases alone with "
                           "static:N",
                     "%s does not say what it has free: %s", source_of(spec), detail);
        break;
    }
}

#define LOCK_MS 100 /* nobody who is at work holds a book's lock for so long */

static void say_locked(struct doctor *doctor, const char *name)
{
    char mend[64];
    uint32_t pid = host_book_locked_by(doctor->directory, name);
    bool stopped = pid && host_is_stopped(pid);
    snprintf(mend, sizeof mend, stopped ? "kill -CONT %u, or end it" : "end process %u", pid);
    if (pid)
        doctor_wrong(doctor, name, mend, "its book is locked by process %u%s: nobody gets a lease",
                     pid, stopped ? ", which is stopped" : "");
    else
        doctor_wrong(doctor, name, "look again, and for a process in another pid namespace",
                     "its book is locked by a process that cannot be told");
}

static void check_lock(struct doctor *doctor, const char *name, struct host_lock *lock)
{
    int rc = host_lock_acquire(lock, HOST_LOCK_EXCLUSIVE, LOCK_MS);
    if (rc == 0)
        host_lock_release(lock);
    else if (rc == LEASE_ELOCKED)
        say_locked(doctor, name);
}

#define FREE_SPACE "free some space there, or set LEASE_DIR to another directory"

/* Of a book that is still to be made. */
static void check_space(struct doctor *doctor, const struct provider_spec *spec, int dir)
{
    struct statvfs facts;
    if (fstatvfs(dir, &facts) < 0)
        return;
    bool no_inodes = facts.f_files > 0 && facts.f_favail == 0;
    if ((uint64_t)facts.f_bavail * facts.f_frsize < sizeof(struct host_file) || no_inodes)
        doctor_wrong(doctor, spec->name, FREE_SPACE,
                     "its book needs %zu KiB in %s, and there %s left",
                     sizeof(struct host_file) / 1024, doctor->directory,
                     no_inodes ? "are no inodes" : "is less");
}

/* The mend of a book that cannot be opened. */
static const char *mend_of(int error, const struct stat *facts)
{
    if (error == LEASE_ENOSPC)
        return FREE_SPACE;
    if (error != LEASE_EPERM)
        return "end who uses it, then remove that file";
    return S_ISREG(facts->st_mode) ? "let its owner give you access, or remove it"
                                   : "remove it: it is no regular file";
}

/* With a book that cannot be used each process counts its own leases only. */
static void check_book(struct doctor *doctor, const struct provider_spec *spec)
{
    char name[HOST_TABLE_NAME_SIZE];
    struct stat facts;
    static struct host_table table; /* both large */
    static struct book book;
    struct book_settings settings;
    struct host_table_options options = {.instance = 1, .epoch = 1, .mode = 0600};
    int dir = open(doctor->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return; /* told of the directory already */
    host_table_name(spec->name, name);
    if (fstatat(dir, name, &facts, AT_SYMLINK_NOFOLLOW) < 0 ||
        (S_ISREG(facts.st_mode) && facts.st_size == 0)) {
        check_space(doctor, spec, dir); /* nobody has made it yet, and it is not ours to make */
        close(dir);
        return;
    }
    book_settings_default(&settings);
    book_init(&book, spec->name, &settings);
    int rc = host_table_open(&table, dir, spec->name, &book, &options);
    close(dir);
    if (rc == 0) {
        check_lock(doctor, spec->name, &table.lock);
        host_table_close(&table);
    } else if (rc == LEASE_ELOCKED) {
        say_locked(doctor, spec->name);
    } else {
        doctor_wrong(doctor, spec->name, mend_of(rc, &facts),
                     "its book %s/%s cannot be used (%s): processes of this host do not see each "
                     "other's leases",
                     doctor->directory, name, lease_strerror(rc));
    }
}

void doctor_check_provider(struct doctor *doctor, const struct provider_spec *spec)
{
    static struct reading reading; /* large */
    check_book(doctor, spec);
    if (spec->key_file[0])
        check_key_file(doctor, spec);
    int rc = probe_now(spec, PROBE_QUICK, NULL, LOOK_MS, clock_now, &reading);
    if (rc < 0)
        doctor_wrong(doctor, spec->name, "see whether libcurl is installed",
                     "it cannot be asked: %s", lease_strerror(rc));
    else
        check_health(doctor, spec, &reading);
}
