#define _GNU_SOURCE
#include "tests/lib/host_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "broker/host_beat.h"
#include "broker/host_clock.h"

#define PIDS_MAX 512

char stage_dir[TEMP_DIR_MAX];
struct board *board;
static char home[TEMP_DIR_MAX];
static pid_t pids[PIDS_MAX];
static size_t pid_count;

/* ---- the stage --------------------------------------------------------------------------------- */

int stage_set_up(void **state)
{
    (void)state;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || !temp_dir_make(home))
        return -1;
    chmod(home, 0755); /* a stage may be shared with another user; the directory in it is not */
    snprintf(stage_dir, sizeof stage_dir, "%.40s/run", home);
    if (mkdir(stage_dir, 0700) < 0)
        return -1;
    setenv("HOME", home, 1);
    setenv("LEASE_DIR", stage_dir, 1);
    setenv("XDG_STATE_HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("STATE_DIRECTORY");
    unsetenv("LEASE_ID");
    signal(SIGPIPE, SIG_IGN);
    pid_count = 0;
    return chdir(home);
}

static void forget(pid_t pid)
{
    for (size_t i = 0; i < pid_count; i++)
        if (pids[i] == pid)
            pids[i--] = pids[--pid_count];
}

int stage_tear_down(void **state)
{
    (void)state;
    while (pid_count > 0)
        stage_kill(pids[0]);
    host_clock_offset(0);
    munmap(board, sizeof *board);
    if (chdir("/") < 0)
        return -1;
    temp_dir_remove(home);
    return 0;
}

/* ---- parts ------------------------------------------------------------------------------------- */

static pid_t start_child(void)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(PART_FAILED);
        pid_count = 0;
    } else if (pid > 0) {
        if (pid_count == PIDS_MAX)
            abort();
        pids[pid_count++] = pid;
    }
    return pid;
}

pid_t stage_play(stage_part *part, int index)
{
    pid_t pid = start_child();
    if (pid == 0)
        _exit(part(index));
    assert_true(pid > 0);
    return pid;
}

struct awaited {
    const _Atomic uint32_t *word;
    uint32_t least;
};

static bool has_come(void *context)
{
    const struct awaited *awaited = context;
    return atomic_load(awaited->word) >= awaited->least;
}

bool stage_await(const _Atomic uint32_t *word, uint32_t least)
{
    struct awaited awaited = {word, least};
    return eventually(has_come, &awaited);
}

void stage_enter(uint64_t token)
{
    if (atomic_fetch_add(&board->inside, 1) != 0)
        atomic_fetch_add(&board->overlaps, 1);
    if (atomic_exchange(&board->last_token, token) >= token)
        atomic_fetch_add(&board->tokens_that_fell, 1);
}

void stage_leave(void)
{
    atomic_fetch_sub(&board->inside, 1);
}

/* ---- programs ---------------------------------------------------------------------------------- */

static void send_to(int descriptor, const char *path)
{
    int flags = descriptor == 0 ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
    int fd = open(path && path[0] ? path : "/dev/null", flags, 0600);
    must(fd >= 0 && dup2(fd, descriptor) == descriptor);
    close(fd);
}

pid_t stage_start(char *const argv[], const char *out, const char *err)
{
    pid_t pid = start_child();
    if (pid == 0) {
        send_to(0, NULL);
        send_to(1, out);
        send_to(2, err);
        execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}

int stage_run(char *const argv[], char *out, size_t size)
{
    char path[TEMP_DIR_MAX + 32];
    snprintf(path, sizeof path, "%s/out-%d", home, (int)getpid());
    int code = stage_end(stage_start(argv, path, NULL));
    if (!stage_read(path, out, size))
        out[0] = '\0';
    unlink(path);
    return code;
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int stage_end_within(pid_t pid, int64_t ms)
{
    int64_t deadline = test_now_ns() + stage_patience(ms) * 1000000;
    int status;
    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (test_now_ns() > deadline) {
            stage_kill(pid);
            fprintf(stderr, "pid %d had not ended in %lld ms\n", (int)pid, (long long)ms);
            return -1;
        }
        struct timespec nap = {0, 200000};
        nanosleep(&nap, NULL);
    }
    forget(pid);
    return code_of(status);
}

pid_t stage_next(int *code)
{
    int64_t deadline = test_now_ns() + STAGE_PATIENT * INT64_C(1000000);
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) <= 0) {
        if (pid < 0 || test_now_ns() > deadline)
            fail_msg("no child ended in %d ms", STAGE_PATIENT);
        struct timespec nap = {0, 200000};
        nanosleep(&nap, NULL);
    }
    forget(pid);
    *code = code_of(status);
    return pid;
}

int stage_end(pid_t pid)
{
    return stage_end_within(pid, STAGE_PATIENT);
}

void stage_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    forget(pid);
}

bool stage_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
    return true;
}

/* ---- our programs ------------------------------------------------------------------------------ */

static bool beats(void *context)
{
    int dir = open(stage_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : host_beat_open(dir, false, 0);
    struct host_beat beat;
    bool alive = fd >= 0 && host_beat_read(fd, &beat) == 0 &&
                 host_beat_alive(&beat, host_now_ns()) && beat.pid == *(uint32_t *)context;
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return alive;
}

pid_t stage_start_agent(const char *provider)
{
    return stage_start_agents(provider, NULL);
}

pid_t stage_start_agents(const char *one, const char *other)
{
    char *argv[] = {LEASE_AGENT,
                    "--dir",
                    stage_dir,
                    "--provider",
                    (char *)(uintptr_t)one,
                    "--provider",
                    (char *)(uintptr_t)other,
                    NULL};
    if (!one)
        argv[3] = NULL;
    else if (!other)
        argv[5] = NULL;
    pid_t pid = stage_start(argv, NULL, "agent.err");
    uint32_t wanted = (uint32_t)pid;
    if (!eventually(beats, &wanted)) {
        char text[512] = "";
        stage_read("agent.err", text, sizeof text);
        fail_msg("lease-agent does not beat: %s", text);
    }
    return pid;
}

void stage_stop_agent(pid_t agent)
{
    kill(agent, SIGTERM);
    assert_int_equal(stage_end(agent), 0);
}

lease_agent_t *stage_open(const char *provider, unsigned flags)
{
    lease_agent_t *agent = NULL;
    struct lease_options options = {.size = sizeof options,
                                    .providers = &provider,
                                    .provider_count = provider ? 1 : 0,
                                    .flags = flags};
    char error[512];
    int rc = lease_agent_open(&options, &agent, error, sizeof error);
    if (rc < 0)
        fprintf(stderr, "lease_agent_open: %d %s\n", rc, error);
    return agent;
}

bool stage_look(lease_agent_t *agent, const char *provider, struct lease_view *view)
{
    struct lease_fleet *fleet;
    bool found = false;
    if (lease_fleet(agent, &fleet) < 0)
        return false;
    for (uint32_t i = 0; i < fleet->provider_count && !found; i++) {
        found = strcmp(fleet->providers[i].provider, provider) == 0;
        if (found)
            *view = fleet->providers[i];
    }
    lease_fleet_free(&fleet);
    return found;
}

int64_t stage_available(lease_agent_t *agent, const char *provider)
{
    struct lease_view view;
    return stage_look(agent, provider, &view) ? view.available : -2;
}

int64_t stage_patience(int64_t ms)
{
    double load = 0, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) != 1 || load <= processors)
        return ms;
    return (int64_t)((double)ms * load / processors);
}

long stage_number(const char *variable, long usual)
{
    const char *text = getenv(variable);
    return text && text[0] ? strtol(text, NULL, 10) : usual;
}
