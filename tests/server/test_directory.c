/* Runtime directories and books in every sorry state: one clear line, degrade or refuse, never a
 * crash. Run by root where it has to mount. */
#define _GNU_SOURCE
#include "tests/server/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/host_dir.h"
#include "tests/server/layout.h"

static const char *const fixed = "x=static:2,own=yes";

/* Without a server: what is told here does not depend on readings. */
static void open_without_server(struct stage *stage, const struct company *company)
{
    stage_open(stage, company, 1);
    snprintf(stage->spec, sizeof stage->spec, "%s", fixed);
    if (company->agent)
        stage_agent_start(stage);
}

/* One warning line with the text, leases known to this process only, and it works all the same. */
static void degrades(struct stage *stage, const char *text)
{
    struct ran ran = stage_lease(stage, "run", "x", "--", "sh", "-c", "echo $LEASE_REACH", NULL);
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, "process\n");
    ran_says(&ran, "lease: warning: ");
    ran_says(&ran, text);
    ran_done(&ran);
    /* and every other command ends well or with a line, not with a signal */
    static const char *const commands[] = {"ls", "fleet", "status", "log", "doctor"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        ran = stage_lease(stage, commands[i], NULL);
        if (ran.code >= 128)
            fail_msg("%s: exit %d", commands[i], ran.code);
        ran_done(&ran);
    }
}

static void serves(struct stage *stage)
{
    struct ran ran = stage_lease(stage, "run", "x", "--", "sh", "-c", "echo $LEASE_REACH", NULL);
    if (ran.code != 0 || strcmp(ran.out, "host\n") != 0 || ran.err[0])
        fail_msg("exit %d, %s%s", ran.code, ran.out, ran.err);
    ran_done(&ran);
}

/* The daemon refuses what it cannot use, with one line. */
static void daemon_refuses(struct stage *stage, int code)
{
    char *argv[] = {(char *)(uintptr_t)LEASE_AGENT_PROGRAM, (char *)(uintptr_t) "--provider",
                    stage->spec, NULL};
    struct ran ran = stage_run(stage, argv);
    const char *newline = strchr(ran.err, '\n');
    if (ran.code != code || strncmp(ran.err, "lease-agent: ", 13) != 0 || !newline || newline[1])
        fail_msg("exit %d instead of %d, %s", ran.code, code, ran.err);
    ran_done(&ran);
}

static void book_path(const struct stage *stage, char path[256])
{
    snprintf(path, 256, "%s/x.book", stage->run);
    if (access(path, F_OK) == 0)
        return;
    char command[256];
    snprintf(command, sizeof command, "ls %s | grep '^x'", stage->run);
    FILE *list = popen(command, "re");
    char name[64] = "";
    assert_non_null(fgets(name, sizeof name, list));
    pclose(list);
    name[strcspn(name, "\n")] = '\0';
    snprintf(path, 256, "%s/%s", stage->run, name);
}

/* A case that is skipped or fails half way does not come to close its stage. */
static void test_a_stage_that_is_left_is_removed(void **state)
{
    struct stage left, stage;
    open_without_server(&left, *state);
    serves(&left);
    open_without_server(&stage, *state);
    assert_int_equal(access(left.root, F_OK), -1);
    serves(&stage);
    stage_close(&stage);
    assert_int_equal(access(stage.root, F_OK), -1);
}

/* ---- the directory ---------------------------------------------------------------------- */

static void test_absent(void **state)
{
    struct stage stage;
    open_without_server(&stage, *state);
    assert_int_equal(rmdir(stage.run), 0);
    serves(&stage); /* it is made */
    char path[256];
    snprintf(path, sizeof path, "%s/not/there", stage.root);
    setenv("LEASE_DIR", path, 1);
    degrades(&stage, "is absent, and so is");
    daemon_refuses(&stage, 69);
    stage_close(&stage);
}

