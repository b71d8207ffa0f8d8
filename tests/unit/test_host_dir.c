#define _GNU_SOURCE
#include "broker/host_dir.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/error.h"
#include "broker/host_beat.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

#define NOBODY 65534
#define ROOM   256

/* A little root of our own: run/, xdg/ and tmp/ in a temporary directory. */
static char root[TEMP_DIR_MAX];
static char run_path[ROOM], xdg_base[ROOM], xdg_path[ROOM], tmp_path[ROOM];
static struct host_dir_places places;
static struct host_dir dir;

static const char *under_root(char out[ROOM], const char *rest)
{
    (void)snprintf(out, ROOM, "%s/%s", root, rest);
    return out;
}

static int set_up(void **state)
{
    (void)state;
    if (!temp_dir_make(root)) {
        return -1;
    }
    (void)under_root(run_path, "leasehold");
    (void)under_root(xdg_base, "xdg");
    (void)under_root(xdg_path, "xdg/leasehold");
    (void)under_root(tmp_path, "leasehold-1");
    places = (struct host_dir_places){NULL, NULL, run_path, xdg_base, tmp_path};
    dir.fd = -1;
    return mkdir(xdg_base, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    host_clock_offset(0);
    host_dir_close(&dir);
    temp_dir_remove(root);
    return 0;
}

static void make_dir(const char *path, mode_t mode)
{
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return (unsigned)st.st_mode & 07777;
}

/* The one line that users get: lower case (but a name at its start), no full stop, no line feed. */
static void assert_one_line(const char *why)
{
    size_t length = strlen(why);
    assert_true(length > 20 && length < HOST_DIR_WHY_MAX - 1);
    assert_null(strchr(why, '\n'));
    assert_false(isupper((unsigned char)why[0]));
    assert_int_not_equal(why[length - 1], '.');
}

static void assert_refused(int rc, int wanted, const char *says)
{
    assert_int_equal(rc, wanted);
    assert_int_equal(dir.fd, -1);
    assert_one_line(dir.why);
    if (!strstr(dir.why, says)) {
        fail_msg("'%s' does not say '%s'", dir.why, says);
    }
}

static void speak_in(const char *path)
{
    int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = host_beat_open(dir_fd, true, 0600);
    assert_true(fd >= 0);
    assert_int_equal(host_beat_write(fd, HOST_BEAT_DAEMON), 0);
    (void)close(fd);
    (void)close(dir_fd);
}

/* Runs a check as nobody, in a child. Skips where we are not root. */
static void as_nobody(int (*check)(void))
{
    if (geteuid() != 0) {
        print_message("needs root to become somebody else\n");
        skip();
    }
    pid_t child = fork();
    if (child == 0) {
        if (setgid(NOBODY) || setuid(NOBODY)) {
            _exit(99);
        }
        _exit(check());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* -- the order -------------------------------------------------------------------------------- */

static void the_first_that_serves_is_made_and_taken(void **state)
{
    (void)state;
    mode_t before = umask(077);
    int rc = host_dir_open_of(&places, &dir);
    (void)umask(before);
    assert_int_equal(rc, 0);
    assert_int_equal(dir.kind, HOST_DIR_RUN);
    assert_string_equal(dir.path, run_path);
    assert_int_equal(mode_of(run_path), 02770);
    assert_int_equal(dir.file_mode, 0660);
    assert_int_equal(fcntl(dir.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(faccessat(AT_FDCWD, tmp_path, F_OK, 0), -1); /* the others are not made */
}

static void a_refused_one_is_passed_over(void **state)
{
    (void)state;
    make_dir(run_path, 0777);
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_string_equal(dir.path, xdg_path);
    assert_int_equal(mode_of(xdg_path), 0700);
    assert_int_equal(dir.file_mode, 0600);
    host_dir_close(&dir);
    assert_int_equal(chmod(xdg_path, 0750), 0);
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_string_equal(dir.path, tmp_path);
    assert_int_equal(mode_of(tmp_path), 0700);
}

static void the_one_whose_speaker_is_alive_comes_first(void **state)
{
    (void)state;
    make_dir(run_path, 02770);
    make_dir(tmp_path, 0700);
    speak_in(tmp_path);
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_string_equal(dir.path, tmp_path);
    host_dir_close(&dir);
    host_clock_offset(HOST_BEAT_STALE_NS + 1); /* the speaker was stopped */
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_string_equal(dir.path, run_path);
}

static void a_speaker_in_a_refused_one_does_not_count(void **state)
{
    (void)state;
    make_dir(tmp_path, 0700);
    speak_in(tmp_path);
    assert_int_equal(chmod(tmp_path, 0770), 0);
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_string_equal(dir.path, run_path);
}

static void all_refused_is_an_error_with_a_reason(void **state)
{
    (void)state;
    make_dir(run_path, 0777);
    make_dir(xdg_path, 0777);
    make_dir(tmp_path, 0777);
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EDIR, tmp_path);
    assert_int_equal(mode_of(tmp_path), 0777); /* nothing is repaired behind anybody's back */
}

static void one_that_is_named_stands_alone(void **state)
{
    (void)state;
    char named[ROOM], other[ROOM];
    places.lease_dir = under_root(named, "named//");
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_int_equal(dir.kind, HOST_DIR_ENV);
    assert_string_equal(dir.path, under_root(other, "named"));
    assert_int_equal(mode_of(named), 0700);
    host_dir_close(&dir);
    assert_int_equal(chmod(named, 0777), 0);
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EPERM, "anybody may write");
    places.asked = under_root(other, "asked"); /* --dir wins over LEASE_DIR */
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_int_equal(dir.kind, HOST_DIR_ASKED);
    assert_string_equal(dir.path, other);
}

static void relative_paths(void **state)
{
    (void)state;
    char here[ROOM], wanted[ROOM];
    assert_non_null(getcwd(here, sizeof here));
    places.lease_dir = "relative";
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EDIR, "not absolute");
    places.asked = "mine";
    assert_int_equal(chdir(root), 0);
    int rc = host_dir_open_of(&places, &dir);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rc, 0);
    assert_string_equal(dir.path, under_root(wanted, "mine"));
}

static void the_environment_is_where_places_come_from(void **state)
{
    (void)state;
    struct host_dir_candidate c[HOST_DIR_CANDIDATES_MAX];
    char wanted[ROOM];
    assert_int_equal(setenv("LEASE_DIR", run_path, 1), 0);
    assert_int_equal(host_dir_candidates(NULL, c), 1);
    assert_string_equal(c[0].path, run_path);
    assert_int_equal(host_dir_open(NULL, &dir), 0);
    assert_string_equal(dir.path, run_path);
    assert_int_equal(unsetenv("LEASE_DIR"), 0);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", xdg_base, 1), 0);
    assert_int_equal(host_dir_candidates("", c), 3);
    assert_string_equal(c[0].path, "/run/leasehold");
    assert_string_equal(c[1].path, xdg_path);
    (void)snprintf(wanted, sizeof wanted, "/tmp/leasehold-%u", (unsigned)geteuid());
    assert_string_equal(c[2].path, wanted);
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(host_dir_candidates(NULL, c), 3);
    (void)snprintf(wanted, sizeof wanted, "/run/user/%u/leasehold", (unsigned)geteuid());
    assert_string_equal(c[1].path, wanted);
}

/* -- what status shows ------------------------------------------------------------------------ */

static void candidates_tell_all_and_make_nothing(void **state)
{
    (void)state;
    struct host_dir_candidate c[HOST_DIR_CANDIDATES_MAX];
    make_dir(run_path, 0777);
    make_dir(tmp_path, 0700);
    speak_in(tmp_path);
    assert_int_equal(host_dir_candidates_of(&places, c), 3);
    assert_int_equal(c[0].error, LEASE_EPERM);
    assert_one_line(c[0].why);
    assert_true(c[0].exists && !c[0].chosen && !c[0].alive);
    assert_int_equal(c[1].error, 0); /* absent, but it could be made */
    assert_true(!c[1].exists && !c[1].chosen);
    assert_int_equal(faccessat(AT_FDCWD, xdg_path, F_OK, 0), -1);
    assert_true(c[2].alive && c[2].chosen && c[2].exists);
    assert_int_equal(c[2].speaker_pid, getpid());
    assert_int_equal(c[2].speaker_kind, HOST_BEAT_DAEMON);
    assert_string_equal(c[2].why, "");
    assert_string_equal(host_dir_kind_name(c[2].kind), "tmp");
    assert_string_equal(host_dir_kind_name((enum host_dir_kind)99), "?");
}

static void a_stopped_speaker_is_still_named(void **state)
{
    (void)state;
    struct host_dir_candidate c[HOST_DIR_CANDIDATES_MAX];
    make_dir(tmp_path, 0700);
    speak_in(tmp_path);
    host_clock_offset(2 * HOST_BEAT_STALE_NS);
    assert_int_equal(host_dir_candidates_of(&places, c), 3);
    assert_false(c[2].alive);
    assert_int_equal(c[2].speaker_pid, getpid());
}

static void a_directory_that_was_replaced_is_noticed(void **state)
{
    (void)state;
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
    assert_int_equal(host_dir_check(&dir), 0);
    assert_int_equal(rmdir(run_path), 0);
    assert_int_equal(host_dir_check(&dir), LEASE_EVANISHED);
    host_dir_close(&dir);
    host_dir_close(&dir);
    assert_int_equal(host_dir_check(&dir), LEASE_EVANISHED);
}

/* -- what is refused -------------------------------------------------------------------------- */

static void links_and_files_are_refused(void **state)
{
    (void)state;
    char target[ROOM];
    make_dir(under_root(target, "target"), 0700);
    assert_int_equal(symlink(target, tmp_path), 0);
    places.asked = tmp_path;
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EPERM, "symbolic link");
    assert_int_equal(unlink(tmp_path), 0);
    assert_int_equal(symlink("nowhere", tmp_path), 0);
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EPERM, "symbolic link");
    assert_int_equal(unlink(tmp_path), 0);
    int fd = open(tmp_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(close(fd), 0);
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EPERM, "not a directory");
}

