/* A book's writer, killed at any instruction of a commit: nothing is torn, no lock stuck, nothing is
 * given out twice.
 *
 * Each scene is stepped through once, instruction by instruction, while this process looks at the
 * same file: what changes it, and when. A process that is killed leaves nothing but that file and a
 * lock that the kernel takes back. So kills between two visible stores are one and the same, and it is
 * killed once behind each visible store; and at every STRIDE-th instruction all the same.
 *
 *   LEASEHOLD_CRASH_STRIDE  97 by default; 1: at every instruction, which takes long */
#define _GNU_SOURCE
#include "tests/lib/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/fence.h"
#include "tests/crash/stepper.h"
#include "tests/crash/witness.h"
#include "tests/lib/temp_dir.h"

#define BOOK       "z4.v1.book"
#define STATES_MAX 8192
#define FAULTS_MAX 1024
#define STEPS_MAX  5000000
#define LONG       2000 /* steps between two faults, of which few are tried */

/* ---- the file, before and after -------------------------------------------------------------- */

static struct expected expected;
static struct order *order; /* shared with the writer */
static ns_t began;          /* when the commit is made */

static struct {
    char path[TEMP_DIR_MAX];
    bool exists;
    size_t size;
    unsigned char before[FENCE_PAGES * FENCE_PAGE], after[FENCE_PAGES * FENCE_PAGE];
    unsigned char *now; /* the file as it is, mapped; NULL where it is not whole */
    uint32_t watched[FENCE_PAGES], watched_count;
} file;

static void map_now(void)
{
    struct stat status;
    int fd = openat(expected.dir, BOOK, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && (size_t)status.st_size == sizeof(struct host_file)) {
        void *at = mmap(NULL, sizeof(struct host_file), PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE,
                        fd, 0);
        file.now = at == MAP_FAILED ? NULL : at;
    }
    close(fd);
}

static void unmap_now(void)
{
    if (file.now)
        munmap(file.now, sizeof(struct host_file));
    file.now = NULL;
}

static void write_file(void)
{
    unlinkat(expected.dir, BOOK, 0);
    int fd = openat(expected.dir, BOOK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, file.before, file.size) != (ssize_t)file.size)
        abort();
    close(fd);
}

/* As it was before the commit. */
static void restore(void)
{
    unlinkat(expected.dir, "z4.lock", 0);
    if (expected.scene->step && file.now) {
        for (size_t at = 0; at < sizeof(struct host_file); at += FENCE_PAGE) {
            size_t size = sizeof(struct host_file) - at;
            size = size < FENCE_PAGE ? size : FENCE_PAGE;
            if (memcmp(file.now + at, file.before + at, size) != 0)
                memcpy(file.now + at, file.before + at, size);
        }
        return;
    }
    unmap_now();
    if (file.exists)
        write_file();
    else
        unlinkat(expected.dir, BOOK, 0);
    map_now();
}

/* ---- what can be seen ------------------------------------------------------------------------ */

static unsigned char seen[FENCE_PAGES * FENCE_PAGE];
static off_t seen_size; /* -1: no file */

static off_t size_now(void)
{
    struct stat status;
    return fstatat(expected.dir, BOOK, &status, 0) < 0 ? -1 : status.st_size;
}

static size_t page_size(uint32_t page)
{
    size_t left = sizeof(struct host_file) - (size_t)page * FENCE_PAGE;
    return left < FENCE_PAGE ? left : FENCE_PAGE;
}

/* True where something is otherwise than when it was asked before. */
static bool has_changed(void)
{
    bool changed = false;
    if (!file.now) {
        off_t size = size_now();
        changed = size != seen_size;
        seen_size = size;
        map_now();
    }
    for (uint32_t i = 0; file.now && i < file.watched_count; i++) {
        size_t at = (size_t)file.watched[i] * FENCE_PAGE;
        if (memcmp(seen + at, file.now + at, page_size(file.watched[i])) == 0)
            continue;
        memcpy(seen + at, file.now + at, page_size(file.watched[i]));
        changed = true;
    }
    return changed;
}

static void look_first(void)
{
    memset(seen, 0, sizeof seen);
    seen_size = size_now();
    (void)has_changed();
}

