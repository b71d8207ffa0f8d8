/* lease run: hold a lease while a command runs.
 *
 * One loop of the main thread polls for signals, for what the library has to tell, for the answer
 * to a question under way (lease_ask.h), and for a deadline. */
#define _GNU_SOURCE
#include "tools/lease_run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker/record.h"
#include "tools/lease_ask.h"
#include "tools/lease_host.h"

#define GRACE_MS  5000 /* from SIGTERM to SIGKILL, where a lost lease ends the command */
#define INSIST_MS 20   /* between attempts to end a wait */
#define RETRY_MS  2000 /* between attempts at a new lease for a command that runs on without one */

struct run {
    struct cli *cli;
    struct run_signals signals;
    struct ask ask;
    struct lease lease;
    const char *again[1];      /* the provider of a new lease for running work */
    char ended[LEASE_ID_SIZE]; /* the lease that was lost, "" where none is */
    pid_t child;               /* 0: not started */
    int signal;                /* what came while we asked, 0: none */
    bool over;                 /* the child has ended, or will not be started */
    bool was_ended;            /* by us, since the lease was lost */
    int code;
    int64_t kill_ms;  /* 0: never */
    int64_t retry_ms; /* 0: never */
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Before there is a child: what would end us ends the wait, what would stop us stops us. */
static void signal_while_asking(struct run *run, const struct run_signal *signal)
{
    switch (signal->number) {
    case SIGTSTP: raise(SIGSTOP); break;
    case SIGCHLD:
    case SIGPIPE:
    case SIGCONT:
    case SIGWINCH:
    case SIGTTIN:
    case SIGTTOU: break;
    default: run->signal = signal->number;
    }
}

/* A child that is stopped would not hear of its end. */
static void pass_on(const struct run *run, int number)
{
    if (run->child <= 0 || run->over)
        return;
    kill(run->child, number);
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT)
        kill(run->child, SIGCONT);
}

/* By the terminal, or as by the terminal. A plain SIGSTOP is somebody else's business: its sender
 * will continue the child and not us. */
static bool is_job_stop(int status)
{
    return WSTOPSIG(status) == SIGTSTP || WSTOPSIG(status) == SIGTTIN ||
           WSTOPSIG(status) == SIGTTOU;
}

/* What became of the child. Where its job was stopped we stop as well: the shell waits for that,
 * and nobody else would tell it. */