static void modes_that_let_others_write_are_refused(void **state)
{
    (void)state;
    const struct {
        mode_t mode;
        int rc;
    } modes[] = {{0700, 0},           {02770, 0},          {0755, 0},
                 {0770, LEASE_EPERM}, {0777, LEASE_EPERM}, {02777, LEASE_EPERM},
                 {01777, 0},          {01770, 0},          {0702, LEASE_EPERM}};
    make_dir(run_path, 0700);
    places.asked = run_path;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(run_path, modes[i].mode), 0);
        assert_int_equal(host_dir_open_of(&places, &dir), modes[i].rc);
        host_dir_close(&dir);
    }
}

static void own_places_must_be_private(void **state)
{
    (void)state;
    const mode_t modes[] = {0710, 0701, 0750, 02770, 01777};
    make_dir(run_path, 0777); /* out of the way */
    make_dir(xdg_path, 0777);
    make_dir(tmp_path, 0700);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(tmp_path, modes[i]), 0);
        assert_refused(host_dir_open_of(&places, &dir), LEASE_EDIR, "chmod 0700");
    }
}

static void a_path_too_long_for_a_socket_is_refused(void **state)
{
    (void)state;
    char path[ROOM];
    size_t length = strlen(root) + 1;
    (void)snprintf(path, sizeof path, "%s/", root);
    memset(path + length, 'd', HOST_DIR_PATH_MAX - length);
    path[HOST_DIR_PATH_MAX] = '\0';
    places.asked = path;
    assert_int_equal(host_dir_open_of(&places, &dir), 0); /* as long as may be */
    assert_int_equal(strlen(dir.path) + strlen("/" HOST_DIR_SOCKET), 107);
    host_dir_close(&dir);
    (void)strcpy(path + HOST_DIR_PATH_MAX, "ddd");
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EDIR, "3 bytes too long");
}