static uint64_t hash_now(void)
{
    uint64_t sum = (uint64_t)seen_size;
    for (uint32_t i = 0; i < file.watched_count; i++)
        sum = sum * 31 + words_check(seen + (size_t)file.watched[i] * FENCE_PAGE, FENCE_PAGE);
    return sum;
}

/* ---- the writer ------------------------------------------------------------------------------ */

static void aside(struct seat *seat)
{
    witness_order(&seat->book, order);
    fence_raise();
}

static void write_commit(void *context)
{
    static struct seat seat;
    const struct scene *scene = context;
    uint64_t epoch = scene->file == FILE_OF_ANOTHER_BOOT ? SCENE_EPOCH - 100 : SCENE_EPOCH;
    if (scene->step) {
        if (scene_open(scene, &seat, expected.dir, SCENE_EPOCH) < 0)
            _exit(96);
        seat.now = began;
        seat.drawn = 5000;
    }
    raise(STEP_BEGIN);
    int error = scene->step ? scene_play(scene, &seat, aside)
                            : scene_open(scene, &seat, expected.dir, epoch);
    if (error < 0)
        _exit(95);
    raise(STEP_END);
}

/* Before the first step, or at the n-th page that is touched. */
static pid_t start_at(uint32_t fault)
{
    restore();
    fence->faults = 0;
    fence->target = fault;
    pid_t pid = step_start(write_commit, (void *)(uintptr_t)expected.scene);
    bool begun = false;
    for (;;) {
        enum step_event event = step_run(pid);
        if (event == STEP_GONE || event == STEP_OVER)
            abort();
        if (event == STEP_MARK && begun)
            break;
        begun = begun || event == STEP_MARK;
        if (begun && fault == 0)
            break;
    }
    look_first();
    return pid;
}

/* ---- stepping through ------------------------------------------------------------------------ */

struct path {
    uint32_t steps, states, faults;
    uint64_t hash[STATES_MAX];
    uint32_t state_at[FAULTS_MAX];   /* the state when this page is touched; [0]: 0 */
    uint32_t steps_from[FAULTS_MAX]; /* steps up to the next one */
};
static struct path plain, fenced;

static void step_through(struct path *path, bool up)
{
    memset(path, 0, sizeof *path);
    fence->up = up;
    pid_t pid = start_at(0);
    path->hash[0] = hash_now();
    enum step_event event;
    bool run = false; /* through pages that are dull */
    while ((event = run ? step_run(pid) : step_once(pid)) != STEP_OVER) {
        if (event == STEP_GONE || path->steps == STEPS_MAX)
            abort();
        path->steps++;
        path->steps_from[path->faults]++;
        if (has_changed() && path->states + 1 < STATES_MAX)
            path->hash[++path->states] = hash_now();
        run = false;
        if (event == STEP_FAULT) {
            assert_true(path->faults + 1 < FAULTS_MAX);
            path->state_at[++path->faults] = path->states;
            run = fence->dull[(step_fault(pid) - fence->base) / FENCE_PAGE];
        }
    }
    step_kill(pid);
    fence->up = false;
}

/* ---- the kill -------------------------------------------------------------------------------- */

struct score {
    uint32_t kills, verdicts[KILL_VERDICTS];
};

static void be_quiet(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (!expected.loud && null >= 0)
        dup2(null, STDERR_FILENO);
    alarm(20);
}

static enum verdict_of_kill verdict_of(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid)
        abort();
    if (WIFEXITED(status) && WEXITSTATUS(status) < KILL_VERDICTS)
        return (enum verdict_of_kill)WEXITSTATUS(status);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? KILL_STUCK : KILL_WEDGED;
}

struct neighbour_process {
    pid_t pid;
    int go;
};

/* Has read the book before it is written; looks again when it is told to. */
static struct neighbour_process start_neighbour(bool all)
{
    static struct seat seat;
    int ready[2], go[2];
    char byte = 0;
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        be_quiet();
        int error = scene_open(expected.scene, &seat, expected.dir, SCENE_EPOCH);
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1 || error < 0)
            _exit(94);
        _exit((int)witness_neighbour(&expected, &seat, all));
    }
    close(ready[1]);
    close(go[0]);
    if (pid < 0 || read(ready[0], &byte, 1) != 1)
        abort();
    close(ready[0]);
    return (struct neighbour_process){pid, go[1]};
}