static void test_symlink(void **state)
{
    struct stage stage;
    char path[256];
    open_without_server(&stage, *state);
    snprintf(path, sizeof path, "%s/link", stage.root);
    assert_int_equal(symlink(stage.run, path), 0);
    setenv("LEASE_DIR", path, 1);
    degrades(&stage, "is a symbolic link");
    daemon_refuses(&stage, 69);
    stage_close(&stage);
}

static void test_foreign_owner(void **state)
{
    struct stage stage;
    if (geteuid() != 0) {
        print_message("skipped: giving a directory away wants root\n");
        skip();
    }
    open_without_server(&stage, *state);
    assert_int_equal(chown(stage.run, 12345, 12345), 0);
    degrades(&stage, "belongs to uid 12345");
    daemon_refuses(&stage, 69);
    stage_close(&stage);
}

static void test_open_to_all(void **state)
{
    struct stage stage;
    open_without_server(&stage, *state);
    assert_int_equal(chmod(stage.run, 0777), 0);
    degrades(&stage, "anybody may write in");
    daemon_refuses(&stage, 69);
    stage_close(&stage);
}

static void mount_small(const struct stage *stage, const char *options, unsigned long flags)
{
    if (geteuid() != 0 || mount("none", stage->run, "tmpfs", flags, options) != 0) {
        print_message("skipped: a mount wants root\n");
        skip();
    }
}

static void doctor_says(struct stage *stage, const char *text)
{
    struct ran ran = stage_lease(stage, "doctor", NULL);
    if (ran.code != 1 || !strstr(ran.out, text))
        fail_msg("exit %d, no '%s' in %s", ran.code, text, ran.out);
    ran_done(&ran);
}

static bool agent_speaks(struct stage *stage)
{
    struct ran ran = stage_lease(stage, "status", "--json", NULL);
    bool speaks = strstr(ran.out, "\"alive\":true,\"stopped\":false") != NULL;
    ran_done(&ran);
    return speaks;
}

static void refuses(struct stage *stage, const char *text)
{
    struct ran ran = stage_lease(stage, "run", "x", "--", "true", NULL);
    assert_int_equal(ran.code, 75);
    ran_says(&ran, text);
    ran_done(&ran);
}

static void test_full(void **state)
{
    struct stage stage;
    open_without_server(&stage, *state);
    mount_small(&stage, "size=64k,mode=0700", 0);
    doctor_says(&stage, "free some space");
    degrades(&stage, "free some");
    doctor_says(&stage, "free some space");
    char *argv[] = {(char *)(uintptr_t)LEASE_AGENT_PROGRAM, (char *)(uintptr_t) "--provider",
                    stage.spec, NULL};
    pid_t agent = stage_spawn(&stage, argv, NULL);
    assert_true(STAGE_UNTIL(agent_speaks(&stage), 5000));
    refuses(&stage, "no space"); /* two of them would each go alone */
    kill(agent, SIGTERM);
    int code = stage_await(&stage, agent, 5000);
    assert_true(code == 0 || code == 69 || code == 70);
    assert_int_equal(umount2(stage.run, MNT_DETACH), 0);
    stage_close(&stage);
}

static void test_no_inodes(void **state)
{
    struct stage stage;
    open_without_server(&stage, *state);
    mount_small(&stage, "nr_inodes=1,mode=0700", 0);
    doctor_says(&stage, "no inodes");
    degrades(&stage, "no inodes");
    daemon_refuses(&stage, 70);
    assert_int_equal(umount2(stage.run, MNT_DETACH), 0);
    stage_close(&stage);
}

static void test_read_only(void **state)
{
    struct stage stage;
    open_without_server(&stage, *state);
    mount_small(&stage, "mode=0700", MS_RDONLY);
    degrades(&stage, "mounted read-only");
    daemon_refuses(&stage, 69);
    assert_int_equal(umount2(stage.run, MNT_DETACH), 0);
    stage_close(&stage);
}

/* None can be mounted here, so the numbers stand for them; what follows from them is that of the
 * other refusals. */