static void network_file_systems_are_refused(void **state)
{
    (void)state;
    assert_string_equal(host_dir_refused_type(0x6969), "nfs");
    assert_string_equal(host_dir_refused_type(0x65735546), "fuse");
    assert_string_equal(host_dir_refused_type(0x01021997), "9p");
    assert_string_equal(host_dir_refused_type(0xff534d42), "cifs");
    assert_null(host_dir_refused_type(0x01021994)); /* tmpfs */
    assert_null(host_dir_refused_type(0xef53));     /* ext4 */
    assert_null(host_dir_refused_type(0x794c7630)); /* overlayfs */
}

static void an_absent_parent_is_named(void **state)
{
    (void)state;
    char path[ROOM];
    places.asked = under_root(path, "absent/leasehold");
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EDIR, "/absent");
}

/* -- of several users ------------------------------------------------------------------------- */

static int nobody_is_told_to_join_the_group(void)
{
    places.asked = run_path;
    int rc = host_dir_open_of(&places, &dir);
    return rc == LEASE_EPERM && strstr(dir.why, "join its group") ? 0 : 1;
}

static int nobody_gets_in_by_the_group(void)
{
    places.asked = run_path;
    return host_dir_open_of(&places, &dir) == 0 && dir.file_mode == 0660 ? 0 : 1;
}