static void look_at_child(struct run *run)
{
    int status;
    while (!run->over && waitpid(run->child, &status, WNOHANG | WUNTRACED) == run->child) {
        if (WIFSTOPPED(status)) {
            if (is_job_stop(status))
                raise(SIGSTOP);
            continue;
        }
        run->over = true;
        run->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

static void signal_while_running(struct run *run, const struct run_signal *signal)
{
    if (signal->number == SIGCHLD)
        look_at_child(run);
    else if (signal->number != SIGPIPE && !signal->from_terminal)
        pass_on(run, signal->number);
}

static void take_signals(struct run *run)
{
    struct run_signal signal;
    while (signals_next(&run->signals, &signal)) {
        if (run->child > 0)
            signal_while_running(run, &signal);
        else
            signal_while_asking(run, &signal);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int time_left(const struct run *run)
{
    if (run->signal)
        return INSIST_MS;
    int64_t next = run->kill_ms;
    if (run->retry_ms && (!next || run->retry_ms < next))
        next = run->retry_ms;
    if (!next)
        return -1;
    int64_t left = next - now_ms();
    return left < 0 ? 0 : (int)left;
}

/* One turn: waits for something and takes the signals. True where the question's answer is there;
 * *event where the library has something to tell. */
static bool turn(struct run *run, bool *event)
{
    struct pollfd files[] = {
        {.fd = run->signals.fd, .events = POLLIN},
        {.fd = run->ask.done_fd, .events = POLLIN}, /* -1 is skipped */
        {.fd = run->child > 0 ? lease_event_fd(run->cli->agent) : -1, .events = POLLIN},
    };
    int ready = poll(files, 3, time_left(run));
    if (ready < 0)
        return false;
    if (files[0].revents)
        take_signals(run);
    *event = files[2].revents != 0;
    return files[1].revents != 0;
}

/* ---- a lease that was lost ------------------------------------------------------------------- */

static void start_retake(struct run *run)
{
    struct cli *cli = run->cli;
    run->retry_ms = 0;
    run->again[0] = run->lease.provider;
    run->ask.providers = run->again;
    run->ask.count = 1;
    run->ask.request = cli_request(cli);
    run->ask.request.running = run->ended;
    run->ask.request.wait_ms = 0;
    run->ask.request.flags = LEASE_MAY_IDLE;
    if (!ask_start(&run->ask))
        run->retry_ms = now_ms() + RETRY_MS;
}

static void finish_retake(struct run *run)
{
    ask_finish(&run->ask);
    if (run->ask.rc == 0) {
        run->lease = run->ask.lease;
        run->ended[0] = '\0';
        return;
    }
    run->retry_ms = now_ms() + RETRY_MS;
}

static void end_child(struct run *run, int number)
{
    run->was_ended = true;
    pass_on(run, number);
    pass_on(run, SIGCONT); /* a stopped one could not take it */
    run->kill_ms = number == SIGKILL ? 0 : now_ms() + GRACE_MS;
}

static void lease_lost(struct run *run, const struct lease_event *event)
{
    struct cli *cli = run->cli;
    if (strcmp(event->id, run->lease.id) != 0 || run->ended[0] || run->was_ended)
        return;
    text_copy(run->ended, sizeof run->ended, run->lease.id);
    const char *reason = event->reason[0] ? event->reason : "the lease has ended";
    switch (cli->options.on_lost) {
    case ON_LOST_IGNORE: break;
    case ON_LOST_WARN:
        say("warning: lost %s: %s; the command runs on and a new lease is taken for it",
            run->lease.id, reason);
        start_retake(run);
        break;
    case ON_LOST_TERM:
    case ON_LOST_KILL:
        say("lost %s: %s; ending the command", run->lease.id, reason);
        end_child(run, cli->options.on_lost == ON_LOST_TERM ? SIGTERM : SIGKILL);
        break;
    }
}

static void take_events(struct run *run)
{
    struct lease_event event;
    while (lease_event_next(run->cli->agent, &event) == 0 && event.kind != LEASE_EVENT_NONE)
        if (event.kind == LEASE_EVENT_LOST)
            lease_lost(run, &event);
        else if (event.kind == LEASE_EVENT_BOOK)
            say("warning: %s", event.reason);
}

static void take_deadlines(struct run *run)
{
    int64_t now = now_ms();
    if (run->kill_ms && now >= run->kill_ms) {
        run->kill_ms = 0;
        pass_on(run, SIGKILL);
    }
    if (run->retry_ms && now >= run->retry_ms)
        start_retake(run);
}

/* ---- with a lease ---------------------------------------------------------------------------- */

static void give_back(const struct run *run, const char *id)
{
    int error = lease_release(run->cli->agent, id, 0);
    if (error < 0 && error != LEASE_EGONE)
        warn_of_kept(run->cli, id, error);
}

static int watch_child(struct run *run)
{
    while (!run->over) {
        bool event = false;
        if (turn(run, &event))
            finish_retake(run);
        if (event)
            take_events(run);
        take_deadlines(run);
    }
    if (run->ask.done_fd >= 0)
        finish_retake(run);
    if (run->ended[0] == '\0')
        give_back(run, run->lease.id);
    return run->was_ended ? EXIT_LOST : run->code;
}

static int start_child(struct run *run)
{
    struct cli *cli = run->cli;
    char **command = cli->options.command;
    char **block = child_environment(&run->lease, lease_agent_directory(cli->agent), NULL);
    if (block && child_start(command, block, &run->signals, &run->child) == 0) {
        free(block); /* the child has its own copy */
        return watch_child(run);
    }
    say("%s cannot be started: %s", command[0], block ? strerror(errno) : "out of memory");
    free(block);
    give_back(run, run->lease.id);
    return EXIT_INTERNAL;
}

/* ---- without one ----------------------------------------------------------------------------- */

static int run_without(struct run *run, const char *why)
{
    struct cli *cli = run->cli;
    say("warning: %s; running without a lease", why);
    char **block = child_environment(NULL, NULL, cli->candidate_count ? cli->candidates[0] : NULL);
    signals_restore(&run->signals);
    return child_become(cli->options.command, block);
}

/* --else run is for failures of our own; a full provider and a demand that is not met are none. */
static bool is_our_failure(int error)
{
    return error != LEASE_EBUSY && error != LEASE_EFULL && error != LEASE_ELOCKED &&
           error != LEASE_ETIMEOUT && error != LEASE_EBASIS && error != LEASE_EINVAL;
}

static bool may_run_without(const struct cli *cli)
{
    return cli->options.given & OPTION_ELSE;
}

static int place(struct run *run)
{
    struct cli *cli = run->cli;
    run->ask = (struct ask){.agent = cli->agent, .done_fd = -1};
    run->ask.providers = cli->candidates;
    run->ask.count = cli->candidate_count;
    run->ask.request = cli_request(cli);
    run->ask.request.flags = LEASE_MAY_IDLE;
    if (!ask_start(&run->ask)) {
        say("no thread can be started: %m");
        return EXIT_INTERNAL;
    }
    for (bool event = false; !turn(run, &event);)
        if (run->signal)
            ask_interrupt(&run->ask);
    ask_finish(&run->ask);
    int rc = run->ask.rc;
    if (run->signal) {
        if (rc == 0) /* it came too late to be given up in the queue */
            give_back(run, run->ask.lease.id);
        return 128 + run->signal;
    }
    if (rc == 0) {
        run->lease = run->ask.lease;
        warn_of_basis(cli, run->lease.provider, run->ask.verdict.basis);
        return start_child(run);
    }
    if (may_run_without(cli) && is_our_failure(rc)) {
        const char *reason = run->ask.verdict.reason;
        return run_without(run, rc != LEASE_EUNKNOWN && reason[0] ? reason : lease_strerror(rc));
    }
    return say_refusal(cli, cli->options.operands[0], rc, &run->ask.verdict);
}

/* ---- below another lease run ----------------------------------------------------------------- */

static bool is_candidate(const struct cli *cli, const char *provider)
{
    for (size_t i = 0; i < cli->candidate_count; i++)
        if (strcmp(cli->candidates[i], provider) == 0)
            return true;
    return false;
}

static const struct lease_view *find_view(const struct lease_fleet *fleet, const char *provider)
{
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        if (strcmp(fleet->providers[i].provider, provider) == 0)
            return &fleet->providers[i];
    return NULL;
}

/* By its name; or by its holder, which runs us and has taken another one since, after that one was
 * lost. */
static const struct lease_entry *find_entry(const struct lease_fleet *fleet,
                                            const struct lease_view *view, const char *id)
{
    uint32_t count = view ? view->lease_count : 0;
    const struct lease_entry *leases = count > 0 ? &fleet->leases[view->first_lease] : NULL;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(leases[i].id, id) == 0)
            return &leases[i];
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(leases[i].host, fleet->view_from) == 0 && host_is_ancestor(leases[i].pid))
            return &leases[i];
    return NULL;
}

static void fill_parent(struct lease *lease, const struct lease_view *view,
                        const struct lease_entry *entry)
{
    snprintf(lease->url, sizeof lease->url, "%s", view->url);
    lease->token = entry->token;
    lease->left_ms = entry->left_ms;
    lease->units = entry->units;
    lease->slot = entry->slot;
    lease->reach = entry->reach;
}

/* Where nobody here can know the lease (of one process alone, or of another host), its name is
 * believed. */
static bool is_out_of_sight(const struct lease_view *view)
{
    const char *reach = getenv("LEASE_REACH");
    return (reach && strcmp(reach, lease_reach_name(LEASE_REACH_PROCESS)) == 0) || !view ||
           view->reach == LEASE_REACH_FLEET;
}

enum parent { PARENT_NONE, PARENT_KNOWN, PARENT_BELIEVED };

/* The lease that our parent holds, where it is on one of the candidates: waiting for another would
 * be waiting for oneself. A lease that has ended is none: whoever was left running behind a `lease
 * run` that is over has its name for ever. */
static enum parent find_parent(const struct cli *cli, struct lease *lease)
{
    struct lease_id id;
    struct lease_fleet *fleet = NULL;
    const char *text = getenv("LEASE_ID");
    memset(lease, 0, sizeof *lease);
    if (!text || !lease_id_parse(text, lease->provider, &id) ||
        !is_candidate(cli, lease->provider) || lease_fleet(cli->agent, &fleet) < 0)
        return PARENT_NONE;
    const struct lease_view *view = find_view(fleet, lease->provider);
    const struct lease_entry *entry = find_entry(fleet, view, text);
    enum parent parent = entry                   ? PARENT_KNOWN
                         : is_out_of_sight(view) ? PARENT_BELIEVED
                                                 : PARENT_NONE;
    snprintf(lease->id, sizeof lease->id, "%s", entry ? entry->id : text);
    if (view && entry)
        fill_parent(lease, view, entry);
    lease_fleet_free(&fleet);
    return parent;
}

static int refuse_nested(const struct cli *cli, const char *id)
{
    say("this already runs under %s, and waiting for oneself would never end: --nested share runs "
        "under that lease, --nested new takes another",
        id);
    return cli->options.busy_code;
}

/* Under the parent's lease: what it is now, or what we were told of it where it cannot be seen. */
static int share(struct run *run, enum parent parent, const struct lease *lease)
{
    extern char **environ;
    const char *directory = lease_agent_directory(run->cli->agent);
    char **block = parent == PARENT_KNOWN ? child_environment(lease, directory, NULL) : environ;
    signals_restore(&run->signals);
    return child_become(run->cli->options.command, block);
}

/* Our own name of whoever runs: what a person typed, not where it lies. */
static void set_default_label(struct cli *cli, char *label)
{
    if (cli->options.given & OPTION_LABEL)
        return;
    const char *name = cli->options.command[0];
    const char *slash = strrchr(name, '/');
    text_copy(label, LABEL_SIZE, slash && slash[1] ? slash + 1 : name);
    cli->options.label = label;
}

int command_run(struct cli *cli)
{
    struct run run = {.cli = cli};
    char label[LABEL_SIZE];
    struct lease lease;
    bool configured = cli_configure(cli);
    int code = cli_candidates(cli, cli->options.operands[0]);
    if (code != EXIT_DONE)
        return code;
    if (!signals_open(&run.signals)) {
        say("signals cannot be taken: %m");
        return EXIT_INTERNAL;
    }
    if (!configured && may_run_without(cli))
        return run_without(&run, cli->config_error);
    set_default_label(cli, label);
    code = cli_open(cli);
    if (code == EXIT_INTERNAL && may_run_without(cli))
        return run_without(&run, "no agent can be opened");
    if (code != EXIT_DONE)
        return code;
    enum parent parent = cli->options.nested == NESTED_NEW ? PARENT_NONE : find_parent(cli, &lease);
    if (parent == PARENT_NONE)
        return place(&run);
    return cli->options.nested == NESTED_REFUSE ? refuse_nested(cli, lease.id)
                                                : share(&run, parent, &lease);
}