static enum verdict_of_kill ask_neighbour(struct neighbour_process neighbour)
{
    if (write(neighbour.go, "", 1) != 1)
        abort();
    close(neighbour.go);
    return verdict_of(neighbour.pid);
}

static enum verdict_of_kill ask_newcomer(bool all)
{
    pid_t pid = fork();
    if (pid == 0) {
        be_quiet();
        _exit((int)witness_newcomer(&expected, all));
    }
    return verdict_of(pid);
}

/* Killed in the fault-th window, behind `changes` visible stores or `steps` instructions; UINT32_MAX of
 * both: behind the last. */
static void kill_at(struct score *score, uint32_t fault, uint32_t changes, uint32_t steps)
{
    bool all = changes == UINT32_MAX && steps == UINT32_MAX;
    bool has_neighbour = expected.scene->step != NULL;
    struct neighbour_process neighbour = {0};
    fence->up = false;
    restore();
    if (has_neighbour)
        neighbour = start_neighbour(all);
    fence->up = fault > 0;
    pid_t pid = start_at(fault);
    enum step_event event = STEP_STEPPED;
    while (changes > 0 && steps > 0 && event != STEP_OVER) {
        event = all ? step_run(pid) : step_once(pid);
        if (event == STEP_GONE)
            abort();
        steps -= !all;
        changes -= !all && has_changed();
    }
    step_kill(pid);
    fence->up = false;
    enum verdict_of_kill verdict = has_neighbour ? ask_neighbour(neighbour) : KILL_FINE;
    enum verdict_of_kill other = ask_newcomer(all);
    if (verdict != KILL_FINE || other != KILL_FINE)
        expected.loud = false; /* once is enough */
    score->kills++;
    score->verdicts[verdict == KILL_FINE ? other : verdict]++;
}

/* ---- a scene --------------------------------------------------------------------------------- */

static void read_file(unsigned char *bytes)
{
    map_now();
    assert_non_null(file.now);
    memcpy(bytes, file.now, sizeof(struct host_file));
    unmap_now();
}