static void a_groups_directory_is_for_its_group(void **state)
{
    (void)state;
    make_dir(run_path, 02770);
    assert_int_equal(chmod(root, 0755), 0);
    as_nobody(nobody_is_told_to_join_the_group);
    assert_int_equal(chown(run_path, (uid_t)-1, NOBODY), 0);
    assert_int_equal(chmod(run_path, 02770), 0);
    as_nobody(nobody_gets_in_by_the_group);
}

static int nobody_cannot_make_it(void)
{
    places.asked = run_path;
    int rc = host_dir_open_of(&places, &dir);
    return rc == LEASE_EPERM && strstr(dir.why, "have root do it") ? 0 : 1;
}

static void what_cannot_be_made_is_root_s_to_make(void **state)
{
    (void)state;
    assert_int_equal(chmod(root, 0755), 0);
    as_nobody(nobody_cannot_make_it);
}

static void foreign_directories_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("needs root to give directories away\n");
        skip();
    }
    make_dir(run_path, 0700);
    make_dir(xdg_path, 0700);
    make_dir(tmp_path, 0700);
    assert_int_equal(chown(run_path, NOBODY, NOBODY), 0);
    assert_int_equal(chown(xdg_path, NOBODY, NOBODY), 0);
    assert_int_equal(chown(tmp_path, NOBODY, NOBODY), 0);
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EDIR, "belongs to uid 65534");
    places.asked = run_path;
    assert_refused(host_dir_open_of(&places, &dir), LEASE_EPERM, "belongs to uid 65534");
    assert_int_equal(chmod(run_path, 02770), 0); /* a group's, and root may */
    assert_int_equal(host_dir_open_of(&places, &dir), 0);
}

static void another_users_session_is_left_alone(void **state)
{
    (void)state;
    struct host_dir_candidate c[HOST_DIR_CANDIDATES_MAX];
    if (geteuid() != 0) {
        print_message("needs root to give directories away\n");
        skip();
    }
    assert_int_equal(chown(xdg_base, NOBODY, NOBODY), 0); /* as under sudo */
    assert_int_equal(host_dir_candidates_of(&places, c), 3);
    assert_int_equal(c[1].error, LEASE_EPERM);
    assert_one_line(c[1].why);
}

#define fresh(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        fresh(the_first_that_serves_is_made_and_taken),
        fresh(a_refused_one_is_passed_over),
        fresh(the_one_whose_speaker_is_alive_comes_first),
        fresh(a_speaker_in_a_refused_one_does_not_count),
        fresh(all_refused_is_an_error_with_a_reason),
        fresh(one_that_is_named_stands_alone),
        fresh(relative_paths),
        fresh(the_environment_is_where_places_come_from),
        fresh(candidates_tell_all_and_make_nothing),
        fresh(a_stopped_speaker_is_still_named),
        fresh(a_directory_that_was_replaced_is_noticed),
        fresh(links_and_files_are_refused),
        fresh(modes_that_let_others_write_are_refused),
        fresh(own_places_must_be_private),
        fresh(a_path_too_long_for_a_socket_is_refused),
        fresh(network_file_systems_are_refused),
        fresh(an_absent_parent_is_named),
        fresh(a_groups_directory_is_for_its_group),
        fresh(what_cannot_be_made_is_root_s_to_make),
        fresh(foreign_directories_are_refused),
        fresh(another_users_session_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