static void test_network_file_systems(void **state)
{
    (void)state;
    assert_string_equal(host_dir_refused_type(0x6969), "nfs");
    assert_non_null(host_dir_refused_type(0xfe534d42));
    assert_non_null(host_dir_refused_type(0x65735546));
    assert_null(host_dir_refused_type(0x01021994)); /* tmpfs */
    assert_null(host_dir_refused_type(0xef53));     /* ext4 */
}

static bool shows_lease(struct stage *stage)
{
    struct ran ran = stage_lease(stage, "ls", "--json", NULL);
    bool shown =
        ran.code == 0 && strstr(ran.out, "\"dispatched\"") && strstr(ran.out, "\"id\":\"x:");
    ran_done(&ran);
    return shown;
}

static bool agent_has_followed(struct stage *stage)
{
    char path[256];
    snprintf(path, sizeof path, "%s/agent.json", stage->run);
    return access(path, F_OK) == 0;
}

/* Who holds a lease goes on, and counts in the directory that is made anew. */
static void test_removed_while_held(void **state)
{
    struct stage stage;
    open_without_server(&stage, *state);
    char script[128];
    snprintf(script, sizeof script, "until [ -e %s/end ]; do sleep 0.02; done; exit 7", stage.root);
    pid_t holder = stage_lease_begin(&stage, NULL, "run", "x", "--", "sh", "-c", script, NULL);
    assert_true(STAGE_UNTIL(shows_lease(&stage), 5000));
    temp_dir_remove(stage.run);
    assert_true(STAGE_UNTIL(shows_lease(&stage), 10000));
    if (stage.company->agent) /* which alone was told what x is */
        assert_true(STAGE_UNTIL(agent_has_followed(&stage), 5000));
    serves(&stage);
    char end[128];
    snprintf(end, sizeof end, "%s/end", stage.root);
    close(open(end, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(stage_await(&stage, holder, 5000), 7);
    assert_true(STAGE_UNTIL(!shows_lease(&stage), 5000));
    stage_close(&stage);
}

/* Removed while somebody sits on the book's lock and others want it. */
static void test_removed_under_a_lock(void **state)
{
    struct stage stage;
    char path[256];
    open_without_server(&stage, *state);
    serves(&stage);
    book_path(&stage, path);
    stage_contend(&stage, 4);
    for (int i = 0; i < 5; i++) {
        assert_true(STAGE_UNTIL(access(path, F_OK) == 0, 5000));
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(flock(fd, LOCK_EX), 0);
        temp_dir_remove(stage.run);
        client_pause_ms(10); /* half of what they wait for the lock */
        close(fd);
    }
    assert_true(STAGE_UNTIL(access(path, F_OK) == 0, 5000));
    struct contest contest = stage_contest_end(&stage);
    assert_true(contest.go > 10);
    assert_in_range(contest.errors, 0, 5 * 4); /* a lease that was in it is gone */
    assert_in_range(contest.longest_ms, 0, 3000);
    if (stage.company->agent) /* it looks at the directory each second */
        assert_true(STAGE_UNTIL(agent_has_followed(&stage), 5000));
    serves(&stage);
    stage_close(&stage);
}

/* ---- the book --------------------------------------------------------------------------- */

static void write_at(const char *path, off_t at, const void *bytes, size_t size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, at), (ssize_t)size);
    close(fd);
}

static void test_garbage_book(void **state)
{
    struct stage stage;
    char path[256];
    open_without_server(&stage, *state);
    serves(&stage);
    stage_agent_end(&stage);
    book_path(&stage, path);
    write_at(path, 0, "no book at all, but something else entirely", 40);
    degrades(&stage, "damaged");
    assert_int_equal(truncate(path, 40), 0);
    degrades(&stage, "damaged");
    stage_close(&stage);
}

static void test_book_of_another_version(void **state)
{
    struct stage stage;
    char path[256];
    uint32_t version = layout_version + 1;
    open_without_server(&stage, *state);
    serves(&stage);
    stage_agent_end(&stage);
    book_path(&stage, path);
    write_at(path, (off_t)layout_version_at, &version, sizeof version);
    degrades(&stage, "version");
    stage_close(&stage);
}

