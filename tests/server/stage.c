#define _GNU_SOURCE
#include "tests/server/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32
#define RUN_MS        30000

struct company companies[4] = {{false, "new"}, {true, "new"}, {false, "old"}, {true, "old"}};

/* Of all stages: a case that fails or is skipped leaves its stage, and the next one, or the end of the
 * program, ends what it started and removes what it made. */
static pid_t children[STAGE_CHILDREN_MAX];
static char root[TEMP_DIR_MAX]; /* "": none is open */

static void kill_all(void)
{
    for (size_t i = 0; i < STAGE_CHILDREN_MAX; i++) {
        if (children[i] == 0)
            continue;
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
        children[i] = 0;
    }
}

static void remove_root(void)
{
    char run[TEMP_DIR_MAX + 8];
    if (!root[0])
        return;
    snprintf(run, sizeof run, "%s/run", root);
    umount2(run, MNT_DETACH); /* cases mount there; most of the time nothing is */
    temp_dir_remove(root);
    root[0] = '\0';
}

static void leave(void)
{
    kill_all();
    remove_root();
}

/* ---- processes -------------------------------------------------------------------------- */

static void remember(pid_t child)
{
    for (size_t i = 0; i < STAGE_CHILDREN_MAX; i++)
        if (children[i] == 0) {
            children[i] = child;
            return;
        }
    fail_msg("too many children");
}

static void forget(pid_t child)
{
    for (size_t i = 0; i < STAGE_CHILDREN_MAX; i++)
        if (children[i] == child)
            children[i] = 0;
}

/* The child: as a shell would start it, and ended with us however we end. */
static void become(char *const *argv, int out, int err)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    if (err >= 0)
        dup2(err, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[0], argv);
    _exit(127);
}

static pid_t spawn(char *const *argv, int out, int err)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        become(argv, out, err);
    remember(child);
    return child;
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int stage_await(struct stage *stage, pid_t child, int64_t within_ms)
{
    (void)stage;
    int64_t end = client_now_ms() + within_ms;
    int status;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        assert_true(ended >= 0);
        if (ended == child) {
            forget(child);
            return code_of(status);
        }
        if (client_now_ms() >= end)
            return -1;
        client_pause_ms(1);
    }
}

void stage_kill(struct stage *stage, pid_t child, int number)
{
    (void)stage;
    assert_int_equal(kill(child, number), 0);
}

pid_t stage_spawn(struct stage *stage, char *const *argv, int *out)
{
    (void)stage;
    int ends[2] = {-1, -1};
    if (out)
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = spawn(argv, ends[1], -1);
    if (out) {
        close(ends[1]);
        *out = ends[0];
    }
    return child;
}

void stage_main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    unsetenv("LEASE_ID");
    atexit(leave);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
}

/* ---- to the end ------------------------------------------------------------------------- */

/* Reads both until they close. False where that did not come in time. */
static bool read_both(const int fds[2], char *texts[2], int64_t end)
{
    size_t sizes[2] = {0, 0};
    bool open[2] = {true, true};
    while (open[0] || open[1]) {
        struct pollfd polled[2] = {{.fd = open[0] ? fds[0] : -1, .events = POLLIN},
                                   {.fd = open[1] ? fds[1] : -1, .events = POLLIN}};
        int64_t left = end - client_now_ms();
        if (left <= 0 || (poll(polled, 2, (int)left) < 0 && errno != EINTR))
            return false;
        for (int i = 0; i < 2; i++) {
            char piece[4096];
            if (!polled[i].revents)
                continue;
            ssize_t n = read(fds[i], piece, sizeof piece);
            if (n <= 0) {
                open[i] = false;
                continue;
            }
            texts[i] = realloc(texts[i], sizes[i] + (size_t)n + 1);
            memcpy(texts[i] + sizes[i], piece, (size_t)n);
            sizes[i] += (size_t)n;
            texts[i][sizes[i]] = '\0';
        }
    }
    return true;
}