static void prepare(const struct scene *scene)
{
    static struct seat seat;
    memset(&expected, 0, sizeof expected);
    memset(&file, 0, sizeof file);
    expected.scene = scene;
    expected.order = order;
    expected.loud = scene->sins == 0;
    memset(order, 0, sizeof *order);
    memset(fence, 0, sizeof *fence);
    assert_true(temp_dir_make(file.path));
    expected.dir = open(file.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    began = SCENE_BEGINS;
    file.exists = scene->file != FILE_NONE || scene->step;
    file.size = scene->file == FILE_ALLOCATED ? sizeof(struct host_file) : 0;
    if (!scene->before)
        return;
    struct scene innocent = *scene;
    innocent.sins = 0;
    assert_int_equal(scene_open(&innocent, &seat, expected.dir, SCENE_EPOCH), 0);
    scene->before(&seat);
    began = seat.now + NS_PER_MS;
    host_table_close(&seat.table);
    witness_image(&expected, &expected.before);
    read_file(file.before);
    file.size = sizeof(struct host_file);
    if (scene->file == FILE_OF_ANOTHER_BOOT)
        ((struct host_file *)(void *)file.before)->header.boot ^= 1;
}

/* Runs the commit once behind the fence: which pages it touches, and what it leaves. */
static void discover(void)
{
    static const unsigned char zero[FENCE_PAGE];
    fence->up = true;
    fence->target = 0;
    pid_t pid = start_at(0);
    while (step_run(pid) != STEP_OVER)
        assert_true(fence->faults < FENCE_FAULTS);
    step_kill(pid);
    fence->up = false;
    bool touched[FENCE_PAGES] = {false};
    for (uint32_t i = 0; i < fence->faults; i++)
        touched[fence->pages[i]] = true;
    unmap_now();
    read_file(file.after);
    if (expected.scene->step)
        witness_image(&expected, &expected.after);
    expected.after.seat.now = began + 7200 * NS_PER_SEC;
    for (uint32_t page = 0; page < FENCE_PAGES; page++) {
        bool blank = memcmp(file.before + (size_t)page * FENCE_PAGE, zero, FENCE_PAGE) == 0 &&
                     memcmp(file.after + (size_t)page * FENCE_PAGE, zero, FENCE_PAGE) == 0;
        fence->dull[page] = blank && !expected.scene->step;
        if (touched[page] && !fence->dull[page])
            file.watched[file.watched_count++] = page;
        else
            assert_memory_equal(file.before + (size_t)page * FENCE_PAGE,
                                file.after + (size_t)page * FENCE_PAGE, FENCE_PAGE);
    }
}

static void kill_at_states(struct score *score)
{
    for (uint32_t state = 1, fault = 0; state <= fenced.states; state++) {
        while (fault < fenced.faults && fenced.state_at[fault + 1] < state)
            fault++;
        kill_at(score, fault, state - fenced.state_at[fault], UINT32_MAX);
    }
}

static void kill_at_steps(struct score *score, uint32_t stride)
{
    for (uint32_t fault = 0; fault <= fenced.faults; fault++) {
        uint32_t steps = fenced.steps_from[fault];
        uint32_t each = steps > LONG && stride < steps / 4 && stride > 1 ? steps / 4 : stride;
        for (uint32_t step = each; step <= steps; step += each)
            kill_at(score, fault, UINT32_MAX, step);
    }
}

static uint32_t stride(void)
{
    const char *text = getenv("LEASEHOLD_CRASH_STRIDE");
    uint32_t number = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
    return number ? number : 97;
}

static void report(const struct score *at_states, const struct score *at_steps)
{
    uint32_t steps = expected.scene->step ? plain.steps : fenced.steps;
    print_message("%s: %u instructions, %u visible stores; killed behind each and at %u others: ",
                  expected.scene->name, steps, fenced.states, at_steps->kills);
    for (int i = 1; i < KILL_VERDICTS; i++)
        print_message("%u %s%s", at_states->verdicts[i] + at_steps->verdicts[i], kill_names[i],
                      i + 1 < KILL_VERDICTS ? ", " : "\n");
}

static void test_scene(void **state)
{
    const struct scene *scene = *state;
    struct score at_states = {0}, at_steps = {0};
    prepare(scene);
    discover();
    if (scene->step)
        step_through(&plain, false);
    step_through(&fenced, true);
    assert_true(fenced.states > 0 && fenced.states + 1 < STATES_MAX);
    if (scene->step) { /* the fence changes nothing */
        assert_int_equal(plain.states, fenced.states);
        assert_memory_equal(plain.hash, fenced.hash, plain.states * sizeof plain.hash[0]);
        assert_memory_equal(file.now, file.after, sizeof(struct host_file));
    }
    kill_at_states(&at_states);
    if (!scene->sins)
        kill_at_steps(&at_steps, stride());
    kill_at(&at_steps, 0, UINT32_MAX, UINT32_MAX);
    report(&at_states, &at_steps);
    unmap_now();
    close(expected.dir);
    temp_dir_remove(file.path);
    if (scene->sins & SIN_IN_PLACE)
        assert_true(at_states.verdicts[KILL_TORN] > 0);
    if (scene->sins & SIN_LOCK_FILE)
        assert_true(at_states.verdicts[KILL_STUCK] > 0);
    if (scene->sins & SIN_RECORDS_FIRST)
        assert_true(at_states.verdicts[KILL_UNORDERED] > 0);
    if (!scene->sins) {
        assert_int_equal(at_states.kills, at_states.verdicts[KILL_FINE]);
        assert_int_equal(at_steps.kills, at_steps.verdicts[KILL_FINE]);
    }
}

int main(int argc, char **argv)
{
    step_without_strings(argv);
    struct CMUnitTest tests[64];
    memset(tests, 0, sizeof tests);
    size_t count = 0;
    for (uint32_t i = 0; i < scene_count; i++) {
        if (argc > 1 && strstr(scenes[i].name, argv[1]) == NULL)
            continue;
        tests[count++] = (struct CMUnitTest){.name = scenes[i].name,
                                             .test_func = test_scene,
                                             .initial_state = (void *)(uintptr_t)&scenes[i]};
    }
    fence_make();
    order = mmap(NULL, sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return _cmocka_run_group_tests("step_book", tests, count, NULL, NULL);
}