/* It shrinks again and again under those who use it. */
static void test_truncated_between_locks(void **state)
{
    struct stage stage;
    char path[256];
    open_without_server(&stage, *state);
    serves(&stage);
    book_path(&stage, path);
    int out;
    stage_lease_begin(&stage, &out, "watch", NULL);
    pid_t waiter =
        stage_lease_begin(&stage, NULL, "run", "--slot", "1", "x", "--", "sleep", "600", NULL);
    assert_true(STAGE_UNTIL(shows_lease(&stage), 5000));
    stage_contend(&stage, 4);
    for (int i = 0; i < 30; i++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(flock(fd, LOCK_EX), 0);
        assert_int_equal(ftruncate(fd, 0), 0);
        close(fd);
        client_pause_ms(50);
    }
    assert_int_equal(stage_await(&stage, waiter, 0), -1); /* nobody was ended by it */
    struct contest contest = stage_contest_end(&stage);
    assert_true(contest.go > 10);
    serves(&stage);
    /* what ran on is counted in the new book */
    assert_true(STAGE_UNTIL(shows_lease(&stage), 5000));
    close(out);
    stage_close(&stage);
}

/* So often that it is cut again while somebody opens it anew. */
static void test_truncated_while_it_is_opened(void **state)
{
    struct stage stage;
    char path[256];
    open_without_server(&stage, *state);
    serves(&stage);
    book_path(&stage, path);
    stage_contend(&stage, 3);
    for (int i = 0; i < 300; i++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(flock(fd, LOCK_EX), 0);
        assert_int_equal(ftruncate(fd, 0), 0);
        close(fd);
        client_pause_ms(i % 10);
    }
    struct contest contest = stage_contest_end(&stage); /* nobody was ended by it */
    assert_true(contest.acquires > 10);
    stage_close(&stage);
}

/* ---- flipped bits ----------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Half of the hits where the words are on which everything hangs, the others anywhere. */
static size_t random_place(uint64_t *random, size_t size)
{
    size_t within = next_random(random) % 2 ? 8192 : size;
    return next_random(random) % within;
}

static void flip_bits(const char *path, uint64_t *random, int64_t ms)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    unsigned char *at = mmap(NULL, layout_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    int64_t end = client_now_ms() + ms;
    while (client_now_ms() < end) {
        at[random_place(random, layout_size)] ^= (unsigned char)(1u << next_random(random) % 8);
        if (next_random(random) % 64 == 0)
            client_pause_ms(1);
    }
    munmap(at, layout_size);
}

static void flips(struct stage *stage, uint64_t seed)
{
    char path[256];
    uint64_t random = seed;
    int out;
    print_message("  seed %llu\n", (unsigned long long)seed);
    serves(stage);
    book_path(stage, path);
    stage_lease_begin(stage, &out, "watch", NULL);
    pid_t holder = stage_lease_begin(stage, NULL, "run", "x", "--", "sleep", "600", NULL);
    assert_true(STAGE_UNTIL(shows_lease(stage), 5000));
    stage_contend(stage, 3);
    for (int i = 0; i < 4; i++) {
        flip_bits(path, &random, 300);
        static const char *const commands[] = {"ls", "fleet", "log", "status"};
        struct ran ran = stage_lease(stage, commands[i], NULL);
        if (ran.code >= 128)
            fail_msg("%s: exit %d: %s", commands[i], ran.code, ran.err);
        ran_done(&ran);
        ran = stage_lease(stage, "run", "x", "--", "true", NULL);
        if (ran.code >= 128 || ran.code == 70)
            fail_msg("run: exit %d: %s", ran.code, ran.err);
        ran_done(&ran);
    }
    assert_int_equal(stage_await(stage, holder, 0), -1);
    struct contest contest = stage_contest_end(stage);
    assert_in_range(contest.longest_ms, 0, 3000);
    kill(holder, SIGTERM);
    assert_int_equal(stage_await(stage, holder, 5000), 128 + SIGTERM);
    close(out);
}

