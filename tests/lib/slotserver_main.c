/* slotserver: the stand-in llama-server as a program, for scripts and demonstrations. */
#define _GNU_SOURCE
#include "tests/lib/slotserver.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct program {
    struct slotserver_options server;
    const char *port_file;
    double exit_after;
    bool stats;
};

enum kind { TEXT, NUMBER, REAL, FLAG };

struct flag {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *help;
};

#define OF(field)        offsetof(struct program, field)
#define OF_SERVER(field) offsetof(struct program, server.field)

static const struct flag flags[] = {
    {"host", TEXT, OF_SERVER(host), "numeric IPv4 address (127.0.0.1)"},
    {"port", NUMBER, OF_SERVER(port), "0 picks a free one (0)"},
    {"port-file", TEXT, OF(port_file), "write the port there"},
    {"version", TEXT, OF_SERVER(version), "new (v0.4.0) or old (b6845)"},
    {"slots", NUMBER, OF_SERVER(slots), "serving slots (1)"},
    {"ctx", NUMBER, OF_SERVER(ctx), "context, divided among the slots (131072)"},
    {"prefill-tps", REAL, OF_SERVER(prefill_tps), "prompt tokens a second (1000)"},
    {"tps", REAL, OF_SERVER(tps), "tokens a second, of each slot (50)"},
    {"batch", NUMBER, OF_SERVER(batch), "most prompt tokens in one decode (2048)"},
    {"blind-ms", NUMBER, OF_SERVER(blind_ms), "least duration of a decode (0)"},
    {"http-threads", NUMBER, OF_SERVER(http_threads), "0: as the version has it"},
    {"metrics", FLAG, OF_SERVER(metrics), "serve /metrics"},
    {"no-slots", FLAG, OF_SERVER(no_slots), "do not serve /slots"},
    {"alias", TEXT, OF_SERVER(alias), "NAME[,NAME] of the model"},
    {"api-key", TEXT, OF_SERVER(api_key), "ask for this key"},
    {"loading-ms", NUMBER, OF_SERVER(loading_ms), "503 until then (0)"},
    {"sleep-idle-seconds", REAL, OF_SERVER(sleep_idle_seconds), "sleep when idle (0: never)"},
    {"wake-ms", NUMBER, OF_SERVER(wake_ms), "what waking takes (129)"},
    {"router", TEXT, OF_SERVER(router), "NAME[,NAME] of models to route to"},
    {"models-max", NUMBER, OF_SERVER(models_max), "most models loaded at once (4)"},
    {"model-load-ms", NUMBER, OF_SERVER(model_load_ms), "what loading one takes (176)"},
    {"misbehave", TEXT, OF_SERVER(misbehave),
     "hang, html, truncated, cut, huge, garbage, redirect, refuse-slots"},
    {"stats", FLAG, OF(stats), "print the counters at the end"},
    {"exit-after", REAL, OF(exit_after), "end after so many seconds"},
};
enum { N_FLAGS = sizeof(flags) / sizeof(*flags) };

static void usage(FILE *out)
{
    fprintf(out, "usage: slotserver [options]\n");
    for (size_t i = 0; i < N_FLAGS; i++)
        fprintf(out, "  --%-20s %s\n", flags[i].name, flags[i].help);
}

static bool set(struct program *program, const struct flag *flag, const char *value)
{
    void *field = (char *)program + flag->offset;
    char *end = NULL;
    errno = 0;
    switch (flag->kind) {
    case TEXT: *(const char **)field = value; return true;
    case FLAG: *(bool *)field = true; return true;
    case NUMBER: *(unsigned *)field = (unsigned)strtoul(value, &end, 10); break;
    case REAL: *(double *)field = strtod(value, &end); break;
    }
    return errno == 0 && end != value && *end == '\0';
}

static void parse(struct program *program, int argc, char **argv)
{
    struct option options[N_FLAGS + 2] = {{"help", no_argument, NULL, 'h'}};
    for (int i = 0; i < N_FLAGS; i++)
        options[i + 1] = (struct option){
            flags[i].name, flags[i].kind == FLAG ? no_argument : required_argument, NULL, 256 + i};
    int got;
    while ((got = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        bool known = got >= 256;
        if (known && set(program, &flags[got - 256], optarg))
            continue;
        if (known)
            fprintf(stderr, "slotserver: --%s: not a number\n", flags[got - 256].name);
        usage(got == 'h' ? stdout : stderr);
        exit(got == 'h' ? 0 : 64);
    }
    if (optind < argc) {
        usage(stderr);
        exit(64);
    }
}

/* Whoever waits for the file never reads half of it. */
static bool write_port_file(const char *path, unsigned port)
{
    char beside[4096];
    if (snprintf(beside, sizeof(beside), "%s.%ld", path, (long)getpid()) >= (int)sizeof(beside))
        return false;
    FILE *file = fopen(beside, "w");
    if (!file)
        return false;
    bool written = fprintf(file, "%u\n", port) > 0;
    written = fclose(file) == 0 && written;
    return written && rename(beside, path) == 0;
}

/* The signal that ended the wait, or 0 when the time was over. */
static int wait_for_end(const sigset_t *signals, double seconds)
{
    if (!(seconds > 0)) {
        int caught;
        while (sigwait(signals, &caught) != 0)
            continue;
        return caught;
    }
    struct timespec left = {
        .tv_sec = (time_t)seconds,
        .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
    };
    int caught = sigtimedwait(signals, NULL, &left);
    return caught > 0 ? caught : 0;
}

static void print_stats(struct slotserver *server)
{
    char *stats = slotserver_stats_json(server);
    printf("%s\n", stats);
    fflush(stdout);
    free(stats);
}

enum { ENDED = 0, HURRIED = 1, ABORTED = 2 };

/* As the real one of that version ends. */
static int end_as_version(struct slotserver *server, const struct program *program,
                          const sigset_t *signals)
{
    if (strcmp(program->server.version, "old") == 0)
        return slotserver_in_flight(server) ? ABORTED : ENDED;
    if (slotserver_terminate(server))
        return ENDED;
    while (slotserver_lingers(server)) {
        if (sigtimedwait(signals, NULL, &(struct timespec){0}) > 0)
            return HURRIED;
    }
    return ENDED;
}

static int leave(struct slotserver *server, const struct program *program, int how)
{
    if (program->stats)
        print_stats(server);
    if (how == HURRIED)
        _exit(1);
    if (how == ABORTED) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        abort();
    }
    slotserver_stop(server);
    return 0;
}

int main(int argc, char **argv)
{
    struct program program = {0};
    slotserver_defaults(&program.server);
    parse(&program, argc, argv);

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);

    struct slotserver *server = slotserver_start(&program.server);
    if (!server)
        return 1;
    unsigned port = slotserver_port(server);
    printf("slotserver: listening on http://%s:%u\n", program.server.host, port);
    fflush(stdout);
    if (program.port_file && !write_port_file(program.port_file, port))
        perror("slotserver: port file");
    int caught = wait_for_end(&signals, program.exit_after);
    int how = caught ? end_as_version(server, &program, &signals) : ENDED;
    return leave(server, &program, how);
}
