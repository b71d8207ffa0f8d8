/* lease doctor: what is wrong with this host's set-up, and the mend.
 *
 * It takes no lease and changes nothing. Each check either says that all is well or adds findings:
 * what is wrong, and what to do about it. */
#define _GNU_SOURCE
#include "tools/lease_doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/effective.h"
#include "broker/error.h"
#include "broker/host_dir.h"
#include "broker/record.h"
#include "tools/lease_host.h"

#define EXIT_FINDINGS 1

static void report(struct doctor *doctor, const char *check, bool wrong, const char *what,
                   const char *mend)
{
    char line[1024];
    doctor->findings += wrong;
    if (doctor->json) {
        json_array_append_new(doctor->array, json_pack("{s:s, s:b, s:s, s:s}", "check", check,
                                                       "wrong", wrong, "what", what, "mend", mend));
        return;
    }
    snprintf(line, sizeof line, "%s  %s: %s%s%s", wrong ? "WRONG" : "ok   ", check, what,
             mend[0] ? "; mend: " : "", mend);
    char printable[sizeof line];
    text_copy(printable, sizeof printable, line);
    puts(printable);
}

void doctor_ok(struct doctor *doctor, const char *check, const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    report(doctor, check, false, what, "");
}

void doctor_wrong(struct doctor *doctor, const char *check, const char *mend, const char *format,
                  ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    report(doctor, check, true, what, mend);
}

/* ---- the configuration ----------------------------------------------------------------------- */

static void check_configuration(struct doctor *doctor)
{
    struct cli *cli = doctor->cli;
    static const char check[] = "configuration";
    cli->quiet = true; /* warnings become findings */
    if (!cli_configure(cli)) {
        doctor_wrong(doctor, check, "correct that line", "%s", cli->config_error);
        return;
    }
    for (size_t i = 0; i < cli->config.warnings.count; i++)
        doctor_wrong(doctor, check, "correct or remove it", "%s", cli->config.warnings.items[i]);
    if (!cli->config_path[0])
        doctor_ok(doctor, check, "there is none");
    else if (cli->config.warnings.count == 0)
        doctor_ok(doctor, check, "%s, %zu provider%s, %zu pool%s", cli->config_path,
                  cli->config.providers.count, cli->config.providers.count == 1 ? "" : "s",
                  cli->config.pool_count, cli->config.pool_count == 1 ? "" : "s");
}

/* ---- the runtime directory and who speaks ---------------------------------------------------- */

static void check_candidate(struct doctor *doctor, const struct host_dir_candidate *candidate)
{
    if (candidate->error < 0 && candidate->exists)
        doctor_wrong(doctor, "directory",
                     "correct its owner, mode or place, or name another with LEASE_DIR", "%s: %s",
                     candidate->path, candidate->why);
}

static void check_directories(struct doctor *doctor)
{
    struct host_dir_candidate candidates[HOST_DIR_CANDIDATES_MAX];
    unsigned count = host_dir_candidates(cli_directory(doctor->cli), candidates), alive = 0;
    const struct host_dir_candidate *other = NULL;
    for (unsigned i = 0; i < count; i++) {
        check_candidate(doctor, &candidates[i]);
        if (candidates[i].chosen)
            text_copy(doctor->directory, sizeof doctor->directory, candidates[i].path);
        else if (candidates[i].alive)
            other = &candidates[i];
        alive += candidates[i].alive;
    }
    if (alive > 1 && other) {
        char mend[96];
        snprintf(mend, sizeof mend, "end process %u, or let both use one LEASE_DIR",
                 other->speaker_pid);
        doctor_wrong(doctor, "directory", mend,
                     "two agents are alive, in %s and in %s: their processes do not see each other",
                     doctor->directory, other->path);
    }
    if (doctor->directory[0])
        doctor_ok(doctor, "directory", "%s", doctor->directory);
    else
        doctor_wrong(doctor, "directory", "set LEASE_DIR to a directory of yours with mode 0700",
                     "none can be used: processes of this host do not see each other");
}