static void test_flipped_bits(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)client_now_ms() * 2654435761u | 1;
    for (int round = 0; round < (given ? 1 : 3); round++) {
        struct stage stage;
        open_without_server(&stage, *state);
        flips(&stage, seed + (uint64_t)round * 1000003);
        stage_close(&stage);
    }
}

/* ---- what the speaker leaves ------------------------------------------------------------ */

static void spoil(const struct stage *stage, const char *name, const char *bytes, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", stage->run, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
}

/* Garbage in the speaker's files: its clients work as without it, and it starts over them. */
static void test_spoilt_words_of_the_speaker(void **state)
{
    static const struct company alone = {false, "new"}, together = {true, "new"};
    static const char *const garbage[] = {"", "{", "[1,2]", "\xff\xfe\x00garbage",
                                          "{\"providers\":[1,null,{}, \"x\", \"=\"],\"pid\":-7}"};
    struct stage stage;
    (void)state;
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        open_without_server(&stage, &together);
        serves(&stage);
        spoil(&stage, "agent.json", garbage[i], i == 3 ? 10 : strlen(garbage[i]));
        spoil(&stage, "agent.beat", garbage[i], i == 3 ? 10 : strlen(garbage[i]));
        stage.company = &alone;
        serves(&stage); /* with the provider named */
        struct ran ran = stage_lease(&stage, "status", NULL);
        assert_true(ran.code < 128);
        ran_done(&ran);
        ran = stage_lease(&stage, "doctor", NULL);
        assert_true(ran.code < 128);
        ran_done(&ran);
        stage_agent_end(&stage);
        spoil(&stage, "agent.json", garbage[i], strlen(garbage[i]));
        spoil(&stage, "agent.beat", garbage[i], strlen(garbage[i]));
        stage_agent_start(&stage);
        stage.company = &together;
        serves(&stage);
        stage_close(&stage);
    }
}

/* A user who may not read what the speaker left, as in somebody else's group directory. */
static void test_unreadable_words_of_the_speaker(void **state)
{
    static const struct company alone = {false, "new"};
    struct stage stage;
    char path[256];
    (void)state;
    open_without_server(&stage, &alone);
    serves(&stage);
    snprintf(path, sizeof path, "%s/agent.json", stage.run);
    assert_int_equal(mkdir(path, 0700), 0); /* nobody can read that, not even root */
    snprintf(path, sizeof path, "%s/agent.beat", stage.run);
    assert_int_equal(mkdir(path, 0700), 0);
    serves(&stage);
    daemon_refuses(&stage, 70);
    stage_close(&stage);
}

int main(int argc, char **argv)
{
    const struct company *alone = &companies[0];
#define ALONE(test)                                                                                \
    {                                                                                              \
#test, test, NULL, NULL, (void *)(uintptr_t)alone                                          \
    }
    const struct CMUnitTest tests[] = {
        IN_NEW_COMPANY(test_a_stage_that_is_left_is_removed),
        ALONE(test_absent),
        ALONE(test_symlink),
        ALONE(test_foreign_owner),
        ALONE(test_open_to_all),
        ALONE(test_full),
        ALONE(test_no_inodes),
        ALONE(test_read_only),
        ALONE(test_network_file_systems),
        IN_NEW_COMPANY(test_removed_while_held),
        IN_NEW_COMPANY(test_removed_under_a_lock),
        IN_NEW_COMPANY(test_garbage_book),
        IN_NEW_COMPANY(test_book_of_another_version),
        IN_NEW_COMPANY(test_truncated_between_locks),
        IN_NEW_COMPANY(test_truncated_while_it_is_opened),
        IN_NEW_COMPANY(test_flipped_bits),
        ALONE(test_spoilt_words_of_the_speaker),
        ALONE(test_unreadable_words_of_the_speaker),
    };
    stage_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