struct ran stage_run(struct stage *stage, char *const *argv)
{
    int out[2], err[2];
    struct ran ran = {.out = calloc(1, 1), .err = calloc(1, 1)};
    int64_t begun = client_now_ms();
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    pid_t child = spawn(argv, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    char *texts[2] = {ran.out, ran.err};
    bool ended = read_both((int[]){out[0], err[0]}, texts, begun + RUN_MS);
    ran.out = texts[0];
    ran.err = texts[1];
    close(out[0]);
    close(err[0]);
    if (!ended) {
        kill(child, SIGKILL);
        stage_await(stage, child, RUN_MS);
        fail_msg("%s %s did not end", argv[0], argv[1] ? argv[1] : "");
    }
    ran.code = stage_await(stage, child, RUN_MS);
    ran.ms = client_now_ms() - begun;
    ran.json = json_loads(ran.out, 0, NULL);
    return ran;
}

void ran_done(struct ran *ran)
{
    json_decref(ran->json);
    free(ran->out);
    free(ran->err);
    *ran = (struct ran){0};
}

void ran_says(const struct ran *ran, const char *text)
{
    const char *newline = strchr(ran->err, '\n');
    bool one = newline && newline[1] == '\0' && strncmp(ran->err, "lease: ", 7) == 0;
    if (!one || !strstr(ran->err, text))
        fail_msg("exit %d, and not one line with '%s': %s", ran->code, text, ran->err);
}

/* Fills argv with `lease`, what follows first, and --provider where the command wants one. */
static void arguments(const struct stage *stage, char **argv, const char *first, va_list rest)
{
    size_t count = 0;
    argv[count++] = (char *)(uintptr_t)LEASE_PROGRAM;
    argv[count++] = (char *)(uintptr_t)first;
    if (!stage->company->agent && stage->spec[0] && strcmp(first, "release") != 0) {
        argv[count++] = (char *)(uintptr_t) "--provider";
        argv[count++] = (char *)(uintptr_t)stage->spec;
    }
    const char *next;
    while ((next = va_arg(rest, const char *)) && count + 1 < ARGUMENTS_MAX)
        argv[count++] = (char *)(uintptr_t)next;
    argv[count] = NULL;
}

struct ran stage_lease(struct stage *stage, const char *argument, ...)
{
    char *argv[ARGUMENTS_MAX];
    va_list rest;
    va_start(rest, argument);
    arguments(stage, argv, argument, rest);
    va_end(rest);
    return stage_run(stage, argv);
}

pid_t stage_lease_begin(struct stage *stage, int *out, const char *argument, ...)
{
    char *argv[ARGUMENTS_MAX];
    va_list rest;
    va_start(rest, argument);
    arguments(stage, argv, argument, rest);
    va_end(rest);
    return stage_spawn(stage, argv, out);
}

/* ---- contenders ------------------------------------------------------------------------- */

/* Only then does the signal that ends it make it tell what it has had. */
static bool catches_term(pid_t pid)
{
    char path[32], line[128];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "SigCgt: %llx", &caught) == 1)
            break;
    if (file)
        fclose(file);
    return caught >> (SIGTERM - 1) & 1;
}

void stage_contend(struct stage *stage, unsigned count)
{
    char *argv[] = {(char *)(uintptr_t)CONTENDER_PROGRAM, stage->spec, NULL};
    for (unsigned i = 0; i < count; i++) {
        unsigned at = stage->contender_count++;
        assert_true(at < CONTENDERS_MAX);
        stage->contenders[at] = stage_spawn(stage, argv, &stage->contender_outs[at]);
    }
    for (unsigned i = 0; i < stage->contender_count; i++)
        assert_true(STAGE_UNTIL(catches_term(stage->contenders[i]), 5000));
}

static void take_sum(int out, struct contest *sum)
{
    struct contest one = {0};
    FILE *file = fdopen(out, "r");
    int read = fscanf(file, "%ld %ld %ld %ld %ld %ld %ld", &one.acquires, &one.refused,
                      &one.verifies, &one.go, &one.no, &one.errors, &one.longest_ms);
    fclose(file);
    assert_int_equal(read, 7);
    sum->acquires += one.acquires;
    sum->refused += one.refused;
    sum->verifies += one.verifies;
    sum->go += one.go;
    sum->no += one.no;
    sum->errors += one.errors;
    if (one.longest_ms > sum->longest_ms)
        sum->longest_ms = one.longest_ms;
}