/* LEASE_DIR or --dir that differs between the agent and those who look for it. */
static void check_usual_directories(struct doctor *doctor)
{
    const char *given = getenv("LEASE_DIR");
    bool by_environment = given && given[0] && !doctor->cli->options.dir;
    struct host_dir_candidate candidates[HOST_DIR_CANDIDATES_MAX];
    if ((!by_environment && !cli_directory(doctor->cli)) || host_speaker_lives(doctor->directory))
        return;
    char *former = given ? strdup(given) : NULL;
    unsetenv("LEASE_DIR");
    unsigned count = host_dir_candidates(NULL, candidates);
    if (former)
        setenv("LEASE_DIR", former, 1);
    free(former);
    for (unsigned i = 0; i < count; i++)
        if (candidates[i].alive)
            doctor_wrong(doctor, "directory",
                         "unset LEASE_DIR and dir =, or give the agent the same directory",
                         "an agent is alive in %s, and here %s is used: the two do not meet",
                         candidates[i].path, doctor->directory);
}

static void check_speaker(struct doctor *doctor)
{
    static const char check[] = "agent";
    struct host_speaker speaker;
    char mend[64];
    host_speaker(doctor->directory, &speaker);
    snprintf(mend, sizeof mend, "kill -CONT %u", speaker.pid);
    if (speaker.elsewhere)
        doctor_wrong(doctor, check,
                     "share the host's pid namespace with the container (--pid host)",
                     "process %u speaks from another pid namespace: whether holders live cannot be "
                     "told, leases end by time alone",
                     speaker.pid);
    else if (speaker.stopped)
        doctor_wrong(doctor, check, mend, "process %u speaks for this host and is stopped",
                     speaker.pid);
    else if (speaker.exists && !speaker.alive)
        doctor_wrong(doctor, check, "end it, and start lease-agent again",
                     "process %u speaks for this host and has not beaten for 3 s", speaker.pid);
    else if (speaker.alive)
        doctor_ok(doctor, check, "process %u (%s) speaks for this host", speaker.pid, speaker.kind);
    else
        doctor_ok(doctor, check, "none runs, and none is needed");
    doctor->has_speaker = speaker.alive || speaker.exists;
}

/* What the speaker left: its version, and its providers and peers, which count as declared. */
static void check_version(struct doctor *doctor)
{
    struct effective *effective = calloc(1, sizeof *effective);
    if (!effective || !doctor->has_speaker || effective_read(doctor->directory, effective) < 0) {
        free(effective);
        return;
    }
    if (strcmp(effective->version, LEASEHOLD_VERSION) == 0)
        doctor_ok(doctor, "version", "%s, here and at the agent", LEASEHOLD_VERSION);
    else
        doctor_wrong(doctor, "version", "install the same version and start the agent again",
                     "this is %s, the agent is %s", LEASEHOLD_VERSION, effective->version);
    for (uint32_t i = 0; i < effective->provider_count; i++)
        doctor_add_provider(doctor, effective->providers[i].text);
    doctor->has_peers = doctor->has_peers || fleet_config_is_on(&effective->fleet);
    free(effective);
}

/* ---- providers ------------------------------------------------------------------------------- */

static void check_providers(struct doctor *doctor)
{
    const char *declared[DECLARED_MAX];
    size_t count = cli_providers(doctor->cli, declared);
    for (size_t i = 0; i < count; i++)
        doctor_add_provider(doctor, declared[i]);
    for (size_t i = 0; i < doctor->provider_count; i++)
        doctor_check_provider(doctor, &doctor->providers[i]);
    if (doctor->provider_count == 0 && doctor->has_peers)
        doctor_ok(doctor, "providers", "none of this host, those of its peers");
    else if (doctor->provider_count == 0)
        doctor_wrong(doctor, "providers",
                     "add one to the configuration, or let `lease init` write a first one",
                     "none is declared");
}

static int finish(struct doctor *doctor)
{
    int code = doctor->findings > 0 ? EXIT_FINDINGS : EXIT_DONE;
    if (doctor->json)
        print_json(json_pack("{s:i, s:s, s:i, s:o}", "schema", 1, "version", LEASEHOLD_VERSION,
                             "wrong", doctor->findings, "checks", doctor->array));
    return code;
}

int command_doctor(struct cli *cli)
{
    static struct doctor doctor; /* large */
    doctor.cli = cli;
    doctor.json = cli->options.given & OPTION_JSON;
    doctor.array = doctor.json ? json_array() : NULL;
    check_configuration(&doctor);
    check_directories(&doctor);
    check_usual_directories(&doctor);
    check_speaker(&doctor);
    doctor.has_peers = cli_has_peers(cli);
    check_version(&doctor);
    check_providers(&doctor);
    doctor_check_fleet(&doctor);
    return finish(&doctor);
}