struct contest stage_contest_end(struct stage *stage)
{
    struct contest sum = {0};
    for (unsigned i = 0; i < stage->contender_count; i++)
        kill(stage->contenders[i], SIGTERM);
    for (unsigned i = 0; i < stage->contender_count; i++) {
        assert_int_equal(stage_await(stage, stage->contenders[i], RUN_MS), 0);
        take_sum(stage->contender_outs[i], &sum);
    }
    stage->contender_count = 0;
    print_message("  contest: %ld acquires, %ld refused, %ld verifies, %ld go, %ld no, %ld errors, "
                  "longest %ld ms\n",
                  sum.acquires, sum.refused, sum.verifies, sum.go, sum.no, sum.errors,
                  sum.longest_ms);
    return sum;
}

/* ---- the host --------------------------------------------------------------------------- */

static void set_place(const struct stage *stage, const char *name, const char *folder)
{
    char path[TEMP_DIR_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", stage->root, folder);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv(name, path, 1);
}

void stage_open(struct stage *stage, const struct company *company, unsigned slots)
{
    leave();
    memset(stage, 0, sizeof *stage);
    stage->company = company;
    assert_true(temp_dir_make(root));
    memcpy(stage->root, root, sizeof stage->root);
    snprintf(stage->run, sizeof stage->run, "%s/run", stage->root);
    set_place(stage, "LEASE_DIR", "run");
    set_place(stage, "HOME", "home");
    set_place(stage, "XDG_CONFIG_HOME", "config");
    set_place(stage, "XDG_STATE_HOME", "state");
    slotserver_defaults(&stage->options);
    stage->options.slots = slots;
    stage->options.version = company->version;
    stage->options.prefill_tps = 100000;
    stage->options.tps = 100;
}

static bool agent_is_up(struct stage *stage)
{
    struct ran ran = stage_lease(stage, "status", "--json", NULL);
    bool up = strstr(ran.out, "\"daemon\"") != NULL;
    ran_done(&ran);
    return up;
}

void stage_agent_start(struct stage *stage)
{
    char *argv[] = {(char *)(uintptr_t)LEASE_AGENT_PROGRAM, (char *)(uintptr_t) "--provider",
                    stage->spec, NULL};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    stage->agent = spawn(argv, null, null);
    close(null);
    if (!STAGE_UNTIL(agent_is_up(stage), 10000))
        fail_msg("lease-agent does not come up");
}

void stage_agent_end(struct stage *stage)
{
    if (stage->agent == 0)
        return;
    pid_t agent = stage->agent;
    stage->agent = 0;
    kill(agent, SIGTERM);
    int code = stage_await(stage, agent, 5000);
    if (code != 0)
        fail_msg("lease-agent ended with %d", code);
}

void stage_start(struct stage *stage)
{
    stage->server = slotserver_start(&stage->options);
    assert_non_null(stage->server);
    stage->port = slotserver_port(stage->server);
    snprintf(stage->spec, sizeof stage->spec, "x=http://127.0.0.1:%u", stage->port);
    if (stage->company->agent)
        stage_agent_start(stage);
}

void stage_close(struct stage *stage)
{
    if (stage->contender_count > 0)
        stage_contest_end(stage);
    stage_agent_end(stage);
    kill_all();
    if (stage->server)
        slotserver_stop(stage->server);
    remove_root();
}

/* ---- looking ---------------------------------------------------------------------------- */

long long number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

json_t *stage_fleet(struct stage *stage)
{
    struct ran ran = stage_lease(stage, "fleet", "--json", NULL);
    if (ran.code != 0 || !ran.json)
        fail_msg("lease fleet: exit %d, %s", ran.code, ran.err);
    size_t index;
    json_t *provider, *found = NULL;
    json_array_foreach(json_object_get(ran.json, "providers"), index, provider)
    {
        if (strcmp(text_of(provider, "provider"), "x") == 0)
            found = json_incref(provider);
    }
    if (!found)
        fail_msg("lease fleet does not show x: %s", ran.out);
    ran_done(&ran);
    return found;
}

long long stage_number(struct stage *stage, const char *key)
{
    json_t *provider = stage_fleet(stage);
    long long value = number_of(provider, key);
    json_decref(provider);
    return value;
}

struct slotserver_stats stage_stats(struct stage *stage)
{
    struct slotserver_stats stats;
    slotserver_stats(stage->server, &stats);
    return stats;
}

int stage_request(struct stage *stage, unsigned tokens)
{
    char body[96];
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"n_predict\":%u}", tokens);
    return client_begin(stage->port, "/completion", body);
}
